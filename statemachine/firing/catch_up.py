"""Times that are due, late or several at once, get their outcome: what `misfire.choose` says of the
`timeline` is carried out.

What runs now is left to whoever fires; what is to wait goes into the backlog; all others are
recorded, as stretches between those that have an outcome of their own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from ...proto.v1 import run_pb2
from ..model.entities import Job
from ..model.record import BacklogRecord
from ..model.view import View
from ..occurrences import ledger, misfire, next_time, timeline
from ..occurrences.misfire import Fate, Fated
from ..occurrences.timeline import Stretch
from ..runs import overlap
from ..schedule.plan import Plan, due
from ..tenants import namespaces, quota
from . import backlog, scheduled_time

OUTCOME = {
    Fate.COALESCE: run_pb2.OUTCOME_COALESCED,
    Fate.MISS: run_pb2.OUTCOME_MISSED,
    Fate.EXCLUDE: run_pb2.OUTCOME_SKIPPED_CALENDAR,
    Fate.SKIP: run_pb2.OUTCOME_SKIPPED_MANUALLY,
    Fate.EXPIRE: run_pb2.OUTCOME_SKIPPED_DEADLINE,
}


def decide(view: View, job: Job) -> bool:
    """Decide on all that is due but what runs now; whether the job's next time is another by that.
    The caller reschedules."""
    state = job.state
    definition = job.definition
    plan = next_time.plan_of(view, job)
    until_ms = view.now_ms - due(plan, 0)
    due_now, last = timeline.undecided(view, job, plan, until_ms)
    spec = definition.template.spec
    room = overlap.room(job)
    # What is to stand for those that were missed must not be skipped.
    most = namespaces.live_runs(view, definition.namespace)
    is_full = most > 0 and quota.used(namespaces.usage_of(view, job.jid)) >= most
    is_behind = state.backlog != () and comes_behind(view, job)
    limits_ms = definition.template.grace_ms, definition.template.start_deadline_ms
    chosen = misfire.choose(
        spec.misfire, due_now, plan, view.now_ms, *limits_ms, room, is_full=is_full,
        is_behind=is_behind,
    )  # fmt: skip
    before = state.next_scheduled_at_ms
    if last:
        _carry_out(view, job, plan, chosen, last)
    for one, fate in chosen:
        if one.edit is not None and one.kind is timeline.OPEN and fate is not Fate.RUN:
            _edited(view, job, plan, one, fate)
    if plan.rests and last and _waits_for_edits(chosen):
        # The rest counts from the end of what waits now.
        next_time.advance(view, job, last)
    if state.edits and definition.template.max_runs:
        _drop_without_place(view, job, {one.first for one in due_now if one.edit is not None})
    return state.next_scheduled_at_ms != before


def _waits_for_edits(chosen: list[Fated]) -> bool:
    """Whether what was moved or added waits, and no time of the schedules runs now."""
    runs = any(fate is Fate.RUN and one.edit is None for one, fate in chosen)
    return not runs and any(fate is Fate.WAIT and one.edit is not None for one, fate in chosen)


def comes_behind(view: View, job: Job) -> bool:
    """Whether what is due now has to wait for what was missed before it and may run now, so that no
    older run takes the place of a newer one."""
    if not overlap.keeps_order(job.definition):
        return False
    first = job.state.backlog[0]
    if first.cause != scheduled_time.SCHEDULED or first.release_at_ms > view.now_ms:
        return False
    if quota.is_full(view, namespaces.usage_of(view, job.jid), job.definition.namespace):
        return False
    return overlap.judge(view, job) not in scheduled_time.NO_ROOM


def _drop_without_place(view: View, job: Job, kept: set[int]) -> None:
    """What was moved or added and is due finds all places within max_runs taken: were it fired, a
    time of the schedules that was decided on would lose its own."""
    for edit in job.state.edits:
        is_due = 0 < next_time.edit_due(edit) <= view.now_ms
        if is_due and edit.scheduled_at_ms not in kept:
            scheduled_time.drop_edit(view, job, edit)


def give_up(view: View, job: Job) -> int:
    """What came under schedules that are about to go, and is not decided on, is missed; how many
    times that are. The caller reschedules."""
    plan = next_time.plan_of(view, job)
    found, last = timeline.undecided(view, job, plan, view.now_ms)
    missed = [one for one in found if one.edit is None or one.kind is timeline.SKIPPED]
    _carry_out(view, job, plan, misfire.miss(missed), last)
    return sum(one.count for one in missed if one.kind is timeline.OPEN)


def _carry_out(
    view: View, job: Job, plan: Plan,
    chosen: list[Fated], last: int,
) -> None:  # fmt: skip
    """What becomes of the times of the schedules, up to the first that runs now."""
    state = job.state
    ours = [(one, fate) for one, fate in chosen if one.edit is None or fate is Fate.SKIP]
    run = next((one for one, fate in ours if fate is Fate.RUN), None)
    if run is not None:
        ours = ours[: ours.index((run, Fate.RUN))]
    apart = [edit.scheduled_at_ms for edit in state.edits]
    if state.backlog:
        apart += next_time.waiting_alone(state)
    # What was moved or added waits in its place among them, so they are cut there.
    for one, fate in chosen:
        if one.edit is not None and fate is Fate.WAIT:
            at_ms = one.due_ms - plan.jitter_ms
            apart += (at_ms - 1, at_ms)
    for one, fate in _joined(ours, sorted(apart)):
        if fate is Fate.WAIT:
            _wait(view, job, plan, one)
        elif fate is Fate.SKIP:
            assert one.edit is not None
            scheduled_time.drop_edit(view, job, one.edit)
            ledger.record(view, job, one.first, OUTCOME[fate])
        else:
            proof = ledger.decided(view, one.due_ms)
            ledger.stretch(view, job, plan, one.first, one.last, OUTCOME[fate], one.count, proof)
    if run is None:
        next_time.advance(view, job, last)
    elif run.first != state.next_scheduled_at_ms:
        state = view.change_state(job)
        state.next_scheduled_at_ms, state.next_due_at_ms = run.first, run.due_ms


def _joined(chosen: Iterable[Fated], edited: list[int]) -> list[Fated]:
    """Stretches with one outcome as one, where between them lies nothing but what ran before its
    time."""
    found: list[Fated] = []
    for one, fate in chosen:
        if found and found[-1][1] is fate is not Fate.SKIP:
            before = found[-1][0]
            between = bisect_left(edited, one.first) - bisect_left(edited, before.last)
            if not between:
                count = before.count + one.count
                found[-1] = (Stretch(before.first, one.last, count, before.due_ms), fate)
                continue
        found.append((one, fate))
    return found


def _wait(view: View, job: Job, plan: Plan, one: Stretch) -> None:
    part = BacklogRecord(
        next_at_ms=one.first, to_ms=one.last + 1, left=one.count,
        release_at_ms=view.now_ms if next_time.missed(job.state) else backlog.next_slot(view, job),
        cause=scheduled_time.SCHEDULED,
        due_at_ms=one.due_ms if one.edit is not None else 0, decided_at_ms=view.now_ms,
        decided_in=view.base + 1,
    )  # fmt: skip
    backlog.add(view, job, part, plan.jitter_ms)


def _edited(view: View, job: Job, plan: Plan, one: Stretch, fate: Fate) -> None:
    """What becomes of one that somebody moved or added."""
    edit = one.edit
    assert edit is not None
    scheduled_time.drop_edit(view, job, edit)
    if ledger.knows(view, job.jid, one.first):
        # The schedules were changed, and those before or after had it as well.
        return
    if fate is Fate.WAIT:
        _wait(view, job, plan, one)
        next_time.used_up(view, job)
        return
    ledger.take_out(view, job, plan, one.first)
    proof = ledger.decided(view, one.due_ms)
    ledger.record(view, job, one.first, OUTCOME[fate], proof=proof)
    scheduled_time.mark(view, job.jid, plan, one.first)
    next_time.used_up(view, job)
