"""`raftsched chaos run hostile`: attack after attack on a cluster that has work to do."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....cluster.local.process import ProcessFailed
from .. import history, machine
from ..checks import violations_in
from ..faults import LEADER, Planned
from ..history import Observations
from ..load import Load
from ..run import DUE_S, EDGE_MS, finish
from ..verdict import DOUBLED, LOST
from .checks import HostileLimits, Played, verdict
from .gateway_watch import SPACE
from .hands import names as names_of
from .stand import Say, Stand
from .table import ATTACKS, Attack

WARM_S = 3.0
KILL_EVERY_S, KILL_DOWN_S = 20.0, 1.0
SIDE_BY_SIDE = 2
PACE_LEAST = 0.4
# Beside another attack and deaths of leaders.
SLACK = 3.0
QUIET_S = 0.3


@dataclass(frozen=True, kw_only=True)
class HostileOptions:
    """What is asked for."""

    seconds: float = 120.0
    seed: int = 1
    # Names of attacks; none: all of them, in an order that the seed decides.
    only: tuple[str, ...] = ()
    kills: bool = True
    limits: HostileLimits = field(default_factory=HostileLimits)


def chosen(asked: HostileOptions) -> list[Attack]:
    """The attacks in the order in which they are played."""
    if asked.only:
        return [ATTACKS[name] for name in asked.only]
    line = list(ATTACKS.values())
    random.Random(f"hostile/{asked.seed}").shuffle(line)
    return line


def pace(asked: HostileOptions) -> float:
    """Attacks are shorter where all of them would not fit into the time."""
    if asked.only:
        return 1.0
    whole = sum(each.seconds + QUIET_S for each in ATTACKS.values()) / SIDE_BY_SIDE
    return min(1.0, max(PACE_LEAST, asked.seconds / whole))


async def run(folder: Path, asked: HostileOptions, say: Say) -> dict[str, Any]:
    stand = Stand(folder, asked.seed, say)
    cluster = stand.cluster
    machines = asyncio.create_task(machine.watch(cluster.journal, folder, cluster.processes))
    watching: asyncio.Task[None] | None = None
    try:
        await stand.start()
        say("3 nodes with tokens, workers, a sink and a bystander are up")
        load = Load(
            cluster.nodes.endpoints, cluster.journal, asked.seed, token=cluster.tokens["load"]
        )
        async with cluster.client(cluster.nodes.endpoints, 30.0) as client:
            await load.prepare(client)
            from_ms = int(time.time() * 1000) + EDGE_MS
            load.start()
            await asyncio.sleep(WARM_S)
            watching = asyncio.create_task(stand.watch())
            began = time.monotonic()
            await attack(stand, asked, load)
            ended = time.monotonic()
            await cluster.restart(list(cluster.nodes))
            await load.stop()
            await asyncio.sleep(max(0.0, load.last_due_ms / 1000 + DUE_S - time.time()))
            await finish(cluster, client, from_ms, say)
            # More are made meanwhile.
            made = set(stand.gateway.made)
            stand.seen.gateway_lost = len(made - await names_of(client, SPACE))
        for task in (machines, watching):
            if task.done():
                task.result()
        watching.cancel()
    except* ProcessFailed as failed:
        raise failed.exceptions[0] from None
    finally:
        machines.cancel()
        if watching is not None:
            watching.cancel()
        await stand.stop()
    stand.gather(began, ended)
    return findings(stand, asked)


def findings(stand: Stand, asked: HostileOptions) -> dict[str, Any]:
    seen = Observations.of(history.read(stand.cluster.history()))
    lags = [(lag.began, lag.ended) for lag in seen.lags]
    stand.seen.busy = lags + [(span.began, span.ended) for span in seen.contentions]
    violations = violations_in(seen)
    for violation in violations[:20]:
        stand.say(str(violation))
    figures = verdict(stand.seen, asked.limits, map(str, violations))
    stories = [violation.story for violation in violations]
    counts = {
        "lost": sum(any(word in story for word in LOST) for story in stories),
        "doubled": sum(any(word in story for word in DOUBLED) for story in stories),
        "two_leases": sum(violation.invariant in ("S4", "S5") for violation in violations),
        "violations": len(violations),
        "leader_kills": sum(fault.what == "leader-kill" for fault in seen.faults),
        "firings": sum(run_.scheduled for run_ in seen.runs),
        "leases": len(seen.leases),
    }
    played = {each.name for each in stand.seen.played}
    counts["played"] = len(played)
    counts["not_played"] = len(set(ATTACKS) - played) if not asked.only else 0
    head = {"verdict": figures.pop("verdict")}
    return head | counts | figures


async def attack(stand: Stand, asked: HostileOptions, load: Load) -> None:
    """Some attacks at a time, and the leader dies now and then."""
    began = time.monotonic()
    first = Played("first-token", "P9, S5", began, began, stand.cluster.first_token)
    if not asked.only or "first-token" in asked.only:
        stand.seen.played.append(first)
    until = began + asked.seconds
    line = iter(chosen(asked))
    stand.pace = pace(asked)
    stand.slack = 1.0 if asked.only and not asked.kills else SLACK

    async def play(wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        for each in line:
            if time.monotonic() >= until and not asked.only:
                return
            stand.cluster.check()
            load.check()
            stand.say(f"{time.monotonic() - began:6.1f} s  {each.name}")
            await stand.play(each)
            await asyncio.sleep(QUIET_S)

    killing = asyncio.create_task(kill(stand)) if asked.kills else None
    try:
        lanes = 1 if asked.only else SIDE_BY_SIDE
        await asyncio.gather(*(play(QUIET_S * number) for number in range(lanes)))
        if not asked.only:
            await asyncio.sleep(max(0.0, until - time.monotonic()))
    finally:
        if killing is not None:
            async with stand.hands:
                killing.cancel()
    if killing is not None and killing.done() and not killing.cancelled():
        killing.result()


async def kill(stand: Stand) -> None:
    """Leaders die, one after the other."""
    while True:
        await asyncio.sleep(KILL_EVERY_S)
        async with stand.hands, stand.ours():
            stand.say("         the leader is killed")
            await stand.injector.do(Planned(0.0, "kill", LEADER, KILL_DOWN_S))


def names() -> Sequence[str]:
    return tuple(ATTACKS)
