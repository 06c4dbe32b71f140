"""What is read off processes, nodes and disks while they are measured."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ....cluster.local.nodes import NodeProcess, NodeProcesses
from ....cluster.local.process import Process, ProcessFailed
from ..disk_use import disk_bytes

Say = Callable[[str], None]
METRICS_S = 5.0
PROBE_BYTES, PROBES = 1 << 20, 64


@dataclass(slots=True)
class TimeLimit:
    """When a measurement must be done: what no longer fits is left out, and is reported."""

    seconds: float
    say: Say
    began: float = field(default_factory=time.monotonic)
    left_out: list[str] = field(default_factory=list)
    # The share of the time by whose end the present part must be done.
    share: float = 1.0

    @property
    def left(self) -> float:
        return self.share * self.seconds - (time.monotonic() - self.began)

    def fits(self, seconds: float, what: str) -> bool:
        """Whether so long a step may still begin."""
        if self.left >= seconds:
            return True
        left = f"{max(self.left, 0):.0f} s of {self.seconds:.0f} s"
        self.leave_out(what, f"it needs {seconds:.0f} s and {left} are left for this part")
        return False

    def leave_out(self, what: str, why: str) -> None:
        self.left_out.append(what)
        self.say(f"{what} is left out: {why}")


def rss_bytes(process: Process) -> int:
    """Memory that is resident."""
    pages = Path(f"/proc/{process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def written_bytes(process: Process) -> int:
    """What it had written to disks since it started."""
    for line in Path(f"/proc/{process.pid}/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    return 0


async def metric(node: NodeProcess, name: str) -> float:
    """One figure of a node, by its name without labels."""
    host, _, port = node.http.rpartition(":")
    async with asyncio.timeout(METRICS_S):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
            text = (await reader.read()).decode()
        finally:
            writer.close()
    for line in text.splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    raise ProcessFailed(f"{node.name} has no figure {name}")


def state_bytes(folder: Path) -> int:
    """State and snapshots of a node on its disk."""
    return disk_bytes(folder / "state", folder / "consensus/snapshots")


@dataclass(frozen=True, slots=True)
class ClusterUse:
    """What the nodes of a cluster have used by an instant."""

    at: float
    cpu: dict[str, float]
    log: dict[str, float]
    disk: dict[str, int]

    @classmethod
    async def now(cls, nodes: NodeProcesses) -> ClusterUse:
        return cls(
            time.monotonic(),
            {node.name: node.cpu_s() for node in nodes},
            {node.name: await metric(node, "raftsched_journal_written_bytes_total")
             for node in nodes},
            {node.name: written_bytes(node) for node in nodes},
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class UsedBetween:
    """What was used between two instants: by the leader, and by a follower on average."""

    seconds: float
    leader: float
    follower: float
    nodes: float
    log: float
    disk: float

    @classmethod
    def of(cls, before: ClusterUse, after: ClusterUse, leader: str) -> UsedBetween:
        cpu = {name: used - before.cpu[name] for name, used in after.cpu.items()}
        others = [used for name, used in cpu.items() if name != leader] or [0.0]
        return cls(
            after.at - before.at, cpu[leader], sum(others) / len(others), sum(cpu.values()),
            max(after.log[name] - before.log[name] for name in cpu),
            max(after.disk[name] - before.disk[name] for name in cpu),
        )  # fmt: skip


def disk_bytes_per_s(folder: Path) -> float:
    """How fast a file grows when each megabyte is made durable before the next."""
    path, block = folder / "disk-probe", os.urandom(PROBE_BYTES)
    with path.open("wb", buffering=0) as file:
        began = time.perf_counter()
        for _ in range(PROBES):
            file.write(block)
            os.fdatasync(file.fileno())
        took = time.perf_counter() - began
    path.unlink()
    return PROBES * PROBE_BYTES / took


def memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def disk_free_bytes(folder: Path) -> int:
    """What the disk of a folder has room for."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
