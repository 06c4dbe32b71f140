"""Fills a message from JSON, or from texts as a query holds them: every wrong field is noted.

The JSON form is that of protobuf (lowerCamelCase names, 64-bit integers as strings, bytes in
base64, instants and lengths of time as texts); names as the contracts write them are taken too.
protobuf's own reader stops at the first fault and drops what is no base64.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from ..sdk.errors import FieldFault
from .problems import field_faults

# More faults than this help nobody, and the rest is not read.
FAULTS_MAX = 20
# So much of a wrong value is shown.
SHOWN_MAX = 60
INTEGER = re.compile(r"-?[0-9]{1,20}")
CAPITAL = re.compile(r"[A-Z]")
RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}
# What is written as a text, and how.
TEXTS = {
    "google.protobuf.Timestamp": "an instant such as '2027-01-31T09:00:00Z'",
    "google.protobuf.Duration": "a length of time in seconds, such as '90s' or '0.5s'",
    "google.protobuf.FieldMask": "paths with commas, such as 'spec.priority,spec.queue'",
}


# Of a secret that is none.
UNSAID = "it is no text; write it between double quotes (what it is is not repeated here)"
# Of what stands beside a secret, and may be one that was put in the wrong place.
BESIDE = "it is not what this field takes (not repeated here, beside a secret); see /docs"


class Wrong(ValueError):
    """One value is not what its field takes; the words say what to write instead."""


class Reader:
    """Fills one message."""

    def __init__(self) -> None:
        self.faults: list[FieldFault] = []
        self._hides = False  # What it fills has a secret, so nothing that is given is repeated.

    def note(self, field: str, message: str, reason: str = "FIELD_INVALID") -> None:
        """Keep a fault; Refused with all of them when there are too many."""
        self.faults.append(FieldFault(field, reason, message))
        if len(self.faults) == FAULTS_MAX:
            raise field_faults(self.faults)

    def _wrong(self, path: str, wrong: Wrong, words: str = "") -> None:
        self.note(path, words or (BESIDE if self._hides else str(wrong)))

    def fill(self, message: Message, given: object, path: str = "") -> None:
        """Put what a JSON object says into a message; `path` is where it stands."""
        self._hides = self._hides or has_secret(message.DESCRIPTOR)
        if not isinstance(given, Mapping):
            words = f"{shown(given)} is no object; write {{...}}"
            self.note(path, BESIDE if self._hides else words)
            return
        known, seen = names(message.DESCRIPTOR), set[str]()
        for key, value in given.items():
            field = known.get(key)
            there = below(path, field.name if field is not None else key)
            if field is None:
                self.note(there, unknown(key, message.DESCRIPTOR))
            elif field.name in seen:
                self.note(there, f"it is given twice, also as {key!r}; keep one of them")
            elif value is not None:
                seen.add(field.name)
                self._put(message, field, value, there)

    def _put(self, message: Message, field: FieldDescriptor, value: Any, path: str) -> None:
        taken = _other_of_oneof(message, field)
        if taken:
            self.note(path, f"{taken} is set as well; keep one of them")
            return
        try:
            if is_map(field):
                self._put_map(message, field, value, path)
            elif field.is_repeated:
                self._put_list(message, field, value, path)
            elif field.message_type is None:
                setattr(message, field.name, scalar(field, value))
            else:
                inner = getattr(message, field.name)
                inner.SetInParent()
                self._message(inner, value, path)
        except Wrong as wrong:
            self._wrong(path, wrong, UNSAID if is_secret(field) else "")

    def _put_map(self, message: Message, field: FieldDescriptor, value: Any, path: str) -> None:
        if not isinstance(value, Mapping):
            raise Wrong(f'{shown(value)} is no object; write {{"key": "value"}}')
        kind = names(field.message_type)["value"]
        target = getattr(message, field.name)
        for key, one in value.items():
            try:
                target[text(key)] = scalar(kind, one)
            except Wrong as wrong:
                self._wrong(below(path, key), wrong)

    def _put_list(self, message: Message, field: FieldDescriptor, value: Any, path: str) -> None:
        if not isinstance(value, list):
            raise Wrong(f"{shown(value)} is no list; write [...]")
        target = getattr(message, field.name)
        for number, one in enumerate(value):
            there = f"{path}[{number}]"
            try:
                if field.message_type is None:
                    target.append(scalar(field, one))
                else:
                    self._message(target.add(), one, there)
            except Wrong as wrong:
                self._wrong(there, wrong)

    def _message(self, message: Any, value: object, path: str) -> None:
        if message.DESCRIPTOR.full_name in TEXTS:
            known_text(message, value)
        else:
            self.fill(message, value, path)

    def put_text(self, message: Message, name: str, given: list[str], path: str) -> None:
        """Put what a query says into the field of this path; more than one text for a list."""
        *outer, last = name.split(".")
        for part in outer:
            field = names(message.DESCRIPTOR).get(part)
            if field is None or field.message_type is None or field.is_repeated:
                self.note(path, unknown(part, message.DESCRIPTOR))
                return
            taken = _other_of_oneof(message, field)
            if taken:
                self.note(path, f"{taken} is set as well; keep one of them")
                return
            message = getattr(message, field.name)
            message.SetInParent()
        field = names(message.DESCRIPTOR).get(last)
        if field is None:
            self.note(path, unknown(last, message.DESCRIPTOR))
        elif is_secret(field):
            self.note(path, "addresses are kept in logs; send it in the body")
        elif is_map(field) or (field.message_type is not None and not is_text(field)):
            self.note(path, "a query holds no message; send it in the body, or field by field")
        elif field.is_repeated:
            self._put(message, field, [_of_text(field, one) for one in given], path)
        elif len(given) > 1:
            self.note(path, f"it is given {len(given)} times; keep one of them")
        else:
            self._put(message, field, _of_text(field, given[0]), path)


def _of_text(field: FieldDescriptor, given: str) -> object:
    """As JSON would have it; integers and the numbers of enums are texts there too."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return {"true": True, "false": False}.get(given, given)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM and INTEGER.fullmatch(given):
        return int(given)
    return given


def _other_of_oneof(message: Message, field: FieldDescriptor) -> str:
    """What is set already of a choice to which this field belongs."""
    choice = field.containing_oneof
    if choice is None or len(choice.fields) == 1:
        return ""
    taken = message.WhichOneof(choice.name)
    return taken if taken and taken != field.name else ""


@cache
def names(kind: Any) -> dict[str, FieldDescriptor]:
    """The fields of a message by both of their names."""
    by_name = {field.name: field for field in kind.fields}
    return by_name | {field.json_name: field for field in kind.fields}


def below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def is_secret(field: FieldDescriptor) -> bool:
    """Whether its value is for whoever it is meant for alone, as the contract marks it."""
    return bool(field.GetOptions().debug_redact)


@cache
def has_secret(kind: Descriptor) -> bool:
    """Whether a message of this type, or one inside of it, has a field that is a secret."""
    seen, waiting = {kind}, [kind]
    while waiting:
        fields = waiting.pop().fields
        if any(map(is_secret, fields)):
            return True
        inner = {field.message_type for field in fields if field.message_type is not None} - seen
        seen |= inner
        waiting += inner
    return False


def is_text(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.full_name in TEXTS


def unknown(name: str, kind: Any) -> str:
    own = [field.json_name for field in kind.fields]
    near = get_close_matches(name, own, n=1) if len(name) <= SHOWN_MAX else []
    hint = f"did you mean {near[0]}?" if near else f"{kind.name} has {', '.join(own)}"
    return f"there is no field {shown(name)}; {hint}"


def shown(value: object) -> str:
    """A value in the words of JSON, and not too much of it."""
    try:
        words = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        words = str(type(value).__name__)
    words = words.encode("utf-8", "backslashreplace").decode()
    return words if len(words) <= SHOWN_MAX else f"{words[:SHOWN_MAX]}…"


def scalar(field: FieldDescriptor, value: object) -> object:
    """What a field of one value takes; raises Wrong."""
    if field.enum_type is not None:
        return enum(field.enum_type, value)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return data(value)
    return SCALARS[field.cpp_type](field, value)


def text(value: object) -> str:
    if not isinstance(value, str):
        raise Wrong(f"{shown(value)} is no text; write it between double quotes")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Wrong(f"{shown(value)} holds half of a character; send valid Unicode") from None
    return value


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise Wrong(f"{shown(value)} is not true or false")
    return value


def integer(field: FieldDescriptor, value: object) -> int:
    number = value
    if isinstance(value, str) and INTEGER.fullmatch(value):
        number = int(value)
    if isinstance(value, float) and value.is_integer():
        number = int(value)
    if not isinstance(number, int) or isinstance(number, bool):
        raise Wrong(f"{shown(value)} is no whole number")
    least, most = RANGES[field.cpp_type]
    if not least <= number <= most:
        raise Wrong(f"{shown(value)} is not from {least} to {most}")
    return number


def decimal(value: object) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise Wrong(f"{shown(value)} is no number")
    return number


SCALARS: Mapping[int, Callable[[FieldDescriptor, object], object]] = {
    **dict.fromkeys(RANGES, integer),
    FieldDescriptor.CPPTYPE_BOOL: lambda field, value: flag(value),
    FieldDescriptor.CPPTYPE_STRING: lambda field, value: text(value),
    FieldDescriptor.CPPTYPE_DOUBLE: lambda field, value: decimal(value),
    FieldDescriptor.CPPTYPE_FLOAT: lambda field, value: decimal(value),
}


def enum(kind: EnumDescriptor, value: object) -> int:
    if isinstance(value, str) and value in kind.values_by_name:
        return int(kind.values_by_name[value].number)
    if isinstance(value, int) and not isinstance(value, bool) and value in kind.values_by_number:
        return value
    known = [one.name for one in kind.values][1:]
    word = value.upper() if isinstance(value, str) and len(value) <= SHOWN_MAX else ""
    near = get_close_matches(word, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"write one of {', '.join(known)}"
    raise Wrong(f"{shown(value)} is not known; {hint}")


def data(value: object) -> bytes:
    """Base64 of either alphabet, padded or not, and nothing else."""
    words = text(value).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(words + "=" * (-len(words) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise Wrong(f"{shown(value)} is no base64; encode the bytes so") from None


def known_text(message: Any, value: object) -> None:
    """Fill an instant, a length of time or a mask; raises Wrong."""
    how = TEXTS[message.DESCRIPTOR.full_name]
    if not isinstance(value, str) or not value.isascii():
        raise Wrong(f"{shown(value)} is not {how}")
    try:
        if message.DESCRIPTOR.name == "FieldMask":
            message.paths.extend(_snake(path) for path in value.split(",") if path)
        else:
            message.FromJsonString(value)
    except (ValueError, OverflowError):
        raise Wrong(f"{shown(value)} is not {how}") from None


def _snake(path: str) -> str:
    return CAPITAL.sub(lambda found: f"_{found[0].lower()}", path)
