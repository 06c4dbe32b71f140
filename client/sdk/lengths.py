"""Lengths of time as people write them. Inside they are milliseconds."""

from __future__ import annotations

import re

UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
# As long as a message can say.
LONGEST_MS = 315_576_000_000_000
LENGTHS = "write a number and a unit such as 90s, 5m, 1h30m or 2d"


def parse_length(text: str) -> int:
    """Milliseconds of "1h30m"; raises ValueError with what to write instead."""
    parts = _PARTS.findall(text.strip())
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        raise ValueError(f"{text!r} is not a length of time; {LENGTHS}")
    length = sum(float(number) * UNITS[unit] for number, unit in parts)
    if length > LONGEST_MS:
        raise ValueError(f"{text!r} is longer than 10,000 years")
    return round(length)
