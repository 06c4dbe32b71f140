"""Daylight saving, case by case, and against a slow model that looks at every minute."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftsched.proto.v1 import schedule_pb2
from raftsched.statemachine.schedule.cron import Refusal, read_cron
from raftsched.statemachine.schedule.cron_fields import HourKind
from raftsched.statemachine.schedule.zoned_cron import ZonedCron
from raftsched.statemachine.schedule.zones import Zone, find_zone, year_begin, zone_names

from ...rows import each
from ...sampled import examples, play

NEXT, SKIP = schedule_pb2.GAP_RULE_NEXT, schedule_pb2.GAP_RULE_SKIP
FIRST, SECOND = schedule_pb2.FOLD_RULE_FIRST, schedule_pb2.FOLD_RULE_SECOND
BOTH = schedule_pb2.FOLD_RULE_BOTH
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
Instant = Callable[[str], int]


def named(name: str) -> Zone:
    zone = find_zone(name)
    assert zone is not None
    return zone


def cron_in(
    zone: str,
    expression: str,
    gap_rule: schedule_pb2.GapRule.ValueType = schedule_pb2.GAP_RULE_UNSPECIFIED,
    fold_rule: schedule_pb2.FoldRule.ValueType = schedule_pb2.FOLD_RULE_UNSPECIFIED,
) -> ZonedCron:
    read = read_cron(expression, "default/job")
    assert not isinstance(read, Refusal), read
    return ZonedCron(read.fields, named(zone), gap_rule, fold_rule)


def times(cron: ZonedCron, from_ms: int, to_ms: int) -> list[int]:
    found: list[int] = []
    at = cron.find_next(from_ms - 1)
    while at is not None and at < to_ms:
        found.append(at)
        assert len(found) < 20_000
        at = cron.find_next(at)
    return found


def on_day(cron: ZonedCron, day: str) -> list[str]:
    """Return the local times of a local day, as "03:00+02:00"."""
    midday = int(datetime.fromisoformat(f"{day}T12:00+00:00").timestamp() * 1000)
    local = [
        cron.zone.local_text(at) for at in times(cron, midday - 2 * DAY_MS, midday + 2 * DAY_MS)
    ]
    return [text[11:16] + text[19:] for text in local if text.startswith(day)]


# A name whose hours, spread by two, are 0, 2, 4 and so on.
EVEN_HOURS = "default/report"
BERLIN_GAP, BERLIN_FOLD = "2026-03-29", "2026-10-25"


@each(
    ("zone", "day", "expression", "expected"),
    [
        # Fixed times run once on both days.
        ("Europe/Berlin", BERLIN_GAP, "30 2 * * *", ["03:00+02:00"]),
        ("Europe/Berlin", BERLIN_FOLD, "30 2 * * *", ["02:30+02:00"]),
        ("Europe/Berlin", BERLIN_GAP, "0 3 * * *", ["03:00+02:00"]),
        ("Europe/Berlin", BERLIN_FOLD, "0 3 * * *", ["03:00+01:00"]),
        ("Europe/Berlin", BERLIN_FOLD, "59 1 * * *", ["01:59+02:00"]),
        # Two missing times and a named edge are one instant, and so one run.
        ("Europe/Berlin", BERLIN_GAP, "0,30 2,3 * * *", ["03:00+02:00", "03:30+02:00"]),
        ("Europe/Berlin", BERLIN_GAP, "* 2 * * *", ["03:00+02:00"]),
        ("Europe/Berlin", BERLIN_FOLD, "0-58/29 2 * * *", ["02:00+02:00", "02:29+02:00",
                                                          "02:58+02:00"]),
        # Ranges of hours are fixed times.
        ("Europe/Berlin", BERLIN_GAP, "15 1-3 * * *",
         ["01:15+01:00", "03:00+02:00", "03:15+02:00"]),
        ("Europe/Berlin", BERLIN_FOLD, "15 1-3 * * *",
         ["01:15+02:00", "02:15+02:00", "03:15+01:00"]),
        # Seconds change nothing.
        ("Europe/Berlin", BERLIN_GAP, "5 30 2 * * *", ["03:00+02:00"]),
        ("Europe/Berlin", BERLIN_FOLD, "5 30 2 * * *", ["02:30+02:00"]),
        # Lord Howe moves by thirty minutes, at 02:00 on both days.
        ("Australia/Lord_Howe", "2026-10-04", "15 2 * * *", ["02:30+11:00"]),
        ("Australia/Lord_Howe", "2026-10-04", "45 2 * * *", ["02:45+11:00"]),
        ("Australia/Lord_Howe", "2026-04-05", "45 1 * * *", ["01:45+11:00"]),
        ("Australia/Lord_Howe", "2026-04-05", "15 1 * * *", ["01:15+11:00"]),
        # Gaps at midnight.
        ("America/Sao_Paulo", "2018-11-04", "0 0 * * *", ["01:00-02:00"]),
        ("Africa/Cairo", "2026-04-24", "0 0 * * *", ["01:00+03:00"]),
        ("Asia/Beirut", "2026-03-29", "0 0 * * *", ["01:00+03:00"]),
        ("America/Havana", "2026-03-08", "0 0 * * *", ["01:00-04:00"]),
        # A fold over midnight: the evening before comes twice.
        ("Africa/Cairo", "2026-10-29", "30 23 * * *", ["23:30+03:00"]),
        ("America/Sao_Paulo", "2018-02-17", "30 23 * * *", ["23:30-02:00"]),
        # A zone that changes for other reasons, and one that never does.
        ("Africa/Casablanca", "2026-02-15", "30 2 * * *", ["02:30+01:00"]),
        ("Asia/Tokyo", BERLIN_GAP, "30 2 * * *", ["02:30+09:00"]),
        # A whole day that was left out: its times are late, not lost.
        ("Pacific/Apia", "2011-12-29", "0 9 * * *", ["09:00-10:00"]),
        ("Pacific/Apia", "2011-12-30", "0 9 * * *", []),
        ("Pacific/Apia", "2011-12-31", "0 9 * * *", ["00:00+14:00", "09:00+14:00"]),
        ("Pacific/Apia", "2011-12-31", "0 9 30 * *", ["00:00+14:00"]),
    ],
)  # fmt: skip
def test_a_fixed_time_runs_once_by_default(
    zone: str, day: str, expression: str, expected: list[str]
) -> None:
    assert on_day(cron_in(zone, expression), day) == expected


@each(
    ("rules", "day", "expected"),
    [
        ((SKIP, FIRST), BERLIN_GAP, []),
        ((NEXT, FIRST), BERLIN_GAP, ["03:00+02:00"]),
        ((NEXT, FIRST), BERLIN_FOLD, ["02:30+02:00"]),
        ((NEXT, SECOND), BERLIN_FOLD, ["02:30+01:00"]),
        ((NEXT, BOTH), BERLIN_FOLD, ["02:30+02:00", "02:30+01:00"]),
    ],
)
def test_the_rules_are_a_choice(
    rules: tuple[schedule_pb2.GapRule.ValueType, schedule_pb2.FoldRule.ValueType],
    day: str,
    expected: list[str],
) -> None:
    assert on_day(cron_in("Europe/Berlin", "30 2 * * *", *rules), day) == expected


ALL_RULES = [(gap, fold) for gap in (NEXT, SKIP) for fold in (FIRST, SECOND, BOTH)]


@pytest.mark.parametrize("rules", ALL_RULES)
@pytest.mark.parametrize("expression", ["30 * * * *", "30 */1 * * *", "30 0-23 * * *", "@hourly"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Africa/Cairo", "America/St_Johns"])
def test_every_hour_is_every_real_hour_whatever_the_rules_say(
    zone: str,
    expression: str,
    rules: tuple[schedule_pb2.GapRule.ValueType, schedule_pb2.FoldRule.ValueType],
) -> None:
    begin = year_begin(2026) * 1000
    found = times(cron_in(zone, expression, *rules), begin, begin + 330 * DAY_MS)

    assert {later - earlier for earlier, later in pairwise(found)} == {HOUR_MS}


def test_every_hour_at_a_minute_in_lord_howe_keeps_to_the_wall_clock() -> None:
    """Real hours cannot keep their minute where clocks move by half an hour; the wall wins."""
    cron = cron_in("Australia/Lord_Howe", "45 * * * *")

    assert on_day(cron, "2026-10-04")[:4] == [
        "00:45+10:30", "01:45+10:30", "02:45+11:00", "03:45+11:00",
    ]  # fmt: skip
    assert on_day(cron, "2026-04-05")[:4] == [
        "00:45+11:00", "01:45+11:00", "01:45+10:30", "02:45+10:30",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("zone", "day", "expression", "expected"),
    [
        ("Europe/Berlin", BERLIN_GAP, "0 */2 * * *", ["00:00+01:00", "03:00+02:00", "04:00+02:00"]),
        ("Europe/Berlin", BERLIN_FOLD, "0 */2 * * *",
         ["00:00+02:00", "02:00+02:00", "02:00+01:00", "04:00+01:00"]),
        ("Africa/Cairo", "2026-04-24", "0 */6 * * *",
         ["01:00+03:00", "06:00+03:00", "12:00+03:00"]),
    ],
)  # fmt: skip
def test_a_rate_in_hours_never_rests_longer_than_its_step(
    zone: str, day: str, expression: str, expected: list[str]
) -> None:
    assert on_day(cron_in(zone, expression), day)[: len(expected)] == expected


@pytest.mark.parametrize("expression", ["0 */24 * * *", "0 H/24 * * *", "0 0/24 * * *"])
def test_a_step_that_names_one_hour_is_a_fixed_time(expression: str) -> None:
    read = read_cron(expression, "default/job")

    assert not isinstance(read, Refusal)
    assert read.fields.hour_kind is HourKind.FIXED
    assert on_day(cron_in("America/Havana", "0 */24 * * *"), "2026-11-01") == ["00:00-04:00"]


def test_a_rate_that_is_spread_is_a_rate_as_well() -> None:
    read = read_cron("0 H/2 * * *", EVEN_HOURS)
    assert not isinstance(read, Refusal)
    assert read.fields.hours[1] == 2
    cron = ZonedCron(read.fields, named("Europe/Berlin"), NEXT, FIRST)

    assert len(on_day(cron, BERLIN_GAP)) == 12
    assert len(on_day(cron, BERLIN_FOLD)) == 13


@each("expression", ["30 2 * * *", "*/20 * * * *", "0 */3 * * *", "7 1,2 * * *", "0 2,3 * * *"])
@each("rules", ALL_RULES)
@each("zone", ["Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca"])
def test_back_and_by_count_is_the_same_as_forward(
    zone: str,
    rules: tuple[schedule_pb2.GapRule.ValueType, schedule_pb2.FoldRule.ValueType],
    expression: str,
) -> None:
    cron = cron_in(zone, expression, *rules)
    begin = year_begin(2026) * 1000
    random = Random(7)
    for segment in cron.zone.segments_of(2026)[1:]:
        low, high = segment.begin * 1000 - 2 * DAY_MS, segment.begin * 1000 + 2 * DAY_MS
        forward = times(cron, low, high)

        back: list[int] = []
        at = cron.last_before(high)
        while at is not None and at >= low:
            back.append(at)
            at = cron.last_before(at)

        assert back[::-1] == forward
        assert cron.count(low, high) == len(forward)
        for _ in range(20):
            some, other = sorted(random.choices(range(low, high), k=2))
            assert cron.count(some, other) == sum(some <= at < other for at in forward)
    assert cron.count(begin, begin) == 0


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca"])
@pytest.mark.parametrize("rules", ALL_RULES)
def test_a_list_is_what_a_walk_finds(
    zone: str, rules: tuple[schedule_pb2.GapRule.ValueType, schedule_pb2.FoldRule.ValueType]
) -> None:
    expressions = (
        "30 2 * * *", "*/20 * * * *", "0 */3 * * *", "7 1,2 * * *", "* 2 * * *", "0 9 29 2 *",
        "15 30 1-3 * * *", "*/7 * 2 * * sun", "0 0 L * *", "0 12 1 1 * *", "*/29 59 * * * *",
    )  # fmt: skip
    for seed, expression in enumerate(expressions):
        random = Random(seed)
        cron = cron_in(zone, expression, *rules)
        for _ in range(12):
            edge = random.choice(cron.zone.segments_of(random.randrange(2024, 2030))).begin * 1000
            low = edge + random.randrange(-3 * DAY_MS, 2 * DAY_MS)
            high = low + random.choice((1, HOUR_MS, DAY_MS, 3 * DAY_MS))
            found, most = times(cron, low, high), random.choice((0, 1, 9, 100, 20_000))
            assert cron.times(low, high, most) == found[:most], f"{expression}, seed {seed}"


@pytest.mark.parametrize(
    "expression", ["30 2 * * *", "30 2 25 10 *", "30 2 * 10 sun#4", "0 30 2 25 10 * 2026"]
)
def test_a_repeated_time_is_found_however_far_the_next_one_is(
    expression: str, instant: Instant
) -> None:
    """A search from between the two passes must not jump over the second, or back over the first.

    On the wall it stands behind that time already, and the next one is tomorrow, or never.
    """
    cron = cron_in("Europe/Berlin", expression, NEXT, BOTH)
    first, second = instant("2026-10-25T00:30"), instant("2026-10-25T01:30")

    assert cron.find_next(first) == second
    assert cron.last_before(second) == first


def test_a_single_year_has_a_first_and_a_last_time(instant: Instant) -> None:
    cron = cron_in("Europe/Berlin", "0 0 0 1 1 * 2026")
    only = instant("2025-12-31T23:00")

    assert cron.find_next(0) == only
    assert cron.find_next(only) is None
    assert cron.last_before(10**13) == only
    assert cron.last_before(only) is None
    assert cron.count(0, 10**13) == 1


def test_a_time_between_seconds_is_after_the_second_before_it() -> None:
    cron = cron_in("UTC", "* * * * * *")

    assert cron.find_next(999) == 1000
    assert cron.find_next(1000) == 2000
    assert cron.last_before(1001) == 1000
    assert cron.last_before(1000) == 0
    assert cron.count(1, 1001) == 1
    assert cron.last_before(0) is None


def test_the_years_have_an_end_on_both_sides() -> None:
    cron = cron_in("Pacific/Apia", "30 12 * * *")
    end = year_begin(2200) * 1000

    assert cron.find_next(end) is None
    assert cron.find_next(-(10**15)) is not None
    assert cron.last_before(10**15) is not None
    assert cron.count(-(10**15), 10**15) == cron.count(0, end) > 83_000


def test_the_last_answer_is_only_a_short_cut() -> None:
    random = Random(11)
    begin = year_begin(2026)
    for expression in ("30 2 * * *", "*/5 * * * *", "0 */2 * * *", "0 9 L * *"):
        remembering = cron_in("Europe/Berlin", expression)
        for _ in range(300):
            at = (begin + random.randrange(400 * 86_400)) * 1000 + random.randrange(1000)
            for asked in (at, at, at + 1, at + 60_000, at - 1):
                assert remembering.next_after(asked) == remembering.find_next(asked)


def test_many_with_one_expression_cost_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    search = ZonedCron.find_next

    def counting(cron: ZonedCron, after_ms: int) -> int | None:
        searched.append(after_ms)
        return search(cron, after_ms)

    monkeypatch.setattr(ZonedCron, "find_next", counting)
    cron = cron_in("Europe/Berlin", "0 * * * *")
    for late_ms in range(1000):
        cron.next_after(year_begin(2026) * 1000 + late_ms)

    assert len(searched) == 1


# The slow model: it asks zoneinfo for the reading at every single minute, and finds the instants
# of a wall time by looking, so it shares nothing with the segments of the engine.


def model(
    zone: Zone,
    named_wall: Callable[[datetime], bool],
    kind: str,
    rules: tuple[schedule_pb2.GapRule.ValueType, schedule_pb2.FoldRule.ValueType],
    from_ms: int,
    to_ms: int,
) -> list[int]:
    margin = 2 * DAY_MS
    readings: dict[datetime, list[int]] = {}
    for at in range(from_ms - margin, to_ms + margin, 60_000):
        readings.setdefault(zone.local(at).replace(tzinfo=None), []).append(at)
    found: set[int] = set()
    walls = sorted(readings)
    wall, last = walls[0], walls[-1]
    after: int | None = None
    while wall <= last:
        instants = readings.get(wall)
        if instants:
            after = None
        if named_wall(wall):
            if not instants:
                if kind != "every" and rules[0] == NEXT:
                    if after is None:
                        after = min(readings[other][0] for other in walls if other > wall)
                    found.add(after)
            elif kind != "fixed" or rules[1] == BOTH:
                found.update(instants)
            else:
                found.add(instants[0] if rules[1] == FIRST else instants[-1])
        wall += timedelta(minutes=1)
    return sorted(at for at in found if from_ms <= at < to_ms)


TRICKY = [
    "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Beirut",
    "America/Havana", "Africa/Casablanca", "America/St_Johns", "Pacific/Chatham", "Europe/Dublin",
    "America/Santiago", "Asia/Gaza", "Antarctica/Troll", "America/Nuuk", "Asia/Jerusalem",
]  # fmt: skip


def finds_what_a_look_at_every_minute_finds(
    zone_name: str,
    year: int,
    change: int,
    minutes: set[int],
    hours: set[int] | None,
    weekdays: set[int],
    rules: tuple[schedule_pb2.GapRule.ValueType, schedule_pb2.FoldRule.ValueType],
) -> None:
    zone = named(zone_name)
    edges = [s.begin for s in zone.segments_of(year) if s.offset != s.offset_before]
    edge = edges[change % len(edges)] * 1000 if edges else year_begin(year) * 1000
    low, high = edge - DAY_MS, edge + DAY_MS
    expression = " ".join(
        [
            ",".join(map(str, sorted(minutes))),
            ",".join(map(str, sorted(hours))) if hours else "*",
            "* *",
            ",".join(map(str, sorted(weekdays))),
        ]
    )

    def named_wall(wall: datetime) -> bool:
        return (
            wall.minute in minutes
            and (hours is None or wall.hour in hours)
            and wall.isoweekday() % 7 in weekdays
        )

    expected = model(zone, named_wall, "fixed" if hours else "every", rules, low, high)

    cron = cron_in(zone_name, expression, *rules)
    assert times(cron, low, high) == expected
    assert cron.count(low, high) == len(expected)


@examples(fast=40, slow=120)
def test_the_engine_finds_what_a_look_at_every_minute_finds(many: int) -> None:
    schedules = given(
        zone_name=st.sampled_from(TRICKY),
        year=st.integers(2024, 2030),
        change=st.integers(0, 5),
        minutes=st.sets(st.sampled_from([0, 1, 15, 29, 30, 31, 45, 59]), min_size=1, max_size=3),
        hours=st.sets(st.integers(0, 4) | st.integers(22, 23), min_size=1, max_size=3)
        | st.just(None),
        weekdays=st.just(set(range(7))) | st.sets(st.integers(0, 6), min_size=1, max_size=4),
        rules=st.sampled_from(ALL_RULES),
    )
    play(many, schedules(finds_what_a_look_at_every_minute_finds), derandomize=True)


def unlike_zones(first: int, last: int) -> list[Zone]:
    """Return one zone for each history of offsets in these years; the rest are the same there."""
    kinds = {
        tuple(
            segment for year in range(first, last + 1) for segment in zone.segments_of(year)
        ): zone
        for zone in map(named, zone_names())
    }
    return list(kinds.values())


def daily_runs(zone: Zone, expression: str, first: int, last: int) -> list[str]:
    """Return the local days of a job's runs.

    A run that is late since its time does not exist belongs to the day that lacks it: in Nuuk the
    last hour of a Saturday in March is left out, and the first instant after it is a Sunday.
    """
    cron = cron_in(zone.name, expression)
    begin, end = year_begin(first) * 1000 - DAY_MS, year_begin(last + 1) * 1000 + DAY_MS
    days = []
    for at in times(cron, begin, end):
        missing = cron.gap_wall(at)
        local = zone.local_text(at) if missing is None else named("UTC").local_text(missing * 1000)
        days.append(local[:10])
    return [day for day in days if f"{first}-01-01" <= day <= f"{last}-12-31"]


def calendar_days(first: int, last: int) -> list[str]:
    days = (datetime(last + 1, 1, 1, tzinfo=UTC) - datetime(first, 1, 1, tzinfo=UTC)).days
    start = datetime(first, 1, 1, tzinfo=UTC)
    return [(start + timedelta(days=day)).date().isoformat() for day in range(days)]


def test_a_daily_job_runs_once_on_every_local_day_in_every_zone_of_2026() -> None:
    expected = calendar_days(2026, 2026)
    for zone in unlike_zones(2026, 2026):
        for expression in ("0 0 * * *", "30 2 * * *"):
            assert daily_runs(zone, expression, 2026, 2026) == expected, zone.name


@pytest.mark.slow
def test_a_daily_job_runs_once_on_every_local_day_in_every_zone_until_2030() -> None:
    expected = calendar_days(2024, 2030)
    for zone in unlike_zones(2024, 2030):
        for expression in ("0 0 * * *", "15 1 * * *", "30 2 * * *", "45 23 * * *"):
            assert daily_runs(zone, expression, 2024, 2030) == expected, zone.name


@pytest.mark.slow
def test_an_hourly_job_runs_every_real_hour_in_every_zone_until_2030() -> None:
    begin, end = year_begin(2024) * 1000, year_begin(2031) * 1000
    for zone in unlike_zones(2024, 2030):
        edges = [
            segment.begin * 1000
            for year in range(2024, 2031)
            for segment in zone.segments_of(year)
            if segment.offset != segment.offset_before
        ]
        cron = cron_in(zone.name, "0 * * * *")
        steps = {
            later - earlier
            for edge in edges
            for earlier, later in pairwise(times(cron, edge - DAY_MS, edge + DAY_MS))
        }
        # Troll moves by two whole hours; Lord Howe by half of one, so its minute 0 moves as well.
        odd = {HOUR_MS, HOUR_MS // 2, HOUR_MS * 3 // 2}
        assert steps <= (odd if "Howe" in zone.name or "LHI" in zone.name else {HOUR_MS}), zone.name
        if "Howe" not in zone.name and "LHI" not in zone.name:
            assert cron.count(begin, end) == (end - begin) // HOUR_MS, zone.name
