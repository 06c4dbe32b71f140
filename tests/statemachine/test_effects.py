"""Whatever ends a run: one that was held goes on, the flow hears of it, and so does the job."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raftsched.proto.v1 import job_pb2, run_pb2, worker_pb2
from raftsched.statemachine.core.instants import duration
from raftsched.statemachine.machine import Request, apply, decide
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.phases import HELD, READY
from raftsched.statemachine.model.record import RunRecord
from raftsched.statemachine.model.request import FireTimer, Report, Resume

from .driver import HOUR_MS, MINUTE_MS, Machine

QUEUE = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_QUEUE, limit=5)
ONCE = job_pb2.DELIVERY_AT_MOST_ONCE
TIMED = job_pb2.Timeouts(run=duration(HOUR_MS))
KEY = run_pb2.UniqueKey(key="k", policy=run_pb2.UniqueKey.POLICY_REPLACE)
SUCCESS = worker_pb2.Success()


def leased(machine: Machine, run: str) -> worker_pb2.Lease:
    [lease] = machine.grant("w1", 1)
    assert lease.run == run
    return lease


def reported(machine: Machine, run: str) -> None:
    machine.succeed(leased(machine, run))


def failed(machine: Machine, run: str) -> None:
    machine.fail(leased(machine, run), fatal=True)


def reported_carefully(machine: Machine, run: str) -> None:
    lease = leased(machine, run)
    result = worker_pb2.Result(run=run, token=lease.token, success=SUCCESS)
    body = Request(Report("w1", (result,)))
    decision = decide(machine.view(), [body], careful=True)
    machine.index += 1
    apply(machine.store, machine.index, decision.change)
    machine.forget()


def completed(machine: Machine, run: str) -> None:
    lease = leased(machine, run)
    machine.do(worker_pb2.CompleteRequest(run=run, token=lease.token))


def lapsed(machine: Machine, run: str) -> None:
    leased(machine, run)
    machine.lapse("w1")


def unheard(machine: Machine, run: str) -> None:
    leased(machine, run)
    machine.do(Resume("w1", {}, 10))


def cancelled(machine: Machine, run: str) -> None:
    machine.do(run_pb2.CancelRunRequest(run=run))


def cancelled_in_time(machine: Machine, run: str) -> None:
    leased(machine, run)
    machine.do(run_pb2.CancelRunRequest(run=run, grace=duration(MINUTE_MS)))
    machine.advance(MINUTE_MS)
    machine.fire()


def terminated(machine: Machine, run: str) -> None:
    leased(machine, run)
    machine.do(run_pb2.TerminateRunRequest(run=run))


def timed_out(machine: Machine, run: str) -> None:
    machine.advance(HOUR_MS)
    machine.fire()


def rung_alone(machine: Machine, run: str) -> None:
    machine.advance(HOUR_MS)
    record, place = machine.record(run), keys.run_key(run)
    assert place is not None
    machine.do(FireTimer(keys.run_timer(record.timer_at_ms, *place)))


def replaced_by_key(machine: Machine, run: str) -> None:
    machine.trigger("a", unique=KEY)


WAYS: list[Callable[[Machine, str], None]] = [
    reported, failed, reported_carefully, completed, lapsed, unheard, cancelled, cancelled_in_time,
    terminated, timed_out, rung_alone, replaced_by_key,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_whatever_ends_a_run_lets_others_go_on(
    machine: Machine, way: Callable[[Machine, str], None]
) -> None:
    machine.create("a", overlap=QUEUE, delivery=ONCE, timeouts=TIMED, delete_after=duration(0))
    after = job_pb2.Dependency(job="a", condition=job_pb2.Dependency.CONDITION_ANY_END)
    machine.create("b", overlap=QUEUE, upstream=job_pb2.Upstream(jobs=[after]))
    first = machine.trigger("a", unique=KEY).id
    second = machine.trigger("a").id
    assert phase_of(machine, second) == HELD

    way(machine, first)

    assert machine.run(first).HasField("end_time")
    assert phase_of(machine, second) == READY
    [step] = machine.live("b")
    assert step.upstream[0].run == first
    machine.check()


@pytest.mark.parametrize("way", WAYS[:-1], ids=lambda way: way.__name__)
def test_whatever_ends_a_run_lets_a_rest_begin(
    machine: Machine, way: Callable[[Machine, str], None]
) -> None:
    machine.create("a", after_end_ms=MINUTE_MS, delivery=ONCE, timeouts=TIMED)
    machine.advance(MINUTE_MS)
    machine.fire_all()
    [run] = machine.live("a")
    assert not machine.state("a").next_scheduled_at_ms

    way(machine, run.id)

    assert machine.state("a").next_scheduled_at_ms == machine.now_ms + MINUTE_MS
    machine.check()


def test_a_replaced_run_of_a_flow_is_heard_of_in_the_change_that_replaces_it(
    machine: Machine,
) -> None:
    """The end of one run begins another, which ends a third: nothing calls itself."""
    replace = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_REPLACE)
    machine.create("a", overlap=job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW))
    machine.create("b", after=["a"], overlap=replace)
    after = job_pb2.Dependency(job="b", condition=job_pb2.Dependency.CONDITION_ANY_END)
    machine.create("c", upstream=job_pb2.Upstream(jobs=[after]))
    for _ in range(2):
        machine.trigger("a")
    first, second = machine.grant("w1", 2)
    machine.succeed(first)
    [replaced] = machine.live("b")

    machine.succeed(second)

    assert machine.run(replaced.id).state == run_pb2.RUN_STATE_CANCELLED
    [heard] = machine.live("c")
    assert heard.upstream[0].run == replaced.id
    machine.check()


def phase_of(machine: Machine, run_id: str) -> int:
    place = keys.run_key(run_id)
    assert place is not None
    return machine.view().need(keys.run(*place), RunRecord).phase
