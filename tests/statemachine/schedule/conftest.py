"""What the tests of the schedule engine share: short ways to say instants and plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from raftsched.proto.v1 import schedule_pb2
from raftsched.statemachine.core.field_fault import FieldFault
from raftsched.statemachine.schedule.calendar_days import CalendarDays
from raftsched.statemachine.schedule.compiler import compile_plan
from raftsched.statemachine.schedule.plan import Plan

Instant = Callable[[str], int]


def at(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def schedule_of(said: str | schedule_pb2.Schedule) -> schedule_pb2.Schedule:
    if isinstance(said, schedule_pb2.Schedule):
        return said
    return schedule_pb2.Schedule(cron=schedule_pb2.Cron(expression=said))


class Compile(Protocol):
    """Compile cron expressions (or whole schedules); the job is made at the start of 2026."""

    def __call__(
        self,
        *said: str | schedule_pb2.Schedule,
        zone: str = "",
        seed: str = "default/job",
        created: str = "2026-01-01T00:00",
        since: str | None = None,
        timing: schedule_pb2.Timing | None = None,
        calendars: Mapping[str, CalendarDays] | None = None,
    ) -> Plan | list[FieldFault]: ...


class MakePlan(Protocol):
    """As Compile, for what is right."""

    def __call__(
        self,
        *said: str | schedule_pb2.Schedule,
        zone: str = "",
        seed: str = "default/job",
        created: str = "2026-01-01T00:00",
        since: str | None = None,
        timing: schedule_pb2.Timing | None = None,
        calendars: Mapping[str, CalendarDays] | None = None,
    ) -> Plan: ...


def compiled(
    *said: str | schedule_pb2.Schedule,
    zone: str = "",
    seed: str = "default/job",
    created: str = "2026-01-01T00:00",
    since: str | None = None,
    timing: schedule_pb2.Timing | None = None,
    calendars: Mapping[str, CalendarDays] | None = None,
) -> Plan | list[FieldFault]:
    return compile_plan(
        [schedule_of(schedule) for schedule in said],
        timing or schedule_pb2.Timing(zone=zone),
        seed=seed,
        created_at_ms=at(created),
        since_ms=None if since is None else at(since),
        calendars=calendars or {},
    )


def right(
    *said: str | schedule_pb2.Schedule,
    zone: str = "",
    seed: str = "default/job",
    created: str = "2026-01-01T00:00",
    since: str | None = None,
    timing: schedule_pb2.Timing | None = None,
    calendars: Mapping[str, CalendarDays] | None = None,
) -> Plan:
    plan = compiled(
        *said,
        zone=zone,
        seed=seed,
        created=created,
        since=since,
        timing=timing,
        calendars=calendars,
    )
    assert isinstance(plan, Plan), plan
    return plan


@pytest.fixture
def instant() -> Instant:
    """Turn "2026-03-29T01:00" (UTC unless it says so) into milliseconds."""
    return at


@pytest.fixture
def stamp() -> Callable[[str], Timestamp]:
    def make(text: str) -> Timestamp:
        return Timestamp(seconds=at(text) // 1000, nanos=at(text) % 1000 * 1_000_000)

    return make


@pytest.fixture
def compile_() -> Compile:
    return compiled


@pytest.fixture
def plan_of() -> MakePlan:
    return right
