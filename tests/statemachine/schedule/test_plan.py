"""The questions that the rules ask of a plan."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from raftsched.proto.v1 import calendar_pb2, schedule_pb2
from raftsched.proto.v1.schedule_pb2 import Schedule, Timing
from raftsched.statemachine.schedule.calendar_days import CalendarDays, compile_calendar
from raftsched.statemachine.schedule.compiler import compile_plan
from raftsched.statemachine.schedule.plan import (
    BEFORE_ALL,
    COUNT_MAX,
    Count,
    Grid,
    Plan,
    ScheduledTimes,
    count_scheduled,
    due,
    excluded,
    latest_scheduled,
    latest_scheduled_before,
    newest,
    next_scheduled,
    scheduled_times,
)

from ...sampled import some

if TYPE_CHECKING:
    from .conftest import MakePlan

Instant = Callable[[str], int]
Stamp = Callable[[str], Timestamp]
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


def every(seconds: int, anchor: Timestamp | None = None) -> Schedule:
    return Schedule(interval=schedule_pb2.Interval(every=Duration(seconds=seconds), anchor=anchor))


def after_end(seconds: int) -> Schedule:
    return Schedule(after_end=schedule_pb2.AfterEnd(delay=Duration(seconds=seconds)))


def once(stamp: Timestamp) -> Schedule:
    return Schedule(once=schedule_pb2.Once(time=stamp))


def ahead(plan: Plan, after_ms: int, count: int) -> list[int]:
    found: list[int] = []
    at = next_scheduled(plan, after_ms)
    while at is not None and len(found) < count:
        found.append(at)
        at = next_scheduled(plan, at)
    return found


def test_the_next_time_lies_strictly_after(plan_of: MakePlan, instant: Instant) -> None:
    plan = plan_of("0 9 * * *")
    nine = instant("2026-03-01T09:00")

    assert next_scheduled(plan, nine - 1) == nine
    assert next_scheduled(plan, nine) == nine + DAY_MS


def test_a_recurring_schedule_starts_after_the_job_was_made(
    plan_of: MakePlan, instant: Instant
) -> None:
    plan = plan_of("0 9 * * *", created="2026-03-01T09:00")

    assert next_scheduled(plan, BEFORE_ALL) == instant("2026-03-02T09:00")


def test_a_new_schedule_starts_when_it_took_force(plan_of: MakePlan, instant: Instant) -> None:
    plan = plan_of("0 9 * * *", "@every 1h", created="2026-03-01T08:30", since="2026-05-01T10:00")

    assert ahead(plan, BEFORE_ALL, 2) == [instant("2026-05-01T10:30"), instant("2026-05-01T11:30")]


def test_a_single_time_in_the_past_runs_at_once(
    plan_of: MakePlan, instant: Instant, stamp: Stamp
) -> None:
    plan = plan_of(once(stamp("2025-07-01")), "0 0 1 * *", created="2026-01-15")

    assert ahead(plan, BEFORE_ALL, 2) == [instant("2025-07-01"), instant("2026-02-01")]


def test_a_single_time_is_kept_to_the_millisecond(plan_of: MakePlan) -> None:
    plan = plan_of(once(Timestamp(seconds=1_800_000_000, nanos=123_999_999)))

    assert ahead(plan, BEFORE_ALL, 5) == [1_800_000_000_123]


def test_an_interval_counts_from_the_creation(plan_of: MakePlan, instant: Instant) -> None:
    plan = plan_of(every(90), created="2026-01-01T00:00:07")

    assert ahead(plan, BEFORE_ALL, 2) == [
        instant("2026-01-01T00:01:37"),
        instant("2026-01-01T00:03:07"),
    ]


@pytest.mark.parametrize(
    "anchor", ["2020-01-01T00:00:30", "2026-01-01T00:00:30", "2040-01-01T00:00:30"]
)
def test_an_anchor_may_lie_before_or_ahead(
    anchor: str, plan_of: MakePlan, instant: Instant, stamp: Stamp
) -> None:
    plan = plan_of(every(60, stamp(anchor)))

    assert next_scheduled(plan, BEFORE_ALL) == instant("2026-01-01T00:00:30")


def test_every_is_an_interval(plan_of: MakePlan, instant: Instant) -> None:
    plan = plan_of("@every 5m", created="2026-01-01T00:00:07")

    assert next_scheduled(plan, BEFORE_ALL) == instant("2026-01-01T00:05:07")


def test_an_interval_is_real_time_on_the_days_when_clocks_change(
    plan_of: MakePlan, instant: Instant
) -> None:
    plan = plan_of("@every 1h", zone="Europe/Berlin")

    for day in ("2026-03-28", "2026-10-24"):
        steps = {b - a for a, b in pairwise(ahead(plan, instant(day), 48))}
        assert steps == {HOUR_MS}


@given(
    st.integers(1000, 10**9), st.integers(0, 4 * 10**12), st.integers(0, 4 * 10**12),
    st.integers(0, 10**8),
)  # fmt: skip
@settings(max_examples=200, deadline=None, derandomize=True)
def test_a_grid_is_all_that_is_congruent(
    every_ms: int, anchor_ms: int, from_ms: int, length: int
) -> None:
    grid = Grid(every_ms, anchor_ms)
    following, before = grid.next_after(from_ms), grid.last_before(from_ms)

    assert following is not None
    assert following > from_ms >= following - every_ms
    assert (following - anchor_ms) % every_ms == 0
    if before is not None:
        assert before < from_ms <= before + every_ms
        assert (before - anchor_ms) % every_ms == 0
    to_ms = from_ms + length
    assert grid.count(from_ms, to_ms) == len(range(following - every_ms, to_ms, every_ms)) - (
        following - every_ms < from_ms
    )


# After the end of a run.


def test_a_rest_counts_from_the_creation_then_from_the_end(
    plan_of: MakePlan, instant: Instant
) -> None:
    plan = plan_of(after_end(60), created="2026-01-01T00:00")
    first = instant("2026-01-01T00:01")

    assert next_scheduled(plan, BEFORE_ALL) == first
    # Under way.
    assert next_scheduled(plan, first) is None
    assert next_scheduled(plan, first, last_end_ms=first + 5000) == first + 65_000


def test_a_rest_counts_from_the_start_time(
    plan_of: MakePlan, instant: Instant, stamp: Stamp
) -> None:
    plan = plan_of(after_end(60), timing=Timing(start_time=stamp("2026-06-01")))

    assert next_scheduled(plan, BEFORE_ALL) == instant("2026-06-01T00:01")


def test_a_scheduled_time_that_did_not_run_is_followed_by_a_rest(plan_of: MakePlan) -> None:
    """With the delay 0 a day off would otherwise have a scheduled time each millisecond."""
    assert next_scheduled(plan_of(after_end(0)), 2 * 10**12, last_end_ms=2 * 10**12) == (
        2 * 10**12 + 1000
    )
    assert next_scheduled(plan_of(after_end(60)), 2 * 10**12, last_end_ms=10**12) == (
        2 * 10**12 + 60_000
    )


def test_a_rest_of_nothing_starts_when_the_run_ended(plan_of: MakePlan) -> None:
    at = 2 * 10**12

    assert next_scheduled(plan_of(after_end(0)), at, last_end_ms=at + 1) == at + 1


# Start and end.


def test_start_is_in_and_end_is_not(plan_of: MakePlan, instant: Instant, stamp: Stamp) -> None:
    timing = Timing(start_time=stamp("2026-03-02T09:00"), end_time=stamp("2026-03-04T09:00"))
    plan = plan_of("0 9 * * *", timing=timing)
    expected = [instant("2026-03-02T09:00"), instant("2026-03-03T09:00")]

    assert ahead(plan, BEFORE_ALL, 9) == expected
    assert scheduled_times(plan, 0, instant("2030-01-01"), 9) == ScheduledTimes(expected, False)
    assert count_scheduled(plan, 0, instant("2030-01-01")) == Count(2, True)
    assert latest_scheduled_before(plan, instant("2030-01-01")) == expected[1]


def test_the_end_holds_for_rests_and_single_times(
    plan_of: MakePlan, instant: Instant, stamp: Stamp
) -> None:
    timing = Timing(end_time=stamp("2026-06-01"))
    plan = plan_of(after_end(60), once(stamp("2026-05-31")), timing=timing)

    assert (
        next_scheduled(plan, instant("2026-05-31"), last_end_ms=instant("2026-05-31T23:59")) is None
    )


# Unions.

PARTS = ["0 9 * * *", "*/7 8-10 * * mon", "30 2 * * *", "@every 5h", "0 */2 25-31 * *", "0 9 1 * *"]


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=4), st.integers(0, 360))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_union_is_the_merge_of_its_parts(said: list[str], day: int) -> None:
    from_ms = 1_767_225_600_000 + day * DAY_MS
    to_ms = from_ms + 5 * DAY_MS
    union = make(*said)
    merged = sorted({at for one in said for at in walk(make(one), from_ms, to_ms)})

    assert walk(union, from_ms, to_ms) == merged
    assert scheduled_times(union, from_ms, to_ms, 10_000) == ScheduledTimes(merged, False)
    assert latest_scheduled(union, from_ms, to_ms, 10_000) == ScheduledTimes(merged, False)
    assert count_scheduled(union, from_ms, to_ms) == Count(len(merged), True)
    assert latest_scheduled(union, from_ms, to_ms, 2).times == merged[-2:]
    assert scheduled_times(union, from_ms, to_ms, 2) == ScheduledTimes(merged[:2], len(merged) > 2)


MANY = ["*/7 * * * *", "0 9 * * *", "* * * * *", "@every 90s", "0-29 * * * *", "30-59 * * * sat"]


@pytest.mark.parametrize("seed", some(range(60), 20))
def test_long_lists_of_a_union_are_the_merge_of_its_parts(seed: int) -> None:
    """Forwards and backwards, with a limit that cuts them and with one that does not."""
    random = Random(seed)
    said = random.choices(MANY, k=random.randrange(1, 5))
    single = [Timestamp(seconds=1_767_225_600 + random.randrange(30 * 86_400)) for _ in range(2)]
    union = make(*said, *single)
    from_ms = 1_767_225_600_000 + random.randrange(30 * DAY_MS)
    to_ms = from_ms + random.randrange(20 * DAY_MS)
    found = {at for one in said for at in walk(make(one), from_ms, to_ms)}
    found |= {at.seconds * 1000 for at in single if from_ms <= at.seconds * 1000 < to_ms}
    merged = sorted(found)
    for limit in (0, 1, 9, 100, len(merged) - 1, len(merged), 30_000):
        if limit < 0:
            continue
        cut = len(merged) > limit
        assert scheduled_times(union, from_ms, to_ms, limit) == ScheduledTimes(
            merged[:limit], cut
        ), seed
        latest = merged[max(0, len(merged) - limit) :]
        assert latest_scheduled(union, from_ms, to_ms, limit) == ScheduledTimes(latest, cut), seed
        if limit:
            begin = latest[0] if latest else to_ms
            assert newest(union, from_ms, to_ms, limit) == (begin, len(latest)), seed


def make(*said: str | Timestamp) -> Plan:
    schedules = [
        Schedule(cron=schedule_pb2.Cron(expression=one))
        if isinstance(one, str)
        else Schedule(once=schedule_pb2.Once(time=one))
        for one in said
    ]
    plan = compile_plan(
        schedules,
        Timing(zone="Europe/Berlin"),
        seed="default/job",
        created_at_ms=1_767_000_000_000,
        calendars={},
    )
    assert isinstance(plan, Plan)
    return plan


def walk(plan: Plan, from_ms: int, to_ms: int) -> list[int]:
    found: list[int] = []
    at = next_scheduled(plan, from_ms - 1)
    while at is not None and at < to_ms:
        assert not found or at > found[-1]
        found.append(at)
        at = next_scheduled(plan, at)
    return found


# After an outage.


def test_a_year_of_missed_minutes_is_counted_exactly(plan_of: MakePlan, instant: Instant) -> None:
    plan = plan_of("* * * * *", zone="Europe/Berlin", created="2025-12-31")
    from_ms, to_ms = instant("2026-01-01"), instant("2027-01-01")

    assert count_scheduled(plan, from_ms, to_ms) == Count(525_600, True)
    assert scheduled_times(plan, from_ms, to_ms, 2) == ScheduledTimes(
        [from_ms, from_ms + MINUTE_MS], True
    )
    assert latest_scheduled_before(plan, to_ms) == to_ms - MINUTE_MS
    assert latest_scheduled(plan, from_ms, to_ms, 2) == ScheduledTimes(
        [to_ms - 2 * MINUTE_MS, to_ms - MINUTE_MS], True
    )


def test_a_large_union_is_counted_as_at_least(plan_of: MakePlan, instant: Instant) -> None:
    plan = plan_of("* * * * *", "@every 1m", "0 * * * *", created="2025-12-31")
    from_ms = instant("2026-01-01")

    assert count_scheduled(plan, from_ms, instant("2027-01-01")) == Count(525_600, False)
    # 6,000 and 6,000, none of them shared, are more than is walked.
    apart = plan_of("* * * * *", every(60, Timestamp(seconds=30)), created="2025-12-31")
    assert count_scheduled(apart, from_ms, from_ms + 6000 * MINUTE_MS) == Count(COUNT_MAX, False)
    assert count_scheduled(apart, from_ms, from_ms + 5000 * MINUTE_MS) == Count(10_000, True)


def test_a_backfill_reaches_back_before_the_job_was_made(
    plan_of: MakePlan, instant: Instant
) -> None:
    plan = plan_of("0 9 * * *", created="2026-01-01")
    from_ms, to_ms = instant("2025-12-01"), instant("2025-12-04")
    times = [instant(f"2025-12-0{day}T09:00") for day in (1, 2, 3)]

    assert scheduled_times(plan, from_ms, to_ms, 9, ever=True) == ScheduledTimes(times, False)
    assert latest_scheduled(plan, from_ms, to_ms, 9, ever=True) == ScheduledTimes(times, False)
    assert count_scheduled(plan, from_ms, to_ms, ever=True) == Count(3, True)
    assert next_scheduled(plan, from_ms, ever=True) == times[0]
    assert latest_scheduled_before(plan, to_ms, ever=True) == times[2]


def test_nothing_was_missed_before_the_job_was_made(
    plan_of: MakePlan, instant: Instant, stamp: Stamp
) -> None:
    """A single time in the past, caught up with, must not find a year of daily times behind it."""
    plan = plan_of(once(stamp("2025-07-01")), "0 0 * * *", created="2026-01-15T08:00")
    from_ms, to_ms = instant("2025-07-01"), instant("2026-01-17")
    times = [from_ms, instant("2026-01-16")]

    assert scheduled_times(plan, from_ms, to_ms, 9) == ScheduledTimes(times, False)
    assert latest_scheduled(plan, from_ms, to_ms, 9) == ScheduledTimes(times, False)
    assert count_scheduled(plan, from_ms, to_ms) == Count(2, True)
    assert latest_scheduled_before(plan, instant("2026-01-15T12:00")) == from_ms
    assert latest_scheduled_before(plan, from_ms) is None


def test_a_time_at_the_instant_of_creation_is_not_ahead(
    plan_of: MakePlan, instant: Instant
) -> None:
    plan = plan_of("0 9 * * *", created="2026-01-15T09:00")
    nine = instant("2026-01-15T09:00")

    assert next_scheduled(plan, BEFORE_ALL) == nine + DAY_MS
    assert latest_scheduled_before(plan, nine + 1) is None
    assert count_scheduled(plan, 0, nine + 1) == Count(0, True)
    assert count_scheduled(plan, 0, nine + DAY_MS + 1) == Count(1, True)
    assert scheduled_times(plan, 0, nine + 1, 9).times == []


def test_a_range_begins_in_and_ends_before(plan_of: MakePlan, instant: Instant) -> None:
    plan = plan_of("0 9 * * *")
    from_ms, to_ms = instant("2026-02-01T09:00"), instant("2026-02-02T09:00")

    assert scheduled_times(plan, from_ms, to_ms, 9).times == [from_ms]
    assert scheduled_times(plan, from_ms, from_ms, 9) == ScheduledTimes([], False)
    assert scheduled_times(plan, to_ms, from_ms, 9) == ScheduledTimes([], False)
    assert scheduled_times(plan, from_ms, to_ms, 0) == ScheduledTimes([], True)
    assert count_scheduled(plan, to_ms, from_ms) == Count(0, True)


# Jitter.


def jitter_of(plan_of: MakePlan, seed: str, seconds: int) -> int:
    plan = plan_of("0 9 * * *", seed=seed, timing=Timing(jitter=Duration(seconds=seconds)))
    return due(plan, 0)


def test_a_job_without_jitter_is_due_at_its_scheduled_time(plan_of: MakePlan) -> None:
    assert due(plan_of("0 9 * * *"), 12_345) == 12_345


def test_jitter_is_the_same_for_ever(plan_of: MakePlan) -> None:
    assert jitter_of(plan_of, "default/report", 30) == jitter_of(plan_of, "default/report", 30)
    assert [jitter_of(plan_of, seed, 30) for seed in ("default/report", "prod/backup")] == [
        24_694,
        15_784,
    ]


def test_jitter_keeps_the_order_and_the_distance_of_scheduled_times(plan_of: MakePlan) -> None:
    plan = plan_of("* * * * *", timing=Timing(jitter=Duration(seconds=3600)))
    scheduled = ahead(plan, BEFORE_ALL, 50)

    dues = [due(plan, at) for at in scheduled]

    assert {b - a for a, b in pairwise(dues)} == {MINUTE_MS}
    assert dues[0] > scheduled[0]


def test_jitter_spreads_many_jobs_evenly_over_its_window(plan_of: MakePlan) -> None:
    window_ms, jobs, buckets = 30_000, 20_000, 30
    counts = [0] * buckets
    for number in range(jobs):
        late = jitter_of(plan_of, f"default/job-{number}", window_ms // 1000)
        assert 0 <= late <= window_ms
        counts[min(late * buckets // window_ms, buckets - 1)] += 1

    expected = jobs / buckets
    # Chi-square with 29 degrees of freedom: above 60 less than one time in a thousand.
    assert sum((count - expected) ** 2 / expected for count in counts) < 60


def test_jitter_and_spread_places_do_not_go_together(plan_of: MakePlan) -> None:
    """One hash for both would make all jobs of one minute late by the same."""
    same_minute: dict[int, set[int]] = {}
    for number in range(600):
        seed = f"default/job-{number}"
        plan = plan_of("H * * * *", seed=seed, timing=Timing(jitter=Duration(seconds=60)))
        first = next_scheduled(plan, BEFORE_ALL)
        assert first is not None
        same_minute.setdefault(first, set()).add(due(plan, 0))

    assert all(len(late) > 1 for late in same_minute.values())


# Calendars.


def calendar(**said: str) -> CalendarDays:
    found = compile_calendar(
        calendar_pb2.Calendar(rules=[calendar_pb2.CalendarRule(date=said["date"])])
    )
    assert isinstance(found, CalendarDays)
    return found


def test_the_calendar_that_leaves_a_time_out_is_named(plan_of: MakePlan, instant: Instant) -> None:
    plan = plan_of(
        "0 9 * * *",
        timing=Timing(zone="Asia/Tokyo", exclude_calendars=["works", "holidays"]),
        calendars={"holidays": calendar(date="2026-12-24"), "works": calendar(date="2026-05-01")},
    )

    assert excluded(plan, instant("2026-12-24T00:00")) == "holidays"
    assert excluded(plan, instant("2026-05-01T00:00")) == "works"
    # Still or already another day in Tokyo.
    assert excluded(plan, instant("2026-12-24T15:00")) is None
    assert excluded(plan, instant("2026-12-23T15:00")) == "holidays"
    assert next_scheduled(plan, instant("2026-12-23T20:00")) == instant("2026-12-24T00:00")
