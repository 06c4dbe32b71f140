"""Whether bytes are JSON, and where they stop being it: asked by clients and servers alike."""

from __future__ import annotations

import re

import msgspec

_RAW = msgspec.json.Decoder(msgspec.Raw)  # Reads it without making anything of it.
_PLACE = re.compile(r"(.*) \(byte (\d+)\)")
# The first half of a surrogate pair without its second, which msgspec takes for an end too soon.
_HALF = re.compile(
    rb"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})"
    rb"(?!\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\?$|\\u[0-9a-fA-F]{0,3}$)"
)
HALF = "it has half of a surrogate pair"
MEDIA = "application/json"
SUFFIX = "+json"


def is_json(content_type: str) -> bool:
    """Whether a content type says so, with or without parameters behind it."""
    if content_type == MEDIA:
        return True
    media = content_type.partition(";")[0].strip().lower()
    return media == MEDIA or media.endswith(SUFFIX)


def fault(data: bytes) -> str:
    """What is wrong with it and where: "line 1, column 8: it ends too soon"; empty if nothing."""
    try:
        _RAW.decode(data)
        if not data.isascii():
            data.decode()
    except msgspec.DecodeError as error:
        found = _PLACE.fullmatch(str(error).removeprefix("JSON is malformed: "))
        half = None if found else _HALF.search(data)
        if found:
            why, at = found[1].replace("invalid utf-16 surrogate pair", HALF), int(found[2])
        else:
            why, at = (HALF, half.start(1)) if half else ("it ends too soon", len(data))
    except UnicodeDecodeError as error:
        why, at = "it is not UTF-8", error.start
    except RecursionError:
        why, at = "it is nested too deep", len(data)
    else:
        return ""
    lines = data[:at].decode(errors="replace").split("\n")
    return f"line {len(lines)}, column {len(lines[-1]) + 1}: {why}"
