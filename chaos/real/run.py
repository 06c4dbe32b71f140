"""One run of the harness: a cluster, its load, a plan of faults, and the judgement."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...client import AsyncClient
from ..bench.herd import Herd, import_all, requests_of
from . import history, look
from .arena import Arena
from .checks import Seen, Violation, judge
from .faults import Planned, plan
from .history import Plan
from .load import Load, plans_of
from .verdict import verdict

Say = Callable[[str], None]
FAULT_S = 120.0  # With everything that has to come back after it.
LATE_S = 2.0
EDGE_MS = 1_500
HERD = 100_000
HERD_NAME = "herd"
HERD_AHEAD_MS = 15_000


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked for."""

    scenario: str
    nodes: int = 3
    seconds: float = 120.0
    seed: int = 1
    broken_rule: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """What came of it."""

    figures: dict[str, Any]
    violations: list[Violation]
    seen: Seen
    began: float


async def run(folder: Path, asked: Asked, say: Say) -> Told:
    # Stalls cost a lapse each, so only the scenarios about workers have many.
    stall = 0.02 if asked.scenario in ("workers", "mixed") else 0.0
    arena = Arena(folder, asked.nodes, asked.seed, broken_rule=asked.broken_rule, stall=stall)
    began = time.monotonic()
    try:
        await arena.start()
        say(f"{asked.nodes} nodes, {len(arena.workers)} processes of workers and a sink are up")
        load = Load(arena.stage.endpoints, arena.journal, asked.seed)
        async with AsyncClient(arena.stage.endpoints, timeout=30.0) as client:
            from_ms = int(time.time() * 1000) + EDGE_MS
            periods = await load.prepare(client)
            load.start()
            await mistreat(arena, load, asked, say)
            await load.stop()
            await finish(arena, client, periods, from_ms, say)
    finally:
        await arena.stop()
    seen = Seen.of(history.read(arena.history()))
    say(f"judging {len(seen.calls)} calls, {len(seen.leases)} leases, {len(seen.runs)} runs")
    violations = judge(seen)
    return Told(verdict(seen, violations), violations, seen, began)


async def mistreat(arena: Arena, load: Load, asked: Asked, say: Say) -> None:
    began = time.monotonic()
    for fault in plan(asked.scenario, asked.seconds, asked.seed):
        await asyncio.sleep(max(0.0, began + fault.at - time.monotonic()))
        if time.monotonic() - began > asked.seconds + LATE_S:
            break  # A slow machine takes its time to come back, and gets fewer faults.
        arena.check()
        load.check()
        at = time.monotonic() - began
        say(f"{at:6.1f} s  {told(fault)}")
        async with asyncio.timeout(FAULT_S):
            if fault.what == "herd":
                await herd(arena)
            else:
                await arena.do(fault)
    await asyncio.sleep(max(0.0, began + asked.seconds - time.monotonic()))


def told(fault: Planned) -> str:
    words = [fault.what, fault.target, fault.how]
    return " ".join(filter(None, words)) + (f" for {fault.seconds:.1f} s" if fault.seconds else "")


async def herd(arena: Arena) -> None:
    """Very many jobs due at one instant, a moment from now; returns while they are drained."""
    async with AsyncClient(arena.stage.endpoints, timeout=60.0) as client:
        due_ms = int(time.time() * 1000) + HERD_AHEAD_MS
        wanted = Herd(runs=HERD, handler="work")
        await import_all(client, requests_of(wanted, due_ms, HERD_NAME))
        # One nominal time each: the only multiple of itself there is.
        arena.journal.add(
            *(Plan(f"{HERD_NAME}-{n:08d}", due_ms, due_ms, due_ms, 4) for n in range(HERD))
        )
        await asyncio.sleep(max(0.0, due_ms / 1000 + 0.5 - time.time()))


async def finish(
    arena: Arena, client: AsyncClient, periods: dict[str, int], from_ms: int, say: Say
) -> None:
    """Heal everything, let what is under way end, and write down what is there."""
    arena.links.heal()
    await arena.wait_ready()
    until_ms = int(time.time() * 1000) - EDGE_MS
    await look.pause(client, periods)
    say("healed; waiting for what is under way")
    await look.until_quiet(client)
    arena.check()
    arena.journal.add(*plans_of(periods, from_ms, until_ms))
    names = []
    async for job in look.jobs(client):
        arena.journal.add(job)
        if not job.job.startswith(f"{HERD_NAME}-"):
            names.append(job.job)
    async for event in look.herd_runs(client, HERD_NAME):
        arena.journal.add(event)
    for name in names:
        async for run_ in look.runs(client, name):
            arena.journal.add(run_)
    for name in periods:
        async for outcome in look.outcomes(client, name):
            arena.journal.add(outcome)
    arena.journal.add(*await look.copies(arena.stage))
