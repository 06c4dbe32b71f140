"""What somebody moved or added takes its place by the instant at which it is due."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import job_pb2, namespace_pb2, run_pb2, schedule_pb2
from raftsched.statemachine.core.instants import duration, timestamp

from .driver import HOUR_MS, MINUTE_MS, START_MS, Machine

Edit = schedule_pb2.OccurrenceEdit
Misfire = job_pb2.MisfirePolicy
Overlap = job_pb2.OverlapPolicy
AT_0320 = START_MS + 3 * HOUR_MS + 20 * MINUTE_MS


def edit(machine: Machine, kind: str, at_ms: int = AT_0320, from_hour: int = 7) -> None:
    change = Edit(kind=Edit.KIND_ADD, scheduled_time=timestamp(at_ms))
    if kind == "move":
        change = Edit(
            kind=Edit.KIND_MOVE,
            scheduled_time=timestamp(START_MS + from_hour * HOUR_MS),
            moved_to=timestamp(at_ms),
        )
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=change))


def stands(machine: Machine) -> dict[int, str]:
    """The outcome of each hour."""
    return {
        (at_ms - START_MS) // HOUR_MS: run_pb2.Outcome.Name(entry.outcome)[8:]
        for at_ms, entry in machine.ledger("a").items()
    }


@pytest.mark.parametrize("kind", ["add", "move"])
@pytest.mark.parametrize(("rule", "grace_ms"), [("SKIP", 5 * HOUR_MS), ("ALL", MINUTE_MS)])
@pytest.mark.parametrize("overlap", ["QUEUE_ONE", "REPLACE"])
@pytest.mark.parametrize("jitter_ms", [0, 50 * MINUTE_MS])
def test_an_older_one_takes_the_place_of_no_newer_after_an_outage(
    machine: Machine, kind: str, rule: str, grace_ms: int, overlap: str, jitter_ms: int
) -> None:
    machine.create(
        "a", cron="0 * * * *",
        misfire=Misfire(rule=Misfire.Rule.Value(f"RULE_{rule}"), grace=duration(grace_ms)),
        overlap=Overlap(rule=Overlap.Rule.Value(f"RULE_{overlap}")),
        timing=schedule_pb2.Timing(jitter=duration(jitter_ms)) if jitter_ms else None,
    )  # fmt: skip
    edit(machine, kind)
    machine.at(START_MS + 2 * HOUR_MS)
    machine.fire_all()
    machine.at(START_MS + 6 * HOUR_MS - MINUTE_MS)
    machine.fire_all()

    if rule == "ALL":
        # What was missed runs one behind the other.
        assert machine.job("a").status.backlog > 3
        while machine.job("a").status.backlog:
            [lease] = machine.grant()
            machine.succeed(lease)
            machine.advance(100)
            machine.fire_all()
    [last] = [
        run for run in machine.live("a") if run.held or {rule, overlap} != {"SKIP", "QUEUE_ONE"}
    ][-1:]
    assert last.scheduled_time.ToMilliseconds() == START_MS + 5 * HOUR_MS


@pytest.mark.parametrize(("from_hour", "left"), [(4, 5), (7, 7)])
def test_of_two_that_are_due_at_once_the_lower_scheduled_time_goes_first(
    machine: Machine, from_hour: int, left: int
) -> None:
    machine.create("a", cron="0 * * * *", overlap=Overlap(rule=Overlap.RULE_REPLACE))
    edit(machine, "move", START_MS + 5 * HOUR_MS, from_hour)
    for hour in range(1, 6):
        machine.at(START_MS + hour * HOUR_MS)
        machine.fire_all()

    [last] = machine.live("a")
    assert last.scheduled_time.ToMilliseconds() == START_MS + left * HOUR_MS


@pytest.mark.parametrize("overlap", ["QUEUE", "QUEUE_ONE", "REPLACE"])
def test_what_waits_goes_before_what_is_due_at_the_resume(machine: Machine, overlap: str) -> None:
    """It had waited for the quota; then the newer one went first, and under REPLACE the older one
    cancelled it."""
    quota = namespace_pb2.Quota(live_runs=2)
    namespace = namespace_pb2.Namespace(name="default", quota=quota)
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=namespace))
    machine.create("b")
    rule = Overlap.Rule.Value(f"RULE_{overlap}")
    machine.create("a", cron="0 * * * *", overlap=Overlap(rule=rule))
    for _ in range(2):
        machine.trigger("b")
    leases = machine.grant()
    machine.at(START_MS + 4 * HOUR_MS + MINUTE_MS + 1)
    machine.fire_all()
    assert machine.job("a").status.backlog == 1
    machine.do(job_pb2.PauseJobRequest(job="a"))
    for lease in leases:
        machine.succeed(lease)
    machine.at(START_MS + 6 * HOUR_MS)
    machine.do(job_pb2.ResumeJobRequest(job="a"))
    machine.fire_all()

    live = [
        (run.scheduled_time.ToMilliseconds() - START_MS) // HOUR_MS for run in machine.live("a")
    ]
    assert live == ([4, 6] if overlap == "QUEUE" else [4]), live
    assert [run.held for run in machine.live("a")] == [False, True][: len(live)]
    [lease] = machine.grant()
    machine.succeed(lease)
    machine.fire_all()
    assert [lease.run for lease in machine.grant()] == [run.id for run in machine.live("a")]
    assert machine.live("a")[0].scheduled_time.ToMilliseconds() == START_MS + 6 * HOUR_MS
    machine.check()
