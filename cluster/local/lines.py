"""What a process writes, line by line, on an asyncio loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from .process import Process

LINE_MAX = 1 << 20


async def lines(process: Process) -> AsyncGenerator[bytes, None]:
    """Until it ends, or gives up its output; for one whose `streams` are not those of the log."""
    assert process.popen is not None
    reader = asyncio.StreamReader(limit=LINE_MAX)
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), process.popen.stdout
    )
    try:
        async for line in reader:
            yield line.rstrip(b"\r\n")
    finally:
        pipe.close()
