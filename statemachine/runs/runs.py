"""The life of a run outside its lease: it is made, held back and let go on, cancelled, and ends.

Whatever ends a run goes through `end`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...proto.v1 import job_pb2, run_pb2, worker_pb2
from ..core import limits
from ..core.instants import set_ms
from ..model import former_specs, keys, timers
from ..model.phases import CANCELLED, HELD, LEASED, READY, STATES, WAITING
from ..model.record import (
    JobRecord,
    RoomRecord,
    RunRecord,
    SessionRecord,
    StateRecord,
    UniqueRecord,
)
from ..model.view import View
from ..occurrences import ledger, next_time
from ..tenants import namespaces, quota
from . import admission
from .move import move
from .timeouts import arm, start_deadline

Overlap = job_pb2.OverlapPolicy


def new(
    job: JobRecord,
    cause: run_pb2.Cause.ValueType,
    outcome: run_pb2.Outcome.ValueType,
    due_ms: int,
) -> RunRecord:
    return RunRecord(
        cause=cause, outcome=outcome, due_at_ms=due_ms,
        lane=job.lane, priority=job.template.priority, action_version=job.action_version,
    )  # fmt: skip


def is_room(state: StateRecord, job: JobRecord) -> bool:
    """Whether the overlap policy lets one more run of a job be under way beside the others."""
    under_way = state.live - state.held
    policy = job.template.spec.overlap
    rule = policy.rule
    if rule == Overlap.RULE_UNSPECIFIED:
        rule = Overlap.RULE_SKIP if job.schedules else Overlap.RULE_ALLOW
    if rule == Overlap.RULE_ALLOW:
        return not policy.limit or under_way < policy.limit
    return under_way < ((policy.limit or 1) if rule == Overlap.RULE_SKIP else 1)


def end(view: View, jid: int, occurrence: int, run: RunRecord, to: int) -> None:
    """End a run. What waited for that is an effect (firing/effects.py)."""
    state_key = keys.state(jid)
    state = view.need(state_key, StateRecord)
    if not (run.made_in or run.started_at_ms) and _is_new(view, jid, occurrence):
        # It leaves no other trace of having begun, that watchers would see.
        run.made_in = view.base + 1
    move(view, jid, occurrence, run, to, state)
    if state.parked or run.limit_key:
        admission.has_left(view, jid, run, state)
    usage = view.usages[jid >> keys.SERIAL_BITS]
    if usage.quota_waits:
        namespaces.wake_quota(view, jid >> keys.SERIAL_BITS, usage)
    if state.former:
        former_specs.ended(view, jid, run, state)
    state.last_occurrence = occurrence
    state.last_state = STATES[to]
    state.last_end_at_ms = view.now_ms
    if run.unique_key:
        _release_unique(view, jid, occurrence, run)
    if not state.live:
        state.live_from = 0
    elif occurrence == state.live_from:
        # What lies between is gone, and scans need not walk over it.
        state.live_from = _first_live(view, jid, occurrence)
    view.put(state_key, state)
    is_over = state.delete_after_ms is not None and not state.live
    if is_over or run.flow_jid or state.held > state.later or state.backlog or state.after_end:
        view.note_end(jid, occurrence, run)


def _is_new(view: View, jid: int, occurrence: int) -> bool:
    """Whether a run began in this decision."""
    return view.stored.get(keys.run(jid, occurrence)) is None


def _first_live(view: View, jid: int, occurrence: int) -> int:
    key = next(view.scan(keys.run(jid, occurrence + 1), keys.run(jid, keys.OCCURRENCE_MAX)), None)
    return keys.run_of(key)[1] if key else occurrence


def release_held(
    view: View, jid: int, state: StateRecord, job: JobRecord, first: int | None = None,
    *, is_served: bool = False,
) -> bool:  # fmt: skip
    """There is room: the first run that was held back for it is ready, or the one that goes before
    the others. While room is being made for a run, none is. Whether one is."""
    if view.get(keys.room(jid), RoomRecord) is not None:
        return False
    usage = namespaces.usage_of(view, jid)
    if not is_served and quota.is_taken(view, usage, job.namespace):
        quota.wait(view, jid, state, usage)
        return False
    if first is not None and _release(view, jid, first, job, state):
        return True
    late = 0
    for occurrence in not_for_later(view, jid, job.template.spec, state):
        if _release(view, jid, occurrence, job, state):
            return True
        run = view.get(keys.run(jid, occurrence), RunRecord)
        late += run is not None and run.phase in WAITING and run.due_at_ms <= view.now_ms
        if late == limits.STEP:
            # Their timers end them, and each end looks again.
            return False
    return False


def let_held_go(view: View, jid: int, state: StateRecord) -> None:
    """A run has ended: one that is held goes on if there is room. The caller puts the state."""
    if state.held > state.later:
        job = view.need(keys.job(jid), JobRecord)
        if is_room(state, job):
            release_held(view, jid, state, job)


def look_at_held(view: View, jid: int, state: StateRecord) -> None:
    """There may be more room for runs of a job than before: let them go, as soon as what is due has
    been done."""
    if state.held > state.later:
        view.put_later(keys.held_timer(keys.LATER | view.now_ms, jid))


def wake_held(view: View, jid: int) -> None:
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


def serve_quota(view: View, namespace: int) -> None:
    """Let each of those that wait for the quota have a run, as long as there is room."""
    usage = namespaces.usage_of(view, namespace << keys.SERIAL_BITS)
    usage.quota_timer_ms = 0
    for done, jid in enumerate(quota.first_waiting(view, namespace)):
        job, key = view.need(keys.job(jid), JobRecord), keys.state(jid)
        if quota.is_full(view, usage, job.namespace):
            # The next end serves the others.
            return
        if done and view.is_full:
            break
        state = view.need(key, StateRecord)
        quota.leave(view, jid, state, usage)
        _serve_one(view, jid, state, job)
        view.put(key, state)
    namespaces.wake_quota(view, namespace, usage)


def _serve_one(view: View, jid: int, state: StateRecord, job: JobRecord) -> None:
    """One run of a job that is held goes, and then the job stands behind the others; without any
    its backlog goes on."""
    may_go = state.held > state.later and is_room(state, job)
    if may_go and release_held(view, jid, state, job, is_served=True):
        if state.backlog or (state.held > state.later and is_room(state, job)):
            quota.wait(view, jid, state, namespaces.usage_of(view, jid))
        return
    if state.backlog and not state.backlog[0].release_at_ms:
        state.backlog[0].release_at_ms = view.now_ms
        next_time.reschedule(view, jid, state)


def not_for_later(view: View, jid: int, spec: job_pb2.JobSpec, state: StateRecord) -> Iterator[int]:
    """Yield where the runs of a job under way stand, oldest first, less those that were triggered
    for later where there may be many of these: they stand at the instants at which they are due."""
    now = keys.occurrence_of(view.now_ms + 1)
    for key in view.scan(keys.run(jid, state.live_from), keys.run(jid, now)):
        yield keys.run_of(key)[1]
    if spec.upstream.jobs or view.get_raw(keys.SET_BACK) is not None:
        # Steps stand where their wave began, which may lie ahead, as all may where time went back.
        for key in view.scan(keys.run(jid, now), keys.run(jid, keys.OCCURRENCE_MAX)):
            yield keys.run_of(key)[1]
        return
    # Of others only those run already that were moved to before their time.
    for at_ms in ledger.own_entries(view, jid, state, view.now_ms + 1, state.last_scheduled_at_ms):
        if view.get(keys.run(jid, keys.occurrence_of(at_ms)), RunRecord) is not None:
            yield keys.occurrence_of(at_ms)


def _release(view: View, jid: int, occurrence: int, job: JobRecord, state: StateRecord) -> bool:
    """Let a run go on that was held back, unless it is too late for it; then its timer, which fires
    now, ends it. Whether it goes on."""
    key = keys.run(jid, occurrence)
    run = view.get(key, RunRecord)
    if run is None or run.phase != HELD:
        return False
    if 0 < start_deadline(run, job.template) <= view.now_ms:
        if not 0 < run.timer_at_ms <= view.now_ms:
            arm(view, jid, occurrence, run, job.template)
            view.put(key, run)
        return False
    move(view, jid, occurrence, run, READY, state, job.template)
    return True


def cancel(
    view: View, jid: int, occurrence: int, run: RunRecord, message: str, grace_ms: int
) -> None:
    """End a run that waits; ask the worker of a running one, and end it after the grace."""
    if run.phase != LEASED:
        run.error = run_pb2.RunError(kind="cancelled", message=message)
        end(view, jid, occurrence, run, CANCELLED)
        return
    if not run.cancel_at_ms:
        run.error = run_pb2.RunError(kind="cancelled", message=message)
        view.edit(keys.session(run.worker), SessionRecord).cancels += 1
    run.cancel_at_ms = timers.earliest(run.cancel_at_ms, view.now_ms + grace_ms)
    stop(view, jid, occurrence, run, worker_pb2.Stop.KIND_CANCEL)
    timers.set_run(view, jid, occurrence, run, timers.earliest(run.timer_at_ms, run.cancel_at_ms))
    view.put(keys.run(jid, occurrence), run)


def stop(
    view: View, jid: int, occurrence: int, run: RunRecord, kind: worker_pb2.Stop.Kind.ValueType
) -> None:
    """Ask the worker of a running attempt to stop; call it before the lease is dropped."""
    if run.phase == LEASED:
        view.stops.append((run.worker, stop_word(view, jid, occurrence, run, kind)))


def stop_word(
    view: View, jid: int, occurrence: int, run: RunRecord, kind: worker_pb2.Stop.Kind.ValueType
) -> worker_pb2.Stop:
    job = view.need(keys.job(jid), JobRecord)
    word = worker_pb2.Stop(
        token=run.token, run=keys.run_id(job.name, jid, occurrence), kind=kind,
        message=run.error.message if run.error else "",
    )  # fmt: skip
    if kind == worker_pb2.Stop.KIND_CANCEL:
        set_ms(word.deadline, run.cancel_at_ms)
    return word


def live_of(view: View, jid: int, state: StateRecord, most: int) -> list[tuple[int, RunRecord]]:
    """Runs of a job that are under way, oldest first."""
    found: list[tuple[int, RunRecord]] = []
    if state.live:
        for key in view.scan(keys.run(jid, state.live_from), keys.run(jid, keys.OCCURRENCE_MAX)):
            found.append((keys.run_of(key)[1], view.need(key, RunRecord)))
            if len(found) == min(most, state.live):
                break
    return found


def free_occurrence(view: View, jid: int, state: StateRecord, scheduled_ms: int) -> int:
    """A place for a run that no schedule fires. The caller puts the state."""
    for _ in range(0xFFFF):
        state.serial = state.serial % 0xFFFF + 1
        occurrence = keys.occurrence_of(scheduled_ms, state.serial)
        live = view.get(keys.run(jid, occurrence), RunRecord)
        if live is None and view.get(keys.ended(jid, occurrence), RunRecord) is None:
            return occurrence
    raise AssertionError(f"job {jid} has 65,535 runs in the millisecond {scheduled_ms}")


def _release_unique(view: View, jid: int, occurrence: int, run: RunRecord) -> None:
    key = keys.unique(jid, run.unique_key)
    held = view.get(key, UniqueRecord)
    if held is None or held.occurrence != occurrence:
        # A newer run has replaced this one, which ended only now.
        return
    if not run.unique_hold_ms:
        view.delete(key)
        return
    held.until_ms = view.now_ms + run.unique_hold_ms
    view.put_timer(keys.unique_timer(held.until_ms, jid, run.unique_key))
    view.put(key, held)
