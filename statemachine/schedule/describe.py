"""Schedules in English, where a short sentence is exact; else the expression itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from google.protobuf.duration_pb2 import Duration

from ...proto.v1 import schedule_pb2
from .cron import Refusal, read_cron, read_every
from .cron_fields import LAST_WEEKDAY, CronFields, HourKind

TIMES_NAMED_MAX: Final = 6
WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTHS: Final = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
NTH: Final = ("last", "first", "second", "third", "fourth", "fifth")
UNITS: Final = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))


def describe(schedule: schedule_pb2.Schedule, zone: str = "", *, seed: str = "") -> str:
    """Say in English when a schedule happens: "at 09:00 on Monday to Friday, Europe/Berlin"."""
    match schedule.WhichOneof("kind"):
        case "once":
            at = datetime.fromtimestamp(schedule.once.time.seconds, UTC)
            return f"once at {at:%Y-%m-%d %H:%M:%S} UTC"
        case "interval":
            return f"every {length(_ms(schedule.interval.every))}"
        case "after_end":
            delay = _ms(schedule.after_end.delay)
            when = length(delay, counted=True) if delay else "at once"
            return f"{when} after the end of the last run"
        case "cron":
            return _describe_cron(schedule.cron.expression, zone or "UTC", seed)
        case _:
            return "never"


def length(ms: int, *, counted: bool = False) -> str:
    """Return a length of time in the largest unit that keeps it whole: "90 minutes".

    A single unit is "hour", as in "every hour", or "1 hour" if counted.
    """
    for unit, size in UNITS:
        if ms and ms % size == 0:
            number = ms // size
            if number == 1:
                return f"1 {unit}" if counted else unit
            return f"{number} {unit}s"
    return f"{ms} ms"


def _describe_cron(expression: str, zone: str, seed: str) -> str:
    every = read_every(expression)
    if isinstance(every, int):
        return f"every {length(every)}"
    read = read_cron(expression, seed)
    if isinstance(read, Refusal):
        return f"cron {expression!r}, {zone}"
    times = _times(read.fields)
    if times is None:
        return f"cron {expression!r}, {zone}"
    return f"{' '.join([times, *_days(read.fields)])}, {zone}"


def _times(fields: CronFields) -> str | None:
    hours, minutes, seconds = fields.hours, fields.minutes, fields.seconds
    if fields.hour_kind is HourKind.EVERY:
        return _within_hour(minutes, seconds)
    if len(seconds) == 1 and len(hours) * len(minutes) <= TIMES_NAMED_MAX:
        shown = f":{seconds[0]:02}" if seconds[0] else ""
        clock = [f"{hour:02}:{minute:02}{shown}" for hour in hours for minute in minutes]
        return f"at {listed(clock)}"
    step = _step(minutes, 60)
    if seconds == (0,) and step and _in_a_row(hours):
        pace = "every minute" if step == 1 else f"every {step} minutes"
        return f"{pace} from {hours[0]:02}:00 to {hours[-1]:02}:{minutes[-1]:02}"
    if seconds == (0,) and len(minutes) == 1 and _in_a_row(hours):
        return f"every hour from {hours[0]:02}:{minutes[0]:02} to {hours[-1]:02}:{minutes[0]:02}"
    apart = _step(hours, 24)
    if seconds == (0,) and len(minutes) == 1 and apart:
        past = f"{minutes[0]:02}"
        return f"every {apart} hours from {hours[0]:02}:{past} to {hours[-1]:02}:{past}"
    return None


def _within_hour(minutes: Sequence[int], seconds: Sequence[int]) -> str | None:
    step = _step(minutes, 60)
    if len(seconds) > 1:
        pace = _step(seconds, 60)
        if step != 1 or not pace:
            return None
        return "every second" if pace == 1 else f"every {pace} seconds"
    after = f", {seconds[0]} s past" if seconds[0] else ""
    if step:
        return ("every minute" if step == 1 else f"every {step} minutes") + after
    if len(minutes) <= TIMES_NAMED_MAX:
        word = "minute" if len(minutes) == 1 else "minutes"
        return f"every hour at {word} {listed([str(minute) for minute in minutes])}{after}"
    return None


def _days(fields: CronFields) -> list[str]:
    of_month, of_week = [], []
    numbers = [str(day) for day in range(1, 32) if fields.days >> day & 1]
    if numbers and not fields.any_day:
        word = "days" if len(numbers) > 1 else "day"
        of_month.append(f"on {word} {listed(numbers)} of the month")
    for days in fields.before_last:
        word = "day" if days == 1 else "days"
        early = f"{days} {word} before the last" if days else "on the last day"
        of_month.append(f"{early} of the month")
    if fields.near_day:
        of_month.append(
            f"on the weekday nearest to day {fields.near_day}"
            if fields.near_day != LAST_WEEKDAY
            else "on the last weekday of the month"
        )
    weekdays = [day for day in (1, 2, 3, 4, 5, 6, 0) if fields.weekdays >> day & 1]
    if weekdays and not fields.any_weekday:
        of_week.append(f"on {_weekdays(weekdays)}")
    for weekday, nth in fields.nth_weekdays:
        of_week.append(f"on the {NTH[nth]} {WEEKDAYS[weekday]} of the month")
    if fields.both_days and of_month and of_week:
        words = [f"{' or '.join(of_month)}, but only {' or '.join(of_week)}"]
    else:
        words = [" or ".join(of_month + of_week)] if of_month or of_week else []
    if not words and fields.hour_kind is not HourKind.EVERY and len(fields.months) == 12:
        words.append("every day")
    if len(fields.months) < 12:
        words.append(f"in {listed([MONTHS[month - 1] for month in sorted(fields.months)])}")
    if fields.years is not None:
        words.append(f"of {listed([str(year) for year in sorted(fields.years)])}")
    return words


def _weekdays(days: Sequence[int]) -> str:
    places = [(day - 1) % 7 for day in days]
    if len(days) > 2 and _in_a_row(places):
        return f"{WEEKDAYS[days[0]]} to {WEEKDAYS[days[-1]]}"
    return listed([WEEKDAYS[day] for day in days])


def listed(words: Sequence[str]) -> str:
    """Join words as in a sentence: "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _step(values: Sequence[int], size: int) -> int:
    """Return n if the values are 0, n, 2n, ... all the way round, else 0."""
    step = values[1] if len(values) > 1 and values[0] == 0 else 0
    return step if step and size % step == 0 and list(values) == list(range(0, size, step)) else 0


def _in_a_row(values: Sequence[int]) -> bool:
    return len(values) > 1 and values[-1] - values[0] == len(values) - 1


def _ms(value: Duration) -> int:
    return value.seconds * 1000 + value.nanos // 1_000_000
