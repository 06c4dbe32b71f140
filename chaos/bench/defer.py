"""Deferring: thousands of runs of a task in one call of an app, again and again."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ...client import App
from ...cluster.local.nodes import NodeProcesses
from ..percentile import percentile


@dataclass(frozen=True, kw_only=True)
class Defer:
    """What is asked for."""

    runs: int = 10_000
    rounds: int = 9


async def run(nodes: NodeProcesses, defer: Defer) -> dict[str, float | int]:
    """Nobody carries them out, so that only deferring is measured."""
    app = App(nodes.endpoints, name="bench")

    @app.task
    def remind(customer: str, subject: str) -> None: ...

    async with app:
        [job] = [remind.job()]
        await app.connections.on_this_loop().jobs.import_([job])
        warm = [remind.entry("warm", "warm") for _ in range(1_000)]
        await app.defer_many(warm)
        entries_s, took = list[float](), list[float]()
        for _ in range(defer.rounds):
            began = time.perf_counter()
            entries = [
                remind.entry(f"customer-{number}", "Your basket") for number in range(defer.runs)
            ]
            entries_s.append(time.perf_counter() - began)
            made = await app.defer_many(entries)
            took.append(time.perf_counter() - began)
            assert len({one.id for one in made}) == defer.runs
    took.sort()
    entries_s.sort()
    return {
        "runs": defer.runs,
        "rounds": defer.rounds,
        "entries_p50_s": round(percentile(entries_s, 0.5), 3),
        "defer_p50_s": round(percentile(took, 0.5), 3),
        "defer_max_s": round(took[-1], 3),
        "per_s": round(defer.runs / percentile(took, 0.5)),
    }
