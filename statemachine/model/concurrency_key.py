"""The concurrency key of a run: as its job or its trigger writes it, or read from its payload.

`payload.customer` stands for a value of the run's own payload, and the key is both:
`payload.customer=acme`. So two jobs share a key where they name the same field and its value is the
same, and a key shows where it comes from. Another key is taken as it is written.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec

from ...proto.v1 import common_pb2
from ..core import limits
from . import former_specs
from .entities import Run
from .record import RunRecord
from .view import View

PREFIX: Final = "payload."
KEPT: Final = 256  # Keys of payloads that jobs have; a crowd of runs of one job asks for the same.
PLACEHOLDER: Final = re.compile(r"\$?\{+\s*(?:payload\.)?(\w[\w.-]*)\s*\}+")


class UnreadableKey(Exception):
    """A payload does not hold the key, for people: why not."""


def is_path(key: str) -> bool:
    return key.startswith(PREFIX) and "=" not in key


def fault(key: str) -> str:
    """What is wrong with a key as it is written; empty if nothing is."""
    if any(char < " " or char == "\x7f" for char in key):
        return f"{key[:40]!r} has a control character; take it out"
    if is_path(key) and not all(key.split(".")):
        return f"{key!r} has an empty part; write names between dots, such as payload.customer"
    return ""


def warning(key: str) -> str:
    """A word where a key looks as if it were to be filled in."""
    found = PLACEHOLDER.search(key)
    if found is None:
        return ""
    return (
        f"the concurrency key {key!r} is taken as it is written, so all runs share it; to have one "
        f"for each value of the payload write {PREFIX}{found[1]}"
    )


def of(view: View, run: Run) -> str:
    """The key that a run counts under now; empty for none."""
    if run.record.exempt & RunRecord.KEY_OF_TRIGGER:
        return run.record.limit_key
    key = run.job.definition.template.spec.concurrency.key
    if not is_path(key):
        return key
    try:
        return read(key, *_payload(view, run))
    except UnreadableKey:
        # Those that cannot be kept apart share one.
        return key


def _payload(view: View, run: Run) -> tuple[bytes, str]:
    """What a run's handler will get, and its media type."""
    record = run.record
    if record.payload is not None:
        return record.payload.data, record.payload.content_type
    stored = run.job.definition.payload
    if record.action_version != run.job.definition.action_version:
        _, stored = former_specs.former(view, run)
    return of_job(stored)


def of_job(stored: bytes | None) -> tuple[bytes, str]:
    payload = common_pb2.Payload.FromString(stored or b"")
    return payload.data, payload.content_type


@lru_cache(KEPT)
def read(path: str, data: bytes, content_type: str) -> str:
    """The key of a payload, or `UnreadableKey`."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind and kind != "application/json" and not kind.endswith("+json"):
        raise UnreadableKey(f"the payload is {content_type!r}, not JSON")
    if not data:
        raise UnreadableKey("there is no payload")
    try:
        value: object = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableKey(f"the payload is no JSON ({error})") from None
    for name in path.removeprefix(PREFIX).split("."):
        if not isinstance(value, dict) or name not in value:
            raise UnreadableKey(f"the payload has no {path.removeprefix(PREFIX)!r}")
        value = value[name]
    return f"{path}={_text(path, value)}"


def _text(path: str, value: object) -> str:
    name = path.removeprefix(PREFIX)
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int):
        raise UnreadableKey(f"{name!r} is no text, whole number, true or false")
    if isinstance(value, int) and value.bit_length() > 64:
        raise UnreadableKey(f"{name!r} is a whole number of more than 64 bits")
    text = str(value)
    if not 1 <= len(text) <= limits.LIMIT_KEY_CHARS:
        most = limits.LIMIT_KEY_CHARS
        raise UnreadableKey(f"{name!r} has {len(text)} characters; a key has 1 to {most}")
    if any(char < " " or char == "\x7f" for char in text):
        raise UnreadableKey(f"{name!r} has a control character")
    return text
