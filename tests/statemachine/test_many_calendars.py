"""Many jobs that name large calendars: each of these is read once, and never out of date."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date
from types import FrameType

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from raftsched.proto.v1 import calendar_pb2, job_pb2, run_pb2, schedule_pb2
from raftsched.statemachine.model.request import FireTimers
from raftsched.statemachine.schedule.calendar_days import RULES_MAX
from raftsched.statemachine.schedule.compiler import CALENDARS_MAX

from .driver import DAY_MS, MINUTE_MS, START_MS, Machine, job_of, with_mask

Calendar = calendar_pb2.Calendar
Rule = calendar_pb2.CalendarRule
Timing = schedule_pb2.Timing
Import = job_pb2.ImportJobsRequest
JOBS = 100
FIRST = date(2027, 1, 1).toordinal()


def compiled(work: Callable[[], object]) -> int:
    """How often calendars are read from their rules while something is done."""
    count = 0

    def look(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_name == "compile_calendar"

    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def large(name: str, other: int) -> Calendar:
    """Each second day, so that no two of its rules are one."""
    days = (date.fromordinal(FIRST + 2 * rule + other) for rule in range(RULES_MAX))
    return Calendar(name=name, rules=[Rule(date=day.isoformat()) for day in days])


def imported(names: list[str], cron: str, mode: Import.Mode.ValueType) -> Import:
    timing = Timing(exclude_calendars=names)
    jobs = [job_of(f"job-{number}", cron=cron, timing=timing) for number in range(JOBS)]
    return Import(jobs=jobs, mode=mode)


def test_calendars_are_read_once_for_all_jobs_that_name_them(machine: Machine) -> None:
    names = [f"calendar-{number}" for number in range(CALENDARS_MAX)]
    for number, name in enumerate(names):
        machine.do(calendar_pb2.CreateCalendarRequest(calendar=large(name, number)))

    imports = compiled(lambda: machine.do(imported(names, "0 0 * * *", Import.MODE_CREATE_ONLY)))
    upserts = compiled(lambda: machine.do(imported(names, "0 1 * * *", Import.MODE_UPSERT)))
    machine.advance(DAY_MS)
    firing = compiled(machine.fire_all)

    # One that was accepted is read again when a job names it for the first time.
    assert imports <= len(names)
    assert (upserts, firing) == (0, 0)


def test_a_calendar_that_changes_is_read_once_more(machine: Machine) -> None:
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=large("off", 0)))
    machine.do(imported(["off"], "0 0 * * *", Import.MODE_CREATE_ONLY))
    other = calendar_pb2.UpdateCalendarRequest(
        calendar=large("off", 1), update_mask=FieldMask(paths=["rules"])
    )

    changing = compiled(lambda: machine.decide(other))
    machine.do(other)
    machine.advance(DAY_MS)
    firing = compiled(machine.fire_all)

    assert changing == 1
    assert firing <= 1


@pytest.mark.parametrize("off", [True, False])
def test_a_calendar_may_change_within_the_decision_that_reads_it(
    machine: Machine, off: bool
) -> None:
    """It is updated behind a job that named it, and then the job is due."""
    days = ["2026-01-02", "2026-01-01"] if off else ["2026-01-01", "2026-01-02"]
    before, after = (Calendar(name="off", rules=[Rule(date=day)]) for day in days)
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=before))
    named = job_of("a", once=START_MS + MINUTE_MS, timing=Timing(exclude_calendars=["off"]))
    machine.do(job_pb2.CreateJobRequest(job=named))
    machine.advance(MINUTE_MS)
    other = job_of("b", cron="0 0 * * *", timing=Timing(exclude_calendars=["off"]))

    machine.do_all(
        job_pb2.CreateJobRequest(job=other),
        calendar_pb2.UpdateCalendarRequest(
            calendar=after, update_mask=FieldMask(paths=["rules"])
        ),
        FireTimers(10),
    )  # fmt: skip

    assert bool(machine.live("a")) is not off


def test_a_calendar_made_anew_within_a_decision_is_another(machine: Machine) -> None:
    """Its version is that of the one before, and it was read already."""
    then, now = (Calendar(name="off", rules=[Rule(date=f"2026-01-0{day}")]) for day in (2, 1))
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=then))
    timing = Timing(exclude_calendars=["off"])
    machine.create("a", once=START_MS + MINUTE_MS)
    machine.advance(MINUTE_MS)

    machine.do_all(
        job_pb2.CreateJobRequest(job=job_of("b", cron="0 0 * * *", timing=timing)),
        with_mask("spec.timing", name="b"),
        calendar_pb2.DeleteCalendarRequest(calendar="off"),
        calendar_pb2.CreateCalendarRequest(calendar=now),
        with_mask("spec.timing", name="a", timing=timing),
        FireTimers(10),
    )

    [entry] = machine.ledger("a").values()
    assert entry.outcome == run_pb2.OUTCOME_SKIPPED_CALENDAR
    assert not machine.live("a")
