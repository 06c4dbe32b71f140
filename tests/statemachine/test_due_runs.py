"""What is due after an outage runs, under every policy: no day off, no time that was skipped and no
run under way takes its place."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import calendar_pb2, job_pb2, run_pb2, schedule_pb2
from raftsched.statemachine.core.instants import timestamp
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.schedule.plan import Grid

from .asking import ask
from .driver import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, START_MS, Machine, instant
from .world import ALLOW

Edit = schedule_pb2.OccurrenceEdit
Misfire = job_pb2.MisfirePolicy
WEEKDAYS = schedule_pb2.Timing(exclude_calendars=["weekend"])


def weekend(machine: Machine) -> None:
    rules = [calendar_pb2.CalendarRule(weekday=day) for day in (6, 7)]
    off = calendar_pb2.Calendar(name="weekend", rules=rules)
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=off))


def outcomes(machine: Machine) -> dict[int, str]:
    """What became of times, by the instant in milliseconds; stretches by their first."""
    entries = machine.ledger("a").items()
    return {at_ms: run_pb2.Outcome.Name(entry.outcome)[8:] for at_ms, entry in entries}


def in_order(machine: Machine) -> list[str]:
    return [outcome for _, outcome in sorted(outcomes(machine).items())]


def runs(machine: Machine) -> list[int]:
    """The scheduled times that run, one after the other."""
    found = []
    for _ in range(100):
        machine.fire_all()
        leases = machine.grant()
        found += [lease.scheduled_time.ToMilliseconds() for lease in leases]
        for lease in leases:
            machine.succeed(lease)
    return found


def sound(machine: Machine) -> bool:
    machine.check()
    return ask(machine, job_pb2.AuditJobRequest(job="a"), job_pb2.AuditJobResponse).sound


def edit(kind: Edit.Kind.ValueType, scheduled: str, moved: str = "") -> Edit:
    wanted = Edit(kind=kind, scheduled_time=timestamp(instant(scheduled)))
    if moved:
        wanted.moved_to.CopyFrom(timestamp(instant(moved)))
    return wanted


def edited(machine: Machine, kind: Edit.Kind.ValueType, scheduled: str, moved: str = "") -> None:
    wanted = edit(kind, scheduled, moved)
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=wanted))


@pytest.mark.parametrize(
    ("policy", "back", "ran"),
    [
        (Misfire(rule=Misfire.RULE_LATEST), "2026-01-04T12:00", ["2026-01-02T09:00"]),
        (Misfire(rule=Misfire.RULE_ALL, maximum=2), "2026-01-04T12:00", ["2026-01-02T09:00"]),
        (Misfire(rule=Misfire.RULE_EARLIEST), "2026-01-06T12:00", ["2026-01-02T09:00"]),
        (Misfire(rule=Misfire.RULE_LATEST), "2026-01-06T12:00", ["2026-01-06T09:00"]),
    ],
)
def test_days_off_take_no_place_of_days_of_work(
    machine: Machine, policy: Misfire, back: str, ran: list[str]
) -> None:
    weekend(machine)
    machine.create("a", cron="0 9 * * *", timing=WEEKDAYS, misfire=policy)
    machine.at("2026-01-01T09:00")
    runs(machine)

    machine.at(back)

    assert runs(machine) == [instant(at) for at in ran]
    found = outcomes(machine)
    assert found[instant("2026-01-03T09:00")] == "SKIPPED_CALENDAR"
    assert sound(machine)


def test_a_time_that_was_skipped_takes_no_place_of_another(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")
    edited(machine, Edit.KIND_SKIP, "2026-01-01T05:00")
    machine.at("2026-01-01T00:30")
    machine.fire()

    machine.at("2026-01-01T05:30")

    assert runs(machine) == [instant("2026-01-01T04:00")]
    assert in_order(machine) == ["COALESCED", "LATE", "SKIPPED_MANUALLY"]
    assert sound(machine)


def test_what_stands_for_missed_times_waits_for_the_run_under_way(machine: Machine) -> None:
    machine.create("a", every_ms=MINUTE_MS)
    machine.advance(MINUTE_MS)
    machine.fire()
    [lease] = machine.grant()
    machine.do(job_pb2.PauseJobRequest(job="a"))
    machine.advance(HOUR_MS)
    machine.do(job_pb2.ResumeJobRequest(job="a"))
    machine.fire_all()
    assert machine.job("a").status.backlog == 1

    machine.succeed(lease)

    assert runs(machine) == [machine.now_ms]
    assert sound(machine)


@pytest.mark.parametrize(
    ("rule", "late", "ran"),
    [
        (Misfire.RULE_LATEST, 59, 59),
        (Misfire.RULE_LATEST, 63, 61),
        (Misfire.RULE_SKIP, 63, 61),
        (Misfire.RULE_EARLIEST, 63, 62),
        (Misfire.RULE_ALL, 63, 63),
    ],
)
def test_what_is_late_by_no_more_than_the_grace_is_in_time(
    machine: Machine, rule: Misfire.Rule.ValueType, late: int, ran: int
) -> None:
    machine.create("a", every_ms=SECOND_MS, overlap=ALLOW, misfire=Misfire(rule=rule))

    machine.advance(late * SECOND_MS)

    assert len(runs(machine)) == ran
    assert in_order(machine).count("RAN") == min(late, 61)
    assert sound(machine)


@pytest.mark.parametrize("every_ms", [5_000, 15_000])
def test_several_times_within_the_grace_are_one_choice_where_overlap_skips(
    machine: Machine, every_ms: int
) -> None:
    machine.create("a", every_ms=every_ms)

    machine.advance(57_700)

    newest = machine.now_ms - (machine.now_ms - START_MS) % every_ms
    assert runs(machine) == [newest]
    assert set(in_order(machine)) == {"COALESCED", "RAN"}
    assert sound(machine)


@pytest.mark.parametrize(
    ("rule", "ran"),
    [
        (Misfire.RULE_SKIP, []),
        (Misfire.RULE_LATEST, ["2026-01-01T14:00"]),
        (Misfire.RULE_EARLIEST, ["2026-01-01T09:00"]),
        (Misfire.RULE_ALL, ["2026-01-01T09:00", "2026-01-01T14:00"]),
    ],
)
def test_what_was_moved_and_added_obeys_the_policy(
    machine: Machine, rule: Misfire.Rule.ValueType, ran: list[str]
) -> None:
    machine.create("a", cron="0 9 * * *", misfire=Misfire(rule=rule))
    edited(machine, Edit.KIND_MOVE, "2026-01-01T09:00", "2026-01-01T09:30")
    edited(machine, Edit.KIND_ADD, "2026-01-01T14:00")

    machine.at("2026-01-01T15:00")

    assert runs(machine) == [instant(at) for at in ran]
    assert len(outcomes(machine)) == 2
    assert set(in_order(machine)) <= {"MISSED", "COALESCED", "LATE"}
    assert machine.job("a").status.fired == 2
    assert sound(machine)


@pytest.mark.parametrize("late_ms", [60_000, 60_001])
def test_what_was_moved_has_the_grace_as_well(machine: Machine, late_ms: int) -> None:
    machine.create("a", cron="0 9 * * *", misfire=Misfire(rule=Misfire.RULE_SKIP))
    edited(machine, Edit.KIND_MOVE, "2026-01-01T09:00", "2026-01-01T09:30")

    machine.at(instant("2026-01-01T09:30") + late_ms)

    assert len(runs(machine)) == (late_ms == 60_000)


def test_ten_years_of_seconds_are_counted_in_some_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(MemoryStore())
    machine.create("a", every_ms=SECOND_MS)
    machine.do(job_pb2.PauseJobRequest(job="a"))
    machine.advance(3_650 * DAY_MS)
    machine.do(job_pb2.ResumeJobRequest(job="a"))
    steps = 0

    def counted(method: str) -> None:
        real = getattr(Grid, method)

        def count(grid: Grid, *instants: int) -> object:
            nonlocal steps
            steps += 1
            return real(grid, *instants)

        monkeypatch.setattr(Grid, method, count)

    for method in ("next_after", "last_before", "count", "times"):
        counted(method)
    machine.fire_all()

    assert machine.job("a").status.fired == 3_650 * 86_400
    assert len(machine.ledger("a")) == 2
    assert steps < 100
