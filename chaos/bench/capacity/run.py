"""All measurements in their order, within a time, and what follows from them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ....client import AsyncClient
from ....cluster.local.nodes import NodeProcesses, running
from .answer import CapacityAsked, CapacityModel, MachineRoom
from .costs import CostPoints
from .gauges import Say, TimeLimit, disk_bytes_per_s, disk_free_bytes, memory_bytes
from .guests import MEASURED_HEARTBEAT_MS, connected, looking
from .loads import CapacityBench, CapacitySizes, store, work
from .page import CapacityReport

# Too little for a cluster to start and for some workers to connect.
CONNECT_S = 15.0
Measurement = Callable[[CapacityBench], Awaitable[None]]
Parts = tuple[tuple[float, Measurement], ...]
# On a machine with other work no part takes the time of all that come behind it.
FIRST: Parts = ((0.15, looking), (0.5, work), (0.75, store))
SECOND: Parts = ((1.0, connected),)
SETTINGS = ("--heartbeat-ms", str(MEASURED_HEARTBEAT_MS))


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What is asked for."""

    sizes: CapacitySizes
    nodes: int = 3
    headroom: float = 0.5
    asked: CapacityAsked | None = None


def run(folder: Path, capacity: Capacity, around: Mapping[str, object], say: Say) -> CapacityReport:
    limit, found = TimeLimit(capacity.sizes.limit_s, say), CostPoints()
    disk = disk_bytes_per_s(folder), disk_free_bytes(folder)

    async def measure(place: Path, nodes: NodeProcesses, parts: Parts) -> None:
        async with AsyncClient(nodes.endpoints) as client:
            bench = CapacityBench(place, nodes, client, capacity.sizes, found, limit, say)
            for limit.share, part in parts:
                await part(bench)

    first, second = folder / "stored", folder / "held"
    with running(first, capacity.nodes) as nodes:
        asyncio.run(measure(first, nodes, FIRST))
    # A cluster of its own, since leases that are held come back when their workers go.
    limit.share = 1.0
    if limit.fits(CONNECT_S, "workers and leases"):
        with running(second, capacity.nodes, SETTINGS) as nodes:
            asyncio.run(measure(second, nodes, SECOND))
    room = MachineRoom(
        memory=memory_bytes(), disk_per_s=disk[0], disk=disk[1], journal=found.journal_bytes
    )
    machine = {
        "memory_gb": round(room.memory / 1e9, 1), "disk_free_gb": round(room.disk / 1e9, 1),
        "disk_mb_per_s": round(room.disk_per_s / 1e6),
    }  # fmt: skip
    return CapacityReport(
        found=found,
        model=CapacityModel(found.lines(), room),
        headroom=capacity.headroom,
        asked=capacity.asked,
        left_out=limit.left_out,
        around={**around, **machine},
    )
