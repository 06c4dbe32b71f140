"""What is stored and logged keeps its meaning: golden bytes of every record.

golden/NAME.txt holds the bytes of a record in which every field is set, in hexadecimal digits, and
below them what they mean. When a field was added, write the files anew and look at the difference:

    RAFTSCHED_GOLDEN=write ./dev test tests/wire

Only additions may show. A changed line means that nodes could no longer read what others wrote.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from raftsched.proto.v1 import change_pb2, record_pb2
from raftsched.statemachine.view import UnknownFormat, parse

GOLDEN = Path(__file__).parent / "golden"
KINDS = {
    descriptor.name: descriptor
    for file in (record_pb2, change_pb2)
    for descriptor in file.DESCRIPTOR.message_types_by_name.values()
}
DEPTH_MAX = 6


def filled(descriptor: Descriptor, depth: int = 0) -> Message:
    """A message in which every field has a value that tells it from the others."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if field.name == "format" and not depth:
            message.format = 1  # type: ignore[attr-defined]
        elif depth < DEPTH_MAX:
            fill(message, field, depth)
    return message


def fill(message: Message, field: FieldDescriptor, depth: int) -> None:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        getattr(message, field.name)[f"key-{field.number}"] = f"value-{field.number}"
    elif kind is not None:
        part = filled(kind, depth + 1)
        if field.is_repeated:
            getattr(message, field.name).append(part)
        else:
            getattr(message, field.name).CopyFrom(part)
    elif field.is_repeated:
        getattr(message, field.name).append(value_of(field))
    else:
        setattr(message, field.name, value_of(field))


def value_of(field: FieldDescriptor) -> object:
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


def written(name: str) -> str:
    message = filled(KINDS[name])
    data = message.SerializeToString(deterministic=True).hex()
    lines = [data[start : start + 96] for start in range(0, len(data), 96)]
    return "\n".join([*lines, "", text_format.MessageToString(message)])


def read(name: str) -> tuple[bytes, str]:
    data, _, text = (GOLDEN / f"{name}.txt").read_text().partition("\n\n")
    return bytes.fromhex(data.replace("\n", "")), text


@pytest.mark.parametrize("name", sorted(KINDS))
def test_golden_bytes_keep_their_meaning(name: str) -> None:
    if os.environ.get("RAFTSCHED_GOLDEN") == "write":
        (GOLDEN / f"{name}.txt").write_text(written(name))

    data, text = read(name)
    message = GetMessageClass(KINDS[name]).FromString(data)

    assert text_format.MessageToString(message) == text
    assert message.SerializeToString(deterministic=True) == data


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_golden_file_sets_every_field(name: str) -> None:
    assert (GOLDEN / f"{name}.txt").read_text() == written(name)


def test_every_golden_file_has_its_record() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(KINDS)


@pytest.mark.parametrize("name", sorted(name for name in KINDS if name != "Change"))
def test_a_record_of_a_newer_format_stops_the_node(name: str) -> None:
    kind = GetMessageClass(KINDS[name])
    if "format" not in KINDS[name].fields_by_name:
        # A part of a record: the record's own format speaks for it.
        return
    data = kind(format=2).SerializeToString()

    with pytest.raises(UnknownFormat, match=f"{name} at b'K' has format 2; this version knows 1"):
        parse(b"K", data, kind)
