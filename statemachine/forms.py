"""What jobs have in common whose specs differ in nothing but the payload, looked at once.

Thousands of jobs are imported at a time that do the same work with other data. A form follows from
the bytes of a spec alone, so to remember it can never change an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..proto.v1 import job_pb2
from . import policies, validate
from .rejection import Fault
from .schedule import Shape, shape_of

KEPT = 1_024
# Longer ones are looked at each time, so that what is kept stays small.
BYTES_KEPT = 4_096


@dataclass(frozen=True, slots=True)
class Form:
    """A spec without its payload, and what is to be known of it."""

    data: bytes
    # What is wrong with it, schedules apart.
    faults: tuple[Fault, ...]
    has_schedules: bool
    has_upstream: bool
    # It happens at one instant only.
    once: bool
    keep_ms: int
    # None: never.
    delete_after_ms: int | None
    calendars: tuple[str, ...]
    # Its schedules and timing, as far as they are the same for all jobs.
    shape: Shape


def of(spec: job_pb2.JobSpec) -> Form:
    bare = job_pb2.JobSpec()
    bare.CopyFrom(spec)
    bare.ClearField("payload")
    data = bare.SerializeToString(deterministic=True)
    return _kept(data) if len(data) <= BYTES_KEPT else _form(data)


def _form(data: bytes) -> Form:
    spec = job_pb2.JobSpec.FromString(data)
    schedules = spec.schedules
    delete_after = spec.HasField("delete_after")
    return Form(
        data=data,
        faults=tuple(validate.spec(spec)),
        has_schedules=bool(schedules),
        has_upstream=bool(spec.upstream.jobs),
        once=len(schedules) == 1 and schedules[0].HasField("once"),
        keep_ms=policies.ms_or(spec, "keep_history", 0),
        delete_after_ms=policies.ms_or(spec, "delete_after", 0) if delete_after else None,
        calendars=tuple(spec.timing.exclude_calendars),
        shape=shape_of(schedules, spec.timing),
    )


_kept = lru_cache(KEPT)(_form)
