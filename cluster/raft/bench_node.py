"""One node of the benchmark, as a process that its parent gives orders.

Writers run inside the leader's process, as the leader's loop of the product does; so what is
measured is consensus, journal and links, and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from .disk import RealDisk
from .driver import Driver, Place
from .journal import JournalLimits
from .port import RaftSettings

BLOB = "blob"
BLOB_FILES = 32


class BenchMachine:
    """Counts entries. Its snapshot is as large as is asked for."""

    def __init__(self, disk: RealDisk) -> None:
        self.disk = disk
        self.index = 0
        self.blob_mb = 0

    def applied(self) -> int:
        return self.index

    def apply(self, index: int, data: bytes) -> None:
        self.index = index

    def checkpoint(self) -> Callable[[str], int]:
        index, megabytes = self.index, self.blob_mb

        def write(folder: str) -> int:
            path = f"{folder}/index"
            self.disk.write(path, 0, index.to_bytes(8, "big"))
            self.disk.sync(path)
            for number in range(BLOB_FILES if megabytes else 0):
                self._write_blob(f"{folder}/{BLOB}-{number:03d}", megabytes // BLOB_FILES)
            return index

        return write

    def _write_blob(self, path: str, megabytes: int) -> None:
        for offset in range(megabytes):
            self.disk.write(path, offset << 20, os.urandom(1 << 20))
        self.disk.sync(path)

    def check(self, folder: str) -> None:
        """The digests of its files say all in here."""

    def restore(self, folder: str) -> None:
        self.index = int.from_bytes(self.disk.read(f"{folder}/index", 0, 8), "big")


class BenchNode:
    """One node process."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.name = config["node"]
        self.disk = RealDisk(Path(config["folder"]))
        self.machine = BenchMachine(self.disk)
        place = Place(
            cluster="bench",
            node=self.name,
            contacts=config["contacts"],
            settings=replace(RaftSettings(), compact_bytes=config["compact"], tail_entries=1000),
            journal=JournalLimits(segment=config["segment"]),
        )
        self.driver = Driver(place, self.disk, self.machine, self)
        self.probing: set[asyncio.Task[None]] = set()
        self.steady: asyncio.Task[None] | None = None
        self.steady_took: list[float] = []

    # The watcher.

    def leadership_gained(self, term: int) -> None:
        task = asyncio.get_running_loop().create_task(self.probe(term))
        self.probing.add(task)
        task.add_done_callback(self.probing.discard)

    def leadership_lost(self, term: int) -> None:
        say({"node": self.name, "event": "lost", "term": term})

    def removed(self) -> None:
        say({"node": self.name, "event": "removed"})

    def linked(self, peer: str) -> None:
        """Nobody sends a notice in here."""

    def on_notice(self, peer: str, text: bytes) -> None:
        """Nobody sends a notice in here."""

    async def probe(self, term: int) -> None:
        """Commit something at once, and report when it was applied."""
        index = await self.driver.propose(b"probe", 5.0)
        at = time.monotonic()
        say({"node": self.name, "event": "gained", "term": term, "at": at, "index": index})

    # Orders from the parent.

    async def run(self) -> None:
        await self.driver.start()
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        say({"node": self.name, "event": "up"})
        orders = loop.create_task(self.obey(reader))
        await asyncio.wait({orders, self.driver.ended}, return_when=asyncio.FIRST_COMPLETED)
        await self.driver.stop()
        self.driver.ended.result()

    async def obey(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            order = json.loads(line)
            do = getattr(self, f"do_{order.pop('do')}")
            say({"node": self.name, "event": "answer", **await do(**order)})

    async def do_status(self) -> dict[str, Any]:
        status = self.driver.status()
        peers = {n: [p.voter, p.match] for n, p in status.peers.items()}
        base, applied = status.base, status.applied
        return {
            "role": status.role, "ready": status.ready, "term": status.term, "peers": peers,
            "base": base, "applied": applied, "last": status.last_index,
            "steady": len(self.steady_took), "rss_mb": resident_mb(),
        }  # fmt: skip

    async def do_write(self, size: int, writers: int, seconds: float) -> dict[str, Any]:
        body = os.urandom(size)
        took: list[float] = []
        begun = time.perf_counter()

        async def writer() -> None:
            while time.perf_counter() - begun < seconds:
                before = time.perf_counter()
                if await self.driver.propose(body, 5.0) is not None:
                    took.append(time.perf_counter() - before)

        await asyncio.gather(*(writer() for _ in range(writers)))
        wall = time.perf_counter() - begun
        return {
            "count": len(took),
            "wall": wall,
            "p50": percentile(took, 0.5) * 1e3,
            "p99": percentile(took, 0.99) * 1e3,
        }

    async def do_steady(self, rate: float) -> dict[str, Any]:
        """Write 1 KiB at a rate in the background, until rate 0 stops it."""
        if self.steady is not None:
            self.steady.cancel()
            self.steady = None
        if rate:
            self.steady = asyncio.get_running_loop().create_task(self.keep_writing(rate))
        took = self.steady_took or [0.0]
        return {"steady": len(self.steady_took), "p99": percentile(took, 0.99) * 1e3}

    async def keep_writing(self, rate: float) -> None:
        """Begin writes at a rate, whether or not the ones before have ended."""
        body, step = os.urandom(1024), 0.01
        due = time.perf_counter()
        under_way: set[asyncio.Task[None]] = set()

        async def write() -> None:
            before = time.perf_counter()
            if await self.driver.propose(body, 5.0) is not None:
                self.steady_took.append(time.perf_counter() - before)

        while True:
            for _ in range(round(rate * step)):
                if len(under_way) < 1000:
                    task = asyncio.get_running_loop().create_task(write())
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
            due += step
            await asyncio.sleep(max(0.0, due - time.perf_counter()))

    async def do_snapshot(self, megabytes: int) -> dict[str, Any]:
        self.machine.blob_mb = megabytes
        core = self.driver.core
        core.make_snapshot()
        before = core.snapshots.last_index
        self.driver.wake()
        async with asyncio.timeout(300):
            while core.snapshots.last_index == before or core.sender.making:
                await asyncio.sleep(0.05)
        return {"index": core.snapshots.last_index}


def say(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)  # noqa: T201  # This is how the processes talk.


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def percentile(values: list[float], share: float) -> float:
    """As in chaos/, which this package may not know."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
