"""The quota of runs under way: what waits for it, and in which order."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from raftsched.proto.v1 import job_pb2, namespace_pb2, run_pb2
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.tenants import namespaces

from .driver import DAY_MS, HOUR_MS, MINUTE_MS, Machine

Misfire = job_pb2.MisfirePolicy
Overlap = job_pb2.OverlapPolicy
ALLOW = Overlap(rule=Overlap.RULE_ALLOW)
ALL = Misfire(rule=Misfire.RULE_ALL, maximum=1_000)


def limit(machine: Machine, live_runs: int) -> None:
    request = namespace_pb2.UpdateNamespaceRequest()
    request.namespace.name = "default"
    request.namespace.quota.live_runs = live_runs
    request.update_mask.paths.append("quota")
    machine.do(request)


def outcomes(machine: Machine, name: str = "a") -> Counter[str]:
    return Counter(
        run_pb2.Outcome.Name(entry.outcome)[8:] for entry in machine.ledger(name).values()
    )


def rounds(machine: Machine, most: int = 100) -> list[list[str]]:
    """What runs at once, until nothing is left to run."""
    found: list[list[str]] = []
    for _ in range(most):
        machine.fire_all()
        machine.check()
        leases = machine.grant()
        if not leases:
            return found
        found.append([lease.run.partition(".")[0] for lease in leases])
        for lease in leases:
            machine.succeed(lease)
        machine.advance(1)
    raise AssertionError(f"after {most} rounds something still runs")


@pytest.mark.parametrize("rule", [Overlap.RULE_ALLOW, Overlap.RULE_SKIP])
def test_what_catches_up_waits_for_the_quota(
    machine: Machine, rule: Overlap.Rule.ValueType
) -> None:
    limit(machine, 10)
    machine.create("a", cron="* * * * *", overlap=Overlap(rule=rule), misfire=ALL)
    machine.advance(2 * HOUR_MS)

    ran = rounds(machine, 200)

    assert outcomes(machine) == {"LATE": 119, "RAN": 1}
    assert max(map(len, ran)) == (10 if rule == Overlap.RULE_ALLOW else 1)


def test_a_backfill_waits_for_the_quota(machine: Machine) -> None:
    limit(machine, 2)
    machine.create("a", cron="0 0 1 1 *", overlap=ALLOW)
    machine.create("b", cron="0 0 1 1 *", overlap=ALLOW)
    machine.advance(HOUR_MS)
    machine.trigger("b")
    machine.trigger("b")
    machine.do(job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(machine.now_ms - 3 * 366 * DAY_MS),
        to_time=timestamp(machine.now_ms), runs_per_minute=60_000,
    ))  # fmt: skip

    ran = rounds(machine)
    assert ran[0] == ["b", "b"]
    assert [name for some in ran for name in some] == ["b"] * 2 + ["a"] * 4


def test_a_run_for_later_counts_when_it_is_due(machine: Machine) -> None:
    limit(machine, 3)
    machine.create("a", cron="0 * * * *")
    machine.create("b")
    for _ in range(5):
        machine.trigger("b", due_time=timestamp(machine.now_ms + DAY_MS + MINUTE_MS))

    for _ in range(24):
        machine.advance(HOUR_MS)
        assert rounds(machine) == [["a"]]
    machine.advance(MINUTE_MS)

    assert outcomes(machine) == {"RAN": 24}
    assert rounds(machine) == [["b"] * 3, ["b"] * 2]


def test_steps_of_a_flow_count_and_wait(machine: Machine) -> None:
    limit(machine, 2)
    machine.create("root")
    for number in range(6):
        machine.create(f"step-{number}", after=["root"])
    machine.trigger("root")

    ran = rounds(machine)

    assert [len(some) for some in ran] == [1, 2, 2, 2]


def test_jobs_that_wait_for_the_quota_take_turns(machine: Machine) -> None:
    limit(machine, 1)
    for name in ("a", "b"):
        machine.create(name)
        for _ in range(3):
            machine.trigger(name, due_time=timestamp(machine.now_ms + MINUTE_MS))
    machine.advance(MINUTE_MS)

    ran = [name for some in rounds(machine) for name in some]

    assert ran[:1] + ran[-1:] == ["a", "b"]
    assert sorted(ran) == ["a"] * 3 + ["b"] * 3
    assert all(one != other for one, other in pairwise(ran[1:-1])), ran


def test_a_quota_that_is_raised_lets_those_in_line_go(machine: Machine) -> None:
    limit(machine, 1)
    machine.create("root")
    for number in range(200):
        machine.create(f"step-{number}", after=["root"])
    machine.trigger("root")
    [lease] = machine.grant()
    machine.succeed(lease)
    machine.fire_all()
    assert len(machine.grant()) == 1

    limit(machine, 0)
    machine.fire_all()
    machine.check()

    assert len(machine.grant()) == 199


def test_a_job_in_line_can_be_deleted(machine: Machine) -> None:
    limit(machine, 1)
    machine.create("a")
    machine.create("b")
    machine.trigger("b", due_time=timestamp(machine.now_ms + MINUTE_MS))
    machine.trigger("a")
    machine.advance(MINUTE_MS)
    machine.fire_all()
    machine.check()

    machine.do(job_pb2.DeleteJobRequest(job="b"))
    machine.check()

    assert rounds(machine) == [["a"]]


def test_the_usage_shows_what_counts(machine: Machine) -> None:
    limit(machine, 2)
    machine.create("a", cron="0 0 1 1 *")
    machine.trigger("a")
    machine.trigger("a")
    waits = machine.trigger("a", due_time=timestamp(machine.now_ms + MINUTE_MS)).id
    view = machine.view()
    shown = namespaces.answer(view, namespaces.need(view, "default"))

    assert shown.usage.live_runs == 1
    assert machine.run(waits).later


@pytest.mark.parametrize("late_ms", [0, 5, MINUTE_MS // 2])
def test_a_run_whose_time_is_up_takes_no_place_of_what_is_due(
    machine: Machine, late_ms: int
) -> None:
    """It ended in the very change in which the other was SKIPPED_QUOTA for it."""
    limit(machine, 1)
    deadline = job_pb2.MisfirePolicy(start_deadline=duration(HOUR_MS))
    machine.create("waits", misfire=deadline)
    machine.create("hourly", cron="0 * * * *")
    machine.trigger("waits")

    machine.advance(HOUR_MS + late_ms)
    machine.fire()

    [entry] = machine.ledger("hourly").values()
    assert entry.outcome == run_pb2.OUTCOME_RAN
    assert [run.outcome for run in machine.ended("waits")] == [run_pb2.OUTCOME_SKIPPED_DEADLINE]
    machine.check()
