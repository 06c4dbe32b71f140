"""The driver drives: a life of a run in few lines, on each store."""

from __future__ import annotations

from raftsched.proto.v1 import job_pb2, run_pb2
from raftsched.statemachine.core.rejection import Reason

from .driver import Machine


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
