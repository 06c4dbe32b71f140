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
from ..model.entities import Job, Run
from ..model.phases import CANCELLED, ENDS, FAILED, HALTED, HELD, LATER, LEASED, READY, WAITING
from ..model.record import EditRecord, JobRecord, RunRecord, StateRecord, UniqueRecord
from ..model.request import FireTimer, FireTimers, WorkDone
from ..model.view import View
from ..occurrences import ledger, ledger_purge, next_time
from ..runs import history, overlap, runs, set_aside, timeouts
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
ACTIVE = next_time.ACTIVE
# One timer of a job may make many runs; after so many writes the rest waits for the next change.
WRITES_MAX = 8 * limits.CHANGE_ITEMS
LATER_BYTE = keys.LATER >> 56  # With which the instants of timers of what can wait begin.
RUN_BYTE = keys.WAKE_RUN[0]
NEWEST = 256  # Timers of what can wait that are looked at for some that are not of flows.
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
        due = _flows_by_turns(view, due, more, end)
        due += _just_set(view)
    else:
        due = _ends_first(due)
        due = _alternating(fresh, due) if fresh else due
    if due:
        ledger.index(view)
        view.due_at_once = len(due)
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


def _ends_first(due: list[bytes]) -> list[bytes]:
    """Of what is due at one instant the runs first: one whose time is up then takes no place that
    another needs, such as in a quota."""
    if RUN_BYTE not in {key[9] for key in due}:
        return due
    return sorted(due, key=lambda key: (key[:9], key[9] != RUN_BYTE))


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
    fresh = [key for key in found if key[9:10] == keys.WAKE_JOB and _may_overtake(view, key)]
    return fresh, found[-1] + b"\0" if len(found) == most else end


def _may_overtake(view: View, key: bytes) -> bool:
    job = view.job(int.from_bytes(key[10:18], "big"))
    if not job.state.live:
        return True
    rule = job.definition.template.spec.overlap.rule
    return rule == job_pb2.OverlapPolicy.RULE_ALLOW


def _flows_by_turns(view: View, due: list[bytes], more: bool, end: bytes) -> list[bytes]:
    """Of what can wait, flows and all else by turns: a thousand flows that end at once take many
    rounds, and whoever deletes a job waits for none of them. What was set last stands last."""
    flows = [key for key in due if key[9:10] == keys.WAKE_FLOW]
    if not flows:
        return due
    others = [key for key in due if key[9:10] != keys.WAKE_FLOW]
    if more:
        last = islice(view.scan_stored(due[-1] + b"\0", end, backwards=True), NEWEST)
        others += [key for key in last if key[9:10] != keys.WAKE_FLOW]
    return _alternating(others, flows)


def _alternating(*lines: list[bytes]) -> list[bytes]:
    return [key for turn in zip_longest(*lines) for key in turn if key is not None]


def _just_set(view: View) -> list[bytes]:
    """What this decision itself has found to be missed, or to be deleted, goes on at once. All else
    that it began is found in the next one, when what it wrote is stored."""
    end = keys.timers_from(keys.LATER | view.now_ms + 1)
    return [key for key in view.set_later or () if key < end and _may_be_done_now(view, key)]


def _may_be_done_now(view: View, key: bytes) -> bool:
    if key[9:10] == keys.WAKE_JOB:
        job = view.find_job(int.from_bytes(key[10:18], "big"))
        return job is not None and job.state.state != next_time.DELETING
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
        _wake_run(view, keys.run_of(key))
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
    elif kind == keys.WAKE_LIMITS:
        timeouts.arm_some(view, *keys.run_of(key))
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
    jids = [int.from_bytes(key[10:18], "big") for key in due if key[9:10] == keys.WAKE_JOB]
    view.read_jobs_ahead(sorted(jids))


def _wake_job(view: View, jid: int, is_later: bool) -> None:
    job = view.jobs.get(jid) or view.job(jid)
    state = view.change_state(job)
    state.timer_at_ms = 0
    if (state.state != ACTIVE or state.delete_at_ms) and not _goes_on(view, job, is_later):
        return
    if state.held and not _has_room(view, job):
        # What is due now would replace a run that was not given the room that it came for.
        timers.set_job(view, job, view.now_ms)
        return
    left_out_ms = 0
    if state.state != next_time.PAUSED:
        due_ms = state.next_due_at_ms
        fire_due(view, job)
        if job.definition.template.calendars:
            left_out_ms = next_time.left_out_until(view, job, due_ms)
    if state.ledger_purge_at_ms or not state.live:
        _plan_purge(view, job)
    next_time.reschedule(view, job, left_out_ms)


def _goes_on(view: View, job: Job, is_later: bool) -> bool:
    """Whether a job is not set aside, nor goes: one whose time is over begins to, and one that was
    paused until now fires again."""
    state = view.change_state(job)
    if state.state == next_time.BROKEN:
        return False
    if 0 < state.delete_at_ms <= view.now_ms and next_time.over(state):
        if not is_later:
            timers.set_job(view, job, keys.LATER | view.now_ms)
            return False
        job_deletion.begin(view, job)
    if state.state == next_time.DELETING:
        job_deletion.step(view, job)
        return False
    if state.state == next_time.PAUSED and 0 < state.pause_until_ms <= view.now_ms:
        state.state = next_time.ACTIVE
        state.pause_reason = ""
        state.pause_until_ms = 0
        resume.begin(view, job)
        definition = view.change_definition(job)
        definition.version += 1
        definition.updated_at_ms = view.now_ms
    return True


def _wake_backlog(view: View, jid: int) -> None:
    """It is the turn of a job's backlog, unless that is gone or waits for something else."""
    view.delete(keys.catch_up(jid))
    job = view.find_job(jid)
    if job is None or not job.state.backlog or job.state.state != next_time.ACTIVE:
        return
    state = view.change_state(job)
    # What is due of its schedules goes before.
    is_due = 0 < state.next_due_at_ms <= view.now_ms
    if not is_due and (not state.held or _has_room(view, job)):
        backlog.release(view, job)
        next_time.advance_if_idle(view, job)
    next_time.reschedule(view, job)


def _has_room(view: View, job: Job) -> bool:
    """Whether no run of a job waits for room, after another step of making it."""
    if overlap.waits_for_room(view, job):
        overlap.make_more_room(view, job.jid)
    return not overlap.waits_for_room(view, job)


def _plan_purge(view: View, job: Job) -> None:
    """Its ledger goes on with time, also when no run is there to take it along."""
    state = job.state
    alone = not state.live and not state.last_occurrence and ledger_purge.idle(state)
    if alone or 0 < state.ledger_purge_at_ms <= view.now_ms:
        ledger_purge.step(view, job, limits.STEP)


def fire_due(view: View, job: Job) -> None:
    """Give every scheduled time that is due its outcome, and what was moved or added, in the order
    in which they are due. What a decision has no time for is due in the next, in the same order.
    The caller reschedules."""
    now_ms, state = view.now_ms, job.state
    edits = state.edits
    if state.live:
        _end_overdue(view, job)
    for done in range(limits.STEP):
        scheduled_ms, due_ms = state.next_scheduled_at_ms, state.next_due_at_ms
        is_due = scheduled_ms > 0 and due_ms <= now_ms
        edit = _first_edit(state, now_ms) if state.edits else None
        if not is_due and edit is None:
            break
        if done and overlap.pauses(view, job):
            return
        if edit is not None:
            before = state.edits
            if catch_up.decide(view, job) or state.edits is not before:
                continue
            if not is_due or _is_before(edit, due_ms, scheduled_ms):
                _fire_edit(view, job, edit)
                continue
        elif (
            (late_ms := now_ms - due_ms) > job.definition.template.grace_ms
            or (
                late_ms
                and not state.once
                and _may_be_choice(late_ms, job.definition)
                and _is_choice(view, job)
            )
            or (state.backlog and catch_up.comes_behind(view, job))
        ) and catch_up.decide(view, job):
            continue
        if not scheduled_time.left_out(view, job, scheduled_ms):
            scheduled_time.fire(view, job, scheduled_ms, due_ms, scheduled_time.SCHEDULED)
        next_time.advance(view, job, scheduled_ms)
    else:
        return
    if edits:
        _drop_passed(view, job)
        next_time.advance_if_idle(view, job)


def _end_overdue(view: View, job: Job) -> None:
    """A run whose time is up stands in the way of nothing that comes now: it ends before, though
    its own timer stands behind. Of more than a step of runs the oldest."""
    template = job.definition.template
    limited = template.has_timeouts or template.start_deadline_ms < limits.INSTANT_MAX_MS
    if not (limited or template.retry_total_ms):
        return
    for run in runs.live_of(view, job, limits.STEP):
        at_ms, place = run.record.timer_at_ms, (run.jid, run.occurrence)
        timer = keys.run_timer(at_ms, *place)
        is_due = run.record.phase != LATER and 0 < at_ms <= view.now_ms
        if is_due and view.get_raw(timer) is not None:
            view.delete_raw(timer)
            _wake_run(view, place)
    effects.carry_out(view)


def _may_be_choice(late_ms: int, job: JobRecord) -> bool:
    """Whether another time may be due: those of one schedule are a second apart at least. Another
    schedule stands behind the first, whose length is the second byte."""
    return late_ms >= limits.SECOND_MS or len(job.schedules) > 2 + job.schedules[1]


def _is_choice(view: View, job: Job) -> bool:
    """Whether more than one time is due, so that they are decided on together."""
    if not overlap.room(job):
        return False
    plan = next_time.plan_of(view, job)
    following = next_scheduled(plan, job.state.next_scheduled_at_ms)
    return following is not None and due(plan, following) <= view.now_ms


def _first_edit(state: StateRecord, now_ms: int) -> EditRecord | None:
    """Of what somebody moved or added, the first that is due."""
    due_now = [edit for edit in state.edits if 0 < next_time.edit_due(edit) <= now_ms]
    return min(due_now, key=_place, default=None)


def _place(edit: EditRecord) -> tuple[int, int]:
    return next_time.edit_due(edit), edit.scheduled_at_ms


def _is_before(edit: EditRecord, due_ms: int, scheduled_ms: int) -> bool:
    return _place(edit) < (due_ms, scheduled_ms)


def _fire_edit(view: View, job: Job, edit: EditRecord) -> None:
    """What somebody moved or added is due."""
    due_ms = next_time.edit_due(edit)
    may_run = next_time.has_place(job, edit)
    scheduled_time.drop_edit(view, job, edit)
    if not may_run or ledger.knows(view, job.jid, edit.scheduled_at_ms):
        # The job has had all its runs; or its schedules were changed, and those before
        # or after had it as well.
        return
    plan = next_time.plan_of(view, job)
    ledger.take_out(view, job, plan, edit.scheduled_at_ms)
    scheduled_time.fire(
        view, job, edit.scheduled_at_ms, due_ms, scheduled_time.SCHEDULED,
        is_edited=True,
    )  # fmt: skip
    scheduled_time.mark(view, job.jid, plan, edit.scheduled_at_ms)
    next_time.used_up(view, job)


def _drop_passed(view: View, job: Job) -> None:
    """Forget what was skipped and has passed."""
    state = job.state
    passed_ms = min(state.next_scheduled_at_ms or view.now_ms, view.now_ms)
    for edit in state.edits:
        if not next_time.edit_due(edit) and edit.scheduled_at_ms < passed_ms:
            scheduled_time.drop_edit(view, job, edit)


def _wake_run(view: View, place: tuple[int, int]) -> None:
    run = view.run(place)
    record = view.change_run(run)
    was_at_ms, record.timer_at_ms = record.timer_at_ms, 0
    run_ms = ms_or(run.job.definition.template.spec.timeouts, "run", 0)
    if run_ms and record.ready_at_ms and record.ready_at_ms + run_ms <= view.now_ms:
        _fail(view, run, "timeout.run", f"it had not ended after {run_ms} ms")
    elif record.phase == LEASED:
        _wake_running(view, run)
    elif record.phase in WAITING:
        _wake_held(view, run, was_at_ms)
    else:
        _wake_waiting(view, run)


def _wake_running(view: View, run: Run) -> None:
    now_ms, record = view.now_ms, run.record
    heartbeat_ms = ms_or(run.job.definition.template.spec.timeouts, "heartbeat", 0)
    if 0 < record.cancel_at_ms <= now_ms:
        runs.stop(view, run, LOST)
        runs.end(view, run, CANCELLED)
    elif 0 < record.deadline_at_ms <= now_ms:
        taken_ms = record.deadline_at_ms - record.leased_at_ms
        _attempt_over(view, run, "timeout.attempt", f"it took over {taken_ms} ms")
    elif heartbeat_ms and 0 < record.heard_at_ms <= now_ms - heartbeat_ms:
        message = f"it reported no progress for {heartbeat_ms} ms"
        _attempt_over(view, run, "timeout.heartbeat", message)
    else:
        arm(view, run)


def _attempt_over(view: View, run: Run, kind: str, message: str) -> None:
    error = run_pb2.RunError(kind=kind, message=message)
    runs.stop(view, run, LOST)
    attempt_failed(view, run, Attempt.END_TIMED_OUT, error)


def _wake_waiting(view: View, run: Run) -> None:
    now_ms, record, template = view.now_ms, run.record, run.job.definition.template
    queue_ms = ms_or(template.spec.timeouts, "queue", 0)
    started, ready_ms = record.started_at_ms, record.ready_at_ms
    if not started and queue_ms and ready_ms and ready_ms + queue_ms <= now_ms:
        _fail(view, run, "timeout.queue", f"no worker took it within {queue_ms} ms")
    elif 0 < policies.retries_end(record, template) <= now_ms:
        message = f"no attempt began within {template.retry_total_ms} ms, its retry.total"
        _fail(view, run, "timeout.total", message)
    elif 0 < start_deadline(run) <= now_ms:
        _skip_late(view, run)
    elif 0 < record.retry_at_ms <= now_ms:
        move(view, run, READY)
    else:
        arm(view, run)


def _skip_late(view: View, run: Run) -> None:
    late_ms = run.job.definition.template.start_deadline_ms
    message = f"it had not started {late_ms} ms after its due time"
    overlap.drop(view, run, run_pb2.OUTCOME_SKIPPED_DEADLINE, "start_deadline", message)


def _wake_held(view: View, run: Run, was_at_ms: int) -> None:
    """A run that was triggered for later is due now, so the overlap policy judges it now; or one
    that is held back has waited for too long."""
    record = run.record
    if 0 < start_deadline(run) <= view.now_ms:
        _skip_late(view, run)
        return
    if not _has_room(view, run.job):
        if record.phase not in ENDS:
            timers.set_run(view, run, was_at_ms)
        return
    if record.phase != LATER:
        if record.phase in WAITING:
            # Its job has a later start deadline by now.
            arm(view, run)
        if record.phase == HELD:
            runs.look_at_held(view, run.job)
        # Else it had waited for room, or it gave way.
        return
    count_in(view, run)
    move(view, run, _when_due(view, run))


def _when_due(view: View, run: Run) -> int:
    """Where a run goes that was triggered for later."""
    is_exempt = run.record.exempt & RunRecord.EXEMPT_OVERLAP
    if run.job.state.state == next_time.PAUSED and not is_exempt:
        return HALTED
    usage = namespaces.usage_of(view, run.jid)
    is_taken = quota.is_taken(view, usage, run.job.definition.namespace)
    verdict = overlap.GO if is_exempt else overlap.judge_wanted(view, run.job)
    if overlap.make_room(view, run.job, verdict, run.occurrence):
        return HELD
    if is_taken:
        quota.wait(view, run.job, usage)
        return HELD
    return READY


def _fail(view: View, run: Run, kind: str, message: str) -> None:
    error = view.change_run(run).error = run_pb2.RunError(kind=kind, message=message)
    if run.record.phase == LEASED:
        log_attempt(view, run, Attempt.END_TIMED_OUT, error)
    runs.stop(view, run, LOST)
    runs.end(view, run, FAILED)


def _purge(view: View, jid: int, occurrence: int) -> None:
    if not history.purge(view, jid, occurrence):
        return
    job = view.job(jid)
    if not job.state.ledger_from_ms or job.state.state == next_time.DELETING:
        return
    if ledger_purge.step(view, job):
        next_time.reschedule(view, job)


def _free_unique(view: View, key: bytes) -> None:
    jid = int.from_bytes(key[10:18], "big")
    unique_key = keys.unique(jid, key[18:].decode())
    taken = view.get(unique_key, UniqueRecord)
    if taken is not None and 0 < taken.until_ms <= view.now_ms:
        view.delete(unique_key)
