"""What a table says of one node of the cluster."""

from __future__ import annotations

from typing import Any

from ..times import now_ms, rough_text
from .formats import Cell, ValueFormats

# As the page says it: a write that takes longer is slow, a certificate ends soon.
SLOW_SYNC_MS, SOON_MS = 100, 14 * 86_400_000


def condition(node: Any) -> str:
    if not node.reachable:
        return "unreachable"
    return "serving" if node.serving else "not serving"


def skew(node: Any) -> str:
    ms = node.clock_skew.ToMilliseconds()
    return f"{'-' if ms < 0 else '+'}{abs(ms)}ms" if node.HasField("clock_skew") else ""


def slowest_sync(node: Any, formats: ValueFormats) -> Cell:
    """How long its slowest write of the last minute took until it was on its disk."""
    if not node.HasField("slowest_sync"):
        return Cell("")
    ms = node.slowest_sync.ToMicroseconds() / 1_000
    if formats.in_seconds:
        return Cell(f"{ms / 1_000:.6f}")
    text = rough_text(round(ms)) if ms >= 10 else f"{ms:.1f}ms"
    return Cell(text, "yellow" if ms > SLOW_SYNC_MS else "")


def certificate(node: Any, formats: ValueFormats) -> Cell:
    """How long the first of its certificates to end is valid still."""
    if not node.HasField("certificate_end_time"):
        return Cell("")
    end = node.certificate_end_time
    left = end.ToMilliseconds() - now_ms()
    if left <= 0:
        return Cell("not valid", "red")
    text = formats.time(end) if formats.exact else rough_text(left)
    return Cell(text, "yellow" if left < SOON_MS else "")
