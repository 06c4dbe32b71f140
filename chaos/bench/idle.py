"""Many jobs that are not due: what do they cost, and is one that is due still on time?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ...client import AsyncClient
from ...cluster.local.nodes import NodeProcess, NodeProcesses
from ..percentile import percentile
from .disk_use import disk_bytes
from .herd import Herd, import_all, requests_of
from .steady import OverTime, Steady
from .steady import run as run_steady

FAR_S = 30 * 86_400
LOOK_S = 5.0
# A node with millions of jobs that was killed reads its journal again.
START_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Idle:
    """What is asked for."""

    jobs: int = 100_000
    watch_s: float = 10.0
    # A steady load beside them, and for how long.
    rate: float = 1_667.0
    seconds: float = 15.0


@dataclass(slots=True)
class Import:
    """An import under way: reports of itself and notes how it goes."""

    nodes: NodeProcesses
    jobs: int
    say: Callable[[str], None]
    over_time: OverTime
    imported: int = 0
    began: float = field(default_factory=time.monotonic)

    def add(self, jobs: int) -> None:
        self.imported += jobs

    async def keep_reporting(self) -> None:
        before, at = 0, self.began
        while True:
            await asyncio.sleep(LOOK_S)
            now = time.monotonic()
            rate = (self.imported - before) / (now - at)
            before, at = self.imported, now
            rss_mb = max(node.rss_mb() for node in self.nodes)
            seconds = now - self.began
            for name, value in (
                ("import_s", seconds), ("imported", self.imported), ("import_per_s", rate),
                ("import_rss_mb", rss_mb),
            ):  # fmt: skip
                self.over_time.setdefault(name, []).append(round(value))
            self.say(
                f"{self.imported:,} of {self.jobs:,} jobs after {seconds:.0f} s, {rate:,.0f}/s; "
                f"a node has {rss_mb} MB"
            )

    async def run(self, client: AsyncClient) -> float:
        """Import all; the seconds it took."""
        due_ms = int((time.time() + FAR_S) * 1000)
        reporting = asyncio.create_task(self.keep_reporting())
        try:
            requests = requests_of(Herd(runs=self.jobs), due_ms, "idle")
            return await import_all(client, requests, self.add)
        finally:
            reporting.cancel()


async def run(
    folder: Path, nodes: NodeProcesses, idle: Idle, say: Callable[[str], None], over_time: OverTime
) -> dict[str, float | int]:
    nodes = nodes
    found: dict[str, float | int] = {"jobs": idle.jobs}
    async with AsyncClient(nodes.endpoints) as client:
        before = cpu_s(nodes)
        took = await Import(nodes, idle.jobs, say, over_time).run(client)
        found["import_s"] = round(took, 1)
        found["import_per_s"] = round(idle.jobs / took)
        found["import_nodes_us_per_job"] = round((cpu_s(nodes) - before) / idle.jobs * 1e6, 1)
    await asyncio.sleep(2.0)
    cpu = {node.name: node.cpu_s() for node in nodes}
    await asyncio.sleep(idle.watch_s)
    shares = sorted((node.cpu_s() - cpu[node.name]) / idle.watch_s for node in nodes)
    found["idle_core_share_max"] = round(shares[-1], 4)
    found["rss_mb_max"] = max(node.rss_mb() for node in nodes)
    found["rss_peak_mb_max"] = max(node.rss_mb(peak=True) for node in nodes)
    found["disk_mb_max"] = max(disk_bytes(folder / name) >> 20 for name in nodes.names)
    found |= await asyncio.to_thread(restarts, nodes, say)
    say("one that is due now and then, beside them")
    late = await run_steady(folder, nodes, Steady(rate=20, seconds=5))
    found["lateness_p50_ms"] = late["lateness_p50_ms"]
    found["lateness_p99_ms"] = late["lateness_p99_ms"]
    if idle.rate:
        say(f"{idle.rate:,.0f} a second beside them")
        asked = Steady(rate=idle.rate, seconds=idle.seconds)
        found |= {
            f"steady_{name}": value
            for name, value in (await run_steady(folder, nodes, asked, over_time)).items()
        }
    found["rss_mb_at_end_max"] = max(node.rss_mb() for node in nodes)
    return found


def restarts(nodes: NodeProcesses, say: Callable[[str], None]) -> dict[str, float | int]:
    """Stop each node and start it again, then kill one: until when is it ready, and what did
    that cost?"""
    took, cost, peaks = list[float](), list[float](), list[int]()
    first, *_ = nodes
    for node in (*nodes, first):
        again = len(took) == len(nodes)
        node.kill() if again else node.stop()
        began = time.monotonic()
        node.start()
        nodes.wait_ready(seconds=START_S)
        took.append(time.monotonic() - began)
        cost.append(node.cpu_s())
        peaks.append(node.rss_mb(peak=True))
        say(f"{node.name} was {'killed' if again else 'stopped'}, and ready again after "
            f"{took[-1]:.1f} s")  # fmt: skip
    return {
        "start_s": round(percentile(sorted(took[:-1]), 0.5), 2),
        "start_cpu_s": round(percentile(sorted(cost[:-1]), 0.5), 2),
        "start_after_kill_s": round(took[-1], 2),
        "start_after_kill_cpu_s": round(cost[-1], 2),
        "start_rss_peak_mb_max": max(peaks),
    }


def cpu_s(nodes: Iterable[NodeProcess]) -> float:
    return sum(node.cpu_s() for node in nodes)
