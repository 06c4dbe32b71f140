"""Creating jobs: one call after the other, by many clients at once, and in bulk."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from ...client import AsyncClient
from ...cluster.local.nodes import NodeProcesses
from ...proto.v1 import job_pb2
from ..percentile import percentile
from .herd import PAYLOAD, Herd, import_all, requests_of

FAR_S = 86_400
ALONE_S = 3.0  # How long one client calls with nobody beside it.


@dataclass(frozen=True, kw_only=True)
class Create:
    """What is asked for."""

    clients: int = 32
    seconds: float = 10.0
    bulk: int = 200_000


async def run(nodes: NodeProcesses, create: Create) -> dict[str, float | int]:
    async with AsyncClient(nodes.endpoints) as client:
        await one_by_one(client, create.clients, 1.0, "warm")
        alone = await one_by_one(client, 1, ALONE_S, "alone")
        took = await one_by_one(client, create.clients, create.seconds, "single")
        due_ms = int((time.time() + FAR_S) * 1000)
        herd = Herd(runs=create.bulk)
        bulk_s = await import_all(client, requests_of(herd, due_ms, "bulk"))
    alone.sort()
    took.sort()
    return {
        "alone_p50_ms": round(1000 * percentile(alone, 0.5), 2),
        "alone_p99_ms": round(1000 * percentile(alone, 0.99), 2),
        "single_per_s": round(len(took) / create.seconds),
        "single_p50_ms": round(1000 * percentile(took, 0.5), 2),
        "single_p99_ms": round(1000 * percentile(took, 0.99), 2),
        "bulk_per_s": round(create.bulk / bulk_s),
        "bulk_jobs": create.bulk,
    }


async def one_by_one(client: AsyncClient, clients: int, seconds: float, name: str) -> list[float]:
    """Seconds that each call took. Closed loop: each client waits for its answer."""
    until = time.monotonic() + seconds
    due_ms = int((time.time() + FAR_S) * 1000)
    took: list[float] = []

    async def one(number: int) -> None:
        count = 0
        while (began := time.monotonic()) < until:
            request = job_pb2.CreateJobRequest()
            request.job.name = f"{name}-{number}-{count}"
            request.job.spec.action.handler = "noop"
            request.job.spec.payload.data = PAYLOAD
            # Spread over a day, as the jobs of many people are.
            at_ms = due_ms + (len(took) * 7_919) % 86_400 * 1_000
            request.job.spec.schedules.add().once.time.FromMilliseconds(at_ms)
            await client.call(request)
            took.append(time.monotonic() - began)
            count += 1

    await asyncio.gather(*(one(number) for number in range(clients)))
    return took
