"""Does a run cost more when there are more jobs? The same herd, with ever more jobs beside it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from ...client import AsyncClient
from ...cluster.local.nodes import NodeProcesses
from .herd import Herd, import_all, requests_of
from .herd import run as run_herd

FAR_S = 30 * 86_400


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What is asked for."""

    runs: int = 20_000
    # Jobs beside the herd, at each step.
    steps: tuple[int, ...] = (10_000, 100_000, 1_000_000)


async def run(folder: Path, nodes: NodeProcesses, scale: Scale) -> dict[str, float | int]:
    found: dict[str, float | int] = {}
    there = 0
    for jobs in scale.steps:
        async with AsyncClient(nodes.endpoints) as client:
            due_ms = int((time.time() + FAR_S) * 1000)
            herd = Herd(runs=jobs - there)
            await import_all(client, requests_of(herd, due_ms, f"beside-{jobs}"))
        there = jobs
        figures = await run_herd(folder, nodes, Herd(runs=scale.runs))
        found[f"runs_per_s_with_{jobs}"] = figures["runs_per_s"]
        found[f"leader_us_per_run_with_{jobs}"] = figures["leader_us_per_run"]
    first, last = scale.steps[0], scale.steps[-1]
    ratio = found[f"leader_us_per_run_with_{last}"] / found[f"leader_us_per_run_with_{first}"]
    found["cost_ratio"] = round(ratio, 2)
    return found
