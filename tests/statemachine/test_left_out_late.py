"""A job that calendars leave out and that is looked at late is not looked at each second again."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import calendar_pb2, job_pb2, run_pb2, schedule_pb2
from raftsched.statemachine.core.instants import timestamp
from raftsched.statemachine.occurrences.next_time import LEFT_OUT_MS

from .asking import ask
from .driver import DAY_MS, HOUR_MS, SECOND_MS, START_MS, Machine
from .world import ALLOW

CALENDAR, RAN = run_pb2.OUTCOME_SKIPPED_CALENDAR, run_pb2.OUTCOME_RAN
Edit = schedule_pb2.OccurrenceEdit
LATE_MS = 10 * SECOND_MS


@pytest.fixture
def seconds(machine: Machine) -> Machine:
    """A job of each second, whose first day is left out."""
    rules = [calendar_pb2.CalendarRule(date="2026-01-01")]
    off = calendar_pb2.Calendar(name="off", rules=rules)
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=off))
    timing = schedule_pb2.Timing(exclude_calendars=["off"])
    machine.create("a", cron="* * * * * *", timing=timing, overlap=ALLOW)
    return machine


def looks(machine: Machine, until_ms: int) -> int:
    """How often the job is looked at, each second once at most, until an instant."""
    count = 0
    while machine.now_ms < until_ms:
        machine.advance(SECOND_MS)
        count += machine.fire() > 0
    return count


def sound(machine: Machine) -> bool:
    """So says an audit of what was due of late."""
    request = job_pb2.AuditJobRequest(job="a", from_time=timestamp(machine.now_ms - HOUR_MS))
    return ask(machine, request, job_pb2.AuditJobResponse).sound


def test_one_that_is_punctual_has_its_outcome_at_once(seconds: Machine) -> None:
    assert looks(seconds, START_MS + 60 * SECOND_MS) == 60
    assert len(seconds.ledger("a")) == 60


def test_one_that_was_late_rests_for_longer_and_longer(seconds: Machine) -> None:
    seconds.advance(3 * SECOND_MS)
    assert seconds.fire() == 1

    assert looks(seconds, START_MS + 603 * SECOND_MS) <= 600 * SECOND_MS // LEFT_OUT_MS + 3

    seconds.at(START_MS + 700 * SECOND_MS)
    seconds.fire()
    entries = seconds.ledger("a")
    assert {entry.outcome for entry in entries.values()} == {CALENDAR}
    assert sum(max(entry.count, 1) for entry in entries.values()) == 700
    assert sound(seconds)


def test_what_runs_behind_the_days_that_are_left_out_is_punctual(seconds: Machine) -> None:
    seconds.at(START_MS + DAY_MS - LATE_MS)
    seconds.fire()

    seconds.at(START_MS + DAY_MS - SECOND_MS)
    assert seconds.fire() == 0
    seconds.at(START_MS + DAY_MS)
    assert seconds.fire() == 1

    assert seconds.ledger("a")[START_MS + DAY_MS].outcome == RAN
    assert sound(seconds)


def test_what_somebody_added_is_punctual(seconds: Machine) -> None:
    seconds.advance(LATE_MS)
    seconds.fire()
    at_ms = seconds.now_ms + 2 * SECOND_MS + 500
    added = Edit(kind=Edit.KIND_ADD, scheduled_time=timestamp(at_ms))
    seconds.do(job_pb2.EditOccurrenceRequest(job="a", edit=added))

    seconds.at(at_ms)
    seconds.fire()

    assert seconds.ledger("a")[at_ms].outcome == RAN


def test_one_that_a_calendar_lets_in_again_goes_on_soon(seconds: Machine) -> None:
    seconds.advance(LATE_MS)
    seconds.fire()
    rules = [calendar_pb2.CalendarRule(date="2026-01-05")]
    off = calendar_pb2.Calendar(name="off", rules=rules)
    seconds.do(calendar_pb2.UpdateCalendarRequest(calendar=off))

    seconds.advance(LEFT_OUT_MS)
    seconds.fire()

    newest = max(seconds.ledger("a"))
    assert (newest, seconds.ledger("a")[newest].outcome) == (seconds.now_ms, RAN)
