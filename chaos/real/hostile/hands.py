"""What operators, machines and disks do: a hand on the nodes themselves."""

from __future__ import annotations

import asyncio
import shutil
import time
from contextlib import suppress
from pathlib import Path

from ....client import AsyncClient, RaftschedError
from ....cluster.local.nodes import NodeProcess
from ....cluster.ops.exits import NodeExit
from ....cluster.raft.record import HEADER_BYTES
from ....cluster.raft.segment import SUFFIX, written
from ....proto.v1 import cluster_pb2, common_pb2, job_pb2
from ..faults import LEADER, Planned
from ..node import Control, Failpoint
from .attack import deed
from .stand import VICTIM, Stand, why

FOOTER = 48  # Bytes of a table's footer, at its end.
MANY = 100_000  # Bytes of records: more than one round of the journal.
DAMAGE = b"\xde\xad\xbe\xef"
ANSWER_S = 2.0
GONE_S = 5.0  # Until a node must have noticed that its folder is gone.
POISONED = "poisoned"


async def answers(stand: Stand, calls: int = 20) -> int:
    """Of so many calls of somebody else, how many are answered soon."""
    count = 0
    async with stand.cluster.client(stand.cluster.nodes.endpoints, ANSWER_S) as client:
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
    async with stand.cluster.client(stand.cluster.nodes.endpoints, ANSWER_S) as client:
        try:
            await client.call(request)
        except RaftschedError:
            stand.found.refused += 1
            return False
    return True


async def names(client: AsyncClient, namespace: str = "") -> set[str]:
    """Of all jobs that there are."""
    request = job_pb2.ListJobsRequest(namespace=namespace, page_size=1_000)
    found = set[str]()
    while True:
        page = await client.call(request)
        found |= {job.name for job in page.jobs}
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


async def lead(stand: Stand, node: NodeProcess) -> bool:
    """Hand the leadership to a node; whether it has it."""
    request = cluster_pb2.TransferLeadershipRequest(node=node.name)
    limit = time.monotonic() + 5
    while time.monotonic() < limit:
        with suppress(RaftschedError):
            async with stand.cluster.client(stand.cluster.nodes.endpoints, 2.0) as client:
                await client.call(request)
        if await stand.cluster.leader() is node:
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
    cluster = stand.cluster
    for number in range(50):
        await write(stand, f"{place}-{time.time_ns()}-{number}", size=60_000)
    for node in cluster.nodes:
        with suppress(RaftschedError):
            async with cluster.client(node.client, 10.0) as client:
                await client.call(cluster_pb2.TakeSnapshotRequest())
    leader = await cluster.sure_leader()
    node = next(each for each in cluster.nodes if each is not leader)
    async with stand.ours():
        await cluster.kill([node])
        tables = damage(cluster.folder / node.name, place)
        stand.found.figures["tables"] = tables
        if not tables:
            stand.found.wrong.append("there was no table to damage")
        node.start()
        limit = time.monotonic() + 8
        while node.alive and not node.is_ready() and time.monotonic() < limit:
            await asyncio.sleep(0.05)
        if node.alive:
            stand.found.figures["led"] = await lead(stand, node)
        answered = await answers(stand)
        stand.found.figures["answered"] = answered
        if node.alive and await cluster.leader() is node and answered < 20:
            stand.found.wrong.append(f"it leads with damaged tables, and answers {answered} of 20")
        # Whoever looks after the node starts it again; it fetches all anew.
        await come_back(stand, node)


async def until_level(stand: Stand, node: NodeProcess) -> bool:
    limit = time.monotonic() + 10
    while time.monotonic() < limit:
        with suppress(RaftschedError):
            async with stand.cluster.client(node.client, 2.0) as client:
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


@deed("P6", 14)
async def damaged_under_the_leader(stand: Stand) -> None:
    """Four bytes in each table of the leader, while it leads and answers."""
    cluster = stand.cluster
    for number in range(100):
        await write(stand, f"rot-{time.time_ns()}-{number}", size=60_000)
    leader = await cluster.sure_leader()
    async with cluster.client(leader.client, 10.0) as client:
        await client.call(cluster_pb2.TakeSnapshotRequest())
    async with stand.ours():
        tables = sorted((cluster.folder / leader.name).rglob("*.sst"))
        stand.found.figures["tables"] = len(tables)
        for table in tables:
            with suppress(OSError), table.open("r+b") as file:
                file.seek(table.stat().st_size // 2)
                file.write(DAMAGE)
        limit, worst = time.monotonic() + 8, 20
        while time.monotonic() < limit:
            worst = min(worst, await answers(stand))
            async with cluster.client(cluster.nodes.endpoints, ANSWER_S) as client:
                with suppress(RaftschedError):
                    await client.call(job_pb2.ListJobsRequest(namespace=VICTIM, page_size=1_000))
        stand.found.figures["answered_least"] = worst
        if not leader.alive:
            stand.found.figures["code"] = leader.code or 0
        if (answered := await answers(stand)) < 20:
            stand.found.wrong.append(f"{answered} of 20 calls are answered after the damage")
        await come_back(stand, leader)


async def come_back(stand: Stand, node: NodeProcess) -> None:
    """It is started again for a while, as often as it ends; else its disk is replaced."""
    limit = time.monotonic() + 12
    while time.monotonic() < limit:
        if not node.alive:
            stand.found.figures["code"] = node.code or 0
            node.start()
        if node.is_ready() and await until_level(stand, node):
            return
        await asyncio.sleep(0.2)
    stand.found.wrong.append(f"{node.name} does not come back by itself: {node.code}")
    await stand.cluster.lose_disk(node)
    await stand.cluster.restart([node])
    await stand.cluster.until_voter(node)


def damage_journal(journal: Path) -> str:
    """Four bytes in the middle of the newest segment that has many records; its name."""
    for path in sorted(journal.glob(f"*{SUFFIX}"), reverse=True):
        records = written(path.read_bytes()) - HEADER_BYTES
        if records >= MANY:
            with path.open("r+b") as file:
                file.seek(HEADER_BYTES + records // 2)
                file.write(DAMAGE)
            return path.name
    return ""


@deed("P6", 12)
async def damaged_journal(stand: Stand) -> None:
    """Four bytes among the records of a follower's journal, while it is down.

    It may have forgotten a vote or an entry that it acknowledged, so it may not go on with that
    disk: it begins with an empty one, or ends and says that it is damaged."""
    cluster = stand.cluster
    for number in range(20):
        await write(stand, f"journal-{time.time_ns()}-{number}", size=20_000)
    leader = await cluster.sure_leader()
    node = next(each for each in cluster.nodes if each is not leader)
    folder = cluster.folder / node.name
    async with stand.ours():
        await cluster.kill([node])
        if not damage_journal(folder / "consensus" / "journal"):
            stand.found.wrong.append("there was no segment to damage")
        node.start()
        limit = time.monotonic() + 10
        while node.alive and not node.is_ready() and time.monotonic() < limit:
            await asyncio.sleep(0.05)
        anew = (folder / "damaged" / "consensus").is_dir()
        stand.found.figures["began_anew"] = anew
        stand.found.figures["code"] = node.code or 0
        if node.alive and not anew:
            stand.found.wrong.append("it runs on with a damaged journal")
        if not node.alive:
            if node.code != NodeExit.DAMAGED:
                stand.found.wrong.append(f"{node.name} ended with {node.code}: {why(node)}")
            await cluster.lose_disk(node)
        await cluster.restart([node])
        await cluster.until_voter(node)
        if (answered := await answers(stand)) < 20:
            stand.found.wrong.append(f"{answered} of 20 calls are answered")


@deed("-", 12)
async def removed_folder(stand: Stand) -> None:
    """The folder of a follower is removed while it runs, under writes.

    It ends by itself and says why, comes back with an empty folder, and is a voter again."""
    cluster, kept = stand.cluster, set[str]()

    async def keep(what: str) -> None:
        for number in range(10):
            name = f"{what}-{time.time_ns()}-{number}"
            if await write(stand, name):
                kept.add(name)

    await keep("before")
    leader = await cluster.sure_leader()
    node = next(each for each in cluster.nodes if each is not leader)
    async with stand.ours():
        # The node writes into it meanwhile, and may put a file where another was removed.
        await asyncio.to_thread(shutil.rmtree, cluster.folder / node.name, ignore_errors=True)
        began = time.monotonic()
        await keep("meanwhile")
        while node.alive and time.monotonic() < began + GONE_S:
            await asyncio.sleep(0.05)
        stand.found.figures["ended_ms"] = int((time.monotonic() - began) * 1000)
        if node.alive:
            stand.found.wrong.append(f"it runs on for {GONE_S:.0f} s without its folder")
            await cluster.kill([node])
        elif node.code != NodeExit.DAMAGED:
            stand.found.wrong.append(f"{node.name} ended with {node.code}: {why(node)}")
        await cluster.restart([node])
        await cluster.until_voter(node)
    if (answered := await answers(stand)) < 20:
        stand.found.wrong.append(f"{answered} of 20 calls are answered")
    async with cluster.client(cluster.nodes.endpoints, 10.0) as client:
        lost = kept - await names(client, VICTIM)
    stand.found.figures["written"] = len(kept)
    if lost:
        stand.found.wrong.append(f"{len(lost)} jobs that were acknowledged are gone")


@deed("-", 12)
async def nervous_operator(stand: Stand) -> None:
    """Snapshots, backups, verifications, drains and moves of the leader, all at once."""
    cluster = stand.cluster

    async def insist(number: int) -> None:
        name = cluster.nodes.names[number % 3]
        async with cluster.client(cluster.nodes[name].client, 5.0) as client:
            for turn in range(6):
                stand.found.calls += 1
                request = (
                    cluster_pb2.TakeSnapshotRequest(), cluster_pb2.VerifyStateRequest(),
                    cluster_pb2.TransferLeadershipRequest(node=name),
                    cluster_pb2.DrainNodeRequest(node=name),
                    cluster_pb2.DrainNodeRequest(node=name, resume=True),
                )[(number + turn) % 5]  # fmt: skip
                try:
                    await client.call(request)
                except RaftschedError as error:
                    stand.found.refused += 1
                    stand.found.words.setdefault(error.reason, str(error)[:200])

    async with stand.ours():
        await asyncio.gather(*(insist(number) for number in range(12)))
        for node in cluster.nodes:
            async with cluster.client(node.client, 5.0) as client:
                with suppress(RaftschedError):
                    await client.call(cluster_pb2.DrainNodeRequest(node=node.name, resume=True))
        await asyncio.sleep(1.0)
    if (answered := await answers(stand)) < 20:
        stand.found.wrong.append(f"{answered} of 20 calls are answered")


@deed("A0, S1", 10)
async def broken_job(stand: Stand) -> None:
    """A stored job that no node can compile any more, and the leader is killed."""
    cluster = stand.cluster
    job = job_pb2.Job(namespace=VICTIM, name=f"{POISONED}-{time.time_ns()}")
    job.spec.action.handler = "nobody"
    job.spec.schedules.add().cron.expression = "* * * * * *"
    job.spec.timing.end_time.FromSeconds(int(time.time()) + 60)
    async with cluster.client(cluster.nodes.endpoints, 10.0) as client:
        await client.call(job_pb2.CreateJobRequest(job=job))
    for node in cluster.nodes:
        cluster.control(node.name, Control(poison=POISONED))
    try:
        async with stand.ours():
            await stand.injector.do(Planned(0.0, "kill", LEADER, 0.5))
        await asyncio.sleep(3.0)
        ended = [node for node in cluster.nodes if not node.alive]
        for node in ended:
            stand.found.wrong.append(f"{node.name} ended with {node.code}")
        answered = await answers(stand)
        if answered < 20:
            stand.found.wrong.append(f"{answered} of 20 calls are answered")
        async with cluster.client(cluster.nodes.endpoints, 10.0) as client:
            with suppress(RaftschedError):
                asked = job_pb2.GetJobRequest(namespace=VICTIM, job=job.name)
                state = (await client.call(asked)).status.state
                if state != job_pb2.JobStatus.STATE_BROKEN:
                    word = job_pb2.JobStatus.State.Name(state)
                    stand.found.wrong.append(f"the job is {word}, and should be STATE_BROKEN")
    finally:
        for node in cluster.nodes:
            cluster.control(node.name)
        async with stand.ours():
            await cluster.restart([node for node in cluster.nodes if not node.alive])
        async with cluster.client(cluster.nodes.endpoints, 10.0) as client:
            await client.call(job_pb2.DeleteJobRequest(namespace=VICTIM, job=job.name))


@deed("P15", 8)
async def full_disks(stand: Stand) -> None:
    """Journals find no room, the leader's and then everybody's, under writes of 20 kB."""
    cluster = stand.cluster
    full = Control(failpoints={"before-append": Failpoint("error", error="ENOSPC")})
    kept = set[str]()

    async def keep(name: str) -> None:
        if await write(stand, name, 20_000):
            kept.add(name)

    async with stand.ours():
        for whose in ([(await cluster.sure_leader()).name], [node.name for node in cluster.nodes]):
            for name in whose:
                cluster.control(name, full)
            until = time.monotonic() + 2
            while time.monotonic() < until:
                await asyncio.gather(*(keep(f"full-{time.time_ns()}-{n}") for n in range(20)))
            for name in whose:
                cluster.control(name)
            await asyncio.sleep(1.0)
    for node in cluster.nodes:
        if not node.alive:
            stand.found.wrong.append(f"{node.name} ended with {node.code}: {node.tail()}")
    await cluster.restart([node for node in cluster.nodes if not node.alive])
    if (answered := await answers(stand)) < 20:
        stand.found.wrong.append(f"{answered} of 20 calls are answered once there is room")
    async with cluster.client(cluster.nodes.endpoints, 10.0) as client:
        lost = kept - await names(client, VICTIM)
    stand.found.figures["written"] = len(kept)
    if lost:
        stand.found.wrong.append(f"{len(lost)} jobs that were acknowledged are gone")
