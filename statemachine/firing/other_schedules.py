"""A job gets other schedules: what has come under the old ones, and has no outcome yet, waits on if
the new ones name it as well.

Where both name the same instants all of it stays as it is. Else each time that both name waits by
itself, the newest of them; what the new ones do not name is missed. What a backfill planned
was asked for by its times, and waits on whatever names them.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from ..core import limits
from ..model.entities import Job
from ..model.record import BacklogRecord, EditRecord, StateRecord
from ..model.view import View
from ..occurrences import ledger, next_time
from ..schedule.plan import (
    Plan,
    due,
    excluded,
    latest_scheduled,
    names,
    scheduled_times,
)
from . import backlog
from .scheduled_time import BACKFILL

LOOKED_AT = 1_000  # Times of one range, the newest, that may wait on by themselves.


def stays(view: View, state: StateRecord, old: Plan, new: Plan) -> int:
    """The first scheduled time of what waits, if all of it is named by both; else 0."""
    firsts = [part.next_at_ms for part in state.backlog]
    if 0 < state.next_scheduled_at_ms <= view.now_ms:
        firsts.append(state.next_scheduled_at_ms)
    if not state.backlog or not are_same(old, new, min(firsts), view.now_ms + 1):
        return 0
    return min(firsts)


def are_same(old: Plan, new: Plan, first: int, end: int) -> bool:
    """Whether two plans name the same instants of a range, none of them by the end of a run. Of one
    with too many to list that is not known."""
    if old.rests or new.rests:
        return False
    mine = scheduled_times(old, first, end, limits.MISFIRE_RUNS, ever=True)
    return not mine.cut and mine == scheduled_times(new, first, end, limits.MISFIRE_RUNS, ever=True)


def keep_waiting(view: View, job: Job, old: Plan, new: Plan) -> int:
    """What waits in the backlog and both name waits on by itself; what was added does in any case,
    and so does what a backfill planned. How many of these are given up, since they are too many.
    The caller reschedules."""
    kept: list[BacklogRecord] = []
    for part in next_time.missed(job.state)[::-1]:
        if not part.due_at_ms:
            most = limits.STEP - len(kept)
            kept += _apart(view, job, old, part, _common(old, new, part, most))
        elif _names(new, part.next_at_ms) or not _names(old, part.next_at_ms):
            kept.append(part)
        else:
            backlog.miss(view, job, old, part)
    planned, given_up = _planned(view, job, old, new)
    backlog.clear(view, job)
    for part in sorted(kept, key=lambda part: part.next_at_ms):
        if not ledger.knows(view, job.jid, part.next_at_ms):
            backlog.add(view, job, part, old.jitter_ms)
    for part in planned:
        backlog.add(view, job, part, old.jitter_ms)
    return given_up


def _planned(view: View, job: Job, old: Plan, new: Plan) -> tuple[list[BacklogRecord], int]:
    """What of the backfills goes on: the oldest of those that the new schedules name otherwise wait
    by themselves; and how many do not wait any more."""
    kept: list[BacklogRecord] = []
    given_up = 0
    for part in job.state.backlog:
        if part.cause != BACKFILL:
            continue
        if part.due_at_ms or are_same(old, new, part.next_at_ms, part.to_ms):
            kept.append(part)
            continue
        times = scheduled_times(old, part.next_at_ms, part.to_ms, limits.BACKFILL_RUNS, ever=True)
        mine = backlog.runnable(view, job, old, times.times)
        most = max(0, limits.STEP - len(kept))
        kept += (
            replace(part, next_at_ms=at_ms, to_ms=at_ms + 1, left=1, due_at_ms=due(old, at_ms))
            for at_ms in mine[:most]
        )
        given_up += len(mine[most:])
    return kept, given_up


def _names(plan: Plan, at_ms: int) -> bool:
    return names(plan, at_ms, ever=True)


def _common(old: Plan, new: Plan, part: BacklogRecord, most: int) -> list[int]:
    """The newest times of a part that both plans name."""
    times = latest_scheduled(old, part.next_at_ms, part.to_ms, LOOKED_AT, ever=True).times
    common = [at_ms for at_ms in times if _names(new, at_ms)]
    return common[max(0, len(common) - most) :]


def _apart(
    view: View, job: Job, old: Plan, part: BacklogRecord, common: list[int]
) -> Iterator[BacklogRecord]:
    """Some times of a part, each by itself; what is between is missed."""
    begin = part.next_at_ms
    for at_ms in [*common, part.to_ms]:
        between = scheduled_times(old, begin, at_ms, 1, ever=True).times
        if begin == part.next_at_ms < at_ms:
            # It may follow from the end of a run, and then no schedule names it.
            between = [begin]
        if between:
            backlog.miss(view, job, old, replace(part, next_at_ms=between[0], to_ms=at_ms))
        if at_ms < part.to_ms:
            yield replace(part, next_at_ms=at_ms, to_ms=at_ms + 1, left=1)
        begin = at_ms + 1


def keep_undecided(view: View, job: Job, old: Plan, new: Plan) -> None:
    """Times that have come, are not decided on and are named by both are kept as if somebody had
    moved them to where they are due."""
    state = view.change_state(job)
    first, end = state.next_scheduled_at_ms, view.now_ms + 1
    times = latest_scheduled(old, first, end, LOOKED_AT, ever=True).times
    edited = {edit.scheduled_at_ms for edit in state.edits}
    common = [
        at_ms
        for at_ms in times
        if at_ms not in edited
        and _names(new, at_ms)
        and excluded(old, at_ms) is None
        and not ledger.knows(view, job.jid, at_ms)
    ]
    most = max(0, limits.EDITS - len(state.edits))
    kept = [
        EditRecord(
            at_ms, next_time.MOVE, state.next_due_at_ms if at_ms == first else due(old, at_ms)
        )
        for at_ms in common[max(0, len(common) - most) :]
    ]
    state.edits = tuple(sorted((*state.edits, *kept), key=lambda edit: edit.scheduled_at_ms))
