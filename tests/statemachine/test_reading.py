"""The stories of statemachine/READING.md: each step writes the tables that its row names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from raftsched.proto.v1 import calendar_pb2, run_pb2, schedule_pb2
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model.record import parse_change
from raftsched.statemachine.model.request import FireTimers

from .driver import Machine, instant

TEXT = (Path(__file__).parents[2] / "statemachine" / "READING.md").read_text()
ROWS = dict(re.findall(r"^\| ([a-z ]+) \| (\w[\w ]* \| \w[\w ]*) \|$", TEXT, re.MULTILINE))
OUTCOMES = ["RAN", "COALESCED", "LATE"]


@pytest.fixture
def machine() -> Machine:
    return Machine(MemoryStore())


def wrote(machine: Machine) -> str:
    """The tables of the last change, as a row of the document has them."""
    change = parse_change(machine.log[-1], len(machine.log))
    puts, deletes = (
        " ".join(sorted(key[:1].decode() for key in side)) for side in (change.keys, change.deletes)
    )
    return f"{puts} | {deletes}"


def test_one_run(machine: Machine) -> None:
    machine.create("report", cron="0 * * * *")
    machine.at("2026-01-01T01:00")
    machine.fire()
    assert wrote(machine) == ROWS["fire"]
    [lease] = machine.grant("w1")
    assert wrote(machine) == ROWS["lease"]
    machine.succeed(lease)
    assert wrote(machine) == ROWS["complete"]


def test_a_worker_that_was_silent_is_refused(machine: Machine) -> None:
    machine.create("report", cron="0 * * * *")
    machine.at("2026-01-01T01:00")
    machine.fire()
    [first] = machine.grant("w1")
    machine.lapse("w1")
    [second] = machine.grant("w2")

    assert machine.succeed(first).reason == "LEASE_LOST"
    assert not machine.succeed(second).reason


def test_one_missed_time(machine: Machine) -> None:
    machine.create("report", cron="0 * * * *")
    machine.at("2026-01-01T01:00")
    machine.fire()
    [lease] = machine.grant("w1")
    machine.succeed(lease)
    machine.at("2026-01-01T05:30")
    # As the leader asks: what can wait in a request of its own, once it stands there.
    machine.do(FireTimers(1_000, later=False))
    assert wrote(machine) == ROWS["missed"]
    machine.do(FireTimers(1_000, later=True))
    assert wrote(machine) == ROWS["its turn"]

    ledger = machine.ledger("report")
    names = [run_pb2.Outcome.Name(entry.outcome) for entry in ledger.values()]
    assert names == [f"OUTCOME_{name}" for name in OUTCOMES]
    assert ledger[instant("2026-01-01T02:00")].last_at_ms == instant("2026-01-01T04:00")


def test_what_catches_up_waits_for_the_run_under_way(machine: Machine) -> None:
    machine.create("report", cron="0 * * * *")
    machine.at("2026-01-01T01:00")
    machine.fire()
    [lease] = machine.grant("w1")
    machine.at("2026-01-01T05:30")
    machine.fire()
    assert len(machine.live("report")) == 1

    machine.succeed(lease)
    machine.fire()
    [run] = machine.live("report")
    assert run.scheduled_time.ToMilliseconds() == instant("2026-01-01T05:00")


def test_the_policy_chooses_among_the_times_that_may_run(machine: Machine) -> None:
    rule = calendar_pb2.CalendarRule(date="2026-01-02")
    calendar = calendar_pb2.Calendar(name="off", rules=[rule])
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=calendar))
    timing = schedule_pb2.Timing(exclude_calendars=["off"])
    machine.create("report", cron="0 * * * *", timing=timing)
    machine.at("2026-01-01T21:00")
    machine.fire()
    [lease] = machine.grant("w1")
    machine.succeed(lease)
    machine.at("2026-01-02T00:30")
    machine.fire()

    ledger = machine.ledger("report")
    last = [run_pb2.Outcome.Name(entry.outcome) for entry in ledger.values()][-3:]
    assert last == ["OUTCOME_COALESCED", "OUTCOME_LATE", "OUTCOME_SKIPPED_CALENDAR"]


def test_one_flow(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")
    machine.create("b", after=["a"])
    machine.create("c", after=["b"])
    machine.at("2026-01-01T01:00")
    machine.fire()
    assert wrote(machine) == ROWS["fire a"]
    [lease] = machine.grant("w1")
    machine.succeed(lease)
    assert wrote(machine) == ROWS["complete a"]
    [lease] = machine.grant("w1")
    machine.fail(lease, fatal=True)
    assert wrote(machine) == ROWS["fail b"]
    assert not machine.live("c")
