"""Takes the secrets of an attempt out of what it says: logs, errors, results.

Targets repeat what they were sent, whole or in another spelling: as JSON, in a URL, in base64, a
line at a time. What is shorter than four characters stays, since it would be taken out of half of
all words. A secret of which only a part is there, since a text was cut or goes on, is cut off.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from itertools import islice
from urllib.parse import quote, quote_plus

from google.protobuf.message import Message

HIDDEN = b"(hidden)"
SHORTEST, LINE_MIN = 4, 8
LINES_MAX = 64  # Of a value that are looked for one by one.
PART_MIN = 3  # Of a secret, at an end of a text.
# Whoever reads these counts their bytes.
COUNTED = ("application/octet-stream", "application/x-protobuf")


class Redaction:
    """See the head of this file."""

    def __init__(self, values: Iterable[str]) -> None:
        found = {form for value in values for form in _forms(value)}
        # The longest first: one may be the beginning of another.
        self._forms = sorted(found, key=lambda form: (-len(form), form))
        self.longest = len(self._forms[0]) if found else 0

    def data(
        self, data: bytes, *, front: bool = False, end: bool = False, same_length: bool = False
    ) -> bytes:
        """The same without secrets; `front` and `end` may hold a part of one."""
        # One expression for all of them would look for each at each byte.
        for form in self._forms:
            data = data.replace(form, b"*" * len(form) if same_length else HIDDEN)
        if end:
            data = data[: len(data) - max((_at_end(data, form) for form in self._forms), default=0)]
        if front:
            data = data[max((_at_front(data, form) for form in self._forms), default=0) :]
        return data

    def text(self, text: str) -> str:
        if not self._forms:
            return text
        return self.data(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    def message(self, message: Message) -> None:
        """Take secrets out of all texts of a message."""
        said = message.DESCRIPTOR.fields_by_name
        kind = getattr(message, "content_type", "") if "content_type" in said else None
        for field, value in message.ListFields():
            inner = field.message_type
            if inner is not None and inner.GetOptions().map_entry:
                self._map(value, is_text=inner.fields_by_name["value"].message_type is None)
            elif inner is not None:
                for one in value if field.is_repeated else (value,):
                    self.message(one)
            elif field.is_repeated:
                continue
            elif field.type == field.TYPE_STRING:
                setattr(message, field.name, self.text(value))
            elif field.type == field.TYPE_BYTES:
                counted = kind is not None and kind in COUNTED
                setattr(message, field.name, self.data(value, same_length=counted))

    def _map(self, values: dict[str, str], *, is_text: bool) -> None:
        for name in list(values) if is_text else ():
            values[name] = self.text(values[name])


def _forms(value: str) -> Iterable[bytes]:
    """How a value may be written."""
    lines = (line for line in value.splitlines() if len(line.strip()) >= LINE_MIN)
    whole = [value, *islice(lines, LINES_MAX)]
    for text in {*whole, *(text.strip() for text in whole)}:
        if len(text) < SHORTEST:
            continue
        yield text.encode()
        for spelling in (
            json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1],
            quote(text, safe=""), quote_plus(text),
        ):  # fmt: skip
            yield spelling.encode()
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(text.encode()).rstrip(b"=")


def _at_end(data: bytes, form: bytes) -> int:
    """How many bytes at the end may be the beginning of this."""
    first = max(0, len(data) - len(form) + 1)
    at = data.find(form[:PART_MIN], first)
    while at >= 0:
        if form.startswith(data[at:]):
            return len(data) - at
        at = data.find(form[:PART_MIN], at + 1)
    return 0


def _at_front(data: bytes, form: bytes) -> int:
    """How many bytes at the front may be the end of this."""
    last = min(len(data), len(form) - 1)
    at = data.rfind(form[-PART_MIN:], 0, last)
    while at >= 0:
        if form.endswith(data[: at + PART_MIN]):
            return at + PART_MIN
        at = data.rfind(form[-PART_MIN:], 0, at + PART_MIN - 1)
    return 0
