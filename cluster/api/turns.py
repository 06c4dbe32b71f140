"""Turns at something, for each of many by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CallTurns:
    """Those of one name come one after the other; a name that nobody waits under is not kept."""

    def __init__(self) -> None:
        # The lock of each name, and how many have it or wait for it.
        self.of: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        lock, users = self.of.get(name) or (asyncio.Lock(), 0)
        self.of[name] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self.of[name]
            if users > 1:
                self.of[name] = (lock, users - 1)
            else:
                del self.of[name]
