"""What operators, machines and disks do: a hand on the nodes themselves."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

from ....client import RaftschedError
from ....proto.v1 import cluster_pb2, common_pb2, job_pb2
from ...stage import NodeProcess, is_ready
from ..faults import LEADER, Planned
from ..node import Control, Failpoint
from .attack import deed
from .stand import VICTIM, Stand

FOOTER = 48  # Bytes of a table's footer, at its end.
DAMAGE = b"\xde\xad\xbe\xef"
ANSWER_S = 2.0
POISONED = "poisoned"


async def answers(stand: Stand, calls: int = 20) -> int:
    """Of so many calls of somebody else, how many are answered soon."""
    count = 0
    async with stand.arena.client(stand.arena.stage.endpoints, ANSWER_S) as client:
        for number in range(calls):
            stand.found.calls += 1
            with suppress(RaftschedError):
                request = job_pb2.GetJobRequest(namespace=VICTIM, job=f"pulse-{number % 10}")
                await client.call(request)
                count += 1
    return count


async def write(stand: Stand, name: str, size: int = 0) -> bool:
    request = job_pb2.CreateJobRequest()
    request.job.namespace, request.job.name = VICTIM, name
    request.job.spec.action.handler = "nobody"
    request.job.spec.payload.data = bytes(size)
    stand.found.calls += 1
    async with stand.arena.client(stand.arena.stage.endpoints, ANSWER_S) as client:
        try:
            await client.call(request)
        except RaftschedError:
            stand.found.refused += 1
            return False
    return True


async def lead(stand: Stand, node: NodeProcess) -> bool:
    """Hand the leadership to a node; whether it has it."""
    request = cluster_pb2.TransferLeadershipRequest(node=node.name)
    limit = time.monotonic() + 5
    while time.monotonic() < limit:
        with suppress(RaftschedError):
            async with stand.arena.client(stand.arena.stage.endpoints, 2.0) as client:
                await client.call(request)
        if await stand.arena.leader() is node:
            return True
        await asyncio.sleep(0.1)
    return False


def damage(folder: Path, place: str) -> int:
    """Four bytes of each table; how many tables."""
    tables = sorted(folder.rglob("*.sst"))
    for table in tables:
        size = table.stat().st_size
        at = size - FOOTER + 4 if place == "footer" else max(0, size // 3)
        # The file may be one that a checkpoint shares: only this node's own name is damaged.
        data = bytearray(table.read_bytes())
        data[at : at + len(DAMAGE)] = DAMAGE
        table.unlink()
        table.write_bytes(data)
    return len(tables)


async def play_damage(stand: Stand, place: str) -> None:
    arena = stand.arena
    for number in range(50):
        await write(stand, f"{place}-{time.time_ns()}-{number}", size=60_000)
    for node in arena.nodes:
        with suppress(RaftschedError):
            async with arena.client(node.client, 10.0) as client:
                await client.call(cluster_pb2.TakeSnapshotRequest())
    leader = await arena.sure_leader()
    node = next(each for each in arena.nodes if each is not leader)
    async with stand.ours():
        await arena.kill([node])
        tables = damage(arena.folder / node.name, place)
        stand.found.figures["tables"] = tables
        if not tables:
            stand.found.wrong.append("there was no table to damage")
        node.start()
        limit = time.monotonic() + 8
        while node.alive and not is_ready(node) and time.monotonic() < limit:
            await asyncio.sleep(0.05)
        if node.alive:
            stand.found.figures["led"] = await lead(stand, node)
        answered = await answers(stand)
        stand.found.figures["answered"] = answered
        if node.alive and await arena.leader() is node and answered < 20:
            stand.found.wrong.append(f"it leads with damaged tables, and answers {answered} of 20")
        # Whoever looks after the node starts it again; it fetches all anew.
        limit, starts = time.monotonic() + 20, 0
        while time.monotonic() < limit:
            if not node.alive:
                stand.found.figures["code"] = node.code or 0
                starts += 1
                node.start()
            if is_ready(node) and starts:
                break
            await asyncio.sleep(0.2)
            if node.alive and not starts and time.monotonic() > limit - 12:
                break
        if not await until_level(stand, node):
            stand.found.wrong.append("the damaged node does not come back with a whole state")
            await arena._lose_disk(node)
            await arena.restart([node])
            await arena._until_voter(node)


async def until_level(stand: Stand, node: NodeProcess) -> bool:
    limit = time.monotonic() + 10
    while time.monotonic() < limit:
        with suppress(RaftschedError):
            async with stand.arena.client(node.client, 2.0) as client:
                request = job_pb2.ListJobsRequest(namespace=VICTIM, page_size=1_000)
                request.read.consistency = common_pb2.CONSISTENCY_STALE
                await client.call(request, endpoint=node.client)
                return True
        if not node.alive:
            node.start()
        await asyncio.sleep(0.2)
    return False


@deed("P6", 12)
async def damaged_footer(stand: Stand) -> None:
    """Four bytes in the footer of each table of a follower, which is then made leader."""
    await play_damage(stand, "footer")


@deed("P6", 12)
async def damaged_blocks(stand: Stand) -> None:
    """Four bytes in a block of each table of a follower, which is then made leader."""
    await play_damage(stand, "blocks")


@deed("A0, S1", 10)
async def broken_job(stand: Stand) -> None:
    """A stored job that no node can compile any more, and the leader is killed."""
    arena = stand.arena
    job = job_pb2.Job(namespace=VICTIM, name=f"{POISONED}-{time.time_ns()}")
    job.spec.action.handler = "nobody"
    job.spec.schedules.add().cron.expression = "* * * * * *"
    job.spec.timing.end_time.FromSeconds(int(time.time()) + 60)
    async with arena.client(arena.stage.endpoints, 10.0) as client:
        await client.call(job_pb2.CreateJobRequest(job=job))
    for node in arena.nodes:
        arena.control(node.name, Control(poison=POISONED))
    try:
        async with stand.ours():
            await arena.do(Planned(0.0, "kill", LEADER, 0.5))
        await asyncio.sleep(3.0)
        ended = [node for node in arena.nodes if not node.alive]
        for node in ended:
            stand.found.wrong.append(f"{node.name} ended with {node.code}")
        answered = await answers(stand)
        if answered < 20:
            stand.found.wrong.append(f"{answered} of 20 calls are answered")
        async with arena.client(arena.stage.endpoints, 10.0) as client:
            with suppress(RaftschedError):
                asked = job_pb2.GetJobRequest(namespace=VICTIM, job=job.name)
                state = (await client.call(asked)).status.state
                if state != job_pb2.JobStatus.STATE_BROKEN:
                    word = job_pb2.JobStatus.State.Name(state)
                    stand.found.wrong.append(f"the job is {word}, and should be STATE_BROKEN")
    finally:
        for node in arena.nodes:
            arena.control(node.name)
        async with stand.ours():
            await arena.restart([node for node in arena.nodes if not node.alive])
        async with arena.client(arena.stage.endpoints, 10.0) as client:
            await client.call(job_pb2.DeleteJobRequest(namespace=VICTIM, job=job.name))


@deed("P15", 8)
async def full_disks(stand: Stand) -> None:
    """Journals find no room, the leader's and then everybody's, under writes of 20 kB."""
    arena = stand.arena
    full = Control(failpoints={"before-append": Failpoint("error", error="ENOSPC")})
    async with stand.ours():
        for names in ([(await arena.sure_leader()).name], [node.name for node in arena.nodes]):
            for name in names:
                arena.control(name, full)
            until = time.monotonic() + 2
            number = 0
            while time.monotonic() < until:
                number += 1
                await asyncio.gather(
                    *(write(stand, f"full-{time.time_ns()}-{n}", 20_000) for n in range(20))
                )
            for name in names:
                arena.control(name)
            await asyncio.sleep(1.0)
    for node in arena.nodes:
        if not node.alive:
            stand.found.wrong.append(f"{node.name} ended with {node.code}: {node.last_words()}")
    await arena.restart([node for node in arena.nodes if not node.alive])
    if (answered := await answers(stand)) < 20:
        stand.found.wrong.append(f"{answered} of 20 calls are answered once there is room")
