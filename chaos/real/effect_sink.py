"""What runs have an effect on: a process of its own that takes no token below the last one.

A line `run token` is answered with `1` or `0`, and written down with the instant. It is the check
of effects, and the example of what to do with a token in a real outside system.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

from .history import Effect, HistoryFile

LINE_MAX = 1_024


class EffectSink:
    """The highest token of each run."""

    def __init__(self, journal: HistoryFile) -> None:
        self.journal = journal
        self.highest: dict[str, int] = {}

    def take(self, run: str, token: int) -> bool:
        accepted = token >= self.highest.get(run, 0)
        if accepted:
            self.highest[run] = token
        self.journal.add(Effect(run, token, accepted, time.monotonic()))
        return accepted

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                run, token = line.split()
                writer.write(b"1\n" if self.take(run.decode(), int(token)) else b"0\n")
                await writer.drain()
        except ConnectionError:
            # Workers are killed; what they asked for before is written down.
            pass
        finally:
            writer.close()


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m raftsched.chaos.real.effect_sink")
    parser.add_argument("port", type=int)
    parser.add_argument("history", type=Path)
    options = parser.parse_args()
    sink = EffectSink(HistoryFile(options.history))
    server = await asyncio.start_server(sink.serve, "127.0.0.1", options.port, limit=LINE_MAX)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
