"""What is passed over is a stretch, however many of its times have an outcome of their own: that
comes to the same as to decide on each time alone."""

from __future__ import annotations

from random import Random

import pytest

from raftsched.proto.v1 import job_pb2, run_pb2, schedule_pb2
from raftsched.statemachine.calls import jobs
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.firing import catch_up, scheduled_time
from raftsched.statemachine.model.entities import Job
from raftsched.statemachine.model.view import View
from raftsched.statemachine.occurrences import ledger, next_time, timeline
from raftsched.statemachine.occurrences.timeline import Stretch
from raftsched.statemachine.reads import reads
from raftsched.statemachine.schedule.plan import Plan, names, scheduled_times

from ..rows import each
from ..sampled import some
from .driver import MINUTE_MS, Machine

Edit = schedule_pb2.OccurrenceEdit
ALLOW = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
CRONS = ("* * * * *", "*/3 * * * *", ["*/2 * * * *", "*/5 * * * *"])
MISSED = run_pb2.OUTCOME_MISSED
AHEAD = 60  # Minutes.


class World:
    """A job some of whose times were moved to before their time, or will be, or are left out."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.machine = Machine(MemoryStore())
        max_runs = self.random.choice((0, 30))
        timing = schedule_pb2.Timing(max_runs=max_runs)
        cron = self.random.choice(CRONS)
        self.machine.create("a", cron=cron, overlap=ALLOW, timing=timing)
        for _ in range(self.random.randrange(3)):
            for _ in range(self.random.choice((1, 10, 40))):
                self.edit(self.machine.now_ms + 500)
            self.machine.advance(1_000)
            self.machine.fire_all()
        for _ in range(self.random.randrange(5)):
            self.edit(self.machine.now_ms + 90 * MINUTE_MS)
        self.now_ms = self.machine.now_ms + AHEAD * MINUTE_MS

    def edit(self, to_ms: int) -> None:
        """Refused where no schedule names the instant, or one names what is to be added."""
        at_ms = (self.machine.now_ms // MINUTE_MS + self.random.randrange(1, AHEAD)) * MINUTE_MS
        kind = self.random.choice((Edit.KIND_MOVE, Edit.KIND_MOVE, Edit.KIND_SKIP, Edit.KIND_ADD))
        wanted = Edit(kind=kind, scheduled_time=timestamp(at_ms))
        if kind == Edit.KIND_MOVE:
            wanted.moved_to.CopyFrom(timestamp(to_ms))
        if kind == Edit.KIND_ADD:
            wanted.scheduled_time.CopyFrom(timestamp(self.machine.now_ms + 400))
        self.machine.do_all(job_pb2.EditOccurrenceRequest(job="a", edit=wanted))

    def fresh(self) -> tuple[View, Job, Plan]:
        view = View(self.machine.store, self.now_ms)
        job = jobs.find(view, "", "a")
        return view, job, next_time.plan_of(view, job)


def each_alone(view: View, job: Job, plan: Plan, first: int, last: int) -> None:
    edits = {edit.scheduled_at_ms: edit for edit in job.state.edits}
    times = scheduled_times(plan, first + 1, last + 1, 10_000).times
    for at_ms in (first, *times):
        if ledger.knows(view, job.jid, at_ms):
            continue
        edit = edits.get(at_ms)
        if edit is None:
            ledger.record(view, job, at_ms, MISSED)
        elif edit.kind == Edit.KIND_SKIP:
            scheduled_time.drop_edit(view, job, edit)
            ledger.record(view, job, at_ms, run_pb2.OUTCOME_SKIPPED_MANUALLY)


def said(view: View, job: Job, times: list[int]) -> object:
    state, found = job.state, [ledger.covering(view, job.jid, at_ms) for at_ms in times]
    told = [None if one is None else one[1].outcome for one in found]
    return told, state.fired, state.skipped, state.last_scheduled_at_ms, state.edits


@pytest.mark.parametrize("seed", some(range(150), 50))
def test_it_comes_to_the_same_as_to_decide_on_each_alone(seed: int) -> None:
    world = World(seed)
    view, job, plan = world.fresh()
    state, template = job.state, job.definition.template
    first = state.next_scheduled_at_ms
    if not first:
        return
    last = max(first, *scheduled_times(plan, first, world.now_ms + 1, 10_000).times)
    if template.max_runs:
        last = one_by_one(view, job, plan, first, last)
        if not last:
            return
    pending = {edit.scheduled_at_ms for edit in state.edits if edit.kind != Edit.KIND_SKIP}
    times = [at for at in scheduled_times(plan, first, last + 1, 10_000).times if at not in pending]

    catch_up.give_up(view, job)

    wanted_view, wanted, plan = world.fresh()
    each_alone(wanted_view, wanted, plan, first, last)
    assert said(view, job, times) == said(wanted_view, wanted, times), f"seed {seed}"


def added(job: Job, plan: Plan) -> list[Stretch]:
    """What was added and is due: here all of it comes before the times of the schedules."""
    ours = (edit for edit in job.state.edits if edit.kind == Edit.KIND_ADD)
    at = ((edit, edit.scheduled_at_ms) for edit in ours if not names(plan, edit.scheduled_at_ms))
    return [Stretch(at_ms, at_ms, 1, at_ms, edit=edit) for edit, at_ms in at]


def one_by_one(view: View, job: Job, plan: Plan, first: int, last: int) -> int:
    """0: what was added has all places."""
    left, before = next_time.runs_left(job, first), len(added(job, plan))
    if before and left <= before:
        return 0
    left = max(1, left - before)
    end = first
    for count, at_ms in enumerate((first, *scheduled_times(plan, first + 1, last + 1, left).times)):
        if count < left:
            end = at_ms
    for at_ms in ledger.own_entries(view, job, first, last):
        if at_ms <= end and names(plan, at_ms):
            end = next(iter(scheduled_times(plan, end + 1, last + 1, 1).times), last)
    return end


@each("seed", range(60))
def test_the_last_of_the_most_runs_is_that_of_a_walk(seed: int) -> None:
    world = World(seed)
    view, job, plan = world.fresh()
    state, template = job.state, job.definition.template
    first = state.next_scheduled_at_ms
    if not first or not template.max_runs:
        return
    last = scheduled_times(plan, first, world.now_ms, 10_000).times[-1]

    found = timeline.last_of_most(view, job, plan, first, last, added(job, plan))

    assert found == one_by_one(view, job, plan, first, last), f"seed {seed}"


def test_an_audit_is_sound_where_a_stretch_has_outcomes_of_others_in_it(machine: Machine) -> None:
    machine.create("a", cron="* * * * *", overlap=ALLOW)
    now_ms = machine.now_ms
    for minute, kind in ((10, Edit.KIND_MOVE), (11, Edit.KIND_MOVE), (20, Edit.KIND_MOVE)):
        wanted = Edit(kind=kind, scheduled_time=timestamp(now_ms + minute * MINUTE_MS))
        wanted.moved_to.CopyFrom(timestamp(now_ms + 1_000))
        machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=wanted))
    machine.advance(2_000)
    machine.fire_all()
    machine.do(job_pb2.PauseJobRequest(job="a"))
    machine.advance(AHEAD * MINUTE_MS)
    machine.do(job_pb2.ResumeJobRequest(job="a"))
    machine.fire_all()

    counts = {at: entry.count for at, entry in machine.ledger("a").items() if entry.last_at_ms}
    assert list(counts.values()) == [AHEAD - 1 - 3]
    assert audit(machine).sound
    machine.check()


def test_what_somebody_added_is_in_no_count_of_a_stretch(machine: Machine) -> None:
    """It comes at its time, while those of the schedule wait for their jitter."""
    timing = schedule_pb2.Timing(jitter=duration(30 * MINUTE_MS))
    machine.create("a", cron="* * * * *", overlap=ALLOW, timing=timing)
    assert machine.state("a").next_due_at_ms > machine.now_ms + 3 * MINUTE_MS
    added = Edit(kind=Edit.KIND_ADD, scheduled_time=timestamp(machine.now_ms + 90_000))
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=added))
    machine.advance(2 * MINUTE_MS)
    machine.fire_all()
    assert machine.state("a").fired == 1
    machine.do(job_pb2.PauseJobRequest(job="a"))
    machine.advance(AHEAD * MINUTE_MS)
    machine.do(job_pb2.ResumeJobRequest(job="a"))
    machine.fire_all()

    assert sum(bool(entry.last_at_ms) for entry in machine.ledger("a").values()) == 1
    assert audit(machine).sound
    machine.check()


def audit(machine: Machine) -> job_pb2.AuditJobResponse:
    answer = reads.read(machine.view(), job_pb2.AuditJobRequest(job="a"))
    assert isinstance(answer, job_pb2.AuditJobResponse), answer
    return answer


def test_thousands_of_them_cost_a_few_steps_each(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(MemoryStore())
    monkeypatch.setattr(limits, "EDITS", 1_000)
    machine.create("a", cron="* * * * *", overlap=ALLOW)
    for minute in range(10, 810, 2):
        wanted = Edit(
            kind=Edit.KIND_MOVE,
            scheduled_time=timestamp(machine.now_ms + minute * MINUTE_MS),
            moved_to=timestamp(machine.now_ms + 1_000),
        )
        machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=wanted))
    machine.advance(2_000)
    machine.fire_all()
    machine.do(job_pb2.PauseJobRequest(job="a"))
    machine.advance(1_000 * MINUTE_MS)
    machine.do(job_pb2.ResumeJobRequest(job="a"))
    before = len(machine.ledger("a"))

    machine.fire_all()

    # A stretch, and the run that catches up.
    assert len(machine.ledger("a")) == before + 2
