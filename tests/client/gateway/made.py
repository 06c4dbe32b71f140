"""Messages of any type, for Hypothesis."""

from __future__ import annotations

import string
from functools import cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from raftsched.client.gateway.fields import RANGES, is_map, names

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAME = st.text(string.ascii_letters + string.digits + "-_. %+?#&=:äß漢", min_size=1, max_size=12)
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    **{kind: st.integers(*ends) for kind, ends in RANGES.items()},
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_STRING: TEXT,
}
SECONDS = {
    "Timestamp": st.integers(-62_135_596_800, 253_402_300_799),
    "Duration": st.integers(0, 315_576_000_000),
}


# Strategies are made once: to make and check them takes longer than to draw from them.
@cache
def messages(kind: Any, without: frozenset[str] = frozenset()) -> st.SearchStrategy[Message]:
    """Any message of a type, with some of its fields; `without` names paths that stay unset."""

    fields = [field for field in kind.fields if field.name not in without]
    some = st.lists(st.sampled_from(fields), max_size=5, unique=True) if fields else st.just([])

    @st.composite
    def draw_one(draw: st.DrawFn) -> Message:
        message: Message = GetMessageClass(kind)()
        for field in draw(some):
            put(draw, message, field, without)
        return message

    return draw_one()


def put(draw: st.DrawFn, message: Any, field: FieldDescriptor, without: frozenset[str]) -> None:
    below = frozenset(
        path.partition(".")[2] for path in without if path.startswith(f"{field.name}.")
    )
    value = draw(values(field, below))
    if is_map(field):
        getattr(message, field.name).update(value)
    elif field.message_type is not None and not field.is_repeated:
        for one in value:
            getattr(message, field.name).CopyFrom(one)
    elif field.is_repeated:
        getattr(message, field.name).extend(value)
    else:
        setattr(message, field.name, value)


@cache
def values(field: FieldDescriptor, without: frozenset[str]) -> st.SearchStrategy[Any]:
    """What a field may hold; of one message that may be absent, a list of one or none."""
    if is_map(field):
        return st.dictionaries(TEXT, scalars(names(field.message_type)["value"]), max_size=2)
    if field.message_type is not None:
        most = 2 if field.is_repeated else 1
        return st.lists(whole(field.message_type, without), max_size=most)
    return st.lists(scalars(field), max_size=3) if field.is_repeated else scalars(field)


def scalars(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.enum_type is not None:
        return st.sampled_from([value.number for value in field.enum_type.values])
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=12)
    return SCALARS[field.cpp_type]


def whole(kind: Any, without: frozenset[str]) -> st.SearchStrategy[Message]:
    """A message inside another one: those with a text of their own have a value that has one."""
    if kind.full_name == "google.protobuf.FieldMask":
        path = st.from_regex(r"[a-z]+(_[a-z]+)?(\.[a-z]+(_[a-z]+)?)?", fullmatch=True)
        made = GetMessageClass(kind)
        return st.builds(lambda paths: made(paths=paths), st.lists(path, min_size=1, max_size=3))
    if kind.name in SECONDS and kind.full_name.startswith("google.protobuf."):
        nanos = st.integers(0, 999_999_999)
        return st.builds(GetMessageClass(kind), seconds=SECONDS[kind.name], nanos=nanos)
    return messages(kind, without)
