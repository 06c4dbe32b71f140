"""What lies ahead of a job, for people: its next times with the reasons for odd ones.

A preview asks the plan the same questions as the rules that fire, so it cannot promise another
time. It shows what will not happen as well (a day off, an occurrence skipped by hand), marked so.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ...proto.v1 import schedule_pb2
from .plan import Plan, due, excluded, next_scheduled
from .zoned_cron import ZonedCron
from .zones import DAY_S, Zone

PREVIEW_MAX: Final = 1000
EDITS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class PreviewedTime:
    """One scheduled time that lies ahead."""

    scheduled_ms: int
    due_ms: int
    # On the wall of the zone that was asked for, with its offset.
    local_time: str
    note: str
    excluded: bool


def preview(
    plan: Plan,
    from_ms: int,
    count: int,
    *,
    edits: Sequence[schedule_pb2.OccurrenceEdit] = (),
    last_end_ms: int | None = None,
    zone: Zone | None = None,
    left: int | None = None,
    ran: Collection[int] = (),
) -> list[PreviewedTime]:
    """Return the next scheduled times from an instant on, in order, at most `count` (and 1,000).

    Of a schedule that counts from the end of a run only the first time is known. No more than are
    `left` (None: any number) come, those that were added by hand included. Times that `ran` before
    their time come no more.
    """
    by_scheduled = {_ms(edit): edit for edit in edits[:EDITS_MAX]}
    added = [
        at
        for at, edit in by_scheduled.items()
        if edit.kind == schedule_pb2.OccurrenceEdit.KIND_ADD and at >= from_ms
    ]
    added.sort(reverse=True)
    seen: list[PreviewedTime] = []
    at = next_scheduled(plan, from_ms - 1, last_end_ms=last_end_ms)
    while len(seen) < min(count, PREVIEW_MAX):
        if left is not None and len(seen) >= left:
            break
        if added and (at is None or added[-1] <= at):
            scheduled = added.pop()
            if scheduled == at:
                continue
        elif at is not None:
            scheduled, at = at, next_scheduled(plan, at)
        else:
            break
        item = _previewed(plan, scheduled, by_scheduled.get(scheduled), zone or plan.zone)
        if scheduled in ran:
            item = replace(item, note="was moved manually, and came before its time", excluded=True)
            # It has its place already.
            left = None if left is None else left + 1
        seen.append(item)
    return seen


def _previewed(
    plan: Plan, scheduled_ms: int, edit: schedule_pb2.OccurrenceEdit | None, zone: Zone
) -> PreviewedTime:
    due_ms = due(plan, scheduled_ms)
    notes = [note for note in [_clock_note(plan, scheduled_ms)] if note]
    calendar = excluded(plan, scheduled_ms)
    skipped = False
    kind = edit.kind if edit else schedule_pb2.OccurrenceEdit.KIND_UNSPECIFIED
    if kind == schedule_pb2.OccurrenceEdit.KIND_ADD:
        notes.append("added manually")
        due_ms = scheduled_ms
        calendar = None
    elif kind == schedule_pb2.OccurrenceEdit.KIND_SKIP:
        notes.append("left out manually")
        skipped = True
    elif edit and kind == schedule_pb2.OccurrenceEdit.KIND_MOVE:
        due_ms = edit.moved_to.seconds * 1000 + edit.moved_to.nanos // 1_000_000
        notes.append(f"moved manually to {zone.local_text(due_ms)}")
        calendar = None
    if calendar is not None:
        notes.append(f"left out by the calendar {calendar}")
    local = zone.local_text(scheduled_ms)
    return PreviewedTime(
        scheduled_ms, due_ms, local, "; ".join(notes), skipped or calendar is not None
    )


def _clock_note(plan: Plan, scheduled_ms: int) -> str:
    crons = [repeat for repeat in plan.repeats if isinstance(repeat, ZonedCron)]
    for cron in crons:
        missing = cron.gap_wall(scheduled_ms)
        if missing is not None:
            return f"{_clock(missing)} does not exist on this day, so it is the first instant after"
    instant_s = scheduled_ms // 1000
    segment = plan.zone.segment_at(instant_s)
    if not any(cron.last_before(scheduled_ms + 1) == scheduled_ms for cron in crons):
        return ""
    wall = instant_s + segment.offset
    if wall < segment.begin + segment.offset_before:
        return f"{_clock(wall)} comes twice on this day; this is the second"
    if wall >= segment.end + segment.offset_after:
        return f"{_clock(wall)} comes twice on this day; this is the first"
    return ""


def _clock(wall: int) -> str:
    minutes, seconds = divmod(wall % DAY_S, 60)
    text = f"{minutes // 60:02}:{minutes % 60:02}"
    return f"{text}:{seconds:02}" if seconds else text


def _ms(edit: schedule_pb2.OccurrenceEdit) -> int:
    return edit.scheduled_time.seconds * 1000 + edit.scheduled_time.nanos // 1_000_000
