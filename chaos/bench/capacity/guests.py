"""Who stays connected, and what that costs: workers, leases, watchers, and people who look."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ....client import AsyncClient
from ....cluster.local.process import Process, ProcessFailed
from ....proto.v1 import job_pb2
from ..herd import Herd, import_all, requests_of
from ..http import HttpConnection, gateway
from ..idle_worker import IdleWorker, IdleWorkerPool
from ..pages import figures_path, troubles_paths
from .gauges import ClusterUse, UsedBetween, rss_bytes
from .loads import CapacityBench

# Workers are asked for a heartbeat more often than by default, so that a short look sees it; so
# each of them costs as much of a processor as several.
MEASURED_HEARTBEAT_MS, HEARTBEAT_MS = 2_000, 10_000
CONNECTED_S, GRANTED_S = 30.0, 60.0
WORKERS_PER_CONNECTION = 100
LOOK_S = 0.05
EVENTS_PER_S = 20.0
WATCH_ROOM_S, VIEW_S = 6.0, 5.0
# What a browser asks for when an overview is opened, beside figures and troubles.
FORECAST = "/v1/forecast?namespace=default&ahead=3600s&maxAge=600s"
VIEW_PATHS = ("/", "/v1/cluster", "/v1/whoami", FORECAST)


async def connected(bench: CapacityBench) -> None:
    """Workers that hold nothing, then leases: processor and memory of the leader."""
    sizes = bench.sizes
    pool = IdleWorkerPool([node.client for node in bench.nodes], WORKERS_PER_CONNECTION)
    leader = await bench.leader()
    credits = -(-max(sizes.leases) // max(sizes.workers))
    tasks: list[asyncio.Task[None]] = []
    try:
        for workers in (0, *sizes.workers):
            if not bench.limit.fits(2 * sizes.watch_s, f"{workers:,} workers"):
                return
            address = bench.nodes[leader].client
            tasks += [
                asyncio.create_task(IdleWorker(pool, number, credits).keep(address))
                for number in range(len(tasks), workers)
            ]
            await grown(lambda: len(pool.welcomed), workers, CONNECTED_S, "workers are connected")
            await watched(bench, leader, "worker", workers)
        if len(tasks) < max(sizes.workers):
            return
        for before, leases in zip((0, *sizes.leases), sizes.leases, strict=False):
            if not bench.limit.fits(2 * sizes.watch_s, f"{leases:,} leases"):
                return
            due_ms = int(time.time() * 1000)
            herd = Herd(runs=leases - before)
            await import_all(bench.client, requests_of(herd, due_ms, f"held-{before}"))
            await grown(lambda: pool.leases, leases, GRANTED_S, "leases are held")
            await watched(bench, leader, "lease", leases)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await pool.close()


async def grown(count: Callable[[], int], wanted: int, seconds: float, text: str) -> None:
    limit = time.monotonic() + seconds
    while count() < wanted:
        if time.monotonic() > limit:
            raise ProcessFailed(f"after {seconds:.0f} s {count():,} of {wanted:,} {text}")
        await asyncio.sleep(LOOK_S)


async def watched(bench: CapacityBench, leader: str, kind: str, count: int) -> None:
    """What the leader needs while they do nothing but say that they are alive."""
    await asyncio.sleep(bench.sizes.watch_s / 2)
    before = await ClusterUse.now(bench.nodes)
    await asyncio.sleep(bench.sizes.watch_s)
    used = UsedBetween.of(before, await ClusterUse.now(bench.nodes), leader)
    memory = rss_bytes(bench.nodes[leader])
    as_many = count * HEARTBEAT_MS / MEASURED_HEARTBEAT_MS
    bench.found.add(f"{kind}_leader", as_many, used.leader / used.seconds)
    bench.found.add(f"{kind}_memory", count, memory)
    bench.say(f"{count:,} {kind}s: {used.leader / used.seconds:.3f} of a core at the leader, "
              f"{memory >> 20} MB")  # fmt: skip


async def looking(bench: CapacityBench) -> None:
    """Watchers and views go through a gateway of their own."""
    async with gateway(bench.folder, bench.nodes) as (process, port, _):
        await views(bench, process, port)
        await watchers(bench, process, port)


async def views(bench: CapacityBench, process: Process, port: int) -> None:
    caller, figures = HttpConnection(port), figures_path()
    paths = [*VIEW_PATHS, *figures(), *troubles_paths()]
    try:
        for turn in range(-1, bench.sizes.turns):
            # The first round fills what the gateway keeps, and is not counted.
            for count in bench.sizes.views if turn >= 0 else (2,):
                if not bench.limit.fits(VIEW_S, f"{count:,} views, turn {turn + 1}"):
                    return
                before, gateway_s = await ClusterUse.now(bench.nodes), process.cpu_s()
                for _ in range(count):
                    for path in paths:
                        if (status := await caller.ask("GET", path)) != 200:
                            raise ProcessFailed(f"{path} was answered with {status}")
                if turn < 0:
                    continue
                used = UsedBetween.of(
                    before, await ClusterUse.now(bench.nodes), await bench.leader()
                )
                bench.found.add("view_gateway", count, process.cpu_s() - gateway_s)
                bench.found.add("view_nodes", count, used.nodes)
                bench.say(f"{count:,} views: {(process.cpu_s() - gateway_s) / count * 1e3:.1f} ms "
                          f"of the gateway each")  # fmt: skip
    finally:
        caller.close()


async def watchers(bench: CapacityBench, process: Process, port: int) -> None:
    """Streams of events, with some events each second."""
    tasks: list[asyncio.Task[None]] = []
    received: list[int] = []
    made = 0
    try:
        for count in (0, *bench.sizes.watchers):
            if not bench.limit.fits(bench.sizes.watch_s + WATCH_ROOM_S, f"{count:,} watchers"):
                return
            for number in range(len(tasks), count):
                received.append(0)
                tasks.append(asyncio.create_task(watch(port, number, received)))
            await asyncio.sleep(1.0)
            events = int(EVENTS_PER_S * bench.sizes.watch_s)
            before, gateway_s, seen = time.monotonic(), process.cpu_s(), sum(received)
            for number in range(events):
                await create_one(bench.client, f"seen-{made}")
                made += 1
                await asyncio.sleep(max(0.0, before + number / EVENTS_PER_S - time.monotonic()))
            wanted = events * count + seen
            await grown(lambda: sum(received), wanted, CONNECTED_S, "events were received")
            bench.found.add("event_gateway", events * count, process.cpu_s() - gateway_s)
            bench.found.add("watcher_memory", count, rss_bytes(process))
            bench.say(f"{count:,} watchers of {events} events: {process.cpu_s() - gateway_s:.2f} s "
                      f"of the gateway, {rss_bytes(process) >> 20} MB")  # fmt: skip
            if ended := [task for task in tasks if task.done()]:
                raise ProcessFailed(f"{len(ended)} streams of events ended")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def watch(port: int, number: int, received: list[int]) -> None:
    caller = HttpConnection(port)
    try:
        reader = await caller.send("GET", "/v1/events:watch?filter=kind%3DJOB_CREATED", None)
        while chunk := await reader.read(1 << 16):
            received[number] += chunk.count(b'"job":')
    finally:
        caller.close()


async def create_one(client: AsyncClient, name: str) -> None:
    request = job_pb2.CreateJobRequest()
    request.job.name = name
    request.job.spec.action.handler = "none"
    await client.call(request)
