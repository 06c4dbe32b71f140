"""What the cluster says about a job, a run, a lease, as plain values that print well.

    >>> app.jobs()
    [<Job report ACTIVE, next Mon 2026-11-23 08:00 UTC, 12 succeeded, 1 failed>]

They show what one looks at most; `message` has all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Self

from ...proto.v1 import job_pb2, run_pb2
from ..sdk.readable import line, shown, word
from ..sdk.values import instant

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from ...proto.v1 import schedule_pb2, worker_pb2


@dataclass(frozen=True, repr=False)
class JobInfo:
    """A job as the cluster has it."""

    name: str
    namespace: str
    # Such as "ACTIVE" or "PAUSED".
    state: str
    # What names its times, such as "cron 0 9 * * mon, Europe/Berlin".
    schedules: tuple[str, ...]
    queue: str
    # When it is due next; None: nothing is planned.
    next_time: datetime | None
    # Runs that are under way, and that ended, ever.
    live: int
    succeeded: int
    failed: int
    # How the run that ended last did; empty: none has.
    last_state: str
    labels: dict[str, str]
    message: job_pb2.Job = field(compare=False)

    @classmethod
    def of(cls, message: job_pb2.Job) -> Self:
        spec, status = message.spec, message.status
        return cls(
            name=message.name, namespace=message.namespace,
            state=word(status, "state"),
            schedules=tuple(_schedule(one, spec.timing.zone) for one in spec.schedules),
            queue=spec.queue or "default", next_time=_instant(status, "next_due_time"),
            live=status.live, succeeded=status.succeeded, failed=status.failed,
            last_state=word(status, "last_state"),
            labels=dict(spec.labels), message=message,
        )  # fmt: skip

    def __repr__(self) -> str:
        return line(self.message)


@dataclass(frozen=True, repr=False)
class RunInfo:
    """A run as it was last seen."""

    id: str
    job: str
    namespace: str
    # Such as "PENDING" or "SUCCEEDED"; empty as long as nobody has looked at it.
    state: str
    # From 1; 0: none has begun.
    attempt: int
    due_time: datetime | None
    start_time: datetime | None
    end_time: datetime | None
    # What the last attempt failed with; empty: it did not.
    error_kind: str
    error: str
    key: str
    labels: dict[str, str]
    message: run_pb2.Run = field(compare=False)

    @classmethod
    def of(cls, message: run_pb2.Run) -> Self:
        return cls(
            id=message.id, job=message.job, namespace=message.namespace,
            state=word(message, "state"), attempt=message.attempt,
            due_time=_instant(message, "due_time"), start_time=_instant(message, "start_time"),
            end_time=_instant(message, "end_time"), error_kind=message.error.kind,
            error=message.error.message, key=message.unique_key, labels=dict(message.labels),
            message=message,
        )  # fmt: skip

    @property
    def ended(self) -> bool:
        return self.end_time is not None

    def __repr__(self) -> str:
        return line(self.message)


@dataclass(frozen=True, repr=False)
class LeaseInfo:
    """What a worker was given to carry out."""

    run: str
    job: str
    namespace: str
    # The fence: later leases have higher ones.
    token: int
    # From 1, of at most so many.
    attempt: int
    max_attempts: int
    scheduled_time: datetime
    due_time: datetime
    # None: no such limit.
    deadline: datetime | None
    labels: dict[str, str]
    message: worker_pb2.Lease = field(compare=False)

    @classmethod
    def of(cls, message: worker_pb2.Lease) -> Self:
        return cls(
            run=message.run, job=message.job, namespace=message.namespace, token=message.token,
            attempt=message.attempt, max_attempts=message.max_attempts,
            scheduled_time=instant(message.scheduled_time), due_time=instant(message.due_time),
            deadline=_instant(message, "deadline"), labels=dict(message.labels), message=message,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<Lease {self.run} attempt {self.attempt} of {self.max_attempts}>"


def _instant(message: Message, name: str) -> datetime | None:
    return instant(getattr(message, name)) if message.HasField(name) else None


def _schedule(one: schedule_pb2.Schedule, zone: str) -> str:
    match one.WhichOneof("kind"):
        case "cron":
            return f"cron {one.cron.expression}" + (f", {zone}" if zone else "")
        case "interval":
            return f"every {one.interval.every.ToTimedelta()}"
        case "once":
            return f"once {shown(one.once.time)}"
        case _:
            return f"{one.after_end.delay.ToTimedelta()} after the end of the run before"
