"""How long to wait after failures in a row. Who waits spreads it by chance as it sees fit."""

from __future__ import annotations

# A number this high is beyond any maximum, and its power can still be computed.
FAILURES_MAX = 20


def backoff(failures: int, first_s: float, most_s: float, growth: float = 2.0) -> float:
    """`first_s` after the first failure, each time `growth` times as long, `most_s` at most."""
    return min(most_s, first_s * growth ** min(failures - 1, FAILURES_MAX))
