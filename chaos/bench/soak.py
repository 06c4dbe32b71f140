"""A load for hours, with people and workers that come and go: does anything grow?

Half of the runs are of jobs that stay and are due again and again; half are of jobs that are made
some seconds ahead, run once, and delete themselves. Beside them one worker ends and is started
again, clients open connections, read, watch and leave, and the leadership moves now and then. What
is kept of runs ends within minutes, so that the end of a run's life lies within the soak too.
Looked at each few seconds: memory, descriptors and disk of each node, and how late runs began.
"""

from __future__ import annotations

import asyncio
import signal
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from ...client import AsyncClient
from ...client.errors import RaftschedError
from ...cluster.local.nodes import NodeProcess, NodeProcesses
from ...cluster.local.process import ProcessFailed
from ...proto.v1 import cluster_pb2, event_pb2, job_pb2, namespace_pb2
from ..percentile import percentile
from .capacity.gauges import rss_bytes
from .disk_use import disk_bytes
from .failover import leader_of
from .herd import BATCH, PAYLOAD, import_all, warm_up
from .worker_processes import WorkerProcesses

# Jobs that stay are due once in so many seconds, spread evenly over them.
PERIOD_S = 10
# Jobs that run once are made so long before they are due, those of a second at a time.
AHEAD_S = 5.0
# One of so many of them fails at its first attempt.
FLAKY_EACH = 50
KEEP = timedelta(seconds=60)
DELETE_AFTER = timedelta(seconds=30)
# Of the whole soak: so many looks, ends of a worker, and changes of the leader.
LOOKS, WORKER_ENDS, LEADERS = 720, 120, 12
LOOK_S_MIN, WORKER_S_MIN, LEADER_S_MIN, SAY_S = 1.0, 5.0, 10.0, 60.0
VISIT_EACH_S, VISIT_S = 1.0, 10.0
END_S = 60.0
# What was before this share of the time is for buffers and caches to fill.
WARM_UP = 1 / 6


@dataclass(frozen=True, kw_only=True)
class Soak:
    """What is asked for."""

    rate: float = 500.0
    seconds: float = 7_200.0

    def each(self, parts: int, least: float) -> float:
        return max(least, self.seconds / parts)


@dataclass(slots=True)
class SoakSeen:
    """What was seen: each gauge by its name, at the instants of `at`."""

    began: float = 0.0
    at: list[float] = field(default_factory=list)
    gauges: dict[str, list[float]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    # What all nodes used of processors meanwhile.
    cpu_s: float = 0.0

    @property
    def lasted(self) -> float:
        return self.at[-1] if self.at else 0.0

    def note(self, gauge: str, value: float) -> None:
        self.gauges.setdefault(gauge, []).append(round(value, 2))


@dataclass(frozen=True, slots=True)
class SoakGrowth:
    """What a gauge was behind the warm-up and at the end, each the median of a sixth."""

    early: float
    late: float

    @property
    def share(self) -> float:
        return self.late / self.early - 1 if self.early else 0.0


def growth(at: list[float], values: list[float]) -> SoakGrowth:
    """Of the second sixth of the time, and of the last one."""
    whole = at[-1] - at[0]
    parts: tuple[list[float], list[float]] = ([], [])
    for instant, value in zip(at, values, strict=True):
        share = (instant - at[0]) / whole if whole else 1.0
        if WARM_UP <= share < 2 * WARM_UP:
            parts[0].append(value)
        if share >= 1 - WARM_UP:
            parts[1].append(value)
    early, late = (percentile(part, 0.5, 0.0) for part in parts)
    return SoakGrowth(early, late)


def lasting_jobs(soak: Soak, now_s: float) -> Iterator[job_pb2.ImportJobsRequest]:
    """Jobs that stay: half of the rate, each due once in a period."""
    count = max(1, int(soak.rate / 2 * PERIOD_S))
    first_ms = int((now_s + PERIOD_S) * 1000)
    for start in range(0, count, BATCH):
        request = job_pb2.ImportJobsRequest()
        for number in range(start, min(start + BATCH, count)):
            job = request.jobs.add(name=f"lasting-{number:06d}")
            job.spec.action.handler = "noop"
            job.spec.payload.data = PAYLOAD
            job.spec.keep_history.FromTimedelta(KEEP)
            interval = job.spec.schedules.add().interval
            interval.every.FromSeconds(PERIOD_S)
            interval.anchor.FromMilliseconds(first_ms + PERIOD_S * 1000 * number // count)
        yield request


def passing_jobs(soak: Soak, second: int, due_s: float) -> job_pb2.ImportJobsRequest:
    """Jobs of one second that run once: the other half."""
    request = job_pb2.ImportJobsRequest()
    count = max(1, int(soak.rate / 2))
    for number in range(count):
        job = request.jobs.add(name=f"passing-{second:06d}-{number:05d}")
        flaky = number % FLAKY_EACH == FLAKY_EACH - 1
        job.spec.action.handler = "flaky" if flaky else "noop"
        job.spec.payload.data = PAYLOAD
        job.spec.retry.first.FromTimedelta(timedelta(seconds=1))
        job.spec.delete_after.FromTimedelta(DELETE_AFTER)
        due_ms = int((due_s + number / count) * 1000)
        job.spec.schedules.add().once.time.FromMilliseconds(due_ms)
    return request


@dataclass(slots=True)
class SoakRun:
    """A soak under way."""

    folder: Path
    nodes: NodeProcesses
    asked: Soak
    say: Callable[[str], None]
    client: AsyncClient
    workers: WorkerProcesses
    seen: SoakSeen = field(default_factory=SoakSeen)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    async def play(self) -> None:
        """The whole of it; SIGINT and SIGTERM end it early, and what was seen is reported."""
        self.workers.start()
        try:
            await warm_up(self.client, self.workers)
            await self.keep_little()
            await import_all(self.client, lasting_jobs(self.asked, time.time()))
            self.seen.began = time.time()
            parts: tuple[Coroutine[None, None, None], ...] = (
                self.make(), self.look(),
                self.again(self.asked.each(WORKER_ENDS, WORKER_S_MIN), self.change_worker),
                self.again(self.asked.each(LEADERS, LEADER_S_MIN), self.change_leader),
                self.again(VISIT_EACH_S, self.visit),
            )  # fmt: skip
            cpu_s = sum(node.cpu_s() for node in self.nodes)
            await self.until_the_end([asyncio.create_task(part) for part in parts])
            self.seen.cpu_s = sum(node.cpu_s() for node in self.nodes) - cpu_s
            await self.drain()
        finally:
            await asyncio.to_thread(self.workers.stop)

    async def until_the_end(self, tasks: list[asyncio.Task[Any]]) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stopped.set)
        ending = asyncio.create_task(self.stopped.wait())
        try:
            await asyncio.wait(
                [*tasks, ending], timeout=self.asked.seconds, return_when=asyncio.FIRST_COMPLETED
            )
            self.stopped.set()
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in (*tasks, ending):
                task.cancel()
            await asyncio.gather(*tasks, ending, return_exceptions=True)

    async def keep_little(self) -> None:
        """Histories, ledgers and audit records of minutes, where days are usual."""
        namespace = namespace_pb2.Namespace(name="default")
        for kept in (
            namespace.keep_succeeded, namespace.keep_failed, namespace.keep_ledger,
            namespace.keep_audit,
        ):  # fmt: skip
            kept.FromTimedelta(KEEP)
        await self.client.call(namespace_pb2.UpdateNamespaceRequest(namespace=namespace))

    async def again(self, every_s: float, do: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(every_s)
            await do()

    async def make(self) -> None:
        """Jobs that run once, by the clock: a slow cluster does not slow the load down."""
        second = 0
        while True:
            due_s = self.seen.began + AHEAD_S + second
            await asyncio.sleep(max(0.0, due_s - AHEAD_S - time.time()))
            request = passing_jobs(self.asked, second, due_s)
            await import_all(self.client, iter([request]))
            self.seen.counts["jobs_made"] += len(request.jobs)
            second += 1

    async def look(self) -> None:
        every_s = self.asked.each(LOOKS, LOOK_S_MIN)
        next_s, reported_s = time.monotonic(), time.monotonic()
        while True:
            self.seen.at.append(time.time() - self.seen.began)
            for node in self.nodes:
                for gauge, value in (await asyncio.to_thread(gauges_of, self.folder, node)).items():
                    self.seen.note(f"{node.name} {gauge}", value)
            if time.monotonic() >= reported_s:
                reported_s += SAY_S
                self.say(self.word())
            next_s += every_s
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))

    def word(self) -> str:
        memory = max(self.seen.gauges[f"{name} memory_mb"][-1] for name in self.nodes.names)
        return (
            f"{self.seen.at[-1]:,.0f} of {self.asked.seconds:,.0f} s: "
            f"{self.workers.begun():,} runs begun, a node has {memory:,.0f} MB"
        )

    async def change_worker(self) -> None:
        """The last of them ends in order, and another one comes."""
        await asyncio.to_thread(self.workers.change, -1)
        self.seen.counts["workers_ended"] += 1

    async def change_leader(self) -> None:
        await self.client.call(cluster_pb2.TransferLeadershipRequest(), timeout=VISIT_S)
        self.seen.counts["leaders_changed"] += 1
        await leader_of(self.nodes, self.client)

    async def visit(self) -> None:
        """Somebody connects, reads, watches for a moment, and leaves."""
        self.seen.counts["visits"] += 1
        try:
            async with AsyncClient(self.nodes.endpoints) as client:
                await client.call(job_pb2.ListJobsRequest(page_size=100), timeout=VISIT_S)
                await client.call(cluster_pb2.GetClusterStatusRequest(), timeout=VISIT_S)
                watch = client.stream(event_pb2.WatchEventsRequest(), timeout=VISIT_S)
                async with aclosing(watch):
                    with suppress(StopAsyncIteration):
                        await anext(watch)
        except RaftschedError:
            # As where the leader changes; it is counted, and shown.
            self.seen.counts["visits_broken_off"] += 1

    async def drain(self) -> None:
        """All that was made has run, and has deleted itself."""
        limit = time.monotonic() + END_S + DELETE_AFTER.total_seconds()
        request = job_pb2.ListJobsRequest(filter="name=passing*", page_size=1)
        while (left := await self.client.call(request)).jobs:
            if time.monotonic() > limit:
                raise ProcessFailed(f"{left.jobs[0].name} is still there; it ran once or never")
            await asyncio.sleep(0.5)


def gauges_of(folder: Path, node: NodeProcess) -> dict[str, float]:
    return {
        "memory_mb": rss_bytes(node) / 1e6,
        "descriptors": sum(1 for _ in Path(f"/proc/{node.pid}/fd").iterdir()),
        "disk_mb": disk_bytes(folder / node.name) / 1e6,
    }


async def run(
    folder: Path, nodes: NodeProcesses, soak: Soak, say: Callable[[str], None], seen: SoakSeen
) -> None:
    """A soak on a cluster that is there; `seen` gets every look, also of one that fails."""
    workers = WorkerProcesses(folder, nodes.endpoints, 2, slots=2_000, lateness=True)
    async with AsyncClient(nodes.endpoints) as client:
        whole = SoakRun(folder, nodes, soak, say, client, workers, seen)
        try:
            await whole.play()
        finally:
            if len(seen.at) > 1:
                note_lateness(seen, list(workers.pairs(seen.began)))


def note_lateness(seen: SoakSeen, pairs: list[tuple[float, float]]) -> None:
    """Of the runs that were due between a look and the next one; the last look has those of the one
    before. Runs of which the first attempt was to fail are not timed."""
    windows: list[list[float]] = [[] for _ in seen.at[1:]]
    for due, late in pairs:
        number = bisect_right(seen.at, due - seen.began) - 1
        if 0 <= number < len(windows):
            windows[number].append(late)
    for window in (*windows, *windows[-1:]):
        for name, share in (("lateness_p50_ms", 0.5), ("lateness_p99_ms", 0.99)):
            seen.note(name, 1000 * percentile(window, share, 0.0))
    seen.counts["runs_timed"] = sum(map(len, windows))


def figures(soak: Soak, seen: SoakSeen) -> dict[str, float | int]:
    lasted = seen.lasted
    found: dict[str, float | int] = {
        "rate": soak.rate, "seconds": round(lasted), **seen.counts,
        "nodes_cores": round(seen.cpu_s / lasted, 3) if lasted else 0.0,
    }  # fmt: skip
    for name, values in seen.gauges.items():
        grown = growth(seen.at, values)
        found[f"{name} early"] = grown.early
        found[f"{name} late"] = grown.late
        found[f"{name} growth_percent"] = round(100 * grown.share, 1)
    return found
