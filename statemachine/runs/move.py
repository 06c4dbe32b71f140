"""The one way for a run from phase to phase (phases.py).

A move looks the pair up, lets go what the old phase holds, takes what the new one holds, counts the
run in its new place, and sets its timer. Nothing else writes a phase, what it holds, or the
counters by phase; a test holds that. What a move brings about for others is its caller's business.
"""

from __future__ import annotations

from ..core import limits
from ..core.instants import ms_or
from ..model import keys, timers
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
from ..model.record import KeyRecord, LaneRecord, QueueRecord, RunRecord, SessionRecord, StateRecord
from ..model.specs import Template
from ..model.view import View
from ..tenants import namespaces
from . import history, lanes, slots, wait_queues
from .timeouts import arm


class NoSuchMove(AssertionError):
    """A rule wants a move that the table does not know: a bug in the rule."""


def move(
    view: View,
    jid: int,
    occurrence: int,
    run: RunRecord,
    to: int,
    state: StateRecord,
    template: Template | None = None,
    *,
    at_ms: int = 0,
    slot: int = 0,
) -> None:
    """Move a run. Without a template its timer stays. `at_ms`: until when it is delayed; of a ready
    one, from when its turn counts, if not from now. `slot`: whose it waits for while it is parked.
    The caller puts the state."""
    was = run.phase
    if to not in NEXT[was]:
        raise _no_such(jid, occurrence, run, to)
    # A grant itself takes runs out of their lane, which it counts once for all.
    if was != NEW and to not in AT_ITS_RANK:
        LET_GO[was](view, jid, occurrence, run, state)
    if was in (NEW, FAILED):
        state.live += 1
        if state.live == 1 or occurrence < state.live_from:
            state.live_from = occurrence
        usage = view.usages.get(jid >> keys.SERIAL_BITS) or namespaces.usage_of(view, jid)
        usage.live += 1
    run.phase = to
    if to in ENDS:
        _end(view, jid, occurrence, run, state)
        return
    if to == READY:
        lanes.enter(view, jid, occurrence, run, at_ms)
    elif to == PARKED:
        run.parking = slot
        entry = keys.parked(lanes.wait_queue_of(jid, run), run.rank_ms, jid, occurrence)
        others = _count_parked(view, jid, run, state, 1) - 1
        wait_queues.enter(view, lanes.slot_owner(jid, run), entry, others)
    elif to == DELAYED:
        run.retry_at_ms = at_ms
    elif to != ASIDE:
        _count_held(view, jid, run, state, 1)
    if template is not None:
        arm(view, jid, occurrence, run, template)
    view.put(keys.run(jid, occurrence), run)


def lease(
    view: View,
    jid: int,
    occurrence: int,
    run: RunRecord,
    template: Template,
    state: StateRecord,
    worker: str,
    session: SessionRecord,
) -> None:
    """A worker takes a run. Lane, queue and namespace are counted by the grant, which has them at
    hand, and puts run, state and session."""
    if LEASED not in NEXT[run.phase]:
        raise _no_such(jid, occurrence, run, LEASED)
    now_ms, meta = view.now_ms, view.meta
    meta.token += 1
    run.phase = LEASED
    run.rank_ms = 0
    run.attempt += 1
    run.token = token = meta.token
    run.worker = worker
    run.session = session.number
    run.leased_at_ms = now_ms
    if not run.started_at_ms:
        run.started_at_ms = now_ms
    if template.has_timeouts:
        run.heard_at_ms = now_ms
        attempt_ms = ms_or(template.spec.timeouts, "attempt", 0)
        if attempt_ms:
            run.deadline_at_ms = now_ms + attempt_ms
    state.running += 1
    if run.limit_key:
        key = keys.limit_key(keys.namespace_of(jid), run.limit_key)
        record = view.get(key, KeyRecord) or KeyRecord()
        record.running += 1
        view.put(key, record)
    if not session.leased:
        session.token_from = token
    session.leased += 1
    view.put_raw(keys.lease(session.number, token), keys.lease_value(jid, occurrence))
    if run.timer_at_ms or run.heard_at_ms:
        arm(view, jid, occurrence, run, template)


def _no_such(jid: int, occurrence: int, run: RunRecord, to: int) -> NoSuchMove:
    return NoSuchMove(
        f"run {occurrence} of job {jid} cannot go from {name(run.phase)} to {name(to)}"
    )


def count_in(view: View, jid: int, run: RunRecord, state: StateRecord) -> None:
    """Count a waiting run of format 1 as those of today. The caller puts the state; the run as
    well, unless it is moved now."""
    if run.uncounted:
        run.uncounted = False
        namespaces.usage_of(view, jid).held += 1
        state.later += run.phase == LATER


def _count_held(view: View, jid: int, run: RunRecord, state: StateRecord, by: int) -> None:
    state.held += by
    state.later += by if run.phase == LATER else 0
    namespaces.usage_of(view, jid).held += by


def _count_parked(view: View, jid: int, run: RunRecord, state: StateRecord, by: int) -> int:
    """How many wait for the same slot by then."""
    if run.parking == RunRecord.PARKING_JOB:
        state.parked += by
        view.put(keys.state(jid), state)
        return state.parked
    key = keys.limit_key(keys.namespace_of(jid), run.limit_key)
    record = view.get(key, KeyRecord) or KeyRecord()
    record.parked += by
    view.put(key, record)
    return record.parked


def _let_go_held(view: View, jid: int, occurrence: int, run: RunRecord, state: StateRecord) -> None:
    count_in(view, jid, run, state)
    _count_held(view, jid, run, state, -1)


def _let_go_ready(
    view: View, jid: int, occurrence: int, run: RunRecord, state: StateRecord
) -> None:
    lanes.leave(view, jid, occurrence, run)
    run.rank_ms = 0


def _let_go_parked(
    view: View, jid: int, occurrence: int, run: RunRecord, state: StateRecord
) -> None:
    view.delete(keys.parked(lanes.wait_queue_of(jid, run), run.rank_ms, jid, occurrence))
    if not _count_parked(view, jid, run, state, -1):
        wait_queues.forget(view, lanes.slot_owner(jid, run))
    run.parking = RunRecord.PARKING_UNSPECIFIED


def _let_go_aside(
    view: View, jid: int, occurrence: int, run: RunRecord, state: StateRecord
) -> None:
    """Its job finds it when it comes back, so it holds nothing but its turn."""


def _let_go_leased(
    view: View, jid: int, occurrence: int, run: RunRecord, state: StateRecord
) -> None:
    """All that a lease takes is given back; see `lease` and grants.py."""
    view.delete_raw(keys.lease(run.session, run.token))
    session = view.sessions.get(run.session)
    if session is None:
        session = view.edit(keys.session(run.worker), SessionRecord)
        view.sessions[run.session] = session
    session.leased -= 1
    if run.token == session.token_from:
        session.token_from += 1
    if run.cancel_at_ms:
        session.cancels -= 1
    queue = view.queues.get(run.lane)
    if queue is None:
        lane = view.need(keys.lane(run.lane), LaneRecord)
        queue = view.edit(keys.queue(lane.namespace, lane.queue), QueueRecord)
        view.queues[run.lane] = queue
    queue.leased -= 1
    usage = view.usages.get(jid >> keys.SERIAL_BITS) or namespaces.usage_of(view, jid)
    usage.leased -= 1
    # How long leases last, by the clock hour: it shows what workers can carry.
    now_ms = view.now_ms
    if now_ms - usage.hour_at_ms >= limits.HOUR_MS:
        slots.begin_hour(usage, now_ms)
    usage.leases_ended += 1
    usage.leases_took_ms += now_ms - run.leased_at_ms or 1
    if run.limit_key:
        key = keys.limit_key(keys.namespace_of(jid), run.limit_key)
        view.edit(key, KeyRecord).running -= 1
    state.running -= 1
    run.deadline_at_ms = run.cancel_at_ms = run.heard_at_ms = 0


def _let_go_delayed(
    view: View, jid: int, occurrence: int, run: RunRecord, state: StateRecord
) -> None:
    run.retry_at_ms = 0


def _let_go_failed(
    view: View, jid: int, occurrence: int, run: RunRecord, state: StateRecord
) -> None:
    """It begins again, with fresh attempts; numbers and tokens go on."""
    history.forget(view, jid, occurrence, run)
    state.failed -= 1
    run.attempts_forgiven = run.attempt
    run.ready_at_ms = run.started_at_ms = run.ended_at_ms = run.purge_at_ms = 0


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


def _end(view: View, jid: int, occurrence: int, run: RunRecord, state: StateRecord) -> None:
    run.ended_at_ms = view.now_ms
    run.rank_ms = 0
    if run.timer_at_ms:
        timers.set_run(view, jid, occurrence, run, 0)
    view.delete(keys.run(jid, occurrence))
    usage = view.usages.get(jid >> keys.SERIAL_BITS) or namespaces.usage_of(view, jid)
    usage.live -= 1
    state.live -= 1
    if run.phase == SUCCEEDED:
        state.succeeded += 1
    elif run.phase == FAILED:
        state.failed += 1
    elif run.phase == SKIPPED:
        state.skipped += 1
    else:
        assert run.phase == CANCELLED, run.phase
    history.archive(view, jid, occurrence, run, state)


def set_back(
    view: View, jid: int, occurrence: int, run: RunRecord, template: Template, back_ms: int
) -> None:
    """The state's time was set back: what was planned by the wrong time is as long after the right
    one. What began before, or stands at an instant of its own, stays."""
    now_ms = view.now_ms
    begun_ms = run.attempts[-1].ended_at_ms if run.attempts and run.phase == DELAYED else 0
    begun_ms = run.leased_at_ms if run.phase == LEASED else begun_ms
    if run.phase == DELAYED and begun_ms > now_ms:
        run.retry_at_ms = max(now_ms, run.retry_at_ms - back_ms)
    if run.phase == LEASED and begun_ms > now_ms:
        run.leased_at_ms = now_ms
        if run.deadline_at_ms:
            run.deadline_at_ms = max(now_ms, run.deadline_at_ms - (begun_ms - now_ms))
    if run.cancel_at_ms > now_ms + back_ms:
        run.cancel_at_ms -= back_ms
    run.heard_at_ms = min(run.heard_at_ms, now_ms)
    run.ready_at_ms = min(run.ready_at_ms, now_ms)
    run.started_at_ms = min(run.started_at_ms, now_ms)
    arm(view, jid, occurrence, run, template)
    view.put(keys.run(jid, occurrence), run)
