"""A change is bounded in bytes: what is left over is done in the next one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raftsched.proto.v1 import common_pb2, dead_letter_pb2, job_pb2, run_pb2, worker_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.instants import duration
from raftsched.statemachine.machine import Request, decide
from raftsched.statemachine.model import specs
from raftsched.statemachine.model.record import AttemptRecord, JobRecord, RunRecord, payload_of
from raftsched.statemachine.model.request import (
    FireTimers,
    Grant,
    Lapse,
    Note,
    Offer,
    Report,
    Resume,
    Resumed,
)

from .driver import HOUR_MS, MINUTE_MS, Machine, job_of

ALLOW = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
LARGE = common_pb2.Payload(data=b"x" * 65_536)
MOST = 400_000
# The largest record, and the small ones that go with it.
OVER = 150_000


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHANGE_BYTES", MOST)


def waiting(machine: Machine, count: int = 20, queue_ms: int = HOUR_MS) -> list[run_pb2.Run]:
    machine.create("a", overlap=ALLOW, timeouts=job_pb2.Timeouts(queue=duration(queue_ms)))
    return [machine.trigger("a", payload=LARGE) for _ in range(count)]


def leased(machine: Machine, count: int = 20) -> list[worker_pb2.Lease]:
    waiting(machine, count)
    found: list[worker_pb2.Lease] = []
    while len(found) < count:
        found += machine.grant("w1", count)
    return found


def full(machine: Machine, body: object) -> object:
    """Decide and apply a request, which must fill a change and not go far beyond; its reply."""
    size = len(machine.decide(body).change)
    assert MOST // 2 < size < MOST + OVER, size
    return machine.do(body)


def test_a_grant_ends_early(machine: Machine) -> None:
    waiting(machine)

    full(machine, Grant((Offer("w1", 100),), 100))

    assert machine.job("a").status.running == 7
    assert len(machine.grant("w1")) == 7


def test_a_report_is_taken_as_far_as_it_fits(machine: Machine) -> None:
    results = tuple(
        worker_pb2.Result(
            run=lease.run, token=lease.token, success=worker_pb2.Success(result=LARGE)
        )
        for lease in leased(machine)
    )

    acks = full(machine, Report("w1", results))

    assert isinstance(acks, list)
    assert [ack.token for ack in acks] == [result.token for result in results[: len(acks)]]
    assert 0 < len(acks) < 5
    assert machine.job("a").status.succeeded == len(acks)


def test_progress_is_taken_as_far_as_it_fits(machine: Machine) -> None:
    said = tuple(
        worker_pb2.ProgressReport(run=lease.run, token=lease.token, checkpoint=b"c" * 16_384)
        for lease in leased(machine)
    )

    acks = full(machine, Note("w1", said))

    assert isinstance(acks, list)
    assert 0 < len(acks) < 10


def test_a_lapse_goes_on_in_the_next_change(machine: Machine) -> None:
    leased(machine)

    full(machine, Lapse("w1", 1_000))
    assert machine.job("a").status.running > 0
    machine.lapse("w1")

    assert machine.job("a").status.running == 0


def test_a_hello_goes_on_in_the_next_change(machine: Machine) -> None:
    leased(machine)
    steps = 0
    rest: Resume | None = Resume("w1", {}, 1_000)

    while rest is not None:
        rest = machine.ask(rest, Resumed).rest
        steps += 1

    assert steps == 3
    assert machine.job("a").status.running == 0


def test_a_ring_goes_on_in_the_next_change(machine: Machine) -> None:
    waiting(machine, queue_ms=MINUTE_MS)
    machine.advance(MINUTE_MS)

    full(machine, FireTimers(1_000))
    assert machine.job("a").status.failed == 7
    machine.fire()

    assert machine.job("a").status.failed == 20


def test_dead_letters_are_requeued_in_parts(machine: Machine) -> None:
    waiting(machine, queue_ms=MINUTE_MS)
    machine.advance(MINUTE_MS)
    machine.fire()

    answer = full(machine, dead_letter_pb2.RequeueDeadLettersRequest())

    assert answer == dead_letter_pb2.RequeueDeadLettersResponse(requeued=7, more=True)


def test_the_runs_of_a_deleted_job_end_in_parts(machine: Machine) -> None:
    waiting(machine)
    machine.do(job_pb2.DeleteJobRequest(job="a"))

    full(machine, FireTimers(1_000, later=True))
    for _ in range(10):
        machine.advance(1)
        machine.fire()

    assert machine.refused(job_pb2.DeleteJobRequest(job="a")).word == "JOB_NOT_FOUND"
    machine.create("a")


def test_requests_behind_a_full_change_are_left_for_the_next(machine: Machine) -> None:
    requests = [
        Request(job_pb2.CreateJobRequest(job=job_of(f"j{n}", payload=LARGE))) for n in range(20)
    ]

    decision = decide(machine.view(), requests)

    assert len(decision.replies) == 7
    assert MOST < len(decision.change) < MOST + OVER
    with_id = [
        Request(job_pb2.CreateJobRequest(job=job_of(f"j{n}", payload=LARGE), request_id=f"r{n}"))
        for n in range(20)
    ]
    assert len(decide(machine.view(), with_id).replies) == 4


@pytest.mark.parametrize(
    ("fill", "size"),
    [
        (lambda run: setattr(run, "payload", LARGE), 65_536),
        (lambda run: setattr(run, "result", LARGE), 65_536),
        (lambda run: setattr(run, "log_tail", b"x" * 5_000), 5_000),
        (lambda run: setattr(run, "checkpoint", b"x" * 5_000), 5_000),
        (lambda run: setattr(run, "error", run_pb2.RunError(trace="x" * 5_000)), 5_000),
        (lambda run: setattr(run, "attempts", (
            AttemptRecord(error=run_pb2.RunError(message="x" * 4_000)),
            AttemptRecord(error=run_pb2.RunError(trace="x" * 3_000)), AttemptRecord(),
        )), 7_000),
    ],
)  # fmt: skip
def test_what_is_large_in_a_run_is_weighed(fill: Callable[[RunRecord], None], size: int) -> None:
    run = RunRecord()
    fill(run)

    assert size <= run.weight() < size + 500
    assert RunRecord().weight() < 500
    spec = job_of("a", payload=LARGE).spec
    assert (
        65_536
        <= JobRecord(template=specs.of(spec).template, payload=payload_of(spec)).weight()
        < 66_000
    )
