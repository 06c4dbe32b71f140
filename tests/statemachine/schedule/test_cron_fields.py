"""The walk on one wall clock, held against croniter's walk and against a look at every minute."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from croniter import CroniterBadDateError, croniter
from hypothesis import given, settings
from hypothesis import strategies as st

from raftsched.statemachine.schedule.cron import Refusal, read_cron
from raftsched.statemachine.schedule.cron_fields import CronFields

from ...rows import each

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (a wall clock has no zone)
DAY = 86_400


def fields_of(expression: str) -> CronFields:
    read = read_cron(expression, "default/job")
    assert not isinstance(read, Refusal), read
    return read.fields


def wall(text: str) -> int:
    return int((datetime.fromisoformat(text) - EPOCH).total_seconds())


def shown(at: int | None) -> str:
    return "never" if at is None else str(EPOCH + timedelta(seconds=at))[:16]


def walk(fields: CronFields, at: int, count: int) -> Iterator[int]:
    for _ in range(count):
        found = fields.at_or_after(at)
        if found is None:
            return
        yield found
        at = found + 1


def walk_back(fields: CronFields, at: int, count: int) -> Iterator[int]:
    for _ in range(count):
        found = fields.at_or_before(at)
        if found is None:
            return
        yield found
        at = found - 1


def by_croniter(expression: str, at: int, count: int) -> list[int]:
    """Return the next times croniter finds; fewer when it finds no more."""
    # The "bug" is that of Vixie cron: where a day field begins with a star, both count.
    cron = croniter(expression, float(at - 1), second_at_beginning=True, implement_cron_bug=True)
    found: list[int] = []
    with contextlib.suppress(CroniterBadDateError):
        found.extend(int(cron.get_next(float)) for _ in range(count))
    return found


def number(low: int, high: int) -> st.SearchStrategy[str]:
    return st.integers(low, high).map(str)


def field(low: int, high: int, *more: str) -> st.SearchStrategy[str]:
    ranges = st.tuples(st.integers(low, high), st.integers(low, high)).filter(
        lambda bounds: bounds[0] < bounds[1]
    )
    step = st.integers(1, high)
    return st.one_of(
        st.just("*"),
        number(low, high),
        st.lists(number(low, high), min_size=2, max_size=4).map(",".join),
        ranges.map(lambda bounds: f"{bounds[0]}-{bounds[1]}"),
        st.tuples(ranges, step).map(lambda said: f"{said[0][0]}-{said[0][1]}/{said[1]}"),
        st.integers(2, high).map(lambda n: f"*/{n}"),
        *(st.just(word) for word in more),
    )


DAYS = field(1, 31, "L", "1,L", "?")
WEEKDAYS = field(0, 6, "mon-fri", "sat,sun", "?")
MONTHS = field(1, 12, "jan,jul", "feb")
YEARS = field(2024, 2030)
NTHS = st.sampled_from(["fri#2", "L5", "mon#5", "mon#1,tue#3", "L1,L0", "mon-wed#4"])
NEAREST = st.sampled_from(["1W", "15W", "W16", "28W"])
# `#` and `W` stay apart from the other day field: there croniter forgets a side (see below).
EXPRESSIONS = st.one_of(
    st.tuples(field(0, 59), field(0, 23), DAYS, MONTHS, WEEKDAYS),
    st.tuples(field(0, 59), field(0, 23), st.just("*"), MONTHS, NTHS),
    st.tuples(field(0, 59), field(0, 23), NEAREST, MONTHS, st.just("*")),
    st.tuples(field(0, 59), field(0, 59), field(0, 23), DAYS, MONTHS, WEEKDAYS),
    st.tuples(number(0, 59), field(0, 59), number(0, 23), DAYS, MONTHS, WEEKDAYS, YEARS),
).map(" ".join)
MOMENTS = st.integers(wall("2024-01-01"), wall("2030-12-31"))


@given(EXPRESSIONS, MOMENTS)
@settings(max_examples=400, deadline=None, derandomize=True)
def test_the_walk_is_that_of_croniter(expression: str, start: int) -> None:
    fields = fields_of(expression)

    assert list(walk(fields, start, 3)) == by_croniter(expression, start, 3)


@given(EXPRESSIONS, MOMENTS)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_the_walk_back_meets_the_walk_forward(expression: str, start: int) -> None:
    fields = fields_of(expression)

    there = list(walk(fields, start, 4))
    back = list(walk_back(fields, there[-1] if there else start, len(there) + 1))

    assert back[: len(there)] == there[::-1]
    assert all(before < start for before in back[len(there) :])


@given(EXPRESSIONS, MOMENTS, st.integers(0, 40 * DAY))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_counting_is_walking(expression: str, start: int, length: int) -> None:
    fields = fields_of(expression)
    end = min(start + length, start + 3000 * 60)
    walked, at = 0, fields.at_or_after(start)
    while at is not None and at < end and walked < 5000:
        walked, at = walked + 1, fields.at_or_after(at + 1)
    if walked == 5000:
        assert fields.count(start, end) >= 5000
    else:
        assert fields.count(start, end) == walked


@given(EXPRESSIONS, MOMENTS, st.integers(0, 40 * DAY), st.sampled_from([1, 10, 5000]))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_listing_is_walking(expression: str, start: int, length: int, most: int) -> None:
    fields = fields_of(expression)
    end, walked, at = start + length, list[int](), fields.at_or_after(start)
    while at is not None and at < end and len(walked) < most:
        walked.append(at)
        at = fields.at_or_after(at + 1)

    assert fields.between(start, end, most) == walked


def test_a_year_of_minutes_is_counted_without_a_walk() -> None:
    fields = fields_of("* * * * *")

    assert fields.count(wall("2026-01-01"), wall("2027-01-01")) == 525_600
    assert fields.count(wall("2026-01-01"), wall("2026-01-01")) == 0
    assert fields.count(wall("2026-01-02"), wall("2026-01-01")) == 0
    assert fields_of("* * * * * *").count(wall("2028-01-01"), wall("2029-01-01")) == 366 * DAY


@each(
    ("expression", "times"),
    [
        ("0 0 L * *", ["2026-01-31 00:00", "2026-02-28 00:00", "2026-03-31 00:00"]),
        ("0 0 LW * *", ["2026-01-30 00:00", "2026-02-27 00:00", "2026-03-31 00:00"]),
        ("0 0 L-1 * *", ["2026-01-30 00:00", "2026-02-27 00:00", "2026-03-30 00:00"]),
        ("0 0 L-2,L * *", ["2026-01-29 00:00", "2026-01-31 00:00", "2026-02-26 00:00"]),
        ("0 0 1,L-30 * *", ["2026-01-01 00:00", "2026-02-01 00:00", "2026-03-01 00:00"]),
        # February has no day that lies so far before its last.
        ("0 0 L-29 * *", ["2026-01-02 00:00", "2026-03-02 00:00", "2026-04-01 00:00"]),
        ("0 0 L-28 2 *", ["2028-02-01 00:00", "2032-02-01 00:00", "2036-02-01 00:00"]),
        ("0 0 L-1 * mon#1", ["2026-01-05 00:00", "2026-01-30 00:00", "2026-02-02 00:00"]),
        ("0 0 ? * friL", ["2026-01-30 00:00", "2026-02-27 00:00", "2026-03-27 00:00"]),
        ("0 0 * * 7L", ["2026-01-25 00:00", "2026-02-22 00:00", "2026-03-29 00:00"]),
        ("0 0 * * mon#1,sun", ["2026-01-04 00:00", "2026-01-05 00:00", "2026-01-11 00:00"]),
        ("0 0 15W * *", ["2026-01-15 00:00", "2026-02-16 00:00", "2026-03-16 00:00"]),
        # As in Quartz: where there is no 31st there is no weekday nearest to it.
        ("0 0 31W * *", ["2026-01-30 00:00", "2026-03-31 00:00", "2026-05-29 00:00"]),
        ("0 0 29W 2 *", ["2028-02-29 00:00", "2032-02-27 00:00", "2036-02-29 00:00"]),
        ("0 0 1W * *", ["2026-01-01 00:00", "2026-02-02 00:00", "2026-03-02 00:00"]),
        ("0 0 * * fri#2", ["2026-01-09 00:00", "2026-02-13 00:00", "2026-03-13 00:00"]),
        ("0 0 * * L5", ["2026-01-30 00:00", "2026-02-27 00:00", "2026-03-27 00:00"]),
        ("0 0 * * mon#5", ["2026-03-30 00:00", "2026-06-29 00:00", "2026-08-31 00:00"]),
        # Seven days with the same number are still not every day.
        ("0 0 * * sun-sat#5", ["2026-01-29 00:00", "2026-01-30 00:00", "2026-01-31 00:00"]),
        ("0 0 29 2 *", ["2028-02-29 00:00", "2032-02-29 00:00", "2036-02-29 00:00"]),
        ("0 0 * 2 mon#5", ["2044-02-29 00:00", "2072-02-29 00:00", "2112-02-29 00:00"]),
        ("30 30 12 1 1 ? 2099", ["2099-01-01 12:30"]),
        ("0 12 ? * 7", ["2026-01-04 12:00", "2026-01-11 12:00", "2026-01-18 12:00"]),
        ("0 22-2 1 1 *", ["2026-01-01 00:00", "2026-01-01 01:00", "2026-01-01 02:00"]),
        ("0 0 1 nov-feb *", ["2026-01-01 00:00", "2026-02-01 00:00", "2026-11-01 00:00"]),
    ],
)
def test_the_words_of_cron_mean_what_they_say(expression: str, times: list[str]) -> None:
    found = walk(fields_of(expression), wall("2026-01-01"), len(times))

    assert [shown(at) for at in found] == times


@pytest.mark.parametrize(
    ("expression", "times", "of_croniter"),
    [
        # croniter narrows each side by the other when `#` or `W` is used: one side is lost, or
        # all (the weekday nearest to the 15th is no Saturday). The contract: either is enough.
        (
            "0 0 13 * fri#2",
            ["2026-01-09 00:00", "2026-01-13 00:00", "2026-02-13 00:00"],
            ["2026-01-09 00:00", "2026-02-13 00:00", "2026-03-13 00:00"],
        ),
        (
            "0 0 15W * sat",
            ["2026-01-03 00:00", "2026-01-10 00:00", "2026-01-15 00:00"],
            [],
        ),
    ],
)
def test_either_day_field_is_enough_also_where_croniter_forgets_one(
    expression: str, times: list[str], of_croniter: list[str]
) -> None:
    start = wall("2026-01-01")

    assert [shown(at) for at in walk(fields_of(expression), start, 3)] == times
    assert [shown(at) for at in by_croniter(expression, start, 3)] == of_croniter


def test_an_unreachable_date_ends_the_search_both_ways() -> None:
    fields = fields_of("0 0 31 2 *")

    assert fields.at_or_after(wall("2026-01-01")) is None
    assert fields.at_or_before(wall("2026-01-01")) is None
    assert fields.count(wall("1970-01-01"), wall("2100-01-01")) == 0


def test_a_year_that_is_over_ends_the_search() -> None:
    fields = fields_of("0 0 0 1 1 * 2020")

    assert fields.at_or_after(wall("2026-01-01")) is None
    assert shown(fields.at_or_before(wall("2026-01-01"))) == "2020-01-01 00:00"
    assert shown(fields.at_or_after(wall("1970-01-01"))) == "2020-01-01 00:00"


minutes_of_day = st.sets(st.integers(0, 59), min_size=1, max_size=4)


@given(
    minutes_of_day,
    st.sets(st.integers(0, 23), min_size=1, max_size=4),
    st.sets(st.integers(0, 6), min_size=1, max_size=7),
    MOMENTS,
)
@settings(max_examples=30, deadline=None, derandomize=True)
def test_the_walk_finds_what_a_look_at_every_minute_finds(
    minutes: set[int], hours: set[int], weekdays: set[int], start: int
) -> None:
    expression = " ".join(
        [
            ",".join(map(str, sorted(minutes))),
            ",".join(map(str, sorted(hours))),
            "* *",
            ",".join(map(str, sorted(weekdays))),
        ]
    )
    start -= start % 60
    looked = [
        at
        for at in range(start, start + 9 * DAY, 60)
        for moment in [datetime.fromtimestamp(at, UTC)]
        if moment.minute in minutes and moment.hour in hours and moment.isoweekday() % 7 in weekdays
    ]

    assert list(walk(fields_of(expression), start, len(looked))) == looked
    assert fields_of(expression).count(start, start + 9 * DAY) == len(looked)


@pytest.mark.parametrize("begin", ["2026-11-19 12:00:50", "2026-11-19 00:00:00"])
def test_few_seconds_cost_few_times_and_not_those_of_an_hour(begin: str) -> None:
    """600 jobs that were 13 s late asked for these, each of 16 schedules twice, and it took so long
    that all of them were late again."""
    fields = fields_of("* * * * * *")
    low = wall(begin)
    tracemalloc.start()
    found = fields.between(low, low + 13, 1_000)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == list(range(low, low + 13))
    # Those of an hour are 3,600 numbers of 28 bytes.
    assert most < 20_000


@pytest.mark.parametrize(
    ("expression", "fires"),
    [("0 0 31 2 *", False), ("0 0 31 4,6 *", False), ("0 0 30,29 2 *", True), ("0 0 31 2 1", True)],
)
def test_a_day_that_no_month_has_is_known_after_a_year(
    monkeypatch: pytest.MonkeyPatch, expression: str, fires: bool
) -> None:
    looked: list[int] = []
    day_mask = CronFields.day_mask

    def counted(self: CronFields, year: int, month: int) -> int:
        looked.append(month)
        return day_mask(self, year, month)

    monkeypatch.setattr(CronFields, "day_mask", counted)

    found = fields_of(expression).at_or_after(wall("2025-03-01 00:00:00"))

    assert (found is not None) == fires
    assert fires or len(looked) <= 13
