"""How fast agreement is: three nodes as processes on loopback, every commit on disk.

The parent starts the nodes, sends them through their standard input what to do and reads their
answers, one JSON object a line. Writers run inside the leader's process, as the leader's loop
of the product does; so what is measured is consensus, journal and links, and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ..local.lines import lines
from ..local.ports import free_ports
from ..local.process import Process
from .bench_node import BenchNode, percentile, say
from .faults import CallRefused

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


def report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201  # As above.


class BenchProcess:
    """A node process as the parent sees it."""

    def __init__(self, bench: ConsensusBench, name: str) -> None:
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

    async def ask(self, do: str, timeout: float = 10.0, **order: object) -> dict[str, Any]:
        popen = self.process.popen
        assert popen is not None
        assert popen.stdin is not None
        popen.stdin.write(json.dumps({"do": do, **order}).encode() + b"\n")
        popen.stdin.flush()
        async with asyncio.timeout(timeout):
            return await self.answers.get()

    async def kill(self) -> None:
        await asyncio.to_thread(self.process.kill)
        if self.reader is not None:
            await self.reader


def module_name() -> str:
    return __spec__.name if __spec__ is not None else "raftsched.cluster.raft.bench"


class ConsensusBench:
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
                report(f"{number + 1} kills, the last took {took[-1]:.1f} ms")
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


async def measure(options: argparse.Namespace) -> dict[str, float]:
    result: dict[str, float] = {}
    parts = {
        "throughput": lambda b: b.throughput(options.seconds),
        "failover": lambda b: b.failover(options.kills),
        "snapshot": lambda b: b.snapshot(options.snapshot_mb, options.rate),
    }
    for part in options.only or parts:
        with tempfile.TemporaryDirectory(prefix="raftsched-bench-", dir=options.folder) as folder:
            bench = ConsensusBench(Path(folder))
            try:
                result |= await parts[part](bench)
            except TimeoutError:
                for process in bench.processes.values():
                    report(f"{process.process.name}: {process.process.tail()}")
                raise
            finally:
                await bench.close()
        report(f"{part}: {json.dumps(result)}")
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
    except (OSError, TimeoutError, CallRefused) as error:
        report(f"the benchmark did not run: {type(error).__name__}: {error}")
        return 1
    if options.json:
        say(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
