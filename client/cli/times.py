"""Instants and lengths of time as people write and read them. Inside, both are milliseconds."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from ..sdk.lengths import UNITS, parse_length

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.timestamp_pb2 import Timestamp

# The end of the year 9999.
LAST_MS = 253_402_300_799_999
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INSTANTS = (
    "write 2026-11-18T09:00:00Z, 2026-11-18 09:00 (your zone), tomorrow 09:00, now, +2h or -30m"
)
FIXED_INSTANTS = "write 2026-11-18T09:00:00Z, or 2026-11-18 09:00 in UTC"
DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}


def now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def parse_instant(text: str, now: int | None = None) -> int:
    """Milliseconds since 1970; what has no zone is in the zone of this machine."""
    text = text.strip()
    at = now_ms() if now is None else now
    if text == "now":
        return at
    if text[:1] in ("+", "-"):
        length = parse_length(text[1:])
        ms = at + (length if text[0] == "+" else -length)
    else:
        try:
            ms = int(_written(text, at).astimezone(UTC).timestamp() * 1000)
        except (ValueError, OverflowError) as wrong:
            raise ValueError(f"{text!r} is not an instant; {INSTANTS}") from wrong
    if not 0 <= ms <= LAST_MS:
        raise ValueError(f"{text!r} is not in the years 1970 to 9999")
    return ms


def _written(text: str, now: int) -> datetime:
    """A day by its name, at midnight or at a time behind it, or an instant in full."""
    name, _, clock = text.partition(" ")
    if name not in DAYS:
        return datetime.fromisoformat(text)
    day = datetime.fromtimestamp(now / 1000, UTC).astimezone().date() + timedelta(days=DAYS[name])
    return datetime.fromisoformat(f"{day.isoformat()} {clock.strip() or '00:00'}")


def utc_instant(value: Any) -> int:
    """Of a file, which means the same on every machine: without a zone it is in UTC."""
    text = value.isoformat() if isinstance(value, date) else str(value).strip()
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as wrong:
        raise ValueError(f"{text!r} is not an instant; {FIXED_INSTANTS}") from wrong
    instant = instant.replace(tzinfo=instant.tzinfo or UTC)
    ms = round((instant - EPOCH) / timedelta(milliseconds=1))
    if not 0 <= ms <= LAST_MS:
        raise ValueError(f"{text!r} is not in the years 1970 to 9999")
    return ms


def length_text(ms: int) -> str:
    """The shortest way to write it: 5400000 is "1h30m"."""
    if ms <= 0:
        return "0s"
    text = ""
    for unit in ("d", "h", "m", "s", "ms"):
        count, ms = divmod(ms, UNITS[unit])
        text += f"{count}{unit}" if count else ""
    return text


def rough_text(ms: int) -> str:
    """To two figures or so, for tables: "3.2s", "4m", "2h", "12d"."""
    size = abs(ms)
    if size < 1_000:
        return f"{size}ms"
    if size < 10_000:
        return f"{size / 1000:.1f}s"
    for unit, end in (("s", 120_000), ("m", 7_200_000), ("h", 172_800_000)):
        if size < end:
            return f"{size // UNITS[unit]}{unit}"
    return f"{size // UNITS['d']}d"


def instant_text(ms: int, style: str, *, exact: bool = False) -> str:
    """As `--time` says; exact has the zone's offset and the milliseconds, for other programs."""
    if style == "relative" and not exact:
        away = ms - now_ms()
        return f"in {rough_text(away)}" if away > 0 else f"{rough_text(away)} ago"
    instant = EPOCH + timedelta(milliseconds=ms)
    if style == "local":
        instant = instant.astimezone()
    if not exact:
        return f"{instant:%Y-%m-%d %H:%M:%S}" + ("Z" if style == "utc" else "")
    unit = "milliseconds" if ms % 1000 else "seconds"
    return instant.isoformat(timespec=unit).replace("+00:00", "Z")


def duration(ms: int) -> Duration:
    """As the SDK sends a length; it is loaded here, since --help does not need it."""
    from ..sdk import values

    made = values.duration(timedelta(milliseconds=ms))
    assert made is not None
    return made


def timestamp(ms: int) -> Timestamp:
    """As the SDK sends an instant."""
    from ..sdk import values

    made = values.timestamp(EPOCH + timedelta(milliseconds=ms))
    assert made is not None
    return made


class Length(click.ParamType[int]):
    """An option that takes a length of time."""

    name = "duration"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_length(value)
        except ValueError as wrong:
            self.fail(str(wrong), param, ctx)


class Instant(click.ParamType[int]):
    """An option that takes an instant."""

    name = "instant"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_instant(value)
        except ValueError as wrong:
            self.fail(str(wrong), param, ctx)


class PastInstant(Instant):
    """An option that takes an instant of the past; a bare length is so long ago."""

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        try:
            return now_ms() - parse_length(str(value))
        except ValueError:
            return super().convert(value, param, ctx)
