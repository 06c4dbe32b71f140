"""What is put on a peer whose primary is lost, put on us: the leader is killed under load."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from ...client import AsyncClient
from ...cluster.local.nodes import NodeProcesses
from .compare_turns import KILL_AFTER_S, of_failover
from .failover import leader_of
from .herd import ROOM_S, import_all, warm_up
from .steady import Steady, requests_of
from .worker_processes import WorkerProcesses

# Behind the last due time: longer than anything takes that was ever seen to come back.
RECOVERED_S = 60.0
LOOK_S, REST_S = 0.05, 1.0


async def run(folder: Path, nodes: NodeProcesses, steady: Steady) -> dict[str, float | int]:
    """The leader dies and stays away."""
    workers = WorkerProcesses(folder, nodes.endpoints, steady.workers, slots=1_000, lateness=True)
    workers.start()
    try:
        async with AsyncClient(nodes.endpoints) as client:
            await warm_up(client, workers)
            before = workers.begun()
            first_s = time.time() + steady.count / steady.insert_rate + ROOM_S
            await import_all(client, requests_of(steady, first_s))
            await asyncio.sleep(max(0.0, first_s + KILL_AFTER_S - time.time()))
            leader = nodes[await leader_of(nodes, client)]
            killed = time.time()
            leader.kill()
            until = first_s + steady.seconds + RECOVERED_S
            while workers.begun() < before + steady.count and time.time() < until:
                await asyncio.sleep(LOOK_S)
            await asyncio.sleep(REST_S)
            ended = time.time()
    finally:
        workers.stop()
    pairs = [(due, due + late) for due, late in workers.pairs(first_s)]
    return of_failover(pairs, killed, steady.count, ended)
