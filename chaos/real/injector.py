"""Chooses whom a fault is for, keeps faults apart, and writes down what was done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from ...cluster.local.nodes import NodeProcess
from .chaos_cluster import ChaosCluster
from .deeds import DEEDS
from .faults import ALL, BUILD_STEPS, FOLLOWER, LEADER, MAJORITY, NEW, OLD, Planned
from .history import FaultSpan

# They take a disk, or count on everybody else.
WHOLE = frozenset({"wipe", "remove-and-add", "restart", *BUILD_STEPS})


class Injector:
    """Faults for one cluster; several may be under way."""

    def __init__(self, cluster: ChaosCluster) -> None:
        self.cluster = cluster
        self.dice_number = 0
        self.locks = {name: asyncio.Lock() for name in cluster.nodes.names}

    async def find(self, target: str) -> list[NodeProcess]:
        alive = [node for node in self.cluster.nodes if node.alive]
        if target == ALL:
            return alive
        if target == MAJORITY:
            return alive[: len(self.cluster.nodes) // 2 + 1]
        if target in (OLD, NEW):
            build = self.cluster.older if target == OLD else self.cluster.present
            return [await self.cluster.next_of(build)]
        leader = None
        if target in (LEADER, FOLLOWER):
            leader = await self.cluster.sure_leader()
        if target == LEADER and leader is not None:
            return [leader]
        self.dice_number += 1
        line = [node for node in alive if node is not leader]
        free = [node for node in line if not self.locks[node.name].locked()] or line
        return [free[self.dice_number % len(free)]]

    async def do(self, fault: Planned) -> None:
        """Begin a fault, hold it, end it, and write down what it was and the sign that it was."""
        async with self.hands_on(fault) as targets:
            names = ",".join(node.name for node in targets)
            began = time.monotonic()
            sign = await DEEDS[fault.what](self.cluster, fault, targets)
            what = f"{fault.what} {fault.how}".strip()
            self.cluster.journal.add(FaultSpan(what, names, began, time.monotonic(), sign))

    @asynccontextmanager
    async def hands_on(self, fault: Planned) -> AsyncIterator[list[NodeProcess]]:
        """Nobody has two hands on one node, and those who take a disk have the cluster alone."""
        while True:
            targets = await self.find(fault.target)
            names = {node.name for node in targets}
            wanted = sorted(self.locks if fault.what in WHOLE else names)
            if fault.what in ("kill-workers", "pause-workers"):
                wanted = []
            waits = any(self.locks[name].locked() for name in wanted)
            async with AsyncExitStack() as stack:
                for name in wanted:
                    await stack.enter_async_context(self.locks[name])
                if waits and fault.target in (LEADER, FOLLOWER):
                    continue  # Meanwhile another may lead.
                yield targets
                return
