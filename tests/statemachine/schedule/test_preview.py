"""What people see of the time ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from raftsched.proto.v1 import calendar_pb2
from raftsched.proto.v1.schedule_pb2 import AfterEnd, OccurrenceEdit, Schedule, Timing
from raftsched.statemachine.schedule.calendar_days import CalendarDays, compile_calendar
from raftsched.statemachine.schedule.plan import BEFORE_ALL, excluded, next_scheduled
from raftsched.statemachine.schedule.preview import PreviewedTime, preview
from raftsched.statemachine.schedule.zones import find_zone

if TYPE_CHECKING:
    from .conftest import MakePlan

Instant = Callable[[str], int]
Stamp = Callable[[str], Timestamp]


def brief(seen: list[PreviewedTime]) -> list[tuple[str, str]]:
    return [(one.local_time, one.note) for one in seen]


def test_a_preview_shows_local_times_and_why_they_are_odd(
    plan_of: MakePlan, instant: Instant
) -> None:
    plan = plan_of("30 2 * * *", zone="Europe/Berlin")

    spring = preview(plan, instant("2026-03-28T12:00"), 2)
    autumn = preview(plan, instant("2026-10-24T12:00"), 2)

    missing = "02:30 does not exist on this day, so it is the first instant after"
    assert brief(spring) == [
        ("2026-03-29T03:00:00+02:00", missing),
        ("2026-03-30T02:30:00+02:00", ""),
    ]
    assert brief(autumn) == [
        ("2026-10-25T02:30:00+02:00", "02:30 comes twice on this day; this is the first"),
        ("2026-10-26T02:30:00+01:00", ""),
    ]


def test_both_passes_of_a_repeated_hour_are_told_apart(plan_of: MakePlan, instant: Instant) -> None:
    plan = plan_of("15 30 * * * *", zone="Europe/Berlin")

    seen = brief(preview(plan, instant("2026-10-24T23:59"), 4))

    assert seen == [
        ("2026-10-25T02:30:15+02:00", "02:30:15 comes twice on this day; this is the first"),
        ("2026-10-25T02:30:15+01:00", "02:30:15 comes twice on this day; this is the second"),
        ("2026-10-25T03:30:15+01:00", ""),
        ("2026-10-25T04:30:15+01:00", ""),
    ]


def test_an_edge_that_is_named_itself_needs_no_excuse(plan_of: MakePlan, instant: Instant) -> None:
    plan = plan_of("0 2,3 * * *", zone="Europe/Berlin")

    assert brief(preview(plan, instant("2026-03-28T12:00"), 1)) == [
        ("2026-03-29T03:00:00+02:00", "")
    ]


def test_an_interval_in_a_repeated_hour_needs_no_excuse(
    plan_of: MakePlan, instant: Instant
) -> None:
    plan = plan_of("@every 7m", zone="Europe/Berlin")

    assert {one.note for one in preview(plan, instant("2026-10-25T00:00"), 20)} == {""}


def test_a_preview_asks_what_the_rules_ask(plan_of: MakePlan, instant: Instant) -> None:
    timing = Timing(zone="Asia/Gaza", jitter=Duration(seconds=30))
    plan = plan_of("30 2 * * *", "0 */5 * * *", "H * * * mon", timing=timing)

    seen = preview(plan, instant("2026-03-27T00:00"), 200)

    at = next_scheduled(plan, instant("2026-03-27T00:00") - 1)
    for one in seen:
        assert one.scheduled_ms == at
        assert one.due_ms == one.scheduled_ms + plan.jitter_ms
        assert one.excluded == (excluded(plan, one.scheduled_ms) is not None)
        at = next_scheduled(plan, one.scheduled_ms)
    assert len(seen) == 200


def test_the_instant_it_starts_from_is_in(plan_of: MakePlan, instant: Instant) -> None:
    nine = instant("2026-03-01T09:00")

    assert preview(plan_of("0 9 * * *"), nine, 1)[0].scheduled_ms == nine


def test_days_off_are_shown_and_marked(plan_of: MakePlan, instant: Instant) -> None:
    holidays = compile_calendar(
        calendar_pb2.Calendar(rules=[calendar_pb2.CalendarRule(yearly="12-25")])
    )
    assert isinstance(holidays, CalendarDays)
    timing = Timing(exclude_calendars=["holidays"])
    plan = plan_of("0 9 * * *", timing=timing, calendars={"holidays": holidays})

    seen = preview(plan, instant("2026-12-24"), 3)

    assert [one.excluded for one in seen] == [False, True, False]
    assert seen[1].note == "left out by the calendar holidays"


def edit(kind: OccurrenceEdit.Kind.ValueType, at: Timestamp, to: Timestamp | None = None) -> (
    OccurrenceEdit
):  # fmt: skip
    return OccurrenceEdit(kind=kind, scheduled_time=at, moved_to=to)


def test_occurrences_changed_by_hand_are_shown(
    plan_of: MakePlan, instant: Instant, stamp: Stamp
) -> None:
    plan = plan_of("0 9 * * *")
    edits = [
        edit(OccurrenceEdit.KIND_SKIP, stamp("2026-02-02T09:00")),
        edit(OccurrenceEdit.KIND_MOVE, stamp("2026-02-03T09:00"), stamp("2026-02-03T15:00")),
        edit(OccurrenceEdit.KIND_ADD, stamp("2026-02-03T12:00")),
        edit(OccurrenceEdit.KIND_ADD, stamp("2026-02-01T07:00")),
        edit(OccurrenceEdit.KIND_ADD, stamp("2026-01-31T07:00")),
        edit(OccurrenceEdit.KIND_ADD, stamp("2026-02-04T09:00")),
    ]

    seen = preview(plan, instant("2026-02-01T07:00"), 7, edits=edits)

    assert [(one.local_time[5:16], one.note, one.excluded) for one in seen] == [
        ("02-01T07:00", "added manually", False),
        ("02-01T09:00", "", False),
        ("02-02T09:00", "left out manually", True),
        ("02-03T09:00", "moved manually to 2026-02-03T15:00:00+00:00", False),
        ("02-03T12:00", "added manually", False),
        ("02-04T09:00", "added manually", False),
        ("02-05T09:00", "", False),
    ]
    assert seen[3].due_ms == instant("2026-02-03T15:00")


def test_what_was_added_is_shown_when_nothing_else_is_left(
    plan_of: MakePlan, instant: Instant, stamp: Stamp
) -> None:
    edits = [edit(OccurrenceEdit.KIND_ADD, stamp(f"2026-02-0{day}")) for day in (3, 1, 2)]

    seen = preview(plan_of(), instant("2026-01-01"), 9, edits=edits)

    assert [one.local_time[:10] for one in seen] == ["2026-02-01", "2026-02-02", "2026-02-03"]


def test_times_may_be_shown_on_another_wall(plan_of: MakePlan, instant: Instant) -> None:
    plan = plan_of("0 9 * * *", zone="Europe/Berlin")

    [seen] = preview(plan, instant("2026-02-01"), 1, zone=find_zone("Asia/Kolkata"))

    assert seen.local_time == "2026-02-01T13:30:00+05:30"


def test_only_the_first_time_after_an_end_is_known(plan_of: MakePlan, instant: Instant) -> None:
    plan = plan_of(Schedule(after_end=AfterEnd(delay=Duration(seconds=60))))
    ended = instant("2026-02-01T00:00:30")

    fresh = preview(plan, BEFORE_ALL, 5)
    later = preview(plan, instant("2026-02-01"), 5, last_end_ms=ended)

    assert [one.scheduled_ms for one in fresh] == [instant("2026-01-01T00:01")]
    assert [one.scheduled_ms for one in later] == [ended + 60_000]


@pytest.mark.parametrize(("count", "shown"), [(0, 0), (-3, 0), (5, 5), (1000, 1000), (5000, 1000)])
def test_a_preview_is_bounded(count: int, shown: int, plan_of: MakePlan, instant: Instant) -> None:
    assert len(preview(plan_of("* * * * *"), instant("2026-02-01"), count)) == shown
