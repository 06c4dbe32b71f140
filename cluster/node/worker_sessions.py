"""Workers as the leader knows them: who is there, what they would take, what they reported.

All of it lives in the leader's memory. A heartbeat is one per worker and never enters the log;
only a lapse does. A new leader begins with a session for everybody who holds leases, and gives
each a full period before it calls anybody dead.

Where all places are taken, a worker without leases gives its place to the first worker of a tenant
that has none: it loses nothing but its turn.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from itertools import islice

from ...proto.v1 import worker_pb2
from ...statemachine.core.rejection import Refused
from ...statemachine.core.store import MemoryStore, Reading
from ...statemachine.model import keys
from ...statemachine.model.request import (
    Lapse,
    Resume,
    Resumed,
    WorkDone,
)
from ...statemachine.model.workers import Worker, WorkerCounts
from ...statemachine.runs import leases
from . import worker_reports
from .hello import take_held
from .limits import HEARTBEAT_MS
from .offer_queue import OfferQueue, offer_of
from .pending import PendingRequest
from .progress_queue import ProgressQueue
from .refusals import backlog_full, place_given, session_lapsed, session_taken_over
from .tenant_room import TenantRoom
from .worker_session import REPORTS, WorkerSession, kind_of_worker
from .worker_sink import NULL_SINK, WorkerSink

SESSIONS_MAX = 20_000
GIVE_WAY_LOOK = 200  # Those silent for longest, among whom one is looked for that gives its place.
HEARING_MS = 2  # Added to the first period under a new leader for each worker that may come back.


class WorkerSessions:
    """All of them. Times are milliseconds of a clock that only grows."""

    def __init__(
        self,
        clock_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        wake: Callable[[], None],
        heartbeat_ms: int = HEARTBEAT_MS,
        *,
        shows_time: bool = True,
        state: Callable[[], Reading] = MemoryStore,
    ) -> None:
        """Workers may count on from what the clock says, unless it does not show the time since it
        stands still. The state says who holds leases."""
        self._state = state
        self.clock_ms, self.wall_ms, self.wake = clock_ms, wall_ms, wake
        self.shows_time = shows_time
        self.heartbeat_ms, self.lapse_ms = heartbeat_ms, 3 * heartbeat_ms
        # By the names under which they are known, which say whose they are (`keys.worker_of`).
        self.by_worker: dict[str, WorkerSession] = {}
        self.room = TenantRoom(SESSIONS_MAX)
        # By what they pull from, those that are connected.
        self.connected = WorkerCounts()
        # The one that was silent for longest is first.
        self._heard: OrderedDict[WorkerSession, None] = OrderedDict()
        # Those that have reported how attempts ended, or ask for more time.
        self._reporting: OrderedDict[WorkerSession, None] = OrderedDict()
        # Those that have reported how far attempts are.
        self._noting = ProgressQueue()
        # Those whose hello waits for one, by caller; whose turn it is, is first.
        self._hellos: OrderedDict[str, OrderedDict[WorkerSession, None]] = OrderedDict()
        # Those that would take leases.
        self.offers = OfferQueue(lambda session: self.by_worker.get(session.worker) is session)
        # Those whose leases are being ended.
        self._lapsing: deque[WorkerSession] = deque()

    # What workers do.

    def open(
        self, hello: worker_pb2.WorkerHello, sink: WorkerSink, *, stream: bool, caller: str = "",
        only: int | None = None,
    ) -> WorkerSession:  # fmt: skip
        """A worker says hello, which was checked. A session it had goes on; a stream it had is
        ended.

        On a stream, leases that it does not hold end: they never reached it. See `Resume.only`.
        """
        hello, held = take_held(hello)
        session = self.by_worker.get(hello.worker)
        now_ms = self.clock_ms()
        if session is None:
            self._need_room(keys.owner_of(hello.worker))
            session = WorkerSession(
                self, hello.worker, hello, sink, kind_of_worker(hello), self.wall_ms(), now_ms
            )
            self._add(session)
        else:
            if session.lapsing:
                raise Refused(session_lapsed(hello.worker))
            session.sink.lost(session_taken_over(hello.worker))
            session.hello, session.kind, session.sink = hello, kind_of_worker(hello), sink
            session.credits, session.from_lease_only = 0, False
        self.count(session)
        self.heard(session)
        if session.draining:
            sink.drain(session.drain_reason)
        if stream:
            session.resume, session.caller = (
                Resume(session.worker, held, REPORTS, only=only),
                caller,
            )
            session.has_stale_grant = session.in_grant
            self.queue_hello(session)
        return session

    def heard(self, session: WorkerSession, at_ms: int | None = None) -> None:
        if not session.lapsing:
            session.heard_ms = self.clock_ms() if at_ms is None else at_ms
            self._heard[session] = None
            self._heard.move_to_end(session)

    def offer(self, session: WorkerSession, *, fresh: bool = True) -> None:
        """It has credits."""
        self.offers.add(session)
        if fresh:
            self.offers.fresh = True
            self.wake()

    def reported(self, session: WorkerSession, *, first: bool = False) -> None:
        """It waits behind the others, or ahead of them since a change had no room for it."""
        self._reporting[session] = None
        if first:
            self._reporting.move_to_end(session, last=False)
        self.wake()

    def noted(self, session: WorkerSession, *, first: bool = False) -> None:
        self._noting.add(session, first=first)
        self.wake()

    def queue_hello(self, session: WorkerSession) -> None:
        self._hellos.setdefault(session.caller, OrderedDict())[session] = None
        self.wake()

    def count(self, session: WorkerSession) -> None:
        """It came or went, or pulls from other queues now."""
        is_there = session.sink is not NULL_SINK and session.worker in self.by_worker
        kind = session.kind if is_there else None
        if kind == session.counted:
            return
        if session.counted is not None:
            self.connected.remove(*session.counted[:2])
        if kind is not None:
            self.connected.add(*kind[:2])
        session.counted = kind

    # What the leader's loop asks.

    def reports(self, most: int) -> list[PendingRequest]:
        """What workers have reported of the end of attempts, and who asks for more time: at most so
        many words, each worker in turn.

        How an attempt ended comes behind all else that came of it: it would be too late then.
        """
        parts: list[PendingRequest] = []
        while most > 0 and self._reporting:
            session, _ = self._reporting.popitem(last=False)
            if session.resume is not None:
                # A lease that it lists must not end by its word before it was looked at.
                continue
            while session.extensions and most > 0:
                most -= 1
                parts.append(worker_reports.extension(session, session.extensions.popleft()))
            if session.results and most > 0:
                results = tuple(worker_reports.take(session.results, min(most, REPORTS)))
                most -= len(results)
                if notes := session.notes_of(results):
                    most -= len(notes)
                    parts.append(worker_reports.note(session, notes, ends=True))
                parts.append(worker_reports.report(session, results))
            if session.results or session.extensions:
                self._reporting[session] = None
        return parts

    @property
    def has_reports(self) -> bool:
        """Somebody has reported something that waits for a change."""
        return bool(self._reporting or self._noting)

    def progress(self, most: int) -> list[PendingRequest]:
        """What workers have reported of how far attempts are."""
        return self._noting.take(most)

    def hellos(self, most: int) -> list[PendingRequest]:
        """What workers hold, at most so many leases, each caller in turn. One that is being granted
        leases waits for them: it does not list them, so they are to end."""
        parts: list[PendingRequest] = []
        while most > 0 and self._hellos:
            caller, line = self._hellos.popitem(last=False)
            session, _ = line.popitem(last=False)
            if line:
                self._hellos[caller] = line
            if session.resume is None or session.in_grant:
                continue
            parts.append(self._resume(session, session.resume))
            most -= parts[-1].items
        return parts

    def lapses(self, most: int) -> list[PendingRequest]:
        """Sessions that were silent for too long, at most so many."""
        silent_ms = self.clock_ms() - self.lapse_ms
        while self._heard and len(self._lapsing) < most:
            session = next(iter(self._heard))
            if session.heard_ms > silent_ms:
                break
            del self._heard[session]
            session.lapsing = True
            self._lapsing.append(session)
        parts = [self._lapse(session) for session in self._lapsing]
        self._lapsing.clear()
        return parts

    def next_lapse_ms(self) -> int | None:
        """When the next session lapses unless it is heard."""
        first = next(iter(self._heard), None)
        return None if first is None else first.heard_ms + self.lapse_ms

    @property
    def fresh(self) -> bool:
        """Somebody offers who was not asked yet."""
        return self.offers.fresh

    def grant(self, most: int, *, anew: bool = True) -> PendingRequest | None:
        """Offer what workers would take; None when there is nobody. See OfferQueue."""
        return self.offers.grant(most, anew=anew)

    def takeover(self, workers: Iterable[str]) -> None:
        """This node leads: give all who hold leases a full period to be heard.

        They come all at once and are heard one after the other, so many have longer.
        """
        holders = list(workers)
        from_ms = self.clock_ms() + len(holders) * HEARING_MS
        for worker in holders:
            owner = keys.owner_of(worker)
            hello = worker_pb2.WorkerHello(worker=worker, namespaces=[owner] if owner else [])
            session = WorkerSession(
                self, worker, hello, NULL_SINK, kind_of_worker(hello), self.wall_ms(),
                self.clock_ms(), from_lease_only=True,
            )  # fmt: skip
            self._add(session)
            self.heard(session, from_ms)

    def dismiss(self, leader: str, reason: str) -> None:
        """This node leads no more."""
        for session in self.by_worker.values():
            session.sink.redirect(leader, reason)
            session.counted = None
        self.by_worker.clear()
        self.room.clear()
        self.connected.clear()
        self._heard.clear()
        self._reporting.clear()
        self._noting.clear()
        self._hellos.clear()
        self.offers.clear()
        self._lapsing.clear()

    def notify(self, stops: Iterable[tuple[str, worker_pb2.Stop]]) -> None:
        """Hand on what a change stopped."""
        for worker, stop in stops:
            session = self.by_worker.get(worker)
            if session is not None:
                session.sink.stops([stop])

    def present(self) -> int:
        """How many workers are connected."""
        return sum(session.sink is not NULL_SINK for session in self.by_worker.values())

    def slots(self) -> tuple[int, int, int]:
        """Workers that are connected, their slots, and how many of those are free."""
        workers = slots = free = 0
        for session in self.by_worker.values():
            if session.sink is not NULL_SINK:
                workers, most = workers + 1, session.hello.slots
                slots, free = slots + most, free + min(session.credits, most)
        return workers, slots, free

    def workers(self) -> list[Worker]:
        """As reads want them."""
        return [
            Worker(offer_of(session), session.hello.slots)
            for session in self.by_worker.values()
            if session.sink is not NULL_SINK
        ]

    def _need_room(self, owner: str) -> None:
        room = self.room
        if room.has_room(owner) or (owner and not room.held(owner) and self._give_way()):
            return
        free = room.maximum - room.taken
        if not owner or free <= 0:
            raise backlog_full(f"{room.taken} workers are connected already")
        raise backlog_full(
            f"{room.held(owner)} workers of {owner} are connected already and {free} places are "
            f"free of {room.maximum}; of these a tenant may hold {room.share()}"
        )

    def _give_way(self) -> bool:
        """End a session that holds nothing, of whoever has most of those looked at; its place is
        free a change later."""
        room, store, chosen, most = self.room, self._state(), None, 1
        for session in islice(self._heard, GIVE_WAY_LOOK):
            held = room.held(keys.owner_of(session.worker))
            if held > most and session.is_idle and not leases.held_by(store, session.worker):
                chosen, most = session, held
        if chosen is None:
            return False
        del self._heard[chosen]
        chosen.withdraw()
        chosen.lapsing = chosen.gave_way = True
        self._lapsing.append(chosen)
        self.wake()
        return True

    def _add(self, session: WorkerSession) -> None:
        self.by_worker[session.worker] = session
        self.room.take(keys.owner_of(session.worker))

    def _remove(self, session: WorkerSession) -> None:
        del self.by_worker[session.worker]
        self.room.give(keys.owner_of(session.worker))
        self.count(session)

    def _resume(self, session: WorkerSession, request: Resume) -> PendingRequest:
        def answer(resumed: object) -> None:
            assert isinstance(resumed, Resumed)
            if stops := worker_reports.unreported(session, resumed.stops):
                session.sink.stops(stops)
            if session.resume is not request:
                # A newer hello has its own answer to come.
                return
            session.resume = resumed.rest
            if resumed.rest is not None:
                self.queue_hello(session)
                return
            if session.has_reports:
                self.reported(session)
                self.noted(session)
            if session.credits:
                self.offer(session)

        items = min(max(1, len(request.held) - request.looked), REPORTS)
        return PendingRequest(request, answer, worker_reports.sent_again, items=items, sure=True)

    def _lapse(self, session: WorkerSession) -> PendingRequest:
        def answer(done: object) -> None:
            assert isinstance(done, WorkDone)
            if self.by_worker.get(session.worker) is not session:
                # This node has led no more since, and all sessions were dismissed.
                return
            if done.more:
                self._lapsing.append(session)
                self.wake()
            else:
                self._remove(session)
                why = place_given if session.gave_way else session_lapsed
                session.sink.lost(why(session.worker))

        def unknown() -> None:
            """Whoever leads next gives it a full period of its own."""

        return PendingRequest(Lapse(session.worker, REPORTS), answer, unknown, items=REPORTS)
