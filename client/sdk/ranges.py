"""Numbers and texts that fields of the contracts can hold.

Protobuf refuses the others without a word on which field it was.
"""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

Kind = TypeVar("Kind", bound=Message)


class OutOfRange(ValueError):
    """A number that no field of its kind can hold."""


BITS = {FieldDescriptor.CPPTYPE_INT32: 31, FieldDescriptor.CPPTYPE_INT64: 63}


def fit(field: Any, value: Any, name: str = "") -> Any:  # noqa: ANN401
    """The value, if the field can hold it; else an error with its name."""
    if value is None or field.is_repeated:
        return value
    bits = BITS.get(field.cpp_type)
    if bits and (not isinstance(value, int) or isinstance(value, bool)):
        raise TypeError(f"{name or field.name} is {value!r}; write a whole number")
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING and not isinstance(value, str):
        raise TypeError(f"{name or field.name} is {value!r}; write a text")
    if bits and not -(1 << bits) <= value < 1 << bits:
        most = (1 << bits) - 1
        raise OutOfRange(
            f"{name or field.name} is {value}; the {'most' if value > 0 else 'least'} that can be "
            f"sent is {most if value > 0 else -most}"
        )
    return value


def put(message: Message, field: str, value: Any) -> None:  # noqa: ANN401
    """Set a field, if it can hold the value."""
    setattr(message, field, fit(message.DESCRIPTOR.fields_by_name[field], value))


def made(kind: type[Kind], **values: Any) -> Kind:  # noqa: ANN401
    """A message, if its fields can hold the values."""
    for name, value in values.items():
        fit(kind.DESCRIPTOR.fields_by_name[name], value)
    return kind(**values)
