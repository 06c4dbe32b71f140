"""The sum of many runs: what was counted is added, and all failovers are looked at together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .verdict import spread

ADDED = (
    "seconds", "leader_kills", "faults", "faults_without_sign", "stops", "slow_stops",
    "acknowledged", "calls", "unknown", "firings", "leases", "effects", "effects_refused", "lost",
    "doubled", "two_leases", "violations",
)  # fmt: skip
STEPS_MS = (10, 20, 30, 40, 50, 75, 100, 150, 200, 300, 500, 1_000, 2_000, 5_000)


def total(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One object for several of `chaos run -o json`."""
    failovers = [value for run in runs for value in run["failovers_ms"]]
    kinds = Counter[str]()
    for run in runs:
        kinds.update(run["by_invariant"])
    seconds = sum(run["seconds"] for run in runs)
    return {
        "verdict": "violated" if any(run["verdict"] != "ok" for run in runs) else "ok",
        "runs": len(runs),
        "scenarios": sorted({run["scenario"] for run in runs}),
        "by_invariant": dict(sorted(kinds.items())),
        **{name: sum(run[name] for run in runs if name in run) for name in ADDED},
        "availability": round(
            sum(run["availability"] * run["seconds"] for run in runs) / max(seconds, 1), 4
        ),
        "failover_ms": spread(failovers),
        "failovers": dict(histogram(failovers)),
    }  # fmt: skip


def histogram(values: Iterable[float]) -> list[tuple[str, int]]:
    """How many fell between two steps; empty ones at both ends are left out."""
    values = list(values)
    lows = (0, *STEPS_MS)
    highs: tuple[float, ...] = (*STEPS_MS, float("inf"))
    rows = []
    for low, high in zip(lows, highs, strict=True):
        label = f"{low} to {high} ms" if high < float("inf") else f"over {low} ms"
        rows.append((label, sum(low <= value < high for value in values)))
    while rows and not rows[-1][1]:
        rows.pop()
    while rows and not rows[0][1]:
        rows.pop(0)
    return rows
