"""Timers ring: nominal times become runs, and whatever else has an end comes to it.

A nominal time gets its outcome in the same change in which the job moves on to the next one, and
the run's id is made of job and nominal time, so none can be lost between two steps or become two
runs. The ledger holds the outcome of each: what ran, and why the others did not.
"""

from __future__ import annotations

from itertools import islice, zip_longest

from ..proto.v1 import job_pb2, run_pb2, schedule_pb2, worker_pb2
from . import (
    aside,
    backlog,
    clockwork,
    deletion,
    flows,
    keys,
    ledger,
    ledger_purge,
    limits,
    outcomes,
    overlap,
    runs,
    sweep,
    timers,
)
from .instants import ms_or
from .plan import Plan, due, latest_nominal_before, names, next_nominal, nominal_times, nth_nominal
from .record import JobRecord, MetaRecord, RunRecord, StateRecord, UniqueRecord, parse
from .reports import attempt_failed
from .request import Ring, RingOne, Rung
from .view import View

Misfire = job_pb2.MisfirePolicy
Edit = schedule_pb2.OccurrenceEdit
Attempt = run_pb2.Attempt
LOST = worker_pb2.Stop.KIND_LOST
# A job's one ring may make many runs; after so many writes the rest waits for the next change.
WRITES_MAX = 8 * limits.CHANGE_ITEMS
LATER_BYTE = keys.LATER >> 56  # With which the instants of timers of what can wait begin.
AHEAD = 256  # Timers whose jobs are read together; it may be that no more of them ring now.


def ring(view: View, request: Ring, actor: str) -> Rung:
    """Do what is due, oldest first."""
    if request.later is not None:
        return _ring_line(view, request.most, later=request.later)
    first = _ring_line(view, request.most, later=False)
    if first.more:
        return first
    then = _ring_line(view, request.most, later=True)
    return Rung(first.timers + then.timers, then.more)


def _ring_line(view: View, most: int, *, later: bool) -> Rung:
    due, more, end = due_now(view, most, later=later)
    fresh = _fresh(view, due, end, most // 2) if more and not later else []
    del due[most - len(fresh) :]
    # Timers that this decision has set already are not stored yet; the next ring finds them.
    behind = due[-1] + b"\0" if more else max(end, _begin(view, later=later))
    _mark(view, behind, later=later)
    if later:
        due += _just_set(view)
    elif fresh:
        due = _in_turn(fresh, due)
    if due:
        ledger.index(view)
    for done, key in enumerate(due):
        if done and view.is_over(WRITES_MAX):
            _mark(view, min(behind, *due[done:]), later=later)
            return Rung(done, more=True)
        if done % AHEAD == 0:
            _read_ahead(view, due[done : done + AHEAD])
        # What rang before may have moved it, or ended what it was for.
        if view.take(key):
            _ring_one(view, key)
    return Rung(len(due), more)


def _fresh(view: View, due: list[bytes], end: bytes, most: int) -> list[bytes]:
    """Where more is due than a change takes: jobs that have fallen due since the last one. They
    need not wait for the rest of a herd; but what else is due of a job with runs comes before."""
    since_ms = parse(keys.META, view.stored.get(keys.META) or b"", MetaRecord).now_ms
    if keys.timer_at(due[0]) > since_ms:
        return []  # Nothing was left over.
    first = max(due[-1] + b"\0", keys.timers_from(since_ms + 1))
    found = list(islice(view.scan_stored(first, end), most)) if first < end else []
    _read_ahead(view, found)
    return [
        key
        for key in found
        if key[9:10] == keys.WAKE_JOB and not view.need(keys.STATE + key[10:18], StateRecord).live
    ]


def _in_turn(*lines: list[bytes]) -> list[bytes]:
    return [key for turn in zip_longest(*lines) for key in turn if key is not None]


def _just_set(view: View) -> list[bytes]:
    """What this decision itself has found to be missed, or to be deleted, goes on at once. All else
    that it began is found in the next one, when what it wrote is stored."""
    end = keys.timers_from(keys.LATER | view.now_ms + 1)
    return [key for key in view.set_later or () if key < end and _may_go_on(view, key)]


def _may_go_on(view: View, key: bytes) -> bool:
    if key[9:10] == keys.WAKE_JOB:
        state = view.get(keys.STATE + key[10:18], StateRecord)
        return state is not None and state.state != clockwork.DELETING
    return key[9:10] == keys.WAKE_BACKLOG


def _begin(view: View, *, later: bool) -> bytes:
    if later:
        return view.meta.later_from or keys.timers_from(keys.LATER)
    return view.meta.timers_from or keys.TIMER


def _mark(view: View, key: bytes, *, later: bool) -> None:
    """No timer of a line lies before a key, but for those that this decision has set."""
    if later:
        view.meta.later_from = min(key, view.first_later)
    else:
        view.meta.timers_from = min(key, view.first_timer)


def _ring_one(view: View, key: bytes) -> None:
    kind = key[9:10]
    if kind == keys.WAKE_JOB:
        _ring_job(view, int.from_bytes(key[10:18], "big"), key[1] >= LATER_BYTE)
    elif kind == keys.WAKE_RUN:
        _ring_run(view, *keys.run_of(key))
    elif kind == keys.WAKE_PURGE:
        _purge(view, *keys.run_of(key))
    else:
        _ring_rare(view, kind, key)


def _ring_rare(view: View, kind: bytes, key: bytes) -> None:
    if kind == keys.WAKE_UNIQUE:
        _free_unique(view, key)
    elif kind == keys.WAKE_SWEEP:
        sweep.ring(view, int.from_bytes(key[10:18], "big"))
    elif kind == keys.WAKE_ROOM:
        overlap.go_on(view, int.from_bytes(key[10:18], "big"))
    elif kind == keys.WAKE_BACKLOG:
        _ring_backlog(view, int.from_bytes(key[10:18], "big"))
    elif kind == keys.WAKE_RETURN:
        aside.ring(view, *keys.run_of(key))
    else:
        assert kind == keys.WAKE_FLOW, f"unknown timer {key!r}"
        flows.ring(view, *keys.run_of(key))


def due_now(view: View, most: int, *, later: bool) -> tuple[list[bytes], bool, bytes]:
    """Timers of one line that are due, oldest first; whether there are more; where those begin
    that are due later."""
    end = keys.timers_from((keys.LATER if later else 0) | view.now_ms + 1)
    first = _begin(view, later=later)
    due = list(islice(view.scan_stored(first, end), most + 1)) if first < end else []
    return due[:most], len(due) > most, end


def ring_one(view: View, request: RingOne, actor: str) -> None:
    """Do what one timer is for, unless it was moved or is gone."""
    if view.get_raw(request.timer) is not None:
        view.delete_raw(request.timer)
        _ring_one(view, request.timer)


def _read_ahead(view: View, due: list[bytes]) -> None:
    """Jobs that were made together ring together."""
    jids = sorted(key[10:18] for key in due if key[9:10] == keys.WAKE_JOB)
    view.read_ahead([keys.JOB + jid for jid in jids], JobRecord)
    view.read_ahead([keys.STATE + jid for jid in jids], StateRecord)


def _ring_job(view: View, jid: int, is_later: bool) -> None:
    key = keys.state(jid)
    state = view.need(key, StateRecord)
    state.timer_at_ms = 0
    if state.state == clockwork.BROKEN:
        view.put(key, state)
        return
    job = view.need(keys.job(jid), JobRecord)
    if 0 < state.delete_at_ms <= view.now_ms and clockwork.over(state):
        if not is_later:
            timers.set_job(view, jid, state, keys.LATER | view.now_ms)
            view.put(key, state)
            return
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
    if state.held and not _has_room(view, jid, state):
        # What is due now would replace a run that was not given the room that it came for.
        timers.set_job(view, jid, state, view.now_ms)
        view.put(key, state)
        return
    if state.state != clockwork.PAUSED:
        fire_due(view, jid, job, state)
    if state.ledger_purge_at_ms or not state.live:
        _plan_purge(view, jid, job, state)
    clockwork.settle(view, jid, state)
    view.put(key, state)


def _ring_backlog(view: View, jid: int) -> None:
    """It is the turn of a job's backlog, unless that is gone or waits for something else."""
    view.delete(keys.catch_up(jid))
    key = keys.state(jid)
    state = view.get(key, StateRecord)
    if state is None or not state.backlog or state.state != clockwork.ACTIVE:
        return
    job = view.need(keys.job(jid), JobRecord)
    if not state.held or _has_room(view, jid, state):
        backlog.release(view, jid, job, state)
        clockwork.go_on(view, jid, job, state)
    clockwork.settle(view, jid, state)
    view.put(key, state)


def _has_room(view: View, jid: int, state: StateRecord) -> bool:
    """Whether no run of a job waits for room, after another step of making it."""
    if overlap.waits_for_room(view, jid, state):
        overlap.go_on(view, jid)
    return not overlap.waits_for_room(view, jid, state)


def _plan_purge(view: View, jid: int, job: JobRecord, state: StateRecord) -> None:
    """Its ledger goes on with time, also when no run is there to take it along."""
    alone = not state.live and not state.last_occasion and ledger_purge.idle(state)
    if alone or 0 < state.ledger_purge_at_ms <= view.now_ms:
        ledger_purge.step(view, jid, job, state, limits.STEP)


def fire_due(view: View, jid: int, job: JobRecord, state: StateRecord) -> None:
    """Give every nominal time that is due its outcome: those of the schedules, then what was moved
    or added. What a decision has no time for is due in the next, in the same order. The caller
    settles and puts the state."""
    now_ms = view.now_ms
    grace_ms = job.form.grace_ms
    for done in range(limits.STEP):
        nominal_ms, due_ms = state.next_nominal_at_ms, state.next_due_at_ms
        if not nominal_ms or due_ms > now_ms:
            break
        if done and overlap.pauses(view, jid, state):
            return
        if due_ms + grace_ms < now_ms:
            _catch_up(view, jid, job, state)
            break
        if not outcomes.left_out(view, jid, job, state, nominal_ms):
            outcomes.fire(view, jid, job, state, nominal_ms, due_ms, outcomes.SCHEDULED)
        clockwork.advance(view, jid, job, state, nominal_ms)
    if not state.edits or overlap.waits_for_room(view, jid, state):
        return
    if _fire_edits(view, jid, job, state):
        clockwork.go_on(view, jid, job, state)


def _catch_up(view: View, jid: int, job: JobRecord, state: StateRecord) -> None:
    """Nominal times were missed: the misfire policy says which of them still run."""
    plan = clockwork.plan_of(view, jid, job)
    first = state.next_nominal_at_ms
    shift_ms = due(plan, 0)
    rule = job.form.spec.misfire.rule or Misfire.RULE_LATEST
    # What is late by less than the grace still runs when all others are missed.
    in_time_ms = job.form.grace_ms if rule == Misfire.RULE_SKIP else -1
    last = latest_nominal_before(plan, view.now_ms - in_time_ms - shift_ms) or first
    last = max(first, last)
    if job.form.max_runs:
        last = last_of_most(view, jid, job, state, plan, first, last)
    if rule == Misfire.RULE_SKIP:
        outcomes.pass_over(view, jid, state, plan, first, last, run_pb2.OUTCOME_MISSED)
    elif rule == Misfire.RULE_ALL:
        backlog.plan_all(view, jid, job, state, plan, first, last)
    elif rule == Misfire.RULE_EARLIEST:
        backlog.plan_one(view, jid, job, state, first, first + shift_ms)
        following = next_nominal(plan, first, last_end_ms=None)
        if following is not None and following <= last:
            outcomes.pass_over(view, jid, state, plan, following, last, run_pb2.OUTCOME_COALESCED)
    else:
        before = latest_nominal_before(plan, last)
        if before is not None and first <= before:
            outcomes.pass_over(view, jid, state, plan, first, before, run_pb2.OUTCOME_COALESCED)
        backlog.plan_one(view, jid, job, state, last, last + shift_ms)
    clockwork.advance(view, jid, job, state, last)


def last_of_most(
    view: View, jid: int, job: JobRecord, state: StateRecord, plan: Plan, first: int, last: int
) -> int:
    """The last of the missed nominal times that the most of runs has room for."""
    end = nth_nominal(plan, first, last, max(1, clockwork.runs_left(job, state, first)))
    own = ledger.own_entries(view, jid, state, first, last)
    behind = iter(nominal_times(plan, end + 1, last + 1, len(own)).times if own else ())
    for at_ms in own:
        # It ran before its time and was counted then.
        if at_ms <= end:
            end = next(behind, last)
    return end


def _fire_edits(view: View, jid: int, job: JobRecord, state: StateRecord) -> bool:
    """Fire the occurrences that somebody moved or added, as far as they are due; whether all."""
    for done, edit in enumerate(state.edits):
        if done and overlap.pauses(view, jid, state):
            # As long as one is due, the job's timer rings.
            return False
        due_ms = clockwork.edit_due(edit)
        if due_ms:
            if due_ms <= view.now_ms:
                outcomes.drop_edit(state, edit)
                if ledger.knows(view, jid, edit.nominal_at_ms):
                    # The schedules were changed, and those before or after had it as well.
                    continue
                plan = clockwork.plan_of(view, jid, job)
                ledger.take_out(view, jid, plan, edit.nominal_at_ms)
                outcomes.fire(view, jid, job, state, edit.nominal_at_ms, due_ms, outcomes.SCHEDULED)
                if edit.kind == Edit.KIND_ADD or not names(plan, edit.nominal_at_ms):
                    ledger.mark_added(view, jid, edit.nominal_at_ms)
                if 0 < job.form.max_runs <= state.fired:
                    # It was the last one, though the schedules name more.
                    state.next_nominal_at_ms = state.next_due_at_ms = 0
        elif edit.nominal_at_ms < min(state.next_nominal_at_ms or view.now_ms, view.now_ms):
            outcomes.drop_edit(state, edit)
    return True


def _ring_run(view: View, jid: int, occasion: int) -> None:
    key = keys.run(jid, occasion)
    run = view.need(key, RunRecord)
    rung_ms, run.timer_at_ms = run.timer_at_ms, 0
    job = view.need(keys.job(jid), JobRecord)
    now_ms = view.now_ms
    timeouts = job.form.spec.timeouts
    run_ms = ms_or(timeouts, "run", 0)
    if run_ms and run.ready_at_ms and run.ready_at_ms + run_ms <= now_ms:
        _fail(view, jid, occasion, run, "timeout.run", f"it had not ended after {run_ms} ms")
    elif run.state == runs.RUNNING:
        _ring_running(view, jid, occasion, run, job)
    elif run.held:
        _ring_held(view, jid, occasion, run, job, rung_ms)
    else:
        _ring_waiting(view, jid, occasion, run, job)


def _ring_running(view: View, jid: int, occasion: int, run: RunRecord, job: JobRecord) -> None:
    now_ms = view.now_ms
    heartbeat_ms = ms_or(job.form.spec.timeouts, "heartbeat", 0)
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
        runs.arm(view, jid, occasion, run, job.form)
        view.put(keys.run(jid, occasion), run)


def _attempt_over(
    view: View, jid: int, occasion: int, run: RunRecord, kind: str, message: str
) -> None:
    error = run_pb2.RunError(kind=kind, message=message)
    runs.stop(view, jid, occasion, run, LOST)
    attempt_failed(view, jid, occasion, run, Attempt.END_TIMED_OUT, error)


def _ring_waiting(view: View, jid: int, occasion: int, run: RunRecord, job: JobRecord) -> None:
    now_ms = view.now_ms
    queue_ms = ms_or(job.form.spec.timeouts, "queue", 0)
    started = run.started_at_ms
    if not started and queue_ms and run.ready_at_ms and run.ready_at_ms + queue_ms <= now_ms:
        _fail(view, jid, occasion, run, "timeout.queue", f"no worker took it within {queue_ms} ms")
    elif 0 < runs.start_deadline(run, job.form) <= now_ms:
        _skip_late(view, jid, occasion, run, job)
    elif 0 < run.retry_at_ms <= now_ms:
        runs.make_ready(view, jid, occasion, run, job.form)
        view.put(keys.run(jid, occasion), run)
    else:
        runs.arm(view, jid, occasion, run, job.form)
        view.put(keys.run(jid, occasion), run)


def _skip_late(view: View, jid: int, occasion: int, run: RunRecord, job: JobRecord) -> None:
    message = f"it had not started {job.form.start_deadline_ms} ms after its due time"
    outcome = run_pb2.OUTCOME_SKIPPED_DEADLINE
    overlap.drop(view, jid, occasion, run, outcome, "start_deadline", message)


def _ring_held(
    view: View, jid: int, occasion: int, run: RunRecord, job: JobRecord, rung_ms: int
) -> None:
    """A run that was triggered for later is due now, so the overlap policy judges it now; or one
    that is held back has waited for too long."""
    state_key = keys.state(jid)
    state = view.need(state_key, StateRecord)
    if 0 < runs.start_deadline(run, job.form) <= view.now_ms:
        _skip_late(view, jid, occasion, run, job)
        return
    if not _has_room(view, jid, state):
        if view.get(keys.run(jid, occasion), RunRecord) is not None:
            timers.set_run(view, jid, occasion, run, rung_ms)
            view.put(keys.run(jid, occasion), run)
        return
    if not run.held:
        # It had waited for room, or it gave way.
        return
    if rung_ms > run.due_at_ms and state.live > state.held:
        # It was judged, and its job has a later start deadline by now.
        runs.arm(view, jid, occasion, run, job.form)
        view.put(keys.run(jid, occasion), run)
        return
    # It does not stand in its own way.
    state.held -= 1
    state.live -= 1
    is_spared = run.spared & RunRecord.SPARED_OVERLAP
    verdict = overlap.GO if is_spared else overlap.judge(view, jid, state, job.form.spec, occasion)
    state.live += 1
    state.held += 1
    if verdict is overlap.SKIP:
        message = "the job's overlap policy allows no more runs at once"
        overlap.drop(view, jid, occasion, run, run_pb2.OUTCOME_SKIPPED_OVERLAP, "overlap", message)
        return
    waits = overlap.make_room(view, jid, state, verdict, occasion)
    if not waits:
        run.held = False
        state.held -= 1
        runs.make_ready(view, jid, occasion, run, job.form)
    else:
        runs.arm(view, jid, occasion, run, job.form)
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
