"""Many leases held at once, and many workers connected: what does staying alive cost?

And, if asked: what becomes of them all when the leader changes?
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...client import AsyncClient
from ...cluster.local.nodes import NodeProcesses
from ...cluster.local.process import ProcessFailed
from ...proto.v1 import cluster_pb2
from ..percentile import percentile
from .failover import leader_of
from .herd import Herd, import_all, live_runs, requests_of
from .idle_worker import IdleWorker, IdleWorkerPool

Figures = dict[str, float | int]
GRANTED_S = 120.0  # So long it may take until all leases are held.
BACK_S = 60.0  # So long it may take after a change until all idle workers are back.
SETTLE_S = 10.0  # Behind a change: longer than it takes to call a silent worker dead.


@dataclass(frozen=True, kw_only=True)
class Leases:
    """What is asked for."""

    leases: int = 100_000
    streams: int = 2_000
    seconds: float = 60.0
    # Streams that share a connection.
    shared: int = 100
    # How the leader is changed at the end: "kill", "transfer" or not at all.
    change: str = ""


async def run(folder: Path, nodes: NodeProcesses, asked: Leases) -> Figures:
    pool = IdleWorkerPool([node.client for node in nodes], asked.shared)
    async with AsyncClient(nodes.endpoints) as client:
        due_ms = int(time.time() * 1000)
        await import_all(client, requests_of(Herd(runs=asked.leases), due_ms, "held"))
        began = time.monotonic()
        tasks = await begin(nodes, client, pool, asked)
        try:
            await until(lambda: pool.leases >= asked.leases, GRANTED_S, pool, tasks)
            found: Figures = {
                "leases": pool.leases,
                "streams": asked.streams,
                "granted_s": round(time.monotonic() - began, 2),
                **await watch(nodes, client, asked.seconds),
            }
            if asked.change:
                found |= await change(nodes, client, pool, tasks, asked)
            found |= {
                "lost": pool.lost,
                "twice": pool.twice,
                "live_at_end": await live_runs(client),
                "streams_ended": pool.ends.total(),
            }
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await pool.close()
    return found


async def begin(
    nodes: NodeProcesses, client: AsyncClient, pool: IdleWorkerPool, asked: Leases
) -> list[asyncio.Task[None]]:
    """All idle workers at once, with the leader."""
    address = nodes[await leader_of(nodes, client)].client
    each, more = divmod(asked.leases, asked.streams)
    idle_workers = [IdleWorker(pool, n, each + (n < more)) for n in range(asked.streams)]
    return [asyncio.create_task(idle_worker.keep(address)) for idle_worker in idle_workers]


async def watch(nodes: NodeProcesses, client: AsyncClient, seconds: float) -> Figures:
    """What the leader needs while nothing happens but beats."""
    node = nodes[await leader_of(nodes, client)]
    cpu = node.cpu_s()
    await asyncio.sleep(seconds)
    if await leader_of(nodes, client) != node.name:
        raise ProcessFailed(
            f"{node.name} lost the leadership within {seconds:.0f} s, so nothing was measured; "
            "the machine may have too much other work"
        )
    return {
        "seconds": seconds,
        "leader_core_share": round((node.cpu_s() - cpu) / seconds, 4),
        "leader_rss_mb": node.rss_mb(),
    }


async def change(
    nodes: NodeProcesses,
    client: AsyncClient,
    pool: IdleWorkerPool,
    tasks: list[asyncio.Task[None]],
    asked: Leases,
) -> Figures:
    """Another node leads: how long until all idle workers are welcome there?"""
    name = await leader_of(nodes, client)
    node, opened, ended = nodes[name], pool.opened, pool.ends.copy()
    began = time.monotonic()
    if asked.change == "kill":
        node.kill()
    else:
        await client.call(cluster_pb2.TransferLeadershipRequest(), timeout=10.0)

    def all_are_back() -> bool:
        return sum(place != node.client for _, place in pool.welcomed.values()) == asked.streams

    await until(all_are_back, BACK_S, pool, tasks)
    back = pool.back(began)
    await asyncio.sleep(SETTLE_S)
    return {
        "back_p50_s": round(percentile(back, 0.5), 2),
        "back_max_s": round(back[-1], 2),
        "streams_opened": pool.opened - opened,
        **{f"ended: {why}": count for why, count in (pool.ends - ended).most_common(8)},
    }


async def until(
    reached: Callable[[], bool],
    seconds: float,
    pool: IdleWorkerPool,
    tasks: list[asyncio.Task[None]],
) -> None:
    """Wait; an idle worker never ends by itself, so one that did is a fault of ours."""
    limit = time.monotonic() + seconds
    while not reached():
        for task in tasks:
            if task.done():
                task.result()
        if time.monotonic() > limit:
            raise ProcessFailed(
                f"after {seconds:.0f} s {len(pool.welcomed)} streams had been welcome and hold "
                f"{pool.leases} leases; streams ended: {dict(pool.ends.most_common(5))}"
            )
        await asyncio.sleep(0.05)
