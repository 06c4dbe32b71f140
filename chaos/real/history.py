"""What clients, workers, the sink and the harness saw: one line each, checked when all is over.

Instants are seconds of the machine's monotonic clock, the same in all its processes; what the
scheduler speaks of is in milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

OK = "ok"
REFUSED = "refused"  # Known not to be done.
UNKNOWN = "unknown"


class Event(msgspec.Struct, frozen=True, tag=True):
    """One of the kinds below. A tag is what files of earlier runs have as the kind's name."""


class ClientCall(Event, frozen=True, tag="Call"):
    """A call of a client: on a job's record, or a trigger."""

    client: str
    # create, update, delete, get, trigger, pause or resume.
    what: str
    job: str
    began: float
    ended: float
    # Within so many seconds it had to end.
    deadline: float
    outcome: str
    # What was written, or read; "" when there was no job. For a trigger: the run. For a pause the
    # wall clock in milliseconds when it was answered, for a resume that when it was asked for.
    value: str = ""
    reason: str = ""


class RecurringJob(Event, frozen=True, tag="Plan"):
    """A recurring job as it was ordered: every scheduled time is a multiple of the period, or,
    where times are listed, one of these.
    """

    job: str
    every_ms: int
    # From when on, and until when, its scheduled times are surely due.
    from_ms: int
    until_ms: int
    max_attempts: int = 1
    # Its lateness is checked.
    prompt: bool = False
    times: tuple[int, ...] | None = None
    # Neither start deadline nor overlap excuses it: each of its scheduled times has to run.
    must_run: bool = False


class Limited(Event, frozen=True):
    """So many runs of these jobs at most are leased at once."""

    jobs: tuple[str, ...]
    most: int


class Follows(Event, frozen=True):
    """A job that happens after all of these have succeeded, with their scheduled time; surely from
    an instant on, at which all of them were there."""

    job: str
    upstream: tuple[str, ...]
    from_ms: int = 0


class Bounds(Event, frozen=True):
    """How late a first attempt may begin, and how long after a fault it may be later."""

    late_ms: float
    recover_s: float
    # 99 of 100 begin within so much while nothing is wrong, here and with the machine.
    quiet_ms: float


class Lease(Event, frozen=True):
    """A worker got a lease."""

    worker: str
    run: str
    job: str
    token: int
    attempt: int
    scheduled_ms: int
    due_ms: int
    wall_ms: int
    at: float


class ReportSent(Event, frozen=True, tag="Report"):
    """A worker is about to say how an attempt ended."""

    worker: str
    run: str
    token: int
    # success, failure or given_back.
    end: str
    at: float


class Ack(Event, frozen=True):
    """A worker's report was answered; an empty reason: it was taken."""

    worker: str
    run: str
    token: int
    end: str
    reason: str
    at: float


class Effect(Event, frozen=True):
    """The sink was asked to do what a run is for. It takes no token below the highest it saw."""

    run: str
    token: int
    accepted: bool
    at: float


class FaultSpan(Event, frozen=True, tag="Fault"):
    """What was done to the cluster, and until when."""

    what: str
    target: str
    began: float
    ended: float
    # How it is known to have happened; "" when it did not show.
    sign: str = ""


class Stop(Event, frozen=True):
    """A node was asked to stop, and did so with a code; where that is not 0, its last message."""

    node: str
    began: float
    ended: float
    code: int
    words: str = ""


class Lag(Event, frozen=True):
    """The harness itself did not come to its turn: this machine was busy."""

    began: float
    ended: float


class Contention(Event, frozen=True, tag="Contention"):
    """The machine kept a process of this run waiting, for a processor or for the disk."""

    began: float
    ended: float
    # Who waited most, and for how long of that time.
    who: str
    waited: float


class Probe(Event, frozen=True):
    """A small write, many times a second: was the cluster there?"""

    at: float
    took: float
    ok: bool
    # What it wrote; higher than what those before it wrote.
    number: int = 0


class FinalOutcome(Event, frozen=True, tag="Outcome"):
    """One scheduled time in the ledger at the end, or a stretch of them."""

    job: str
    scheduled_ms: int
    last_ms: int
    outcome: str


class FinalRun(Event, frozen=True, tag="Run"):
    """A run as the cluster showed it at the end."""

    run: str
    job: str
    state: str
    scheduled_ms: int
    due_ms: int
    attempt: int
    # Token and end of its attempts, oldest first.
    attempts: tuple[tuple[int, str], ...] = ()
    scheduled: bool = True


class FinalJob(Event, frozen=True, tag="Job"):
    """A record at the end."""

    job: str
    value: str


class Verified(Event, frozen=True):
    """A node's state at the end, as it verified it: what is derived in it is as it must be, or not
    by these words."""

    node: str
    records: int
    differences: tuple[str, ...] = ()


class Copy(Event, frozen=True):
    """A node's state at the end."""

    node: str
    revision: int
    fingerprint: str


Any = (
    ClientCall | RecurringJob | Limited | Follows | Bounds | Lease | ReportSent | Ack | Effect
    | FaultSpan | Stop | Lag | Contention | Probe | FinalOutcome | FinalRun | FinalJob | Copy
    | Verified
)  # fmt: skip
_DECODER = msgspec.json.Decoder(Any)


class HistoryFile:
    """A file to which one process writes what it sees, a line at a time."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def add(self, *events: Event) -> None:
        self._file.write(b"".join(msgspec.json.encode(event) + b"\n" for event in events))

    def close(self) -> None:
        self._file.close()


def read(paths: Iterable[Path]) -> Iterator[Event]:
    """All events of some files. A last line that a kill cut off is no event."""
    for path in paths:
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield _DECODER.decode(line)


@dataclass(slots=True)
class Observations:
    """A history, sorted by kind."""

    calls: list[ClientCall] = field(default_factory=list)
    plans: list[RecurringJob] = field(default_factory=list)
    limits: list[Limited] = field(default_factory=list)
    follows: list[Follows] = field(default_factory=list)
    bounds: list[Bounds] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)
    reports: list[ReportSent] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    faults: list[FaultSpan] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    lags: list[Lag] = field(default_factory=list)
    contentions: list[Contention] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    outcomes: list[FinalOutcome] = field(default_factory=list)
    runs: list[FinalRun] = field(default_factory=list)
    jobs: list[FinalJob] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    verified: list[Verified] = field(default_factory=list)

    @classmethod
    def of(cls, events: Iterable[Event]) -> Observations:
        seen = cls()
        lines = {
            ClientCall: seen.calls, RecurringJob: seen.plans, Limited: seen.limits,
            Follows: seen.follows, Bounds: seen.bounds, Lease: seen.leases,
            ReportSent: seen.reports, Ack: seen.acks, Effect: seen.effects,
            FaultSpan: seen.faults, Stop: seen.stops, Lag: seen.lags,
            Contention: seen.contentions, Probe: seen.probes, FinalOutcome: seen.outcomes,
            FinalRun: seen.runs, FinalJob: seen.jobs, Copy: seen.copies, Verified: seen.verified,
        }  # fmt: skip
        for event in events:
            lines[type(event)].append(event)  # type: ignore[attr-defined]
        return seen
