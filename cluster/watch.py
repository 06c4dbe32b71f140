"""Looks at a node four times a second: how late the loop is, and what became of the leadership."""

from __future__ import annotations

import asyncio
import logging

from .metrics import Metrics
from .node import Node

logger = logging.getLogger(__name__)

PERIOD = 0.25
ALONE_SECONDS = 5.0  # Without a leader for so long is worth a line; an election is not.


class Watch:
    """A task; it may not end before `stop`."""

    def __init__(self, node: Node, metrics: Metrics) -> None:
        self.node, self.metrics = node, metrics
        self._leader = ""
        self._without_since = 0.0
        self.task = asyncio.create_task(self._keep_looking(), name="watch")

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])

    async def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        at = self._without_since = loop.time()
        while True:
            at += PERIOD
            await asyncio.sleep(at - loop.time())
            late = loop.time() - at
            self.metrics.lag.add(max(late, 0.0))
            # After a stall it goes on from now.
            at = max(at, loop.time() - PERIOD)
            self._look(loop.time())

    def _look(self, now: float) -> None:
        leader = self.node.leader_name
        if leader:
            self._without_since = now
        elif self._without_since and now - self._without_since > ALONE_SECONDS:
            logger.warning("no leader for %.0f s: no majority can be reached", ALONE_SECONDS)
            self._without_since = 0.0
        if leader != self._leader:
            if leader and leader != self.node.name:
                logger.info("follows %s", leader)
            if leader == self.node.name:
                self.metrics.leaderships += 1
            self._leader = leader
