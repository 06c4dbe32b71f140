"""Instants and durations: milliseconds inside, Timestamp and Duration on the wire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_ms(value: Timestamp | Duration) -> int:
    """Whole milliseconds; what is finer is cut off."""
    return value.seconds * 1000 + value.nanos // 1_000_000


def ms_or(message: Message, name: str, default_ms: int) -> int:
    """A duration or instant of a message, or what it means when it is unset."""
    return to_ms(getattr(message, name)) if message.HasField(name) else default_ms


def set_ms(value: Timestamp | Duration, ms: int) -> None:
    value.seconds = ms // 1000
    value.nanos = ms % 1000 * 1_000_000


def timestamp(ms: int) -> Timestamp:
    return Timestamp(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def duration(ms: int) -> Duration:
    return Duration(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def iso_text(ms: int) -> str:
    """An instant for people: "2026-03-29T01:00:00Z"."""
    try:
        return (EPOCH + timedelta(milliseconds=ms)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{ms} ms after 1970"


def clock_text(ms: int) -> str:
    """An instant in a sentence: "2026-03-29 01:00:00 UTC"."""
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def instant_of(text: str) -> int | None:
    """Milliseconds of a number of them, or of "2026-03-29T01:00:00Z"; None when it is neither."""
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(milliseconds=1)
