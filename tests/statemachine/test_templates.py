"""Jobs that are made together share what their template says, and nothing else."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import common_pb2, job_pb2, schedule_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.instants import duration
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.machine import Request, apply, decide
from raftsched.statemachine.model.record import StateRecord, encode
from raftsched.statemachine.model.view import View

from ..rows import each
from .driver import START_MS, Machine, job_of

NAMES = ("a", "b", "c", "d")
OTHER = common_pb2.Payload(data=b"other")


def made(*changes: list[job_pb2.Job]) -> list[bytes]:
    """The states of jobs that were imported in these changes, all at one instant."""
    machine = Machine(MemoryStore())
    for index, jobs in enumerate(changes, 1):
        view = View(machine.store, START_MS)
        decision = decide(view, [Request(job_pb2.ImportJobsRequest(jobs=jobs))])
        apply(machine.store, index, decision.change)
    states: list[StateRecord] = [machine.state(name) for name in NAMES]
    return [encode(state) for state in states]


@each(
    "schedules",
    [
        {"cron": "0 * * * *"},
        {"cron": "H H * * *"},
        {"once": START_MS + 60_000},
        {"every_ms": 90_000},
        {"after_end_ms": 1_000},
        {"cron": "0 * * * *", "timing": schedule_pb2.Timing(jitter=duration(3_600_000))},
    ],
)
def test_jobs_made_together_stand_as_jobs_made_one_by_one(schedules: dict[str, object]) -> None:
    jobs = [job_of(name, **schedules) for name in NAMES]  # type: ignore[arg-type]

    assert made(jobs) == made(*[[job] for job in jobs])


def test_what_is_a_job_s_own_is_not_shared() -> None:
    jitter = schedule_pb2.Timing(jitter=duration(3_600_000))
    for own in ({"cron": "H H * * *"}, {"cron": "0 * * * *", "timing": jitter}):
        jobs = [job_of(name, **own) for name in NAMES]

        assert len(set(made(jobs))) == len(NAMES)


@pytest.mark.parametrize(
    "payload",
    [None, common_pb2.Payload(), common_pb2.Payload(data=b"x" * 200, content_type="text/plain")],
)
def test_what_was_ordered_is_handed_on_whole(
    machine: Machine, payload: common_pb2.Payload | None
) -> None:
    wanted = job_of(
        "a", once=START_MS + 1, payload=payload, labels={"team": "mail", "a": "b"}, owner="ops",
        description="what it does",
    )  # fmt: skip
    machine.do(job_pb2.CreateJobRequest(job=wanted))
    machine.do(job_pb2.CreateJobRequest(job=job_of("b", once=START_MS + 1, payload=OTHER)))
    assert machine.job("a").spec == wanted.spec
    machine.advance(1)
    machine.fire()

    lease = next(lease for lease in machine.grant("w", 2) if lease.job == "a")

    assert lease.HasField("payload") == (payload is not None)
    assert lease.payload == (payload or common_pb2.Payload())
    assert lease.action == wanted.spec.action


def test_a_job_that_gets_another_payload_leaves_the_others_theirs(machine: Machine) -> None:
    for name in NAMES:
        machine.create(name, every_ms=90_000, payload=OTHER)
    job = job_of("b", every_ms=90_000, payload=common_pb2.Payload(data=b"new"))

    machine.do(job_pb2.UpdateJobRequest(job=job))

    found = {name: machine.job(name).spec.payload.data for name in NAMES}
    assert found == {"a": b"other", "b": b"new", "c": b"other", "d": b"other"}


def test_a_form_that_is_too_long_to_be_kept_is_a_form_all_the_same(machine: Machine) -> None:
    labels = {f"label-{number}": "x" * 200 for number in range(32)}
    for name in NAMES:
        machine.create(name, every_ms=90_000, labels=labels)

    assert machine.job("c").spec.labels == labels
    machine.advance(90_000)
    machine.fire()
    assert len(machine.grant("w", 9)) == len(NAMES)


def test_what_is_a_job_s_own_is_asked_of_each(machine: Machine) -> None:
    large = common_pb2.Payload(data=b"x" * (limits.PAYLOAD_BYTES + 1))
    jobs = [
        job_of("a", once=START_MS + 1), job_of("A", once=START_MS + 1),
        job_of("b", once=START_MS + 1, payload=large), job_of("a", once=START_MS + 1),
        job_of("c", once=START_MS + 1),
        job_of("d", once=START_MS + 1, owner="x" * (limits.OWNER_CHARS + 1)),
    ]  # fmt: skip

    answer = machine.ask(job_pb2.ImportJobsRequest(jobs=jobs), job_pb2.ImportJobsResponse)

    assert [result.reason for result in answer.results] == [
        "", "FIELD_INVALID", "PAYLOAD_TOO_LARGE", "JOB_EXISTS", "", "LIMIT_EXCEEDED",
    ]  # fmt: skip
    assert [result.verdict for result in answer.results] == [1, 4, 4, 4, 1, 4]
