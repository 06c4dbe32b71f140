"""The driver drives: a life of a run in few lines, on each store."""

from __future__ import annotations

from raftsched.proto.v1 import job_pb2, run_pb2
from raftsched.statemachine.core.rejection import Reason
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model.request import FireTimers

from .driver import Machine, due_requests


def test_a_run_is_fired_leased_and_completed(machine: Machine) -> None:
    machine.create("report", cron="0 * * * *")
    machine.at("2026-01-01T01:00")
    machine.fire()

    [lease] = machine.grant("w1")
    ack = machine.succeed(lease, b"done")

    assert not ack.reason
    assert machine.run(lease.run).state == run_pb2.RUN_STATE_SUCCEEDED
    assert machine.job("report").status.succeeded == 1


def test_a_refusal_changes_nothing(machine: Machine) -> None:
    refusal = machine.refused(job_pb2.PauseJobRequest(job="nobody"))

    assert refusal.reason == Reason.ERROR_REASON_JOB_NOT_FOUND


def test_what_can_wait_is_a_request_of_its_own_as_a_leader_asks_it() -> None:
    """A change holds the work that could wait before it; what it begins itself goes in the next."""
    machine = Machine(MemoryStore())
    machine.create("gone")
    machine.create("hourly", cron="0 * * * *")
    machine.at("2026-01-01T01:00")
    assert due_requests(machine.store, machine.now_ms) == [FireTimers(1_000)]

    machine.do(job_pb2.DeleteJobRequest(job="gone"))
    both = [FireTimers(1_000), FireTimers(1_000, later=True)]
    assert due_requests(machine.store, machine.now_ms) == both
    machine.fire()

    assert due_requests(machine.store, machine.now_ms) == []
    assert machine.fire_once() is None
    assert len(machine.live("hourly")) == 1
    machine.check()
