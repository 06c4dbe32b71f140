"""Days that a calendar leaves out, as Python says them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date

from ...proto.v1 import calendar_pb2

# A day, days from one to another, or a word: "2026-12-24", "12-25" (each year), "sunday".
Days = date | tuple[date, date] | str
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def rules(days: Sequence[Days]) -> list[calendar_pb2.CalendarRule]:
    """rules([date(2026, 12, 24), "12-25", "sunday", (first, last)])"""
    if isinstance(days, str | date):
        raise TypeError(f"days is {days!r}, a single one; write a list: [{days!r}]")
    return [_rule(item) for item in days]


def _rule(days: Days) -> calendar_pb2.CalendarRule:
    if isinstance(days, date):
        return calendar_pb2.CalendarRule(date=days.strftime("%Y-%m-%d"))
    if isinstance(days, tuple):
        first, last = (day.strftime("%Y-%m-%d") for day in days)
        return calendar_pb2.CalendarRule(range=calendar_pb2.DateRange(first=first, last=last))
    if re.fullmatch(r"\d{4}-\d\d-\d\d", days):
        return calendar_pb2.CalendarRule(date=days)
    if re.fullmatch(r"\d\d-\d\d", days):
        return calendar_pb2.CalendarRule(yearly=days)
    if days.lower() in WEEKDAYS:
        return calendar_pb2.CalendarRule(weekday=WEEKDAYS.index(days.lower()) + 1)
    raise ValueError(
        f"{days!r} is no day; write '2026-12-24', '12-25' for each year, or a day of the week such "
        "as 'sunday'"
    )
