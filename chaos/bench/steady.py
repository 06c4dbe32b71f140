"""A steady load: so many jobs fall due each second, evenly; how late does each handler start?

Open loop: the jobs are inserted ahead with the instants at which they are due, so a slow cluster
cannot slow the load down. Lateness is from the due time to the start of the handler, by the clock
that all processes of the machine share.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...client import AsyncClient
from ...cluster.local.nodes import NodeProcesses
from ...cluster.local.process import ProcessFailed
from ...proto.v1 import job_pb2
from ..percentile import percentile
from .herd import BATCH, PAYLOAD, ROOM_S, drain, import_all, warm_up
from .worker_processes import WorkerProcesses, by_second

# Figures of each second, or of each look, in their order.
OverTime = dict[str, list[float]]


@dataclass(frozen=True, kw_only=True)
class Steady:
    """What is asked for."""

    rate: float = 1_667.0
    seconds: float = 60.0
    workers: int = 2
    slots: int = 2_000
    # Jobs a second that may be inserted; decides how far ahead the first instant lies.
    insert_rate: int = 15_000

    @property
    def count(self) -> int:
        return int(self.rate * self.seconds)


def requests_of(steady: Steady, first_s: float) -> Iterator[job_pb2.ImportJobsRequest]:
    for start in range(0, steady.count, BATCH):
        request = job_pb2.ImportJobsRequest()
        for number in range(start, min(start + BATCH, steady.count)):
            job = request.jobs.add(name=f"steady-{int(first_s)}-{number:08d}")
            job.spec.action.handler = "noop"
            job.spec.payload.data = PAYLOAD
            due_ms = int((first_s + number / steady.rate) * 1000)
            job.spec.schedules.add().once.time.FromMilliseconds(due_ms)
        yield request


async def run(
    folder: Path, nodes: NodeProcesses, steady: Steady, over_time: OverTime | None = None
) -> dict[str, float | int]:
    """A steady load on a cluster that is there; `over_time` gets what each second was like."""
    workers = WorkerProcesses(
        folder, nodes.endpoints, steady.workers, slots=steady.slots, lateness=True
    )
    workers.start()
    try:
        async with AsyncClient(nodes.endpoints) as client:
            await warm_up(client, workers)
            before = workers.begun()
            first_s = time.time() + steady.count / steady.insert_rate + ROOM_S
            await import_all(client, requests_of(steady, first_s))
            spare = first_s - time.time()
            if spare < 0:
                raise ProcessFailed(f"inserting took {-spare:.1f} s too long")
            await asyncio.sleep(spare)
            cpu = {node.name: node.cpu_s() for node in nodes}
            workers_cpu = workers.cpu_s()
            seconds = await drain(client, workers, before + steady.count, int(first_s * 1000))
            workers_cpu = workers.cpu_s() - workers_cpu
            used = sum(node.cpu_s() - cpu[node.name] for node in nodes)
    finally:
        workers.stop()
    pairs = [(due, 1000 * late) for due, late in workers.pairs(first_s)]
    late = sorted(late for _, late in pairs)
    p99s = [round(ms, 2) for ms in by_second(pairs, first_s, 0.99)]
    if over_time is not None:
        over_time["lateness_p50_ms"] = [round(ms, 2) for ms in by_second(pairs, first_s, 0.5)]
        over_time["lateness_p99_ms"] = p99s
    return {
        "runs": steady.count,
        "begun": len(late),
        "runs_per_s": round(steady.count / seconds, 1),
        "lateness_p50_ms": round(percentile(late, 0.50), 2),
        "lateness_p95_ms": round(percentile(late, 0.95), 2),
        "lateness_p99_ms": round(percentile(late, 0.99), 2),
        "lateness_max_ms": round(late[-1], 2),
        "lateness_worst_second": p99s.index(max(p99s)),
        "lateness_worst_second_p99_ms": max(p99s),
        "nodes_cores": round(used / seconds, 3),
        "nodes_us_per_run": round(used / steady.count * 1e6, 1),
        "workers_us_per_run": round(workers_cpu / steady.count * 1e6, 1),
    }
