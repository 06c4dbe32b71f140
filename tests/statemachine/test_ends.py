"""How one attempt ended, in a call of its own."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import common_pb2, job_pb2, run_pb2, worker_pb2
from raftsched.statemachine.core.instants import duration, to_ms

from .driver import SECOND_MS, Machine


def leased(machine: Machine, **spec: object) -> worker_pb2.Lease:
    machine.create("a", **spec)  # type: ignore[arg-type]
    machine.trigger("a")
    [lease] = machine.grant("w1")
    return lease


def test_a_success_is_recorded_once_and_acknowledged_twice(machine: Machine) -> None:
    lease = leased(machine)
    request = worker_pb2.CompleteRequest(
        run=lease.run, token=lease.token, result=common_pb2.Payload(data=b"42"), log_tail=b"log"
    )
    assert machine.do(request) == machine.do(request) == worker_pb2.CompleteResponse()
    run = machine.run(lease.run)
    assert (run.state, run.result.data) == (run_pb2.RUN_STATE_SUCCEEDED, b"42")


def test_a_failure_says_what_becomes_of_the_run(machine: Machine) -> None:
    retry = job_pb2.RetryPolicy(max_attempts=2)
    lease = leased(machine, retry=retry)
    failure = worker_pb2.Failure(
        error=run_pb2.RunError(kind="Broken"), retry_after=duration(7 * SECOND_MS)
    )
    request = worker_pb2.FailRequest(run=lease.run, token=lease.token, failure=failure)
    answer = machine.ask(request, worker_pb2.FailResponse)
    assert answer.state == run_pb2.RUN_STATE_RETRYING
    assert to_ms(answer.retry_time) == machine.now_ms + 7 * SECOND_MS
    machine.advance(7 * SECOND_MS)
    machine.fire()
    [second] = machine.grant("w1")
    request = worker_pb2.FailRequest(run=second.run, token=second.token, failure=failure)
    answer = machine.ask(request, worker_pb2.FailResponse)
    assert answer == worker_pb2.FailResponse(state=run_pb2.RUN_STATE_FAILED)


def test_a_run_that_is_tried_again_at_once_says_so(machine: Machine) -> None:
    lease = leased(machine)
    failure = worker_pb2.Failure(retry_after=duration(0))
    request = worker_pb2.FailRequest(run=lease.run, token=lease.token, failure=failure)
    answer = machine.ask(request, worker_pb2.FailResponse)
    assert answer.state == run_pb2.RUN_STATE_RETRYING
    assert to_ms(answer.retry_time) == machine.now_ms


def test_a_run_that_is_given_back_is_leased_again(machine: Machine) -> None:
    lease = leased(machine)
    given_back = worker_pb2.GivenBack(checkpoint=b"half")
    machine.do(worker_pb2.ReleaseRequest(run=lease.run, token=lease.token, given_back=given_back))
    [again] = machine.grant("w2")
    assert (again.run, again.attempt, again.checkpoint) == (lease.run, 1, b"half")


@pytest.mark.parametrize(
    "kind", [worker_pb2.CompleteRequest, worker_pb2.FailRequest, worker_pb2.ReleaseRequest]
)
def test_an_old_token_is_refused_with_all_values(machine: Machine, kind: type) -> None:
    lease = leased(machine)
    machine.lapse("w1")
    [second] = machine.grant("w2")
    refusal = machine.refused(kind(run=lease.run, token=lease.token))
    assert refusal.word == "LEASE_LOST"
    assert refusal.values["current_token"] == str(second.token)
    refusal = machine.refused(kind(run="nonsense", token=1))
    assert refusal.word == "RUN_NOT_FOUND"
