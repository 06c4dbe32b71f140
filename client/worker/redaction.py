"""Takes the secrets of an attempt out of what it says: logs, errors, results.

Targets repeat what they were sent, whole or in another spelling: as JSON or Python writes it, in a
URL, in hex, in base64 (also inside of another text, as in `user:password`), a line at a time. What
is shorter than four characters stays, since it would be taken out of half of all words. A secret of
which only a part is there, since a text was cut or goes on, is cut off.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from itertools import islice
from urllib.parse import quote, quote_plus

from google.protobuf.message import Message

HIDDEN = b"(hidden)"
SHORTEST, LINE_MIN = 4, 8
LINES_MAX = 64  # Of a value that are looked for one by one.
CORE_MIN = 6  # Of base64, or it would stand in other texts by chance.
ESCAPE = re.compile("%[0-9A-F]{2}")
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
        fields = message.DESCRIPTOR.fields_by_name
        kind = getattr(message, "content_type", "") if "content_type" in fields else None
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
    for text in _trimmed(value, *islice(lines, LINES_MAX)):
        for spelling in (
            text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1],
            quote(text, safe=""), quote_plus(text),
        ):  # fmt: skip
            yield spelling.encode()
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(text.encode()).rstrip(b"=")
    for text in _trimmed(value):
        yield repr(text)[1:-1].encode()
        for escaped in (quote(text, safe=""), quote(text), quote_plus(text)):
            yield escaped.encode()
            yield ESCAPE.sub(lambda found: found[0].lower(), escaped).encode()
        data = text.encode()
        yield data.hex().encode()
        yield data.hex().upper().encode()
        yield from _in_base64(data)


def _trimmed(*texts: str) -> set[str]:
    """These, with and without the space around them, but for what is too short."""
    both = {*texts, *(text.strip() for text in texts)}
    return {text for text in both if len(text) >= SHORTEST}


def _in_base64(data: bytes) -> Iterable[bytes]:
    """What of it no neighbour changes, where others stand before and behind it."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before, first in ((0, 0), (1, 2), (2, 3)):
            core = encode(bytes(before) + data)[first : (before + len(data)) * 8 // 6]
            if len(core) >= CORE_MIN:
                yield core


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


NO_SECRETS = Redaction(())
