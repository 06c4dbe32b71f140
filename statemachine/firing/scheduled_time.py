"""A scheduled time gets its outcome: it becomes a run, or it is recorded why not."""

from __future__ import annotations

from msgspec.structs import replace

from ...proto.v1 import run_pb2, schedule_pb2
from ..flows import waves
from ..model import keys
from ..model.entities import Job, run_with
from ..model.phases import HELD, READY
from ..model.record import (
    BacklogRecord,
    EditRecord,
    ProofRecord,
    RunRecord,
)
from ..model.view import View
from ..occurrences import ledger, next_time
from ..runs import history, overlap, runs
from ..runs.move import move
from ..schedule.plan import Plan, excluded, names
from ..tenants import namespaces, quota

Edit = schedule_pb2.OccurrenceEdit
SCHEDULED = run_pb2.CAUSE_SCHEDULE
BACKFILL = run_pb2.CAUSE_BACKFILL
# Here one that waited waits on: it is not skipped, and takes nobody's place.
NO_ROOM = frozenset({overlap.SKIP, overlap.HOLD_NEWEST, overlap.REPLACE})
RAN = run_pb2.OUTCOME_RAN
LATE = run_pb2.OUTCOME_LATE


def left_out(view: View, job: Job, scheduled_ms: int, *, ask_days: bool = True) -> bool:
    """Whether somebody or, if it is to be asked, a calendar says that a scheduled time is not to
    run."""
    if scheduled_ms <= job.state.last_scheduled_at_ms and ledger.knows(view, job.jid, scheduled_ms):
        # It was moved to an earlier instant, and got its outcome there.
        return True
    for edit in job.state.edits:
        if edit.scheduled_at_ms == scheduled_ms and edit.kind == Edit.KIND_SKIP:
            drop_edit(view, job, edit)
            ledger.record(view, job, scheduled_ms, run_pb2.OUTCOME_SKIPPED_MANUALLY)
            return True
        if edit.scheduled_at_ms == scheduled_ms and edit.kind == Edit.KIND_MOVE:
            # It has an instant of its own, and gets its outcome there.
            return True
    if ask_days and job.definition.template.calendars:
        plan = next_time.plan_of(view, job)
        if excluded(plan, scheduled_ms) is not None:
            ledger.record(view, job, scheduled_ms, run_pb2.OUTCOME_SKIPPED_CALENDAR)
            return True
    return False


def fire(
    view: View, job: Job,
    scheduled_ms: int, due_ms: int, cause: run_pb2.Cause.ValueType, *,
    waited: ProofRecord | None = None, is_edited: bool = False,
) -> bool:  # fmt: skip
    """Turn a scheduled time into a run, or record why not.

    One that waited in the backlog takes no from neither quota nor overlap policy: False says that
    it must wait on.
    """
    patient = waited is not None
    late_ms = view.now_ms - due_ms
    template = job.definition.template
    if late_ms >= template.start_deadline_ms and cause != BACKFILL:
        _skip(view, job, scheduled_ms, run_pb2.OUTCOME_SKIPPED_DEADLINE, due_ms, waited)
        return True
    most = namespaces.live_runs(view, job.definition.namespace)
    if most and quota.used(usage := namespaces.usage_of(view, job.jid)) >= most:
        if patient:
            quota.wait(view, job, usage)
            return False
        _skip(view, job, scheduled_ms, run_pb2.OUTCOME_SKIPPED_QUOTA, due_ms)
        return True
    verdict = overlap.judge(view, job)
    if patient and verdict in NO_ROOM:
        return False
    if verdict is overlap.SKIP:
        _skip(view, job, scheduled_ms, run_pb2.OUTCOME_SKIPPED_OVERLAP, due_ms)
        return True
    occurrence = keys.occurrence_of(scheduled_ms)
    outcome = LATE if late_ms > template.grace_ms else RAN
    run = runs.new(job, occurrence, cause, outcome, due_ms)
    waits = verdict is not overlap.GO and overlap.make_room(view, job, verdict, occurrence)
    if cause == BACKFILL:
        _record_backfilled(view, job, scheduled_ms, outcome, is_former=is_edited)
    elif outcome == RAN and not is_edited and not patient:
        ledger.record(view, job, scheduled_ms, outcome)
    else:
        proof = waited or ledger.decided(view, due_ms)
        ledger.record(view, job, scheduled_ms, outcome, proof=proof)
    if job.state.has_downstream:
        waves.start(view, run)
    move(view, run, HELD if waits else READY)
    return True


def _skip(
    view: View, job: Job, scheduled_ms: int,
    outcome: run_pb2.Outcome.ValueType, due_ms: int, waited: ProofRecord | None = None,
) -> None:  # fmt: skip
    proof = waited or ledger.decided(view, due_ms)
    ledger.record(view, job, scheduled_ms, outcome, proof=proof)


def mark(view: View, jid: int, plan: Plan, scheduled_ms: int) -> None:
    """Say of the outcome of one that somebody moved or added if no schedule names it."""
    if not names(plan, scheduled_ms):
        ledger.mark_added(view, jid, scheduled_ms)


def _record_backfilled(
    view: View, job: Job, scheduled_ms: int, outcome: run_pb2.Outcome.ValueType,
    *, is_former: bool,
) -> None:  # fmt: skip
    """A backfill takes the place of what was recorded without a run having begun. `is_former`: it
    was planned by the schedules of then, which named it."""
    plan = next_time.plan_of(view, job)
    proof = _of_before(view, job, scheduled_ms)
    is_known = ledger.take_out(view, job, plan, scheduled_ms, is_named=is_former)
    occurrence = keys.occurrence_of(scheduled_ms)
    skipped = view.get(keys.ended(job.jid, occurrence), RunRecord)
    if skipped is not None:
        history.forget(view, run_with(job, occurrence, skipped))
        waves.begin_anew(view, job.jid, occurrence)
    awaited = next_time.awaits(job.state, scheduled_ms)
    state = view.change_state(job)
    counts = state.fired, state.skipped
    ledger.record(view, job, scheduled_ms, outcome, is_known=is_known, proof=proof)
    if not awaited:
        # The job was never to decide on it, or has done so, so it uses up no max_runs.
        state.fired, state.skipped = counts


def _of_before(view: View, job: Job, scheduled_ms: int) -> ProofRecord:
    """What is known of a time that a backfill runs: the outcome that it had, or that it waits."""
    found = ledger.covering(view, job.jid, scheduled_ms)
    if found is None:
        waiting = (part for part in next_time.missed(job.state) if part.decided_at_ms)
        mine = (part for part in waiting if part.next_at_ms <= scheduled_ms < part.to_ms)
        part = next(mine, BacklogRecord())
        return ProofRecord(part.decided_at_ms, part.decided_in)
    first, entry = found
    proof = entry.proof or ProofRecord()
    due_ms = proof.due_at_ms if first == scheduled_ms else 0
    return replace(proof, due_at_ms=due_ms, before=proof.before or entry.outcome)


def drop_edit(view: View, job: Job, edit: EditRecord) -> None:
    state = view.change_state(job)
    state.edits = tuple(other for other in state.edits if other is not edit)


def drop_unnamed(view: View, job: Job, plan: Plan) -> list[EditRecord]:
    """Other schedules take force: what they do not name cannot be skipped or moved any more, and
    what was moved is missed; what was added stays. The caller reschedules."""
    gone = [
        edit
        for edit in job.state.edits
        if edit.kind != Edit.KIND_ADD and not names(plan, edit.scheduled_at_ms, ever=True)
    ]
    for edit in gone:
        drop_edit(view, job, edit)
        if edit.kind == Edit.KIND_MOVE and not ledger.knows(view, job.jid, edit.scheduled_at_ms):
            # If it lies ahead, schedules that name it again before it comes take this back.
            proof = ProofRecord(dropped_at_ms=view.now_ms)
            missed = run_pb2.OUTCOME_MISSED
            ledger.record(view, job, edit.scheduled_at_ms, missed, proof=proof)
            ledger.mark_added(view, job.jid, edit.scheduled_at_ms)
    return gone
