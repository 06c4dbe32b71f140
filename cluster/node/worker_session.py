"""One worker as the leader knows it: its credits, its hello, and what it has reported."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from ...proto.v1 import worker_pb2
from ...statemachine.model.request import (
    Resume,
)
from .refusals import backlog_full
from .worker_sink import NULL_SINK, WorkerSink

CREDITS_MAX = 10_000
WAITING_MAX = 20_000  # Reports of one worker that wait: more than it can hold leases.
REPORTS = 1_000  # Of one worker in a part of a change.
T = TypeVar("T")
WorkerKind = tuple[tuple[str, ...], tuple[str, ...], frozenset[str], tuple[tuple[str, str], ...]]


class SessionOwner(Protocol):
    """Who has all sessions, and is notified of what each of them waits for."""

    def heard(self, session: WorkerSession) -> None: ...

    def offer(self, session: WorkerSession, *, fresh: bool = True) -> None: ...

    def reported(self, session: WorkerSession, *, first: bool = False) -> None: ...

    def noted(self, session: WorkerSession, *, first: bool = False) -> None: ...

    def queue_hello(self, session: WorkerSession) -> None: ...

    def count(self, session: WorkerSession) -> None: ...


@dataclass(slots=True, eq=False)
class WorkerSession:
    """A worker that is there, or was a moment ago."""

    sessions: SessionOwner
    worker: str
    hello: worker_pb2.WorkerHello
    sink: WorkerSink
    kind: WorkerKind
    connected_ms: int
    heard_ms: int
    credits: int = 0
    # It stands in a line of offers, or a grant under way may use up its credits.
    in_offer_queue: bool = False
    in_grant: bool = False
    # What became of its last grant nobody knows: leadership went.
    grant_is_unknown: bool = False
    # It is known from its leases only, and has sent no hello to this leader.
    from_lease_only: bool = False
    # What that grant gives was meant for a stream that is gone.
    has_stale_grant: bool = False
    # The unary call that its credits come from.
    request: worker_pb2.LeaseRequest | None = None
    draining: bool = False
    drain_reason: str = ""
    lapsing: bool = False
    # It ends though it was heard, for another tenant's first worker.
    gave_way: bool = False
    # What is left to do of its last hello on a stream: its leases are compared with those that it
    # holds. Before that is done it gets none, and all else that it says waits.
    resume: Resume | None = None
    # As what it is counted among those that are connected.
    counted: WorkerKind | None = None
    # Whose access token it shows. What callers' workers hold is looked at in turns.
    caller: str = ""
    results: deque[worker_pb2.Result] = field(default_factory=deque)
    # By token: of several words about one lease the last one counts.
    notes: OrderedDict[int, worker_pb2.ProgressReport] = field(default_factory=OrderedDict)
    extensions: deque[worker_pb2.ExtendRequest] = field(default_factory=deque)

    @property
    def has_reports(self) -> bool:
        """It has reported something that waits for a change."""
        return bool(self.results or self.notes or self.extensions)

    @property
    def is_idle(self) -> bool:
        """Nothing is under way between it and the state."""
        waits = self.in_grant or self.grant_is_unknown or self.resume is not None
        return not (waits or self.from_lease_only or self.has_reports)

    def hear(self) -> None:
        """It sent something; that is all a heartbeat is."""
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
            self.notes[report.token] = report if before is None else merged(before, report)
        self.sessions.noted(self)

    def note_again(self, reports: Sequence[worker_pb2.ProgressReport], *, first: bool) -> None:
        """These found no room in a change, and come first in the next one; what came since then
        stands over them. `first`: none of them did, so the session has its turn still."""
        for report in reversed(reports):
            after = self.notes.get(report.token)
            self.notes[report.token] = report if after is None else merged(report, after)
            self.notes.move_to_end(report.token, last=False)
        self.sessions.noted(self, first=first)

    def take_notes(
        self, most: int, most_bytes: int
    ) -> tuple[tuple[worker_pb2.ProgressReport, ...], int]:
        """At most so many, until they have so many bytes; how many they have."""
        taken: list[worker_pb2.ProgressReport] = []
        size = 0
        while self.notes and len(taken) < most and size < most_bytes:
            _, report = self.notes.popitem(last=False)
            taken.append(report)
            size += report.ByteSize()
        return tuple(taken), size

    def notes_of(
        self, results: Iterable[worker_pb2.Result]
    ) -> tuple[worker_pb2.ProgressReport, ...]:
        """What was reported of runs before they ended, taken."""
        taken = (self.notes.pop(result.token, None) for result in results)
        return tuple(report for report in taken if report is not None)

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
            # Nobody is there to hear which leases do not stand.
            self.resume = replace(self.resume, looked=len(self.resume.held))
            self.sessions.queue_hello(self)
        self.sink = NULL_SINK
        self.sessions.count(self)

    def granted(self, leases: Sequence[worker_pb2.Lease]) -> None:
        """What came of its offer."""
        if self.has_stale_grant:
            # Its worker did not list them, so the Resume that comes next ends them. Sent now, they
            # would be worked on all the same, by two.
            leases = ()
        # Credits that were withdrawn meanwhile are used up all the same.
        self.credits = max(0, self.credits - len(leases))
        self.in_grant = self.has_stale_grant = False
        if self.resume is not None:
            self.sessions.queue_hello(self)
        self.sink.leases(leases)
        if self.draining:
            self.sink.drain(self.drain_reason)
        elif self.credits:
            self.sessions.offer(self, fresh=False)

    def _wait(self, line: deque[T], reports: Iterable[T]) -> None:
        line.extend(reports)
        if len(line) > WAITING_MAX:
            raise backlog_full(f"{WAITING_MAX} words of one worker wait already")
        self.sessions.reported(self)


def kind_of_worker(hello: worker_pb2.WorkerHello) -> WorkerKind:
    """What decides which runs a worker can take; empty lists stand for the contract's defaults."""
    return (
        tuple(hello.namespaces) or ("default",),
        tuple(hello.queues) or ("default",),
        frozenset(hello.handlers),
        tuple(sorted(hello.labels.items())),
    )


def merged(
    before: worker_pb2.ProgressReport, after: worker_pb2.ProgressReport
) -> worker_pb2.ProgressReport:
    """Two words about one lease: what the later one leaves out stays as in the earlier one."""
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
