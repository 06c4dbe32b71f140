"""The engine against cronsim, which follows Debian's cron: all zones, around their transitions.

Both agree on every instant, except in the cases named at the end of this file, each with its
reason. What runs by default is a sample (its seed is in its name); the whole is marked slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from random import Random

import pytest
from cronsim import CronSim, CronSimError

from raftsched.proto.v1 import schedule_pb2
from raftsched.statemachine.schedule.cron import Refusal, read_cron
from raftsched.statemachine.schedule.zoned_cron import ZonedCron
from raftsched.statemachine.schedule.zones import Zone, find_zone, year_begin, zone_names

FIRST_YEAR, LAST_YEAR = 2024, 2030
DAY_MS = 86_400_000
EXPRESSIONS = [
    "30 2 * * *",
    "0 0 * * *",
    "59 23 * * *",
    "0,30 0-4 * * *",
    "*/20 * * * *",
    "45 * * * *",
    "15 1,2,3 * * mon-fri",
    "0 2 1-7 * sun",
    "0 3 L * *",
    "5 2 * * sun#5",
    "0 0 29 2 *",
    "0 9-17/2 * 3,10 *",
]
Instant = Callable[[str], int]


def named(name: str) -> Zone:
    zone = find_zone(name)
    assert zone is not None
    return zone


def ours(zone: Zone, expression: str, from_ms: int, to_ms: int) -> list[int]:
    read = read_cron(expression, "default/job")
    assert not isinstance(read, Refusal), read
    cron = ZonedCron(
        read.fields,
        zone,
        schedule_pb2.GAP_RULE_UNSPECIFIED,
        schedule_pb2.FOLD_RULE_UNSPECIFIED,
    )
    found: list[int] = []
    at = cron.find_next(from_ms - 1)
    while at is not None and at < to_ms:
        found.append(at)
        at = cron.find_next(at)
    return found


def theirs(zone: Zone, expression: str, from_ms: int, to_ms: int) -> list[int]:
    # It starts a day early, since in the repeated hour it cannot tell where it stands.
    start = zone.local(from_ms - DAY_MS)
    found: list[int] = []
    for moment in CronSim(expression, start):
        at = int(moment.timestamp() * 1000)
        if at >= to_ms:
            break
        found.append(at)
    return [at for at in found if at >= from_ms]


def edges(first: int, last: int) -> Iterator[tuple[Zone, int]]:
    """Yield each zone with each of its transitions; aliases are left out, as they are the same."""
    seen = set()
    for zone in map(named, zone_names()):
        years = tuple(map(zone.segments_of, range(first, last + 1)))
        if years in seen:
            continue
        seen.add(years)
        # Each zone has at least one window, also if its clocks never change.
        yield zone, year_begin(first) * 1000
        for segments in years:
            for segment in segments:
                if segment.offset != segment.offset_before:
                    yield zone, segment.begin * 1000


def differences(zone: Zone, edge_ms: int, expression: str) -> str:
    # In half an hour's shift cronsim loses or doubles a whole hour; see the named case.
    if expression == "45 * * * *" and zone.name in ("Australia/LHI", "Australia/Lord_Howe"):
        return ""
    window = edge_ms - 2 * DAY_MS, edge_ms + 2 * DAY_MS
    mine, other = ours(zone, expression, *window), theirs(zone, expression, *window)
    if mine == other:
        return ""
    odd = [zone.local_text(at) for at in sorted(set(mine) ^ set(other))]
    return f"{zone.name} {expression!r}: {odd}"


@pytest.mark.parametrize("seed", [20261118])
def test_a_sample_of_transitions_agrees_with_cronsim(seed: int) -> None:
    random = Random(seed)
    near = list(edges(2026, 2027))

    found = [differences(*random.choice(near), random.choice(EXPRESSIONS)) for _ in range(150)]

    assert [difference for difference in found if difference] == []


@pytest.mark.slow
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_all_transitions_of_all_zones_agree_with_cronsim(expression: str) -> None:
    found = [differences(zone, at, expression) for zone, at in edges(FIRST_YEAR, LAST_YEAR)]

    assert len(found) > 450
    assert [difference for difference in found if difference] == []


# Month and weekday words, on a clock without transitions and over the seven years.
PLAIN = [
    "17 4 * * *",
    "*/7 9,17 * * 1-5",
    "0 0 1 */3 *",
    "0 12 13 * fri",
    "3,33 */5 10-20/5 feb-nov sat,sun",
    "0 0 * * 7",
    "0 0 * * 5-7",
    "0 0 31 * *",
    "0 0 * * mon#5,fri#1",
    "59/15 23 * * *",
    "0 22/1 * dec *",
    "0 6 L 2 *",
    "0 6 * * 5L",
    "0 6 * * L5",
    "0 6 1 * friL,0#1",
    "0 6 * * mon,wed#2,sat",
    "0 6 * * fri,fri#2",
    # A star in one of the day fields: a day must fit both.
    "0 9 */2 * mon",
    "0 9 15 * */2",
    "0 9 */100,1-7 * mon",
    # No star: either is enough, also where one of them has all days.
    "0 9 1-31 * mon",
    "0 9 15 * 0-6",
    "5-5 9 * * fri-fri",
]
# How cronsim writes what it writes in another way.
CRONSIM = {"0 6 * * L5": "0 6 * * 5L", "0 6 1 * friL,0#1": "0 6 1 * 5L,0#1"}


@pytest.mark.parametrize("expression", PLAIN)
def test_seven_years_without_transitions_agree_with_cronsim(expression: str) -> None:
    utc = named("UTC")
    begin, end = year_begin(FIRST_YEAR) * 1000, year_begin(LAST_YEAR + 1) * 1000

    expected = theirs(utc, CRONSIM.get(expression, expression), begin, end)

    assert ours(utc, expression, begin, end) == expected
    assert len(expected) >= 7


def local_day(zone: Zone, instants: list[int], day: str) -> list[str]:
    texts = map(zone.local_text, instants)
    return [text[11:16] + text[19:22] for text in texts if text.startswith(day)]


# Each difference with its reason: (why, expression, day in Berlin, ours, cronsim's).
NAMED = [
    (
        "An hour field with all hours runs every real hour; cronsim looks for a star only.",
        "30 0-23 * * *",
        "2026-10-25",
        ["00:30+02", "01:30+02", "02:30+02", "02:30+01", "03:30+01"],
        ["00:30+02", "01:30+02", "02:30+02", "03:30+01", "04:30+01"],
    ),
    (
        "A rate in hours makes up for the hour that is left out; cronsim rests four hours.",
        "0 */2 * * *",
        "2026-03-29",
        ["00:00+01", "03:00+02", "04:00+02", "06:00+02", "08:00+02"],
        ["00:00+01", "04:00+02", "06:00+02", "08:00+02", "10:00+02"],
    ),
    (
        "With a fixed hour a star for the minute is still a fixed time; cronsim drops the day.",
        "* 2 * * *",
        "2026-03-29",
        ["03:00+02"],
        [],
    ),
    (
        "The gap rule holds for six fields as for five; cronsim applies it to five only.",
        "0 30 2 * * *",
        "2026-03-29",
        ["03:00+02"],
        [],
    ),
    (
        "The fold rule holds for six fields as for five.",
        "0 30 2 * * *",
        "2026-10-25",
        ["02:30+02"],
        ["02:30+02", "02:30+01"],
    ),
    (
        "Sunday is 0, so a step from Saturday on is Saturday alone; cronsim counts to 7.",
        "0 9 * * 6/1",
        "2026-03-01",
        [],
        ["09:00+01"],
    ),
]


@pytest.mark.parametrize(("why", "expression", "day", "mine", "other"), NAMED)
def test_a_difference_has_a_reason(
    why: str, expression: str, day: str, mine: list[str], other: list[str], instant: Instant
) -> None:
    zone = named("Europe/Berlin")
    window = instant(day) - DAY_MS, instant(day) + 2 * DAY_MS

    assert local_day(zone, ours(zone, expression, *window), day)[:5] == mine, why
    assert local_day(zone, theirs(zone, expression, *window), day)[:5] == other, why


def test_a_minute_of_each_repeated_hour_is_the_other_side_of_that_difference() -> None:
    zone = named("Europe/Berlin")
    noon = int(datetime(2026, 10, 25, 12, tzinfo=UTC).timestamp() * 1000)
    window = noon - DAY_MS // 2, noon + DAY_MS // 2

    assert len(ours(zone, "* 2 * * *", *window)) == 60
    assert len(theirs(zone, "* 2 * * *", *window)) == 120


@pytest.mark.parametrize(
    ("day", "mine", "other"),
    [
        (
            "2026-10-04",
            ["00:45+10:30", "01:45+10:30", "02:45+11:00", "03:45+11:00"],
            ["00:45+10:30", "01:45+10:30", "03:45+11:00"],
        ),
        (
            "2026-04-05",
            ["00:45+11:00", "01:45+11:00", "01:45+10:30", "02:45+10:30"],
            ["00:45+11:00", "01:45+11:00", "02:45+10:30"],
        ),
    ],
)
def test_cronsim_loses_an_hour_where_clocks_move_by_half_of_one(
    day: str, mine: list[str], other: list[str], instant: Instant
) -> None:
    """It steps by real hours, and so passes over the 45th minute that a shift brought near."""
    zone = named("Australia/Lord_Howe")
    window = instant(day) - DAY_MS, instant(day) + DAY_MS

    def until_four(instants: list[int]) -> list[str]:
        texts = map(zone.local_text, instants)
        return [t[11:16] + t[19:] for t in texts if t.startswith(day) and t[11:13] < "04"]

    assert until_four(ours(zone, "45 * * * *", *window))[:4] == mine
    assert until_four(theirs(zone, "45 * * * *", *window))[:3] == other


@pytest.mark.parametrize("expression", ["0 0 15W * *", "0 22-2 * * *", "0 0 ? * *", "H * * * *"])
def test_cronsim_has_no_word_for_some_of_ours(expression: str) -> None:
    assert not isinstance(read_cron(expression, "default/job"), Refusal)
    with pytest.raises(CronSimError):
        CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC))
