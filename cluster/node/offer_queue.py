"""Workers that would take leases, by what fits them, and the grant that asks them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from ...proto.v1 import worker_pb2
from ...statemachine.model.request import (
    Grant,
    Offer,
)
from .pending import PendingRequest
from .worker_session import WorkerKind, WorkerSession

KINDS = 128  # Kinds of workers that are asked in one grant.
OFFERED = 64  # Workers of a kind that are asked in one grant.


class OfferQueue:
    """See the head of this file."""

    def __init__(self, is_current: Callable[[WorkerSession], bool]) -> None:
        """`is_current`: whether a session still is that of its worker."""
        self._is_current = is_current
        self._queues: dict[WorkerKind, deque[WorkerSession]] = {}
        # Somebody offers who was not asked yet.
        self.fresh = False
        # Kinds of workers that are still to be asked since something may have become ready.
        self._unasked = 0

    def add(self, session: WorkerSession) -> None:
        """It has credits. Whoever is in the queue already keeps its place."""
        if not session.in_offer_queue and not session.in_grant:
            self._queues.setdefault(session.kind, deque()).append(session)
            session.in_offer_queue = True

    def clear(self) -> None:
        self._queues.clear()

    def grant(self, most: int, *, anew: bool = True) -> PendingRequest | None:
        """Offer what workers would take; None when there is nobody. Of very many kinds of workers
        some are asked at a time, each in turn, until all were asked since `anew`: something may
        have become ready."""
        if anew or (self.fresh and not self._unasked):
            self._unasked = len(self._queues)
        self.fresh = False
        chosen = []
        for kind in list(islice(self._queues, KINDS)):
            line = self._queues.pop(kind)
            chosen += self._choose(kind, line, most)
            if line:
                # Behind all others.
                self._queues[kind] = line
            self._unasked -= 1
        if not chosen:
            self._unasked = 0
            return None
        unasked = self._unasked = max(0, self._unasked)
        offers = tuple(offer_of(session) for session in chosen)

        def answer(granted: object) -> None:
            assert isinstance(granted, list)
            for session, leases in zip(chosen, granted, strict=True):
                session.granted(leases)
            if unasked or any(map(_used_up, offers, granted)) or sum(map(len, granted)) >= most:
                # More may be ready than these could take.
                self.fresh = bool(self._queues)

        def unknown() -> None:
            for session in chosen:
                session.in_grant = session.has_stale_grant = False
                session.grant_is_unknown = True
                if session.resume is not None:
                    session.sessions.queue_hello(session)

        def pre_serialize(granted: object) -> None:
            assert isinstance(granted, list)
            for session, leases in zip(chosen, granted, strict=True):
                if leases:
                    session.sink.pre_serialize(leases)

        return PendingRequest(Grant(offers, most), answer, unknown, pre_serialize=pre_serialize)

    def _choose(
        self, kind: WorkerKind, line: deque[WorkerSession], most: int
    ) -> list[WorkerSession]:
        """Some sessions of a line, first come first served; who has no credits leaves it."""
        chosen: list[WorkerSession] = []
        while line and len(chosen) < OFFERED and most > 0:
            session = line.popleft()
            session.in_offer_queue = False
            if session.lapsing or session.resume is not None or not self._is_current(session):
                continue
            if session.kind != kind:
                # It sent another hello since it came into this line.
                self.add(session)
            elif session.credits:
                session.in_grant = True
                most -= session.credits
                chosen.append(session)
        return chosen


def offer_of(session: WorkerSession) -> Offer:
    namespaces, queues, handlers, labels = session.kind
    return Offer(
        session.worker, session.credits, namespaces, queues, handlers, dict(labels),
        session.request,
    )  # fmt: skip


def _used_up(offer: Offer, leases: Sequence[worker_pb2.Lease]) -> bool:
    return len(leases) == offer.credits
