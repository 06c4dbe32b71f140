"""A decision says which workers are to stop what, beside what they report themselves."""

from __future__ import annotations

from raftsched.proto.v1 import job_pb2, run_pb2, worker_pb2
from raftsched.statemachine.core.instants import duration, to_ms
from raftsched.statemachine.core.store import MemoryStore

from .driver import SECOND_MS, START_MS, Machine

CANCEL = worker_pb2.Stop.KIND_CANCEL
LOST = worker_pb2.Stop.KIND_LOST


def leased(machine: Machine, **timeouts: int) -> worker_pb2.Lease:
    request = job_pb2.CreateJobRequest(job=job_pb2.Job(name="report"))
    request.job.spec.action.handler = "build"
    for name, ms in timeouts.items():
        getattr(request.job.spec.timeouts, name).CopyFrom(duration(ms))
    machine.do(request)
    machine.do(job_pb2.TriggerJobRequest(job="report"))
    [lease] = machine.grant("w1")
    return lease


def told(machine: Machine) -> list[tuple[str, str, int, int]]:
    return [(worker, stop.run, stop.token, stop.kind) for worker, stop in machine.stops]


def test_a_cancelled_run_is_told_with_the_end_of_its_grace() -> None:
    machine = Machine(MemoryStore())
    lease = leased(machine)

    request = run_pb2.CancelRunRequest(run=lease.run, reason="wrong day")
    request.grace.CopyFrom(duration(5 * SECOND_MS))
    machine.do(request)

    assert told(machine) == [("w1", lease.run, lease.token, CANCEL)]
    stop = machine.stops[0][1]
    assert stop.message == "wrong day"
    assert to_ms(stop.deadline) == START_MS + 5 * SECOND_MS

    machine.advance(5 * SECOND_MS)
    machine.fire()
    assert told(machine) == [("w1", lease.run, lease.token, LOST)]


def test_a_terminated_run_is_lost() -> None:
    machine = Machine(MemoryStore())
    lease = leased(machine)

    machine.do(run_pb2.TerminateRunRequest(run=lease.run))

    assert told(machine) == [("w1", lease.run, lease.token, LOST)]


def test_an_attempt_that_took_too_long_is_lost() -> None:
    machine = Machine(MemoryStore())
    lease = leased(machine, attempt=SECOND_MS)

    machine.advance(SECOND_MS)
    machine.fire()

    assert told(machine) == [("w1", lease.run, lease.token, LOST)]


def test_a_run_that_took_too_long_is_lost() -> None:
    machine = Machine(MemoryStore())
    lease = leased(machine, run=SECOND_MS)

    machine.advance(SECOND_MS)
    machine.fire()

    assert told(machine) == [("w1", lease.run, lease.token, LOST)]


def test_a_deleted_jobs_run_is_lost() -> None:
    machine = Machine(MemoryStore())
    lease = leased(machine)

    machine.do(job_pb2.DeleteJobRequest(job="report"))
    found = told(machine)
    machine.advance(1)
    while machine.fire_once() is not None:
        found += told(machine)

    assert found == [("w1", lease.run, lease.token, LOST)]


def test_what_a_worker_reports_or_only_asks_stops_nothing() -> None:
    machine = Machine(MemoryStore())
    lease = leased(machine)

    request = run_pb2.CancelRunRequest(run=lease.run, validate_only=True)
    machine.do(request)
    assert told(machine) == []

    machine.succeed(lease)
    assert told(machine) == []
