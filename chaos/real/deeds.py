"""What is done to a cluster, one function for each fault: it begins it, holds it and ends it.

Each returns the sign that the fault was one; without it the fault did nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from google.protobuf.message import Message

from ...client import AsyncClient, RaftschedError
from ...cluster.local.nodes import NodeProcess
from ...cluster.local.process import ProcessFailed
from ...proto.v1 import cluster_pb2
from .builds import Build
from .by_command import change_all
from .chaos_cluster import READY_S, ChaosCluster
from .faults import LEADER, STROBE, STROBE_MS, STROBE_SET_MS, Planned, split
from .history import FaultSpan
from .links import CLIENTS, Pair
from .node import HITS, Control, Failpoint
from .restarts import build_of, stop

DRIFT_PPM = 2_000.0
Deed = Callable[[ChaosCluster, Planned, list[NodeProcess]], Awaitable[str]]


async def kill(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    if fault.target == LEADER:
        cluster.journal.add(
            FaultSpan("leader-kill", targets[0].name, time.monotonic(), 0.0, "sent")
        )
    await cluster.kill(targets)
    sign = " ".join(f"{node.name} ended with {node.code}" for node in targets)
    await asyncio.sleep(fault.seconds)
    await cluster.restart(targets)
    return sign


async def pause(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    for node in targets:
        node.pause()
    await asyncio.sleep(fault.seconds)
    sign = f"process states {' '.join(node.state for node in targets)}"
    for node in targets:
        node.resume()
    return sign


async def partition(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    names = cluster.nodes.names
    return await links(cluster, fault, "cut", split(fault.how, targets[0].name, names, CLIENTS))


async def delay(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    return await links(cluster, fault, "slow", all_of(cluster, targets[0].name), delay_s=0.05)


async def throttle(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    pairs = all_of(cluster, targets[0].name)
    return await links(cluster, fault, "slow", pairs, delay_s=0.0, rate=200_000)


async def hold(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    return await links(cluster, fault, "hold", all_of(cluster, targets[0].name))


async def clock(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    if fault.how == "drift":
        control = Control(drift_ppm=DRIFT_PPM, drift_from=time.time())
    elif fault.how == STROBE:
        control = Control(clock_ms=STROBE_SET_MS, strobe_ms=STROBE_MS)
    else:
        control = Control(clock_ms=float(fault.how))
    return await hold_control(cluster, fault, targets[0].name, control)


async def full(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    full = Failpoint("error", error="ENOSPC")
    control = Control(failpoints={"before-append": full})
    return await hold_control(cluster, fault, targets[0].name, control)


async def slow(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    control = Control(failpoints={"before-sync": Failpoint("sleep", seconds=0.1)})
    return await hold_control(cluster, fault, targets[0].name, control)


async def eio(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    """A failed sync is final: the node ends itself, and comes back."""
    control = Control(failpoints={"before-sync": Failpoint("error", error="EIO")})
    sign = await hold_control(cluster, fault, targets[0].name, control)
    await cluster.restart(targets)
    return sign


async def failpoint(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    """It is killed at a place in the code."""
    return await killed_at(cluster, fault, targets[0], chance=0.2)


async def snapshot(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    """It is killed somewhere on the way to a snapshot, or while the journal is cut after it."""

    async def take() -> None:
        with contextlib.suppress(RaftschedError):
            async with cluster.client(targets[0].client, fault.seconds) as client:
                await client.call(cluster_pb2.TakeSnapshotRequest())

    return await killed_at(cluster, fault, targets[0], chance=1.0, meanwhile=take)


async def start(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    """It is killed, and killed again at a place on the way up."""

    async def again() -> None:
        await cluster.kill(targets)
        targets[0].start()
        # A start takes what the machine gives it.
        limit = time.monotonic() + READY_S
        while targets[0].alive and time.monotonic() < limit:
            if await asyncio.to_thread(targets[0].is_ready):
                return
            await asyncio.sleep(0.02)

    return await killed_at(cluster, fault, targets[0], chance=1.0, meanwhile=again)


async def files(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    """It may open no more files and connections than it has."""
    node = targets[0]
    _, hard = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
    numbers = {int(number) for number in os.listdir(f"/proc/{node.pid}/fd")}
    # The limit is on numbers, so below it no number may be free.
    first_free = next(number for number in range(hard) if number not in numbers)
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (first_free, hard))
    await asyncio.sleep(fault.seconds)
    # One that answers has found a place for one more connection.
    sign = "" if await asyncio.to_thread(node.is_ready) else f"no room beyond {first_free}"
    if node.alive:
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (hard, hard))
    await cluster.restart(targets)
    return sign


async def wipe(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    """Its disk is lost; it comes back with an empty one."""
    await cluster.lose_disk(targets[0])
    await asyncio.sleep(fault.seconds)
    await cluster.restart(targets)
    await cluster.until_voter(targets[0])
    return "came back" if (cluster.folder / targets[0].name).exists() else ""


async def restart(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    """One after the other, in order, as an upgrade does."""
    for node in targets:
        await stop(cluster, node)
        await cluster.restart([node])
        await asyncio.sleep(fault.seconds)
    return f"{len(targets)} stopped as asked"


async def upgrade(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    return await change_build(cluster, targets[0], cluster.present)


async def rollback(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    return await change_build(cluster, targets[0], cluster.older)


async def upgrade_all(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    return await change_all(cluster, cluster.present)


async def rollback_all(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    return await change_all(cluster, cluster.older)


async def change_build(cluster: ChaosCluster, node: NodeProcess, build: Build) -> str:
    """Drained, stopped, started as another build; it is over when the node has caught up."""
    before = await build_of(cluster, node)
    async with cluster.client(cluster.nodes.endpoints, 5.0) as client:
        await insist(client, cluster_pb2.DrainNodeRequest(node=node.name), "")
    await stop(cluster, node)
    cluster.put(node.name, build)
    await cluster.restart([node])
    after = await build_of(cluster, node)
    return f"{before} to {after}" if after != before else ""


async def kill_workers(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    worker = cluster.some_worker()
    cluster.down.add(worker.name)
    await asyncio.to_thread(worker.kill)
    await asyncio.sleep(fault.seconds)
    sign = f"{worker.name} ended with {worker.code}"
    worker.start()
    cluster.down.discard(worker.name)
    return sign


async def pause_workers(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    worker = cluster.some_worker()
    worker.pause()
    await asyncio.sleep(fault.seconds)
    sign = f"{worker.name} in state {worker.state}"
    worker.resume()
    return sign


async def remove_and_add(cluster: ChaosCluster, fault: Planned, targets: list[NodeProcess]) -> str:
    """A member goes, and comes back with an empty disk; perhaps the leader dies meanwhile."""
    node = targets[0]
    add = cluster_pb2.AddNodeRequest(
        name=node.name, peer_address=node.peer, client_address=node.client
    )
    async with cluster.client(cluster.nodes.endpoints, 5.0) as client:
        await insist(client, cluster_pb2.RemoveNodeRequest(node=node.name), "NODE_NOT_FOUND")
        await cluster.lose_disk(node)
        await asyncio.sleep(fault.seconds)
        node.start()
        adding = asyncio.create_task(insist(client, add, "NAME_EXISTS"))
        if fault.how == "leader-dies":
            await leader_dies(cluster, node)
        await adding
    await cluster.restart([node])
    await cluster.until_voter(node)
    return "removed, wiped, added"


async def links(
    cluster: ChaosCluster, fault: Planned, what: str, pairs: list[Pair], **how: float
) -> str:
    before = await cluster.links.act(what, pairs=pairs, **how)
    await asyncio.sleep(fault.seconds)
    touched = await cluster.links.act("heal", pairs=pairs) - before
    return f"{touched} bytes" if touched else ""


def all_of(cluster: ChaosCluster, name: str) -> list[Pair]:
    others = [other for other in cluster.nodes.names if other != name]
    return [(name, other) for other in others] + [(other, name) for other in others]


async def killed_at(
    cluster: ChaosCluster,
    fault: Planned,
    node: NodeProcess,
    chance: float,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> str:
    control = Control(failpoints={fault.how: Failpoint("kill", chance=chance)})
    sign = await hold_control(cluster, fault, node.name, control, meanwhile)
    await cluster.restart([node])
    return sign


async def hold_control(
    cluster: ChaosCluster,
    fault: Planned,
    name: str,
    control: Control,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> str:
    hits = cluster.controls[name].with_suffix(HITS)
    before = hits.stat().st_size if hits.exists() else 0
    cluster.control(name, control)
    began = time.monotonic()
    if meanwhile is not None:
        await meanwhile()
    await asyncio.sleep(max(0.0, began + fault.seconds - time.monotonic()))
    cluster.control(name)
    new = hits.read_text()[before:].split() if hits.exists() else []
    return " ".join(f"{place} {count}x" for place, count in Counter(new).items())


async def leader_dies(cluster: ChaosCluster, but: NodeProcess) -> None:
    leader = await cluster.leader()
    if leader is not None and leader is not but:
        cluster.journal.add(FaultSpan("leader-kill", leader.name, time.monotonic(), 0.0, "sent"))
        await cluster.kill([leader])
        leader.start()


async def insist(client: AsyncClient, request: Message, done: str) -> None:
    """Until it is done. One who is added has to introduce itself first; leaders change."""
    limit = time.monotonic() + READY_S
    while True:
        try:
            await client.call(request)
            return
        except RaftschedError as error:
            if error.reason == done:
                return
            if time.monotonic() > limit:
                raise ProcessFailed(f"the members could not be changed: {error}") from error
            await asyncio.sleep(0.1)


# By the words of the plan.
DEEDS: dict[str, Deed] = {
    "kill": kill,
    "pause": pause,
    "partition": partition,
    "delay": delay,
    "throttle": throttle,
    "hold": hold,
    "clock": clock,
    "full": full,
    "slow": slow,
    "eio": eio,
    "failpoint": failpoint,
    "snapshot": snapshot,
    "start": start,
    "files": files,
    "wipe": wipe,
    "restart": restart,
    "upgrade": upgrade,
    "rollback": rollback,
    "upgrade-all": upgrade_all,
    "rollback-all": rollback_all,
    "kill-workers": kill_workers,
    "pause-workers": pause_workers,
    "remove-and-add": remove_and_add,
}
