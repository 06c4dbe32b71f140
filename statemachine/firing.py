"""Timers ring: nominal times become runs, and whatever else has an end comes to it.

A nominal time gets its outcome in the same change in which the job moves on to the next one, and
the run's id is made of job and nominal time, so none can be lost between two steps or become two
runs. The ledger holds the outcome of each: what ran, and why the others did not.
"""

from __future__ import annotations

from itertools import islice

from ..proto.v1 import job_pb2, run_pb2, schedule_pb2, worker_pb2
from . import (
    clockwork,
    deletion,
    flows,
    keys,
    ledger,
    ledger_purge,
    limits,
    namespaces,
    overlap,
    policies,
    runs,
)
from .plan import Plan, due, excluded, latest_nominal_before, next_nominal
from .record import BacklogRecord, EditRecord, JobRecord, RunRecord, StateRecord, UniqueRecord
from .reports import attempt_failed
from .request import Ring, Rung
from .view import View

Misfire = job_pb2.MisfirePolicy
Edit = schedule_pb2.OccurrenceEdit
Attempt = run_pb2.Attempt
SCHEDULED = run_pb2.CAUSE_SCHEDULE
BACKFILL = run_pb2.CAUSE_BACKFILL
RAN = run_pb2.OUTCOME_RAN
LATE = run_pb2.OUTCOME_LATE
LOST = worker_pb2.Stop.KIND_LOST
# A job's one ring may make many runs; after so many writes the rest waits for the next change.
WRITES_MAX = 8 * limits.CHANGE_ITEMS


def ring(view: View, request: Ring, actor: str) -> Rung:
    """Do what is due, oldest first."""
    end = keys.timers_from(view.now_ms + 1)
    first = view.meta.timers_from or keys.TIMER
    due = list(islice(view.scan_stored(first, end), request.most + 1)) if first < end else []
    more = len(due) > request.most
    del due[request.most :]
    behind = due[-1] + b"\0" if more else max(end, first)
    # Timers that this decision has set already are not stored yet; the next ring finds them.
    view.meta.timers_from = min(behind, view.first_timer)
    for done, key in enumerate(due):
        if view.writes > WRITES_MAX or view.is_full:
            view.meta.timers_from = min(view.meta.timers_from, key)
            return Rung(done, more=True)
        if view.deleted(key):
            # What rang before has moved it, or ended what it was for.
            continue
        view.delete(key)
        kind = key[9:10]
        if kind == keys.WAKE_JOB:
            _ring_job(view, int.from_bytes(key[10:18], "big"))
        elif kind == keys.WAKE_RUN:
            _ring_run(view, *keys.run_of(key))
        elif kind == keys.WAKE_PURGE:
            _purge(view, *keys.run_of(key))
        elif kind == keys.WAKE_UNIQUE:
            _free_unique(view, key)
        else:
            assert kind == keys.WAKE_FLOW, f"unknown timer {key!r}"
            flows.ring(view, *keys.run_of(key))
    return Rung(len(due), more)


def _ring_job(view: View, jid: int) -> None:
    key = keys.state(jid)
    state = view.need(key, StateRecord)
    state.timer_at_ms = 0
    job = view.need(keys.job(jid), JobRecord)
    if 0 < state.delete_at_ms <= view.now_ms and clockwork.over(state):
        deletion.begin(view, jid, job, state)
    if state.state == clockwork.DELETING:
        deletion.step(view, jid, job, state)
        return
    if state.state == clockwork.PAUSED and 0 < state.pause_until_ms <= view.now_ms:
        state.state = clockwork.ACTIVE
        state.pause_reason = ""
        state.pause_until_ms = 0
        job.version += 1
        job.updated_at_ms = view.now_ms
        view.put(keys.job(jid), job)
    if state.state != clockwork.PAUSED:
        fire_due(view, jid, job, state)
    _plan_purge(view, jid, job, state)
    clockwork.settle(view, jid, state)
    view.put(key, state)


def _plan_purge(view: View, jid: int, job: JobRecord, state: StateRecord) -> None:
    """Its ledger goes on with time, also when no run is there to take it along."""
    alone = not state.live and not state.last_occasion and ledger_purge.idle(state)
    if alone or 0 < state.ledger_purge_at_ms <= view.now_ms:
        ledger_purge.step(view, jid, job, state, limits.STEP)


def fire_due(view: View, jid: int, job: JobRecord, state: StateRecord) -> None:
    """Give every nominal time that is due its outcome. The caller settles and puts the state."""
    now_ms = view.now_ms
    spec = job.spec
    grace_ms = policies.grace_ms(spec)
    for _ in range(limits.STEP):
        nominal_ms, due_ms = state.next_nominal_at_ms, state.next_due_at_ms
        if not nominal_ms or due_ms > now_ms:
            break
        if due_ms + grace_ms < now_ms:
            _catch_up(view, jid, job, state)
            break
        _fire_scheduled(view, jid, job, state, nominal_ms, due_ms)
        clockwork.advance(view, jid, job, state, nominal_ms)
    if state.edits or state.backlog:
        _fire_edits(view, jid, job, state)
        if state.backlog:
            _release_backlog(view, jid, job, state)
        if state.after_end and not (state.next_nominal_at_ms or state.backlog or state.live):
            # What was moved or waited became no run, so no end will set the next time.
            clockwork.look_ahead(view, jid, job, state, max(state.last_nominal_at_ms, now_ms - 1))


def _fire_scheduled(
    view: View, jid: int, job: JobRecord, state: StateRecord, nominal_ms: int, due_ms: int
) -> None:
    """Fire a nominal time that a schedule names, unless somebody or a calendar says otherwise."""
    if nominal_ms <= state.last_nominal_at_ms and ledger.knows(view, jid, nominal_ms):
        # It was moved to an earlier instant, and got its outcome there.
        return
    for edit in state.edits:
        if edit.nominal_at_ms == nominal_ms and edit.kind == Edit.KIND_SKIP:
            _drop_edit(state, edit)
            ledger.settle(view, jid, state, nominal_ms, run_pb2.OUTCOME_SKIPPED_BY_HAND)
            return
        if edit.nominal_at_ms == nominal_ms and edit.kind == Edit.KIND_MOVE:
            # It has an instant of its own, and gets its outcome there.
            return
    spec = job.spec
    if spec.HasField("timing") and spec.timing.exclude_calendars:
        plan = clockwork.plan_of(view, jid, job)
        if excluded(plan, nominal_ms) is not None:
            ledger.settle(view, jid, state, nominal_ms, run_pb2.OUTCOME_SKIPPED_CALENDAR)
            return
    fire(view, jid, job, state, nominal_ms, due_ms, SCHEDULED)


def fire(
    view: View, jid: int, job: JobRecord, state: StateRecord,
    nominal_ms: int, due_ms: int, cause: run_pb2.Cause.ValueType, *, patient: bool = False,
) -> bool:  # fmt: skip
    """Turn a nominal time into a run, or record why not.

    A patient one does not take no from the overlap policy: False says that it must wait.
    """
    late_ms = view.now_ms - due_ms
    spec = job.spec
    if late_ms > policies.start_deadline_ms(spec) and cause != BACKFILL:
        ledger.settle(view, jid, state, nominal_ms, run_pb2.OUTCOME_SKIPPED_DEADLINE)
        return True
    most = namespaces.quota(view, job.namespace).live_runs
    if most and runs.usage_of(view, keys.namespace_of(jid)).live >= most:
        ledger.settle(view, jid, state, nominal_ms, run_pb2.OUTCOME_SKIPPED_QUOTA)
        return True
    verdict = overlap.judge(state, spec)
    if verdict is overlap.SKIP:
        if patient:
            return False
        ledger.settle(view, jid, state, nominal_ms, run_pb2.OUTCOME_SKIPPED_OVERLAP)
        return True
    occasion = keys.occasion_of(nominal_ms)
    if cause == BACKFILL:
        _make_way(view, jid, occasion)
    outcome = LATE if late_ms > policies.grace_ms(spec) else RAN
    run = runs.new(job, spec, cause, outcome, due_ms)
    if verdict is not overlap.GO:
        run.held = overlap.make_room(view, jid, state, verdict)
    ledger.settle(view, jid, state, nominal_ms, outcome)
    if state.has_downstream:
        flows.start(view, jid, occasion, run)
    runs.begin(view, jid, occasion, run, spec, state)
    return True


def _make_way(view: View, jid: int, occasion: int) -> None:
    """A backfill takes the place of what was recorded without a run having begun."""
    ledger.take_out(view, jid, keys.nominal_of(occasion))
    skipped = view.get(keys.ended(jid, occasion), RunRecord)
    if skipped is not None:
        runs.forget(view, jid, occasion, skipped)
        flows.begin_anew(view, jid, occasion)


def _catch_up(view: View, jid: int, job: JobRecord, state: StateRecord) -> None:
    """Nominal times were missed: the misfire policy says which of them still run."""
    plan = clockwork.plan_of(view, jid, job)
    misfire = job.spec.misfire
    first = state.next_nominal_at_ms
    shift_ms = due(plan, 0)
    last = latest_nominal_before(plan, view.now_ms - shift_ms + 1)
    last = first if last is None or last < first else last
    rule = misfire.rule or Misfire.RULE_LATEST
    if rule == Misfire.RULE_SKIP:
        overdue = view.now_ms - policies.grace_ms(job.spec) - shift_ms
        last = max(first, latest_nominal_before(plan, overdue) or first)
        ledger.stretch(view, jid, state, plan, first, last, run_pb2.OUTCOME_MISSED)
    elif rule == Misfire.RULE_ALL:
        _plan_all(view, jid, job, state, plan, first, last)
    else:
        chosen = first if rule == Misfire.RULE_EARLIEST else last
        if rule == Misfire.RULE_EARLIEST:
            _fire_scheduled(view, jid, job, state, chosen, chosen + shift_ms)
            following = next_nominal(plan, first, last_end_ms=None)
            if following is not None and following <= last:
                ledger.stretch(view, jid, state, plan, following, last, run_pb2.OUTCOME_COALESCED)
        else:
            before = latest_nominal_before(plan, last)
            if before is not None and first <= before:
                ledger.stretch(view, jid, state, plan, first, before, run_pb2.OUTCOME_COALESCED)
            _fire_scheduled(view, jid, job, state, chosen, chosen + shift_ms)
    clockwork.advance(view, jid, job, state, last)


def _plan_all(
    view: View, jid: int, job: JobRecord, state: StateRecord, plan: Plan, first: int, last: int
) -> None:
    """Keep the newest so many missed nominal times as a backlog, which is released at a rate."""
    most = job.spec.misfire.maximum or limits.MISFIRE_DEFAULT
    start, left = last, 1
    while left < most and start > first:
        before = latest_nominal_before(plan, start)
        if before is None or before < first:
            break
        start, left = before, left + 1
    if start > first:
        before = max(first, latest_nominal_before(plan, start) or first)
        ledger.stretch(view, jid, state, plan, first, before, run_pb2.OUTCOME_MISSED)
    part = BacklogRecord(
        next_at_ms=start, to_ms=last + 1, left=left, pace_ms=limits.OUTAGE_PACE_MS,
        release_at_ms=view.now_ms, cause=SCHEDULED,
    )  # fmt: skip
    state.backlog = (*state.backlog, part)


def _fire_edits(view: View, jid: int, job: JobRecord, state: StateRecord) -> None:
    """Fire the occurrences that somebody moved or added, as far as they are due."""
    for edit in state.edits:
        due_ms = clockwork.edit_due(edit)
        if due_ms:
            if due_ms <= view.now_ms:
                _drop_edit(state, edit)
                if ledger.knows(view, jid, edit.nominal_at_ms):
                    # The schedules were changed, and those before or after had it as well.
                    continue
                ledger.take_out(view, jid, edit.nominal_at_ms)
                fire(view, jid, job, state, edit.nominal_at_ms, due_ms, SCHEDULED)
                if edit.kind == Edit.KIND_ADD:
                    ledger.mark_added(view, jid, edit.nominal_at_ms)
        elif edit.nominal_at_ms < min(state.next_nominal_at_ms or view.now_ms, view.now_ms):
            _drop_edit(state, edit)


def _drop_edit(state: StateRecord, edit: EditRecord) -> None:
    state.edits = tuple(other for other in state.edits if other is not edit)


def _release_backlog(view: View, jid: int, job: JobRecord, state: StateRecord) -> None:
    """Fire past nominal times at their pace, oldest first."""
    plan = clockwork.plan_of(view, jid, job)
    for _ in range(limits.STEP):
        part = state.backlog[0]
        if not part.release_at_ms or part.release_at_ms > view.now_ms:
            return
        nominal_ms = part.next_at_ms
        if _may_release(view, jid, nominal_ms, part.cause):
            due_ms = due(plan, nominal_ms)
            if not fire(view, jid, job, state, nominal_ms, due_ms, part.cause, patient=True):
                # Its overlap policy lets it run only when the last has ended.
                part.release_at_ms = 0
                return
            part.left -= 1
            part.release_at_ms = max(part.release_at_ms, view.now_ms - limits.SECOND_MS)
            part.release_at_ms += part.pace_ms
        following = next_nominal(plan, nominal_ms, ever=part.cause == BACKFILL)
        if following is None or following >= part.to_ms or part.left <= 0:
            state.backlog = state.backlog[1:]
            if not state.backlog:
                return
        else:
            part.next_at_ms = following


def _may_release(view: View, jid: int, nominal_ms: int, cause: int) -> bool:
    """Whether a time of a backlog has no run yet; one that was moved may have got it already."""
    if cause == BACKFILL:
        return ledger.may_backfill(view, jid, nominal_ms)
    return not ledger.knows(view, jid, nominal_ms)


def _ring_run(view: View, jid: int, occasion: int) -> None:
    key = keys.run(jid, occasion)
    run = view.need(key, RunRecord)
    run.timer_at_ms = 0
    job = view.need(keys.job(jid), JobRecord)
    now_ms = view.now_ms
    timeouts = job.spec.timeouts
    run_ms = policies.ms_or(timeouts, "run", 0)
    if run_ms and run.ready_at_ms and run.ready_at_ms + run_ms <= now_ms:
        _fail(view, jid, occasion, run, "timeout.run", f"it had not ended after {run_ms} ms")
    elif run.state == runs.RUNNING:
        _ring_running(view, jid, occasion, run, job)
    elif run.held:
        _ring_held(view, jid, occasion, run, job)
    else:
        _ring_waiting(view, jid, occasion, run, job)


def _ring_running(view: View, jid: int, occasion: int, run: RunRecord, job: JobRecord) -> None:
    now_ms = view.now_ms
    heartbeat_ms = policies.ms_or(job.spec.timeouts, "heartbeat", 0)
    if 0 < run.cancel_at_ms <= now_ms:
        runs.stop(view, jid, occasion, run, LOST)
        runs.end(view, jid, occasion, run, runs.CANCELLED)
    elif 0 < run.deadline_at_ms <= now_ms:
        taken_ms = run.deadline_at_ms - run.leased_at_ms
        _attempt_over(view, jid, occasion, run, "timeout.attempt", f"it took over {taken_ms} ms")
    elif heartbeat_ms and run.heard_at_ms + heartbeat_ms <= now_ms:
        said = f"it reported no progress for {heartbeat_ms} ms"
        _attempt_over(view, jid, occasion, run, "timeout.heartbeat", said)
    else:
        runs.arm(view, jid, occasion, run, job.spec)
        view.put(keys.run(jid, occasion), run)


def _attempt_over(
    view: View, jid: int, occasion: int, run: RunRecord, kind: str, message: str
) -> None:
    error = run_pb2.RunError(kind=kind, message=message)
    runs.stop(view, jid, occasion, run, LOST)
    attempt_failed(view, jid, occasion, run, Attempt.END_TIMED_OUT, error)


def _ring_waiting(view: View, jid: int, occasion: int, run: RunRecord, job: JobRecord) -> None:
    now_ms = view.now_ms
    late_ms = policies.start_deadline_ms(job.spec)
    queue_ms = policies.ms_or(job.spec.timeouts, "queue", 0)
    started = run.started_at_ms
    if not started and queue_ms and run.ready_at_ms and run.ready_at_ms + queue_ms <= now_ms:
        _fail(view, jid, occasion, run, "timeout.queue", f"no worker took it within {queue_ms} ms")
    elif not started and run.due_at_ms + late_ms <= now_ms:
        message = f"it had not started {late_ms} ms after its due time"
        overlap.drop(
            view, jid, occasion, run, run_pb2.OUTCOME_SKIPPED_DEADLINE, "start_deadline", message
        )
    elif 0 < run.retry_at_ms <= now_ms:
        runs.make_ready(view, jid, occasion, run, job.spec)
        view.put(keys.run(jid, occasion), run)
    else:
        runs.arm(view, jid, occasion, run, job.spec)
        view.put(keys.run(jid, occasion), run)


def _ring_held(view: View, jid: int, occasion: int, run: RunRecord, job: JobRecord) -> None:
    """A run that was triggered for later is due now: the overlap policy judges it now."""
    state_key = keys.state(jid)
    state = view.need(state_key, StateRecord)
    # It does not stand in its own way.
    state.held -= 1
    state.live -= 1
    verdict = overlap.judge(state, job.spec)
    state.live += 1
    state.held += 1
    if verdict is overlap.SKIP:
        message = "the job's overlap policy allows no more runs at once"
        overlap.drop(view, jid, occasion, run, run_pb2.OUTCOME_SKIPPED_OVERLAP, "overlap", message)
        return
    waits = overlap.make_room(view, jid, state, verdict, but=occasion)
    # To make room may have ended the last run before it, which lets it go on already.
    if run.held and not waits:
        run.held = False
        state.held -= 1
        runs.make_ready(view, jid, occasion, run, job.spec)
    view.put(state_key, state)
    view.put(keys.run(jid, occasion), run)


def _fail(view: View, jid: int, occasion: int, run: RunRecord, kind: str, message: str) -> None:
    run.error = run_pb2.RunError(kind=kind, message=message)
    runs.stop(view, jid, occasion, run, LOST)
    runs.end(view, jid, occasion, run, runs.FAILED)


def _purge(view: View, jid: int, occasion: int) -> None:
    if not runs.purge(view, jid, occasion):
        return
    state = view.need(keys.state(jid), StateRecord)
    if state.ledger_from_ms and state.state != clockwork.DELETING:
        job = view.need(keys.job(jid), JobRecord)
        if ledger_purge.step(view, jid, job, state):
            clockwork.settle(view, jid, state)
            view.put(keys.state(jid), state)


def _free_unique(view: View, key: bytes) -> None:
    jid = int.from_bytes(key[10:18], "big")
    unique_key = keys.unique(jid, key[18:].decode())
    taken = view.get(unique_key, UniqueRecord)
    if taken is not None and 0 < taken.until_ms <= view.now_ms:
        view.delete(unique_key)
