"""All that is known of one message, line by line: for people indented, for programs by path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from ..messages import common_pb2, job_pb2, schedule_pb2
from ..times import now_ms, rough_text
from .clean import folded
from .formats import (
    STYLES,
    Cell,
    ValueFormats,
    action,
    length,
    pairs,
    paused,
    payload,
    readable,
    schedule,
    state,
    word,
)

if TYPE_CHECKING:
    from rich.text import Text

LABEL_WIDTH = 23
# What one sentence says to a person.
OF_PAUSE = {"state", "pause_reason", "pause_until", "paused_by"}
SENTENCES = {
    "state",
    "left out",
    "broken reason",
    "message",
    "description",
    "pause reason",
    "warning",
    "last warning",
    "warnings",
}
# What people look for first; the other fields follow in the order of the contracts.
FIRST: Mapping[str, Sequence[str]] = {
    "Job": ("name", "namespace", "status", "spec"),
    "Run": ("id", "job", "namespace", "state"),
    "Queue": ("name", "namespace"),
}


@dataclass(frozen=True, slots=True)
class DescribedField:
    """One field."""

    path: tuple[str, ...]
    label: str
    value: str
    depth: int
    style: str = ""

    def fitted(self, width: int) -> DescribedField:
        """With sentences on as many lines as they take; other values stay in one piece."""
        if self.label not in SENTENCES or LABEL_WIDTH + len(self.value) <= width:
            return self
        first = " " * LABEL_WIDTH
        lines = [
            folded(f"{first if not number else ''}{line}", width - 2 * (self.depth + 1), 0)
            for number, line in enumerate(self.value.split("\n"))
        ]
        return replace(self, value="\n".join(lines).lstrip(" "))

    @property
    def text(self) -> Text:
        from rich.text import Text

        text = Text("  " * self.depth)
        text.append(f"{self.label}:", style="bold")
        pad = max(LABEL_WIDTH - 2 * self.depth - len(self.label) - 1, 1)
        first, *rest = self.value.split("\n")
        text.append(" " * pad + first if first else "", style=self.style)
        for line in rest:
            text.append("\n" + "  " * (self.depth + 1) + line)
        return text


def lines(
    message: Message, formats: ValueFormats, path: tuple[str, ...] = ()
) -> Iterator[DescribedField]:
    fields = {field.name: (field, value) for field, value in message.ListFields()}
    if (
        isinstance(message, job_pb2.JobStatus)
        and not formats.exact
        and (why := paused(message, formats))
    ):
        yield DescribedField((*path, "state"), "state", why, len(path), STYLES["paused"])
        fields = {name: field for name, field in fields.items() if name not in OF_PAUSE}
    first = [name for name in FIRST.get(message.DESCRIPTOR.name, ()) if name in fields]
    for name in dict.fromkeys([*first, *fields]):
        yield from _field(*fields[name], formats, path)


def _field(
    field: FieldDescriptor,
    value: Any,
    formats: ValueFormats,
    path: tuple[str, ...],
) -> Iterator[DescribedField]:
    here = (*path, field.name)
    label = field.name.replace("_", " ")
    depth = len(path)
    if _is_map(field):
        yield DescribedField(
            here, label, pairs({str(key): str(one) for key, one in value.items()}), depth
        )
    elif field.is_repeated:
        yield from _repeated(field, list(value), formats, here)
    else:
        cell = _cell(field, value, formats)
        yield DescribedField(
            here, label, cell.text if cell else "", depth, cell.style if cell else ""
        )
        if cell is None:
            yield from lines(value, formats, here)


def _repeated(
    field: FieldDescriptor, values: list[Any], formats: ValueFormats, path: tuple[str, ...]
) -> Iterator[DescribedField]:
    cells = [_cell(field, value, formats) for value in values]
    label = field.name.replace("_", " ")
    depth = len(path) - 1
    if all(cells):
        yield DescribedField(path, label, ", ".join(str(cell) for cell in cells), depth)
        return
    yield DescribedField(path, label, "", depth)
    for number, value in enumerate(values, 1):
        there = (*path, str(number))
        yield DescribedField(there, str(number), "", depth + 1)
        yield from lines(value, formats, there)


def _cell(field: FieldDescriptor, value: Any, formats: ValueFormats) -> Cell | None:
    """A value in one piece; None for a message that has to be looked into."""
    if field.enum_type:
        return state(word(field.enum_type, value))
    match value:
        case bool():
            return Cell("yes" if value else "no")
        case bytes():
            text = readable(value)
            return Cell(f"{len(value)} bytes" if text is None else text)
        case Timestamp():
            return Cell(_instant(value, formats))
        case Duration():
            return Cell(length(value))
        case common_pb2.Payload():
            return Cell(payload(value))
        case common_pb2.Revision():
            return Cell(f"{value.change}.{value.position}")
        case schedule_pb2.Schedule():
            return Cell(schedule(value))
        case job_pb2.Action() if value.WhichOneof("kind") in ("handler", "shell"):
            return Cell(action(value))
        case Message():
            return None
    return Cell(str(value))


def _instant(stamp: Timestamp, formats: ValueFormats) -> str:
    text = formats.time(stamp)
    if formats.exact or formats.time_style == "relative":
        return text
    away = stamp.ToMilliseconds() - now_ms()
    return f"{text} (in {rough_text(away)})" if away > 0 else f"{text} ({rough_text(away)} ago)"


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return kind is not None and bool(kind.GetOptions().map_entry)
