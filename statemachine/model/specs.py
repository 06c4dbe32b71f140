"""What jobs have in common whose specs differ in schedules, notes and payload only, looked at once.

Thousands of jobs are made that do the same work at other times with other data, and each of them
is read when it fires. A template follows from its bytes alone, so to remember it can never change
an answer.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import NamedTuple

from ...proto.v1 import job_pb2, schedule_pb2, worker_pb2
from ..core import limits
from ..core.instants import ms_or
from ..schedule.compiler import ScheduleShape, shape_of

KEPT = 1_024
# Longer ones are looked at each time, so that what is kept stays small.
BYTES_KEPT = 4_096
# Names of executors; no handler may be called so.
EXECUTORS = frozenset({"http", "grpc", "shell"})


class Template:
    """A spec without its schedules, notes and payload, and what every run asks of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        # Jobs share it, so nobody may change it.
        self.spec = spec = job_pb2.JobSpec.FromString(data)
        # How late a scheduled time may fire and still be in time, and how late its run may start.
        self.grace_ms, self.start_deadline_ms = limits.GRACE_MS, limits.INSTANT_MAX_MS
        if spec.HasField("misfire"):
            self.grace_ms = ms_or(spec.misfire, "grace", limits.GRACE_MS)
            self.start_deadline_ms = ms_or(spec.misfire, "start_deadline", limits.INSTANT_MAX_MS)
        self.has_timeouts = spec.HasField("timeouts")
        self.has_limit = spec.HasField("concurrency")
        self.timing, self.max_runs, self.calendars = b"", 0, tuple[str, ...]()
        if spec.HasField("timing"):
            self.timing = spec.timing.SerializeToString(deterministic=True)
            self.max_runs = spec.timing.max_runs
            self.calendars = tuple(spec.timing.exclude_calendars)
        self.max_attempts = limits.RETRY_ATTEMPTS
        if spec.delivery == job_pb2.DELIVERY_AT_MOST_ONCE:
            self.max_attempts = 1
        elif spec.HasField("retry") and spec.retry.max_attempts:
            self.max_attempts = spec.retry.max_attempts
        self.priority = spec.priority
        self.pause_on_failure = spec.pause_on_failure
        self.on_failure = spec.on_failure.job
        # No attempt begins later than this after its run was ready. 0: no such limit.
        self.retry_total_ms = ms_or(spec.retry, "total", 0) if spec.HasField("retry") else 0

    @cached_property
    def lease(self) -> bytes:
        """What the leases of all jobs of the template say, as bytes of that message."""
        return worker_pb2.Lease(action=self.spec.action).SerializeToString(deterministic=True)


class SpecParts(NamedTuple):
    """What a spec says beside its payload."""

    template: Template
    # As bytes of specs that say nothing else. Empty: there are none.
    schedules: bytes
    notes: bytes


def of(spec: job_pb2.JobSpec) -> SpecParts:
    bare = job_pb2.JobSpec()
    bare.CopyFrom(spec)
    bare.ClearField("payload")
    data = bare.SerializeToString(deterministic=True)
    return _kept_parts(data) if len(data) <= BYTES_KEPT else _parts(data)


def _parts(data: bytes) -> SpecParts:
    spec = job_pb2.JobSpec.FromString(data)
    schedules = notes = b""
    if spec.schedules:
        part = job_pb2.JobSpec(schedules=spec.schedules)
        schedules = part.SerializeToString(deterministic=True)
        spec.ClearField("schedules")
    if spec.labels or spec.owner or spec.description:
        part = job_pb2.JobSpec(labels=spec.labels, owner=spec.owner, description=spec.description)
        notes = part.SerializeToString(deterministic=True)
        spec.ClearField("labels")
        spec.ClearField("owner")
        spec.ClearField("description")
    return SpecParts(parse(spec.SerializeToString(deterministic=True)), schedules, notes)


def parse(data: bytes) -> Template:
    return _kept(data) if len(data) <= BYTES_KEPT else Template(data)


def shape(template: Template, schedules: bytes) -> ScheduleShape:
    """Schedules and timing, as far as they are the same for all jobs."""
    is_kept = len(schedules) + len(template.timing) <= BYTES_KEPT
    return (_kept_shape if is_kept else _shape)(schedules, template.timing)


def _shape(schedules: bytes, timing: bytes) -> ScheduleShape:
    spec = job_pb2.JobSpec.FromString(schedules)
    return shape_of(spec.schedules, schedule_pb2.Timing.FromString(timing))


_kept = lru_cache(KEPT)(Template)
_kept_parts = lru_cache(KEPT)(_parts)
_kept_shape = lru_cache(KEPT)(_shape)
EMPTY = Template(b"")
