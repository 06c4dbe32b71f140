"""Runs that were triggered for later: until they are due they are in nobody's way."""

from __future__ import annotations

from collections import Counter

import pytest

from raftsched.proto.v1 import job_pb2, run_pb2
from raftsched.statemachine.core.instants import timestamp
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import UsageRecord, encode

from .driver import DAY_MS, HOUR_MS, MINUTE_MS, Machine
from .old_runs import as_format_1

Overlap = job_pb2.OverlapPolicy
QUEUE = Overlap(rule=Overlap.RULE_QUEUE)
REPLACE_KEY = run_pb2.UniqueKey(key="k", policy=run_pb2.UniqueKey.POLICY_REPLACE)


def later(machine: Machine, ms: int, **fields: object) -> str:
    return machine.trigger("a", due_time=timestamp(machine.now_ms + ms), **fields).id


def work_off(machine: Machine) -> list[str]:
    leases = machine.grant()
    for lease in leases:
        machine.succeed(lease)
    return [lease.run for lease in leases]


def outcomes(machine: Machine) -> Counter[str]:
    return Counter(
        run_pb2.Outcome.Name(entry.outcome)[8:] for entry in machine.ledger("a").values()
    )


@pytest.mark.parametrize("rule", Overlap.Rule.values()[1:])
def test_a_run_for_next_week_keeps_no_other_from_running(
    machine: Machine, rule: Overlap.Rule.ValueType
) -> None:
    machine.create("a", cron="0 * * * *", overlap=Overlap(rule=rule))
    waiting = later(machine, 7 * DAY_MS)

    for _ in range(24):
        machine.advance(HOUR_MS)
        machine.fire()
        assert len(work_off(machine)) == 1

    assert outcomes(machine) == {"RAN": 24}
    assert [run.id for run in machine.live("a")] == [waiting]


def test_a_run_for_next_week_takes_no_place_among_those_held_back(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", overlap=QUEUE)
    later(machine, 7 * DAY_MS)
    for _ in range(3):
        machine.advance(HOUR_MS)
        machine.fire()

    # One is under way and one is held back, which is the most.
    assert outcomes(machine) == {"RAN": 2, "SKIPPED_OVERLAP": 1}
    refuse = job_pb2.TriggerJobRequest.IF_RUNNING_REFUSE
    refusal = machine.refused(job_pb2.TriggerJobRequest(job="a", if_running=refuse))
    assert (refusal.word, refusal.values["live"]) == ("OVERLAP_REFUSED", "1")


def test_a_rest_does_not_wait_for_a_run_for_next_week(machine: Machine) -> None:
    machine.create("a", after_end_ms=10_000)
    later(machine, 7 * DAY_MS)

    ran = 0
    for _ in range(100):
        machine.advance(10_000)
        machine.fire()
        ran += len(work_off(machine))

    assert ran == 100


def test_runs_that_are_held_back_keep_their_order_with_those_triggered_for_later(
    machine: Machine,
) -> None:
    queue = Overlap(rule=Overlap.RULE_QUEUE, limit=5)
    machine.create("a", cron="*/10 * * * *", overlap=queue)
    second = later(machine, 15 * MINUTE_MS)
    last = later(machine, 45 * MINUTE_MS)
    for _ in range(30):
        machine.advance(MINUTE_MS)
        machine.fire()

    due = [run for run in machine.live("a") if run.id != last]
    assert [run.held for run in due] == [False, True, True, True]
    assert due[1].id == second
    ran = [run for _ in range(4) for run in work_off(machine)]
    assert ran == [run.id for run in due]


def test_a_forced_run_for_later_runs_whatever_is_under_way_then(machine: Machine) -> None:
    machine.create("a")
    forced = later(machine, MINUTE_MS, force=True)
    machine.trigger("a")
    machine.advance(MINUTE_MS)
    machine.fire()

    assert forced in [lease.run for lease in machine.grant()]


def test_a_forced_run_that_takes_over_a_key_is_not_held_back(machine: Machine) -> None:
    machine.create("a")
    machine.trigger("a")
    machine.grant()
    first = machine.trigger("a", force=True, unique=REPLACE_KEY)

    second = machine.trigger("a", force=True, unique=REPLACE_KEY)

    assert [lease.run for lease in machine.grant()] == [second.id]
    assert machine.run(first.id).state == run_pb2.RUN_STATE_CANCELLED


def test_a_state_of_before_does_not_say_what_held_runs_wait_for(machine: Machine) -> None:
    machine.create("a", overlap=QUEUE)
    machine.trigger("a")
    held = machine.trigger("a").id
    waiting = later(machine, HOUR_MS)
    jid = machine.jid("a")
    puts = []
    for run_id in (held, waiting):
        place = keys.run_key(run_id)
        assert place is not None
        run = machine.record(run_id)
        puts.append((keys.run(*place), as_format_1(run, held=True)))
    state, usage = machine.state("a"), machine.view().need(keys.usage(0), UsageRecord)
    state.later = usage.held = 0
    puts += [(keys.state(jid), encode(state)), (keys.usage(0), encode(usage))]
    machine.store.write(puts, [])
    machine.forget()
    machine.check()

    assert [(run.held, run.later) for run in machine.live("a")] == [
        (False, False), (True, False), (False, True),
    ]  # fmt: skip
    assert len(work_off(machine)) == 1
    assert work_off(machine) == [held]
    machine.advance(HOUR_MS)
    machine.fire_all()
    assert work_off(machine) == [waiting]
    assert (machine.state("a").later, machine.state("a").held) == (0, 0)
