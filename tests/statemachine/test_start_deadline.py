"""A run that has not started so long after its due time is skipped, but for those wanted late."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import dead_letter_pb2, job_pb2, run_pb2
from raftsched.statemachine.core.instants import duration, timestamp

from .driver import HOUR_MS, MINUTE_MS, START_MS, Machine

Overlap = job_pb2.OverlapPolicy
ALLOW = Overlap(rule=Overlap.RULE_ALLOW)
QUEUE = Overlap(rule=Overlap.RULE_QUEUE, limit=10)
DEADLINE = job_pb2.MisfirePolicy(start_deadline=duration(MINUTE_MS))
SKIPPED = (run_pb2.RUN_STATE_SKIPPED, run_pb2.OUTCOME_SKIPPED_DEADLINE)


def outcomes(machine: Machine, name: str = "a") -> list[str]:
    return [
        run_pb2.Outcome.Name(entry.outcome).removeprefix("OUTCOME_")
        for _, entry in sorted(machine.ledger(name).items())
    ]


def ended(machine: Machine, run: str) -> tuple[int, int]:
    shown = machine.run(run)
    return shown.state, shown.outcome


def fired(machine: Machine) -> str:
    """The run of the hour that comes now."""
    machine.advance(HOUR_MS)
    machine.fire()
    return machine.live("a")[-1].id


@pytest.mark.parametrize("rule", ["LATEST", "EARLIEST", "ALL"])
def test_the_misfire_policy_chooses_among_those_within_their_start_deadline(
    machine: Machine, rule: str
) -> None:
    """Under EARLIEST the one past its deadline was chosen, and stood for the others."""
    machine.create("a", cron="0 * * * *", misfire=job_pb2.MisfirePolicy(
        rule=job_pb2.MisfirePolicy.Rule.Value(f"RULE_{rule}"), start_deadline=duration(HOUR_MS)
    ))  # fmt: skip
    machine.advance(3 * HOUR_MS + 10 * MINUTE_MS)
    machine.fire_all()

    assert outcomes(machine) == ["SKIPPED_DEADLINE", "LATE"]
    [expired, late] = sorted(machine.ledger("a").values(), key=lambda entry: entry.outcome)[::-1]
    assert (expired.count, late.count) == (2, 0)


def test_a_backfill_has_no_start_deadline(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", overlap=ALLOW, misfire=DEADLINE)
    machine.advance(30 * MINUTE_MS)
    machine.do(job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(START_MS - HOUR_MS), to_time=timestamp(START_MS),
    ))  # fmt: skip
    machine.fire()
    machine.advance(MINUTE_MS)
    machine.fire()

    [lease] = machine.grant()
    machine.succeed(lease)

    assert outcomes(machine) == ["LATE"]


def test_a_requeued_run_has_no_start_deadline(machine: Machine) -> None:
    """It had become SKIPPED, and the ledger said so of a scheduled time that had its run."""
    machine.create("a", cron="0 * * * *", misfire=DEADLINE)
    run = fired(machine)
    [lease] = machine.grant()
    machine.fail(lease, fatal=True)
    machine.advance(10 * MINUTE_MS)
    machine.do(dead_letter_pb2.RequeueDeadLetterRequest(run=run))
    machine.fire()
    machine.advance(10 * MINUTE_MS)
    machine.fire()

    [lease] = machine.grant()
    machine.succeed(lease)

    assert lease.run == run
    assert outcomes(machine) == ["RAN"]


def test_a_run_that_is_held_back_until_its_start_deadline_is_skipped(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", misfire=DEADLINE, overlap=QUEUE)
    fired(machine)
    [lease] = machine.grant()
    held = fired(machine)

    machine.advance(MINUTE_MS - 1)
    machine.fire()
    assert machine.run(held).held
    machine.advance(1)
    machine.fire()

    assert ended(machine, held) == SKIPPED
    assert outcomes(machine) == ["RAN", "SKIPPED_DEADLINE"]
    machine.succeed(lease)
    assert machine.grant() == []


def test_an_end_lets_no_run_go_whose_start_deadline_has_passed(machine: Machine) -> None:
    """The end of the last run came before the timer fired, and a worker was given the late one."""
    machine.create("a", misfire=DEADLINE, overlap=QUEUE)
    machine.trigger("a")
    [lease] = machine.grant()
    late = [machine.trigger("a").id for _ in range(2)]
    machine.advance(MINUTE_MS - 1)
    in_time = machine.trigger("a").id
    machine.advance(1)

    machine.succeed(lease)

    assert [lease.run for lease in machine.grant()] == [in_time]
    machine.fire()
    assert [ended(machine, run) for run in late] == [SKIPPED, SKIPPED]


def test_a_run_goes_on_when_all_before_it_are_too_late(machine: Machine) -> None:
    machine.create("a", misfire=DEADLINE, overlap=QUEUE)
    machine.trigger("a")
    [lease] = machine.grant()
    late = machine.trigger("a").id
    machine.advance(MINUTE_MS)
    machine.succeed(lease)
    new = machine.trigger("a").id

    assert [lease.run for lease in machine.grant()] == [new]
    machine.fire()
    assert ended(machine, late) == SKIPPED


def lift_the_deadline(machine: Machine) -> None:
    update = job_pb2.UpdateJobRequest(job=job_pb2.Job(name="a"))
    update.job.spec.misfire.grace.CopyFrom(duration(MINUTE_MS))
    machine.do(update)


def test_a_start_deadline_that_was_lifted_skips_no_run_that_is_held_back(machine: Machine) -> None:
    """Its timer fires all the same, and then nobody may judge it anew: a step of a wave waits,
    though the overlap policy skips others."""
    machine.create("u")
    machine.create("a", after=["u"], misfire=DEADLINE, overlap=Overlap(rule=Overlap.RULE_SKIP))
    machine.trigger("a")
    [lease] = machine.grant()
    machine.trigger("u")
    [upstream] = machine.grant()
    machine.succeed(upstream)
    [_, held] = machine.live("a")
    lift_the_deadline(machine)
    machine.advance(MINUTE_MS)
    machine.fire()

    machine.succeed(lease)

    assert [lease.run for lease in machine.grant()] == [held.id]


def test_a_run_that_was_too_late_goes_when_its_start_deadline_is_lifted(machine: Machine) -> None:
    machine.create("a", misfire=DEADLINE, overlap=QUEUE)
    machine.trigger("a")
    [lease] = machine.grant()
    late = [machine.trigger("a").id for _ in range(2)]
    machine.advance(MINUTE_MS)
    machine.succeed(lease)

    lift_the_deadline(machine)
    machine.fire_all()

    assert [lease.run for lease in machine.grant()] == [late[0]]


def test_a_run_triggered_for_later_has_its_start_deadline_too(machine: Machine) -> None:
    machine.create("a", misfire=DEADLINE, overlap=QUEUE)
    machine.trigger("a")
    machine.grant()
    later = machine.trigger("a", due_time=timestamp(machine.now_ms + HOUR_MS)).id
    machine.advance(HOUR_MS)
    machine.fire()
    assert machine.run(later).held

    machine.advance(MINUTE_MS)
    machine.fire()

    assert ended(machine, later) == SKIPPED


@pytest.mark.parametrize("rule", ["SKIP", "ALLOW", "QUEUE_ONE", "QUEUE", "REPLACE"])
def test_a_run_past_its_start_deadline_stands_in_no_way(machine: Machine, rule: str) -> None:
    """What was due in the instant in which its deadline came was SKIPPED_OVERLAP for it, so without
    a worker every other time had that outcome, and no run stood in its way."""
    overlap = Overlap(rule=Overlap.Rule.Value(f"RULE_{rule}"), limit=0 if "_" in rule else 1)
    machine.create("a", cron="* * * * *", misfire=DEADLINE, overlap=overlap)
    for _ in range(4):
        machine.advance(MINUTE_MS)
        machine.fire()
        machine.check()

    assert outcomes(machine) == ["SKIPPED_DEADLINE"] * 3 + ["RAN"]
    [last] = machine.live("a")
    assert (last.due_time.ToMilliseconds(), last.held) == (machine.now_ms, False)


def test_what_waits_goes_before_what_comes_when_a_deadline_makes_room(machine: Machine) -> None:
    """A run that is held goes on by an end in that instant, and what is due then waits for it."""
    timeouts = job_pb2.Timeouts(queue=duration(2 * MINUTE_MS))
    machine.create("a", cron="* * * * *", overlap=QUEUE, timeouts=timeouts)
    for _ in range(3):
        machine.advance(MINUTE_MS)
        machine.fire()

    assert outcomes(machine) == ["RAN"] * 3
    assert [run.held for run in machine.live("a")] == [False, True]
    assert machine.ended("a")[0].error.kind == "timeout.queue"


def test_an_attempt_whose_time_is_up_stands_in_no_way(machine: Machine) -> None:
    once = job_pb2.RetryPolicy(max_attempts=1)
    timeouts = job_pb2.Timeouts(attempt=duration(MINUTE_MS))
    machine.create("a", cron="* * * * *", timeouts=timeouts, retry=once)
    for _ in range(3):
        machine.advance(MINUTE_MS)
        machine.fire()
        machine.grant()

    assert outcomes(machine) == ["RAN"] * 3
