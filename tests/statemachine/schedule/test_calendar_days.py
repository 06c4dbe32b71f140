"""Calendars leave out whole days, each by its own midnight."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from raftsched.proto.v1 import calendar_pb2, error_pb2
from raftsched.statemachine.core.field_fault import FieldFault
from raftsched.statemachine.schedule.calendar_days import CalendarDays, compile_calendar
from raftsched.statemachine.schedule.zones import Zone, find_zone

from ...rows import each

Instant = Callable[[str], int]
Rule = calendar_pb2.CalendarRule
Range = calendar_pb2.DateRange
INVALID = error_pb2.ERROR_REASON_FIELD_INVALID
REQUIRED = error_pb2.ERROR_REASON_FIELD_REQUIRED


def zone_of(name: str) -> Zone:
    zone = find_zone(name)
    assert zone is not None
    return zone


def faults_of(calendar: calendar_pb2.Calendar) -> list[FieldFault]:
    faults = compile_calendar(calendar)
    assert isinstance(faults, list)
    return faults


def days(*rules: Rule, zone: str = "") -> CalendarDays:
    calendar = compile_calendar(calendar_pb2.Calendar(rules=rules, zone=zone))
    assert isinstance(calendar, CalendarDays), calendar
    return calendar


@pytest.mark.parametrize(
    ("rule", "out", "kept"),
    [
        (Rule(date="2026-12-24"), ["2026-12-24T00:00", "2026-12-24T23:59:59"],
         ["2026-12-23T23:59:59", "2026-12-25T00:00", "2027-12-24T12:00"]),
        (Rule(yearly="12-25"), ["2026-12-25T12:00", "2030-12-25T12:00"], ["2026-12-26T12:00"]),
        (Rule(yearly="02-29"), ["2028-02-29T12:00"], ["2026-02-28T12:00", "2026-03-01T12:00"]),
        (Rule(weekday=1), ["2026-11-16T12:00"], ["2026-11-15T12:00", "2026-11-17T12:00"]),
        (Rule(weekday=7), ["2026-11-15T12:00"], ["2026-11-16T12:00", "2026-11-14T12:00"]),
        (Rule(range=Range(first="2026-12-24", last="2027-01-01")),
         ["2026-12-24T00:00", "2027-01-01T23:59"], ["2026-12-23T23:59", "2027-01-02T00:00"]),
    ],
)  # fmt: skip
def test_a_rule_leaves_out_its_days(
    rule: Rule, out: list[str], kept: list[str], instant: Instant
) -> None:
    calendar = days(rule)

    assert [calendar.leaves_out(instant(text), zone_of("UTC")) for text in out] == [True] * len(out)
    assert not any(calendar.leaves_out(instant(text), zone_of("UTC")) for text in kept)


def test_rules_add_up_and_may_touch(instant: Instant) -> None:
    calendar = days(
        Rule(range=Range(first="2026-03-05", last="2026-03-09")),
        Rule(date="2026-03-10"),
        Rule(range=Range(first="2026-03-01", last="2026-03-06")),
        Rule(range=Range(first="2026-03-02", last="2026-03-03")),
        Rule(date="2026-01-01"),
        Rule(weekday=3),
    )

    assert len(calendar.firsts) == 2
    left_out = [
        day
        for day in range(1, 21)
        if calendar.leaves_out(instant(f"2026-03-{day:02}T12:00"), zone_of("UTC"))
    ]
    assert left_out == [*range(1, 11), 11, 18]


def test_days_begin_at_the_midnight_of_the_job_or_of_the_calendar(instant: Instant) -> None:
    evening = instant("2026-12-24T23:30")
    christmas = Rule(date="2026-12-25")

    assert not days(christmas).leaves_out(evening, zone_of("UTC"))
    assert days(christmas).leaves_out(evening, zone_of("Europe/Berlin"))
    assert days(christmas, zone="Europe/Berlin").leaves_out(evening, zone_of("UTC"))
    assert not days(christmas, zone="UTC").leaves_out(evening, zone_of("Europe/Berlin"))


@each(
    ("rule", "path", "value"),
    [
        (Rule(date="2026-02-30"), "calendar.rules[0].date", "2026-02-30"),
        (Rule(date="24.12.2026"), "calendar.rules[0].date", "24.12.2026"),
        (Rule(date="20261224"), "calendar.rules[0].date", "20261224"),
        (Rule(date="1969-12-31"), "calendar.rules[0].date", "1969-12-31"),
        (Rule(date="2200-01-01"), "calendar.rules[0].date", "2200-01-01"),
        (Rule(date=""), "calendar.rules[0].date", ""),
        (Rule(yearly="12-32"), "calendar.rules[0].yearly", "12-32"),
        (Rule(yearly="2026-12-24"), "calendar.rules[0].yearly", "2026-12-24"),
        (Rule(weekday=0), "calendar.rules[0].weekday", "0"),
        (Rule(weekday=8), "calendar.rules[0].weekday", "8"),
        (Rule(range=Range(first="x", last="2026-01-01")), "calendar.rules[0].range.first", "x"),
        (Rule(range=Range(first="2026-01-01")), "calendar.rules[0].range.last", ""),
        (Rule(range=Range(first="2026-01-02", last="2026-01-01")), "calendar.rules[0].range.last",
         "2026-01-01"),
    ],
)  # fmt: skip
def test_a_wrong_day_is_refused_with_its_field(rule: Rule, path: str, value: str) -> None:
    [fault] = faults_of(calendar_pb2.Calendar(rules=[rule]))

    assert (fault.path, fault.reason, fault.value) == (path, INVALID, value)
    assert fault.why
    assert fault.instead


def test_all_faults_come_at_once() -> None:
    calendar = calendar_pb2.Calendar(zone="Berlin", rules=[Rule(weekday=9), Rule(), Rule(date="x")])

    faults = compile_calendar(calendar, "job.calendar")

    assert isinstance(faults, list)
    assert [(fault.path, fault.reason) for fault in faults] == [
        ("job.calendar.zone", error_pb2.ERROR_REASON_ZONE_UNKNOWN),
        ("job.calendar.rules[0].weekday", INVALID),
        ("job.calendar.rules[1]", REQUIRED),
        ("job.calendar.rules[2].date", INVALID),
    ]
    assert faults[0].instead == "Europe/Berlin"


def test_a_calendar_needs_rules_and_not_too_many() -> None:
    none = compile_calendar(calendar_pb2.Calendar())
    full = compile_calendar(calendar_pb2.Calendar(rules=[Rule(weekday=1)] * 1000))
    over = compile_calendar(calendar_pb2.Calendar(rules=[Rule(weekday=1)] * 1001))

    assert isinstance(full, CalendarDays)
    assert isinstance(none, list)
    assert isinstance(over, list)
    assert [fault.reason for fault in none] == [REQUIRED]
    assert [fault.reason for fault in over] == [error_pb2.ERROR_REASON_LIMIT_EXCEEDED]


@each("zone", ["UTC", "Pacific/Apia", "America/Sao_Paulo", "Africa/Casablanca"])
@each("seed", range(5))
def test_many_times_are_asked_day_by_day(zone: str, seed: int) -> None:
    random = Random(seed)
    calendar = days(
        calendar_pb2.CalendarRule(weekday=random.randrange(1, 8)),
        calendar_pb2.CalendarRule(date="2011-12-30"),
        calendar_pb2.CalendarRule(yearly="10-16"),
    )
    begin = random.choice((1_325_000_000_000, 1_508_000_000_000, 1_790_000_000_000))
    times = sorted(begin + random.randrange(20 * 86_400_000) for _ in range(500))

    left = calendar.leaves_in(times, zone_of(zone))

    assert left == [at for at in times if not calendar.leaves_out(at, zone_of(zone))], seed
