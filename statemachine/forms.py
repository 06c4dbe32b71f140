"""What jobs have in common whose specs differ in nothing but the payload, looked at once.

Thousands of jobs are made that do the same work with other data, and each of them is read when it
fires. A form follows from its bytes alone, so to remember it can never change an answer.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

from ..proto.v1 import job_pb2, worker_pb2
from . import limits
from .instants import ms_or
from .schedule import Shape, shape_of

KEPT = 1_024
# Longer ones are looked at each time, so that what is kept stays small.
BYTES_KEPT = 4_096


class Form:
    """A spec without its payload, and what every run asks of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        # Jobs share it, so nobody may change it.
        self.spec = spec = job_pb2.JobSpec.FromString(data)
        # How late a nominal time may fire and still be in time, and how late its run may start.
        self.grace_ms, self.start_deadline_ms = limits.GRACE_MS, limits.INSTANT_MAX_MS
        if spec.HasField("misfire"):
            self.grace_ms = ms_or(spec.misfire, "grace", limits.GRACE_MS)
            self.start_deadline_ms = ms_or(spec.misfire, "start_deadline", limits.INSTANT_MAX_MS)
        self.has_timeouts = spec.HasField("timeouts")
        self.has_limit = spec.HasField("concurrency")
        self.has_schedules = bool(spec.schedules)
        self.max_runs = spec.timing.max_runs if spec.HasField("timing") else 0
        self.priority = spec.priority

    @cached_property
    def max_attempts(self) -> int:
        if self.spec.delivery == job_pb2.DELIVERY_AT_MOST_ONCE:
            return 1
        return self.spec.retry.max_attempts or limits.RETRY_ATTEMPTS

    @cached_property
    def calendars(self) -> tuple[str, ...]:
        return tuple(self.spec.timing.exclude_calendars)

    @cached_property
    def shape(self) -> Shape:
        """Its schedules and timing, as far as they are the same for all jobs."""
        return shape_of(self.spec.schedules, self.spec.timing)

    @cached_property
    def lease(self) -> bytes:
        """What the leases of all jobs of the form say, as bytes of that message."""
        return worker_pb2.Lease(action=self.spec.action).SerializeToString(deterministic=True)


def of(spec: job_pb2.JobSpec) -> Form:
    bare = job_pb2.JobSpec()
    bare.CopyFrom(spec)
    bare.ClearField("payload")
    return parse(bare.SerializeToString(deterministic=True))


def parse(data: bytes) -> Form:
    return _kept(data) if len(data) <= BYTES_KEPT else Form(data)


_kept = lru_cache(KEPT)(Form)
EMPTY = Form(b"")
