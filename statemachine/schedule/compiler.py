"""Compile a job's schedules and timing to a plan, or say everything that is wrong with them.

What belongs to the schedules alone is compiled once for all jobs that have the same (the bytes
are the key); what belongs to one job, the place of `H`, the anchor of an interval, the jitter, is
added for each. The memo is bounded and holds only what a fresh compilation would give.

Wrong input is an answer, never an exception. A stored job was right when it was accepted, so it is
restored without the question whether it can still fire.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from ...proto.v1 import error_pb2, schedule_pb2
from ..core.field_fault import FieldFault
from . import describe
from .calendar_days import CalendarDays, zone_fault
from .cron import (
    EVERY_MAX_MS,
    EVERY_MIN_MS,
    EXPRESSION_MAX,
    Refusal,
    is_spread,
    read_every,
    read_plain,
    simplify,
    spread,
)
from .plan import BEFORE_ALL, Grid, Once, Plan, Repeat, next_scheduled
from .zoned_cron import ZonedCron, zoned_cron
from .zones import LATEST_MS, YEAR_MAX, YEAR_MIN, Zone, find_zone

SCHEDULES_MAX: Final = 16
CALENDARS_MAX: Final = 8
JITTER_MAX_MS: Final = 86_400_000
SHAPES_KEPT: Final = 8192

INVALID: Final = error_pb2.ERROR_REASON_FIELD_INVALID
REQUIRED: Final = error_pb2.ERROR_REASON_FIELD_REQUIRED
LIMIT: Final = error_pb2.ERROR_REASON_LIMIT_EXCEEDED
NEVER: Final = error_pb2.ERROR_REASON_SCHEDULE_NEVER_FIRES
NO_CALENDAR: Final = error_pb2.ERROR_REASON_CALENDAR_NOT_FOUND


class Rest(NamedTuple):
    """A time from the end of the last run on."""

    delay_ms: int


class Unanchored(NamedTuple):
    """A fixed rate from the job's creation on."""

    every_ms: int


class Spread(NamedTuple):
    """A cron expression with an `H`, which needs a job's name to become times."""

    # As `simplify` left it.
    plain: str


# One schedule, as far as it goes without its job; and with it.
CompiledSchedule = Once | Repeat | Rest | Unanchored | Spread
Resolved = Once | Repeat | Rest


@dataclass(frozen=True, slots=True)
class Rules:
    """What every schedule of a job shares."""

    zone: Zone
    gap_rule: schedule_pb2.GapRule.ValueType
    fold_rule: schedule_pb2.FoldRule.ValueType
    start_ms: int
    end_ms: int
    jitter_ms: int
    calendars: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScheduleShape:
    """Schedules and timing without what is peculiar to one job."""

    faults: tuple[FieldFault, ...]
    rules: Rules
    # The schedules without a fault; all of them, if there are no faults.
    parts: tuple[CompiledSchedule, ...]
    warnings: tuple[str, ...]
    # The same for every job that has them; else its own are made.
    shared: tuple[tuple[Once, ...], tuple[Repeat, ...], tuple[int, ...]] | None

    @property
    def is_once(self) -> bool:
        """Whether a job with it happens at one instant only."""
        return len(self.parts) == 1 and isinstance(self.parts[0], Once)

    @property
    def meaning(self) -> tuple[object, ...]:
        """Equal for schedules that name the same instants: one for each of their union."""
        # The kind belongs to it: a rest of an hour and a rate of one are equal as tuples.
        parts = (
            (type(part), part.meaning if isinstance(part, ZonedCron) else part)
            for part in self.parts
        )
        # A spread becomes times under the rules.
        rules = self.rules
        is_spread = any(isinstance(part, Spread) for part in self.parts)
        spread = (rules.zone, rules.gap_rule, rules.fold_rule) if is_spread else ()
        return frozenset(parts), spread, rules.start_ms, rules.end_ms

    @property
    def is_common(self) -> bool:
        """Whether jobs that are made at one instant have one plan."""
        rules = self.rules
        return self.shared is not None and not rules.jitter_ms and not rules.calendars


def compile_plan(
    schedules: Sequence[schedule_pb2.Schedule],
    timing: schedule_pb2.Timing,
    *,
    seed: str,
    created_at_ms: int,
    calendars: Mapping[str, CalendarDays],
    since_ms: int | None = None,
    shape: ScheduleShape | None = None,
) -> Plan | list[FieldFault]:
    """Compile what a user wrote. `seed` is "namespace/job".

    `since_ms` is when these schedules took force, by default the creation; an interval without an
    anchor counts from the creation all the same.
    """
    plan = restore_plan(
        shape or shape_of(schedules, timing),
        seed=seed,
        created_at_ms=created_at_ms,
        calendars=calendars,
        since_ms=since_ms,
    )
    if not isinstance(plan, Plan):
        if any(not fault.path.startswith("schedules[") for fault in plan):
            return plan
        # Those that can be read are asked as well, so that all faults are named at once.
        for at, schedule in enumerate(schedules):
            alone = restore_plan(
                shape_of([schedule], timing), seed=seed, created_at_ms=created_at_ms,
                calendars=calendars, since_ms=since_ms,
            )  # fmt: skip
            if isinstance(alone, Plan):
                plan += _never_firing([schedule], timing, alone, seed, created_at_ms, at)
        return plan
    plan.first_ms = next_scheduled(plan, BEFORE_ALL)
    # The common case costs no other search.
    if not schedules or (len(schedules) == 1 and plan.first_ms is not None):
        return plan
    return _never_firing(schedules, timing, plan, seed, created_at_ms) or plan


def restore_plan(
    shape: ScheduleShape,
    *,
    seed: str,
    created_at_ms: int,
    calendars: Mapping[str, CalendarDays],
    since_ms: int | None = None,
) -> Plan | list[FieldFault]:
    """Compile what was accepted before. A schedule that has done its work is no fault."""
    rules, faults, warnings = shape.rules, list(shape.faults), shape.warnings
    known: Sequence[tuple[str, CalendarDays]] = ()
    if rules.calendars:
        known = [(name, calendars[name]) for name in rules.calendars if name in calendars]
        if len(known) < len(rules.calendars):
            faults += _unknown_calendars(rules.calendars, calendars)
    sorted_out = shape.shared
    if sorted_out is None:
        resolved, more = _own(shape, seed, created_at_ms)
        sorted_out = _sort_out(resolved)
        warnings += tuple(more)
    if faults:
        return faults
    onces, repeats, rests = sorted_out
    return Plan(
        onces,
        repeats,
        rests,
        rules.zone,
        rules.start_ms,
        rules.end_ms,
        created_at_ms if since_ms is None else since_ms,
        spread(f"{seed}\0jitter", rules.jitter_ms + 1) if rules.jitter_ms else 0,
        known,
        warnings,
    )


def lints(plan: Plan) -> list[str]:
    """Return what may not mean what it seems to, for people. None of it is wrong."""
    return list(plan.warnings)


def shape_of(
    schedules: Sequence[schedule_pb2.Schedule], timing: schedule_pb2.Timing
) -> ScheduleShape:
    return _shape(
        tuple([schedule.SerializeToString(deterministic=True) for schedule in schedules]),
        timing.SerializeToString(deterministic=True),
    )


@lru_cache(maxsize=SHAPES_KEPT)
def _shape(schedules: tuple[bytes, ...], timing: bytes) -> ScheduleShape:
    faults: list[FieldFault] = []
    warnings: list[str] = []
    if len(schedules) > SCHEDULES_MAX:
        why = f"a job has at most {SCHEDULES_MAX} schedules"
        found = str(len(schedules))
        faults.append(FieldFault("schedules", LIMIT, found, why, "lists in one expression"))
        schedules = schedules[:SCHEDULES_MAX]
    rules, wrong = _rules(timing)
    faults += wrong
    parts: list[CompiledSchedule] = []
    for at, stored in enumerate(schedules):
        schedule = schedule_pb2.Schedule.FromString(stored)
        part = _read_part(schedule, f"schedules[{at}]", rules, faults, warnings)
        if part is not None:
            parts.append(part)
    same = [part for part in parts if not isinstance(part, Unanchored | Spread)]
    shared = _sort_out(same) if len(same) == len(parts) else None
    return ScheduleShape(tuple(faults), rules, tuple(parts), tuple(warnings), shared)


@lru_cache(maxsize=SHAPES_KEPT)
def _rules(timing: bytes) -> tuple[Rules, tuple[FieldFault, ...]]:
    """What a timing says, and what is wrong with it; schedules that differ share one, as a rule."""
    faults: list[FieldFault] = []
    rules = _read_rules(schedule_pb2.Timing.FromString(timing), faults)
    return rules, tuple(faults)


def _read_rules(timing: schedule_pb2.Timing, faults: list[FieldFault]) -> Rules:
    zone = find_zone(timing.zone)
    if zone is None:
        faults.append(zone_fault("timing.zone", timing.zone))
        zone = find_zone("UTC")
        assert zone is not None
    if timing.gap_rule not in schedule_pb2.GapRule.values():
        found = str(timing.gap_rule)
        faults.append(FieldFault("timing.gap_rule", INVALID, found, "no such rule", "NEXT or SKIP"))
    if timing.fold_rule not in schedule_pb2.FoldRule.values():
        found, instead = str(timing.fold_rule), "FIRST, SECOND or BOTH"
        faults.append(FieldFault("timing.fold_rule", INVALID, found, "no such rule", instead))
    start_ms, end_ms = 0, LATEST_MS
    if timing.HasField("start_time"):
        start_ms = _instant(timing.start_time, "timing.start_time", faults)
    if timing.HasField("end_time"):
        end_ms = _instant(timing.end_time, "timing.end_time", faults)
        if end_ms <= start_ms:
            why = "the end must lie after the start, since it is not included"
            text = _shown(timing.end_time)
            faults.append(FieldFault("timing.end_time", INVALID, text, why, "a later instant"))
    if timing.max_runs < 0:
        why, found = "a number of runs cannot be negative", str(timing.max_runs)
        faults.append(FieldFault("timing.max_runs", INVALID, found, why, "0 for no maximum"))
    jitter_ms = _length(timing.jitter, "timing.jitter", 0, JITTER_MAX_MS, "24h", faults)
    names = tuple(dict.fromkeys(timing.exclude_calendars))
    if len(names) > CALENDARS_MAX:
        why = f"a job names at most {CALENDARS_MAX} calendars"
        path, found = "timing.exclude_calendars", str(len(names))
        faults.append(FieldFault(path, LIMIT, found, why, "one calendar with the days of several"))
        names = names[:CALENDARS_MAX]
    return Rules(zone, timing.gap_rule, timing.fold_rule, start_ms, end_ms, jitter_ms, names)


def _read_part(
    schedule: schedule_pb2.Schedule,
    path: str,
    rules: Rules,
    faults: list[FieldFault],
    warnings: list[str],
) -> CompiledSchedule | None:
    """Read one schedule. With a fault the answer does not matter any more."""
    match schedule.WhichOneof("kind"):
        case "once":
            if not schedule.once.HasField("time"):
                why = "a single time needs an instant"
                faults.append(FieldFault(f"{path}.once.time", REQUIRED, "", why))
                return None
            return Once(_instant(schedule.once.time, f"{path}.once.time", faults))
        case "interval":
            return _read_interval(schedule.interval, f"{path}.interval", faults)
        case "after_end":
            delay = schedule.after_end.delay
            return Rest(
                _length(delay, f"{path}.after_end.delay", 0, EVERY_MAX_MS, "3660 days", faults)
            )
        case "cron":
            expression = schedule.cron.expression
            return _read_cron(expression, f"{path}.cron.expression", rules, faults, warnings)
        case _:
            why = "a schedule needs one of once, interval, after_end, cron"
            faults.append(FieldFault(path, REQUIRED, "", why))
            return None


def _read_interval(
    interval: schedule_pb2.Interval, path: str, faults: list[FieldFault]
) -> CompiledSchedule | None:
    if not interval.HasField("every"):
        faults.append(FieldFault(f"{path}.every", REQUIRED, "", "an interval needs a period"))
        return None
    every = _length(
        interval.every, f"{path}.every", EVERY_MIN_MS, EVERY_MAX_MS, "3660 days", faults
    )
    if not interval.HasField("anchor"):
        return Unanchored(every)
    return Grid(every, _instant(interval.anchor, f"{path}.anchor", faults))


def _read_cron(
    expression: str, path: str, rules: Rules, faults: list[FieldFault], warnings: list[str]
) -> CompiledSchedule | None:
    if len(expression) > EXPRESSION_MAX:
        why = f"an expression has at most {EXPRESSION_MAX} characters, this one {len(expression)}"
        value = expression[:EXPRESSION_MAX] + "..."
        faults.append(FieldFault(path, LIMIT, value, why, "ranges and steps, or two schedules"))
        return None
    every = read_every(expression)
    if isinstance(every, int):
        return Unanchored(every)
    plain = every or simplify(expression)
    read = plain if isinstance(plain, Refusal) else read_plain(plain, "")
    if isinstance(read, Refusal):
        faults.append(FieldFault(path, read.reason, expression, read.why, read.instead))
        return None
    assert isinstance(plain, str)
    if is_spread(plain):
        return Spread(plain)
    warnings += read.warnings
    return zoned_cron(read.fields, rules.zone, rules.gap_rule, rules.fold_rule)


def _own(shape: ScheduleShape, seed: str, created_at_ms: int) -> tuple[list[Resolved], list[str]]:
    """Add what belongs to one job to its schedules; return them with their warnings."""
    resolved: list[Resolved] = []
    warnings: list[str] = []
    rules = shape.rules
    for part in shape.parts:
        if isinstance(part, Unanchored):
            resolved.append(Grid(part.every_ms, created_at_ms))
        elif isinstance(part, Spread):
            read = read_plain(part.plain, seed)
            # It was good for another name, and no field is good with some numbers only.
            assert not isinstance(read, Refusal), f"{part.plain!r} with {seed!r}: {read.why}"
            resolved.append(zoned_cron(read.fields, rules.zone, rules.gap_rule, rules.fold_rule))
            warnings += read.warnings
        else:
            resolved.append(part)
    return resolved, warnings


def _sort_out(
    parts: Sequence[Resolved],
) -> tuple[tuple[Once, ...], tuple[Repeat, ...], tuple[int, ...]]:
    """Sort by kind, as the questions want them; equal ones need to be asked once."""
    onces = [part for part in parts if isinstance(part, Once)]
    rests = [part.delay_ms for part in parts if isinstance(part, Rest)]
    repeats = [part for part in parts if isinstance(part, Grid | ZonedCron)]
    return tuple(dict.fromkeys(onces)), tuple(dict.fromkeys(repeats)), tuple(dict.fromkeys(rests))


def _never_firing(
    schedules: Sequence[schedule_pb2.Schedule],
    timing: schedule_pb2.Timing,
    plan: Plan,
    seed: str,
    created_at_ms: int,
    first: int = 0,
) -> list[FieldFault]:
    """Ask each schedule alone, since in a union one that fires hides one that never does."""
    faults: list[FieldFault] = []
    resolved, _ = _own(shape_of(schedules, timing), seed, created_at_ms)
    for at, (schedule, part) in enumerate(zip(schedules, resolved, strict=True), first):
        onces, repeats, rests = _sort_out([part])
        alone = replace(plan, onces=onces, repeats=repeats, rests=rests)
        if next_scheduled(alone, BEFORE_ALL) is None:
            endless = replace(alone, start_ms=0, end_ms=LATEST_MS)
            at_all = next_scheduled(endless, BEFORE_ALL)
            faults.append(_never(f"schedules[{at}]", schedule, plan, at_all))
    return faults


def _never(
    path: str, schedule: schedule_pb2.Schedule, plan: Plan, at_all: int | None
) -> FieldFault:
    kind = schedule.WhichOneof("kind")
    where = {"once": f"{path}.once.time", "cron": f"{path}.cron.expression"}
    value = schedule.cron.expression
    if kind == "once":
        value = _shown(schedule.once.time)
    if at_all is not None:
        why = "between start_time and end_time it has no time"
        instead = "a later end_time or an earlier start_time"
    else:
        why = f"no date after {plan.zone.local_text(plan.since_ms)} fits it"
        instead = "a day that its month has (`0 0 L 2 *` is the last of February), a year to come"
    return FieldFault(where.get(str(kind), f"{path}.{kind}"), NEVER, value, why, instead)


def _unknown_calendars(
    names: Sequence[str], calendars: Mapping[str, CalendarDays]
) -> list[FieldFault]:
    faults = []
    for at, name in enumerate(names):
        if name not in calendars:
            near = difflib.get_close_matches(name[:64], sorted(calendars), n=3)
            path, why = f"timing.exclude_calendars[{at}]", "there is no such calendar"
            faults.append(FieldFault(path, NO_CALENDAR, name, why, " or ".join(near)))
    return faults


def _instant(stamp: Timestamp, path: str, faults: list[FieldFault]) -> int:
    at = stamp.seconds * 1000 + stamp.nanos // 1_000_000
    if not (0 <= at < LATEST_MS and 0 <= stamp.nanos < 1_000_000_000):
        why = f"instants lie between the years {YEAR_MIN} and {YEAR_MAX}"
        instead = "an instant such as 2026-12-24T09:00:00Z"
        faults.append(FieldFault(path, INVALID, _shown(stamp), why, instead))
        return 0
    return at


def _shown(stamp: Timestamp) -> str:
    """Return an instant for people; unlike the library's own way it takes any number."""
    if 0 <= stamp.seconds * 1000 < LATEST_MS:
        return datetime.fromtimestamp(stamp.seconds, UTC).isoformat().replace("+00:00", "Z")
    return f"{stamp.seconds} s since 1970"


def _length(
    length: Duration, path: str, low_ms: int, high_ms: int, high: str, faults: list[FieldFault]
) -> int:
    ms = length.seconds * 1000 + length.nanos // 1_000_000
    if low_ms <= ms <= high_ms and abs(length.nanos) < 1_000_000_000:
        return ms
    why = f"it must be between {low_ms // 1000} s and {high}"
    actual = describe.length(ms, counted=True)
    instead = high if ms > high_ms else f"{low_ms // 1000}s"
    faults.append(FieldFault(path, INVALID, actual, why, instead))
    return low_ms
