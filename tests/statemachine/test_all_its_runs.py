"""What a job may have at most, and when nothing is left for it: moves, additions, skips, ends,
backfills and the time for all attempts."""

from __future__ import annotations

from itertools import combinations_with_replacement, product
from random import Random

import pytest

from raftsched.proto.v1 import job_pb2, run_pb2, schedule_pb2
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.core.store import MemoryStore

from .asking import ask
from .driver import HOUR_MS, MINUTE_MS, SECOND_MS, START_MS, Machine, with_mask
from .world import ALLOW

Timing = schedule_pb2.Timing
Edit = schedule_pb2.OccurrenceEdit
Misfire = job_pb2.MisfirePolicy
Retry = job_pb2.RetryPolicy
Status = job_pb2.JobStatus
ADD, MOVE, SKIP = Edit.KIND_ADD, Edit.KIND_MOVE, Edit.KIND_SKIP
SEED = 20261119


def at(hours: float) -> int:
    return START_MS + round(hours * HOUR_MS)


def edited(machine: Machine, kind: Edit.Kind.ValueType, hours: float, to: float = 0) -> None:
    edit = Edit(scheduled_time=timestamp(at(hours)), kind=kind)
    if to:
        edit.moved_to.CopyFrom(timestamp(at(to)))
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))


def play(machine: Machine, hours: float, step_ms: int = 10 * MINUTE_MS) -> None:
    """Time passes, and whatever is leased succeeds."""
    while machine.now_ms < at(hours):
        machine.advance(step_ms)
        machine.fire_all()
        while leases := machine.grant(credits=50):
            for lease in leases:
                machine.succeed(lease)
            machine.fire_all()
    machine.check()


def ledger(machine: Machine) -> list[tuple[float, str]]:
    """Hours and outcomes, oldest first."""
    request = job_pb2.ListJobLedgerRequest(job="a", page_size=1000)
    entries = ask(machine, request, job_pb2.ListJobLedgerResponse).entries
    name = run_pb2.Outcome.Name
    return [
        ((one.scheduled_time.seconds * 1000 - START_MS) / HOUR_MS, name(one.outcome)[8:])
        for one in reversed(entries)
    ]


def ran(machine: Machine) -> list[float]:
    return [hours for hours, outcome in ledger(machine) if outcome in ("RAN", "LATE")]


def is_over(machine: Machine) -> bool:
    return machine.state("a").state == Status.STATE_FINISHED


def is_sound(machine: Machine) -> bool:
    return ask(machine, job_pb2.AuditJobRequest(job="a"), job_pb2.AuditJobResponse).sound


def hourly(machine: Machine, most: int, **spec: object) -> None:
    timing = Timing(max_runs=most)
    machine.create("a", cron="0 * * * *", overlap=ALLOW, timing=timing, **spec)  # type: ignore[arg-type]


def test_additions_beyond_the_most_do_not_run(machine: Machine) -> None:
    hourly(machine, 2)
    for hours in (0.2, 0.4, 0.6):
        edited(machine, ADD, hours)

    play(machine, 4)

    assert (ran(machine), is_over(machine)) == ([0.2, 0.4], True)
    assert is_sound(machine)


def test_what_is_moved_forward_beyond_the_most_does_not_run(machine: Machine) -> None:
    hourly(machine, 2)
    for hours in (5, 6, 7):
        edited(machine, MOVE, hours, hours / 10)

    play(machine, 9)

    assert (ran(machine), is_over(machine)) == ([5, 6], True)
    assert is_sound(machine)


def test_what_is_moved_to_later_keeps_its_place(machine: Machine) -> None:
    """One that is added, or a later time of the schedule, does not take it."""
    hourly(machine, 2)
    edited(machine, MOVE, 1, 3.5)
    edited(machine, ADD, 1.5)

    play(machine, 6)

    assert (ran(machine), is_over(machine)) == ([1, 1.5], True)
    assert is_sound(machine)


def test_an_outage_lets_no_more_run(machine: Machine) -> None:
    rule = Misfire(rule=Misfire.RULE_ALL)
    hourly(machine, 4, misfire=rule)
    for hours in (0.5, 1.5, 2.5):
        edited(machine, ADD, hours)

    play(machine, 12, step_ms=6 * HOUR_MS)

    assert len(ledger(machine)) == 4
    assert is_over(machine)
    assert is_sound(machine)


KINDS = [(ADD, 0.5, 0), (ADD, 2.5, 0), (MOVE, 1, 3.5), (MOVE, 2, 4.2), (MOVE, 5, 0.4), (SKIP, 2, 0)]
RULES = (Misfire.RULE_SKIP, Misfire.RULE_LATEST, Misfire.RULE_EARLIEST, Misfire.RULE_ALL)
STEPS = (10 * MINUTE_MS, 90 * MINUTE_MS, 5 * HOUR_MS)
WORLDS = list(product(combinations_with_replacement(range(len(KINDS)), 3), (1, 2, 3), RULES, STEPS))


@pytest.mark.parametrize("seed", [SEED])
def test_no_world_has_more_than_the_most(seed: int) -> None:
    for world in Random(seed).sample(WORLDS, 150):
        look_at(world)


@pytest.mark.slow
def test_none_of_all_worlds_has_more_than_the_most() -> None:
    for world in WORLDS:
        look_at(world)


def look_at(world: tuple[tuple[int, ...], int, Misfire.Rule.ValueType, int]) -> None:
    places, most, rule, step_ms = world
    machine = Machine(MemoryStore())
    hourly(machine, most, misfire=Misfire(rule=rule))
    for place in sorted(set(places)):
        edited(machine, *KINDS[place])

    play(machine, 12, step_ms)

    entries = ledger(machine)
    assert len({hours for hours, _ in entries}) == len(entries), world
    assert machine.state("a").fired == most, (world, entries)
    assert is_over(machine), (world, entries)
    assert is_sound(machine), (world, entries)


def test_a_rest_that_ends_by_its_end_time_is_over(machine: Machine) -> None:
    timing = Timing(end_time=timestamp(at(0.6)))
    machine.create("a", after_end_ms=10 * MINUTE_MS, timing=timing, delete_after=duration(HOUR_MS))

    play(machine, 1)
    assert (machine.state("a").fired, is_over(machine)) == (3, True)

    play(machine, 3)
    assert machine.refused(job_pb2.DeleteJobRequest(job="a")).word == "JOB_NOT_FOUND"


def test_a_rest_is_not_over_while_its_run_is_under_way(machine: Machine) -> None:
    timing = Timing(end_time=timestamp(at(1)))
    machine.create("a", after_end_ms=10 * MINUTE_MS, timing=timing)
    machine.advance(10 * MINUTE_MS)
    machine.fire_all()
    [lease] = machine.grant()
    machine.advance(2 * HOUR_MS)
    machine.fire_all()
    assert not is_over(machine)

    machine.succeed(lease)

    assert is_over(machine)


def test_a_rest_before_its_end_time_goes_on(machine: Machine) -> None:
    machine.create("a", after_end_ms=10 * MINUTE_MS, timing=Timing(end_time=timestamp(at(9))))

    play(machine, 1)

    assert not is_over(machine)
    assert machine.state("a").next_scheduled_at_ms


def test_a_skip_behind_the_last_time_keeps_no_job(machine: Machine) -> None:
    hourly(machine, 2)
    edited(machine, SKIP, 5)

    play(machine, 3)
    assert is_over(machine)

    # It still holds where the job gets more runs.
    timing = Timing(max_runs=9)
    machine.do(with_mask("spec.timing.max_runs", name="a", timing=timing))
    play(machine, 8)
    assert dict(ledger(machine)).get(5) in (None, "SKIPPED_MANUALLY")
    assert 5 not in ran(machine)
    machine.check()


def dead(machine: Machine, run: str) -> str:
    record = machine.record(run)
    assert record.state == run_pb2.RUN_STATE_FAILED, record
    return record.error.kind if record.error else ""


@pytest.mark.parametrize("first", [True, False])
def test_no_attempt_begins_behind_the_time_for_all(machine: Machine, first: bool) -> None:
    total = Retry(total=duration(MINUTE_MS), max_attempts=9, first=duration(SECOND_MS))
    machine.create("a", retry=total)
    run = machine.trigger("a").id
    if not first:
        machine.fail(machine.grant()[0])

    machine.advance(MINUTE_MS)
    machine.fire_all()
    # At its end one may still begin.
    assert machine.record(run).state != run_pb2.RUN_STATE_FAILED
    machine.advance(1)
    machine.fire_all()

    assert dead(machine, run) == "timeout.total"
    assert not machine.grant()
    machine.check()


def test_an_attempt_that_began_in_time_goes_on(machine: Machine) -> None:
    machine.create("a", retry=Retry(total=duration(MINUTE_MS)))
    run = machine.trigger("a").id
    [lease] = machine.grant()
    machine.advance(HOUR_MS)
    machine.fire_all()
    machine.succeed(lease)

    assert machine.record(run).state == run_pb2.RUN_STATE_SUCCEEDED


def test_a_backfill_does_not_count(machine: Machine) -> None:
    """Neither from before the schedules, nor behind the last, nor what was counted when missed."""
    hourly(machine, 5, misfire=Misfire(rule=Misfire.RULE_SKIP))
    play(machine, 2)
    machine.advance(2 * HOUR_MS)
    play(machine, 8)
    assert (machine.state("a").fired, is_over(machine), is_sound(machine)) == (5, True, True)
    before = ran(machine)
    request = job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(at(-4)), to_time=timestamp(at(7.5))
    )

    planned = machine.ask(request, job_pb2.BackfillJobResponse).planned
    play(machine, 12)

    assert ran(machine) == [-4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7]
    assert planned == 12 - len(before)
    assert (machine.state("a").fired, is_over(machine), is_sound(machine)) == (5, True, True)
