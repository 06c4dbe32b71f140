"""The life of a run outside its lease: it is made, held back and let go on, cancelled, and ends.

Whatever ends a run goes through `end_as`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ...proto.v1 import job_pb2, run_pb2, worker_pb2
from ..core import limits
from ..core.instants import set_ms
from ..model import answers, former_specs, keys, timers
from ..model.entities import Job, Run
from ..model.phases import CANCELLED, FAILED, HELD, LEASED, READY, STATES, WAITING
from ..model.record import (
    RoomRecord,
    RunRecord,
    SessionRecord,
    UniqueRecord,
)
from ..model.view import View
from ..occurrences import ledger, next_time
from ..tenants import namespaces, quota
from . import admission, move
from .timeouts import arm, start_deadline

Overlap = job_pb2.OverlapPolicy


def new(
    job: Job,
    occurrence: int,
    cause: run_pb2.Cause.ValueType,
    outcome: run_pb2.Outcome.ValueType,
    due_ms: int,
) -> Run:
    """A run that is not under way yet."""
    of = job.definition
    record = RunRecord(
        cause=cause, outcome=outcome, due_at_ms=due_ms,
        lane=of.lane, priority=of.template.priority, action_version=of.action_version,
    )  # fmt: skip
    return Run(job, job.jid, occurrence, record, keys.run(job.jid, occurrence))


def is_room(job: Job) -> bool:
    """Whether the overlap policy lets one more run of a job be under way beside the others."""
    under_way = job.state.live - job.state.held
    policy = job.definition.template.spec.overlap
    rule = policy.rule
    if rule == Overlap.RULE_UNSPECIFIED:
        rule = Overlap.RULE_SKIP if job.definition.schedules else Overlap.RULE_ALLOW
    if rule == Overlap.RULE_ALLOW:
        return not policy.limit or under_way < policy.limit
    return under_way < ((policy.limit or 1) if rule == Overlap.RULE_SKIP else 1)


def end(view: View, run: Run, to: int) -> None:
    """End a run. What waited for that is an effect (firing/effects.py)."""
    end_as(view, run, view.end_run(run), to)


def end_as(view: View, run: Run, record: RunRecord, to: int) -> None:
    """The same for one whose record was taken for that, to state how it ended."""
    job = run.job
    if not (record.made_in or record.started_at_ms) and _is_new(view, run):
        # It leaves no other trace of having begun, that watchers would see.
        record.made_in = view.base + 1
    triggers = to == FAILED and bool(job.definition.template.on_failure)
    if triggers:
        # What comes of that is an effect, and stands beside the record.
        record.exempt |= RunRecord.CARRIES
    state = move.end(view, run, record, to)
    if state.parked or record.limit_key:
        admission.has_left(view, run)
    usage = view.usages[job.namespace]
    if usage.quota_waits:
        namespaces.wake_quota(view, job.namespace, usage)
    if state.former:
        former_specs.ended(view, run)
    state.last_occurrence = run.occurrence
    state.last_state = STATES[to]
    state.last_end_at_ms = view.now_ms
    if record.unique_key:
        _release_unique(view, run)
    if not state.live:
        state.live_from = 0
    elif run.occurrence == state.live_from:
        # What lies between is gone, and scans need not walk over it.
        state.live_from = _first_live(view, run)
    is_over = state.delete_after_ms is not None and not state.live
    is_over = is_over or triggers or job.definition.template.pause_on_failure > 0
    if is_over or record.flow_jid or state.held > state.later or state.backlog or state.after_end:
        view.note_end(run)


def _is_new(view: View, run: Run) -> bool:
    """Whether a run began in this decision."""
    return view.stored.get(run.key) is None


def _first_live(view: View, run: Run) -> int:
    first, end = keys.run(run.jid, run.occurrence + 1), keys.run(run.jid, keys.OCCURRENCE_MAX)
    key = next(view.scan(first, end), None)
    return keys.run_of(key)[1] if key else run.occurrence


def release_held(
    view: View, job: Job, first: int | None = None,
    *, is_served: bool = False,
) -> bool:  # fmt: skip
    """There is room: the first run that was held back for it is ready, or the one that goes before
    the others. While room is being made for a run, none is. Whether one is."""
    if view.get(keys.room(job.jid), RoomRecord) is not None:
        return False
    usage = namespaces.usage_of(view, job.jid)
    if not is_served and quota.is_taken(view, usage, job.definition.namespace):
        quota.wait(view, job, usage)
        return False
    if first is not None and _release(view, job, first):
        return True
    late = 0
    for occurrence in not_for_later(view, job):
        if _release(view, job, occurrence):
            return True
        run = view.find_run((job.jid, occurrence))
        late += run is not None and _is_late(view, run.record)
        if late == limits.STEP:
            # Their timers end them, and each end looks again.
            return False
    return False


def _is_late(view: View, record: RunRecord) -> bool:
    return record.phase in WAITING and record.due_at_ms <= view.now_ms


def let_held_go(view: View, job: Job) -> None:
    """A run has ended: one that is held goes on if there is room."""
    if job.state.held > job.state.later and is_room(job):
        release_held(view, job)


def look_at_held(view: View, job: Job) -> None:
    """There may be more room for runs of a job than before: let them go, as soon as what is due has
    been done."""
    if job.state.held > job.state.later:
        view.put_later(keys.held_timer(keys.LATER | view.now_ms, job.jid))


def wake_held(view: View, jid: int) -> None:
    """Let some more runs of a job go for which there is room."""
    job = view.find_job(jid)
    if job is None:
        return
    state = view.change_state(job)
    for done in range(limits.STEP + 1):
        if state.held <= state.later or not is_room(job):
            break
        if done == limits.STEP or (done and view.is_full):
            look_at_held(view, job)
            break
        if not release_held(view, job):
            break


def serve_quota(view: View, namespace: int) -> None:
    """Let each of those that wait for the quota have a run, as long as there is room."""
    usage = namespaces.usage_of(view, namespace << keys.SERIAL_BITS)
    usage.quota_timer_ms = 0
    for done, jid in enumerate(quota.first_waiting(view, namespace)):
        job = view.job(jid)
        if quota.is_full(view, usage, job.definition.namespace):
            # The next end serves the others.
            return
        if done and view.is_full:
            break
        quota.leave(view, job, usage)
        _serve_one(view, job)
    namespaces.wake_quota(view, namespace, usage)


def _serve_one(view: View, job: Job) -> None:
    """One run of a job that is held goes, and then the job stands behind the others; without any
    its backlog goes on."""
    state = job.state
    may_go = state.held > state.later and is_room(job)
    if may_go and release_held(view, job, is_served=True):
        if state.backlog or (state.held > state.later and is_room(job)):
            quota.wait(view, job, namespaces.usage_of(view, job.jid))
        return
    if state.backlog and not state.backlog[0].release_at_ms:
        view.change_state(job).backlog[0].release_at_ms = view.now_ms
        next_time.reschedule(view, job)


def not_for_later(view: View, job: Job) -> Iterator[int]:
    """Yield where the runs of a job under way stand, oldest first, less those that were triggered
    for later where there may be many of these: they stand at the instants at which they are due."""
    now = keys.occurrence_of(view.now_ms + 1)
    for key in view.scan(keys.run(job.jid, job.state.live_from), keys.run(job.jid, now)):
        yield keys.run_of(key)[1]
    if job.definition.template.spec.upstream.jobs or view.get_raw(keys.SET_BACK) is not None:
        # Steps stand where their wave began, which may lie ahead, as all may where time went back.
        for key in view.scan(keys.run(job.jid, now), keys.run(job.jid, keys.OCCURRENCE_MAX)):
            yield keys.run_of(key)[1]
        return
    # Of others only those run already that were moved to before their time.
    for at_ms in ledger.own_entries(view, job, view.now_ms + 1, job.state.last_scheduled_at_ms):
        if view.find_run((job.jid, keys.occurrence_of(at_ms))) is not None:
            yield keys.occurrence_of(at_ms)


def _release(view: View, job: Job, occurrence: int) -> bool:
    """Let a run go on that was held back, unless it is too late for it; then its timer, which fires
    now, ends it. Whether it goes on."""
    run = view.find_run((job.jid, occurrence))
    if run is None or run.record.phase != HELD:
        return False
    if 0 < start_deadline(run) <= view.now_ms:
        if not 0 < run.record.timer_at_ms <= view.now_ms:
            arm(view, run)
            view.change_run(run)
        return False
    move.move(view, run, READY)
    return True


def cancel(view: View, run: Run, message: str, grace_ms: int) -> None:
    """End a run that waits; ask the worker of a running one, and end it after the grace."""
    if run.record.phase != LEASED:
        record = view.end_run(run)
        record.error = run_pb2.RunError(kind="cancelled", message=message)
        end_as(view, run, record, CANCELLED)
        return
    record = view.change_run(run)
    if not record.cancel_at_ms:
        record.error = run_pb2.RunError(kind="cancelled", message=message)
        view.edit(keys.session(record.worker), SessionRecord).cancels += 1
    record.cancel_at_ms = timers.earliest(record.cancel_at_ms, view.now_ms + grace_ms)
    stop(view, run, worker_pb2.Stop.KIND_CANCEL)
    timers.set_run(view, run, timers.earliest(record.timer_at_ms, record.cancel_at_ms))


def cancel_now(view: View, run: Run, message: str) -> None:
    """End a run at once; a worker that has it is to stop, and what it reports is too late."""
    view.change_run(run).error = run_pb2.RunError(kind="cancelled", message=message)
    stop(view, run, worker_pb2.Stop.KIND_LOST)
    end(view, run, CANCELLED)


def stop(view: View, run: Run, kind: worker_pb2.Stop.Kind.ValueType) -> None:
    """Ask the worker of a running attempt to stop; call it before the lease is dropped."""
    if run.record.phase == LEASED:
        view.stops.append((run.record.worker, stop_word(run, kind)))


def stop_word(run: Run, kind: worker_pb2.Stop.Kind.ValueType) -> worker_pb2.Stop:
    record = run.record
    word = worker_pb2.Stop(
        token=record.token, run=answers.id_of(run), kind=kind,
        message=record.error.message if record.error else "",
    )  # fmt: skip
    if kind == worker_pb2.Stop.KIND_CANCEL:
        set_ms(word.deadline, record.cancel_at_ms)
    return word


def live_of(view: View, job: Job, most: int) -> list[Run]:
    """Runs of a job that are under way, oldest first."""
    live, first = job.state.live, keys.run(job.jid, job.state.live_from)
    scanned = view.scan(first, keys.run(job.jid, keys.OCCURRENCE_MAX)) if live else ()
    return [view.run(keys.run_of(key)) for key in islice(scanned, min(most, live))]


def free_occurrence(view: View, job: Job, scheduled_ms: int) -> int:
    """A place for a run that no schedule fires."""
    state = view.change_state(job)
    for _ in range(0xFFFF):
        state.serial = state.serial % 0xFFFF + 1
        occurrence = keys.occurrence_of(scheduled_ms, state.serial)
        live = view.find_run((job.jid, occurrence))
        if live is None and view.get(keys.ended(job.jid, occurrence), RunRecord) is None:
            return occurrence
    raise AssertionError(f"job {job.jid} has 65,535 runs in the millisecond {scheduled_ms}")


def _release_unique(view: View, run: Run) -> None:
    record = run.record
    key = keys.unique(run.jid, record.unique_key)
    held = view.get(key, UniqueRecord)
    if held is None or held.occurrence != run.occurrence:
        # A newer run has replaced this one, which ended only now.
        return
    if not record.unique_hold_ms:
        view.delete(key)
        return
    held.until_ms = view.now_ms + record.unique_hold_ms
    view.put_timer(keys.unique_timer(held.until_ms, run.jid, record.unique_key))
    view.put(key, held)
