"""The next scheduled time of a job that will run, and what is left out before it.

The timer of a job stands at the next time that its schedules name. That may be a day off, or one
that was skipped or moved by hand: it gets its outcome when it comes, and no run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...proto.v1 import job_pb2
from ..core.instants import clock_text, set_ms
from ..model.entities import Job
from ..model.record import EditRecord
from ..model.view import View
from ..schedule.plan import Plan, due, excluded, latest_scheduled_before, next_scheduled
from . import ledger, next_time

DAYS_MAX = 100  # Days, or times in them, that are left out one behind the other.
STRETCHES_SHOWN = 3
BY_HAND = "manually"


@dataclass(slots=True)
class Upcoming:
    """What lies ahead of a job."""

    # 0: none, or none is known.
    scheduled_ms: int = 0
    due_ms: int = 0
    # First and last scheduled time that are left out in a row, and by what.
    stretches: list[tuple[int, int, str]] = field(default_factory=list)

    @property
    def left_out(self) -> str:
        shown = [_stretch(*one) for one in self.stretches[:STRETCHES_SHOWN]]
        more = len(self.stretches) - len(shown)
        return ", ".join([*shown, f"and {more} more"] if more else shown)


def show(view: View, job: Job, status: job_pb2.JobStatus) -> None:
    """Put the next time that will run into a status that holds the next one of the schedules."""
    state = job.state
    ran_ahead = state.last_scheduled_at_ms >= state.next_scheduled_at_ms
    if not state.edits and not job.definition.template.calendars and not ran_ahead:
        return
    try:
        ahead = upcoming(view, job)
    except next_time.UnreadableSchedule:
        # The warnings of the job and its explanation say so.
        return
    status.left_out = ahead.left_out
    for name, ms in (
        ("next_scheduled_time", ahead.scheduled_ms), ("next_due_time", ahead.due_ms),
    ):  # fmt: skip
        status.ClearField(name)  # type: ignore[arg-type]  # One of the two.
        if ms:
            set_ms(getattr(status, name), ms)


def upcoming(view: View, job: Job) -> Upcoming:
    state = job.state
    found = Upcoming(state.next_scheduled_at_ms, state.next_due_at_ms)
    edited = {edit.scheduled_at_ms: edit for edit in state.edits}
    by_hand = min(
        (
            (at, edit.scheduled_at_ms)
            for edit in state.edits
            if (at := next_time.edit_due(edit)) and next_time.has_place(job, edit)
        ),
        default=None,
    )
    if found.scheduled_ms:
        plan = next_time.plan_of(view, job)
        ran = ran_before(view, job)
        _pass_over(plan, found, edited, ran, by_hand[0] if by_hand else None, _left(job))
    if by_hand and (not found.scheduled_ms or by_hand[0] <= found.due_ms):
        found.due_ms, found.scheduled_ms = by_hand
    return found


def ran_before(view: View, job: Job) -> set[int]:
    """Times ahead that were moved to before their time, and have their outcome."""
    first, last = job.state.next_scheduled_at_ms, job.state.last_scheduled_at_ms
    return set(ledger.own_entries(view, job, first, last)) if 0 < first <= last else set()


def _left(job: Job) -> int | None:
    if not job.definition.template.max_runs:
        return None
    return next_time.runs_left(job, job.state.next_scheduled_at_ms)


def _pass_over(
    plan: Plan, found: Upcoming, edited: dict[int, EditRecord], ran: set[int],
    before_ms: int | None, left: int | None,
) -> None:  # fmt: skip
    """Go on to the first time that is not left out, or that lies behind `before_ms`."""
    for _ in range(DAYS_MAX):
        at = found.scheduled_ms
        if before_ms is not None and found.due_ms >= before_ms:
            return
        edit = edited.get(at)
        why = BY_HAND if edit is not None and edit.kind == next_time.SKIP else ""
        if edit is None and (name := excluded(plan, at)) is not None:
            why = f"by the calendar '{name}'"
        if edit is None and not why and at not in ran:
            return
        # With max_runs each time counts, so they are passed one by one, as those are that
        # follow from the end of a run.
        behind_ms = at
        if edit is None and why and left is None and not plan.rests:
            behind_ms = _day_end(plan, at, edited) - 1
        following = next_scheduled(plan, behind_ms, last_end_ms=behind_ms)
        if why:
            _note(found, plan, at, behind_ms, why)
        if left is not None and at not in ran:
            left -= 1
        if following is None or left == 0:
            break
        found.scheduled_ms, found.due_ms = following, due(plan, following)
    else:
        found.stretches.append((found.scheduled_ms, 0, "and what follows"))
    found.scheduled_ms = found.due_ms = 0


def _day_end(plan: Plan, at_ms: int, edited: dict[int, EditRecord]) -> int:
    """Until when an instant's day is left out, or the next edit comes."""
    ends = [days.day_end(at_ms, plan.zone) for _, days in plan.calendars
            if days.leaves_out(at_ms, plan.zone)]  # fmt: skip
    return min([max(ends), *(edit_ms for edit_ms in edited if edit_ms > at_ms)])


def _note(found: Upcoming, plan: Plan, at_ms: int, behind_ms: int, why: str) -> None:
    last_ms = at_ms if behind_ms == at_ms else latest_scheduled_before(plan, behind_ms + 1) or at_ms
    if found.stretches and found.stretches[-1][2] == why:
        first_ms = found.stretches.pop()[0]
        found.stretches.append((first_ms, last_ms, why))
    else:
        found.stretches.append((at_ms, last_ms, why))


def _stretch(first_ms: int, last_ms: int, why: str) -> str:
    if not last_ms:
        return f"{clock_text(first_ms)} {why}"
    to = f" to {clock_text(last_ms)}" if last_ms != first_ms else ""
    return f"{clock_text(first_ms)}{to} {why}"
