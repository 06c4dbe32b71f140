"""Whether bytes are JSON, and where they stop being it: asked by clients and servers alike."""

from __future__ import annotations

import re

import msgspec

_RAW = msgspec.json.Decoder(msgspec.Raw)  # Reads it without making anything of it.
_PLACE = re.compile(r"(.*) \(byte (\d+)\)")
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
        why, at = (found[1], int(found[2])) if found else ("it ends too soon", len(data))
    except UnicodeDecodeError as error:
        why, at = "it is not UTF-8", error.start
    except RecursionError:
        why, at = "it is nested too deep", len(data)
    else:
        return ""
    lines = data[:at].decode(errors="replace").split("\n")
    return f"line {len(lines)}, column {len(lines[-1]) + 1}: {why}"
