"""One run of the harness: a cluster, its load, a plan of faults, and what the checks find."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...client import AsyncClient
from ...cluster.local.process import ProcessFailed
from ..bench.herd import Herd, import_all, requests_of
from . import builds, final_state, history, jobs, machine
from .chaos_cluster import ChaosCluster
from .checks import violations_in
from .faults import UPGRADES, Planned, plan
from .history import Bounds, FaultSpan, Observations, RecurringJob
from .injector import Injector
from .link_backend import Proxies
from .load import Load
from .netns_links import NetnsLinks
from .verdict import verdict
from .violation import Violation

Say = Callable[[str], None]
FAULT_S = 400.0  # With everything that has to come back after it.
LATE_S = 2.0
SIDE_BY_SIDE = 3
DUE_S = 3.0
EDGE_MS = 1_500
# Time to import a herd: its instant is so far ahead.
HERD_AHEAD_S, HERD_RATE = 3.0, 8_000


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What is asked for."""

    scenario: str
    nodes: int = 3
    seconds: float = 120.0
    seed: int = 1
    broken_rule: str = ""
    # How late a first attempt may begin, and how long after a fault it may be later.
    late_ms: float = 1_000.0
    recover_s: float = 10.0
    # Within so much 99 of 100 have to begin while nothing is wrong.
    quiet_ms: float = 50.0
    # How many jobs are due at one instant in `herd-failover`.
    herd: int = 100_000
    # Links are the kernel's, in network namespaces, instead of proxies.
    netns: bool = False
    # The older build of `upgrade`; None is taken from git.
    older: Path | None = None


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """What came of it."""

    figures: dict[str, Any]
    violations: list[Violation]
    seen: Observations
    began: float


async def run(folder: Path, asked: RunOptions, say: Say) -> ScenarioResult:
    # Stalls cost a lapse each, so only the scenarios about workers have many.
    stall = 0.02 if asked.scenario in ("workers", "mixed") else 0.0
    links = NetnsLinks() if asked.netns else Proxies()
    older = None
    if asked.scenario in UPGRADES:
        older = builds.named(asked.older) if asked.older else builds.from_git(folder)
        say(f"all nodes begin as {older.name}")
    cluster = ChaosCluster(
        folder, asked.nodes, asked.seed, links, broken_rule=asked.broken_rule, stall=stall,
        older=older,
    )  # fmt: skip
    began = time.monotonic()
    watching = asyncio.create_task(machine.watch(cluster.journal, folder, cluster.processes))
    try:
        await cluster.start()
        say(f"{asked.nodes} nodes, {len(cluster.workers)} processes of workers and a sink are up")
        if asked.scenario != "herd-failover":  # What waits behind a herd is late by its length.
            cluster.journal.add(Bounds(asked.late_ms, asked.recover_s, asked.quiet_ms))
        load = Load(cluster.nodes.endpoints, cluster.journal, asked.seed)
        async with AsyncClient(cluster.nodes.endpoints, timeout=30.0) as client:
            await load.prepare(client)
            from_ms = int(time.time() * 1000) + EDGE_MS
            load.start()
            await mistreat(cluster, load, asked, say)
            await cluster.links.act("heal")
            await cluster.wait_ready()
            await load.stop()
            # What was ordered for a moment from now has to come before there can be quiet.
            await asyncio.sleep(max(0.0, load.last_due_ms / 1000 + DUE_S - time.time()))
            await finish(cluster, client, from_ms, say)
        if watching.done():
            watching.result()  # Nothing that it missed may be taken for a quiet machine.
    except* ProcessFailed as failed:
        raise failed.exceptions[0] from None
    finally:
        watching.cancel()
        await cluster.stop()
    ran = time.monotonic()
    seen = Observations.of(history.read(cluster.history()))
    say(f"checking {len(seen.calls)} calls, {len(seen.leases)} leases, {len(seen.runs)} runs")
    violations = violations_in(seen)
    figures = verdict(seen, violations)
    took = {"wall_s": round(ran - began, 1), "checking_s": round(time.monotonic() - ran, 1)}
    return ScenarioResult(figures | took, violations, seen, began)


async def mistreat(cluster: ChaosCluster, load: Load, asked: RunOptions, say: Say) -> None:
    """One fault after the other; `mixed` begins some before others have ended."""
    injector = Injector(cluster)
    began = time.monotonic()
    most = SIDE_BY_SIDE if asked.scenario == "mixed" else 1
    async with asyncio.TaskGroup() as under_way:
        places = asyncio.Semaphore(most)
        for fault in plan(asked.scenario, asked.seconds, asked.seed, asked.nodes):
            await asyncio.sleep(max(0.0, began + fault.at - time.monotonic()))
            await places.acquire()
            slow = time.monotonic() - began > asked.seconds + LATE_S
            if slow and asked.scenario not in UPGRADES:
                break  # A slow machine takes its time to come back, and gets fewer faults.
            cluster.check()
            load.check()
            say(f"{time.monotonic() - began:6.1f} s  {described(fault)}")
            task = under_way.create_task(do(injector, fault, asked.herd))
            task.add_done_callback(lambda _: places.release())
    await asyncio.sleep(max(0.0, began + asked.seconds - time.monotonic()))


async def do(injector: Injector, fault: Planned, jobs_due: int) -> None:
    async with asyncio.timeout(FAULT_S):
        if fault.what == "herd":
            await herd(injector.cluster, jobs_due)
        else:
            await injector.do(fault)


def described(fault: Planned) -> str:
    words = [fault.what, fault.target, fault.how]
    return " ".join(filter(None, words)) + (f" for {fault.seconds:.1f} s" if fault.seconds else "")


async def herd(cluster: ChaosCluster, count: int) -> None:
    """Very many jobs due at one instant, a moment from now; returns while they are drained."""
    began = time.monotonic()
    async with AsyncClient(cluster.nodes.endpoints, timeout=60.0) as client:
        due_ms = int(1000 * (time.time() + HERD_AHEAD_S + count / HERD_RATE))
        wanted = Herd(runs=count, handler="work")
        await import_all(client, requests_of(wanted, due_ms, jobs.HERD))
        # One scheduled time each: the only multiple of itself there is.
        cluster.journal.add(
            *(
                RecurringJob(f"{jobs.HERD}-{n:08d}", due_ms, due_ms, due_ms, 4, must_run=True)
                for n in range(count)
            )
        )
        spare = due_ms / 1000 - time.time()
        sign = f"{count} jobs imported" + (f", {-spare:.1f} s too late" if spare < 0 else "")
        await asyncio.sleep(max(0.0, spare + 0.5))
    cluster.journal.add(FaultSpan("herd", "", began, time.monotonic(), sign))


async def finish(cluster: ChaosCluster, client: AsyncClient, from_ms: int, say: Say) -> None:
    """Heal everything, let what is under way end, and write down what is there."""
    until_ms = int(time.time() * 1000) - EDGE_MS
    # What was due and waits to be fired, behind a herd for instance, would wait for the resume.
    await final_state.until_fired(client, jobs.recurring(), until_ms)
    await final_state.pause(client, jobs.recurring())
    say("healed; waiting for what is under way")
    await final_state.until_quiet(client)
    cluster.check()
    cluster.journal.add(*jobs.plans(from_ms, until_ms))
    names = []
    async for job in final_state.jobs(client):
        cluster.journal.add(job)
        if not job.job.startswith((f"{jobs.HERD}-", f"{jobs.ONCE}-")):
            names.append(job.job)
    for many in (jobs.HERD, jobs.ONCE):
        async for event in final_state.herd_runs(client, many):
            cluster.journal.add(event)
    for name in names:
        async for run_ in final_state.runs(client, name):
            cluster.journal.add(run_)
    for name in jobs.recurring():
        async for outcome in final_state.outcomes(client, name):
            cluster.journal.add(outcome)
    cluster.journal.add(*await final_state.copies(cluster.nodes, cluster.token))
    cluster.journal.add(*await final_state.verified(cluster.nodes, cluster.token))
