"""How single values look to a person: instants, lengths, enums, payloads, schedules, actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from ..messages import alert_pb2, common_pb2, job_pb2, schedule_pb2
from ..times import instant_text, length_text, now_ms, rough_text

STYLES = {
    "succeeded": "green", "running": "cyan", "retrying": "yellow", "failed": "red",
    "cancelled": "magenta", "skipped": "dim", "paused": "yellow", "finished": "dim",
    "deleting": "dim", "stuck": "yellow", "cannot run": "red", "leader": "green",
    "unreachable": "red", "draining": "yellow", "created": "green", "updated": "yellow",
    "refused": "red", "missed": "yellow", "late": "yellow", "not serving": "red",
    "raised": "red", "broken": "red",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of a table."""

    text: str
    style: str = ""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class ValueFormats:
    """How instants are written: as the user likes, or exactly, for other programs."""

    time_style: str
    exact: bool
    # Lengths are numbers, for a spreadsheet.
    in_seconds: bool = False

    def time(self, stamp: Timestamp | int, *, present: bool = True) -> str:
        ms = stamp if isinstance(stamp, int) else stamp.ToMilliseconds()
        return instant_text(ms, self.time_style, exact=self.exact) if present else ""

    def since(self, message: Message, first: str, last: str) -> str:
        """From one instant of a message to another, or to now while that is unset."""
        if not message.HasField(first):
            return ""
        begin = getattr(message, first).ToMilliseconds()
        end = getattr(message, last).ToMilliseconds() if message.HasField(last) else now_ms()
        return self.length(max(end - begin, 0))

    def length(self, ms: int) -> str:
        return f"{ms / 1000:.3f}" if self.in_seconds else rough_text(ms)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a kind of message."""

    title: str
    cell: Callable[[Any, ValueFormats], Cell]
    wide: bool = False


def state(text: str) -> Cell:
    return Cell(text, STYLES.get(text, ""))


def warned(text: str, warning: str, formats: ValueFormats) -> Cell:
    """How a run ended, marked for people if it warns of something."""
    return Cell(f"{text} ▲", "yellow") if warning and not formats.exact else state(text)


@cache
def _prefix(enum: Any) -> str:
    first = str(enum.values[0].name)
    return first.removesuffix("UNSPECIFIED")


def word(enum: Any, number: int) -> str:  # There are two classes of it.
    """RUN_STATE_PENDING is "pending"; what is not given is nothing."""
    value = enum.values_by_number.get(number)
    if value is None:
        return str(number)
    short = str(value.name).removeprefix(_prefix(enum))
    return "" if short == "UNSPECIFIED" else short.lower().replace("_", " ")


def enum_word(message: Message, field: str) -> str:
    return word(message.DESCRIPTOR.fields_by_name[field].enum_type, getattr(message, field))


def length(message: Duration) -> str:
    return length_text(message.ToMilliseconds())


def paused(status: job_pb2.JobStatus, formats: ValueFormats) -> str:
    """Until when a job is paused, by whom and why; nothing if it is not."""
    if status.state != job_pb2.JobStatus.STATE_PAUSED:
        return ""
    until = f" until {formats.time(status.pause_until)}" if status.HasField("pause_until") else ""
    by = f" by {status.paused_by}" if status.paused_by else ""
    why = f" because of: {status.pause_reason}" if status.pause_reason else ""
    return f"paused{until}{by}{why}"


def pairs(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


def payload(message: common_pb2.Payload) -> str:
    if message.hidden:
        return "(hidden)"
    text = readable(message.data)
    return text if text is not None else f"{len(message.data)} bytes {message.content_type}".strip()


def readable(data: bytes) -> str | None:
    """As text, if it is some."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(sign.isprintable() or sign in "\n\r\t" for sign in text) else None


def condition(message: alert_pb2.AlertCondition) -> str:
    """When an alert is raised, in the words of the options of `alert put`."""
    kind = (message.WhichOneof("kind") or "").replace("_", " ")
    if message.HasField("workers_below"):
        below = message.workers_below
        return f"{kind} {below.minimum} on queue {below.queue}"
    return " ".join((kind, *condition_value(message)))


def condition_value(message: alert_pb2.AlertCondition) -> list[str]:
    """What stands behind the option of `alert put`; nothing if that is a flag."""
    match getattr(message, message.WhichOneof("kind") or "", None):
        case Duration() as value:
            return [length(value)]
        case alert_pb2.WorkersBelow() as value:
            return [f"{value.queue}:{value.minimum}"]
        case bool() | None:
            return []
        case value:
            return [str(value)]


def action(message: job_pb2.Action) -> str:
    match message.WhichOneof("kind"):
        case "handler":
            return message.handler
        case "http":
            return f"{message.http.method or 'POST'} {message.http.url}"
        case "grpc":
            return f"grpc {message.grpc.target} {message.grpc.method}"
        case "shell":
            return "shell " + " ".join(message.shell.argv)
    return ""


def schedule(message: schedule_pb2.Schedule) -> str:
    match message.WhichOneof("kind"):
        case "cron":
            return message.cron.expression
        case "interval":
            return f"every {length(message.interval.every)}"
        case "after_end":
            return f"{length(message.after_end.delay)} after the end"
        case "once":
            return f"once at {instant_text(message.once.time.ToMilliseconds(), 'utc')}"
    return ""


def schedules(spec: job_pb2.JobSpec) -> str:
    parts = [schedule(one) for one in spec.schedules]
    if spec.upstream.jobs:
        join = " or " if spec.upstream.join == job_pb2.Upstream.JOIN_ANY else " and "
        parts.append("after " + join.join(one.job for one in spec.upstream.jobs))
    return "; ".join(parts) or "manual"


def few(items: Iterable[str], most: int = 3, comma: str = ",") -> str:
    every = list(items)
    return comma.join(every[:most]) + (f" +{len(every) - most}" if len(every) > most else "")
