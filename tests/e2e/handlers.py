"""A worker in the test's own process, which notes what it was asked to do."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

from raftsched.client import Context, Worker


@dataclass
class Noted:
    """Runs in the order in which they were begun."""

    runs: list[str] = field(default_factory=list)
    # By run: how long after its time it began here.
    late: dict[str, float] = field(default_factory=dict)

    @property
    def doubled(self) -> list[str]:
        return [run for run, times in Counter(self.runs).items() if times > 1]

    def note(self, run: str, due: datetime | None) -> None:
        self.runs.append(run)
        if due is not None:
            self.late[run] = time.time() - due.timestamp()


@asynccontextmanager
async def working(endpoints: str, seconds: float = 0.0) -> AsyncIterator[Noted]:
    """Serve "note", which takes so long, and "fail", as long as the test goes on."""
    noted = Noted()
    worker = Worker(endpoints, grace=2)

    @worker.handler("note")
    async def note(context: Context) -> str:
        noted.note(context.run, context.due_time)
        await asyncio.sleep(seconds)
        return "noted"

    @worker.handler("fail")
    async def fail() -> None:
        raise ValueError("it never works")

    serving = asyncio.create_task(worker.serve())
    try:
        yield noted
    finally:
        worker.stop(now=True)
        await asyncio.wait([serving], timeout=10)
        serving.result()
