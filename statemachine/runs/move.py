"""The one way for a run from phase to phase (phases.py).

A move looks the pair up, lets go what the old phase holds, takes what the new one holds, counts the
run in its new place, and sets its timer. Nothing else writes a phase, what it holds, or the
counters by phase; a test holds that. What a move brings about for others is its caller's business.
"""

from __future__ import annotations

from ..core import limits
from ..core.instants import ms_or
from ..model import keys
from ..model.entities import Run
from ..model.phases import (
    ASIDE,
    AT_ITS_RANK,
    CANCELLED,
    DELAYED,
    ENDS,
    FAILED,
    HALTED,
    HELD,
    LATER,
    LEASED,
    NEW,
    NEXT,
    PARKED,
    READY,
    SKIPPED,
    SUCCEEDED,
    name,
)
from ..model.record import (
    KeyRecord,
    LaneRecord,
    QueueRecord,
    RunRecord,
    SessionRecord,
    StateRecord,
)
from ..model.view import View
from ..tenants import namespaces
from . import history, lanes, slots, wait_queues
from .timeouts import arm

# Of one that is not under way.
BEGINS = frozenset({NEW, FAILED})
# A run that only leaves its lane, or comes back to it, keeps its timer.
BESIDE = frozenset({PARKED, ASIDE})


class NoSuchMove(AssertionError):
    """A rule wants a move that the table does not know: a bug in the rule."""


def move(view: View, run: Run, to: int, *, at_ms: int = 0, slot: int = 0) -> None:
    """Move a run to another phase under way. `at_ms`: until when it is delayed; of a ready one,
    from when its turn counts, if not from now. `slot`: whose it waits for while it is parked."""
    was, job = run.record.phase, run.job
    if to not in NEXT[was] or to in ENDS:
        raise _no_such(run, to)
    if was in BEGINS:
        record, state = view.add_run(run), view.change_state(job)
        state.live += 1
        if state.live == 1 or run.occurrence < state.live_from:
            state.live_from = run.occurrence
        usage = view.usages.get(job.namespace) or namespaces.usage_of(view, job.jid)
        usage.live += 1
    else:
        record = view.change_run(run)
    # A grant itself takes runs out of their lane, which it counts once for all.
    if was != NEW and to not in AT_ITS_RANK:
        LET_GO[was](view, run, record)
    record.phase = to
    if to == READY:
        lanes.enter(view, run, record, at_ms)
    elif to == PARKED:
        record.parking = slot
        wait_queue = lanes.wait_queue_of(run.jid, record)
        entry = keys.parked(wait_queue, record.rank_ms, run.jid, run.occurrence)
        others = _count_parked(view, run, 1) - 1
        wait_queues.enter(view, lanes.slot_owner(run.jid, record), entry, others)
    elif to == DELAYED:
        record.retry_at_ms = at_ms
    elif to != ASIDE:
        _count_held(view, run, 1)
    if was not in BESIDE and to not in BESIDE:
        arm(view, run)


def lease(view: View, run: Run, worker: str, session: SessionRecord) -> None:
    """A worker takes a run. Lane, queue and namespace are counted by the grant, which has them at
    hand, and puts the session."""
    if LEASED not in NEXT[run.record.phase]:
        raise _no_such(run, LEASED)
    record, job = view.change_run(run), run.job
    now_ms, meta = view.now_ms, view.meta
    meta.token += 1
    record.phase = LEASED
    record.rank_ms = 0
    record.attempt += 1
    record.token = token = meta.token
    record.worker = worker
    record.session = session.number
    record.leased_at_ms = now_ms
    if not record.started_at_ms:
        record.started_at_ms = now_ms
    template = job.definition.template
    if template.has_timeouts:
        record.heard_at_ms = now_ms
        attempt_ms = ms_or(template.spec.timeouts, "attempt", 0)
        if attempt_ms:
            record.deadline_at_ms = now_ms + attempt_ms
    view.change_state(job).running += 1
    if record.limit_key:
        key = keys.limit_key(job.namespace, record.limit_key)
        shared = view.get(key, KeyRecord) or KeyRecord()
        shared.running += 1
        view.put(key, shared)
    if not session.leased:
        session.token_from = token
    session.leased += 1
    view.put_raw(keys.lease(session.number, token), keys.lease_value(run.jid, run.occurrence))
    if record.timer_at_ms or record.heard_at_ms:
        arm(view, run)


def _no_such(run: Run, to: int) -> NoSuchMove:
    was = name(run.record.phase)
    return NoSuchMove(f"run {run.occurrence} of job {run.jid} cannot go from {was} to {name(to)}")


def count_in(view: View, run: Run) -> None:
    """Count a waiting run of format 1 as those of today."""
    if run.record.uncounted:
        _count_in(view, run, view.change_run(run))


def _count_in(view: View, run: Run, record: RunRecord) -> None:
    if record.uncounted:
        record.uncounted = False
        namespaces.usage_of(view, run.jid).held += 1
        view.change_state(run.job).later += record.phase == LATER


def _count_held(view: View, run: Run, by: int) -> None:
    state = view.change_state(run.job)
    state.held += by
    state.later += by if run.record.phase == LATER else 0
    namespaces.usage_of(view, run.jid).held += by


def _count_parked(view: View, run: Run, by: int) -> int:
    """How many wait for the same slot by then."""
    if run.record.parking == RunRecord.PARKING_JOB:
        state = view.change_state(run.job)
        state.parked += by
        return state.parked
    key = keys.limit_key(run.job.namespace, run.record.limit_key)
    record = view.get(key, KeyRecord) or KeyRecord()
    record.parked += by
    view.put(key, record)
    return record.parked


def _let_go_held(view: View, run: Run, record: RunRecord) -> None:
    _count_in(view, run, record)
    _count_held(view, run, -1)


def _let_go_ready(view: View, run: Run, record: RunRecord) -> None:
    lanes.leave(view, run)
    record.rank_ms = 0


def _let_go_parked(view: View, run: Run, record: RunRecord) -> None:
    wait_queue = lanes.wait_queue_of(run.jid, record)
    view.delete(keys.parked(wait_queue, record.rank_ms, run.jid, run.occurrence))
    if not _count_parked(view, run, -1):
        wait_queues.forget(view, lanes.slot_owner(run.jid, record))
    record.parking = RunRecord.PARKING_UNSPECIFIED


def _let_go_aside(view: View, run: Run, record: RunRecord) -> None:
    """Its job finds it when it comes back, so it holds nothing but its turn."""


def _let_go_leased(view: View, run: Run, record: RunRecord) -> None:
    """All that a lease takes is given back; see `lease` and grants.py."""
    job = run.job
    view.delete_raw(keys.lease(record.session, record.token))
    session = view.sessions.get(record.session)
    if session is None:
        session = view.edit(keys.session(record.worker), SessionRecord)
        view.sessions[record.session] = session
    session.leased -= 1
    if record.token == session.token_from:
        session.token_from += 1
    if record.cancel_at_ms:
        session.cancels -= 1
    queue = view.queues.get(record.lane)
    if queue is None:
        lane = view.need(keys.lane(record.lane), LaneRecord)
        queue = view.edit(keys.queue(lane.namespace, lane.queue), QueueRecord)
        view.queues[record.lane] = queue
    queue.leased -= 1
    usage = view.usages.get(job.namespace) or namespaces.usage_of(view, job.jid)
    usage.leased -= 1
    # How long leases last, by the clock hour: it shows what workers can carry.
    now_ms = view.now_ms
    if now_ms - usage.hour_at_ms >= limits.HOUR_MS:
        slots.begin_hour(usage, now_ms)
    usage.leases_ended += 1
    usage.leases_took_ms += now_ms - record.leased_at_ms or 1
    if record.limit_key:
        view.edit(keys.limit_key(job.namespace, record.limit_key), KeyRecord).running -= 1
    view.change_state(job).running -= 1
    record.deadline_at_ms = record.cancel_at_ms = record.heard_at_ms = 0


def _let_go_delayed(view: View, run: Run, record: RunRecord) -> None:
    record.retry_at_ms = 0


def _let_go_failed(view: View, run: Run, record: RunRecord) -> None:
    """It begins again, with fresh attempts; numbers and tokens go on."""
    history.forget(view, run)
    view.change_state(run.job).failed -= 1
    record.attempts_forgiven = record.attempt
    record.ready_at_ms = record.started_at_ms = record.ended_at_ms = record.purge_at_ms = 0


LET_GO = {
    LATER: _let_go_held,
    HELD: _let_go_held,
    HALTED: _let_go_held,
    READY: _let_go_ready,
    PARKED: _let_go_parked,
    ASIDE: _let_go_aside,
    LEASED: _let_go_leased,
    DELAYED: _let_go_delayed,
    FAILED: _let_go_failed,
}


def end(view: View, run: Run, record: RunRecord, to: int) -> StateRecord:
    """Move a run to an end; the state of its job, which was taken for that. `record` is what
    `View.end_run` has given."""
    if to not in NEXT[record.phase] or to not in ENDS:
        raise _no_such(run, to)
    LET_GO[record.phase](view, run, record)
    record.phase = to
    record.ended_at_ms = view.now_ms
    record.rank_ms = 0
    if record.timer_at_ms:
        view.delete_raw(keys.run_timer(record.timer_at_ms, run.jid, run.occurrence))
        record.timer_at_ms = 0
    usage = view.usages.get(run.job.namespace) or namespaces.usage_of(view, run.jid)
    usage.live -= 1
    state = view.change_state(run.job)
    state.live -= 1
    if to == SUCCEEDED:
        state.succeeded += 1
    elif to == FAILED:
        state.failed += 1
    elif to == SKIPPED:
        state.skipped += 1
    else:
        assert to == CANCELLED, to
    record.purge_at_ms = keys.LATER | history.purge_at(view, run)
    history.archive(view, run)
    return state


def set_back(view: View, run: Run, back_ms: int) -> None:
    """The state's time was set back: what was planned by the wrong time is as long after the right
    one. What began before, or stands at an instant of its own, stays."""
    now_ms, record = view.now_ms, view.change_run(run)
    begun_ms = 0
    if record.phase == LEASED:
        begun_ms = record.leased_at_ms
    elif record.phase == DELAYED and record.attempts:
        begun_ms = record.attempts[-1].ended_at_ms
    if record.phase == DELAYED and begun_ms > now_ms:
        record.retry_at_ms = max(now_ms, record.retry_at_ms - back_ms)
    if record.phase == LEASED and begun_ms > now_ms:
        record.leased_at_ms = now_ms
        if record.deadline_at_ms:
            record.deadline_at_ms = max(now_ms, record.deadline_at_ms - (begun_ms - now_ms))
    if record.cancel_at_ms > now_ms + back_ms:
        record.cancel_at_ms -= back_ms
    record.heard_at_ms = min(record.heard_at_ms, now_ms)
    record.ready_at_ms = min(record.ready_at_ms, now_ms)
    record.started_at_ms = min(record.started_at_ms, now_ms)
    arm(view, run)
