"""Many leases held at once, and many workers connected: what does staying alive cost?

The workers here speak the contract by themselves: each holds its leases and says nothing but
that it is alive, which the SDK's worker could not be told to do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc

from ...client import AsyncClient
from ...proto.v1 import worker_pb2
from ...proto.v1.worker_pb2_grpc import WorkerServiceStub
from ..stage import Stage, StageFailed
from .failover import leader_of
from .herd import Herd, import_all, live_runs, requests_of

OPTIONS = (("grpc.use_local_subchannel_pool", 1),)


@dataclass(frozen=True, kw_only=True)
class Leases:
    """What is asked for."""

    leases: int = 100_000
    streams: int = 2_000
    seconds: float = 60.0
    # Streams that share a connection.
    shared: int = 100


@dataclass(slots=True)
class Held:
    """What all streams hold together."""

    leases: int = 0
    lost: int = 0


async def run(folder: Path, stage: Stage, asked: Leases) -> dict[str, float | int]:
    held = Held()
    async with AsyncClient(stage.endpoints) as client:
        due_ms = int(time.time() * 1000)
        await import_all(client, requests_of(Herd(runs=asked.leases), due_ms, "held"))
        address = await leader_address(stage, client)
        count = -(-asked.streams // asked.shared)
        channels = [grpc.aio.insecure_channel(address, options=OPTIONS) for _ in range(count)]
        each = -(-asked.leases // asked.streams)
        tasks = [
            asyncio.create_task(hold(channels[number // asked.shared], number, each, held))
            for number in range(asked.streams)
        ]
        try:
            await until_held(held, asked.leases, tasks)
            node = next(n for n in stage.nodes.values() if n.client == address)
            cpu = node.cpu_s()
            await asyncio.sleep(asked.seconds)
            share = (node.cpu_s() - cpu) / asked.seconds
            live = await live_runs(client)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for channel in channels:
                await channel.close()
    return {
        "leases": held.leases,
        "streams": asked.streams,
        "seconds": asked.seconds,
        "lost": held.lost,
        "live_at_end": live,
        "leader_core_share": round(share, 4),
        "leader_rss_mb": node.rss_mb(),
    }


async def leader_address(stage: Stage, client: AsyncClient) -> str:
    """Where the leader is: a worker's stream to any other node is sent there."""
    return stage.nodes[await leader_of(stage, client)].client


async def hold(channel: grpc.aio.Channel, number: int, credits: int, held: Held) -> None:
    """One worker: it takes leases and keeps them."""
    hello = worker_pb2.WorkerHello(worker=f"holder-{number}", slots=min(credits, 10_000))
    beat_s = 1.0

    async def speak() -> AsyncIterator[worker_pb2.WorkRequest]:
        yield worker_pb2.WorkRequest(hello=hello, credits=credits)
        while True:
            await asyncio.sleep(beat_s)
            yield worker_pb2.WorkRequest()

    stream = WorkerServiceStub(channel).Work(speak())
    async for frame in stream:
        if frame.HasField("redirect"):
            raise StageFailed(f"worker {number} was sent to {frame.redirect.leader!r}")
        if frame.HasField("welcome"):
            beat_s = 0.8 * frame.welcome.heartbeat.ToTimedelta().total_seconds()
        held.leases += len(frame.leases)
        held.lost += len(frame.stops)
    raise StageFailed(f"the stream of worker {number} was ended")


async def until_held(held: Held, wanted: int, tasks: list[asyncio.Task[None]]) -> None:
    limit = time.monotonic() + 120
    while held.leases < wanted:
        for task in tasks:
            if task.done():
                task.result()
        if time.monotonic() > limit:
            raise StageFailed(f"only {held.leases} of {wanted} leases were granted in 120 s")
        await asyncio.sleep(0.05)
