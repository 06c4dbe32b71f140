"""A report is recorded once and acknowledged each time; who is delivered once is leased once."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import job_pb2, namespace_pb2, run_pb2
from raftsched.statemachine.core.instants import duration

from .driver import MINUTE_MS, Machine

Attempt = run_pb2.Attempt
Unique = run_pb2.UniqueKey
ONCE = job_pb2.DELIVERY_AT_MOST_ONCE


@pytest.mark.parametrize("delay_ms", [None, 1_000])
def test_what_is_delivered_at_most_once_and_given_back_ends(
    machine: Machine, delay_ms: int | None
) -> None:
    machine.create("a", delivery=ONCE)
    run = machine.trigger("a").id
    [lease] = machine.grant()
    for _ in range(2):
        assert not machine.release(lease, delay_ms=delay_ms).reason
    machine.advance(MINUTE_MS)
    machine.fire_all()
    machine.check()

    assert machine.grant() == []
    shown = machine.run(run)
    assert (shown.state, shown.error.kind) == (run_pb2.RUN_STATE_FAILED, "given_back")
    assert [attempt.end for attempt in shown.attempts] == [Attempt.END_RELEASED]


@pytest.mark.parametrize("how", ["fail", "release"])
def test_the_end_of_a_run_that_was_to_be_cancelled_is_acknowledged_twice(
    machine: Machine, how: str
) -> None:
    machine.create("a")
    run = machine.trigger("a").id
    [lease] = machine.grant()
    machine.do(run_pb2.CancelRunRequest(run=run))
    for _ in range(2):
        assert not getattr(machine, how)(lease).reason
    machine.check()

    shown = machine.run(run)
    assert (shown.state, shown.error.kind) == (run_pb2.RUN_STATE_CANCELLED, "cancelled")
    assert [attempt.end for attempt in shown.attempts] == [Attempt.END_CANCELLED]


def test_a_report_that_comes_after_the_grace_of_a_cancel_is_not_recorded(machine: Machine) -> None:
    machine.create("a")
    run = machine.trigger("a").id
    [lease] = machine.grant()
    machine.do(run_pb2.CancelRunRequest(run=run))
    machine.advance(MINUTE_MS)
    machine.fire()

    assert machine.fail(lease).reason == "LEASE_LOST"


def test_an_attempt_that_the_timeout_of_its_run_ends_has_timed_out(machine: Machine) -> None:
    machine.create("a", timeouts=job_pb2.Timeouts(run=duration(MINUTE_MS)))
    run = machine.trigger("a").id
    machine.grant()
    machine.advance(MINUTE_MS)
    machine.fire()

    [attempt] = machine.run(run).attempts
    assert (attempt.end, attempt.error.kind) == (Attempt.END_TIMED_OUT, "timeout.run")


def test_the_same_business_key_gets_its_run_whatever_keeps_others_back(machine: Machine) -> None:
    namespace = namespace_pb2.Namespace(name="default", quota=namespace_pb2.Quota(live_runs=1))
    machine.create("a", cron="0 0 1 1 *")
    run = machine.trigger("a", unique=Unique(key="k")).id
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=namespace))
    machine.do(job_pb2.PauseJobRequest(job="a"))

    assert machine.trigger("a", unique=Unique(key="k")).id == run
    taken = Unique(key="k", policy=Unique.POLICY_REJECT)
    refusal = machine.refused(job_pb2.TriggerJobRequest(job="a", unique=taken))
    assert refusal.word == "UNIQUE_KEY_TAKEN"
    for unique in (Unique(key="k", policy=Unique.POLICY_REPLACE), Unique(key="other")):
        refusal = machine.refused(job_pb2.TriggerJobRequest(job="a", unique=unique))
        assert refusal.word == "JOB_PAUSED"
