"""Jobs that are made together share what their form says, and nothing else."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import job_pb2, schedule_pb2
from raftsched.statemachine.instants import duration
from raftsched.statemachine.machine import Request, apply, decide
from raftsched.statemachine.record import StateRecord, encode
from raftsched.statemachine.store import MemoryStore
from raftsched.statemachine.view import View

from .driver import START_MS, Machine, job_of

NAMES = ("a", "b", "c", "d")


def made(*changes: list[job_pb2.Job]) -> list[bytes]:
    """The states of jobs that were imported in these changes, all at one instant."""
    machine = Machine(MemoryStore())
    for index, jobs in enumerate(changes, 1):
        view = View(machine.store, START_MS)
        decision = decide(view, [Request(job_pb2.ImportJobsRequest(jobs=jobs))])
        apply(machine.store, index, decision.change)
    states: list[StateRecord] = [machine.state(name) for name in NAMES]
    return [encode(state) for state in states]


@pytest.mark.parametrize(
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
