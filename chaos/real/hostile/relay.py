"""A way to a node that begins at another address of the loopback: gRPC cannot choose its own."""

from __future__ import annotations

import asyncio
from contextlib import suppress

FOREIGN = "127.0.0.66"
PIECE = 1 << 18


class Relay:
    """Listens on a free port, and passes each connection on from the foreign address."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self.target = (host, int(port))
        self.address = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=PIECE)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            far = await foreign(*self.target)
            await asyncio.gather(_pass_on(reader, far[1]), _pass_on(far[0], writer))
        except (OSError, asyncio.CancelledError):
            # The node refused the connection, or the attack is over.
            pass
        finally:
            self._tasks.discard(task)
            writer.close()


async def foreign(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection from the foreign address."""
    return await asyncio.open_connection(host, port, local_addr=(FOREIGN, 0), limit=PIECE)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(PIECE):
            writer.write(data)
            await writer.drain()
    finally:
        with suppress(OSError, RuntimeError):
            writer.close()
