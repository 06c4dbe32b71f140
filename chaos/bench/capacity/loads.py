"""The loads whose cost is measured: jobs that are stored, runs at once, and runs each second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ....client import AsyncClient
from ....cluster.local.nodes import NodeProcess, NodeProcesses
from ....proto.v1 import cluster_pb2, job_pb2
from ..failover import leader_of
from ..herd import Herd, drain, import_all, requests_of, warm_up
from ..idle import FAR_S
from ..steady import Steady
from ..steady import requests_of as steady_requests
from ..worker_processes import WorkerProcesses
from .costs import INSERT_S, CostPoints
from .gauges import ClusterUse, Say, TimeLimit, UsedBetween, metric, rss_bytes, state_bytes

SNAPSHOT_S, START_S = 60.0, 60.0
# Between an insert and the instant at which the jobs are due; of that so much is for a look.
ROOM_S, EARLY_S = 1.5, 0.1
SETTLE_S = 1.0
STORE_STEP_S, HERD_STEP_S, STEADY_ROOM_S = 10.0, 5.0, 4.0


@dataclass(frozen=True, kw_only=True)
class CapacitySizes:
    """How much of each is measured: few sizes, so that a line can be laid through them."""

    limit_s: float
    turns: int
    jobs: tuple[int, ...]
    runs: tuple[int, ...]
    rates: tuple[float, ...]
    steady_s: float
    workers: tuple[int, ...]
    leases: tuple[int, ...]
    watch_s: float
    watchers: tuple[int, ...]
    views: tuple[int, ...]


WHOLE = CapacitySizes(
    limit_s=300.0, turns=3, jobs=(100_000, 300_000, 600_000, 1_000_000),
    runs=(5_000, 10_000, 20_000), rates=(200.0, 600.0, 1_800.0), steady_s=4.0,
    workers=(250, 500, 1_000), leases=(10_000, 20_000, 40_000), watch_s=4.0,
    watchers=(25, 50, 100), views=(20, 60),
)  # fmt: skip
QUICK = CapacitySizes(
    limit_s=60.0, turns=1, jobs=(20_000, 60_000), runs=(2_000, 6_000, 10_000),
    rates=(200.0, 1_000.0), steady_s=2.0, workers=(100, 300), leases=(3_000, 9_000), watch_s=2.0,
    watchers=(20, 60), views=(10, 30),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CapacityBench:
    """A cluster that is measured, and where what is found goes."""

    folder: Path
    nodes: NodeProcesses
    client: AsyncClient
    sizes: CapacitySizes
    found: CostPoints
    limit: TimeLimit
    say: Say

    def room_s(self, jobs: int) -> float:
        """How far ahead jobs are due, so that they are inserted by then."""
        return ROOM_S + 1.5 * jobs * self.found.insert_s

    async def leader(self) -> str:
        return await leader_of(self.nodes, self.client)


async def store(bench: CapacityBench) -> None:
    """Jobs that are not due: memory, disk, snapshot, and the start of a node with them."""
    there = 0
    for jobs in bench.sizes.jobs:
        if not bench.limit.fits(STORE_STEP_S + (jobs - there) / 25_000, f"{jobs:,} jobs"):
            return
        before = await ClusterUse.now(bench.nodes)
        due_ms = int((time.time() + FAR_S) * 1000)
        requests = requests_of(Herd(runs=jobs - there), due_ms, f"stored-{there}")
        await import_all(bench.client, requests)
        leader = await bench.leader()
        used = UsedBetween.of(before, await ClusterUse.now(bench.nodes), leader)
        bench.found.add("job_import", jobs - there, used.leader)
        there = jobs
        await measure_state(bench, bench.nodes[leader], jobs)


async def measure_state(bench: CapacityBench, leader: NodeProcess, jobs: int) -> None:
    made = await bench.client.call(cluster_pb2.TakeSnapshotRequest(), timeout=SNAPSHOT_S)
    await asyncio.sleep(SETTLE_S)
    memory = max(rss_bytes(one) for one in bench.nodes)
    journal = await metric(leader, "raftsched_journal_bytes")
    bench.found.journal_bytes = max(bench.found.journal_bytes, journal)
    bench.found.add("job_snapshot", jobs, made.size)
    bench.found.add("job_disk", jobs, state_bytes(bench.folder / leader.name))
    bench.found.add("job_memory", jobs, memory)
    took = [await restart(bench, leader.name) for _ in range(min(2, bench.sizes.turns))]
    for seconds in took:
        bench.found.add("job_start", jobs, seconds)
    bench.say(f"{jobs:,} jobs: a node has {memory >> 20} MB, a snapshot {made.size / 1e6:,.0f} "
              f"MB; a node starts in {min(took):.2f} s")  # fmt: skip


async def restart(bench: CapacityBench, leader: str) -> float:
    """Seconds from the start of a follower that was stopped until all nodes are ready."""
    node = next(one for one in bench.nodes if one.name != leader)
    await asyncio.to_thread(node.stop)
    began = time.monotonic()
    node.start()
    await asyncio.to_thread(bench.nodes.wait_ready, START_S)
    return time.monotonic() - began


async def work(bench: CapacityBench) -> None:
    """Runs of both kinds, in turns, with workers that stay."""
    workers = WorkerProcesses(bench.folder, bench.nodes.endpoints, 2, slots=2_000)
    workers.start()
    try:
        await warm_up(bench.client, workers)
        for turn in range(bench.sizes.turns):
            for rate in bench.sizes.rates:
                await each_second(bench, workers, rate, turn)
            for runs in bench.sizes.runs:
                await at_once(bench, workers, runs, turn)
    finally:
        await asyncio.to_thread(workers.stop)


async def at_once(bench: CapacityBench, workers: WorkerProcesses, runs: int, turn: int) -> None:
    what = f"{runs:,} runs at once, turn {turn + 1}"
    if not bench.limit.fits(HERD_STEP_S, what):
        return
    begun, due_s = workers.begun(), time.time() + bench.room_s(runs)
    due_ms = int(due_s * 1000)
    requests = requests_of(Herd(runs=runs), due_ms, f"once-{turn}-{due_ms}")
    in_time = await imported(bench, requests, runs, due_s)
    seconds, used = await drained(bench, workers, begun + runs, due_ms)
    if not in_time:
        bench.limit.leave_out(what, "inserting took longer than it did before")
        return
    bench.found.best_rate = max(bench.found.best_rate, runs / seconds)
    bench.found.add("run_leader", runs, used.leader)
    bench.found.add("run_follower", runs, used.follower)
    bench.found.add("run_log", runs, used.log)
    bench.found.add("run_disk", runs, used.disk)
    bench.say(f"{runs:,} runs at once: {runs / seconds:,.0f} runs/s")


async def each_second(
    bench: CapacityBench, workers: WorkerProcesses, rate: float, turn: int
) -> None:
    needed, what = bench.sizes.steady_s + STEADY_ROOM_S, f"{rate:,.0f} runs a second"
    if not bench.limit.fits(needed, f"{what}, turn {turn + 1}"):
        return
    steady = Steady(rate=rate, seconds=bench.sizes.steady_s)
    begun, first_s = workers.begun(), time.time() + bench.room_s(steady.count)
    in_time = await imported(bench, steady_requests(steady, first_s), steady.count, first_s)
    _, used = await drained(bench, workers, begun + steady.count, int(first_s * 1000))
    if not in_time:
        why = "inserting took longer than it did before"
        bench.limit.leave_out(f"{what}, turn {turn + 1}", why)
        return
    bench.found.add("rate_leader", rate, used.leader / used.seconds)
    bench.found.add("rate_follower", rate, used.follower / used.seconds)
    bench.found.add("rate_disk", rate, used.disk / used.seconds)
    bench.say(f"{rate:,.0f} runs each second: {used.leader / used.seconds:.3f} of a core "
              f"at the leader")  # fmt: skip


async def imported(
    bench: CapacityBench, requests: Iterator[job_pb2.ImportJobsRequest], jobs: int, due_s: float
) -> bool:
    """Import jobs; whether that was done while the first of them was not yet due."""
    took = await import_all(bench.client, requests)
    bench.found.insert_s = max(INSERT_S, took / jobs)
    return time.time() < due_s - EARLY_S


async def drained(
    bench: CapacityBench, workers: WorkerProcesses, begun: int, due_ms: int
) -> tuple[float, UsedBetween]:
    """Wait until it is due and all is done: seconds from the first to the second, and what
    was used meanwhile."""
    await asyncio.sleep(max(0.0, due_ms / 1000 - time.time() - EARLY_S))
    before = await ClusterUse.now(bench.nodes)
    seconds = await drain(bench.client, workers, begun, due_ms)
    after = await ClusterUse.now(bench.nodes)
    return seconds, UsedBetween.of(before, after, await bench.leader())
