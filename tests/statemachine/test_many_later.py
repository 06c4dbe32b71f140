"""Runs that were triggered for later, of which there may be very many, are not walked over to see
what is held back now."""

from __future__ import annotations

from random import Random

import pytest

from raftsched.proto.v1 import job_pb2, schedule_pb2
from raftsched.statemachine.calls import jobs
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model import keys, phases
from raftsched.statemachine.model.entities import Job
from raftsched.statemachine.model.record import RunRecord
from raftsched.statemachine.model.view import View
from raftsched.statemachine.runs import runs

from ..sampled import some
from .driver import MINUTE_MS, SECOND_MS, Machine

Edit = schedule_pb2.OccurrenceEdit
Overlap = job_pb2.OverlapPolicy
NAMES = ("a", "b", "step")


class Story:
    """Jobs that queue, with runs for later, times that were moved to before, and a flow."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.machine = Machine(MemoryStore())
        for name in NAMES:
            queue = Overlap(rule=Overlap.RULE_QUEUE, limit=self.random.choice((1, 2, 3)))
            waits = {"after": ["a"]} if name == "step" else {"cron": "*/5 * * * *"}
            self.machine.create(name, overlap=queue, **waits)

    def act(self) -> None:
        self.random.choice(
            (self.later, self.later, self.move, self.trigger, self.work, self.wait)
        )()
        self.machine.fire_all()

    def later(self) -> None:
        due = timestamp(self.machine.now_ms + self.random.randrange(1, 900) * SECOND_MS)
        self.machine.do_all(job_pb2.TriggerJobRequest(job=self.name(), due_time=due))

    def trigger(self) -> None:
        self.machine.do_all(job_pb2.TriggerJobRequest(job=self.name()))

    def move(self) -> None:
        at_ms = (self.machine.now_ms // (5 * MINUTE_MS) + self.random.randrange(1, 9)) * 5
        wanted = Edit(kind=Edit.KIND_MOVE, scheduled_time=timestamp(at_ms * MINUTE_MS))
        wanted.moved_to.CopyFrom(timestamp(self.machine.now_ms + SECOND_MS))
        name = self.random.choice(("a", "b"))
        self.machine.do_all(job_pb2.EditOccurrenceRequest(job=name, edit=wanted))
        self.machine.advance(SECOND_MS)

    def work(self) -> None:
        for lease in self.machine.grant("w1", self.random.choice((1, 5))):
            self.machine.succeed(lease)

    def wait(self) -> None:
        self.machine.advance(self.random.choice((SECOND_MS, MINUTE_MS, 7 * MINUTE_MS)))

    def name(self) -> str:
        return self.random.choice(NAMES)


def held_back(view: View, jid: int) -> list[int]:
    """All that are held back now, by a walk over all there are."""
    found = []
    for key in view.scan(keys.run(jid, 0), keys.run(jid, keys.OCCURRENCE_MAX)):
        run = view.need(key, RunRecord)
        if run.phase in phases.WAITING and run.due_at_ms <= view.now_ms:
            found.append(keys.run_of(key)[1])
    return found


@pytest.mark.parametrize("seed", some(range(30), 10))
def test_what_is_held_back_is_what_a_walk_finds(seed: int) -> None:
    story = Story(seed)
    for _ in range(60):
        story.act()
        for name in NAMES:
            view = story.machine.view()
            job = jobs.find(view, "", name)
            wanted = held_back(view, job.jid)
            some = [at for at in runs.not_for_later(view, job) if at in wanted]
            assert some == wanted, f"seed {seed}"
            assert job.state.held - job.state.later == len(wanted), f"seed {seed}"
    story.machine.check()


def test_a_thousand_for_later_cost_a_trigger_and_an_end_nothing(machine: Machine) -> None:
    queue = Overlap(rule=Overlap.RULE_QUEUE, limit=1)
    machine.create("a", overlap=queue)
    for number in range(1_000):
        due = timestamp(machine.now_ms + MINUTE_MS + number)
        machine.do_all(job_pb2.TriggerJobRequest(job="a", due_time=due))
    machine.trigger("a")
    held = machine.trigger("a")
    [lease] = machine.grant()

    looked = machine.view()
    found = list(runs.not_for_later(looked, jobs.find(looked, "", "a")))
    machine.succeed(lease)

    assert len(found) == 2
    assert [lease.run for lease in machine.grant()] == [held.id]


@pytest.mark.parametrize("behind", [0, 2])
def test_those_that_are_too_late_are_looked_at_a_few_at_a_time(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, behind: int
) -> None:
    """Each end of one walked over all the others."""
    machine.create(
        "a", overlap=Overlap(rule=Overlap.RULE_QUEUE, limit=1_000),
        misfire=job_pb2.MisfirePolicy(start_deadline=duration(MINUTE_MS)),
    )  # fmt: skip
    machine.trigger("a")
    [lease] = machine.grant()
    for _ in range(60):
        machine.trigger("a")
    machine.advance(2 * MINUTE_MS)
    in_time = [machine.trigger("a") for _ in range(behind)]
    looked: list[int] = []
    genuine = runs._release

    def release(view: View, job: Job, occurrence: int) -> bool:
        looked.append(occurrence)
        return genuine(view, job, occurrence)

    monkeypatch.setattr(runs, "_release", release)
    monkeypatch.setattr(limits, "STEP", 3)

    machine.succeed(lease)
    machine.fire_all()

    # Each decision is made twice.
    assert len(looked) <= 2 * 62 * 3
    assert [lease.run for lease in machine.grant()] == [run.id for run in in_time[:1]]
    assert machine.state("a").held == max(0, behind - 1)
    machine.check()
