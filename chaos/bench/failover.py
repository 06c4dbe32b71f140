"""The leader is lost under load, again and again: how long until work goes on?

It is killed (-9), or stopped (SIGSTOP: nothing breaks, nobody answers), or cut off from the other
nodes while its workers still reach it. Two figures for each: from then to the first run that begins
after it, and until the rate of the second before it is reached again over 100 ms.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from ...client import AsyncClient
from ...client.errors import RaftschedError
from ...cluster.local.nodes import PROGRAM, NodeProcess, NodeProcesses
from ...cluster.local.process import ProcessFailed
from ...proto.v1 import cluster_pb2
from ..percentile import percentile
from ..real.link_backend import Proxies
from .herd import import_all, warm_up
from .steady import Steady, requests_of
from .worker_processes import WorkerProcesses

SETTLE_S = 2.0  # Between the return of the killed node and the next kill.
DOWN_S = 0.5  # Between a kill and the start of the killed node.
AWAY_S = 2.0  # As long a stopped node stands still, or one that is cut off stays so.
RETURN_S = 5.0  # A killed node needs no longer to be back, or the load ends too early.
WINDOW_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Failover:
    """What is asked for."""

    kills: int = 50
    rate: float = 500.0
    workers: int = 2
    how: Literal["kill", "stop", "cut"] = "kill"


async def leader_of(nodes: NodeProcesses, client: AsyncClient) -> str:
    """The name of the node that leads, as a majority would say."""
    for _ in range(200):
        try:
            status = await client.call(cluster_pb2.GetClusterStatusRequest(), timeout=2.0)
        except RaftschedError:
            status = cluster_pb2.ClusterStatus()
        if status.leader and nodes[status.leader].alive:
            return str(status.leader)
        await asyncio.sleep(0.05)
    raise ProcessFailed("no leader was found within 10 s")


class Blows:
    """What is done to a leader, and undone."""

    def __init__(self, nodes: NodeProcesses, how: str, links: Proxies | None) -> None:
        self.nodes, self.how, self.links = nodes, how, links

    async def strike(self, node: NodeProcess) -> None:
        """Returns when it is a follower again, or may be."""
        if self.how == "kill":
            node.kill()
            await asyncio.sleep(DOWN_S)
            node.start()
        elif self.how == "stop":
            node.pause()
            await asyncio.sleep(AWAY_S)
            node.resume()
        elif self.links is not None:
            others = [name for name in self.nodes.names if name != node.name]
            pairs = [pair for one in others for pair in ((node.name, one), (one, node.name))]
            await self.links.act("cut", pairs=pairs)
            await asyncio.sleep(AWAY_S)
            await self.links.act("heal")
        await asyncio.to_thread(self.nodes.wait_ready)


@contextmanager
def behind(
    links: Proxies, folder: Path, count: int, settings: Sequence[str] = ()
) -> Iterator[NodeProcesses]:
    """Nodes that find each other through links; `run` starts both."""
    nodes = links.nodes(folder, count, settings, lambda name: PROGRAM)
    try:
        yield nodes
    finally:
        nodes.stop()


@asynccontextmanager
async def started(nodes: NodeProcesses, links: Proxies | None) -> AsyncIterator[None]:
    if links is None:
        yield
        return
    await links.start()
    try:
        await asyncio.to_thread(nodes.start)
        yield
    finally:
        await links.close()


async def run(
    folder: Path, nodes: NodeProcesses, failover: Failover, links: Proxies | None = None
) -> dict[str, float | int]:
    async with started(nodes, links):
        return await _run(folder, nodes, failover, Blows(nodes, failover.how, links))


async def _run(
    folder: Path, nodes: NodeProcesses, failover: Failover, blows: Blows
) -> dict[str, float | int]:
    workers = WorkerProcesses(folder, nodes.endpoints, failover.workers, slots=1_000, lateness=True)
    workers.start()
    kills: list[float] = []
    async with AsyncClient(nodes.endpoints) as client:
        await warm_up(client, workers)
        seconds = failover.kills * (SETTLE_S + RETURN_S) + 10
        steady = Steady(rate=failover.rate, seconds=seconds)
        first_s = time.time() + steady.count / steady.insert_rate + 3.0
        await import_all(client, requests_of(steady, first_s))
        await asyncio.sleep(max(0.0, first_s + 2.0 - time.time()))
        for _ in range(failover.kills):
            node = nodes[await leader_of(nodes, client)]
            kills.append(time.time())
            await blows.strike(node)
            await asyncio.sleep(SETTLE_S)
        await asyncio.sleep(1.0)
    workers.stop()
    begun = sorted(due + late for due, late in workers.pairs(first_s))
    return figures(kills, begun, failover.rate)


def figures(kills: Sequence[float], begun: Sequence[float], rate: float) -> dict[str, float | int]:
    """Of instants at which the leader died, and at which runs began."""
    gaps, full = [], []
    for kill in kills:
        # Leases that were granted already begin at the workers for a moment; the gap behind it is
        # what the leader's death cost. One that begins later is of the node that comes back.
        after = [at for at in begun if kill <= at < kill + 3.0]
        if not after:
            raise ProcessFailed("nothing ran for 3 s after a kill")
        pauses = [pair for pair in pairwise([kill, *after]) if pair[0] < kill + DOWN_S]
        widest = max(pauses, key=lambda pair: pair[1] - pair[0])
        gaps.append(1000 * (widest[1] - kill))
        full.append(1000 * (_full_again(after, widest[1], rate) - kill))
    gaps.sort()
    full.sort()
    return {
        "kills": len(kills),
        "next_lease_p50_ms": round(percentile(gaps, 0.5), 1),
        "next_lease_p99_ms": round(percentile(gaps, 0.99), 1),
        "next_lease_max_ms": round(gaps[-1], 1),
        "full_rate_p50_ms": round(percentile(full, 0.5), 1),
        "full_rate_max_ms": round(full[-1], 1),
    }


def _full_again(begun: Sequence[float], since: float, rate: float) -> float:
    """The end of the first window behind `since` in which nine tenths of the rate began."""
    at = since
    while at < since + 3.0:
        if sum(at <= each < at + WINDOW_S for each in begun) >= 0.9 * rate * WINDOW_S:
            return at + WINDOW_S
        at += WINDOW_S / 10
    raise ProcessFailed("the full rate did not come back within 3 s of a kill")
