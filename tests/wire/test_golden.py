"""What is stored and logged keeps its meaning: golden bytes of every record.

golden/NAME.txt holds the bytes of a record in which every field is set, in hexadecimal digits, and
below them what they mean. When a field was added, write the files anew and look at the difference:

    RAFTSCHED_GOLDEN=write ./dev test tests/wire

Only additions may show. A changed line means that nodes could no longer read what others wrote.
A field more is a step of the record's format as well: see golden/fields.json and docs/formats.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast, get_args, get_type_hints

import msgspec
import pytest
from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from raftsched.proto.v1 import job_pb2
from raftsched.statemachine.model import specs
from raftsched.statemachine.model.record import Record, RecordPart, UnknownFormat, encode, parse
from raftsched.statemachine.model.specs import Template

from ..rows import each

GOLDEN = Path(__file__).parent / "golden"
KINDS = {kind.__name__: kind for kind in Record.__subclasses__()}
DEPTH_MAX = 6


def filled(kind: type[Record | RecordPart]) -> Record | RecordPart:
    """A record in which every field has a value that tells it from the others."""
    hints = get_type_hints(kind)
    values = {
        field.name: field.default if field.name == "format" else value_of(hints[field.name], place)
        for place, field in enumerate(msgspec.structs.fields(kind), start=1)
    }
    return kind(**values)  # type: ignore[arg-type]  # Any field of any record.


def value_of(hint: object, place: int) -> object:
    kind = next((part for part in get_args(hint) if part is not type(None)), hint)
    if get_args(hint) and Ellipsis in get_args(hint):
        return (value_of(kind, place),)
    if str(hint).startswith("list"):
        return [value_of(kind, place)]
    assert isinstance(kind, type), kind
    if issubclass(kind, Message):
        return filled_message(kind())
    if kind is Template:
        return specs.of(cast(job_pb2.JobSpec, filled_message(job_pb2.JobSpec()))).template
    if issubclass(kind, Record | RecordPart):
        return filled(kind)
    if kind is bytes:
        return bytes([place, 0, 255])
    if kind is str:
        return f"text-{place}"
    return True if kind is bool else place * 1001


def filled_message(message: Message, depth: int = 1) -> Message:
    for field in message.DESCRIPTOR.fields:
        if depth < DEPTH_MAX:
            fill(message, cast(FieldDescriptor, field), depth)
    return message


def fill(message: Message, field: FieldDescriptor, depth: int) -> None:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        getattr(message, field.name)[f"key-{field.number}"] = f"value-{field.number}"
    elif kind is not None:
        part = getattr(message, field.name)
        part = part.add() if field.is_repeated else part
        part.SetInParent()
        filled_message(part, depth + 1)
    elif field.is_repeated:
        getattr(message, field.name).append(scalar_of(field))
    else:
        setattr(message, field.name, scalar_of(field))


def scalar_of(field: FieldDescriptor) -> object:
    number = field.number
    if field.enum_type is not None:
        return field.enum_type.values[-1].number
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            bare = field.type == FieldDescriptor.TYPE_BYTES
            return bytes([number, 0, 255]) if bare else f"text-{number}"
        case FieldDescriptor.CPPTYPE_BOOL:
            return True
    return number * 1001


def told(value: object, indent: str = "") -> Iterator[str]:
    """What a record says, a field a line."""
    for name in value.__struct_fields__:  # type: ignore[attr-defined]
        inner = getattr(value, name)
        for item in inner if isinstance(inner, tuple | list) else [inner]:
            if isinstance(item, Record | RecordPart):
                yield f"{indent}{name}:"
                yield from told(item, indent + "  ")
            elif isinstance(item, Message | Template):
                yield f"{indent}{name}:"
                message = item.spec if isinstance(item, Template) else item
                text = text_format.MessageToString(message)
                yield from (f"{indent}  {line}" for line in text.splitlines())
            else:
                yield f"{indent}{name}: {item!r}"


def written(name: str) -> str:
    record = filled(KINDS[name])
    data = encode(record).hex()
    lines = [data[start : start + 96] for start in range(0, len(data), 96)]
    return "\n".join([*lines, "", *told(record), ""])


@pytest.mark.parametrize("name", sorted(KINDS))
def test_golden_bytes_keep_their_meaning(name: str) -> None:
    if os.environ.get("RAFTSCHED_GOLDEN") == "write":
        (GOLDEN / f"{name}.txt").write_text(written(name))

    digits, _, text = (GOLDEN / f"{name}.txt").read_text().partition("\n\n")
    data = bytes.fromhex(digits.replace("\n", ""))
    record = parse(b"K", data, KINDS[name])

    assert "\n".join([*told(record), ""]) == text
    assert encode(record) == data


@each("name", sorted(KINDS))
def test_a_golden_file_sets_every_field(name: str) -> None:
    assert (GOLDEN / f"{name}.txt").read_text() == written(name)


def parts_of(kind: type[Record | RecordPart]) -> str:
    """How many fields it has, and those of its parts."""
    hints = get_type_hints(kind)
    found = [str(len(msgspec.structs.fields(kind)))]
    for field in msgspec.structs.fields(kind):
        found += [
            f"{field.name}:{parts_of(part)}"
            for part in [hints[field.name], *get_args(hints[field.name])]
            if isinstance(part, type) and issubclass(part, RecordPart)
        ]
    return " ".join(found)


@each("name", sorted(KINDS))
def test_a_field_more_is_a_step_of_the_format(name: str) -> None:
    """Nothing writes this file: whoever steps a format adds a line, and changes none."""
    known = json.loads((GOLDEN / "fields.json").read_text())
    assert known[name][str(KINDS[name].FORMAT)] == parts_of(KINDS[name])


def test_every_golden_file_has_its_record() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(KINDS)


@each("name", sorted(KINDS))
def test_a_record_of_a_newer_format_stops_the_node(name: str) -> None:
    known = KINDS[name].FORMAT
    data = encode(KINDS[name](format=known + 1))

    said = f"{name} at b'K' has format {known + 1}; this version knows {known}"
    with pytest.raises(UnknownFormat, match=said):
        parse(b"K", data, KINDS[name])


@each("name", sorted(KINDS))
def test_a_record_with_a_field_more_stops_the_node(name: str) -> None:
    fields = msgspec.msgpack.decode(encode(KINDS[name]()))

    with pytest.raises(UnknownFormat, match=r"has format \d; .* of at most length"):
        parse(b"K", msgspec.msgpack.encode([*fields, "new"]), KINDS[name])
