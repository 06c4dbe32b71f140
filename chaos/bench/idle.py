"""Many jobs that are not due: what do they cost, and is one that is due still on time?"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from ...client import AsyncClient
from ..stage import Stage
from .crew import percentile
from .herd import Herd, import_all, requests_of
from .steady import Steady
from .steady import run as run_steady

FAR_S = 30 * 86_400


@dataclass(frozen=True, kw_only=True)
class Idle:
    """What is asked for."""

    jobs: int = 100_000
    watch_s: float = 10.0


async def run(folder: Path, stage: Stage, idle: Idle) -> dict[str, float | int]:
    found: dict[str, float | int] = {"jobs": idle.jobs}
    async with AsyncClient(stage.endpoints) as client:
        due_ms = int((time.time() + FAR_S) * 1000)
        took = await import_all(client, requests_of(Herd(runs=idle.jobs), due_ms, "idle"))
    found["import_s"] = round(took, 1)
    found["import_per_s"] = round(idle.jobs / took)
    await asyncio.sleep(2.0)
    cpu = {name: node.cpu_s() for name, node in stage.nodes.items()}
    await asyncio.sleep(idle.watch_s)
    shares = sorted((node.cpu_s() - cpu[name]) / idle.watch_s for name, node in stage.nodes.items())
    found["idle_core_share_max"] = round(shares[-1], 4)
    found["rss_mb_max"] = max(node.rss_mb() for node in stage.nodes.values())
    found["start_s"] = round(await asyncio.to_thread(restart, stage), 2)
    late = await run_steady(folder, stage, Steady(rate=20, seconds=5))
    found["lateness_p50_ms"] = late["lateness_p50_ms"]
    found["lateness_p99_ms"] = late["lateness_p99_ms"]
    return found


def restart(stage: Stage) -> float:
    """Stop one node and start it again; seconds until it is ready, the median of three."""
    took = []
    for node in list(stage.nodes.values())[:3]:
        node.stop()
        began = time.monotonic()
        node.start()
        stage.wait_ready()
        took.append(time.monotonic() - began)
    return percentile(sorted(took), 0.5)
