"""A message as JSON, as protobuf's own writer has it, which looks at each field of each message
anew.

What is done with a field is looked up once for its type. Both are held against each other.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict

Convert = Callable[[Any], Any]
# How the fields of a message are written, by their numbers: a name, and what to make of the value.
Fields = Mapping[int, tuple[str, Convert | None]]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The years from 1 to 9999, as many as an instant has.
FIRST_S, LAST_S = -62_135_596_800, 253_402_300_799
WHOLE = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
AS_IT_IS = (
    FieldDescriptor.CPPTYPE_BOOL, FieldDescriptor.CPPTYPE_STRING, FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_UINT32,
)  # fmt: skip


def as_json(message: Any) -> Any:
    """What JSON holds of a message."""
    return _of_message(message.DESCRIPTOR)(message)


@cache
def _of_message(kind: Descriptor) -> Convert:
    if kind.full_name == "google.protobuf.Timestamp":
        return _instant
    if kind.full_name in ("google.protobuf.Duration", "google.protobuf.FieldMask"):
        return lambda value: value.ToJsonString()
    if kind.file.package == "google.protobuf":
        return MessageToDict
    # A message may hold others of its own type, so its fields are looked up when one is there.
    return lambda value: _object(_fields(kind), value)


def _object(fields: Fields, message: Any) -> dict[str, Any]:
    found = {}
    for field, value in message.ListFields():
        name, convert = fields[field.number]
        found[name] = value if convert is None else convert(value)
    return found


@cache
def _fields(kind: Descriptor) -> Fields:
    return {field.number: (field.json_name, _of_field(field)) for field in kind.fields}


def _of_field(field: FieldDescriptor) -> Convert | None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of_key = _text_of_key
        one = _of_one(field.message_type.fields_by_name["value"])
        return lambda value: {of_key(key): one(value[key]) if one else value[key] for key in value}
    single = _of_one(field)
    if not field.is_repeated:
        return single
    return list if single is None else lambda value: [single(each) for each in value]


def _text_of_key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _of_one(field: FieldDescriptor) -> Convert | None:
    """What to make of one value; None for nothing."""
    if field.message_type is not None:
        return _of_message(field.message_type)
    if field.enum_type is not None:
        names = {one.number: one.name for one in field.enum_type.values}
        return lambda value: names.get(value, value)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return lambda value: base64.b64encode(value).decode()
    if field.cpp_type in WHOLE:
        return str
    if field.cpp_type in AS_IT_IS:
        return None
    if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
        return _number
    raise TypeError(f"{field.full_name} is of a type that nothing here writes; add it")


def _number(value: float) -> float | str:
    """JSON has no word for what is no number or has no end."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _instant(value: Any) -> str:
    seconds, nanos = value.seconds, value.nanos
    if not (FIRST_S <= seconds <= LAST_S and 0 <= nanos < 1_000_000_000):
        return str(value.ToJsonString())
    if not nanos:
        return f"{_second(seconds)}Z"
    if not nanos % 1_000_000:
        return f"{_second(seconds)}.{nanos // 1_000_000:03d}Z"
    if not nanos % 1_000:
        return f"{_second(seconds)}.{nanos // 1_000:06d}Z"
    return f"{_second(seconds)}.{nanos:09d}Z"


@lru_cache(4_096)
def _second(seconds: int) -> str:
    return (EPOCH + timedelta(seconds=seconds)).isoformat()[:19]
