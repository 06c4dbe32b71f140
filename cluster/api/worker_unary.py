"""What workers without a stream call, and what people ask about workers.

A call that waits for leases is a session's ear for as long as it waits. One worker's calls for
leases take turns: the next one listens when the one before is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from typing import cast

from ...proto.v1 import worker_pb2
from ...statemachine.core import filters, pages
from ...statemachine.core.instants import set_ms, to_ms
from ...statemachine.core.rejection import Refused, Rejection
from ...statemachine.model import keys
from ...statemachine.model.record import SessionRecord
from ...statemachine.model.request import Again, Note, Report
from ...statemachine.model.view import View
from ...statemachine.runs import leases
from ..node import refusals
from ..node.worker_session import WorkerSession
from ..node.worker_sink import Messages
from . import foreign_runs, places
from .call import Call
from .caller_limits import CallerShare
from .lasting import Lasting
from .node_port import NodePort
from .turns import CallTurns
from .unary import OwnCall
from .worker_frames import WORDS_MAX, fitting, too_many, welcome, within, wrong
from .worker_names import sessions_of

LEASES_MAX = 1_000
WAIT_MAX_S = 60.0
# How long a call that does not want to wait waits for its offer to be looked at, when thousands do.
LOOKED_S = 1.0
REASON_CHARS = 256
LOOKED_AT = 1_000  # Workers for one page, some 10 ms of the loop; the next one goes on.
BOOL = filters.Field(words=("true", "false"))
FIELDS = {"queue": filters.TEXT, "labels.": filters.TEXT, "draining": BOOL}
Stop = worker_pb2.Stop
Ack = worker_pb2.ResultAck


def namespaces_of(session: WorkerSession) -> tuple[str, ...]:
    """Where it takes runs. Until its first hello a leader knows that of a tenant's worker alone."""
    return session.kind[0] if session.hello.namespaces or not session.from_lease_only else ()


class Poll:
    """A call that waits for leases; see WorkerSink."""

    def __init__(self) -> None:
        self.taken: list[worker_pb2.Lease] = []
        self.stopped: dict[int, Stop] = {}
        self.drained = False
        # The node leads no more.
        self.moved: str | None = None
        # The session is gone or belongs to somebody else.
        self.gone = False
        self.session: WorkerSession | None = None
        # The caller has left, so what comes goes back.
        self.left = False
        self._answerable = asyncio.Event()
        # A grant has looked at its offer.
        self._looked = asyncio.Event()

    def pre_serialize(self, words: Messages) -> None:
        """The answer is made when all is there."""

    def leases(self, leases: Sequence[worker_pb2.Lease]) -> None:
        self.taken.extend(leases)
        self._looked.set()
        if self.left and self.session is not None and leases:
            self.session.report(given_back(leases))
        if leases:
            self._answerable.set()

    def acks(self, acks: Sequence[worker_pb2.ResultAck]) -> None:
        """What is given back here, nobody waits for."""

    def stops(self, stops: Sequence[Stop]) -> None:
        self.stopped.update((stop.token, stop) for stop in stops)
        self._answerable.set()

    def drain(self, reason: str) -> None:
        self.drained = True
        self._answerable.set()

    def redirect(self, leader: str, reason: str) -> None:
        self.moved = leader
        self._answerable.set()
        self._looked.set()

    def lost(self, refusal: Rejection) -> None:
        self.gone = True
        self._answerable.set()
        self._looked.set()

    async def answerable(self, seconds: float) -> bool:
        """Whether there is something to answer with."""
        return await _within(self._answerable, seconds)

    async def looked(self, seconds: float) -> bool:
        """Whether a grant has looked at its offer."""
        return await _within(self._looked, seconds)

    def look_again(self) -> None:
        self._looked.clear()


class WorkerCalls:
    """The unary calls of the worker service that are no rules."""

    def __init__(self, node: NodePort, waits: CallerShare, lasting: Lasting) -> None:
        self.node, self.waits, self.lasting = node, waits, lasting
        # Of workers that call for leases.
        self._turns = CallTurns()

    def calls(self) -> Mapping[str, OwnCall]:
        return {
            "WorkerService/Lease": self.lease,
            "WorkerService/Heartbeat": self.heartbeat,
            "WorkerService/ReportResults": self.report,
            "WorkerService/ListWorkers": self.list,
            "WorkerService/DrainWorker": self.drain,
        }

    # Leases.

    async def lease(self, call: Call, request: worker_pb2.LeaseRequest) -> worker_pb2.LeaseResponse:
        """Take some leases, waiting for the first."""
        if not 0 <= request.maximum <= LEASES_MAX:
            raise wrong("maximum", f"is {request.maximum}; it must be from 1 to {LEASES_MAX}")
        if self.node.leader.skew_ms:
            raise refusals.clock_skew(self.node.leader.skew_ms)
        await places.need_of(self.node, request.hello, call.timeout())
        with self.waits.taken(call.caller), self.lasting.watched(call):
            return await self._lease(call, request)

    async def _lease(
        self, call: Call, request: worker_pb2.LeaseRequest
    ) -> worker_pb2.LeaseResponse:
        async with self._turns.turn(request.hello.worker):
            if request.request_id:
                again = await self._ask(call, Again(request))
                if again is not None:
                    again = cast("list[worker_pb2.Lease]", again)
                    return await self._answer(call, request, again, Poll())
            return await self._poll(call, request)

    async def _poll(self, call: Call, request: worker_pb2.LeaseRequest) -> worker_pb2.LeaseResponse:
        poll = Poll()
        session = poll.session = await self._open(call, request.hello, poll)
        try:
            await self._listen(call, request, poll, session)
            self.lasting.check(call)
        except (asyncio.CancelledError, Refused) as error:
            # Nobody hears the answer. With a request_id the caller finds them again, if it is one
            # whose access token is still valid.
            refused = isinstance(error, Refused) or call.ended_by is not None
            poll.left = refused or not request.request_id
            if poll.left and poll.taken:
                session.report(given_back(poll.taken))
            raise
        finally:
            session.withdraw()
        if poll.moved is not None and not poll.taken:
            if session.in_grant or session.grant_is_unknown:
                raise refusals.leader_changed(self.node.name)
            raise refusals.not_leader(self.node.name, poll.moved)
        return await self._answer(call, request, poll.taken, poll)

    async def _listen(
        self, call: Call, request: worker_pb2.LeaseRequest, poll: Poll, session: WorkerSession
    ) -> None:
        loop = asyncio.get_running_loop()
        wait_s = min(to_ms(request.wait) / 1000, WAIT_MAX_S, call.wait_max())
        until = loop.time() + wait_s
        session.credit(request.maximum or 1, request)
        if not session.draining:
            # Without a time to wait it is answered when its offer was looked at once.
            await poll.looked(min(call.timeout(), LOOKED_S))
        period = self.node.sessions.heartbeat_ms / 1000
        while not poll.gone and (left := until - loop.time()) > 0:
            if await poll.answerable(min(left, period)):
                break
            if not self._held(session.worker):
                # A session without a lease needs no heartbeat.
                session.hear()
        session.withdraw()
        if session.in_grant and not (poll.taken or poll.gone or poll.moved is not None):
            # What is being granted at this moment still comes, and must not be lost.
            poll.look_again()
            await poll.looked(call.timeout())

    async def _open(self, call: Call, hello: worker_pb2.WorkerHello, poll: Poll) -> WorkerSession:
        """The worker's session; one whose leases are being ended is waited for."""
        sessions = self.node.sessions
        while True:
            if not self.node.leads:
                raise refusals.not_leader(self.node.name, self.node.leader_address)
            before = sessions.by_worker.get(hello.worker)
            if before is None or not before.lapsing or call.timeout() < 0.1:
                return sessions.open(hello, poll, stream=False)
            await asyncio.sleep(0.02)

    async def _answer(
        self,
        call: Call,
        request: worker_pb2.LeaseRequest,
        taken: Sequence[worker_pb2.Lease],
        poll: Poll,
    ) -> worker_pb2.LeaseResponse:
        count = fitting(taken)
        if count < len(taken):
            # gRPC would refuse an answer that is too large, and nobody would know of the leases.
            await self._ask(call, Report(request.hello.worker, tuple(given_back(taken[count:]))))
        answer = worker_pb2.LeaseResponse(
            leases=taken[:count],
            welcome=welcome(self.node.sessions, self.node.cluster),
            drain=poll.drained,
        )
        answer.stops.extend(self._stops(request.hello.worker, poll.stopped))
        return answer

    # Messages.

    async def heartbeat(
        self, call: Call, request: worker_pb2.HeartbeatRequest
    ) -> worker_pb2.HeartbeatResponse:
        """Keep a session."""
        if len(request.progress) > WORDS_MAX:
            raise too_many("progress", WORDS_MAX, len(request.progress), "entries")
        within(request.progress)
        sessions = self.node.sessions
        session = sessions.by_worker.get(request.worker)
        if session is None or session.lapsing:
            raise refusals.no_session(request.worker, lapsed=session is not None)
        session.hear()
        own, foreign = foreign_runs.parted(request.progress, places.only_of(self.node, call))
        stopped = {word.token: foreign_runs.stop(word) for word in foreign}
        notes = tuple(own)
        while notes:
            # A change may have no room for all of them.
            acks = cast(list[Ack], await self._ask(call, Note(request.worker, notes)))
            for note, ack in zip(notes, acks, strict=False):
                if ack.reason:
                    stopped[ack.token] = Stop(
                        token=ack.token, run=note.run, kind=Stop.KIND_LOST, message=ack.message
                    )
            notes = notes[len(acks) :]
        answer = worker_pb2.HeartbeatResponse(drain=session.draining)
        answer.stops.extend(self._stops(request.worker, stopped))
        if sessions.shows_time:
            set_ms(answer.server_time, sessions.wall_ms())
        return answer

    async def report(
        self, call: Call, request: worker_pb2.ReportResultsRequest
    ) -> worker_pb2.ReportResultsResponse:
        """How attempts ended."""
        if len(request.results) > WORDS_MAX:
            raise too_many("results", WORDS_MAX, len(request.results), "entries")
        session = self.node.sessions.by_worker.get(request.worker)
        if session is not None:
            session.hear()
        only = places.only_of(self.node, call)
        own, _ = foreign_runs.parted(request.results, only)
        acks = await self._report(call, request.worker, tuple(own))
        return worker_pb2.ReportResultsResponse(acks=foreign_runs.acks(request.results, only, acks))

    def _ask(self, call: Call, body: object) -> Awaitable[object]:
        return self.node.ask(body, call.actor, call.timeout(), call.namespace)

    async def _report(
        self, call: Call, worker: str, results: tuple[worker_pb2.Result, ...]
    ) -> list[Ack]:
        acks: list[Ack] = []
        while len(acks) < len(results):
            # A change that is full takes some of them, and the next one goes on.
            acks += cast(list[Ack], await self._ask(call, Report(worker, results[len(acks) :])))
        return acks

    def _stops(self, worker: str, stopped: Mapping[int, Stop]) -> Iterator[Stop]:
        """What to stop: a cancellation is sent until their attempts have ended."""
        cancels = leases.cancels(self._view(), worker)
        sent = {stop.token for stop in cancels}
        yield from cancels
        yield from (stop for token, stop in stopped.items() if token not in sent)

    # People.

    async def list(
        self, call: Call, request: worker_pb2.ListWorkersRequest
    ) -> worker_pb2.ListWorkersResponse:
        """The sessions by their ids."""
        await places.need(self.node, request.namespace, call.timeout())
        wanted = filters.parse(request.filter, FIELDS)
        text = f"{request.namespace}\0{request.filter}"
        paging = pages.read("workers", 0, text, request.page_size, request.page_token)
        after = paging.after.decode(errors="replace")
        sessions = self.node.sessions.by_worker
        where = request.namespace
        # Where the page ends must not name what is not to be seen.
        found = sorted(
            worker
            for worker, session in sessions.items()
            if worker > after and (not where or where in namespaces_of(session))
        )

        def show(worker: str) -> worker_pb2.Worker | None:
            session = sessions[worker]
            return self._worker(session) if fits(session, wanted) else None

        looked = itertools.count()
        page = pages.fill(paging, found, str.encode, show, lambda: next(looked) >= LOOKED_AT)
        return worker_pb2.ListWorkersResponse(workers=page.items, next_page_token=page.next_token)

    def _worker(self, session: WorkerSession) -> worker_pb2.Worker:
        sessions, hello = self.node.sessions, session.hello
        worker = worker_pb2.Worker(
            worker=keys.worker_id(session.worker), namespaces=namespaces_of(session),
            queues=() if session.from_lease_only else session.kind[1],
            labels=dict(hello.labels), handlers=hello.handlers, slots=hello.slots,
            leased=self._held(session.worker), credits=session.credits, program=hello.program,
            draining=session.draining,
        )  # fmt: skip
        set_ms(worker.connect_time, session.connected_ms)
        silent_ms = sessions.clock_ms() - session.heard_ms
        set_ms(worker.last_seen_time, sessions.wall_ms() - silent_ms)
        return worker

    async def drain(
        self, call: Call, request: worker_pb2.DrainWorkerRequest
    ) -> worker_pb2.DrainWorkerResponse:
        """Ask a worker to take no more."""
        if len(request.reason) > REASON_CHARS:
            raise wrong(
                "reason", f"has {len(request.reason)} characters; at most {REASON_CHARS} may be"
            )
        found = sessions_of(self.node, call, request.worker)
        if not found:
            raise refusals.worker_not_found(request.worker)
        for session in found:
            if not request.validate_only and not session.draining:
                session.drain(request.reason or "somebody asked for it")
        leased = sum(self._held(session.worker) for session in found)
        return worker_pb2.DrainWorkerResponse(leased=leased)

    # The state.

    def _view(self) -> View:
        return View(self.node.replica.store, self.node.sessions.wall_ms())

    def _held(self, worker: str) -> int:
        """Leases that a worker holds."""
        record = self._view().get(keys.session(worker), SessionRecord)
        return record.leased if record is not None else 0


def fits(session: WorkerSession, wanted: filters.Filter) -> bool:
    """Whether a filter lets a session pass; one of its queues is enough."""

    def value_of(field: str) -> filters.Value:
        if field == "queue":
            return session.kind[1]
        if field == "draining":
            return "true" if session.draining else "false"
        return session.hello.labels.get(field.removeprefix("labels."), "")

    return wanted.fits(value_of)


def given_back(found: Iterable[worker_pb2.Lease]) -> list[worker_pb2.Result]:
    """Reports that give leases back which nobody will work on."""
    back = worker_pb2.GivenBack()
    return [worker_pb2.Result(run=lease.run, token=lease.token, given_back=back) for lease in found]


async def _within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(seconds, 0)):
            await event.wait()
    return event.is_set()
