"""Past scheduled times that are still to run.

After an outage those of all jobs of a namespace become runs at one pace, whatever their misfire
policies let through: the outage guard. Each job takes the next free slot of that guard when it has
used its last one, so they take turns. A backfill has a pace of its own.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import groupby

from ...proto.v1 import run_pb2
from ..core import limits
from ..model.entities import Job
from ..model.record import BacklogRecord, ProofRecord, StateRecord
from ..model.view import View
from ..occurrences import ledger, next_time
from ..runs import overlap
from ..schedule.plan import (
    Plan,
    count_scheduled,
    due,
    excluded,
    latest_scheduled_before,
    next_scheduled,
)
from ..tenants import namespaces
from . import scheduled_time
from .scheduled_time import BACKFILL, SCHEDULED


def add(view: View, job: Job, part: BacklogRecord, jitter_ms: int = 0) -> None:
    """Let some past scheduled times wait for their turn. What was missed does not wait for
    backfills, which may take days, and takes its turn when it is the first. The caller
    reschedules."""
    state = view.change_state(job)
    parts = [*state.backlog, part]
    if state.backlog:
        parts.sort(key=lambda part: _place(part, jitter_ms))
    for behind in parts[1:]:
        # The end of a run wakes the first one only.
        behind.release_at_ms = behind.release_at_ms or view.now_ms
    state.backlog = tuple(parts)
    namespaces.usage_of(view, job.jid).backlog += part.left


def add_backfill(view: View, job: Job, times: list[int], pace_ms: int) -> None:
    """Let past scheduled times that somebody asked for wait, in parts between which others wait:
    no part takes a time of another one. The caller reschedules."""
    others = sorted(part.next_at_ms for part in job.state.backlog)
    for _, group in groupby(times, key=lambda at_ms: bisect_left(others, at_ms)):
        planned = list(group)
        part = BacklogRecord(
            next_at_ms=planned[0], to_ms=planned[-1] + 1, left=len(planned), pace_ms=pace_ms,
            release_at_ms=view.now_ms, cause=BACKFILL,
        )  # fmt: skip
        add(view, job, part)


def _place(part: BacklogRecord, jitter_ms: int) -> tuple[bool, int, int]:
    """By when it is due."""
    due_ms = part.due_at_ms or part.next_at_ms + jitter_ms
    return part.cause == BACKFILL, due_ms, part.next_at_ms


def alone(scheduled_ms: int, release_ms: int) -> BacklogRecord:
    """One missed time."""
    return BacklogRecord(
        next_at_ms=scheduled_ms, to_ms=scheduled_ms + 1, left=1, release_at_ms=release_ms,
        cause=SCHEDULED,
    )  # fmt: skip


def spans(state: StateRecord, scheduled_ms: int) -> bool:
    """Whether missed times before and behind one wait."""
    parts = next_time.missed(state)
    return bool(parts) and parts[0].next_at_ms <= scheduled_ms < parts[-1].to_ms


def clear(view: View, job: Job) -> int:
    """Forget what waits; how many times that were. The caller reschedules."""
    state = view.change_state(job)
    left = sum(part.left for part in state.backlog)
    if left:
        namespaces.usage_of(view, job.jid).backlog -= left
    state.backlog = ()
    return left


def next_slot(view: View, job: Job) -> int:
    """When the next missed scheduled time of the namespace may become a run."""
    usage = namespaces.usage_of(view, job.jid)
    at_us = max(usage.backlog_free_us, (view.now_ms - limits.BACKLOG_BURST_MS) * 1000)
    usage.backlog_free_us = at_us + 1_000_000 // namespaces.backlog_rate(
        view, job.definition.namespace
    )
    return at_us // 1000


def release(view: View, job: Job, *, backfills: bool = True) -> None:
    """Fire past scheduled times whose turn has come, oldest first."""
    state = view.change_state(job)
    plan = next_time.plan_of(view, job)
    for done in range(limits.STEP):
        part = state.backlog[0]
        if not part.release_at_ms or part.release_at_ms > view.now_ms:
            return
        if part.cause == BACKFILL and not backfills:
            return
        if done and overlap.pauses(view, job):
            return
        scheduled_ms = part.next_at_ms
        if _may_run(view, job, part):
            due_ms = part.due_at_ms or due(plan, scheduled_ms)
            proof = ProofRecord(part.decided_at_ms, part.decided_in, due_ms)
            if not scheduled_time.fire(
                view, job, scheduled_ms, due_ms, part.cause, waited=proof,
                is_edited=part.due_at_ms > 0,
            ):  # fmt: skip
                # Its overlap policy lets it run only when the last has ended.
                part.release_at_ms = 0
                return
            if part.due_at_ms:
                scheduled_time.mark(view, job.jid, plan, scheduled_ms)
            if part.cause == BACKFILL:
                # Each time that was planned runs, however many others it turns out to be among.
                _shrink(view, job.jid, part, min(1, part.left - 1))
                part.release_at_ms = _next_release(view, job, part)
            else:
                _shrink(view, job.jid, part, 1)
                if part.left > 0:
                    part.release_at_ms = _next_release(view, job, part)
        following = next_scheduled(plan, scheduled_ms, ever=part.cause == BACKFILL)
        if following is None or following >= part.to_ms or part.left <= 0:
            _shrink(view, job.jid, part, part.left)
            state.backlog = state.backlog[1:]
            if not state.backlog:
                return
            behind = state.backlog[0]
            if behind.cause == SCHEDULED:
                behind.release_at_ms = next_slot(view, job)
            elif part.cause == BACKFILL:
                behind.release_at_ms = max(behind.release_at_ms, part.release_at_ms)
        else:
            part.next_at_ms = following


def _shrink(view: View, jid: int, part: BacklogRecord, by: int) -> None:
    part.left -= by
    if by:
        namespaces.usage_of(view, jid).backlog -= by


def _next_release(view: View, job: Job, part: BacklogRecord) -> int:
    if part.cause == SCHEDULED:
        return next_slot(view, job)
    return max(part.release_at_ms, view.now_ms - limits.SECOND_MS) + part.pace_ms


def _may_run(view: View, job: Job, part: BacklogRecord) -> bool:
    """Whether a time whose turn has come has no run yet, and is not left out."""
    if part.cause == BACKFILL:
        return may_backfill(view, job, part.next_at_ms)
    if ledger.knows(view, job.jid, part.next_at_ms):
        # It ran before its time, or a backfill has run it.
        return False
    # What was chosen to run does, though a calendar leaves its day out by now; an earlier version
    # chose days off as well.
    ask_days = not part.decided_at_ms
    scheduled_ms = part.next_at_ms
    if part.due_at_ms or not scheduled_time.left_out(view, job, scheduled_ms, ask_days=ask_days):
        return True
    _shrink(view, job.jid, part, 1)
    return False


def may_backfill(view: View, job: Job, scheduled_ms: int) -> bool:
    """Whether a past scheduled time may still run: it has not, and no calendar leaves it out."""
    if scheduled_ms in _decided_by_hand(job):
        return False
    if (
        job.definition.template.calendars
        and excluded(next_time.plan_of(view, job), scheduled_ms) is not None
    ):
        return False
    return ledger.may_backfill(view, job, scheduled_ms)


def backfillable(view: View, job: Job, plan: Plan, times: list[int]) -> list[int]:
    """Those of some past scheduled times that may run, as `may_backfill` says of one, and do not
    wait to run already."""
    for part in job.state.backlog:
        times = [at for at in times if not part.next_at_ms <= at < part.to_ms]
    return runnable(view, job, plan, times)


def _decided_by_hand(job: Job) -> set[int]:
    """The times that somebody skipped, or moved to another instant."""
    kinds = (next_time.MOVE, next_time.SKIP)
    return {edit.scheduled_at_ms for edit in job.state.edits if edit.kind in kinds}


def runnable(view: View, job: Job, plan: Plan, times: list[int]) -> list[int]:
    """Those of some past scheduled times that may run, as `may_backfill` says of one."""
    for _, calendar in plan.calendars:
        times = calendar.leaves_in(times, plan.zone)
    by_hand = _decided_by_hand(job)
    times = [at_ms for at_ms in times if at_ms not in by_hand]
    return ledger.backfillable(view, job, times) if times else []


def drop(view: View, job: Job) -> int:
    """Give up what waits; how many times that were. What a backfill was to run has an outcome
    already, and keeps it. The caller reschedules."""
    plan = next_time.plan_of(view, job)
    for part in job.state.backlog:
        if part.cause == SCHEDULED:
            miss(view, job, plan, part)
    dropped = clear(view, job)
    next_time.advance_if_idle(view, job)
    return dropped


def cut(view: View, job: Job, plan: Plan, at_ms: int) -> None:
    """What of the schedules waits behind an instant is decided on again, so it waits no more. The
    caller reschedules."""
    state = view.change_state(job)
    for part in next_time.missed(state):
        if part.to_ms <= at_ms + 1 or part.due_at_ms:
            continue
        # The first may follow from the end of a run, and then no count finds it.
        behind = count_scheduled(plan, part.next_at_ms + 1, at_ms + 1).number
        left = min(part.left, 1 + behind) if part.next_at_ms <= at_ms else 0
        _shrink(view, job.jid, part, part.left - left)
        part.to_ms = at_ms + 1
    state.backlog = tuple(part for part in state.backlog if part.left or part.cause != SCHEDULED)
    if state.backlog and not state.backlog[0].release_at_ms and state.live == state.held:
        # The end of a run woke the one before it.
        state.backlog[0].release_at_ms = view.now_ms


def miss(view: View, job: Job, plan: Plan, part: BacklogRecord) -> None:
    """What waits in a part is missed. The caller takes it out of the backlog."""
    first = part.next_at_ms
    # The first may follow from the end of a run, and then no schedule names it.
    last = max(first, latest_scheduled_before(plan, part.to_ms) or first)
    proof = ProofRecord(part.decided_at_ms, part.decided_in, part.due_at_ms, view.now_ms)
    ledger.stretch(view, job, plan, first, last, run_pb2.OUTCOME_MISSED, proof=proof)
    if part.due_at_ms:
        scheduled_time.mark(view, job.jid, plan, first)
