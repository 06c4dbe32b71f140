"""A herd: jobs that were inserted ahead, all due at one instant.

Counted from that instant until the last completion is committed: the workers have begun all
runs, and the cluster, asked with a linearizable read, has none under way any more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...client import AsyncClient
from ...cluster.local.nodes import NodeProcesses
from ...cluster.local.process import ProcessFailed
from ...proto.v1 import job_pb2, namespace_pb2
from .worker_processes import WorkerProcesses

BATCH = 1_000
ROOM_S = 3.0  # Between the last insert and the instant.
PAYLOAD = b'{"to": "somebody@example.com", "subject": "Hello"}'
IMPORTERS = 4
IMPORT_S = 300.0  # For one request: on a machine with other work to do it may have to wait.


@dataclass(frozen=True, kw_only=True)
class Herd:
    """What is asked for."""

    runs: int = 100_000
    workers: int = 2
    slots: int = 2_000
    recurring: bool = False
    jitter_s: float = 0.0
    handler: str = "noop"
    # Jobs a second that may be inserted; decides how far ahead the instant lies.
    insert_rate: int = 15_000


async def import_all(
    client: AsyncClient,
    requests: Iterator[job_pb2.ImportJobsRequest],
    progress: Callable[[int], None] = lambda jobs: None,
) -> float:
    """Import all jobs, some requests at a time; the seconds it took.

    `progress` is called with the jobs of each request that was answered.
    """
    began = time.monotonic()

    async def pull() -> None:
        for request in requests:
            response = await client.call(request, timeout=IMPORT_S)
            refused = [result for result in response.results if result.reason]
            if refused:
                raise ProcessFailed(f"{len(refused)} jobs were refused; the first: {refused[0]}")
            progress(len(request.jobs))

    await asyncio.gather(*(pull() for _ in range(IMPORTERS)))
    return time.monotonic() - began


def requests_of(herd: Herd, due_ms: int, name: str) -> Iterator[job_pb2.ImportJobsRequest]:
    for start in range(0, herd.runs, BATCH):
        request = job_pb2.ImportJobsRequest()
        for number in range(start, min(start + BATCH, herd.runs)):
            job = request.jobs.add(name=f"{name}-{number:08d}")
            job.spec.action.handler = herd.handler
            job.spec.payload.data = PAYLOAD
            schedule = job.spec.schedules.add()
            if herd.recurring:
                # Every day at that very second.
                at = time.gmtime(due_ms // 1000)
                expression = f"{at.tm_sec} {at.tm_min} {at.tm_hour} * * *"
                schedule.cron.expression = expression
            else:
                schedule.once.time.FromMilliseconds(due_ms)
            if herd.jitter_s:
                job.spec.timing.jitter.FromMilliseconds(int(herd.jitter_s * 1000))
        yield request


async def live_runs(client: AsyncClient) -> int:
    namespace = await client.call(namespace_pb2.GetNamespaceRequest(namespace="default"))
    return int(namespace.usage.live_runs)


async def drain(client: AsyncClient, workers: WorkerProcesses, runs: int, due_ms: int) -> float:
    """Wait until all is done; the seconds since the instant."""
    limit = time.monotonic() + max(60.0, runs / 1_000) + max(0.0, due_ms / 1000 - time.time())
    while workers.begun() < runs:
        if time.monotonic() > limit:
            raise ProcessFailed(f"{workers.begun()} of {runs} runs were begun in time")
        await asyncio.sleep(0.01)
    while await live_runs(client):
        if time.monotonic() > limit:
            raise ProcessFailed(f"{await live_runs(client)} runs are still under way")
        await asyncio.sleep(0.005)
    return time.time() - due_ms / 1000


async def run(folder: Path, nodes: NodeProcesses, herd: Herd) -> dict[str, float | int]:
    """One herd on a cluster that is there."""
    workers = WorkerProcesses(folder, nodes.endpoints, herd.workers, slots=herd.slots)
    workers.start()
    try:
        async with AsyncClient(nodes.endpoints) as client:
            await warm_up(client, workers)
            before = workers.begun()
            room = herd.runs / herd.insert_rate + ROOM_S
            due_ms = int(time.time() + room) * 1000
            took = await import_all(client, requests_of(herd, due_ms, "herd"))
            spare = due_ms / 1000 - time.time()
            if spare < 0:
                raise ProcessFailed(f"inserting took {took:.1f} s, {-spare:.1f} s too long")
            await asyncio.sleep(max(0.0, spare - 0.2))
            cpu = {node.name: node.cpu_s() for node in nodes}
            workers_cpu = workers.cpu_s()
            seconds = await drain(client, workers, before + herd.runs, due_ms)
            used = {node.name: node.cpu_s() - cpu[node.name] for node in nodes}
            each = 1e6 / herd.runs
            return {
                "runs": herd.runs,
                "seconds": round(seconds, 3),
                "runs_per_s": round(herd.runs / seconds),
                "inserted_per_s": round(herd.runs / took),
                "leader_us_per_run": round(max(used.values()) * each, 1),
                "nodes_us_per_run": round(sum(used.values()) * each, 1),
                "workers_us_per_run": round((workers.cpu_s() - workers_cpu) * each, 1),
            }
    finally:
        workers.stop()


async def warm_up(client: AsyncClient, workers: WorkerProcesses, runs: int = 2_000) -> None:
    """Run some jobs through, so that everything is loaded and connected."""
    due_ms = int(time.time() * 1000) + 500
    before = workers.begun()
    await import_all(client, requests_of(Herd(runs=runs), due_ms, f"warm-{due_ms}"))
    await drain(client, workers, before + runs, due_ms)
