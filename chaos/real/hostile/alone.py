"""Attacks that need a cluster of their own: few descriptors, small disks, an outage of hours."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from ....client import AsyncClient, RaftschedError
from ....cluster.local.nodes import NodeProcesses, free_addresses
from ....cluster.local.process import ProcessFailed
from ....proto.v1 import cluster_pb2, job_pb2
from ..chaos_cluster import SETTINGS
from ..node import Control, controlled
from .attack import deed
from .hands import names
from .sockets import hold, status_of
from .stand import Stand

UNSHARE = shutil.which("unshare")
DESCRIPTORS = 256
IDLE = 300
SMALL_MB, FILLER_MB = 180, 72
FULL_S = 20.0
MOUNT = f'mount -t tmpfs -o size={SMALL_MB}m none "$1" && shift && exec "$@"'
JOBS, HOURS, SERVICE_S = 1_000, 3, 3.0
READY_S = 30.0


@asynccontextmanager
async def own_cluster(
    stand: Stand, name: str, wrap: Sequence[str] = (), *, disks: bool = False
) -> AsyncIterator[NodeProcesses]:
    """Three nodes of their own, without tokens; `wrap` begins the command line of each."""
    folder = stand.folder / name
    nodes = NodeProcesses(folder, free_addresses(3), settings=SETTINGS, program=controlled(folder))
    for node in nodes:
        nodes.folder.joinpath(f"{node.name}.control").write_bytes(msgspec.json.encode(Control()))
        node.wrap = wrap
        if disks:
            place = nodes.folder / f"disk-{node.name}"
            place.mkdir()
            node.wrap = [*wrap, str(place)]
            # The last one counts.
            node.arguments = [*node.arguments, "--folder", str(place / "data")]
    # Two clusters share the machine meanwhile, so how late the bystander is says nothing.
    async with stand.ours():
        try:
            stand.attackers += nodes
            await asyncio.to_thread(nodes.start)
            yield nodes
        finally:
            stand.attackers = [a for a in stand.attackers if a not in list(nodes)]
            await asyncio.to_thread(nodes.stop)


def ended(stand: Stand, nodes: NodeProcesses) -> None:
    for node in nodes:
        if not node.alive:
            words = node.tail().splitlines()[-2:]
            stand.found.wrong.append(f"{node.name} ended with {node.code}: {' '.join(words)}"[:500])


async def term(nodes: NodeProcesses) -> int:
    most = 0
    for node in nodes:
        with suppress(RaftschedError):
            async with AsyncClient(node.client, timeout=2.0) as client:
                status = await client.call(cluster_pb2.GetClusterStatusRequest())
                most = max(most, int(status.term))
    return most


async def writes(stand: Stand, client: AsyncClient, count: int, size: int, name: str) -> set[str]:
    """Jobs with a payload that nobody can compress, twenty at a time, until none of twenty is
    taken; those that were acknowledged."""
    done = set[str]()

    async def one(number: int) -> None:
        request = job_pb2.CreateJobRequest()
        request.job.name = f"{name}-{number}"
        request.job.spec.action.handler = "nobody"
        request.job.spec.payload.data = os.urandom(size)
        stand.found.calls += 1
        try:
            await client.call(request)
            done.add(request.job.name)
        except RaftschedError:
            stand.found.refused += 1

    for first in range(0, count, 20):
        before = len(done)
        await asyncio.gather(*(one(number) for number in range(first, first + 20)))
        if len(done) == before:
            break
    return done


@deed("P5, S6", 15)
async def few_descriptors(stand: Stand) -> None:
    """Nodes with 256 descriptors, 300 idle connections to each port, and journals that grow."""
    limit = ["/bin/sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh"]
    async with own_cluster(stand, "few", limit) as nodes:
        writers = []
        async with AsyncClient(nodes.endpoints, timeout=2.0) as client:
            await writes(stand, client, 20, 100, "before")
            for node in nodes:
                for address in (node.client, node.peer, node.http):
                    writers += await hold(address, IDLE)
            # More than two segments of the journal.
            done = await writes(stand, client, 400, 60_000, "many")
        ended(stand, nodes)
        for node in nodes:
            if node.alive and await status_of(node.http, "/healthz") != 200:
                stand.found.wrong.append(f"/healthz of {node.name} does not say 200")
        for writer in writers:
            writer.close()
        await asyncio.sleep(1.0)
        async with AsyncClient(nodes.endpoints, timeout=5.0) as client:
            after = len(await writes(stand, client, 20, 100, "after"))
            lost = done - await names(client)
        if after < 20:
            stand.found.wrong.append(f"{after} of 20 writes are taken once all are gone")
        if lost:
            stand.found.wrong.append(f"{len(lost)} jobs that were acknowledged are gone")
        stand.found.figures["written"] = len(done)


def small_disks_work(folder: Path) -> bool:
    if UNSHARE is None:
        return False
    words = [UNSHARE, "-rm", "sh", "-c", MOUNT, "sh", str(folder), "true"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@deed("P15", 15)
async def small_disks(stand: Stand) -> None:
    """Small disks fill up under writes of 60 kB, journals and states alike; then there is room."""
    if not small_disks_work(stand.folder):
        stand.found.figures["left_out"] = 1
        return
    async with own_cluster(stand, "small", [UNSHARE or "", "-rm", "sh", "-c", MOUNT, "sh"],
                       disks=True) as nodes:  # fmt: skip
        # The disks as the nodes see them.
        fillers = [
            Path(f"/proc/{node.pid}/root{nodes.folder}/disk-{node.name}/filler") for node in nodes
        ]
        for filler in fillers:
            filler.write_bytes(bytes(FILLER_MB << 20))
        async with AsyncClient(nodes.endpoints, timeout=2.0) as client:
            until, kept, number = time.monotonic() + FULL_S, set[str](), 0
            while time.monotonic() < until:
                number += 1
                kept |= (now := await writes(stand, client, 100, 60_000, f"fill-{number}"))
                if not now:
                    break
            else:
                stand.found.wrong.append(f"the disks are not full after {len(kept)} jobs")
            await asyncio.sleep(2.0)
            ended(stand, nodes)
            for filler in fillers:
                with suppress(OSError):
                    filler.unlink()
            took = await room_again(stand, client)
            lost = kept - await names(client)
        stand.found.figures |= {"written": len(kept), "taken_again_s": round(took, 1)}
        full = "the state cannot be written"
        full_nodes = [full in node.log.read_text() for node in nodes]
        stand.found.figures["states_full"] = sum(full_nodes)
        if lost:
            stand.found.wrong.append(f"{len(lost)} jobs that were acknowledged are gone")
        ended(stand, nodes)


async def room_again(stand: Stand, client: AsyncClient) -> float:
    """Seconds until twenty writes are taken."""
    began, number = time.monotonic(), 0
    while (took := time.monotonic() - began) < FULL_S:
        number += 1
        if len(await writes(stand, client, 20, 100, f"room-{number}")) == 20:
            return took
        await asyncio.sleep(0.2)
    stand.found.wrong.append(f"no writes are taken {took:.0f} s after there was room")
    return took


@deed("P7, A5", 20)
async def outage(stand: Stand) -> None:
    """1,000 jobs each second, misfire ALL up to 10,000, and three hours in which nothing ran."""
    async with own_cluster(stand, "outage") as nodes:
        async with AsyncClient(nodes.endpoints, timeout=30.0) as client:
            request = job_pb2.ImportJobsRequest()
            for number in range(JOBS):
                job = request.jobs.add(name=f"o-{number}")
                job.spec.action.handler = "nobody"
                job.spec.overlap.rule = job_pb2.OverlapPolicy.RULE_ALLOW
                job.spec.misfire.rule = job_pb2.MisfirePolicy.RULE_ALL
                job.spec.misfire.maximum = 10_000
                job.spec.schedules.add().cron.expression = "* * * * * *"
            await client.call(request)
        await asyncio.to_thread(nodes.stop)
        # For the nodes three hours have passed when they start again.
        ahead = msgspec.json.encode(Control(clock_ms=3_600_000.0 * HOURS))
        for node in nodes:
            (nodes.folder / f"{node.name}.control").write_bytes(ahead)
            node.start()
        began = time.monotonic()
        while not any([await asyncio.to_thread(n.is_ready) for n in nodes]):
            if time.monotonic() - began > READY_S:
                raise ProcessFailed(f"no node is ready {READY_S:.0f} s after the outage")
            await asyncio.sleep(0.02)
        first = await term(nodes)
        ready = time.monotonic()
        fired = await first_firing(nodes, ready)
        stand.found.figures["first_firing_s"] = round(fired, 2)
        if fired > SERVICE_S:
            stand.found.wrong.append(f"the first run came {fired:.1f} s after the start")
        await asyncio.sleep(max(0.0, ready + 8 - time.monotonic()))
        moved = await term(nodes) - first
        stand.found.figures["elections"] = moved
        if moved:
            stand.found.wrong.append(f"{moved} elections after the first leader")
        ended(stand, nodes)


async def first_firing(nodes: NodeProcesses, ready: float) -> float:
    """Seconds until something of the outage was fired."""
    async with AsyncClient(nodes.endpoints, timeout=5.0) as client:
        while time.monotonic() - ready < READY_S:
            with suppress(RaftschedError):
                status = await client.call(job_pb2.GetJobStatusRequest(job="o-0"))
                usage = await client.call(cluster_pb2.GetClusterStatusRequest())
                if status.fired > 10 or usage.live_runs > 5 * JOBS:
                    break
            await asyncio.sleep(0.05)
    return time.monotonic() - ready
