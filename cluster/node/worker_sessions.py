"""Workers as the leader knows them: who is there, what they would take, what they have said.

All of it lives in the leader's memory. A heartbeat is one per worker and never enters the log;
only a lapse does. A new leader begins with a session for everybody who holds leases, and gives
each a full period before it calls anybody dead.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol, TypeVar

from ...proto.v1 import worker_pb2
from ...statemachine.core.rejection import Refused, Rejection
from ...statemachine.model import keys
from ...statemachine.model.request import (
    Grant,
    Lapse,
    Note,
    Offer,
    Report,
    Resume,
    Resumed,
    WorkDone,
)
from ...statemachine.model.workers import Worker
from .hello import take_held
from .pending import PendingRequest
from .refusals import backlog_full, session_lost

SESSIONS_MAX = 20_000
SESSIONS_OF_ONE = 10_000  # Of the workers of one tenant, so that those of others find room.
CREDITS_MAX = 10_000
WAITING_MAX = 20_000  # Words of one worker that wait for a change: more than it can hold leases.
WORDS = 1_000  # Of one worker in a part of a change.
LOST = worker_pb2.Stop.KIND_LOST
EXTENSION = worker_pb2.ResultAck.SUBJECT_EXTENSION
SILENCE = "it was silent for too long, so its leases have ended"
HEARING_MS = 2  # Added to the first period under a new leader for each worker that may come back.
KINDS = 128  # Kinds of workers that are asked in one grant.
OFFERED = 64  # Workers of a kind that are asked in one grant.
T = TypeVar("T")
Words = Sequence[worker_pb2.Lease] | Sequence[worker_pb2.ResultAck]
WorkerKind = tuple[tuple[str, ...], tuple[str, ...], frozenset[str], tuple[tuple[str, str], ...]]


class WorkerSink(Protocol):
    """Where words for a worker go. Called on the loop; must neither block nor raise."""

    def pre_serialize(self, words: Words) -> None:
        """Leases or acks that are on their way into the log. If they get there they are told, and
        are the same object."""

    def leases(self, leases: Sequence[worker_pb2.Lease]) -> None:
        """New leases; perhaps none, when an offer found nothing."""

    def acks(self, acks: Sequence[worker_pb2.ResultAck]) -> None: ...

    def stops(self, stops: Sequence[worker_pb2.Stop]) -> None: ...

    def drain(self, reason: str) -> None: ...

    def redirect(self, leader: str, reason: str) -> None:
        """This node leads no more; nothing else will come."""

    def lost(self, refusal: Rejection) -> None:
        """The session is gone, or another stream took it over; nothing else will come."""


class NullSink:
    """For a session that nobody is connected to."""

    def pre_serialize(self, words: Words) -> None: ...
    def leases(self, leases: Sequence[worker_pb2.Lease]) -> None: ...
    def acks(self, acks: Sequence[worker_pb2.ResultAck]) -> None: ...
    def stops(self, stops: Sequence[worker_pb2.Stop]) -> None: ...
    def drain(self, reason: str) -> None: ...
    def redirect(self, leader: str, reason: str) -> None: ...
    def lost(self, refusal: Rejection) -> None: ...


NULL_SINK = NullSink()


@dataclass(slots=True, eq=False)
class Session:
    """A worker that is there, or was a moment ago."""

    sessions: Sessions
    worker: str
    hello: worker_pb2.WorkerHello
    sink: WorkerSink
    kind: WorkerKind
    connected_ms: int
    heard_ms: int
    credits: int = 0
    # It stands in a line of offers, or a grant under way may use up its credits.
    in_line: bool = False
    in_grant: bool = False
    # What became of its last grant nobody knows: leadership went.
    in_doubt: bool = False
    # It is known from its leases only, and has not said hello to this leader.
    unmet: bool = False
    # What that grant gives was meant for a stream that is gone.
    unheard: bool = False
    # The unary call that its credits come from.
    request: worker_pb2.LeaseRequest | None = None
    draining: bool = False
    drain_reason: str = ""
    lapsing: bool = False
    # What is left to do of its last hello on a stream: its leases are compared with those that it
    # holds. Before that is done it gets none, and all else that it says waits.
    resume: Resume | None = None
    # Whose access token it shows. What callers' workers hold is looked at in turns.
    caller: str = ""
    results: deque[worker_pb2.Result] = field(default_factory=deque)
    # By token: of several words about one lease the last one counts.
    notes: dict[int, worker_pb2.ProgressReport] = field(default_factory=dict)
    extensions: deque[worker_pb2.ExtendRequest] = field(default_factory=deque)

    @property
    def has_words(self) -> bool:
        """It has said something that waits for a change."""
        return bool(self.results or self.notes or self.extensions)

    def hear(self) -> None:
        """It said something; that is all a heartbeat is."""
        self.sessions.heard(self)

    def credit(self, more: int, request: worker_pb2.LeaseRequest | None = None) -> None:
        """It would take so many more leases; a unary call says so by itself."""
        if more > 0 and not self.draining:
            self.request = request
            self.credits = min(self.credits + more, CREDITS_MAX)
            self.sessions.offer(self)

    def withdraw(self) -> None:
        """It takes no more leases for now; those that are being granted still come."""
        self.credits = 0

    def report(self, results: Iterable[worker_pb2.Result]) -> None:
        """How attempts ended."""
        self._wait(self.results, results)

    def extend(self, extensions: Iterable[worker_pb2.ExtendRequest]) -> None:
        """More time for attempts."""
        self._wait(self.extensions, extensions)

    def note(self, reports: Iterable[worker_pb2.ProgressReport]) -> None:
        """How far attempts are."""
        for report in reports:
            before = self.notes.get(report.token)
            if before is None and len(self.notes) >= WAITING_MAX:
                raise backlog_full(f"{WAITING_MAX} progress reports of one worker wait already")
            self.notes[report.token] = report if before is None else _merged(before, report)
        self.sessions.speak(self)

    def note_again(self, reports: Iterable[worker_pb2.ProgressReport]) -> None:
        """These found no room in a change; what was said since then stands over them."""
        for report in reports:
            after = self.notes.get(report.token)
            self.notes[report.token] = report if after is None else _merged(report, after)
        self.sessions.speak(self)

    def drain(self, reason: str) -> None:
        """It takes no more leases, as long as the session stands; the first reason stays."""
        if not self.draining:
            self.drain_reason = reason
        self.draining = True
        self.credits = 0
        if not self.in_grant:
            self.sink.drain(self.drain_reason)

    def close(self) -> None:
        """Its stream is gone. Credits are void; leases stand until the session lapses."""
        self.credits = 0
        if self.resume is not None:
            # Nobody is there to be told which leases do not stand.
            self.resume = replace(self.resume, looked=len(self.resume.held))
            self.sessions.greet(self)
        self.sink = NULL_SINK

    def granted(self, leases: Sequence[worker_pb2.Lease]) -> None:
        """What came of its offer."""
        if self.unheard:
            # Its worker did not list them, so the Resume that comes next ends them. Told now, they
            # would be worked on all the same, by two.
            leases = ()
        # Credits that were withdrawn meanwhile are used up all the same.
        self.credits = max(0, self.credits - len(leases))
        self.in_grant = self.unheard = False
        if self.resume is not None:
            self.sessions.greet(self)
        self.sink.leases(leases)
        if self.draining:
            self.sink.drain(self.drain_reason)
        elif self.credits:
            self.sessions.offer(self, fresh=False)

    def _wait(self, line: deque[T], words: Iterable[T]) -> None:
        line.extend(words)
        if len(line) > WAITING_MAX:
            raise backlog_full(f"{WAITING_MAX} words of one worker wait already")
        self.sessions.speak(self)


class Sessions:
    """All of them. Times are milliseconds of a clock that only grows."""

    def __init__(
        self,
        clock_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        wake: Callable[[], None],
        heartbeat_ms: int = 2_000,
        *,
        tells_time: bool = True,
    ) -> None:
        """Workers may count on from what the clock says, unless it does not tell the time since it
        stands still."""
        self.clock_ms, self.wall_ms, self.wake = clock_ms, wall_ms, wake
        self.tells_time = tells_time
        self.heartbeat_ms, self.lapse_ms = heartbeat_ms, 3 * heartbeat_ms
        # By the names under which they are known, which say whose they are (`keys.worker_of`).
        self.by_worker: dict[str, Session] = {}
        # How many there are of each tenant.
        self._by_owner = Counter[str]()
        # The one that was silent for longest is first.
        self._heard: OrderedDict[Session, None] = OrderedDict()
        # Those that have said something that waits for a change.
        self._speaking: OrderedDict[Session, None] = OrderedDict()
        # Those whose hello waits for one, by caller; whose turn it is, is first.
        self._greeting: OrderedDict[str, OrderedDict[Session, None]] = OrderedDict()
        # Those that would take leases, by what fits them.
        self._offers: dict[WorkerKind, deque[Session]] = {}
        # Those whose leases are being ended.
        self._lapsing: deque[Session] = deque()
        # Somebody offers who was not asked yet.
        self.fresh = False
        # Kinds of workers that are still to be asked since something may have become ready.
        self._unasked = 0

    # What workers do.

    def open(
        self, hello: worker_pb2.WorkerHello, sink: WorkerSink, *, stream: bool, caller: str = "",
        only: int | None = None,
    ) -> Session:  # fmt: skip
        """A worker says hello, which was checked. A session it had goes on; a stream it had is
        ended.

        On a stream, leases that it does not hold end: they never reached it. See `Resume.only`.
        """
        hello, held = take_held(hello)
        session = self.by_worker.get(hello.worker)
        now_ms = self.clock_ms()
        if session is None:
            self._need_room(keys.owner_of(hello.worker))
            session = Session(
                self, hello.worker, hello, sink, kind_of_worker(hello), self.wall_ms(), now_ms
            )
            self._add(session)
        else:
            if session.lapsing:
                raise Refused(session_lost(hello.worker, SILENCE))
            session.sink.lost(session_lost(hello.worker, "another stream took it over"))
            session.hello, session.kind, session.sink = hello, kind_of_worker(hello), sink
            session.credits, session.unmet = 0, False
        self.heard(session)
        if session.draining:
            sink.drain(session.drain_reason)
        if stream:
            session.resume, session.caller = Resume(session.worker, held, WORDS, only=only), caller
            session.unheard = session.in_grant
            self.greet(session)
        return session

    def heard(self, session: Session, at_ms: int | None = None) -> None:
        if not session.lapsing:
            session.heard_ms = self.clock_ms() if at_ms is None else at_ms
            self._heard[session] = None
            self._heard.move_to_end(session)

    def offer(self, session: Session, *, fresh: bool = True) -> None:
        """It has credits. Whoever is in line already keeps its place."""
        if not session.in_line and not session.in_grant:
            self._offers.setdefault(session.kind, deque()).append(session)
            session.in_line = True
        if fresh:
            self.fresh = True
            self.wake()

    def speak(self, session: Session) -> None:
        self._speaking[session] = None
        self.wake()

    def greet(self, session: Session) -> None:
        self._greeting.setdefault(session.caller, OrderedDict())[session] = None
        self.wake()

    # What the leader's loop asks.

    def words(self, most: int) -> list[PendingRequest]:
        """What workers have said, at most so many words, each worker in turn.

        How an attempt ended comes behind all else that was said of it: it would be too late then.
        """
        parts: list[PendingRequest] = []
        while most > 0 and self._speaking:
            session, _ = self._speaking.popitem(last=False)
            if session.resume is not None:
                # A lease that it lists must not end by its word before it was looked at.
                continue
            while session.extensions and most > 0:
                most -= 1
                parts.append(_extension(session, session.extensions.popleft()))
            if session.notes and most > 0:
                notes = tuple(_take_notes(session.notes, min(most, WORDS)))
                most -= len(notes)
                parts.append(_note(session, notes))
            if session.results and most > 0 and not session.notes:
                results = tuple(_take(session.results, min(most, WORDS)))
                most -= len(results)
                parts.append(_report(session, results))
            if session.results or session.extensions or session.notes:
                self._speaking[session] = None
        return parts

    def hellos(self, most: int) -> list[PendingRequest]:
        """What workers hold, at most so many leases, each caller in turn. One that is being granted
        leases waits for them: it does not list them, so they are to end."""
        parts: list[PendingRequest] = []
        while most > 0 and self._greeting:
            caller, line = self._greeting.popitem(last=False)
            session, _ = line.popitem(last=False)
            if line:
                self._greeting[caller] = line
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

    def grant(self, most: int, *, anew: bool = True) -> PendingRequest | None:
        """Offer what workers would take; None when there is nobody. Of very many kinds of workers
        some are asked at a time, each in turn, until all were asked since `anew`: something may
        have become ready."""
        if anew or (self.fresh and not self._unasked):
            self._unasked = len(self._offers)
        self.fresh = False
        chosen = []
        for kind in list(islice(self._offers, KINDS)):
            line = self._offers.pop(kind)
            chosen += self._choose(kind, line, most)
            if line:
                # Behind all others.
                self._offers[kind] = line
            self._unasked -= 1
        if not chosen:
            self._unasked = 0
            return None
        unasked = self._unasked = max(0, self._unasked)
        offers = tuple(_offer(session) for session in chosen)

        def answer(granted: object) -> None:
            assert isinstance(granted, list)
            for session, leases in zip(chosen, granted, strict=True):
                session.granted(leases)
            if unasked or any(map(_used_up, offers, granted)) or sum(map(len, granted)) >= most:
                # More may be ready than these could take.
                self.fresh = bool(self._offers)

        def unknown() -> None:
            for session in chosen:
                session.in_grant = session.unheard = False
                session.in_doubt = True
                if session.resume is not None:
                    self.greet(session)

        def pre_serialize(granted: object) -> None:
            assert isinstance(granted, list)
            for session, leases in zip(chosen, granted, strict=True):
                if leases:
                    session.sink.pre_serialize(leases)

        return PendingRequest(Grant(offers, most), answer, unknown, pre_serialize=pre_serialize)

    def takeover(self, workers: Iterable[str]) -> None:
        """This node leads: give all who hold leases a full period to be heard.

        They come all at once and are heard one after the other, so a crowd has longer.
        """
        crowd = list(workers)
        from_ms = self.clock_ms() + len(crowd) * HEARING_MS
        for worker in crowd:
            hello = worker_pb2.WorkerHello(worker=worker)
            session = Session(
                self, worker, hello, NULL_SINK, kind_of_worker(hello), self.wall_ms(),
                self.clock_ms(), unmet=True,
            )  # fmt: skip
            self._add(session)
            self.heard(session, from_ms)

    def dismiss(self, leader: str, reason: str) -> None:
        """This node leads no more."""
        for session in self.by_worker.values():
            session.sink.redirect(leader, reason)
        self.by_worker.clear()
        self._by_owner.clear()
        self._heard.clear()
        self._speaking.clear()
        self._greeting.clear()
        self._offers.clear()
        self._lapsing.clear()

    def tell(self, stops: Iterable[tuple[str, worker_pb2.Stop]]) -> None:
        """Hand on what a change stopped."""
        for worker, stop in stops:
            session = self.by_worker.get(worker)
            if session is not None:
                session.sink.stops([stop])

    def present(self) -> int:
        """How many workers are connected."""
        return sum(session.sink is not NULL_SINK for session in self.by_worker.values())

    def workers(self) -> list[Worker]:
        """As reads want them."""
        return [
            Worker(_offer(session), session.hello.slots)
            for session in self.by_worker.values()
            if session.sink is not NULL_SINK
        ]

    def _need_room(self, owner: str) -> None:
        if len(self.by_worker) >= SESSIONS_MAX:
            raise backlog_full(f"{SESSIONS_MAX} workers are connected already")
        if owner and self._by_owner[owner] >= SESSIONS_OF_ONE:
            raise backlog_full(f"{SESSIONS_OF_ONE} workers of {owner} are connected already")

    def _add(self, session: Session) -> None:
        self.by_worker[session.worker] = session
        self._by_owner[keys.owner_of(session.worker)] += 1

    def _remove(self, session: Session) -> None:
        del self.by_worker[session.worker]
        owner = keys.owner_of(session.worker)
        self._by_owner[owner] -= 1
        if not self._by_owner[owner]:
            del self._by_owner[owner]

    def _choose(self, kind: WorkerKind, line: deque[Session], most: int) -> list[Session]:
        """Some sessions of a line, first come first served; who has no credits leaves it."""
        chosen: list[Session] = []
        while line and len(chosen) < OFFERED and most > 0:
            session = line.popleft()
            session.in_line = False
            if (
                session.lapsing
                or session.resume is not None
                or self.by_worker.get(session.worker) is not session
            ):
                continue
            if session.kind != kind:
                # It said another hello since it came into this line.
                self.offer(session)
            elif session.credits:
                session.in_grant = True
                most -= session.credits
                chosen.append(session)
        return chosen

    def _resume(self, session: Session, request: Resume) -> PendingRequest:
        def answer(resumed: object) -> None:
            assert isinstance(resumed, Resumed)
            if resumed.stops:
                session.sink.stops(resumed.stops)
            if session.resume is not request:
                # A newer hello has its own answer to come.
                return
            session.resume = resumed.rest
            if resumed.rest is not None:
                self.greet(session)
                return
            if session.has_words:
                self.speak(session)
            if session.credits:
                self.offer(session)

        items = min(max(1, len(request.held) - request.looked), WORDS)
        return PendingRequest(request, answer, _sent_again, items=items, sure=True)

    def _lapse(self, session: Session) -> PendingRequest:
        def answer(rung: object) -> None:
            assert isinstance(rung, WorkDone)
            if self.by_worker.get(session.worker) is not session:
                # This node has led no more since, and all sessions were dismissed.
                return
            if rung.more:
                self._lapsing.append(session)
                self.wake()
            else:
                self._remove(session)
                session.sink.lost(session_lost(session.worker, SILENCE))

        def unknown() -> None:
            """Whoever leads next gives it a full period of its own."""

        return PendingRequest(Lapse(session.worker, WORDS), answer, unknown, items=WORDS)


def kind_of_worker(hello: worker_pb2.WorkerHello) -> WorkerKind:
    """What decides which runs a worker can take; empty lists stand for the contract's defaults."""
    return (
        tuple(hello.namespaces) or ("default",),
        tuple(hello.queues) or ("default",),
        frozenset(hello.handlers),
        tuple(sorted(hello.labels.items())),
    )


def _offer(session: Session) -> Offer:
    namespaces, queues, handlers, labels = session.kind
    return Offer(
        session.worker, session.credits, namespaces, queues, handlers, dict(labels),
        session.request,
    )  # fmt: skip


def _used_up(offer: Offer, leases: Sequence[worker_pb2.Lease]) -> bool:
    return len(leases) == offer.credits


def _report(session: Session, results: tuple[worker_pb2.Result, ...]) -> PendingRequest:
    def answer(acks: object) -> None:
        assert isinstance(acks, list)
        session.sink.acks(acks)
        if len(acks) < len(results):
            # The change was full.
            session.results.extendleft(reversed(results[len(acks) :]))
            session.sessions.speak(session)

    def pre_serialize(acks: object) -> None:
        assert isinstance(acks, list)
        if acks:
            session.sink.pre_serialize(acks)

    return PendingRequest(
        Report(session.worker, results), answer, _sent_again, items=len(results), sure=True,
        pre_serialize=pre_serialize,
    )  # fmt: skip


def _note(session: Session, notes: tuple[worker_pb2.ProgressReport, ...]) -> PendingRequest:
    def answer(acks: object) -> None:
        assert isinstance(acks, list)
        run_of = {note.token: note.run for note in notes}
        stops = [
            worker_pb2.Stop(token=ack.token, run=run_of[ack.token], kind=LOST, message=ack.message)
            for ack in acks
            if ack.reason
        ]
        if stops:
            session.sink.stops(stops)
        if len(acks) < len(notes):
            session.note_again(notes[len(acks) :])

    return PendingRequest(
        Note(session.worker, notes), answer, _sent_again, items=len(notes), sure=True
    )


def _extension(session: Session, request: worker_pb2.ExtendRequest) -> PendingRequest:
    def answer(reply: object) -> None:
        ack = worker_pb2.ResultAck(token=request.token, subject=EXTENSION)
        if isinstance(reply, Rejection):
            ack.reason, ack.message = reply.word, reply.message
        else:
            assert isinstance(reply, worker_pb2.ExtendResponse)
            if reply.HasField("deadline"):
                ack.deadline.CopyFrom(reply.deadline)
        session.sink.acks([ack])

    return PendingRequest(request, answer, _sent_again, sure=True)


def _sent_again() -> None:
    """A worker sends what was not acknowledged to the next leader."""


def _merged(
    before: worker_pb2.ProgressReport, after: worker_pb2.ProgressReport
) -> worker_pb2.ProgressReport:
    """Two words about one lease: what the later one leaves out stays as the earlier one said."""
    merged = worker_pb2.ProgressReport()
    merged.CopyFrom(before)
    merged.token, merged.run = after.token, after.run
    if after.HasField("progress"):
        merged.progress.CopyFrom(after.progress)
    if after.checkpoint:
        merged.checkpoint = after.checkpoint
    if after.log_tail:
        merged.log_tail = after.log_tail
    return merged


def _take(line: deque[T], most: int) -> list[T]:
    if len(line) <= most:
        taken = list(line)
        line.clear()
        return taken
    return [line.popleft() for _ in range(most)]


def _take_notes(
    notes: dict[int, worker_pb2.ProgressReport], most: int
) -> list[worker_pb2.ProgressReport]:
    return [notes.pop(token) for token in list(notes)[:most]]
