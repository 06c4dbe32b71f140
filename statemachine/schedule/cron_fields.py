"""Walk the times a cron expression names on one wall clock, forwards, backwards, and by count.

Nothing here knows of time zones. A wall time is a count of seconds since 1970-01-01 00:00 on the
clock in question. An expression is a set of days (a bit mask for each month) times a set of times
of day (three short tuples), so a step costs microseconds, a step back as much as a step forward,
and counting the firings of a year costs twelve masks, however many firings there are.

This is why croniter only reads expressions here and does not step: it takes 20 to 70 us a step,
cannot count, and joins day of month with day of week wrongly when `#` or `W` is used (`0 0 13 *
fri#2` forgets the 13th). The tests hold this walk against croniter's and cronsim's.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Final

from .zones import DAY_S, EPOCH_ORDINAL, YEAR_MAX, YEAR_MIN

# A fifth Monday in February comes every 28 years, and after 40 when 2100 lies between.
YEARS_SEARCHED: Final = 41
HOUR_S: Final = 3600
LAST: Final = 0  # In `nth_weekdays`: the last one of the month.
LAST_WEEKDAY: Final = 32  # In `near_day`: the weekday nearest to the last day.
MONTH_DAYS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# Days 1, 8, 15, 22, 29 as bits; shifted, every other weekday of a month.
EVERY_SEVENTH: Final = sum(1 << day for day in range(1, 38, 7))


class HourKind(Enum):
    """How the hour field is written, which is what daylight saving depends on.

    See zoned_cron.py for what follows from it.
    """

    # All 24 hours.
    EVERY = "every"
    # `*/n` or `H/n` with more than one value: a rate, in hours.
    STEP = "step"
    # Anything else: a time of day that was meant.
    FIXED = "fixed"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CronFields:
    """What a cron expression names. Every tuple of times is sorted and not empty.

    Compared by identity, which is quick: cron.py keeps one object for one expression.
    """

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    hour_kind: HourKind
    # Day of month: `any_day`, or bits 1 to 31, so many days before the last (0 is the last day),
    # the weekday nearest to a day (or LAST_WEEKDAY, or 0).
    any_day: bool
    days: int
    before_last: tuple[int, ...]
    near_day: int
    months: frozenset[int]
    # Day of week: `any_weekday`, or bits 0 (Sunday) to 6 and (weekday, n), n 1 to 5 or LAST.
    any_weekday: bool
    weekdays: int
    nth_weekdays: tuple[tuple[int, int], ...]
    # A day must fit day of month and day of week, as one of them begins with a star.
    both_days: bool
    years: frozenset[int] | None

    def at_or_after(self, wall: int) -> int | None:
        """Return the first named wall time that is not before this one."""
        day, second = divmod(wall, DAY_S)
        on = date.fromordinal(day + EPOCH_ORDINAL)
        if self._names(on):
            found = self._time_from(second)
            if found is not None:
                return day * DAY_S + found
        next_day = self._day_from(on.year, on.month, on.day + 1)
        return None if next_day is None else next_day * DAY_S + self._first_time()

    def at_or_before(self, wall: int) -> int | None:
        """Return the last named wall time that is not after this one."""
        day, second = divmod(wall, DAY_S)
        on = date.fromordinal(day + EPOCH_ORDINAL)
        if self._names(on):
            found = self._time_to(second)
            if found is not None:
                return day * DAY_S + found
        last_day = self._day_to(on.year, on.month, on.day - 1)
        return None if last_day is None else last_day * DAY_S + self._last_time()

    def count(self, low: int, high: int) -> int:
        """Return how many wall times are named from `low` on and before `high`."""
        if low >= high:
            return 0
        first, after_s = divmod(low, DAY_S)
        last, before_s = divmod(high, DAY_S)
        on = date.fromordinal(last + EPOCH_ORDINAL)
        if first == last:
            within = self._times_before(before_s) - self._times_before(after_s)
            return within if self._names(on) else 0
        per_day = len(self.hours) * len(self.minutes) * len(self.seconds)
        total = per_day * self._days_between(first, last)
        total -= self._names(date.fromordinal(first + EPOCH_ORDINAL)) * self._times_before(after_s)
        return total + self._names(on) * self._times_before(before_s)

    def between(self, low: int, high: int, most: int) -> list[int]:
        """Return the first named wall times from `low` on and before `high`, at most so many, in a
        tenth of the time of a walk."""
        found: list[int] = []
        first, after_s = divmod(low, DAY_S)
        last, before_s = divmod(high - 1, DAY_S)
        pieces = self._pieces_of_a_day(*((after_s, before_s) if first == last else (0, DAY_S - 1)))
        for day in self._days(low // DAY_S, -(-high // DAY_S)):
            for begin, times in pieces:
                base = day * DAY_S + begin
                if base >= low:
                    found += [base + time for time in times]
                elif base + times[-1] >= low:
                    found += [base + time for time in times[bisect_left(times, low - base) :]]
                if found and (len(found) >= most or found[-1] >= high):
                    return found[: min(most, bisect_left(found, high))]
        return found[: min(most, bisect_left(found, high))]

    def _pieces_of_a_day(self, first: int, last: int) -> list[tuple[int, list[int]]]:
        """The times of a day in pieces that are not large: where each begins, and its times. Hours
        without any from the first second to the last are not among them, nor minutes if those two
        are in one hour: jobs that are late ask for a few seconds, again and again."""
        (begin, begin_s), (end, end_s) = divmod(first, HOUR_S), divmod(last, HOUR_S)
        hours = [hour for hour in self.hours if begin <= hour <= end]
        minutes: Iterable[int] = self.minutes
        if begin == end:
            minutes = [at for at in minutes if begin_s // 60 <= at <= end_s // 60]
        within = [minute * 60 + second for minute in minutes for second in self.seconds]
        if not within:
            return []
        if len(within) * len(hours) > HOUR_S:
            return [(hour * HOUR_S, within) for hour in hours]
        times = [hour * HOUR_S + time for hour in hours for time in within]
        return [(0, times)] if times else []

    def _days(self, low: int, high: int) -> Iterator[int]:
        """Yield the named days (counted from 1970) from `low` on and before `high`."""
        on, end = date.fromordinal(low + EPOCH_ORDINAL), date.fromordinal(high + EPOCH_ORDINAL)
        for month in range(on.year * 12 + on.month - 1, end.year * 12 + end.month):
            mask = self.day_mask(month // 12, month % 12 + 1)
            if mask:
                begin = date(month // 12, month % 12 + 1, 1).toordinal() - EPOCH_ORDINAL - 1
                for day in range(1, mask.bit_length()):
                    if mask >> day & 1 and low <= begin + day < high:
                        yield begin + day

    def day_mask(self, year: int, month: int) -> int:
        """Return the named days of a month as bits, bit 1 for the first day."""
        if month not in self.months or (self.years is not None and year not in self.years):
            return 0
        length = month_length(year, month)
        every = (1 << (length + 1)) - 2
        if self.any_day and self.any_weekday:
            return every
        # Cron counts from Sunday 0; toordinal() from a Monday 1.
        first_weekday = date(year, month, 1).toordinal() % 7
        if self.any_weekday:
            named = self._month_days(length, first_weekday)
        elif self.any_day:
            named = self._week_days(length, first_weekday)
        else:
            of_month = self._month_days(length, first_weekday)
            of_week = self._week_days(length, first_weekday)
            named = of_month & of_week if self.both_days else of_month | of_week
        return named & every

    def _month_days(self, length: int, first_weekday: int) -> int:
        named = self.days
        for days in self.before_last:
            # Bit 0 is no day, and where a month is too short there is none.
            named |= 1 << max(0, length - days)
        near = length if self.near_day == LAST_WEEKDAY else self.near_day
        if 0 < near <= length:
            named |= 1 << nearest_weekday(near, length, first_weekday)
        return named

    def _week_days(self, length: int, first_weekday: int) -> int:
        named = 0
        for weekday in range(7):
            if self.weekdays >> weekday & 1:
                named |= EVERY_SEVENTH << (weekday - first_weekday) % 7
        for weekday, nth in self.nth_weekdays:
            day = 1 + (weekday - first_weekday) % 7 + 7 * ((nth or 5) - 1)
            # A fifth one that is not there is either none or, for LAST, the fourth.
            if day > length and nth == LAST:
                day -= 7
            named |= 1 << day
        return named

    def _names(self, on: date) -> bool:
        return bool(self.day_mask(on.year, on.month) >> on.day & 1)

    def _day_from(self, year: int, month: int, day: int) -> int | None:
        """Return the first named day (counted from 1970) from a date on; the day may be 32."""
        for candidate in self._years_near(range(year, min(year + YEARS_SEARCHED, YEAR_MAX) + 1)):
            for in_month in range(month if candidate == year else 1, 13):
                mask = self.day_mask(candidate, in_month)
                if candidate == year and in_month == month:
                    mask = mask >> day << day
                if mask:
                    first = (mask & -mask).bit_length() - 1
                    return date(candidate, in_month, first).toordinal() - EPOCH_ORDINAL
            if candidate == year and self._no_month_is_long_enough():
                return None
        return None

    def _no_month_is_long_enough(self) -> bool:
        """Whether it names days of the month alone, and none that a named month has."""
        if self.any_day or not self.any_weekday or self.before_last or self.near_day:
            return False
        longest = max(month_length(2000, month) for month in self.months)
        return not self.days & ((1 << longest + 1) - 2)

    def _day_to(self, year: int, month: int, day: int) -> int | None:
        """Return the last named day (counted from 1970) up to a date; the day may be 0."""
        for candidate in self._years_near(
            range(year, max(year - YEARS_SEARCHED, YEAR_MIN - 1) - 1, -1)
        ):
            for in_month in range(month if candidate == year else 12, 0, -1):
                mask = self.day_mask(candidate, in_month)
                if candidate == year and in_month == month:
                    mask &= (1 << (day + 1)) - 1
                if mask:
                    return date(candidate, in_month, mask.bit_length() - 1).toordinal() - (
                        EPOCH_ORDINAL
                    )
        return None

    def _years_near(self, years: range) -> Iterable[int]:
        """Return the years worth a look. Named years may lie farther off than a search goes."""
        if self.years is None:
            return years
        if years.step > 0:
            return sorted(year for year in self.years if year >= years.start)
        return sorted((year for year in self.years if year <= years.start), reverse=True)

    def _days_between(self, low: int, high: int) -> int:
        """Return how many named days there are from `low` on and before `high`."""
        first = date.fromordinal(low + EPOCH_ORDINAL)
        last = date.fromordinal(high + EPOCH_ORDINAL)
        total = -(self.day_mask(first.year, first.month) & ((1 << first.day) - 1)).bit_count()
        for year in range(first.year, last.year + 1):
            begin = first.month if year == first.year else 1
            end = last.month if year == last.year else 13
            total += sum(self.day_mask(year, month).bit_count() for month in range(begin, end))
        return total + (self.day_mask(last.year, last.month) & ((1 << last.day) - 1)).bit_count()

    def _first_time(self) -> int:
        return self.hours[0] * HOUR_S + self.minutes[0] * 60 + self.seconds[0]

    def _last_time(self) -> int:
        return self.hours[-1] * HOUR_S + self.minutes[-1] * 60 + self.seconds[-1]

    def _time_from(self, second: int) -> int | None:
        """Return the first time of day that is not before this second of the day."""
        hour, minute, second = second // HOUR_S, second // 60 % 60, second % 60
        at = bisect_left(self.hours, hour)
        if at < len(self.hours) and self.hours[at] == hour:
            within = bisect_left(self.minutes, minute)
            if within < len(self.minutes) and self.minutes[within] == minute:
                tick = bisect_left(self.seconds, second)
                if tick < len(self.seconds):
                    return hour * HOUR_S + minute * 60 + self.seconds[tick]
                within += 1
            if within < len(self.minutes):
                return hour * HOUR_S + self.minutes[within] * 60 + self.seconds[0]
            at += 1
        if at < len(self.hours):
            return self.hours[at] * HOUR_S + self.minutes[0] * 60 + self.seconds[0]
        return None

    def _time_to(self, second: int) -> int | None:
        """Return the last time of day that is not after this second of the day."""
        hour, minute, second = second // HOUR_S, second // 60 % 60, second % 60
        at = bisect_right(self.hours, hour) - 1
        if at >= 0 and self.hours[at] == hour:
            within = bisect_right(self.minutes, minute) - 1
            if within >= 0 and self.minutes[within] == minute:
                tick = bisect_right(self.seconds, second) - 1
                if tick >= 0:
                    return hour * HOUR_S + minute * 60 + self.seconds[tick]
                within -= 1
            if within >= 0:
                return hour * HOUR_S + self.minutes[within] * 60 + self.seconds[-1]
            at -= 1
        if at >= 0:
            return self.hours[at] * HOUR_S + self.minutes[-1] * 60 + self.seconds[-1]
        return None

    def _times_before(self, second: int) -> int:
        """Return how many times of day lie before this second of the day."""
        hour, minute, second = second // HOUR_S, second // 60 % 60, second % 60
        at = bisect_left(self.hours, hour)
        total = at * len(self.minutes)
        if at < len(self.hours) and self.hours[at] == hour:
            within = bisect_left(self.minutes, minute)
            total += within
            if within < len(self.minutes) and self.minutes[within] == minute:
                return total * len(self.seconds) + bisect_left(self.seconds, second)
        return total * len(self.seconds)


def month_length(year: int, month: int) -> int:
    """Return how many days a month has."""
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return MONTH_DAYS[month] + leap


def nearest_weekday(day: int, length: int, first_weekday: int) -> int:
    """Return the Monday to Friday nearest to a day, within its month."""
    weekday = (first_weekday + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day
