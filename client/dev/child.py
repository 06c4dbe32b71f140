"""A process of `raftsched dev`: its lines are shown, and it is ended by its id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...cluster.local.lines import lines
from ...cluster.local.process import Process, stop_all

Say = Callable[[str, str], None]


class Child:
    """It can be ended and started again."""

    def __init__(self, process: Process, say: Say) -> None:
        process.streams = "lines"
        self.process, self.say = process, say
        self.name = process.name
        # It is ended on purpose, so its end is not shown.
        self._expected = False
        self._reading: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return self.process.alive

    def start(self) -> None:
        self._expected = False
        self.process.start()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for line in lines(self.process):
            self.say(self.name, line.decode(errors="replace").rstrip())
        code = await asyncio.to_thread(self.process.wait)
        if not self._expected:
            self.say(self.name, f"ended by itself with code {code}")

    async def kill(self) -> None:
        self._expected = True
        await asyncio.to_thread(self.process.kill)
        await self._read_all()

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL if that takes too long; returns when all its lines are shown."""
        self._expected = True
        await asyncio.to_thread(stop_all, [self.process])
        await self._read_all()

    async def _read_all(self) -> None:
        if self._reading is not None:
            await self._reading
