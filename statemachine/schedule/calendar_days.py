"""The days a calendar leaves out, ready to be asked.

A calendar speaks of whole days on the wall calendar of its own zone, or of the job's when it has
none; so one list of bank holidays serves jobs in many places, each by its own midnight.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Final

from ...proto.v1 import calendar_pb2, error_pb2
from ..core.field_fault import FieldFault
from .zones import YEAR_MAX, YEAR_MIN, Zone, find_zone, near_names

RULES_MAX: Final = 1000
CALENDARS_KEPT: Final = 128  # Some 100 kB each, if they have so many rules.
DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
YEARLY: Final = re.compile(r"\d{2}-\d{2}", re.ASCII)
LEAP_YEAR: Final = 2000

Days = tuple[int, int]  # First and last, as proleptic ordinals.


@dataclass(frozen=True, slots=True)
class CalendarDays:
    """A calendar that was read."""

    zone: Zone | None
    weekdays: frozenset[int]
    yearly: frozenset[tuple[int, int]]
    # Sorted and apart from each other, first and last days in step.
    firsts: tuple[int, ...]
    lasts: tuple[int, ...]

    def leaves_out(self, instant_ms: int, job_zone: Zone) -> bool:
        """Whether the instant lies on one of the days."""
        day = (self.zone or job_zone).local_day(instant_ms)
        if (day - 1) % 7 + 1 in self.weekdays:
            return True
        at = bisect_right(self.firsts, day) - 1
        if at >= 0 and day <= self.lasts[at]:
            return True
        if not self.yearly:
            return False
        on = date.fromordinal(day)
        return (on.month, on.day) in self.yearly

    def day_end(self, instant_ms: int, job_zone: Zone) -> int:
        """Return until when what it says of an instant holds at least."""
        return (self.zone or job_zone).day_end(instant_ms)

    def leaves_in(self, times: list[int], job_zone: Zone) -> list[int]:
        """Return those of some instants, in order, that it does not leave out; each day is asked
        once."""
        zone = self.zone or job_zone
        found, out, end_ms = [], False, times[0] if times else 0
        for at in times:
            if at >= end_ms:
                out, end_ms = self.leaves_out(at, job_zone), zone.day_end(at)
            if not out:
                found.append(at)
        return found


def compile_calendar(
    calendar: calendar_pb2.Calendar, path: str = "calendar"
) -> CalendarDays | list[FieldFault]:
    """Read a calendar, or say everything that is wrong with it. It raises for no input."""
    faults: list[FieldFault] = []
    zone = find_zone(calendar.zone) if calendar.zone else None
    if calendar.zone and zone is None:
        faults.append(zone_fault(f"{path}.zone", calendar.zone))
    if len(calendar.rules) > RULES_MAX:
        faults.append(
            FieldFault(
                f"{path}.rules",
                error_pb2.ERROR_REASON_LIMIT_EXCEEDED,
                str(len(calendar.rules)),
                f"a calendar has at most {RULES_MAX} rules",
                "ranges for days in a row, yearly for days that come again, or two calendars",
            )
        )
        return faults
    if not calendar.rules:
        why = "a calendar without days leaves nothing out"
        required = error_pb2.ERROR_REASON_FIELD_REQUIRED
        faults.append(FieldFault(f"{path}.rules", required, "", why, "at least one rule"))
    weekdays: set[int] = set()
    yearly: set[tuple[int, int]] = set()
    stretches: list[Days] = []
    for at, rule in enumerate(calendar.rules):
        match rule.WhichOneof("kind"):
            case "date" if (day := _day(rule.date)) is not None:
                stretches.append((day, day))
            case "weekday" if 1 <= rule.weekday <= 7:
                weekdays.add(rule.weekday)
            case "yearly" if (day := _day_of_year(rule.yearly)) is not None:
                on = date.fromordinal(day)
                yearly.add((on.month, on.day))
            case "range" if (days := _range(rule.range)) is not None:
                stretches.append(days)
            case _:
                faults += _faults_of(rule, f"{path}.rules[{at}]")
    if faults:
        return faults
    joined = _join(stretches)
    return CalendarDays(
        zone,
        frozenset(weekdays),
        frozenset(yearly),
        tuple(first for first, _ in joined),
        tuple(last for _, last in joined),
    )


def read_calendar(calendar: calendar_pb2.Calendar) -> CalendarDays:
    """Read a calendar that was accepted. Those of late are remembered by what they say, so many
    jobs that name one have it read once."""
    return _read(calendar.SerializeToString(deterministic=True))


@lru_cache(maxsize=CALENDARS_KEPT)
def _read(data: bytes) -> CalendarDays:
    days = compile_calendar(calendar_pb2.Calendar.FromString(data))
    if not isinstance(days, CalendarDays):
        why = ", ".join(f"{fault.path}: {fault.message}" for fault in days)
        raise ValueError(f"it was accepted and cannot be read here: {why}")
    return days


def zone_fault(path: str, name: str) -> FieldFault:
    """Say that a zone is unknown, and which ones are near."""
    near = near_names(name)
    return FieldFault(
        path,
        error_pb2.ERROR_REASON_ZONE_UNKNOWN,
        name,
        "not an IANA time zone",
        " or ".join(near) if near else "a name such as Europe/Berlin, or nothing for UTC",
    )


def _faults_of(rule: calendar_pb2.CalendarRule, path: str) -> list[FieldFault]:
    """What is wrong with a rule that cannot be read."""
    match rule.WhichOneof("kind"):
        case "weekday":
            why = "weekdays are numbers from 1 (Monday) to 7 (Sunday)"
            return [_invalid(f"{path}.weekday", str(rule.weekday), why, "1 to 7")]
        case "yearly":
            return [_invalid(f"{path}.yearly", rule.yearly, "not a month and a day", "12-25")]
        case "date":
            return [_no_date(f"{path}.date", rule.date)]
        case "range":
            first, last = rule.range.first, rule.range.last
            ends = (f"{path}.range.first", first), (f"{path}.range.last", last)
            found = [_no_date(*end) for end in ends if _day(end[1]) is None]
            why = "the last day lies before the first"
            return found or [_invalid(f"{path}.range.last", last, why, f"{first} or later")]
        case _:
            why = "a rule needs one of date, yearly, weekday, range"
            return [FieldFault(path, error_pb2.ERROR_REASON_FIELD_REQUIRED, "", why)]


def _no_date(path: str, text: str) -> FieldFault:
    return _invalid(path, text, f"not a date between {YEAR_MIN} and {YEAR_MAX}", "2026-12-24")


def _range(days: calendar_pb2.DateRange) -> Days | None:
    first, last = _day(days.first), _day(days.last)
    return None if first is None or last is None or last < first else (first, last)


def _day_of_year(text: str) -> int | None:
    return _day(f"{LEAP_YEAR}-{text}") if YEARLY.fullmatch(text) else None


def _day(text: str) -> int | None:
    if not DATE.fullmatch(text):
        return None
    try:
        on = date.fromisoformat(text)
    except ValueError:
        return None
    return on.toordinal() if YEAR_MIN <= on.year <= YEAR_MAX else None


def _join(stretches: list[Days]) -> list[Days]:
    """Sort, and make one of those that touch, so that a single look-up decides."""
    joined: list[Days] = []
    for first, last in sorted(stretches):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


def _invalid(path: str, value: str, why: str, instead: str) -> FieldFault:
    return FieldFault(path, error_pb2.ERROR_REASON_FIELD_INVALID, value, why, instead)
