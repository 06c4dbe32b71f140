"""Payloads as people read and write them: JSON or text instead of base64.

What is written so can be read again, to the byte: `json` is used only where it comes out the same,
`text` for what else is text, and base64 for the rest.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import date, time
from typing import Any

from ...proto import json_text
from .messages import common_pb2

JSON = "application/json"
TEXT = "text/plain"
KINDS = ("content_type", "contentType")
FORMS = ("json", "text", "data")
HOW = "write {json: ...}, {text: ...} or {data: BASE64}"
# Where messages hold one.
FIELDS = ("payload", "result")


def read(given: Any) -> common_pb2.Payload:  # Whatever a file can hold.
    """From what a file says; raises ValueError with what to write instead."""
    if not isinstance(given, Mapping):
        raise ValueError(f"{given!r} is not a payload; {HOW}")
    if given.get("hidden"):
        raise ValueError(
            "it was hidden from whoever exported it; write it, or export again with a token that "
            "may see payloads"
        )
    forms = [key for key in FORMS if given.get(key) is not None or (key == "json" and key in given)]
    kinds = [key for key in KINDS if given.get(key) is not None]
    unknown = [key for key in given if key not in (*FORMS, *KINDS)]
    if unknown:
        raise ValueError(f"there is no field {unknown[0]!r} in a payload; {HOW}")
    if len(forms) > 1:
        raise ValueError(f"{' and '.join(forms)} together; keep one of them")
    data, kind = _MADE[forms[0]](given[forms[0]]) if forms else (b"", "")
    kind = str(given[kinds[0]]) if kinds else kind
    if json_text.is_json(kind) and (fault := json_text.fault(data)):
        what = forms[0] if forms else "an empty payload"
        raise ValueError(
            f"{what} is not valid JSON, {fault}; mend it, or say what it is by another contentType"
        )
    return common_pb2.Payload(data=data, content_type=kind)


def _of_json(value: Any) -> tuple[bytes, str]:
    return json_of(value).encode(), JSON


def json_of(value: Any) -> str:
    """What a file holds as JSON; raises ValueError where that has no such thing."""
    try:
        return json.dumps(value, ensure_ascii=False, default=_day)
    except TypeError as wrong:
        raise ValueError(f"json: {wrong}") from wrong


def _day(value: object) -> str:
    """YAML and TOML know dates, JSON does not."""
    if isinstance(value, date | time):
        return value.isoformat()
    raise TypeError(f"{value!r} is no JSON")


def _of_text(value: Any) -> tuple[bytes, str]:
    if not isinstance(value, str):
        raise ValueError(f"text: {value!r} is not a text; {HOW}")
    return value.encode(), TEXT


def _of_base64(value: Any) -> tuple[bytes, str]:
    try:
        return base64.b64decode(value, validate=True), ""
    except (ValueError, TypeError) as wrong:
        raise ValueError(f"data: {value!r} is not base64; {HOW}") from wrong


_MADE: dict[str, Callable[[Any], tuple[bytes, str]]] = {
    "json": _of_json, "text": _of_text, "data": _of_base64,
}  # fmt: skip


def readable(given: Any) -> Any:  # Whatever JSON can hold.
    """The API's JSON with its payloads in words."""
    if isinstance(given, list):
        return [readable(one) for one in given]
    if not isinstance(given, dict):
        return given
    return {
        key: _written(value) if key in FIELDS and isinstance(value, dict) else readable(value)
        for key, value in given.items()
    }


def _written(given: dict[str, Any]) -> dict[str, Any]:
    if not given.keys() <= {"data", "contentType"} or "data" not in given:
        return given
    kind = given.get("contentType", "")
    try:
        text = base64.b64decode(given["data"]).decode()
    except UnicodeDecodeError:
        return given
    try:
        value = json.loads(text)
        if json.dumps(value, ensure_ascii=False) == text and kind == JSON:
            return {"json": value}
    except (ValueError, RecursionError):
        pass
    if not all(sign.isprintable() or sign in "\n\t" for sign in text):
        return given
    return {"text": text} if kind == TEXT else {"text": text, "contentType": kind}
