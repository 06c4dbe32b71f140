"""Did the gateway hold? How soon it answered somebody honest, and what it came to hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...percentile import percentile
from ..lateness import TimeSpans

if TYPE_CHECKING:
    from .checks import HostileLimits, HostileObservations

SERVED = (200, 201)
# While another leader is found, a call may wait for it.
LEADER_S = 3.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A call of somebody honest through the gateway: from, until, and the status, 0 for none."""

    began: float
    ended: float
    status: int


def honest(seen: HostileObservations, began: float, ended: float) -> list[Asked]:
    """Those calls of a stretch that no change of the leader by the harness accounts for."""
    ours = TimeSpans((a, b + LEADER_S) for a, b in seen.ours)
    return [
        one for one in seen.gateway_asked
        if began <= one.began <= ended and not ours.touch(one.began, one.ended)
    ]  # fmt: skip


def held(seen: HostileObservations, began: float, ended: float) -> int:
    """MiB that the gateway held at most."""
    return max((one.rss_mb for one in seen.gateway_memory if began <= one.at <= ended), default=0)


def took(seen: HostileObservations, asked: Sequence[Asked]) -> list[float]:
    """Milliseconds of each call, without what the machine accounts for."""
    busy = TimeSpans(seen.busy)
    return [1000 * (one.ended - one.began - busy.within(one.began, one.ended)) for one in asked]


def gateway(seen: HostileObservations, began: float, ended: float) -> dict[str, Any]:
    """Figures of a stretch."""
    asked = honest(seen, began, ended)
    times = took(seen, asked)
    return {
        "asked": len(asked), "p50_ms": round(percentile(times, 0.5, 0.0), 1),
        "max_ms": round(max(times, default=0.0), 1),
        "raw_max_ms": round(1000 * max((one.ended - one.began for one in asked), default=0.0), 1),
        "rss_mb": held(seen, began, ended),
    }  # fmt: skip


def wrong(
    seen: HostileObservations, began: float, ended: float, limits: HostileLimits
) -> list[str]:
    """What was promised of a gateway and not so in a stretch."""
    found, asked = [], honest(seen, began, ended)
    times, most = took(seen, asked), held(seen, began, ended)
    not_served = Counter(one.status for one in asked if one.status not in SERVED)
    if not_served:
        words = ", ".join(f"{count} with {status or 'nothing'}"
                          for status, count in sorted(not_served.items()))  # fmt: skip
        found.append(f"of {len(asked)} honest calls through the gateway were answered: {words}")
    slowest = max(times, default=0.0)
    if slowest > limits.http_ms:
        found.append(f"an honest call through the gateway took {slowest:.0f} ms")
    if most > limits.gateway_mb:
        found.append(f"the gateway held {most} MiB")
    return found
