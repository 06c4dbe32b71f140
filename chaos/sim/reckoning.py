"""The times that an order names, counted by hand: day by day and minute by minute, from what it
says. Nothing here knows the rules' own schedules, so a slip in those is no slip in here.

Only forms that `orders.py` makes are read: lists of minutes, hours and weekdays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from ...proto.v1 import calendar_pb2, schedule_pb2
from ...statemachine.core.instants import to_ms

QUARTER_MS = 15 * 60_000  # All offsets of zones here are so many quarters of an hour.
DAY = timedelta(days=1)
GAP_MINUTES = 120  # No gap is longer.
Timing = schedule_pb2.Timing


def can_count(schedules: Iterable[schedule_pb2.Schedule]) -> bool:
    """Whether nothing of it follows from the ends of runs, or is of a form that is not read."""
    return all(
        one.WhichOneof("kind") != "after_end" and len(one.cron.expression.split()) in (0, 5)
        for one in schedules
    )


def times(
    schedules: Iterable[schedule_pb2.Schedule], timing: Timing, created_ms: int, first_ms: int,
    end_ms: int,
) -> set[int]:  # fmt: skip
    """The times from one instant on and before another."""
    if timing.HasField("start_time"):
        first_ms = max(first_ms, to_ms(timing.start_time))
    if timing.HasField("end_time"):
        end_ms = min(end_ms, to_ms(timing.end_time))
    found: set[int] = set()
    for one in schedules:
        if one.WhichOneof("kind") == "interval":
            every_ms = one.interval.every.ToMilliseconds()
            has_anchor = one.interval.HasField("anchor")
            anchor_ms = to_ms(one.interval.anchor) if has_anchor else created_ms
            late_ms = (anchor_ms - first_ms) % every_ms
            found.update(range(first_ms + late_ms, end_ms, every_ms))
        elif one.WhichOneof("kind") == "once" and first_ms <= to_ms(one.once.time) < end_ms:
            found.add(to_ms(one.once.time))
        elif one.WhichOneof("kind") == "cron":
            found.update(_cron(one.cron.expression, timing, first_ms, end_ms))
    return found


def _cron(expression: str, timing: Timing, first_ms: int, end_ms: int) -> Iterator[int]:
    minutes, hours, _, _, weekdays = expression.split()
    place = zone_of(timing.zone)
    wanted = _numbers(minutes), _numbers(hours), _numbers(weekdays)
    found = _each_hour if hours == "*" else _by_the_wall
    for at_ms in found(wanted, place, timing, first_ms, end_ms):
        if first_ms <= at_ms < end_ms:
            yield at_ms


def zone_of(name: str) -> tzinfo:
    return ZoneInfo(name) if name else UTC


def _numbers(text: str) -> frozenset[int]:
    return frozenset() if text == "*" else frozenset(map(int, text.split(",")))


Wanted = tuple[frozenset[int], frozenset[int], frozenset[int]]


def _on_day(day: date, weekdays: frozenset[int]) -> bool:
    return not weekdays or day.isoweekday() % 7 in weekdays


def _each_hour(
    wanted: Wanted, place: tzinfo, timing: Timing, first_ms: int, end_ms: int
) -> Iterator[int]:
    """Every real hour, whatever the clocks do."""
    minutes, _, weekdays = wanted
    for at_ms in range(first_ms - first_ms % QUARTER_MS, end_ms, QUARTER_MS):
        local = datetime.fromtimestamp(at_ms // 1000, place)
        for minute in minutes:
            if 0 <= minute - local.minute < 15 and _on_day(local.date(), weekdays):
                yield at_ms + (minute - local.minute) * 60_000


def _by_the_wall(
    wanted: Wanted, place: tzinfo, timing: Timing, first_ms: int, end_ms: int
) -> Iterator[int]:
    minutes, hours, weekdays = wanted
    day = datetime.fromtimestamp(first_ms // 1000, place).date() - DAY
    last = datetime.fromtimestamp(end_ms // 1000, place).date() + DAY
    while day <= last:
        if _on_day(day, weekdays):
            for hour in hours:
                for minute in minutes:
                    wall = datetime(day.year, day.month, day.day, hour, minute, tzinfo=place)
                    yield from _instants(wall, place, timing)
        day += DAY


def _instants(wall: datetime, place: tzinfo, timing: Timing) -> list[int]:
    """When the clock on the wall shows that: once as a rule, twice, or never."""
    early, late = (int(wall.replace(fold=fold).timestamp()) * 1000 for fold in (0, 1))
    if early == late:
        return [early]
    if early < late:
        rules = schedule_pb2.FOLD_RULE_SECOND, schedule_pb2.FOLD_RULE_BOTH
        chosen = {rules[0]: [late], rules[1]: [early, late]}
        return chosen.get(timing.fold_rule, [early])
    if timing.gap_rule == schedule_pb2.GAP_RULE_SKIP:
        return []
    # Clocks went forward: the first instant that shows the offset of afterwards.
    after = datetime.fromtimestamp(early // 1000, place).utcoffset()
    for _ in range(GAP_MINUTES):
        before = datetime.fromtimestamp(early // 1000 - 60, place).utcoffset()
        if before != after:
            return [early]
        early -= 60_000
    raise AssertionError(f"no gap before {wall}")


def leaves_out(calendar: calendar_pb2.Calendar, job_zone: str, at_ms: int) -> bool:
    """Whether a time lies on one of its days."""
    day = datetime.fromtimestamp(at_ms // 1000, zone_of(calendar.zone or job_zone)).date()
    text = day.isoformat()
    return any(
        text == rule.date
        or text[5:] == rule.yearly
        or day.isoweekday() == rule.weekday
        or (rule.HasField("range") and rule.range.first <= text <= rule.range.last)
        for rule in calendar.rules
    )
