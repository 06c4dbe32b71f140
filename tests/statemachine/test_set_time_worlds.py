"""Harsh worlds around setting the time back: no time runs twice, and every audit is sound."""

from __future__ import annotations

import random

import pytest

from raftsched.proto.v1 import job_pb2, namespace_pb2, schedule_pb2
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.machine import read_meta

from ..sampled import some
from .driver import HOUR_MS, MINUTE_MS, Machine
from .test_audit import audit
from .test_set_time import ahead, note, set_back

Misfire = job_pb2.MisfirePolicy
Edit = schedule_pb2.OccurrenceEdit
CRONS = ("* * * * *", "*/7 * * * *", "*/15 * * * *", "0 * * * *")
JOBS = 4  # As many as `note` looks at.


def world(machine: Machine, chance: random.Random) -> None:
    """Outages, clocks that are ahead, and people who do what can be done to a job."""
    slow = namespace_pb2.Namespace(name="default", backlog_rate=chance.choice([1, 50]))
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=slow))
    for number in range(JOBS):
        machine.do(job_pb2.CreateJobRequest(job=_job(chance, f"j{number}")))
    seen: dict[tuple[str, int | str], str] = {}
    for _ in range(6):
        for _ in range(chance.randrange(6)):
            machine.advance(chance.randrange(20) * MINUTE_MS + chance.randrange(MINUTE_MS))
            _act(machine, chance)
            note(machine, seen)
        if chance.random() < 0.7:
            ahead(machine, chance.randrange(1, 120) * MINUTE_MS + chance.randrange(MINUTE_MS))
            if chance.random() < 0.5:
                _act(machine, chance)
            note(machine, seen)
            if chance.random() < 0.7 and read_meta(machine.store).now_ms > machine.now_ms + 1_000:
                set_back(machine)
        machine.check()
    for _ in range(4):
        machine.advance(HOUR_MS)
        machine.fire()
        note(machine, seen)
        machine.check()
    for number in range(JOBS):
        answer = audit(machine, f"j{number}")
        assert not answer.wrong, (f"j{number}", answer)


def _job(chance: random.Random, name: str) -> job_pb2.Job:
    job = job_pb2.Job(name=name)
    spec = job.spec
    spec.action.handler = "work"
    _reschedule(chance, spec)
    spec.overlap.rule = job_pb2.OverlapPolicy.RULE_ALLOW
    spec.misfire.rule = chance.choice(
        [Misfire.RULE_LATEST, Misfire.RULE_ALL, Misfire.RULE_SKIP, Misfire.RULE_EARLIEST]
    )
    if chance.random() < 0.5:
        spec.misfire.grace.CopyFrom(duration(chance.choice([1, 10, 30]) * MINUTE_MS))
    return job


def _reschedule(chance: random.Random, spec: job_pb2.JobSpec) -> None:
    del spec.schedules[:]
    if chance.random() < 0.2:
        every = duration(chance.choice([3, 11]) * MINUTE_MS)
        spec.schedules.add().interval.every.CopyFrom(every)
    else:
        spec.schedules.add().cron.expression = chance.choice(CRONS)


def _act(machine: Machine, chance: random.Random) -> None:
    """What somebody does to a job; he may be refused."""
    name = f"j{chance.randrange(JOBS)}"
    body: object = None
    kind = chance.randrange(10)
    now_ms = read_meta(machine.store).now_ms
    if kind == 0:
        body = job_pb2.PauseJobRequest(job=name)
    elif kind in (1, 2):
        body = job_pb2.ResumeJobRequest(job=name)
    elif kind in (3, 4):
        job = machine.job(name)
        if kind == 3:
            _reschedule(chance, job.spec)
        else:
            job.spec.timing.jitter.FromMilliseconds(chance.randrange(1, 30_000))
        body = job_pb2.UpdateJobRequest(job=job)
    elif kind == 5:
        body = job_pb2.DropBacklogRequest(job=name)
    elif kind == 6:
        first = now_ms - chance.randrange(10, 120) * MINUTE_MS
        body = job_pb2.BackfillJobRequest(
            job=name, from_time=timestamp(first), to_time=timestamp(now_ms), runs_per_minute=600
        )
    elif kind in (7, 8):
        body = _edit(machine, chance, name, now_ms)
    if body is not None:
        machine.do_all(body)
    machine.fire()


def _edit(machine: Machine, chance: random.Random, name: str, now_ms: int) -> object:
    edits = machine.state(name).edits
    if edits and chance.random() < 0.3:
        at = timestamp(chance.choice(edits).scheduled_at_ms)
        return job_pb2.RevertOccurrenceRequest(job=name, scheduled_time=at)
    next_ms = machine.state(name).next_scheduled_at_ms or now_ms
    kind = chance.choice([Edit.KIND_SKIP, Edit.KIND_MOVE, Edit.KIND_ADD])
    at_ms = next_ms + (kind == Edit.KIND_ADD and chance.randrange(1, HOUR_MS))
    edit = Edit(kind=kind, scheduled_time=timestamp(at_ms))
    if kind == Edit.KIND_MOVE:
        edit.moved_to.CopyFrom(timestamp(now_ms + chance.randrange(1, 2 * HOUR_MS)))
    return job_pb2.EditOccurrenceRequest(job=name, edit=edit)


@pytest.mark.parametrize("seed", [*some(range(12), 4), 79, 206, 1998, 2129, 2312])
def test_a_harsh_world_ends_well(machine: Machine, seed: int) -> None:
    world(machine, random.Random(seed))
