"""How the last runs of many jobs ended, and what waits: for lists and figures."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import common_pb2, job_pb2, run_pb2
from raftsched.statemachine.core.rejection import Reason
from raftsched.statemachine.reads import outcomes
from raftsched.statemachine.reads.waiting import waiting

from .asking import ask, refuse
from .driver import MINUTE_MS, Machine
from .world import ALLOW

Request, Answer = job_pb2.GetOutcomesRequest, job_pb2.GetOutcomesResponse
SUCCEEDED, FAILED = run_pb2.RUN_STATE_SUCCEEDED, run_pb2.RUN_STATE_FAILED


def play(machine: Machine, minutes: int, data: bytes = b"") -> None:
    """Every third run fails; each takes a second."""
    for number in range(minutes):
        machine.advance(MINUTE_MS)
        machine.fire()
        leases = machine.grant("w1")
        machine.advance(1_000)
        for lease in leases:
            if number % 3:
                machine.succeed(lease, data)
            else:
                machine.fail(lease)


def test_the_last_runs_are_shown_in_the_order_of_the_request(machine: Machine) -> None:
    machine.create("a", cron="* * * * *", retry=job_pb2.RetryPolicy(max_attempts=1))
    machine.create("b", cron="0 0 1 1 *")
    play(machine, 25)

    answer = ask(machine, Request(jobs=["b", "none", "a", "b"]), Answer)

    assert [one.job for one in answer.jobs] == ["b", "a"]
    assert not answer.jobs[0].runs
    found = answer.jobs[1].runs
    assert [one.run for one in found] == [run.id for run in machine.ended("a")[:20]]
    assert [one.state for one in found[:3]] == [FAILED, SUCCEEDED, SUCCEEDED]
    assert all(one.duration.ToMilliseconds() == 1_000 for one in found)
    assert not answer.partial
    assert len(ask(machine, Request(jobs=["a"], count=3), Answer).jobs[0].runs) == 3


def test_a_run_that_warns_is_told_from_one_that_does_not(machine: Machine) -> None:
    machine.create("a", cron="* * * * *")
    for text in ("", "half of it was empty", ""):
        machine.advance(MINUTE_MS)
        machine.fire()
        for lease in machine.grant("w1"):
            machine.succeed(lease, warning=text)

    [found] = ask(machine, Request(jobs=["a"]), Answer).jobs

    assert [one.warned for one in found.runs] == [False, True, False]


def test_what_one_call_reads_is_bounded(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.create("a", cron="* * * * *")
    play(machine, 5, b"x" * 1_000)
    monkeypatch.setattr(outcomes, "BYTES_MAX", 2_500)

    answer = ask(machine, Request(jobs=["a"]), Answer)

    assert answer.partial
    assert 0 < len(answer.jobs[0].runs) < 5
    for wrong, reason in (
        (Request(), Reason.ERROR_REASON_FIELD_REQUIRED),
        (Request(jobs=["a"], count=21), Reason.ERROR_REASON_FIELD_INVALID),
        (Request(jobs=[f"j{at}" for at in range(101)]), Reason.ERROR_REASON_LIMIT_EXCEEDED),
        (Request(jobs=["a"], namespace="none"), Reason.ERROR_REASON_NAMESPACE_NOT_FOUND),
    ):
        assert refuse(machine, wrong) == reason


def test_what_waits_is_told_by_priority(machine: Machine) -> None:
    high, low = common_pb2.PRIORITY_HIGH, common_pb2.PRIORITY_LOW
    machine.create("a", cron="0 0 1 1 *", overlap=ALLOW)
    machine.create("b", cron="0 0 1 1 *", overlap=ALLOW, priority=high)
    machine.create("c", cron="0 0 1 1 *", overlap=ALLOW, priority=low)
    assert waiting(machine.store, 10).oldest_ms == 0
    began_ms = machine.now_ms
    for name, count in (("c", 1), ("b", 2), ("a", 3)):
        for _ in range(count):
            machine.trigger(name)
        machine.advance(MINUTE_MS)
    found = waiting(machine.store, 10)
    assert found.ready == {high: 2, common_pb2.PRIORITY_MEDIUM: 3, low: 1}
    assert found.oldest_ms == began_ms
    assert sum(waiting(machine.store, 1).ready.values()) < 6
    machine.grant("w1")
    assert not waiting(machine.store, 10).ready
