"""The life of a run outside its lease: it begins, becomes ready or is held back, and ends.

Every run under way is counted in its job's state and in its namespace's usage. Whatever ends a run
goes through `end`, which gives back all that the run held: its lease, its slots, its place in a
lane, its business key; and starts what waited for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...proto.v1 import job_pb2, run_pb2, worker_pb2
from ..core import limits
from ..core.instants import set_ms
from ..flows import waves
from ..model import former_specs, keys, policies, timers
from ..model.record import (
    JobRecord,
    RoomRecord,
    RunRecord,
    SessionRecord,
    StateRecord,
    UniqueRecord,
    UsageRecord,
    encode,
)
from ..model.specs import Form
from ..model.view import View
from ..occurrences import ledger, next_time
from ..tenants import namespaces, quota
from . import lanes, slots

PENDING = run_pb2.RUN_STATE_PENDING
RUNNING = run_pb2.RUN_STATE_RUNNING
RETRYING = run_pb2.RUN_STATE_RETRYING
SUCCEEDED = run_pb2.RUN_STATE_SUCCEEDED
FAILED = run_pb2.RUN_STATE_FAILED
CANCELLED = run_pb2.RUN_STATE_CANCELLED
SKIPPED = run_pb2.RUN_STATE_SKIPPED
Overlap = job_pb2.OverlapPolicy


def new(
    job: JobRecord,
    cause: run_pb2.Cause.ValueType,
    outcome: run_pb2.Outcome.ValueType,
    due_ms: int,
) -> RunRecord:
    return RunRecord(
        state=PENDING, cause=cause, outcome=outcome, due_at_ms=due_ms,
        lane=job.lane, priority=job.form.priority, action_version=job.action_version,
    )  # fmt: skip


def begin(
    view: View,
    jid: int,
    occasion: int,
    run: RunRecord,
    form: Form,
    state: StateRecord,
) -> None:
    """Add a run that the overlap policy let through, ready or held. The caller puts the state."""
    state.live += 1
    if state.live == 1 or occasion < state.live_from:
        state.live_from = occasion
    usage = view.usages.get(jid >> keys.SERIAL_BITS) or usage_of(view, jid)
    usage.live += 1
    if run.held:
        hold(view, jid, occasion, run, form, state)
    else:
        make_ready(view, jid, occasion, run, form)
    view.put(keys.run(jid, occasion), run)


def hold(
    view: View, jid: int, occasion: int, run: RunRecord, form: Form, state: StateRecord
) -> None:
    """Keep a run until it is due, or until there is room for it. The caller puts both records."""
    state.held += 1
    usage_of(view, jid).held += 1
    if run.due_at_ms > view.now_ms:
        run.held = RunRecord.HELD_FOR_DUE
        state.later += 1
        timers.set_run(view, jid, occasion, run, run.due_at_ms)
    else:
        if run.held != RunRecord.HELD_FOR_RESUME:
            run.held = RunRecord.HELD_FOR_ROOM
        arm(view, jid, occasion, run, form)


def let_go(view: View, jid: int, run: RunRecord, state: StateRecord) -> None:
    """Hold a run no more. The caller puts both records."""
    state.held -= 1
    usage_of(view, jid).held -= run.held > 1
    state.later -= run.held == RunRecord.HELD_FOR_DUE
    run.held = False


def is_room(state: StateRecord, job: JobRecord) -> bool:
    """Whether the overlap policy lets one more run of a job be under way beside the others."""
    under_way = state.live - state.held
    policy = job.form.spec.overlap
    rule = policy.rule
    if rule == Overlap.RULE_UNSPECIFIED:
        rule = Overlap.RULE_SKIP if job.schedules else Overlap.RULE_ALLOW
    if rule == Overlap.RULE_ALLOW:
        return not policy.limit or under_way < policy.limit
    return under_way < ((policy.limit or 1) if rule == Overlap.RULE_SKIP else 1)


def make_ready(view: View, jid: int, occasion: int, run: RunRecord, form: Form) -> None:
    """Let workers have a run from now on. The caller puts the run."""
    run.state = PENDING
    run.retry_at_ms = 0
    lanes.enter(view, jid, occasion, run)
    arm(view, jid, occasion, run, form)


def arm(view: View, jid: int, occasion: int, run: RunRecord, form: Form) -> None:
    """Set a run's timer to the first thing that may happen to it. The caller puts the run."""
    at_ms = 0
    if run.state == RETRYING or run.retry_at_ms:
        at_ms = run.retry_at_ms
    if form.has_timeouts:
        at_ms = timers.earliest(at_ms, policies.next_timeout(run, form.spec.timeouts))
    if run.state == RUNNING:
        at_ms = timers.earliest(at_ms, run.deadline_at_ms, run.cancel_at_ms)
    elif form.start_deadline_ms < limits.INSTANT_MAX_MS:
        at_ms = timers.earliest(at_ms, start_deadline(run, form))
    if at_ms != run.timer_at_ms:
        timers.set_run(view, jid, occasion, run, at_ms)


def start_deadline(run: RunRecord, form: Form) -> int:
    """When a run is skipped for not having started; 0 if it has, or somebody wants it however late
    it is."""
    wanted = run.cause == run_pb2.CAUSE_BACKFILL or run.spared & RunRecord.SPARED_DEADLINE
    return 0 if run.started_at_ms or wanted else run.due_at_ms + form.start_deadline_ms


def end(
    view: View,
    jid: int,
    occasion: int,
    run: RunRecord,
    run_state: run_pb2.RunState.ValueType,
) -> None:
    """End a run: give back what it held, remember it, start what waited for it."""
    now_ms = view.now_ms
    state_key = keys.state(jid)
    state = view.need(state_key, StateRecord)
    usage = view.usages.get(jid >> keys.SERIAL_BITS) or usage_of(view, jid)
    if run.state == RUNNING:
        slots.release(view, jid, run, state, usage)
    elif run.turn_ms:
        lanes.leave(view, jid, occasion, run)
    if state.parked or run.limit_key:
        slots.let_in(view, jid, run, state)
    if run.held:
        let_go(view, jid, run, state)
    if not (run.made_in or run.started_at_ms) and _is_new(view, jid, occasion):
        # It leaves no other trace of having begun, of which watchers are told.
        run.made_in = view.base + 1
    run.state = run_state
    run.ended_at_ms = now_ms
    run.retry_at_ms = run.cancel_at_ms = run.deadline_at_ms = run.heard_at_ms = 0
    if run.timer_at_ms:
        timers.set_run(view, jid, occasion, run, 0)
    view.delete(keys.run(jid, occasion))
    usage.live -= 1
    if usage.in_line:
        namespaces.wake_line(view, jid >> keys.SERIAL_BITS, usage)
    state.live -= 1
    if state.former:
        former_specs.ended(view, jid, run, state)
    if run_state == SUCCEEDED:
        state.succeeded += 1
    elif run_state == FAILED:
        state.failed += 1
    elif run_state == SKIPPED:
        state.skipped += 1
    state.last_occasion = occasion
    state.last_state = run_state
    state.last_end_at_ms = now_ms
    if run.unique_key:
        _release_unique(view, jid, occasion, run)
    remember(view, jid, occasion, run, state)
    if run.flow_jid or state.has_downstream:
        waves.run_ended(view, jid, occasion, run, state)
    if state.live:
        if occasion == state.live_from:
            # What lies between is gone, and scans need not walk over it.
            state.live_from = _first_live(view, jid, occasion)
        if state.held > state.later:
            job = view.need(keys.job(jid), JobRecord)
            if is_room(state, job):
                release_held(view, jid, state, job)
    else:
        state.live_from = 0
    if state.backlog or state.after_end or state.delete_after_ms is not None:
        next_time.run_ended(view, jid, state)
    view.put(state_key, state)


def _is_new(view: View, jid: int, occasion: int) -> bool:
    """Whether a run began in this decision."""
    return view.stored.get(keys.run(jid, occasion)) is None


def _first_live(view: View, jid: int, occasion: int) -> int:
    key = next(view.scan(keys.run(jid, occasion + 1), keys.run(jid, keys.OCCASION_MAX)), None)
    return keys.run_of(key)[1] if key else occasion


def remember(view: View, jid: int, occasion: int, run: RunRecord, state: StateRecord) -> None:
    """Put a run that has ended into the history, until it is purged."""
    if run.state == FAILED:
        view.put_raw(keys.dead(keys.namespace_of(jid), run.ended_at_ms, jid, occasion))
        usage_of(view, jid).dead += 1
    at_ms = run.purge_at_ms = purge_at(view, jid, run, state)
    view.put_timer(keys.purge_timer(at_ms, jid, occasion))
    view.put_encoded(keys.ended(jid, occasion), encode(run))


def purge_at(view: View, jid: int, run: RunRecord, state: StateRecord) -> int:
    """When a run that has ended leaves the history, as its job and its namespace say now."""
    kept = view.keeps.get(jid >> keys.SERIAL_BITS) or namespaces.keep_times(view, jid)
    well_ms, failed_ms = kept
    return run.ended_at_ms + (failed_ms if run.state == FAILED else state.keep_ms or well_ms)


def purge(view: View, jid: int, occasion: int) -> bool:
    """Its time in the history is over, unless it is to be kept for longer by now."""
    key = keys.ended(jid, occasion)
    run = view.need(key, RunRecord)
    at_ms = purge_at(view, jid, run, view.need(keys.state(jid), StateRecord))
    if at_ms > view.now_ms:
        run.purge_at_ms = at_ms
        view.put_timer(keys.purge_timer(at_ms, jid, occasion))
        view.put(key, run)
        return False
    forget(view, jid, occasion, run)
    return True


def forget(view: View, jid: int, occasion: int, run: RunRecord) -> None:
    """Take a run that has ended out of the history."""
    view.delete(keys.ended(jid, occasion))
    view.delete(keys.purge_timer(run.purge_at_ms, jid, occasion))
    if run.state == FAILED:
        view.delete(keys.dead(keys.namespace_of(jid), run.ended_at_ms, jid, occasion))
        usage_of(view, jid).dead -= 1


def release_held(
    view: View, jid: int, state: StateRecord, job: JobRecord, first: int | None = None,
    *, in_turn: bool = False,
) -> bool:  # fmt: skip
    """There is room: the first run that was held back for it is ready, or the one that goes before
    the others. While room is being made for a run, none is. Whether one is."""
    if jid in view.rooms or view.get(keys.room(jid), RoomRecord) is not None:
        return False
    usage = usage_of(view, jid)
    if not in_turn and quota.is_taken(view, usage, job.namespace):
        quota.wait(view, jid, state, usage)
        return False
    if first is not None and _release(view, jid, first, job, state):
        return True
    late = 0
    for occasion in not_for_later(view, jid, job.form.spec, state):
        if _release(view, jid, occasion, job, state):
            return True
        run = view.get(keys.run(jid, occasion), RunRecord)
        late += run is not None and run.held and run.due_at_ms <= view.now_ms
        if late == limits.STEP:
            # Their timers end them, and each end looks again.
            return False
    return False


def look_at_held(view: View, jid: int, state: StateRecord) -> None:
    """There may be more room for runs of a job than before: let them go, as soon as what is due has
    been done."""
    if state.held > state.later:
        view.put_later(keys.held_timer(keys.LATER | view.now_ms, jid))


def ring_held(view: View, jid: int) -> None:
    """Let some more runs of a job go for which there is room."""
    key = keys.state(jid)
    state = view.get(key, StateRecord)
    if state is None:
        return
    job = view.need(keys.job(jid), JobRecord)
    for done in range(limits.STEP + 1):
        if state.held <= state.later or not is_room(state, job):
            break
        if done == limits.STEP or (done and view.is_full):
            look_at_held(view, jid, state)
            break
        if not release_held(view, jid, state, job):
            break
    view.put(key, state)


def serve_line(view: View, namespace: int) -> None:
    """Let each of those in line for the quota have a run, as long as there is room."""
    usage = usage_of(view, namespace << keys.SERIAL_BITS)
    usage.line_timer_ms = 0
    for done, jid in enumerate(quota.first_in_line(view, namespace)):
        job, key = view.need(keys.job(jid), JobRecord), keys.state(jid)
        if quota.is_full(view, usage, job.namespace):
            # The next end serves the line.
            return
        if done and view.is_full:
            break
        state = view.need(key, StateRecord)
        quota.leave(view, jid, state, usage)
        _take_turn(view, jid, state, job)
        view.put(key, state)
    namespaces.wake_line(view, namespace, usage)


def _take_turn(view: View, jid: int, state: StateRecord, job: JobRecord) -> None:
    """One run of a job that is held goes, and then the job stands behind the others; without any
    its backlog goes on."""
    may_go = state.held > state.later and is_room(state, job)
    if may_go and release_held(view, jid, state, job, in_turn=True):
        if state.backlog or (state.held > state.later and is_room(state, job)):
            quota.wait(view, jid, state, usage_of(view, jid))
        return
    if state.backlog and not state.backlog[0].release_at_ms:
        state.backlog[0].release_at_ms = view.now_ms
        next_time.settle(view, jid, state)


def not_for_later(view: View, jid: int, spec: job_pb2.JobSpec, state: StateRecord) -> Iterator[int]:
    """Yield where the runs of a job under way stand, oldest first, less those that were triggered
    for later where there may be many of these: they stand at the instants at which they are due."""
    now = keys.occasion_of(view.now_ms + 1)
    for key in view.scan(keys.run(jid, state.live_from), keys.run(jid, now)):
        yield keys.run_of(key)[1]
    if spec.upstream.jobs or view.get_raw(keys.SET_BACK) is not None:
        # Steps stand where their wave began, which may lie ahead, as all may where time went back.
        for key in view.scan(keys.run(jid, now), keys.run(jid, keys.OCCASION_MAX)):
            yield keys.run_of(key)[1]
        return
    # Of others only those run already that were moved to before their time.
    for at_ms in ledger.own_entries(view, jid, state, view.now_ms + 1, state.last_scheduled_at_ms):
        if view.get(keys.run(jid, keys.occasion_of(at_ms)), RunRecord) is not None:
            yield keys.occasion_of(at_ms)


def _release(view: View, jid: int, occasion: int, job: JobRecord, state: StateRecord) -> bool:
    """Let a run go on that was held back, unless it is too late for it; then its timer, which rings
    now, ends it. Whether it goes on."""
    key = keys.run(jid, occasion)
    run = view.get(key, RunRecord)
    if run is None or not run.held or run.due_at_ms > view.now_ms:
        return False
    if run.held in (RunRecord.HELD_FOR_DUE, RunRecord.HELD_FOR_RESUME):
        # Its timer rings now, or its job is paused.
        return False
    if 0 < start_deadline(run, job.form) <= view.now_ms:
        if not 0 < run.timer_at_ms <= view.now_ms:
            arm(view, jid, occasion, run, job.form)
            view.put(key, run)
        return False
    let_go(view, jid, run, state)
    make_ready(view, jid, occasion, run, job.form)
    view.put(key, run)
    return True


def cancel(
    view: View, jid: int, occasion: int, run: RunRecord, message: str, grace_ms: int
) -> None:
    """End a run that waits; ask the worker of a running one, and end it after the grace."""
    if run.state != RUNNING:
        run.error = run_pb2.RunError(kind="cancelled", message=message)
        end(view, jid, occasion, run, CANCELLED)
        return
    if not run.cancel_at_ms:
        run.error = run_pb2.RunError(kind="cancelled", message=message)
        view.edit(keys.session(run.worker), SessionRecord).cancels += 1
    run.cancel_at_ms = timers.earliest(run.cancel_at_ms, view.now_ms + grace_ms)
    stop(view, jid, occasion, run, worker_pb2.Stop.KIND_CANCEL)
    timers.set_run(view, jid, occasion, run, timers.earliest(run.timer_at_ms, run.cancel_at_ms))
    view.put(keys.run(jid, occasion), run)


def stop(
    view: View, jid: int, occasion: int, run: RunRecord, kind: worker_pb2.Stop.Kind.ValueType
) -> None:
    """Have the worker of a running attempt told to stop; call it before the lease is dropped."""
    if run.state == RUNNING:
        view.stops.append((run.worker, stop_word(view, jid, occasion, run, kind)))


def stop_word(
    view: View, jid: int, occasion: int, run: RunRecord, kind: worker_pb2.Stop.Kind.ValueType
) -> worker_pb2.Stop:
    job = view.need(keys.job(jid), JobRecord)
    word = worker_pb2.Stop(
        token=run.token, run=keys.run_id(job.name, jid, occasion), kind=kind,
        message=run.error.message if run.error else "",
    )  # fmt: skip
    if kind == worker_pb2.Stop.KIND_CANCEL:
        set_ms(word.deadline, run.cancel_at_ms)
    return word


def live_of(view: View, jid: int, state: StateRecord, most: int) -> list[tuple[int, RunRecord]]:
    """Runs of a job that are under way, oldest first."""
    found: list[tuple[int, RunRecord]] = []
    if state.live:
        for key in view.scan(keys.run(jid, state.live_from), keys.run(jid, keys.OCCASION_MAX)):
            found.append((keys.run_of(key)[1], view.need(key, RunRecord)))
            if len(found) == min(most, state.live):
                break
    return found


def usage_of(view: View, jid: int) -> UsageRecord:
    """The usage of a job's namespace, to be changed: it is put already."""
    namespace = jid >> keys.SERIAL_BITS
    usage = view.usages.get(namespace)
    if usage is None:
        key = keys.usage(namespace)
        usage = view.get(key, UsageRecord) or UsageRecord()
        view.put(key, usage)
        view.usages[namespace] = usage
    return usage


def free_occasion(view: View, jid: int, state: StateRecord, scheduled_ms: int) -> int:
    """A place for a run that no schedule fires. The caller puts the state."""
    for _ in range(0xFFFF):
        state.serial = state.serial % 0xFFFF + 1
        occasion = keys.occasion_of(scheduled_ms, state.serial)
        live = view.get(keys.run(jid, occasion), RunRecord)
        if live is None and view.get(keys.ended(jid, occasion), RunRecord) is None:
            return occasion
    raise AssertionError(f"job {jid} has 65,535 runs in the millisecond {scheduled_ms}")


def _release_unique(view: View, jid: int, occasion: int, run: RunRecord) -> None:
    key = keys.unique(jid, run.unique_key)
    held = view.get(key, UniqueRecord)
    if held is None or held.occasion != occasion:
        # A newer run has replaced this one, which ended only now.
        return
    if not run.unique_hold_ms:
        view.delete(key)
        return
    held.until_ms = view.now_ms + run.unique_hold_ms
    view.put_timer(keys.unique_timer(held.until_ms, jid, run.unique_key))
    view.put(key, held)
