"""Read a cron expression: the only door to croniter.

croniter parses and validates; cron_fields.py walks. Before croniter sees a text, everything it
would read in a way that surprises is taken out of its hands:

* `@hourly` and its kin are expanded here: with a hash id croniter spreads them over the day.
* `H` becomes a number here. croniter shifts one checksum for all fields, so `H H * * *` lands on
  240 of the 1,440 minutes of a day; a hash for each field reaches all. Its day of month is 1 to
  28, so that every month has it. The hash is of the job's name: the same on each node, for ever.
* `R` (chance), `@reboot` and `TZ=` are refused, with what to write instead.
* `5-5` becomes `5`, as in Vixie cron: croniter takes it for the whole field.
* Whether a day must fit one day field or both is decided here, as in Vixie cron.
* `L-3` it does not know, nor `friL`, nor plain weekdays beside `fri#2`: it reads the plain part.
* With six or seven fields the seconds come first, as in Quartz and in Go's cron.

A text that is accepted and may still not mean what it seems to has a warning: `59/15` is one
minute, `* 9 * * *` is sixty runs.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from croniter import CroniterError, croniter

from ...proto.v1 import error_pb2
from .cron_fields import LAST, LAST_WEEKDAY, CronFields, HourKind

Reason: TypeAlias = "error_pb2.ErrorReason.ValueType"

EXPRESSION_MAX: Final = 256  # Characters.
READ_KEPT: Final = 8192

ALIASES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
EVERY_MIN_MS: Final = 1000
EVERY_MAX_MS: Final = 3660 * 86_400_000  # Ten years of 366 days.


class CronField(NamedTuple):
    """One place in an expression."""

    name: str
    low: int
    high: int
    allowed: str


SECOND: Final = CronField("second", 0, 59, "0-59")
MINUTE: Final = CronField("minute", 0, 59, "0-59")
HOUR: Final = CronField("hour", 0, 23, "0-23")
DAY: Final = CronField(
    "day of month",
    1,
    31,
    "1-31, L (last day), L-3 (three days before), 15W (nearest weekday), LW or ?",
)
MONTH: Final = CronField("month", 1, 12, "1-12 or jan-dec")
WEEKDAY: Final = CronField(
    "day of week", 0, 6, "0-7 (0 and 7 are Sunday), sun-sat, fri#2, friL or ?"
)
YEAR: Final = CronField("year", 1970, 2099, "1970-2099")
FIVE: Final = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)
LAYOUTS: Final = {5: FIVE, 6: (SECOND, *FIVE), 7: (SECOND, *FIVE, YEAR)}
SPREAD_DAY_MAX: Final = 28
ALL_DAYS: Final = (1 << 32) - 2  # Bits 1 to 31.
ALL_WEEKDAYS: Final = (1 << 7) - 1

SPREAD: Final = re.compile(r"h(?:\((\d{1,4})-(\d{1,4})\))?(?:/(\d{1,4}))?")
SPREAD_RATE: Final = re.compile(r"h/\d+")
CHANCE: Final = re.compile(r"r(?:\(.*)?(?:/.*)?")
RANGE: Final = re.compile(r"(\w+)-(\w+)(?:/0*[1-9]\d*)?(#\d)?")
STEPPED: Final = re.compile(r"(\w+)-(\w+)/(\d{1,4})")
BEFORE_LAST: Final = re.compile(r"l-(?:0?[1-9]|[12]\d|30)")
LAST_OF_NAME: Final = re.compile(r"(\d|[a-z]{3})l")
STEP: Final = re.compile(r"[\w*-]+/(\d+)")
EVERY: Final = re.compile(r"@every +(\S.*)")
LENGTH: Final = re.compile(r"(\d{1,12})(ms|s|m|h|d)")
WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MONTHS: Final = (
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
)  # fmt: skip
NAMES: Final = {
    **{name: str(at) for at, name in enumerate(WEEKDAYS)},
    **{name: str(at) for at, name in enumerate(MONTHS, 1)},
}


class Refusal(NamedTuple):
    """Why a text is no schedule, and what to write instead."""

    reason: Reason
    why: str
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Cron:
    """An expression that was read."""

    # Five to seven fields in lower case, aliases and `H` replaced.
    text: str
    fields: CronFields
    warnings: tuple[str, ...]


def wrong(why: str, instead: str = "") -> Refusal:
    return Refusal(error_pb2.ERROR_REASON_CRON_INVALID, why, instead)


def read_cron(expression: str, seed: str) -> Cron | Refusal:
    """Read an expression of fields or an alias. The seed, "namespace/job", places each `H`."""
    plain = simplify(expression)
    return plain if isinstance(plain, Refusal) else read_plain(plain, seed)


def read_plain(plain: str, seed: str) -> Cron | Refusal:
    """Read what `simplify` made of an expression."""
    items = plain.split()
    layout = LAYOUTS.get(len(items))
    if "h" not in plain or layout is None:
        return _read(plain, HourKind.FIXED)
    hour_kind = HourKind.FIXED
    for at, (field, text) in enumerate(zip(layout, items, strict=True)):
        if "h" not in text:
            continue
        if field is HOUR and SPREAD_RATE.fullmatch(text):
            hour_kind = HourKind.STEP
        placed = place(text, field, seed)
        if isinstance(placed, Refusal):
            return placed
        items[at] = placed
    return _read(" ".join(items), hour_kind)


def is_spread(plain: str) -> bool:
    """Whether the seed matters: whether any `H` stands for a place in a field."""
    return any(part.startswith("h") for part in plain.replace(",", " ").split())


def read_every(expression: str) -> int | Refusal | None:
    """Return the period of `@every 5m` in milliseconds; None if the text is something else."""
    text = " ".join(expression.lower().split())
    if text.split(" ")[0] != "@every":
        return None
    match = EVERY.fullmatch(text)
    parts = LENGTH.findall(match[1]) if match else []
    if match is None or "".join(map("".join, parts)) != match[1]:
        return wrong("@every wants a length of time", "@every 5m (units ms, s, m, h, d; or 1h30m)")
    period = sum(int(number) * UNITS_MS[unit] for number, unit in parts)
    if not EVERY_MIN_MS <= period <= EVERY_MAX_MS:
        return wrong("the period must be between 1 s and 10 years", "@every 1s to @every 3660d")
    return period


def simplify(expression: str) -> str | Refusal:
    """Bring a text to lower-case fields with single spaces, or refuse what is no field."""
    if not expression.strip():
        return Refusal(
            error_pb2.ERROR_REASON_FIELD_REQUIRED, "the expression is empty", "0 9 * * mon-fri"
        )
    if not expression.isascii() or not expression.replace("\t", " ").isprintable():
        return wrong("only plain ASCII characters can stand in an expression", "0 9 * * mon-fri")
    text = " ".join(expression.lower().split())
    if text.startswith("@"):
        return ALIASES.get(text) or refuse_word(text)
    if text.startswith(("tz=", "cron_tz=")):
        zone = expression.split()[0].partition("=")[2]
        rest = " ".join(expression.split()[1:])
        return wrong(
            "the zone does not belong in the expression",
            f"the expression {rest!r} and, in timing.zone, {zone!r}",
        )
    for item in text.split():
        if any(CHANCE.fullmatch(part) for part in item.split(",")):
            return wrong(
                "R would be another time on each node and after each restart",
                f"H, which spreads by the job's name: {re.sub('^r', 'H', item)}",
            )
    return text


def refuse_word(word: str) -> Refusal:
    if word == "@reboot":
        return wrong(
            "a cluster has no boot to run after", "a schedule `once`, or trigger the job manually"
        )
    known = [*ALIASES, "@every 5m"]
    near = difflib.get_close_matches(word[:64], known, n=1, cutoff=0.5)
    return wrong(
        f"{word.split()[0]} is no word this product knows",
        near[0] if near else "one of " + ", ".join(known),
    )


def place(text: str, field: CronField, seed: str) -> str | Refusal:
    """Replace every `H` of one field by the numbers it stands for."""
    parts = text.split(",")
    for at, part in enumerate(parts):
        if not part.startswith("h"):
            continue
        match = SPREAD.fullmatch(part)
        if match is None or field is YEAR:
            return wrong(
                f"{part.upper()!r} cannot stand in the field {field.name}",
                "H, H(0-29), H/15 or H(0-29)/10, in any field but the year",
            )
        low, high = field.low, SPREAD_DAY_MAX if field is DAY else field.high
        if match[1]:
            low, high = int(match[1]), int(match[2])
        if not field.low <= low < high <= field.high or match[3] in ("0", "00"):
            return wrong(
                f"{part.upper()!r} does not fit the field {field.name}, {field.low}-{field.high}",
                f"H({field.low}-{field.high}), the lower bound first",
            )
        size = high - low + 1
        step = int(match[3] or 0)
        first = low + spread(f"{seed}\0{field.name}", min(step or size, size))
        parts[at] = f"{first}-{high}/{step}" if step and first < high else str(first)
    return ",".join(parts)


def spread(seed: str, size: int) -> int:
    """Return a number below `size` that follows from the seed alone, all about equally often."""
    digest = hashlib.blake2b(seed.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") * size >> 64


@lru_cache(maxsize=READ_KEPT)
def _read(text: str, hour_kind: HourKind) -> Cron | Refusal:
    items = text.split()
    layout = LAYOUTS.get(len(items))
    if layout is None:
        return wrong(
            f"an expression has 5, 6 or 7 fields, not {len(items)}",
            "minute, hour, day of month, month, day of week; with 6 the seconds come first, "
            "with 7 the year last",
        )
    items = [_single(item) for item in items]
    if "7-0" in items[layout.index(WEEKDAY)].split(","):
        return wrong("'7-0' in the field day of week: 7 and 0 are both Sunday", "sun, or 0-6")
    try:
        fields = _parse(items, layout, hour_kind)
    except (CroniterError, ValueError) as error:
        return _explain(layout, items, error)
    return Cron(" ".join(items), fields, tuple(_warnings(layout, items, fields)))


def _parse(items: Sequence[str], layout: Sequence[CronField], hour_kind: HourKind) -> CronFields:
    """Have croniter read what it can, and add the rest; it raises what is wrong."""
    known = [_unwrapped(*place) for place in zip(layout, items, strict=True)]
    day, weekday = layout.index(DAY), layout.index(WEEKDAY)
    if known[day] == "lw":
        known[day] = "31w"  # croniter has no word for it.
    parts = known[day].split(",")
    before = [int(part[2:]) for part in parts if BEFORE_LAST.fullmatch(part)]
    rest = [part for part in parts if not BEFORE_LAST.fullmatch(part)]
    known[day] = ",".join(rest) if rest else "l"
    parts = [LAST_OF_NAME.sub(_croniters_last, part) for part in known[weekday].split(",")]
    # Some weekdays of the month beside all others of a name: each kind is read by itself.
    nth = [part for part in parts if "#" in part or part.startswith("l")]
    plain = [part for part in parts if part not in nth]
    known[weekday] = ",".join(plain or nth)
    written = Written(items[layout.index(HOUR)], items[day], items[weekday])
    fields = _fields(_croniter(known), written, hour_kind)
    if before:
        last = fields.before_last if rest else ()
        fields = replace(fields, before_last=tuple(sorted({*last, *before})))
    if plain and nth:
        known[weekday] = ",".join(nth)
        others = _fields(_croniter(known), written, hour_kind)
        fields = replace(fields, nth_weekdays=others.nth_weekdays)
    return fields


def _croniter(items: Sequence[str]) -> croniter:
    return croniter(" ".join(items), 0.0, second_at_beginning=True)


def _croniters_last(match: re.Match[str]) -> str:
    """`friL` and `5L` as croniter writes them."""
    return f"l{NAMES.get(match[1], match[1])}"


def _single(item: str) -> str:
    """Write a range of one value as that value: `5-5`, `5-5/2`, `sun-0`."""
    return ",".join(_single_part(part) for part in item.split(","))


def _single_part(part: str) -> str:
    match = RANGE.fullmatch(part)
    if match is None or _bound(match[1]) != _bound(match[2]):
        return part
    return match[1] + (match[3] or "")


def _unwrapped(field: CronField, item: str) -> str:
    """Write steps over a range that runs backwards as the values that it names: croniter counts one
    too many where it goes on from the end of the field."""
    return ",".join(_unwrapped_part(field, part) for part in item.split(","))


def _unwrapped_part(field: CronField, part: str) -> str:
    match = STEPPED.fullmatch(part)
    bounds = (_bound(match[1]), _bound(match[2])) if match else ()
    if match is None or not all(bound.isdecimal() for bound in bounds):
        return part
    low, high, step = (int(text) for text in (*bounds, match[3]))
    size = field.high - field.low + 1
    if not field.low <= high < low <= field.high or not step:
        return part  # Forwards, or wrong: croniter reads it.
    values = (at if at <= field.high else at - size for at in range(low, high + size + 1, step))
    return ",".join(str(value) for value in values)


def _bound(text: str) -> str:
    """One end of a range as a number without leading zeros, if it is one."""
    number = NAMES.get(text, text)
    return number.lstrip("0") or "0"


def _explain(layout: Sequence[CronField], items: Sequence[str], error: Exception) -> Refusal:
    """Find the field that croniter does not like, since its own words rarely say so."""
    for at, (field, item) in enumerate(zip(layout, items, strict=True)):
        alone = ["*"] * len(items)
        alone[at] = item
        try:
            _parse(alone, layout, HourKind.FIXED)
        except (CroniterError, ValueError):
            return wrong(
                f"{item!r} cannot stand in the field {field.name}",
                _instead(field, item) or f"{field.name}: {field.allowed}; also *, a-b, */n, lists",
            )
    return wrong(str(error) or "the fields do not fit together")


def _instead(field: CronField, item: str) -> str:
    if field is WEEKDAY and re.fullmatch(r"[0-7]#l", item):
        return f"{item[0]}L (the last such day of the month)"
    if field is WEEKDAY and item == "l":
        return "6 (Saturday), or 6L (the last Saturday of the month)"
    if field is DAY and re.fullmatch(r"l-\d+", item):
        return "L-1 to L-30, so many days before the last, or L for the last day"
    if field is HOUR and item == "24":
        return "0 (midnight)"
    if field in (DAY, MONTH) and item == "0":
        return f"1 (the first; {field.name} counts from 1)"
    return ""


class Written(NamedTuple):
    """Fields as they were written, since croniter's lists have no star, only all values."""

    hour: str
    day: str
    weekday: str


def _fields(parsed: croniter, written: Written, hour_kind: HourKind) -> CronFields:
    minutes, hours, days, months, weekdays = parsed.expanded[:5]
    seconds = parsed.expanded[5] if len(parsed.expanded) > 5 else [0]
    years = parsed.expanded[6] if len(parsed.expanded) > 6 else ["*"]
    nths = parsed.nth_weekday_of_month
    near = parsed.nearest_weekday
    all_days = "*" in days or _bits(days) == ALL_DAYS
    all_weekdays = not nths and ("*" in weekdays or _bits(weekdays) == ALL_WEEKDAYS)
    # As in Vixie cron: a day must fit both fields if one begins with a star, else either.
    both = written.day[0] in "*?" or written.weekday[0] in "*?"
    every_day = (all_days or all_weekdays) and not both
    numbers = _numbers(hours, HOUR)
    if len(numbers) == 24:
        hour_kind = HourKind.EVERY
    elif len(numbers) == 1:
        hour_kind = HourKind.FIXED
    elif written.hour.startswith("*/"):
        hour_kind = HourKind.STEP
    return CronFields(
        seconds=_numbers(seconds, SECOND),
        minutes=_numbers(minutes, MINUTE),
        hours=numbers,
        hour_kind=hour_kind,
        any_day=all_days or every_day,
        days=0 if near or all_days or every_day else _bits(days),
        before_last=(0,) if "l" in days else (),
        near_day=LAST_WEEKDAY if written.day == "lw" else min(near, default=0),
        months=frozenset(_numbers(months, MONTH)),
        any_weekday=all_weekdays or every_day,
        weekdays=(
            0 if all_weekdays or every_day else _bits(day for day in weekdays if day not in nths)
        ),
        nth_weekdays=tuple(
            sorted(
                (int(day), LAST if nth == "l" else int(nth))
                for day, wanted in nths.items()
                for nth in wanted
            )
        ),
        both_days=both and not all_days and not all_weekdays,
        years=None if "*" in years else frozenset(_numbers(years, YEAR)),
    )


def _numbers(values: Sequence[int | str], field: CronField) -> tuple[int, ...]:
    if "*" in values:
        return tuple(range(field.low, field.high + 1))
    return tuple(sorted(int(value) for value in values))


def _bits(values: Iterable[int | str]) -> int:
    return sum(1 << value for value in values if isinstance(value, int))


def _warnings(layout: Sequence[CronField], items: Sequence[str], fields: CronFields) -> list[str]:
    found = []
    for field, item in zip(layout, items, strict=True):
        for part in item.split(","):
            found += _warn_of_step(field, part) + _warn_of_wrap(field, part)
    texts = {field.name: item for field, item in zip(layout, items, strict=True)}
    hour, minute = texts["hour"], texts["minute"]
    if minute == "*" and fields.hour_kind is HourKind.FIXED:
        found.append(
            f"'*' in the field minute with the hour {hour} means every minute of that hour; "
            f"write 0 for once"
        )
    if texts.get("second") == "*" and minute != "*":
        found.append("'*' in the field second means every second of the minute; write 0 for once")
    found += _warn_of_days(texts["day of month"], texts["day of week"], fields)
    return found


def _warn_of_days(day: str, weekday: str, fields: CronFields) -> list[str]:
    found = []
    if fields.any_weekday and not (fields.any_day or fields.before_last):
        short = [at for at in (29, 30, 31) if fields.days == 1 << at or fields.near_day == at]
        if short and len(fields.months) > 1:
            last = "LW is the last weekday" if fields.near_day else "L is the last day"
            found.append(
                f"not every month has a day {short[0]}, and there it does not run; "
                f"{last} of every month"
            )
    if fields.both_days:
        starred, other, whole = (weekday, day, "0-6")
        if day.startswith("*"):
            starred, other, whole = (day, weekday, "1-31")
        found.append(
            f"{starred!r} begins with a star, so a day must fit it and {other!r}, as in Vixie "
            f"cron; either is enough where it is written {starred.replace('*', whole)!r}"
        )
    elif not fields.any_day and not fields.any_weekday:
        found.append("day of month and day of week are both given: either is enough, as in cron")
    elif day[0] not in "*?" and weekday[0] not in "*?":
        found.append(
            f"day of month {day!r} and day of week {weekday!r}: either is enough, and one of them "
            "has all days, so it runs every day; write * for that one"
        )
    return found


def _warn_of_wrap(field: CronField, part: str) -> list[str]:
    match = RANGE.fullmatch(part)
    if match is None or field not in (SECOND, MINUTE, DAY):
        return []
    if not (match[1].isdecimal() and match[2].isdecimal()):
        return []  # L-3.
    low, high = int(match[1]), int(match[2])
    if low <= high:
        return []
    return [
        f"'{low}-{high}' in the field {field.name} goes on from {field.high} at {field.low}; "
        f"'{high}-{low}' is the other way round"
    ]


def _warn_of_step(field: CronField, part: str) -> list[str]:
    match = STEP.fullmatch(part)
    if match is None:
        return []
    # The whole expression was good, so one of its parts alone is.
    read = _unwrapped(field, part)
    alone = " ".join(read if other is field else "*" for other in LAYOUTS[7])
    expanded = croniter.expand(alone, second_at_beginning=True)[0]
    values = expanded[_CRONITER_PLACE[field.name]]
    if len(values) == 1 and values[0] != "*":
        return [f"{part!r} in the field {field.name} means one value, {values[0]}"]
    step = int(match[1])
    if part.startswith("*") and field in (SECOND, MINUTE, HOUR) and (field.high + 1) % step:
        return [
            f"{part!r} in the field {field.name} begins again at 0 after {values[-1]}, so the last "
            f"step is shorter; @every keeps an even pace"
        ]
    return []


_CRONITER_PLACE: Final = {field.name: at for at, field in enumerate((*FIVE, SECOND, YEAR))}
