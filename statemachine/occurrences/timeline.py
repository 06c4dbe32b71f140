"""The scheduled times that a job has to decide on, as stretches.

`undecided` is the one answer to which times these are: what the schedules name from the first time
without an outcome up to now, less what ran before its time, and what somebody moved or added that
is due. What a calendar leaves out or somebody skipped is marked so: it gets an outcome as well.
Nothing here walks from one time to the next: a stretch is counted and searched in, so ten years of
seconds are one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from ...proto.v1 import schedule_pb2
from ..core import limits
from ..model.entities import Job
from ..model.record import EditRecord, StateRecord
from ..model.view import View
from ..schedule.plan import (
    Plan,
    count_scheduled,
    due,
    excluded,
    latest_scheduled_before,
    names,
    newest,
    nth_scheduled,
    scheduled_times,
)
from . import ledger, next_time

Edit = schedule_pb2.OccurrenceEdit


class Kind(Enum):
    """Whether the times of a stretch may run."""

    OPEN = "may run"
    EXCLUDED = "left out by a calendar"
    SKIPPED = "skipped manually"


OPEN, EXCLUDED, SKIPPED = Kind


@dataclass(frozen=True, slots=True)
class Stretch:
    """Scheduled times of one kind, one behind the other."""

    first: int
    last: int
    count: int
    # When the first is due; the others follow at the same distance.
    due_ms: int
    kind: Kind = OPEN
    # For one that somebody moved or added.
    edit: EditRecord | None = None

    def before(self, plan: Plan, due_ms: int) -> tuple[Stretch | None, Stretch | None]:
        """Those that are due before an instant, and the others."""
        at_ms = due_ms - self.due_ms + self.first
        if at_ms <= self.first:
            return None, self
        if at_ms > self.last:
            return self, None
        if (latest_scheduled_before(plan, self.last) or 0) < at_ms:
            # The last alone, as of most jobs.
            return self._split(plan, self.last, 1)
        # No other is between, so each side has one at least.
        [start] = scheduled_times(plan, at_ms, self.last + 1, 1).times
        return self._split(plan, start, count_scheduled(plan, start, self.last + 1).number)

    def newest(self, plan: Plan, number: int) -> tuple[Stretch | None, Stretch | None]:
        """All but the newest so many, and these."""
        if number <= 0:
            return self, None
        if number >= self.count:
            return None, self
        if number == 1:
            return self._split(plan, self.last, 1)
        return self._split(plan, *newest(plan, self.first, self.last + 1, number))

    def earliest(self, plan: Plan) -> tuple[Stretch, Stretch | None]:
        """The first, and the others."""
        if self.count == 1:
            return self, None
        [second] = scheduled_times(plan, self.first + 1, self.last + 1, 1).times
        early, others = self._split(plan, second, self.count - 1)
        assert early is not None
        return early, others

    def _split(self, plan: Plan, start: int, count: int) -> tuple[Stretch | None, Stretch | None]:
        if start <= self.first:
            return None, self
        last = max(self.first, latest_scheduled_before(plan, start) or self.first)
        early = replace(self, last=last, count=max(1, self.count - count))
        late = replace(self, first=start, count=count, due_ms=self.due_ms + start - self.first)
        return early, late


def undecided(view: View, job: Job, plan: Plan, until_ms: int) -> tuple[list[Stretch], int]:
    """What a job has to decide on: times of its schedules up to an instant, and what was moved or
    added and is due, in the order in which it is due; and the last time of the schedules that was
    looked at, 0 if none was."""
    state = job.state
    edits = list(_edited(view, state))
    first, last = state.next_scheduled_at_ms, 0
    found: list[Stretch] = []
    if 0 < first <= until_ms or 0 < state.next_due_at_ms <= view.now_ms:
        last = max(first, latest_scheduled_before(plan, until_ms + 1) or first)
        if job.definition.template.max_runs:
            last = last_of_most(view, job, plan, first, last, edits)
        if last:
            last = _within_days(plan, first, last)
            found = list(_scheduled(view, job, plan, last, edits))
    if edits and job.definition.template.max_runs:
        edits = _with_place(job, plan, edits, sum(one.count for one in found), last)
    return sorted((*found, *edits), key=lambda one: (one.due_ms, one.first)), last


def _edited(view: View, state: StateRecord) -> Iterator[Stretch]:
    """What somebody moved or added, and is due."""
    for edit in state.edits:
        due_ms = next_time.edit_due(edit)
        if 0 < due_ms <= view.now_ms:
            yield Stretch(edit.scheduled_at_ms, edit.scheduled_at_ms, 1, due_ms, edit=edit)


def _with_place(
    job: Job, plan: Plan, edits: list[Stretch], scheduled: int, last: int
) -> list[Stretch]:
    """What was moved or added takes the places within max_runs that times of schedules leave. What
    was added and is named by the schedules since has the place of these."""
    passed = max(last, next_time.decided(job.state))
    of_schedules = [one for one in edits if one.first <= passed and _is_named(plan, one)]
    added = sum(not _is_moved(one) for one in of_schedules)
    left = next_time.runs_left(job, passed + 1) - scheduled - added
    others = sorted(
        (one for one in edits if one not in of_schedules), key=lambda one: (one.due_ms, one.first)
    )
    return [*of_schedules, *others[: max(0, left)]]


def _is_moved(one: Stretch) -> bool:
    return one.edit is not None and one.edit.kind == next_time.MOVE


def _is_named(plan: Plan, one: Stretch) -> bool:
    return _is_moved(one) or count_scheduled(plan, one.first, one.first + 1).number > 0


def _within_days(plan: Plan, first: int, last: int) -> int:
    """Calendars are asked day by day, so what lies too far behind is for the next time."""
    most = first + limits.CALENDAR_DAYS * limits.DAY_MS
    if not plan.calendars or last <= most:
        return last
    return max(first, latest_scheduled_before(plan, most) or first)


def _scheduled(
    view: View, job: Job, plan: Plan, last: int, due_edits: list[Stretch]
) -> Iterator[Stretch]:
    state = job.state
    first = begin = state.next_scheduled_at_ms
    points: dict[int, EditRecord | None] = {
        edit.scheduled_at_ms: edit for edit in state.edits if first <= edit.scheduled_at_ms <= last
    }
    # What was moved to before its time may wait by itself.
    points |= {at_ms: None for at_ms in next_time.waiting_alone(state) if first <= at_ms <= last}
    # What ran before its time has its outcome, whatever was changed since.
    points |= dict.fromkeys(ledger.own_entries(view, job, first, last))
    is_named = state.next_due_at_ms == due(plan, first) and not plan.rests
    if not points and not plan.calendars and not due_edits and is_named:
        # Nearly all jobs: both ends are known.
        count = 1 if first == last else count_scheduled(plan, first, last + 1).number
        yield Stretch(first, last, count, state.next_due_at_ms)
        return
    if first not in points and not is_named:
        # It follows from the end of a run, or was due at once: no search finds it.
        kind = OPEN if excluded(plan, first) is None else EXCLUDED
        yield Stretch(first, first, 1, state.next_due_at_ms, kind)
        begin = first + 1
    marks = sorted({one.due_ms - due(plan, 0) + more for one in due_edits for more in (0, 1)})
    for at_ms in sorted(points):
        yield from _between(plan, begin, at_ms, marks)
        edit = points[at_ms]
        if edit is not None and edit.kind == Edit.KIND_SKIP and _names(plan, first, at_ms):
            yield Stretch(at_ms, at_ms, 1, due(plan, at_ms), SKIPPED, edit)
        begin = max(begin, at_ms + 1)
    yield from _between(plan, begin, last + 1, marks)


def _names(plan: Plan, first: int, at_ms: int) -> bool:
    return at_ms == first or names(plan, at_ms)


def _between(plan: Plan, begin: int, end: int, marks: list[int]) -> Iterator[Stretch]:
    """The times of a range, cut where calendars begin and end, and at some instants."""
    for low, high, kind in _days(plan, begin, end):
        inside = marks[bisect_left(marks, low + 1) : bisect_left(marks, high)]
        for left, right in zip((low, *inside), (*inside, high), strict=True):
            last = latest_scheduled_before(plan, right)
            if last is None or last < left:
                continue
            # Most jobs have missed one time.
            first = last if left == last else scheduled_times(plan, left, right, 1).times[0]
            count = 1 if first == last else count_scheduled(plan, first, right).number
            yield Stretch(first, last, count, due(plan, first), kind)


def _days(plan: Plan, begin: int, end: int) -> Iterator[tuple[int, int, Kind]]:
    """A range in pieces that calendars leave in or out as a whole."""
    if not plan.calendars:
        if begin < end:
            yield begin, end, OPEN
        return
    at_ms, kind = begin, None
    while at_ms < end:
        found = OPEN if excluded(plan, at_ms) is None else EXCLUDED
        if kind is not None and found is not kind:
            yield begin, at_ms, kind
            begin = at_ms
        kind = found
        at_ms = min(calendar.day_end(at_ms, plan.zone) for _, calendar in plan.calendars)
    if kind is not None:
        yield begin, end, kind


def last_of_most(
    view: View, job: Job, plan: Plan, first: int, last: int, edits: list[Stretch]
) -> int:
    """The last of the times of a range that max_runs has room for; 0 if what was moved or added,
    and is due before them, takes all of that."""
    own = ledger.own_entries(view, job, first, last)
    alone = [at_ms for at_ms in next_time.waiting_alone(job.state) if first <= at_ms <= last]
    if alone:
        own = sorted([*own, *(at_ms for at_ms in alone if _names(plan, first, at_ms))])
    left = next_time.runs_left(job, first)
    before = _before_their_time(plan, first, edits, own, left) if edits else []
    if before and left <= len(before):
        return 0
    own = sorted({*own, *(one.first for one in before if _is_moved(one) and one.first <= last)})
    end = nth_scheduled(plan, first, last, max(1, left - len(before)))
    behind = iter(scheduled_times(plan, end + 1, last + 1, len(own)).times if own else ())
    for at_ms in own:
        # It ran before its time, or waits by itself, and was counted then.
        if at_ms <= end:
            end = next(behind, last)
    return end


def _before_their_time(
    plan: Plan, first: int, edits: list[Stretch], own: list[int], left: int
) -> list[Stretch]:
    """Of what was added, or moved to before its time, what takes a place within max_runs: each does
    if the times that are due before it, and others like it, leave one."""
    early = [
        one
        for one in edits
        if (
            one.first >= first and one.due_ms < due(plan, one.first)
            if _is_moved(one)
            else not _is_named(plan, one)
        )
    ]
    gone = sorted({*own, *(one.first for one in early if _is_moved(one))})
    placed: list[Stretch] = []
    for one in sorted(early, key=lambda one: (one.due_ms, one.first)):
        at_ms = one.due_ms - due(plan, 0)
        end = at_ms + (at_ms < one.first)
        times = (first < end) + count_scheduled(plan, first + 1, end).number
        if times - bisect_left(gone, end) + len(placed) < left:
            placed.append(one)
    return placed
