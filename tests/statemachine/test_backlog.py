"""The outage guard: what was missed becomes runs at the namespace's pace, or is given up."""

from __future__ import annotations

from collections import Counter

import pytest

from raftsched.proto.v1 import (
    calendar_pb2,
    event_pb2,
    job_pb2,
    namespace_pb2,
    run_pb2,
    schedule_pb2,
)
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.reads.events import events

from .asking import ask
from .driver import HOUR_MS, MINUTE_MS, START_MS, Machine, job_of, with_mask

Misfire = job_pb2.MisfirePolicy
Overlap = job_pb2.OverlapPolicy
ALLOW = Overlap(rule=Overlap.RULE_ALLOW)
ALL = Misfire(rule=Misfire.RULE_ALL, maximum=100)
NAMESPACE = "default"


@pytest.fixture(autouse=True)
def _ten_a_second(machine: Machine) -> None:
    """Ten missed scheduled times a second, so that one is let through in each 100 ms."""
    wanted = namespace_pb2.Namespace(name=NAMESPACE, backlog_rate=10)
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=wanted))


def outage(machine: Machine, ms: int = 5 * MINUTE_MS + 1) -> None:
    machine.advance(ms)
    machine.fire()


def usage(machine: Machine, name: str = NAMESPACE) -> int:
    request = namespace_pb2.GetNamespaceRequest(namespace=name)
    return ask(machine, request, namespace_pb2.Namespace).usage.backlog


def begun(machine: Machine, names: list[str]) -> list[str]:
    return [name for name in names if machine.live(name)]


def drop(machine: Machine, name: str = "a") -> int:
    request = job_pb2.DropBacklogRequest(job=name)
    return machine.ask(request, job_pb2.DropBacklogResponse).dropped


def outcomes(machine: Machine, name: str = "a") -> dict[int, tuple[str, int]]:
    """What became of scheduled times, by minute: the outcome, and how many."""
    return {
        (at_ms - START_MS) // MINUTE_MS: (run_pb2.Outcome.Name(entry.outcome)[8:], entry.count)
        for at_ms, entry in machine.ledger(name).items()
    }


def sound(machine: Machine, name: str = "a") -> bool:
    return ask(machine, job_pb2.AuditJobRequest(job=name), job_pb2.AuditJobResponse).sound


@pytest.mark.parametrize("rule", [Misfire.RULE_LATEST, Misfire.RULE_EARLIEST])
def test_after_an_outage_the_jobs_of_a_namespace_share_one_pace(
    machine: Machine, rule: Misfire.Rule.ValueType
) -> None:
    names = [f"j{number}" for number in range(6)]
    for name in names:
        machine.create(name, every_ms=HOUR_MS, misfire=Misfire(rule=rule))

    outage(machine, 3 * HOUR_MS + 30 * MINUTE_MS)
    # One for now, and one for the 100 ms before in which there was none.
    assert begun(machine, names) == names[:2]
    assert usage(machine) == 4
    machine.advance(99)
    machine.fire()
    assert begun(machine, names) == names[:2]
    machine.advance(1)
    machine.fire()
    assert begun(machine, names) == names[:3]
    assert machine.job("j3").status.backlog == 1
    machine.advance(1_000)
    machine.fire()

    assert begun(machine, names) == names
    assert usage(machine) == 0
    for name in names:
        assert machine.job(name).status.fired == 3
        assert sound(machine, name)


def test_namespaces_have_a_pace_of_their_own(machine: Machine) -> None:
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=namespace_pb2.Namespace(name="n")))
    for number in range(4):
        machine.create(f"j{number}", every_ms=HOUR_MS)
        machine.create(f"j{number}", every_ms=HOUR_MS, namespace="n")

    outage(machine, HOUR_MS + 30 * MINUTE_MS)

    assert (usage(machine), usage(machine, "n")) == (2, 0)


def test_what_comes_in_time_is_not_held_back(machine: Machine) -> None:
    names = [f"j{number}" for number in range(6)]
    for name in names:
        machine.create(name, every_ms=HOUR_MS)

    outage(machine, HOUR_MS + 59_000)

    assert begun(machine, names) == names


def test_jobs_with_many_missed_times_take_turns(machine: Machine) -> None:
    for name in ("a", "b"):
        machine.create(name, every_ms=MINUTE_MS, overlap=ALLOW, misfire=ALL)

    outage(machine)
    counts = []
    for _ in range(4):
        counts.append((len(machine.live("a")), len(machine.live("b"))))
        machine.advance(100)
        machine.fire()

    assert counts == [(1, 1), (2, 1), (2, 2), (3, 2)]


def test_a_job_whose_turn_comes_waits_for_the_end_of_its_last_run(machine: Machine) -> None:
    for name in ("x", "y", "a"):
        machine.create(name, every_ms=HOUR_MS)
    machine.advance(HOUR_MS)
    machine.fire()
    leases = {lease.job: lease for lease in machine.grant()}

    outage(machine, HOUR_MS + 30 * MINUTE_MS)
    machine.advance(1_000)
    machine.fire()
    # So do the others, though the guard had a place for them at once.
    assert (machine.job("a").status.backlog, usage(machine)) == (1, 3)

    machine.succeed(leases["a"])
    machine.fire()
    assert len(machine.live("a")) == 1
    assert (machine.job("a").status.backlog, usage(machine)) == (0, 2)


def test_a_run_that_waits_for_its_turn_for_too_long_is_skipped(machine: Machine) -> None:
    deadline = Misfire(start_deadline=duration(30 * MINUTE_MS))
    for name in ("x", "y", "a"):
        machine.create(name, every_ms=HOUR_MS, misfire=deadline)

    outage(machine, HOUR_MS + 30 * MINUTE_MS - 50)
    machine.advance(100)
    machine.fire()

    assert [outcome for outcome, _ in outcomes(machine).values()] == ["SKIPPED_DEADLINE"]
    assert usage(machine) == 0


def test_days_off_and_what_was_left_out_by_hand_do_not_run_after_an_outage(
    machine: Machine,
) -> None:
    off = calendar_pb2.Calendar(name="off", rules=[calendar_pb2.CalendarRule(date="2026-01-03")])
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=off))
    timing = schedule_pb2.Timing(exclude_calendars=["off"])
    machine.create("a", cron="0 9 * * *", timing=timing, overlap=ALLOW, misfire=ALL)
    edit = schedule_pb2.OccurrenceEdit(kind=schedule_pb2.OccurrenceEdit.KIND_SKIP)
    edit.scheduled_time.FromJsonString("2026-01-05T09:00:00Z")
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))

    machine.at("2026-01-07T12:00")
    left = []
    for _ in range(5):
        machine.fire()
        left.append(machine.job("a").status.backlog)
        machine.advance(100)

    # Two at once; what is left out does not wait.
    assert left == [3, 2, 1, 0, 0]
    days = [outcome for _, (outcome, _) in sorted(outcomes(machine).items())]
    assert days == ["LATE", "LATE", "SKIPPED_CALENDAR", "LATE", "SKIPPED_MANUALLY", "LATE", "LATE"]
    assert usage(machine) == 0
    assert sound(machine)


@pytest.mark.parametrize("rule", [Misfire.RULE_LATEST, Misfire.RULE_EARLIEST])
def test_a_day_off_does_not_run_in_place_of_those_that_were_missed(
    machine: Machine, rule: Misfire.Rule.ValueType
) -> None:
    off = calendar_pb2.Calendar(name="off", rules=[calendar_pb2.CalendarRule(date="2026-01-01")])
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=off))
    timing = schedule_pb2.Timing(exclude_calendars=["off"])
    machine.create("a", cron="0 9 * * *", timing=timing, misfire=Misfire(rule=rule))

    machine.at("2026-01-01T12:00")
    machine.fire()

    assert [outcome for outcome, _ in outcomes(machine).values()] == ["SKIPPED_CALENDAR"]


def test_what_waits_counts_towards_the_most_runs(machine: Machine) -> None:
    for name in ("x", "y", "a"):
        machine.create(name, every_ms=HOUR_MS, timing=schedule_pb2.Timing(max_runs=1))

    outage(machine, HOUR_MS + 30 * MINUTE_MS)

    assert machine.job("a").status.backlog == 1
    assert not machine.job("a").status.HasField("next_scheduled_time")
    machine.advance(100)
    machine.fire()
    assert machine.job("a").status.state == job_pb2.JobStatus.STATE_FINISHED


def test_a_dropped_backlog_is_missed(machine: Machine) -> None:
    machine.create("a", every_ms=MINUTE_MS, overlap=ALLOW, misfire=ALL)
    outage(machine)
    assert (machine.job("a").status.backlog, usage(machine)) == (3, 3)

    assert drop(machine) == 3

    assert outcomes(machine) == {1: ("LATE", 0), 2: ("LATE", 0), 3: ("MISSED", 3)}
    status = machine.job("a").status
    assert (status.backlog, status.fired, status.skipped) == (0, 5, 3)
    assert usage(machine) == 0
    assert sound(machine)
    assert len(machine.live("a")) == 2
    outage(machine, MINUTE_MS)
    assert outcomes(machine)[6] == ("RAN", 0)


def test_times_of_a_backlog_that_have_an_outcome_keep_it(machine: Machine) -> None:
    machine.create("a", every_ms=MINUTE_MS, overlap=ALLOW, misfire=ALL)
    for minute in (4, 6):
        moved = schedule_pb2.OccurrenceEdit(
            kind=schedule_pb2.OccurrenceEdit.KIND_MOVE,
            scheduled_time=timestamp(START_MS + minute * MINUTE_MS),
            moved_to=timestamp(START_MS + MINUTE_MS // 2),
        )
        machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=moved))
    machine.advance(MINUTE_MS // 2)
    machine.fire()
    outage(machine, 8 * MINUTE_MS)

    # Two of the eight have run, and so have the two that were moved.
    assert (drop(machine), usage(machine)) == (4, 0)

    assert outcomes(machine) == {
        1: ("LATE", 0), 2: ("LATE", 0), 3: ("MISSED", 4), 4: ("RAN", 0), 6: ("RAN", 0),
    }  # fmt: skip
    assert sound(machine)


def test_a_dropped_backfill_leaves_the_outcomes_that_were_there(machine: Machine) -> None:
    machine.create("a", every_ms=MINUTE_MS, overlap=ALLOW, misfire=Misfire(rule=Misfire.RULE_SKIP))
    outage(machine)
    before = outcomes(machine)
    backfill = job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(START_MS), to_time=timestamp(machine.now_ms)
    )
    planned = machine.ask(backfill, job_pb2.BackfillJobResponse).planned
    assert usage(machine) == planned > 3

    assert drop(machine) == planned

    assert outcomes(machine) == before
    assert (usage(machine), machine.job("a").status.backlog) == (0, 0)


def test_a_job_goes_on_when_its_backlog_is_dropped(machine: Machine) -> None:
    for name in ("x", "y", "a"):
        machine.create(name, every_ms=HOUR_MS, timing=schedule_pb2.Timing(max_runs=1))
    machine.create("b", after_end_ms=HOUR_MS)
    outage(machine, HOUR_MS + 30 * MINUTE_MS)

    assert (drop(machine), drop(machine, "b")) == (1, 1)
    kinds = {event.kind for event in events(machine.log[-2], machine.index - 1, machine.store)}

    assert kinds == {event_pb2.EVENT_KIND_JOB_FINISHED, event_pb2.EVENT_KIND_FIRED_NOT}
    assert machine.job("a").status.state == job_pb2.JobStatus.STATE_FINISHED
    assert machine.job("b").status.next_scheduled_time.ToMilliseconds() == machine.now_ms + HOUR_MS


def test_what_was_moved_behind_a_dropped_backlog_still_runs(machine: Machine) -> None:
    machine.create("a", every_ms=MINUTE_MS, overlap=ALLOW, misfire=ALL)
    moved = schedule_pb2.OccurrenceEdit(
        kind=schedule_pb2.OccurrenceEdit.KIND_MOVE,
        scheduled_time=timestamp(START_MS + 3 * MINUTE_MS),
        moved_to=timestamp(START_MS + HOUR_MS - MINUTE_MS // 2),
    )
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=moved))
    outage(machine)

    drop(machine)
    assert outcomes(machine) == {1: ("LATE", 0), 2: ("LATE", 0), 4: ("MISSED", 2)}
    for _ in range(55):
        outage(machine, MINUTE_MS)

    assert outcomes(machine)[3] == ("RAN", 0)
    assert sound(machine)


def test_what_waits_again_since_its_move_is_taken_back_runs_in_its_turn(machine: Machine) -> None:
    machine.create("a", every_ms=MINUTE_MS, overlap=ALLOW, misfire=ALL)
    scheduled_time = timestamp(START_MS + 4 * MINUTE_MS)
    moved = schedule_pb2.OccurrenceEdit(
        kind=schedule_pb2.OccurrenceEdit.KIND_MOVE,
        scheduled_time=scheduled_time,
        moved_to=timestamp(START_MS + HOUR_MS),
    )
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=moved))
    outage(machine)

    machine.do(job_pb2.RevertOccurrenceRequest(job="a", scheduled_time=scheduled_time))
    outage(machine, 1_000)

    assert [outcome for outcome, _ in outcomes(machine).values()] == ["LATE"] * 4 + ["RAN"]
    assert sound(machine)


def reschedule(machine: Machine, cron: str) -> None:
    schedules = job_of("a", cron=cron).spec.schedules
    machine.do(with_mask("spec.schedules", name="a", schedules=schedules))


def test_what_waits_when_the_schedules_change_is_missed(machine: Machine) -> None:
    machine.create("a", every_ms=MINUTE_MS, overlap=ALLOW, misfire=ALL)
    outage(machine)
    assert usage(machine) == 3

    reschedule(machine, "0 12 * * *")

    assert outcomes(machine) == {1: ("LATE", 0), 2: ("LATE", 0), 3: ("MISSED", 3)}
    assert (usage(machine), machine.job("a").status.backlog) == (0, 0)
    outage(machine, 1_000)
    assert len(machine.live("a")) == 2


@pytest.mark.parametrize("most", [0, 5, 100])
def test_what_waits_still_runs_when_the_most_of_runs_changes(machine: Machine, most: int) -> None:
    timing = schedule_pb2.Timing(max_runs=5)
    machine.create("a", every_ms=MINUTE_MS, overlap=ALLOW, misfire=ALL, timing=timing)
    outage(machine)
    assert usage(machine) == 3
    assert not machine.job("a").status.HasField("next_scheduled_time")

    timing = schedule_pb2.Timing(max_runs=most)
    machine.do(with_mask("spec.timing", name="a", timing=timing))
    outage(machine, 1_000)

    assert [outcome for outcome, _ in outcomes(machine).values()] == ["LATE"] * 4 + ["RAN"]
    assert machine.job("a").status.HasField("next_scheduled_time") == (most != 5)
    assert sound(machine)


def test_there_is_nothing_to_drop(machine: Machine) -> None:
    machine.create("a", every_ms=MINUTE_MS)
    changes = len(machine.log)

    assert drop(machine) == 0

    assert len(machine.log) == changes
    assert machine.refused(job_pb2.DropBacklogRequest(job="b")).word == "JOB_NOT_FOUND"


def test_a_dry_run_drops_nothing(machine: Machine) -> None:
    machine.create("a", every_ms=MINUTE_MS, overlap=ALLOW, misfire=ALL)
    outage(machine)

    answer = machine.ask(
        job_pb2.DropBacklogRequest(job="a", validate_only=True), job_pb2.DropBacklogResponse
    )

    assert (answer.dropped, usage(machine)) == (3, 3)


def test_the_backlog_of_a_deleted_job_is_counted_no_more(machine: Machine) -> None:
    machine.create("a", every_ms=MINUTE_MS, overlap=ALLOW, misfire=ALL)
    outage(machine)
    assert usage(machine) == 3

    machine.do(job_pb2.DeleteJobRequest(job="a"))

    assert usage(machine) == 0


@pytest.mark.parametrize("rate", [-1, 100_001])
def test_a_rate_has_its_limits(machine: Machine, rate: int) -> None:
    wanted = namespace_pb2.Namespace(name=NAMESPACE, backlog_rate=rate)

    refusal = machine.refused(namespace_pb2.UpdateNamespaceRequest(namespace=wanted))

    assert (refusal.word, refusal.values["field"]) == ("FIELD_INVALID", "namespace.backlog_rate")


def test_the_highest_rate_lets_a_hundred_through_in_a_millisecond(machine: Machine) -> None:
    wanted = namespace_pb2.Namespace(name=NAMESPACE, backlog_rate=100_000)
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=wanted))
    misfire = Misfire(rule=Misfire.RULE_ALL, maximum=10_000)
    machine.create("a", every_ms=MINUTE_MS, overlap=ALLOW, misfire=misfire)
    outage(machine, 12_000 * MINUTE_MS - 1)
    while machine.fire():
        pass

    # A hundred each millisecond, for the 100 ms before and for this one.
    assert len(machine.live("a")) == 10_000


def test_times_within_the_grace_are_not_missed_and_use_up_no_maximum(machine: Machine) -> None:
    misfire = Misfire(rule=Misfire.RULE_ALL, maximum=10, grace=duration(60 * MINUTE_MS))
    machine.create("a", every_ms=MINUTE_MS, overlap=ALLOW, misfire=misfire)
    outage(machine, 119 * MINUTE_MS + 500)

    for _ in range(80):
        outage(machine, 100)

    found: Counter[str] = Counter()
    for outcome, count in outcomes(machine).values():
        found[outcome] += count or 1
    # The newest ten of 59 missed ones, and the 60 that are late by less than an hour.
    assert found == {"MISSED": 49, "LATE": 10, "RAN": 60}
    assert sound(machine)


def test_the_first_and_the_last_missed_time_may_be_left_out_by_hand(machine: Machine) -> None:
    machine.create("a", every_ms=HOUR_MS, overlap=ALLOW, misfire=ALL)
    for hour in (1, 4):
        skip = schedule_pb2.OccurrenceEdit(
            kind=schedule_pb2.OccurrenceEdit.KIND_SKIP,
            scheduled_time=timestamp(START_MS + hour * HOUR_MS),
        )
        machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=skip))

    outage(machine, 4 * HOUR_MS + 30 * MINUTE_MS)
    outage(machine, 1_000)

    assert [outcome for _, (outcome, _) in sorted(outcomes(machine).items())] == [
        "SKIPPED_MANUALLY", "LATE", "LATE", "SKIPPED_MANUALLY",
    ]  # fmt: skip
    assert sound(machine)


def test_a_backfill_leaves_days_off_alone_as_the_calendar_has_them_now(machine: Machine) -> None:
    off = calendar_pb2.Calendar(name="off", rules=[calendar_pb2.CalendarRule(date="2026-01-01")])
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=off))
    timing = schedule_pb2.Timing(exclude_calendars=["off"])
    machine.create("a", every_ms=HOUR_MS, timing=timing, overlap=ALLOW)
    outage(machine, 3 * HOUR_MS)
    ask_for = job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(START_MS), to_time=timestamp(START_MS + 3 * HOUR_MS)
    )

    on_days_off = machine.do(ask_for)
    off.rules[0].date = "2026-01-03"
    machine.do(calendar_pb2.UpdateCalendarRequest(calendar=off))
    later = machine.do(ask_for)

    Answer = job_pb2.BackfillJobResponse
    assert on_days_off == Answer(planned=0, left_alone=3)
    assert later == Answer(planned=3, left_alone=0)
    for _ in range(3):
        outage(machine, MINUTE_MS)
    assert len(machine.live("a")) == 3


def test_two_backfills_of_one_range_run_it_once(machine: Machine) -> None:
    machine.create("a", every_ms=MINUTE_MS, overlap=ALLOW, misfire=Misfire(rule=Misfire.RULE_SKIP))
    outage(machine)
    backfill = job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(START_MS + MINUTE_MS), to_time=timestamp(machine.now_ms),
        runs_per_minute=60_000,
    )  # fmt: skip
    first, second = machine.do_all(backfill, backfill)
    assert isinstance(first, job_pb2.BackfillJobResponse)
    assert isinstance(second, job_pb2.BackfillJobResponse)
    assert (second.planned, second.left_alone) == (0, first.planned + first.left_alone)
    planned = machine.job("a").status.backlog

    for _ in range(10):
        outage(machine, 1_000)

    assert planned == first.planned > 3
    assert (machine.job("a").status.backlog, usage(machine)) == (0, 0)
    # The last of them was in time.
    assert len(machine.live("a")) == planned + 1


def test_what_a_backfill_is_to_run_does_not_count_towards_the_most_runs(machine: Machine) -> None:
    skip = Misfire(rule=Misfire.RULE_SKIP)
    timing = schedule_pb2.Timing(max_runs=8)
    machine.create("a", every_ms=MINUTE_MS, overlap=ALLOW, misfire=skip, timing=timing)
    outage(machine)
    backfill = job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(START_MS + MINUTE_MS), to_time=timestamp(machine.now_ms)
    )
    machine.do(backfill)

    outage(machine, MINUTE_MS)

    status = machine.job("a").status
    assert status.fired + status.backlog >= 8
    assert status.HasField("next_scheduled_time")


def test_what_ran_before_its_time_does_not_wait(machine: Machine) -> None:
    """It would be counted twice towards the most runs."""
    timing = schedule_pb2.Timing(max_runs=5)
    machine.create("a", every_ms=HOUR_MS, overlap=ALLOW, misfire=ALL, timing=timing)
    moved = schedule_pb2.OccurrenceEdit(
        kind=schedule_pb2.OccurrenceEdit.KIND_MOVE,
        scheduled_time=timestamp(START_MS + 3 * HOUR_MS),
        moved_to=timestamp(START_MS + MINUTE_MS),
    )
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=moved))
    outage(machine, MINUTE_MS)
    outage(machine, 4 * HOUR_MS + 30 * MINUTE_MS)
    assert machine.job("a").status.backlog == 1

    outage(machine, 1_000)

    status = machine.job("a").status
    assert (status.fired, status.backlog) == (4, 0)
    assert status.next_scheduled_time.ToMilliseconds() == START_MS + 5 * HOUR_MS


def rest_after_an_outage(machine: Machine, misfire: Misfire | None = None) -> None:
    """Jobs that go on 10 s after the end of a run; "x" has used the guard's place after an hour."""
    wanted = namespace_pb2.Namespace(name=NAMESPACE, backlog_rate=1)
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=wanted))
    machine.create("x", after_end_ms=10_000)
    machine.create("a", after_end_ms=10_000, misfire=misfire)
    machine.advance(10_000)
    machine.fire()
    work_off(machine)
    machine.advance(HOUR_MS)
    machine.fire()


def work_off(machine: Machine) -> list[str]:
    leases = machine.grant()
    for lease in leases:
        machine.succeed(lease)
    return [lease.job for lease in leases]


def test_a_missed_rest_that_waits_for_its_turn_is_named_once(machine: Machine) -> None:
    """The next rest was counted from the last end again, so it was due and waited as well; and so
    on with each fire, though the clock stood still."""
    rest_after_an_outage(machine)
    for _ in range(30):
        assert machine.fire() == 0
    assert (machine.job("a").status.backlog, len(machine.state("a").backlog)) == (1, 1)

    ran = []
    for second in range(1, 31):
        machine.advance(1_000)
        machine.fire()
        ran += [second for name in work_off(machine) if name == "a"]

    # The missed one when the guard has a place, and then one after each rest.
    assert ran == [1, 11, 21]
    assert sound(machine)


def test_a_job_goes_on_from_a_missed_rest_that_became_no_run(machine: Machine) -> None:
    rest_after_an_outage(machine, misfire=Misfire(start_deadline=duration(HOUR_MS - 9_500)))
    assert machine.job("a").status.backlog == 1

    outage(machine, 1_000)

    status = machine.job("a").status
    names = [run_pb2.Outcome.Name(item.outcome)[8:] for item in machine.ledger("a").values()]
    assert names == ["RAN", "SKIPPED_DEADLINE"]
    assert status.next_scheduled_time.ToMilliseconds() == machine.now_ms + 10_000


def backfill(machine: Machine, first: int, end: int, name: str = "a") -> int:
    """Order a backfill between two instants, one run a minute; how many times it has."""
    request = job_pb2.BackfillJobRequest(
        job=name, from_time=timestamp(first), to_time=timestamp(end), runs_per_minute=1
    )
    return machine.ask(request, job_pb2.BackfillJobResponse).planned


def test_missed_times_do_not_wait_for_a_backfill(machine: Machine) -> None:
    machine.create("a", cron="*/5 * * * *", overlap=ALLOW, misfire=ALL)
    machine.advance(4 * MINUTE_MS)
    assert backfill(machine, START_MS - 12 * 24 * HOUR_MS, START_MS) == 12 * 24 * 12
    machine.fire()

    outage(machine, 58 * MINUTE_MS)
    for _ in range(12):
        outage(machine, 100)

    late = [minute for minute, (name, _) in outcomes(machine).items() if name == "LATE"]
    assert [minute for minute in late if minute > 0] == list(range(5, 61, 5))
    # The backfill goes on at its pace.
    left = machine.job("a").status.backlog
    for _ in range(3):
        outage(machine, MINUTE_MS)
    assert machine.job("a").status.backlog == left - 3


def test_a_backfill_goes_on_when_missed_times_went_before_it_and_became_no_run(
    machine: Machine,
) -> None:
    """It had waited for the end of a run, which came while it was not the first in line."""
    deadline = Misfire(start_deadline=duration(30 * MINUTE_MS))
    for name in ("x", "y", "a"):
        machine.create(name, every_ms=HOUR_MS, misfire=deadline)
    machine.advance(HOUR_MS)
    machine.fire()
    leases = {lease.job: lease for lease in machine.grant()}
    assert backfill(machine, START_MS - 3 * HOUR_MS, START_MS) == 3
    machine.fire()
    for name in ("x", "y"):
        machine.succeed(leases[name])

    outage(machine, HOUR_MS + 30 * MINUTE_MS - 50)
    assert machine.job("a").status.backlog == 4
    machine.succeed(leases["a"])
    outage(machine, 100)

    assert [run.cause for run in machine.live("a")] == [run_pb2.CAUSE_BACKFILL]
    assert machine.job("a").status.backlog == 2


def test_a_time_that_waits_for_its_backfill_is_planned_once(machine: Machine) -> None:
    skip = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_SKIP)
    machine.create("a", cron="0 * * * *", overlap=skip)
    outage(machine, HOUR_MS)
    request = job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(START_MS - 4 * HOUR_MS), to_time=timestamp(START_MS)
    )

    first = machine.ask(request, job_pb2.BackfillJobResponse)
    again = machine.ask(request, job_pb2.BackfillJobResponse)
    request.from_time.CopyFrom(timestamp(START_MS - 6 * HOUR_MS))
    more = machine.ask(request, job_pb2.BackfillJobResponse)

    assert (first.planned, first.left_alone) == (4, 0)
    assert (again.planned, again.left_alone) == (0, 4)
    assert (more.planned, more.left_alone) == (2, 4)
    assert machine.job("a").status.backlog == usage(machine) == 6
    machine.check()


@pytest.mark.parametrize("how", ["calendar", "job"])
def test_what_waits_runs_though_its_day_is_left_out_later(machine: Machine, how: str) -> None:
    """It was chosen among the days that may run, and then had no run and stood for none."""
    for name, date in (("none", "2026-03-01"), ("off", "2026-01-02")):
        rules = [calendar_pb2.CalendarRule(date=date)]
        calendar = calendar_pb2.Calendar(name=name, rules=rules)
        machine.do(calendar_pb2.CreateCalendarRequest(calendar=calendar))
    machine.create("a", cron="0 9 * * *", timing=schedule_pb2.Timing(exclude_calendars=["none"]))
    machine.at("2026-01-01T09:00")
    machine.fire()
    [lease] = machine.grant()
    machine.at("2026-01-02T12:00")
    machine.fire()

    if how == "calendar":
        calendar = calendar_pb2.Calendar(name="none", rules=rules)
        machine.do(calendar_pb2.UpdateCalendarRequest(calendar=calendar))
    else:
        other = schedule_pb2.Timing(exclude_calendars=["off"])
        machine.do(with_mask("spec.timing", name="a", timing=other))
    machine.succeed(lease)
    machine.fire()

    assert [run.scheduled_time.ToJsonString()[:10] for run in machine.live("a")] == ["2026-01-02"]
    assert not ask(machine, job_pb2.AuditJobRequest(job="a"), job_pb2.AuditJobResponse).wrong
    machine.check()
