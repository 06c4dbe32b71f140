"""A nominal time gets its outcome: it becomes a run, or it is recorded why not."""

from __future__ import annotations

from ..proto.v1 import run_pb2, schedule_pb2
from . import clockwork, flows, keys, ledger, namespaces, overlap, runs
from .plan import Plan, excluded, latest_nominal_before, names, nominal_times
from .record import EditRecord, JobRecord, RunRecord, StateRecord
from .view import View

Edit = schedule_pb2.OccurrenceEdit
SCHEDULED = run_pb2.CAUSE_SCHEDULE
BACKFILL = run_pb2.CAUSE_BACKFILL
RAN = run_pb2.OUTCOME_RAN
LATE = run_pb2.OUTCOME_LATE


def left_out(view: View, jid: int, job: JobRecord, state: StateRecord, nominal_ms: int) -> bool:
    """Whether somebody or a calendar says that a nominal time is not to run."""
    if nominal_ms <= state.last_nominal_at_ms and ledger.knows(view, jid, nominal_ms):
        # It was moved to an earlier instant, and got its outcome there.
        return True
    for edit in state.edits:
        if edit.nominal_at_ms == nominal_ms and edit.kind == Edit.KIND_SKIP:
            drop_edit(state, edit)
            ledger.settle(view, jid, state, nominal_ms, run_pb2.OUTCOME_SKIPPED_BY_HAND)
            return True
        if edit.nominal_at_ms == nominal_ms and edit.kind == Edit.KIND_MOVE:
            # It has an instant of its own, and gets its outcome there.
            return True
    if job.form.calendars:
        plan = clockwork.plan_of(view, jid, job)
        if excluded(plan, nominal_ms) is not None:
            ledger.settle(view, jid, state, nominal_ms, run_pb2.OUTCOME_SKIPPED_CALENDAR)
            return True
    return False


def pass_over(
    view: View, jid: int, state: StateRecord, plan: Plan, first: int, last: int,
    outcome: run_pb2.Outcome.ValueType,
) -> None:  # fmt: skip
    """Record what became of all nominal times from one to another that have no outcome yet, in
    stretches between those that will have one of their own: what was moved or added gets it when it
    is due. The caller puts the state."""
    edits = {
        edit.nominal_at_ms: edit for edit in state.edits if first <= edit.nominal_at_ms <= last
    }
    begin: int | None = first
    for at_ms in sorted(edits):
        if begin is not None and begin < at_ms:
            end = latest_nominal_before(plan, at_ms) or begin
            ledger.stretch(view, jid, state, plan, begin, max(begin, end), outcome)
        if at_ms == begin or names(plan, at_ms):
            _skip(view, jid, state, edits[at_ms])
        begin = next(iter(nominal_times(plan, at_ms + 1, last + 1, 1).times), None)
    if begin is not None:
        ledger.stretch(view, jid, state, plan, begin, last, outcome)


def _skip(view: View, jid: int, state: StateRecord, edit: EditRecord) -> None:
    """Record that somebody skipped a nominal time, unless the edit is another or it ran before."""
    if edit.kind == Edit.KIND_SKIP and not ledger.knows(view, jid, edit.nominal_at_ms):
        drop_edit(state, edit)
        ledger.settle(view, jid, state, edit.nominal_at_ms, run_pb2.OUTCOME_SKIPPED_BY_HAND)


def fire(
    view: View, jid: int, job: JobRecord, state: StateRecord,
    nominal_ms: int, due_ms: int, cause: run_pb2.Cause.ValueType, *, patient: bool = False,
) -> bool:  # fmt: skip
    """Turn a nominal time into a run, or record why not.

    A patient one does not take no from the overlap policy: False says that it must wait.
    """
    late_ms = view.now_ms - due_ms
    form = job.form
    if late_ms > form.start_deadline_ms and cause != BACKFILL:
        ledger.settle(view, jid, state, nominal_ms, run_pb2.OUTCOME_SKIPPED_DEADLINE)
        return True
    most = namespaces.live_runs(view, job.namespace)
    if most and runs.usage_of(view, jid).live >= most:
        if cause == BACKFILL:
            _settle_backfilled(view, jid, job, state, nominal_ms, run_pb2.OUTCOME_SKIPPED_QUOTA)
        else:
            ledger.settle(view, jid, state, nominal_ms, run_pb2.OUTCOME_SKIPPED_QUOTA)
        return True
    verdict = overlap.judge(view, jid, state, form.spec)
    if verdict is overlap.SKIP:
        if patient:
            return False
        ledger.settle(view, jid, state, nominal_ms, run_pb2.OUTCOME_SKIPPED_OVERLAP)
        return True
    occasion = keys.occasion_of(nominal_ms)
    outcome = LATE if late_ms > form.grace_ms else RAN
    run = runs.new(job, cause, outcome, due_ms)
    if verdict is not overlap.GO:
        run.held = overlap.make_room(view, jid, state, verdict, occasion)
    if cause == BACKFILL:
        _settle_backfilled(view, jid, job, state, nominal_ms, outcome)
    else:
        ledger.settle(view, jid, state, nominal_ms, outcome)
    if state.has_downstream:
        flows.start(view, jid, occasion, run)
    runs.begin(view, jid, occasion, run, form, state)
    return True


def _settle_backfilled(
    view: View, jid: int, job: JobRecord, state: StateRecord, nominal_ms: int,
    outcome: run_pb2.Outcome.ValueType,
) -> None:  # fmt: skip
    """A backfill takes the place of what was recorded without a run having begun."""
    is_known = ledger.take_out(view, jid, clockwork.plan_of(view, jid, job), nominal_ms)
    occasion = keys.occasion_of(nominal_ms)
    skipped = view.get(keys.ended(jid, occasion), RunRecord)
    if skipped is not None:
        runs.forget(view, jid, occasion, skipped)
        flows.begin_anew(view, jid, occasion)
    awaited = clockwork.awaits(state, nominal_ms)
    counts = state.fired, state.skipped
    ledger.settle(view, jid, state, nominal_ms, outcome, is_known=is_known)
    if not awaited:
        # The job was never to decide on it, or has done so, so it uses up no most of runs.
        state.fired, state.skipped = counts


def drop_edit(state: StateRecord, edit: EditRecord) -> None:
    state.edits = tuple(other for other in state.edits if other is not edit)
