"""Who waits for a leader, and who must know when it changes.

One look at the node serves all that wait, however many they are: whenever the node says that
another one may lead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from .node_port import NodePort


class Leadership:
    """Who leads, as this node knows it."""

    def __init__(self, node: NodePort, clock: Callable[[], float] = time.monotonic) -> None:
        self.node = node
        self.clock = clock
        self._known = self._present()
        # Since when it is so, as this node saw it: milliseconds since 1970.
        self.since_ms = time.time_ns() // 1_000_000
        self._waiters: set[asyncio.Future[None]] = set()
        self._listeners: list[Callable[[], None]] = []
        node.on_leader_change(self._look)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have a listener called on the loop after each change."""
        self._listeners.append(listener)

    async def changed(self, timeout: float) -> None:
        """Return when somebody else leads, or after a while."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(future)
        try:
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            pass
        finally:
            self._waiters.discard(future)

    async def gained(self, timeout: float) -> bool:
        """Whether this node leads, once it is known who does or the time is over."""
        give_up = self.clock() + timeout
        while not self.node.leads:
            left = give_up - self.clock()
            if self.elsewhere() or left <= 0:
                return False
            await self.changed(left)
        return True

    def elsewhere(self) -> str:
        """Where clients reach the leader, if another node leads; empty when none is known."""
        return "" if self.node.leader_name == self.node.name else self.node.leader_address

    def _look(self) -> None:
        """Wake all that wait, if something has changed."""
        present = self._present()
        if present == self._known:
            return
        if present[1:] != self._known[1:]:
            self.since_ms = time.time_ns() // 1_000_000
        self._known = present
        waiters, self._waiters = self._waiters, set()
        for future in waiters:
            if not future.done():
                future.set_result(None)
        for listener in self._listeners:
            listener()

    def _present(self) -> tuple[bool, str, int]:
        node = self.node
        return node.leads, node.leader_address, node.term
