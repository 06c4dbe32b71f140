"""Past nominal times that are still to run.

After an outage those of all jobs of a namespace become runs at one pace, whatever their misfire
policies let through: the outage guard. Each job takes the next free place in that line when it has
used its last one, so they take turns. A backfill has a pace of its own.
"""

from __future__ import annotations

from ..proto.v1 import run_pb2, schedule_pb2
from . import clockwork, ledger, limits, namespaces, outcomes, overlap, runs
from .outcomes import BACKFILL, SCHEDULED
from .plan import (
    Plan,
    count_nominals,
    due,
    excluded,
    latest_nominal_before,
    names,
    newest,
    next_nominal,
)
from .record import BacklogRecord, JobRecord, StateRecord
from .view import View

Skip = schedule_pb2.OccurrenceEdit.KIND_SKIP


def add(view: View, jid: int, state: StateRecord, part: BacklogRecord) -> None:
    """Let some past nominal times wait for their turn; what was missed does not wait for backfills,
    which may take days. The caller settles and puts the state."""
    parts = sorted((*state.backlog, part), key=lambda item: item.cause == BACKFILL)
    for behind in parts[1:]:
        # The end of a run wakes the first one only.
        behind.release_at_ms = behind.release_at_ms or view.now_ms
    state.backlog = tuple(parts)
    runs.usage_of(view, jid).backlog += part.left


def clear(view: View, jid: int, state: StateRecord) -> int:
    """Forget what waits; how many times that were. The caller settles and puts the state."""
    left = sum(part.left for part in state.backlog)
    if left:
        runs.usage_of(view, jid).backlog -= left
    state.backlog = ()
    return left


def _turn(view: View, jid: int, job: JobRecord) -> int:
    """When the next missed nominal time of the namespace may become a run."""
    usage = runs.usage_of(view, jid)
    at_us = max(usage.backlog_free_us, (view.now_ms - limits.BACKLOG_BURST_MS) * 1000)
    usage.backlog_free_us = at_us + 1_000_000 // namespaces.backlog_rate(view, job.namespace)
    return at_us // 1000


def plan_one(
    view: View, jid: int, job: JobRecord, state: StateRecord, nominal_ms: int, due_ms: int
) -> None:
    """The one of the missed nominal times that still runs: now, if the outage guard lets it."""
    if outcomes.left_out(view, jid, job, state, nominal_ms):
        return
    at_ms = _turn(view, jid, job)
    if at_ms <= view.now_ms:
        outcomes.fire(view, jid, job, state, nominal_ms, due_ms, SCHEDULED)
        return
    part = BacklogRecord(
        next_at_ms=nominal_ms, to_ms=nominal_ms + 1, left=1, release_at_ms=at_ms, cause=SCHEDULED
    )
    add(view, jid, state, part)


def plan_all(
    view: View, jid: int, job: JobRecord, state: StateRecord, plan: Plan, first: int, last: int
) -> None:
    """The newest so many of the missed nominal times still run, and those that are late by less
    than the grace, which are not missed; all at the pace of the guard."""
    most = job.form.spec.misfire.maximum or limits.MISFIRE_DEFAULT
    missed_before = view.now_ms - job.form.grace_ms - due(plan, 0)
    if last < missed_before:
        most -= 1
    in_time = count_nominals(plan, max(first, missed_before), last).number
    start, more = newest(plan, first, last, min(limits.MISFIRE_RUNS - 1, in_time + most))
    left = more + 1
    if start > first:
        before = max(first, latest_nominal_before(plan, start) or first)
        outcomes.pass_over(view, jid, state, plan, first, before, run_pb2.OUTCOME_MISSED)
    for edit in state.edits:
        # What was left out by hand is not asked any more when its turn comes.
        at_ms = edit.nominal_at_ms
        if edit.kind == Skip and start <= at_ms <= last and (at_ms == start or names(plan, at_ms)):
            outcomes.left_out(view, jid, job, state, edit.nominal_at_ms)
    part = BacklogRecord(
        next_at_ms=start, to_ms=last + 1, left=left, release_at_ms=_turn(view, jid, job),
        cause=SCHEDULED,
    )  # fmt: skip
    add(view, jid, state, part)


def release(view: View, jid: int, job: JobRecord, state: StateRecord) -> None:
    """Fire past nominal times whose turn has come, oldest first."""
    plan = clockwork.plan_of(view, jid, job)
    for done in range(limits.STEP):
        part = state.backlog[0]
        if not part.release_at_ms or part.release_at_ms > view.now_ms:
            return
        if done and overlap.pauses(view, jid, state):
            return
        nominal_ms = part.next_at_ms
        if _may_run(view, jid, job, state, part):
            due_ms = due(plan, nominal_ms)
            if not outcomes.fire(
                view, jid, job, state, nominal_ms, due_ms, part.cause, patient=True
            ):
                # Its overlap policy lets it run only when the last has ended.
                part.release_at_ms = 0
                return
            _shrink(view, jid, part, 1)
            if part.left > 0:
                part.release_at_ms = _next_turn(view, jid, job, part)
        elif part.cause == SCHEDULED:
            _shrink(view, jid, part, 1)
        following = next_nominal(plan, nominal_ms, ever=part.cause == BACKFILL)
        if following is None or following >= part.to_ms or part.left <= 0:
            _shrink(view, jid, part, part.left)
            state.backlog = state.backlog[1:]
            if not state.backlog:
                return
        else:
            part.next_at_ms = following


def _shrink(view: View, jid: int, part: BacklogRecord, by: int) -> None:
    part.left -= by
    if by:
        runs.usage_of(view, jid).backlog -= by


def _next_turn(view: View, jid: int, job: JobRecord, part: BacklogRecord) -> int:
    if part.cause == SCHEDULED:
        return _turn(view, jid, job)
    return max(part.release_at_ms, view.now_ms - limits.SECOND_MS) + part.pace_ms


def _may_run(view: View, jid: int, job: JobRecord, state: StateRecord, part: BacklogRecord) -> bool:
    """Whether a time whose turn has come has no run yet, and is not left out."""
    if part.cause == BACKFILL:
        return may_backfill(view, jid, job, state, part.next_at_ms)
    known = ledger.knows(view, jid, part.next_at_ms)
    return not known and not outcomes.left_out(view, jid, job, state, part.next_at_ms)


def may_backfill(view: View, jid: int, job: JobRecord, state: StateRecord, nominal_ms: int) -> bool:
    """Whether a past nominal time may still run: it has not, and no calendar leaves it out now."""
    if job.form.calendars and excluded(clockwork.plan_of(view, jid, job), nominal_ms) is not None:
        return False
    return ledger.may_backfill(view, jid, job, state, nominal_ms)


def backfillable(
    view: View, jid: int, job: JobRecord, state: StateRecord, plan: Plan, times: list[int]
) -> list[int]:
    """Those of some past nominal times that may run, as `may_backfill` says of one."""
    for _, calendar in plan.calendars:
        times = calendar.leaves_in(times, plan.zone)
    return ledger.backfillable(view, jid, job, state, times) if times else []


def drop(view: View, jid: int, job: JobRecord, state: StateRecord) -> int:
    """Give up what waits; how many times that were. What a backfill was to run has an outcome
    already, and keeps it. The caller settles and puts the state."""
    plan = clockwork.plan_of(view, jid, job)
    for part in state.backlog:
        if part.cause == SCHEDULED:
            _miss(view, jid, state, plan, part)
    dropped = clear(view, jid, state)
    clockwork.go_on(view, jid, job, state)
    return dropped


def _miss(view: View, jid: int, state: StateRecord, plan: Plan, part: BacklogRecord) -> None:
    first = part.next_at_ms
    # The first may follow from the end of a run, and then no schedule names it.
    last = max(first, latest_nominal_before(plan, part.to_ms) or first)
    outcomes.pass_over(view, jid, state, plan, first, last, run_pb2.OUTCOME_MISSED)
