"""How fast agreement is: three nodes as processes on loopback, every commit on disk.

The parent starts the nodes, tells them through their standard input what to do and reads their
answers, one JSON object a line. Writers run inside the leader's process, as the leader's loop
of the product does; so what is measured is consensus, journal and links, and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..local.lines import lines
from ..local.ports import free_ports
from ..local.process import Process
from .disk import RealDisk
from .driver import Driver, Place
from .faults import Refused
from .journal import JournalLimits
from .port import Settings

HELP = """\
Measure the consensus layer with three node processes on loopback, fsync on.

With --json one JSON object is the last line of stdout, everything else goes to stderr:
  latency_p50_ms, latency_p99_ms          one writer, 256 bytes
  commits_s, commits_latency_p50_ms       64 writers, 1 KiB
  bulk_mb_s                               8 writers, 256 KiB
  failover_p50_ms, _p99_ms, _max_ms       leader killed (-9) -> next commit by the new one
  snapshot_mb, snapshot_s, snapshot_mb_s  to an empty node, with `snapshot_commits_s` going on
  snapshot_commit_p99_ms                  of those commits
  snapshot_elections                      terms that passed meanwhile
The exit status is 0 if everything ran, whatever the figures.
"""

NAMES = ("n1", "n2", "n3")
BLOB = "blob"
BLOB_FILES = 32


class BenchMachine:
    """Counts entries. Its snapshot is as large as it is told to be."""

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
        """The digests of its files tell all in here."""

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
            settings=replace(Settings(), compact_bytes=config["compact"], tail_entries=1000),
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
        """Nobody tells anything in here."""

    def told(self, peer: str, text: bytes) -> None:
        """Nobody tells anything in here."""

    async def probe(self, term: int) -> None:
        """Commit something at once, and tell when it was applied."""
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
        """Write 1 KiB at a rate in the background, until told to stop with rate 0."""
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
        self.driver._poke()
        async with asyncio.timeout(300):
            while core.snapshots.last_index == before or core.sender.making:
                await asyncio.sleep(0.05)
        return {"index": core.snapshots.last_index}


def say(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)  # noqa: T201  # This is how the processes talk.


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201  # As above.


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class BenchProcess:
    """A node process as the parent sees it."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.bench = bench
        folder = bench.folder / name
        self.process = Process(name, [], folder.with_suffix(".log"), streams="dialog")
        self.config: dict[str, object] = {
            "node": name, "folder": str(folder), "contacts": bench.contacts,
        }  # fmt: skip
        self.answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue(100)
        self.reader: asyncio.Task[None] | None = None

    def start(self) -> None:
        sizes = {"compact": self.bench.compact, "segment": self.bench.segment}
        self.process.arguments = [module_name(), "--serve", json.dumps(self.config | sizes)]
        self.process.start()
        self.reader = asyncio.get_running_loop().create_task(self.read())

    async def read(self) -> None:
        async for line in lines(self.process):
            row = json.loads(line)
            if row["event"] == "answer":
                self.answers.put_nowait(row)
            else:
                self.bench.events.put_nowait(row)

    async def ask(self, do: str, patience: float = 10.0, **order: object) -> dict[str, Any]:
        popen = self.process.popen
        assert popen is not None
        assert popen.stdin is not None
        popen.stdin.write(json.dumps({"do": do, **order}).encode() + b"\n")
        popen.stdin.flush()
        async with asyncio.timeout(patience):
            return await self.answers.get()

    async def kill(self) -> None:
        await asyncio.to_thread(self.process.kill)
        if self.reader is not None:
            await self.reader


def module_name() -> str:
    return __spec__.name if __spec__ is not None else "raftsched.cluster.raft.bench"


class Bench:
    """The parent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.compact, self.segment = 256 << 20, 64 << 20
        ports = free_ports(len(NAMES))
        self.contacts = {n: f"127.0.0.1:{p}" for n, p in zip(NAMES, ports, strict=True)}
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue(10_000)
        self.processes = {n: BenchProcess(self, n) for n in NAMES}

    async def event(self, seconds: float, **wanted: object) -> dict[str, Any]:
        """Wait for an event with these values; others before it are left behind."""
        async with asyncio.timeout(seconds):
            while True:
                row = await self.events.get()
                if all(row.get(k) == v for k, v in wanted.items()):
                    return row

    async def start_all(self) -> str:
        for process in self.processes.values():
            process.start()
        return str((await self.event(20, event="gained"))["node"])

    async def close(self) -> None:
        for process in self.processes.values():
            await process.kill()

    async def level(self, leader: str, seconds: float = 30.0) -> None:
        """Wait until all three are voters and caught up."""
        async with asyncio.timeout(seconds):
            while True:
                status = await self.processes[leader].ask("status")
                rest = [p for n, p in status["peers"].items() if n != leader]
                if len(rest) == 2 and all(v and m >= status["last"] for v, m in rest):
                    return
                await asyncio.sleep(0.02)

    async def throughput(self, seconds: float) -> dict[str, float]:
        leader = self.processes[await self.start_all()]
        await leader.ask("write", size=256, writers=1, seconds=0.5)
        one = await leader.ask("write", seconds + 10, size=256, writers=1, seconds=seconds)
        many = await leader.ask("write", seconds + 10, size=1024, writers=64, seconds=seconds)
        bulk = await leader.ask("write", seconds + 10, size=256 << 10, writers=8, seconds=seconds)
        await self.close()
        return {
            "latency_p50_ms": round(one["p50"], 3),
            "latency_p99_ms": round(one["p99"], 3),
            "commits_s": round(many["count"] / many["wall"]),
            "commits_latency_p50_ms": round(many["p50"], 3),
            "bulk_mb_s": round(bulk["count"] * (256 << 10) / 1e6 / bulk["wall"], 1),
        }

    async def failover(self, kills: int) -> dict[str, float]:
        """Kill the leader again and again; from the kill to the next leader's first commit."""
        leader = await self.start_all()
        took = []
        for number in range(kills):
            await self.level(leader)
            while not self.events.empty():
                self.events.get_nowait()
            old, killed_at = self.processes[leader], time.monotonic()
            await old.kill()
            row = await self.event(20, event="gained")
            took.append((row["at"] - killed_at) * 1e3)
            leader = str(row["node"])
            old.start()
            await self.event(20, event="up")
            if number % 20 == 19:
                tell(f"{number + 1} kills, the last took {took[-1]:.1f} ms")
        await self.close()
        return {
            "failover_kills": kills,
            "failover_p50_ms": round(percentile(took, 0.5), 1),
            "failover_p99_ms": round(percentile(took, 0.99), 1),
            "failover_max_ms": round(max(took), 1),
        }

    async def snapshot(self, megabytes: int, rate: float) -> dict[str, float]:
        """Empty a follower's disk and let it come back while writes go on."""
        self.compact, self.segment = 48 << 20, 16 << 20
        name = await self.start_all()
        leader = self.processes[name]
        await self.level(name)
        lost = next(n for n in NAMES if n != name)
        await self.processes[lost].kill()
        await leader.ask("write", 60, size=64 << 10, writers=8, seconds=2)
        await leader.ask("snapshot", 300, megabytes=megabytes)
        await leader.ask("write", 60, size=64 << 10, writers=8, seconds=1)
        shutil.rmtree(self.folder / lost)
        before = await leader.ask("steady", rate=rate)
        first = await leader.ask("status")
        begun = time.monotonic()
        self.processes[lost].start()
        await self.level(name, 300)
        wall = time.monotonic() - begun
        last = await leader.ask("status")
        steady = await leader.ask("steady", rate=0)
        await self.close()
        return {
            "snapshot_mb": megabytes,
            "snapshot_s": round(wall, 2),
            "snapshot_mb_s": round(megabytes / wall, 1),
            "snapshot_commits_s": round((last["steady"] - before["steady"]) / wall),
            "snapshot_commit_p99_ms": round(steady["p99"], 1),
            "snapshot_elections": last["term"] - first["term"],
            "leader_rss_mb": round(last["rss_mb"]),
        }


def percentile(values: list[float], share: float) -> float:
    """As in chaos/, which this package may not know."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def measure(options: argparse.Namespace) -> dict[str, float]:
    result: dict[str, float] = {}
    parts = {
        "throughput": lambda b: b.throughput(options.seconds),
        "failover": lambda b: b.failover(options.kills),
        "snapshot": lambda b: b.snapshot(options.snapshot_mb, options.rate),
    }
    for part in options.only or parts:
        with tempfile.TemporaryDirectory(prefix="raftsched-bench-", dir=options.folder) as folder:
            bench = Bench(Path(folder))
            try:
                result |= await parts[part](bench)
            except TimeoutError:
                for process in bench.processes.values():
                    tell(f"{process.process.name}: {process.process.tail()}")
                raise
            finally:
                await bench.close()
        tell(f"{part}: {json.dumps(result)}")
    return result


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m raftsched.cluster.raft.bench",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--only", action="append", choices=["throughput", "failover", "snapshot"])
    parser.add_argument("--seconds", type=float, default=4.0, help="of each throughput part")
    parser.add_argument("--kills", type=int, default=100, help="leaders to kill")
    parser.add_argument("--snapshot-mb", type=int, default=2048, help="size of the snapshot")
    parser.add_argument("--rate", type=float, default=500.0, help="commits/s meanwhile")
    parser.add_argument("--folder", help="where the nodes keep their disks (default: temporary)")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.serve:
        asyncio.run(BenchNode(json.loads(options.serve)).run())
        return 0
    try:
        result = asyncio.run(measure(options))
    except (OSError, TimeoutError, Refused) as error:
        tell(f"the benchmark did not run: {type(error).__name__}: {error}")
        return 1
    if options.json:
        say(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
