"""The days a calendar leaves out, ready to be asked.

A calendar speaks of whole days on the wall calendar of its own zone, or of the job's when it has
none; so one list of bank holidays serves jobs in many places, each by its own midnight.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from datetime import date
from typing import Final

from ...proto.v1 import calendar_pb2, error_pb2
from ..core.field_fault import FieldFault
from .zones import YEAR_MAX, YEAR_MIN, Zone, find_zone, near_names

RULES_MAX: Final = 1000
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
        """Tell whether the instant lies on one of the days."""
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
        here = f"{path}.rules[{at}]"
        match rule.WhichOneof("kind"):
            case "weekday" if 1 <= rule.weekday <= 7:
                weekdays.add(rule.weekday)
            case "weekday":
                why = "weekdays are numbers from 1 (Monday) to 7 (Sunday)"
                faults.append(_invalid(f"{here}.weekday", str(rule.weekday), why, "1 to 7"))
            case "yearly":
                day = _day(f"{LEAP_YEAR}-{rule.yearly}") if YEARLY.fullmatch(rule.yearly) else None
                if day is None:
                    why = "not a month and a day"
                    faults.append(_invalid(f"{here}.yearly", rule.yearly, why, "12-25"))
                else:
                    on = date.fromordinal(day)
                    yearly.add((on.month, on.day))
            case "date":
                stretches += _stretch(f"{here}.date", rule.date, f"{here}.date", rule.date, faults)
            case "range":
                first, last = rule.range.first, rule.range.last
                stretches += _stretch(
                    f"{here}.range.first", first, f"{here}.range.last", last, faults
                )
            case _:
                why = "a rule needs one of date, yearly, weekday, range"
                required = error_pb2.ERROR_REASON_FIELD_REQUIRED
                faults.append(FieldFault(here, required, "", why))
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


def _stretch(
    first_path: str, first: str, last_path: str, last: str, faults: list[FieldFault]
) -> list[Days]:
    found = []
    for path, text in dict.fromkeys([(first_path, first), (last_path, last)]):
        day = _day(text)
        if day is None:
            why = f"not a date between {YEAR_MIN} and {YEAR_MAX}"
            faults.append(_invalid(path, text, why, "2026-12-24"))
        else:
            found.append(day)
    if len(found) == 2 and found[1] < found[0]:
        why = "the last day lies before the first"
        faults.append(_invalid(last_path, last, why, f"{first} or later"))
    return [(found[0], found[-1])] if found else []


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
