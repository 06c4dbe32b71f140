"""A process of `raftsched dev`: its lines are shown, and it is ended by its id."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence

PARENT = "RAFTSCHED_PARENT_PID"
LINE_MAX = 1 << 20
Say = Callable[[str, str], None]


class Child:
    """It can be ended and started again."""

    def __init__(self, name: str, command: Sequence[str], say: Say) -> None:
        self.name, self.command, self.say = name, command, say
        self.process: asyncio.subprocess.Process | None = None
        # That it ends is what we want, so it is nothing to tell of.
        self.expected = False
        self._reading: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def start(self) -> None:
        self.expected = False
        self.process = await asyncio.create_subprocess_exec(
            *self.command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, limit=LINE_MAX,
            # Ctrl-C is for us: we end them in order.
            start_new_session=True, env={**os.environ, PARENT: str(os.getpid())},
        )  # fmt: skip
        self._reading = asyncio.create_task(self._read(self.process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.say(self.name, line.decode(errors="replace").rstrip())
        code = await process.wait()
        if not self.expected:
            self.say(self.name, f"ended by itself with code {code}")

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.returncode is None:
            self.expected = True
            self.process.send_signal(number)

    async def end(self, patience: float) -> None:
        """SIGTERM, then, if that takes too long, SIGKILL."""
        self.signal(signal.SIGTERM)
        if not await self.gone(patience):
            self.signal(signal.SIGKILL)
            await self.gone(patience)

    async def gone(self, patience: float) -> bool:
        """Whether it has ended, and all it said was told."""
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=patience)
        return not self.alive
