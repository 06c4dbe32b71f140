"""Timers fire: scheduled times become runs, and whatever else has an end comes to it.

A scheduled time gets its outcome in the same change in which the job moves on to the next one, and
the run's id is made of job and scheduled time, so none can be lost between two steps or become two
runs. The ledger holds the outcome of each: what ran, and why the others did not.

Where more is due than a change takes, jobs that fall due behind those left over take turns with
them (`_fresh`), unless runs of theirs are under way: what else is due of those comes before.
"""

from __future__ import annotations

from itertools import islice, zip_longest

from ...proto.v1 import job_pb2, run_pb2, schedule_pb2, worker_pb2
from ..core import limits
from ..core.instants import ms_or
from ..flows import waves
from ..model import keys, policies, timers
from ..model.phases import CANCELLED, FAILED, HALTED, HELD, LATER, LEASED, READY, WAITING
from ..model.record import EditRecord, JobRecord, RunRecord, StateRecord, UniqueRecord
from ..model.request import FireTimer, FireTimers, WorkDone
from ..model.view import View
from ..occurrences import ledger, ledger_purge, next_time
from ..runs import history, overlap, runs, set_aside
from ..runs.move import count_in, move
from ..runs.reports import attempt_failed, log_attempt
from ..runs.timeouts import arm, start_deadline
from ..schedule.plan import due, next_scheduled
from ..tenants import namespaces, quota
from . import backlog, catch_up, effects, job_deletion, namespace_deletion, resume, scheduled_time

Misfire = job_pb2.MisfirePolicy
Edit = schedule_pb2.OccurrenceEdit
Attempt = run_pb2.Attempt
LOST = worker_pb2.Stop.KIND_LOST
# One timer of a job may make many runs; after so many writes the rest waits for the next change.
WRITES_MAX = 8 * limits.CHANGE_ITEMS
LATER_BYTE = keys.LATER >> 56  # With which the instants of timers of what can wait begin.
AHEAD = 256  # Timers whose jobs are read together; it may be that no more of them are due now.


def fire_timers(view: View, request: FireTimers, actor: str) -> WorkDone:
    """Do what is due, oldest first."""
    later = request.later
    most = request.most
    due, more, end = due_now(view, most, later=later)
    fresh, fresh_from = ([], end) if later else _fresh(view, request, due, end)
    if fresh:
        taken = frozenset(fresh)
        due = [key for key in due if key not in taken][: most - len(fresh)]
    # Timers that this decision has set already are not stored yet; the next decision finds them.
    behind = due[-1] + b"\0" if more else max(end, _begin(view, later=later))
    _mark(view, behind, later=later)
    if later:
        due += _just_set(view)
    elif fresh:
        due = _alternating(fresh, due)
    if due:
        ledger.index(view)
    for done, key in enumerate(due):
        if done and view.is_over(WRITES_MAX):
            rest = due[done:]
            _mark(view, min(behind, *rest), later=later)
            left = next((key for key in rest if key in taken), fresh_from) if fresh else fresh_from
            return WorkDone(done, more=True, fresh_from=left)
        if done % AHEAD == 0:
            _read_ahead(view, due[done : done + AHEAD])
        # What fired before may have moved it, or ended what it was for.
        if view.take(key):
            _wake(view, key)
            if view.ended is not None:
                effects.carry_out(view)
    return WorkDone(len(due), more, fresh_from)


def _fresh(
    view: View, request: FireTimers, due: list[bytes], end: bytes
) -> tuple[list[bytes], bytes]:
    """Jobs that have fallen due behind what is left over, which they need not wait for; and where
    the next ones begin. But what else is due of a job with runs comes before, if they may not
    overlap."""
    first = request.fresh_from or keys.timers_from(view.since_ms + 1)
    if not due or due[0] >= first or first >= end:
        return [], end  # Nothing was left over, or nothing came since.
    most = request.most // 2
    if not most:
        return [], first
    found = list(islice(view.scan_stored(first, end), most))
    _read_ahead(view, found)
    fresh = [key for key in found if key[9:10] == keys.WAKE_JOB and _may_overtake(view, key[10:18])]
    return fresh, found[-1] + b"\0" if len(found) == most else end


def _may_overtake(view: View, jid: bytes) -> bool:
    if not view.need(keys.STATE + jid, StateRecord).live:
        return True
    rule = view.need(keys.JOB + jid, JobRecord).template.spec.overlap.rule
    return rule == job_pb2.OverlapPolicy.RULE_ALLOW


def _alternating(*lines: list[bytes]) -> list[bytes]:
    return [key for turn in zip_longest(*lines) for key in turn if key is not None]


def _just_set(view: View) -> list[bytes]:
    """What this decision itself has found to be missed, or to be deleted, goes on at once. All else
    that it began is found in the next one, when what it wrote is stored."""
    end = keys.timers_from(keys.LATER | view.now_ms + 1)
    return [key for key in view.set_later or () if key < end and _may_be_done_now(view, key)]


def _may_be_done_now(view: View, key: bytes) -> bool:
    if key[9:10] == keys.WAKE_JOB:
        state = view.get(keys.STATE + key[10:18], StateRecord)
        return state is not None and state.state != next_time.DELETING
    return key[9:10] == keys.WAKE_BACKLOG


def _begin(view: View, *, later: bool) -> bytes:
    if later:
        return view.meta.later_from or keys.timers_from(keys.LATER)
    return view.meta.timers_from or keys.TIMER


def _mark(view: View, key: bytes, *, later: bool) -> None:
    """No timer of a range lies before a key, but for those that this decision has set."""
    if later:
        view.meta.later_from = min(key, view.first_later)
    else:
        view.meta.timers_from = min(key, view.first_timer)


def _wake(view: View, key: bytes) -> None:
    kind = key[9:10]
    if kind == keys.WAKE_JOB:
        _wake_job(view, int.from_bytes(key[10:18], "big"), key[1] >= LATER_BYTE)
    elif kind == keys.WAKE_RUN:
        _wake_run(view, *keys.run_of(key))
    elif kind == keys.WAKE_PURGE:
        _purge(view, *keys.run_of(key))
    else:
        _wake_rare(view, kind, key)


def _wake_rare(view: View, kind: bytes, key: bytes) -> None:
    if kind == keys.WAKE_UNIQUE:
        _free_unique(view, key)
    elif kind == keys.WAKE_DELETION:
        namespace_deletion.wake(view, int.from_bytes(key[10:18], "big"))
    elif kind == keys.WAKE_ROOM:
        overlap.make_more_room(view, int.from_bytes(key[10:18], "big"))
    elif kind == keys.WAKE_BACKLOG:
        _wake_backlog(view, int.from_bytes(key[10:18], "big"))
    elif kind == keys.WAKE_QUOTA:
        runs.serve_quota(view, int.from_bytes(key[10:18], "big"))
    elif kind == keys.WAKE_WAVES:
        looked = int.from_bytes(key[18:22], "big")
        waves.wake_waves(view, int.from_bytes(key[10:18], "big"), looked, key[22:])
    elif kind == keys.WAKE_RESUME:
        resume.wake(view, int.from_bytes(key[10:18], "big"))
    elif kind == keys.WAKE_HELD:
        runs.wake_held(view, int.from_bytes(key[10:18], "big"))
    elif kind == keys.WAKE_RETURN:
        set_aside.wake(view, *keys.run_of(key))
    else:
        assert kind == keys.WAKE_FLOW, f"unknown timer {key!r}"
        waves.wake(view, *keys.run_of(key))


def due_now(view: View, most: int, *, later: bool) -> tuple[list[bytes], bool, bytes]:
    """Timers of one line that are due, oldest first; whether there are more; where those begin
    that are due later."""
    end = keys.timers_from((keys.LATER if later else 0) | view.now_ms + 1)
    first = _begin(view, later=later)
    due = list(islice(view.scan_stored(first, end), most + 1)) if first < end else []
    return due[:most], len(due) > most, end


def fire_timer(view: View, request: FireTimer, actor: str) -> None:
    """Do what one timer is for, unless it was moved or is gone."""
    if view.get_raw(request.timer) is not None:
        view.delete_raw(request.timer)
        _wake(view, request.timer)
        effects.carry_out(view)


def _read_ahead(view: View, due: list[bytes]) -> None:
    """Jobs that were made together are due together."""
    jids = sorted(key[10:18] for key in due if key[9:10] == keys.WAKE_JOB)
    view.read_ahead([keys.JOB + jid for jid in jids], JobRecord)
    view.read_ahead([keys.STATE + jid for jid in jids], StateRecord)


def _wake_job(view: View, jid: int, is_later: bool) -> None:
    key = keys.state(jid)
    state = view.need(key, StateRecord)
    state.timer_at_ms = 0
    if state.state == next_time.BROKEN:
        view.put(key, state)
        return
    job = view.need(keys.job(jid), JobRecord)
    if 0 < state.delete_at_ms <= view.now_ms and next_time.over(state):
        if not is_later:
            timers.set_job(view, jid, state, keys.LATER | view.now_ms)
            view.put(key, state)
            return
        job_deletion.begin(view, jid, job, state)
    if state.state == next_time.DELETING:
        job_deletion.step(view, jid, job, state)
        return
    if state.state == next_time.PAUSED and 0 < state.pause_until_ms <= view.now_ms:
        state.state = next_time.ACTIVE
        state.pause_reason = ""
        state.pause_until_ms = 0
        resume.begin(view, jid, state)
        job.version += 1
        job.updated_at_ms = view.now_ms
        view.put(keys.job(jid), job)
    if state.held and not _has_room(view, jid, state):
        # What is due now would replace a run that was not given the room that it came for.
        timers.set_job(view, jid, state, view.now_ms)
        view.put(key, state)
        return
    if state.state != next_time.PAUSED:
        fire_due(view, jid, job, state)
    if state.ledger_purge_at_ms or not state.live:
        _plan_purge(view, jid, job, state)
    next_time.reschedule(view, jid, state)
    view.put(key, state)


def _wake_backlog(view: View, jid: int) -> None:
    """It is the turn of a job's backlog, unless that is gone or waits for something else."""
    view.delete(keys.catch_up(jid))
    key = keys.state(jid)
    state = view.get(key, StateRecord)
    if state is None or not state.backlog or state.state != next_time.ACTIVE:
        return
    job = view.need(keys.job(jid), JobRecord)
    # What is due of its schedules goes before.
    is_due = 0 < state.next_due_at_ms <= view.now_ms
    if not is_due and (not state.held or _has_room(view, jid, state)):
        backlog.release(view, jid, job, state)
        next_time.advance_if_idle(view, jid, job, state)
    next_time.reschedule(view, jid, state)
    view.put(key, state)


def _has_room(view: View, jid: int, state: StateRecord) -> bool:
    """Whether no run of a job waits for room, after another step of making it."""
    if overlap.waits_for_room(view, jid, state):
        overlap.make_more_room(view, jid)
    return not overlap.waits_for_room(view, jid, state)


def _plan_purge(view: View, jid: int, job: JobRecord, state: StateRecord) -> None:
    """Its ledger goes on with time, also when no run is there to take it along."""
    alone = not state.live and not state.last_occurrence and ledger_purge.idle(state)
    if alone or 0 < state.ledger_purge_at_ms <= view.now_ms:
        ledger_purge.step(view, jid, job, state, limits.STEP)


def fire_due(view: View, jid: int, job: JobRecord, state: StateRecord) -> None:
    """Give every scheduled time that is due its outcome, and what was moved or added, in the order
    in which they are due. What a decision has no time for is due in the next, in the same order.
    The caller reschedules and puts the state."""
    now_ms = view.now_ms
    edits = state.edits
    if state.live:
        _end_overdue(view, jid, job, state)
    for done in range(limits.STEP):
        scheduled_ms, due_ms = state.next_scheduled_at_ms, state.next_due_at_ms
        is_due = scheduled_ms > 0 and due_ms <= now_ms
        edit = _first_edit(state, now_ms) if state.edits else None
        if not is_due and edit is None:
            break
        if done and overlap.pauses(view, jid, state):
            return
        if edit is not None:
            before = state.edits
            if catch_up.decide(view, jid, job, state) or state.edits is not before:
                continue
            if not is_due or _is_before(edit, due_ms, scheduled_ms):
                _fire_edit(view, jid, job, state, edit)
                continue
        elif (
            (late_ms := now_ms - due_ms) > job.template.grace_ms
            or (late_ms and _may_be_choice(late_ms, job) and _is_choice(view, jid, job, state))
            or (state.backlog and catch_up.comes_behind(view, jid, job, state))
        ) and catch_up.decide(view, jid, job, state):
            continue
        if not scheduled_time.left_out(view, jid, job, state, scheduled_ms):
            scheduled_time.fire(
                view, jid, job, state, scheduled_ms, due_ms, scheduled_time.SCHEDULED
            )
        next_time.advance(view, jid, job, state, scheduled_ms)
    else:
        return
    if edits:
        _drop_passed(view, state)
        next_time.advance_if_idle(view, jid, job, state)


def _end_overdue(view: View, jid: int, job: JobRecord, state: StateRecord) -> None:
    """A run whose time is up stands in the way of nothing that comes now: it ends before, though
    its own timer stands behind. Of more than a step of runs the oldest."""
    template = job.template
    limited = template.has_timeouts or template.start_deadline_ms < limits.INSTANT_MAX_MS
    if not (limited or template.retry_total_ms):
        return
    for occurrence, run in runs.live_of(view, jid, state, limits.STEP):
        timer = keys.run_timer(run.timer_at_ms, jid, occurrence)
        is_due = run.phase != LATER and 0 < run.timer_at_ms <= view.now_ms
        if is_due and view.get_raw(timer) is not None:
            view.delete_raw(timer)
            _wake_run(view, jid, occurrence)
    effects.carry_out(view)


def _may_be_choice(late_ms: int, job: JobRecord) -> bool:
    """Whether another time may be due: those of one schedule are a second apart at least. Another
    schedule stands behind the first, whose length is the second byte."""
    return late_ms >= limits.SECOND_MS or len(job.schedules) > 2 + job.schedules[1]


def _is_choice(view: View, jid: int, job: JobRecord, state: StateRecord) -> bool:
    """Whether more than one time is due, so that they are decided on together."""
    if state.once or not overlap.room(state, job):
        return False
    plan = next_time.plan_of(view, jid, job)
    following = next_scheduled(plan, state.next_scheduled_at_ms)
    return following is not None and due(plan, following) <= view.now_ms


def _first_edit(state: StateRecord, now_ms: int) -> EditRecord | None:
    """Of what somebody moved or added, the first that is due."""
    due_now = [edit for edit in state.edits if 0 < next_time.edit_due(edit) <= now_ms]
    return min(due_now, key=_place, default=None)


def _place(edit: EditRecord) -> tuple[int, int]:
    return next_time.edit_due(edit), edit.scheduled_at_ms


def _is_before(edit: EditRecord, due_ms: int, scheduled_ms: int) -> bool:
    return _place(edit) < (due_ms, scheduled_ms)


def _fire_edit(view: View, jid: int, job: JobRecord, state: StateRecord, edit: EditRecord) -> None:
    """What somebody moved or added is due."""
    due_ms = next_time.edit_due(edit)
    may_run = next_time.has_place(job, state, edit)
    scheduled_time.drop_edit(state, edit)
    if not may_run or ledger.knows(view, jid, edit.scheduled_at_ms):
        # The job has had all its runs; or its schedules were changed, and those before
        # or after had it as well.
        return
    plan = next_time.plan_of(view, jid, job)
    ledger.take_out(view, jid, job, plan, edit.scheduled_at_ms)
    scheduled_time.fire(
        view, jid, job, state, edit.scheduled_at_ms, due_ms, scheduled_time.SCHEDULED,
        is_edited=True,
    )  # fmt: skip
    scheduled_time.mark(view, jid, plan, edit.scheduled_at_ms)
    next_time.used_up(job, state)


def _drop_passed(view: View, state: StateRecord) -> None:
    """Forget what was skipped and has passed."""
    passed_ms = min(state.next_scheduled_at_ms or view.now_ms, view.now_ms)
    for edit in state.edits:
        if not next_time.edit_due(edit) and edit.scheduled_at_ms < passed_ms:
            scheduled_time.drop_edit(state, edit)


def _wake_run(view: View, jid: int, occurrence: int) -> None:
    key = keys.run(jid, occurrence)
    run = view.need(key, RunRecord)
    was_at_ms, run.timer_at_ms = run.timer_at_ms, 0
    job = view.need(keys.job(jid), JobRecord)
    now_ms = view.now_ms
    timeouts = job.template.spec.timeouts
    run_ms = ms_or(timeouts, "run", 0)
    if run_ms and run.ready_at_ms and run.ready_at_ms + run_ms <= now_ms:
        _fail(view, jid, occurrence, run, "timeout.run", f"it had not ended after {run_ms} ms")
    elif run.phase == LEASED:
        _wake_running(view, jid, occurrence, run, job)
    elif run.phase in WAITING:
        _wake_held(view, jid, occurrence, run, job, was_at_ms)
    else:
        _wake_waiting(view, jid, occurrence, run, job)


def _wake_running(view: View, jid: int, occurrence: int, run: RunRecord, job: JobRecord) -> None:
    now_ms = view.now_ms
    heartbeat_ms = ms_or(job.template.spec.timeouts, "heartbeat", 0)
    if 0 < run.cancel_at_ms <= now_ms:
        runs.stop(view, jid, occurrence, run, LOST)
        runs.end(view, jid, occurrence, run, CANCELLED)
    elif 0 < run.deadline_at_ms <= now_ms:
        taken_ms = run.deadline_at_ms - run.leased_at_ms
        _attempt_over(view, jid, occurrence, run, "timeout.attempt", f"it took over {taken_ms} ms")
    elif heartbeat_ms and run.heard_at_ms + heartbeat_ms <= now_ms:
        message = f"it reported no progress for {heartbeat_ms} ms"
        _attempt_over(view, jid, occurrence, run, "timeout.heartbeat", message)
    else:
        arm(view, jid, occurrence, run, job.template)
        view.put(keys.run(jid, occurrence), run)


def _attempt_over(
    view: View, jid: int, occurrence: int, run: RunRecord, kind: str, message: str
) -> None:
    error = run_pb2.RunError(kind=kind, message=message)
    runs.stop(view, jid, occurrence, run, LOST)
    attempt_failed(view, jid, occurrence, run, Attempt.END_TIMED_OUT, error)


def _wake_waiting(view: View, jid: int, occurrence: int, run: RunRecord, job: JobRecord) -> None:
    now_ms = view.now_ms
    queue_ms = ms_or(job.template.spec.timeouts, "queue", 0)
    started = run.started_at_ms
    if not started and queue_ms and run.ready_at_ms and run.ready_at_ms + queue_ms <= now_ms:
        _fail(
            view, jid, occurrence, run, "timeout.queue", f"no worker took it within {queue_ms} ms"
        )
    elif 0 < policies.retries_end(run, job.template) <= now_ms:
        message = f"no attempt began within {job.template.retry_total_ms} ms, its retry.total"
        _fail(view, jid, occurrence, run, "timeout.total", message)
    elif 0 < start_deadline(run, job.template) <= now_ms:
        _skip_late(view, jid, occurrence, run, job)
    elif 0 < run.retry_at_ms <= now_ms:
        move(
            view, jid, occurrence, run, READY, view.need(keys.state(jid), StateRecord), job.template
        )
    else:
        arm(view, jid, occurrence, run, job.template)
        view.put(keys.run(jid, occurrence), run)


def _skip_late(view: View, jid: int, occurrence: int, run: RunRecord, job: JobRecord) -> None:
    message = f"it had not started {job.template.start_deadline_ms} ms after its due time"
    outcome = run_pb2.OUTCOME_SKIPPED_DEADLINE
    overlap.drop(view, jid, occurrence, run, outcome, "start_deadline", message)


def _wake_held(
    view: View, jid: int, occurrence: int, run: RunRecord, job: JobRecord, was_at_ms: int
) -> None:
    """A run that was triggered for later is due now, so the overlap policy judges it now; or one
    that is held back has waited for too long."""
    state_key = keys.state(jid)
    state = view.need(state_key, StateRecord)
    if 0 < start_deadline(run, job.template) <= view.now_ms:
        _skip_late(view, jid, occurrence, run, job)
        return
    if not _has_room(view, jid, state):
        if view.get(keys.run(jid, occurrence), RunRecord) is not None:
            timers.set_run(view, jid, occurrence, run, was_at_ms)
            view.put(keys.run(jid, occurrence), run)
        return
    if run.phase != LATER:
        if run.phase in WAITING:
            # Its job has a later start deadline by now.
            arm(view, jid, occurrence, run, job.template)
            view.put(keys.run(jid, occurrence), run)
        if run.phase == HELD:
            runs.look_at_held(view, jid, state)
        # Else it had waited for room, or it gave way.
        return
    count_in(view, jid, run, state)
    to = _when_due(view, jid, occurrence, run, job, state)
    move(view, jid, occurrence, run, to, state, job.template)
    view.put(state_key, state)


def _when_due(
    view: View, jid: int, occurrence: int, run: RunRecord, job: JobRecord, state: StateRecord
) -> int:
    """Where a run goes that was triggered for later."""
    is_exempt = run.exempt & RunRecord.EXEMPT_OVERLAP
    if state.state == next_time.PAUSED and not is_exempt:
        return HALTED
    usage = namespaces.usage_of(view, jid)
    is_taken = quota.is_taken(view, usage, job.namespace)
    verdict = overlap.GO if is_exempt else overlap.judge_wanted(view, jid, state, job)
    if overlap.make_room(view, jid, state, verdict, occurrence):
        return HELD
    if is_taken:
        quota.wait(view, jid, state, usage)
        return HELD
    return READY


def _fail(view: View, jid: int, occurrence: int, run: RunRecord, kind: str, message: str) -> None:
    run.error = run_pb2.RunError(kind=kind, message=message)
    if run.phase == LEASED:
        log_attempt(view, run, Attempt.END_TIMED_OUT, run.error)
    runs.stop(view, jid, occurrence, run, LOST)
    runs.end(view, jid, occurrence, run, FAILED)


def _purge(view: View, jid: int, occurrence: int) -> None:
    if not history.purge(view, jid, occurrence):
        return
    state = view.need(keys.state(jid), StateRecord)
    if state.ledger_from_ms and state.state != next_time.DELETING:
        job = view.need(keys.job(jid), JobRecord)
        if ledger_purge.step(view, jid, job, state):
            next_time.reschedule(view, jid, state)
            view.put(keys.state(jid), state)


def _free_unique(view: View, key: bytes) -> None:
    jid = int.from_bytes(key[10:18], "big")
    unique_key = keys.unique(jid, key[18:].decode())
    taken = view.get(unique_key, UniqueRecord)
    if taken is not None and 0 < taken.until_ms <= view.now_ms:
        view.delete(unique_key)
