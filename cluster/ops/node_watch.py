"""Looks at a node four times a second: how late the loop is, and what there is to say.

What changes and is a state (who leads, who is connected, which workers are there) is compared with
the last look, so that whoever changes it need not know of the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from ..local.systemd import Watchdog, notify
from ..node.node import Node
from .metrics import Metrics

logs = structlog.get_logger("raftsched.cluster.ops.node_watch")

PERIOD = 0.25
RENEW_SECONDS = 5.0
RECENT_SECONDS = 1.0  # A state no older than that is the cluster's.
ALONE_SECONDS = 5.0  # Without a leader for so long is worth a line; an election is not.


class Watch:
    """A task; it may not end before `stop`."""

    def __init__(
        self, node: Node, metrics: Metrics, renew: Callable[[], None], begin: Callable[[], None]
    ) -> None:
        self.node, self.metrics = node, metrics
        # Takes certificates that have changed.
        self._renew, self._renewed_at = renew, 0.0
        # What to do when the state is known for the first time.
        self._begin: Callable[[], None] | None = begin
        self._leader = ""
        self._without_since = 0.0
        self._founding = ""
        self._connected: frozenset[str] = frozenset()
        self._watchdog = Watchdog()
        # None: not known, as another node led until now.
        self._workers: set[str] | None = None
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
        self._watchdog.look(now)
        if now - self._renewed_at > RENEW_SECONDS:
            self._renewed_at = now
            self._renew()
        self._look_at_state()
        self._look_at_leader(now)
        self._look_at_links()
        self._look_at_workers()

    def _look_at_state(self) -> None:
        """Until a leader was heard and what it knows applied, an old state may lack anything."""
        node = self.node
        if self._begin is not None and (node.leads or node.driver.staleness() < RECENT_SECONDS):
            begin, self._begin = self._begin, None
            begin()

    def _look_at_leader(self, now: float) -> None:
        leader = self.node.leader_name
        if leader:
            self._without_since = now
        elif self._without_since and now - self._without_since > ALONE_SECONDS:
            self._say_why_alone()
        if leader != self._leader:
            me = self.node.name
            notify(f"STATUS={me} {follows(me, leader)}, term {self.node.term}")
            if leader == self.node.name:
                self.metrics.leaderships += 1
            elif leader:
                logs.info("follows", leader=leader)
            # A new leader finds its workers again; that is nothing new about them.
            self._workers = None
            self._leader = leader

    def _say_why_alone(self) -> None:
        """Once, and of a node that waits for its cluster to begin whenever the reasons change."""
        waits = self.node.driver.bootstrap_waits()
        if not waits:
            logs.warning("no leader is known; is a majority reachable?", seconds=ALONE_SECONDS)
            self._without_since = 0.0
        elif waits != self._founding:
            logs.warning(waits)
            self._founding = waits

    def _look_at_links(self) -> None:
        connected = self.node.consensus.connected
        for name in sorted(connected - self._connected):
            logs.info("connected", member=name)
        for name in sorted(self._connected - connected):
            logs.warning("connection lost", member=name)
        self._connected = connected

    def _look_at_workers(self) -> None:
        workers = set(self.node.sessions.by_worker) if self.node.leads else None
        if workers is not None and self._workers is not None:
            for worker in workers - self._workers:
                logs.info("worker came", worker=worker)
            for worker in self._workers - workers:
                logs.info("worker is gone", worker=worker)
        self._workers = workers


def follows(me: str, leader: str) -> str:
    """What `systemctl status` shows of a node."""
    if not leader:
        return "knows no leader"
    return "leads" if leader == me else f"follows {leader}"
