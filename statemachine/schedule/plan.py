"""When a job happens: its compiled schedules, and the questions the rules ask of them.

A plan is the union of a job's schedules under one timing. Scheduled times begin after `since_ms`,
the instant at which the schedules took force, save for a single time in the past, which is meant
to run at once. With `ever` a question also looks at the time before, as if the schedules had
always been there: a backfill may reach back before the job was made.

Nothing here knows whether a scheduled time was fired, how often, or what was paused: that is the
business of the rules that call. Calendars are asked apart as well, since a scheduled time they
leave out still gets its outcome in the ledger.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple, Protocol

from .calendar_days import CalendarDays
from .zones import LATEST_MS, Zone

# Unions are counted by walking; more than so many are "at least".
COUNT_MAX: Final = 10_000
# So few are walked, since a search costs as much.
FEW: Final = 8
# The rest after a scheduled time that did not run, where the delay itself is shorter: without it a
# job with the delay 0 would have a thousand scheduled times a second on a day off.
REST_MIN_MS: Final = 1000
# Before every instant: `next_scheduled(plan, BEFORE_ALL)` is the first of all.
BEFORE_ALL: Final = -1


class Repeat(Protocol):
    """A set of instants that can be walked both ways and counted."""

    def next_after(self, after_ms: int) -> int | None: ...

    def last_before(self, before_ms: int) -> int | None: ...

    def count(self, from_ms: int, to_ms: int) -> int: ...

    def times(self, from_ms: int, to_ms: int, most: int) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Grid:
    """A fixed rate: the anchor plus any whole number of periods, in both directions."""

    every_ms: int
    anchor_ms: int

    def next_after(self, after_ms: int) -> int | None:
        steps = (max(after_ms, BEFORE_ALL) - self.anchor_ms) // self.every_ms + 1
        at = self.anchor_ms + steps * self.every_ms
        return at if at < LATEST_MS else None

    def last_before(self, before_ms: int) -> int | None:
        steps = (min(before_ms, LATEST_MS) - 1 - self.anchor_ms) // self.every_ms
        at = self.anchor_ms + steps * self.every_ms
        return at if at >= 0 else None

    def count(self, from_ms: int, to_ms: int) -> int:
        low, high = max(from_ms, 0), min(to_ms, LATEST_MS)
        if low >= high:
            return 0
        below_high = (high - 1 - self.anchor_ms) // self.every_ms
        return below_high - (low - 1 - self.anchor_ms) // self.every_ms

    def times(self, from_ms: int, to_ms: int, most: int) -> list[int]:
        first = self.next_after(from_ms - 1)
        if first is None:
            return []
        return list(range(first, min(to_ms, LATEST_MS), self.every_ms)[:most])


@dataclass(frozen=True, slots=True)
class Once:
    """One instant."""

    at_ms: int

    def next_after(self, after_ms: int) -> int | None:
        return self.at_ms if self.at_ms > after_ms else None

    def last_before(self, before_ms: int) -> int | None:
        return self.at_ms if self.at_ms < before_ms else None

    def count(self, from_ms: int, to_ms: int) -> int:
        return int(from_ms <= self.at_ms < to_ms)


@dataclass(slots=True)
class Plan:
    """The compiled schedules of one job. Nothing changes it once it is made."""

    onces: Sequence[Once]
    repeats: Sequence[Repeat]
    # Delays after the end of a run, in milliseconds.
    rests: Sequence[int]
    zone: Zone
    start_ms: int
    end_ms: int
    since_ms: int
    # How much later than its scheduled time this job is due.
    jitter_ms: int
    calendars: Sequence[tuple[str, CalendarDays]]
    warnings: Sequence[str]
    # The first scheduled time of all, as a new job asks for it.
    first_ms: int | None = None


class ScheduledTimes(NamedTuple):
    """Scheduled times in order."""

    times: list[int]
    # There are more in the range than the limit let through.
    cut: bool


class Count(NamedTuple):
    """How many scheduled times there are."""

    number: int
    # False: there are at least so many.
    exact: bool


def next_scheduled(
    plan: Plan, after_ms: int, *, last_end_ms: int | None = None, ever: bool = False,
    is_resting: bool = True, rests_after_ms: int = 0,
) -> int | None:  # fmt: skip
    """Return the first scheduled time after an instant, or None when nothing is left.

    `last_end_ms` matters to schedules that count from the end of a run. It is when the last run
    ended, or the last scheduled time itself if nothing ran at it; None before the first scheduled
    time. `is_resting`: whether they count at all, which they do not while a run is under way. None
    is then the answer unless another schedule has one. `rests_after_ms`: their times lie behind
    that as well.
    """
    after_ms = max(after_ms, plan.start_ms - 1)
    from_ms = after_ms if ever else max(after_ms, plan.since_ms)
    best: int | None = None
    for repeat in plan.repeats:
        at = repeat.next_after(from_ms)
        if at is not None and (best is None or at < best):
            best = at
    for once in plan.onces:
        at = once.next_after(after_ms)
        if at is not None and (best is None or at < best):
            best = at
    for delay_ms in plan.rests if is_resting else ():
        at = _after_rest(plan, delay_ms, max(after_ms, rests_after_ms), last_end_ms)
        if at is not None and (best is None or at < best):
            best = at
    return best if best is not None and best < plan.end_ms else None


def _after_rest(plan: Plan, delay_ms: int, after_ms: int, last_end_ms: int | None) -> int | None:
    first = max(plan.since_ms, plan.start_ms) + delay_ms
    # A run that ended before the start, as one that was triggered, is no last one.
    if first > after_ms and (last_end_ms is None or last_end_ms < plan.start_ms):
        return first
    if last_end_ms is None:
        return None
    # A scheduled time with no run, or a run that was moved to before its scheduled time.
    if last_end_ms <= after_ms:
        return after_ms + max(delay_ms, REST_MIN_MS)
    return last_end_ms + delay_ms


def due(plan: Plan, scheduled_ms: int) -> int:
    """Return when a scheduled time is due.

    The jitter is of the job alone, not of the scheduled time: so due times keep the order and the
    distance of their scheduled times, and two of them never meet.
    """
    return scheduled_ms + plan.jitter_ms


def excluded(plan: Plan, scheduled_ms: int) -> str | None:
    """Return the name of the first calendar that leaves a scheduled time out."""
    for name, calendar in plan.calendars:
        if calendar.leaves_out(scheduled_ms, plan.zone):
            return name
    return None


def scheduled_times(
    plan: Plan, from_ms: int, to_ms: int, limit: int, *, ever: bool = False
) -> ScheduledTimes:
    """Return the scheduled times from one instant on and before another, at most `limit` of them.

    Times that follow from the end of a run are in no such list: nobody can compute them anew.
    """
    from_ms, to_ms = _within(plan, from_ms, to_ms)
    floor, most = max(from_ms, _floor(plan, ever)), limit + 1
    found = [_once(plan, from_ms, to_ms)[:most]]
    for repeat in plan.repeats:
        if len(found[-1]) == most:
            # What comes behind these does not count.
            to_ms = min(to_ms, found[-1][-1])
        found.append(_first(repeat, floor, to_ms, most))
    times = _merged(found)[:most]
    return ScheduledTimes(times[:limit], len(times) > limit)


def _first(repeat: Repeat, from_ms: int, to_ms: int, most: int) -> list[int]:
    """The first so many instants of one schedule in a range: a few by steps, more as a list."""
    if most > FEW:
        return repeat.times(from_ms, to_ms, most)
    times: list[int] = []
    at = repeat.next_after(from_ms - 1)
    while at is not None and at < to_ms and len(times) < most:
        times.append(at)
        at = repeat.next_after(at)
    return times


def _once(plan: Plan, from_ms: int, to_ms: int) -> list[int]:
    return sorted({once.at_ms for once in plan.onces if from_ms <= once.at_ms < to_ms})


def _merged(found: list[list[int]]) -> list[int]:
    """Lists in order as one, in which each instant stands once."""
    full = [times for times in found if times]
    if len(full) < 2:
        return full[0] if full else []
    return list(dict.fromkeys(sorted(chain.from_iterable(full))))


def names(plan: Plan, at_ms: int, *, ever: bool = False) -> bool:
    """Return whether a schedule names an instant, other than by the end of a run."""
    return bool(scheduled_times(plan, at_ms, at_ms + 1, 1, ever=ever).times)


def latest_scheduled(
    plan: Plan, from_ms: int, to_ms: int, limit: int, *, ever: bool = False
) -> ScheduledTimes:
    """Return the latest scheduled times of a range, in order of time."""
    from_ms, to_ms = _within(plan, from_ms, to_ms)
    floor, most = max(from_ms, _floor(plan, ever)), limit + 1
    found = [_once(plan, from_ms, to_ms)[-most:]]
    for repeat in plan.repeats:
        if len(found[-1]) == most:
            # What comes before these does not count.
            floor = max(floor, found[-1][0])
        found.append(_latest(repeat, floor, to_ms, most))
    times = _merged(found)[-most:]
    return ScheduledTimes(times[max(0, len(times) - limit) :], len(times) > limit)


def _latest(repeat: Repeat, from_ms: int, to_ms: int, most: int) -> list[int]:
    """The latest so many of them. Of more than a few all are listed from where there are not many
    more than that, which is searched."""
    times: list[int] = []
    if most > FEW:
        few_ms = to_ms
        while repeat.count(from_ms, to_ms) > 2 * most:
            middle_ms = (from_ms + few_ms) // 2
            if repeat.count(middle_ms, to_ms) < most:
                few_ms = middle_ms
            else:
                from_ms = middle_ms
        return repeat.times(from_ms, to_ms, 2 * most)[-most:]
    at = repeat.last_before(to_ms)
    while at is not None and at >= from_ms and len(times) < most:
        times.append(at)
        at = repeat.last_before(at)
    return times[::-1]


def latest_scheduled_before(plan: Plan, before_ms: int, *, ever: bool = False) -> int | None:
    """Return the last scheduled time before an instant."""
    from_ms, to_ms = _within(plan, 0, before_ms)
    found = _once(plan, from_ms, to_ms)
    floor = max(from_ms, _floor(plan, ever))
    for repeat in plan.repeats:
        at = repeat.last_before(to_ms)
        if at is not None and at >= floor:
            found.append(at)
    return max(found, default=None)


def newest(plan: Plan, from_ms: int, to_ms: int, number: int) -> tuple[int, int]:
    """Return where the latest so many scheduled times of a range begin, and how many there are.
    Those of one schedule are found without a walk."""
    counts = _counts(plan, from_ms, to_ms, False)
    if number <= FEW or sum(1 for count in counts if count) > 1:
        found = latest_scheduled(plan, from_ms, to_ms, number).times
        return (found[0] if found else to_ms), len(found)
    number = min(number, sum(counts))
    if not number:
        return to_ms, 0
    from_ms, to_ms = _within(plan, from_ms, to_ms)
    every: list[Repeat | Once] = [*plan.repeats, *plan.onces]
    [named] = [one for one, count in zip(every, counts, strict=True) if count]
    instants = range(from_ms, to_ms)
    behind = bisect_left(instants, 1, key=lambda at: int(named.count(at + 1, to_ms) < number))
    return instants[behind], number


def count_scheduled(plan: Plan, from_ms: int, to_ms: int, *, ever: bool = False) -> Count:
    """Count the scheduled times of a range. One schedule is counted without a walk, and exactly."""
    counts = _counts(plan, from_ms, to_ms, ever)
    if sum(1 for count in counts if count) <= 1:
        return Count(sum(counts), True)
    # Instants that two schedules name are one, so the sum may be too much.
    if max(counts) > COUNT_MAX:
        return Count(max(counts), False)
    walked = scheduled_times(plan, from_ms, to_ms, COUNT_MAX, ever=ever)
    return Count(len(walked.times), not walked.cut)


def _counts(plan: Plan, from_ms: int, to_ms: int, ever: bool) -> list[int]:
    """Count the scheduled times of a range for each schedule by itself."""
    from_ms, to_ms = _within(plan, from_ms, to_ms)
    counts = [repeat.count(max(from_ms, _floor(plan, ever)), to_ms) for repeat in plan.repeats]
    return counts + [once.count(from_ms, to_ms) for once in plan.onces]


def nth_scheduled(plan: Plan, first_ms: int, last_ms: int, number: int) -> int:
    """Return the scheduled time with a number, counted from the first one, or the last if there are
    fewer. The first one is 1, also if it follows from the end of a run."""
    if count_scheduled(plan, first_ms + 1, last_ms + 1).number < number:
        return last_ms
    if number == 1:
        return first_ms
    counts = _counts(plan, first_ms + 1, last_ms + 1, False)
    if number <= FEW or (number <= COUNT_MAX + 1 and sum(1 for count in counts if count) > 1):
        return scheduled_times(plan, first_ms + 1, last_ms + 1, number - 1).times[-1]
    instants = range(first_ms + 1, last_ms + 1)

    def at_least(at_ms: int) -> int:
        return max(_counts(plan, first_ms + 1, at_ms + 1, False))

    return instants[bisect_left(instants, number - 1, key=at_least)]


def _within(plan: Plan, from_ms: int, to_ms: int) -> tuple[int, int]:
    return max(from_ms, plan.start_ms), min(to_ms, plan.end_ms)


def _floor(plan: Plan, ever: bool) -> int:
    """Return the first instant at which a recurring schedule counts."""
    return 0 if ever else plan.since_ms + 1
