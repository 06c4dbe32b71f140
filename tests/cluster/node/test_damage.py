"""A node whose state is damaged under it: it answers nothing more, and ends; others lead."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from raftsched.cluster.node.backup import take
from raftsched.cluster.node.damage import set_aside, set_aside_at
from raftsched.cluster.node.node import Node
from raftsched.cluster.ops.figures import NodeFigures
from raftsched.cluster.raft.faults import Damaged, DiskFailed
from raftsched.cluster.raft.message import Heartbeat
from raftsched.proto.v1 import common_pb2, job_pb2
from raftsched.statemachine.core.rejection import Refused
from raftsched.statemachine.core.rocks_store import RocksStore
from raftsched.statemachine.core.store import Corrupt

from .test_node import cluster, leader_of, once, until

JOBS = 100
STALE = common_pb2.ReadOptions(consistency=common_pb2.CONSISTENCY_STALE)


async def fill(nodes: dict[str, Node]) -> Node:
    """Create jobs; who leads then. On a busy machine it may be another than before."""
    async with asyncio.timeout(60):
        for number in range(JOBS):
            request = once(f"job-{number}", 4_000_000_000_000)
            request.job.spec.payload.data = os.urandom(6_000)
            while True:
                leader = await leader_of(nodes)
                with suppress(Refused):
                    await leader.write(request, "somebody", 5)
                    break
                await asyncio.sleep(0.01)
    return leader


def damage_tables(node: Node) -> None:
    """Turn bytes of each data block that a read could meet."""
    node.replica.store.flush()
    for table in node.replica.folder.rglob("*.sst"):
        data = bytearray(table.read_bytes())
        for at in range(20, len(data) - 1_500, 200):
            data[at] ^= 0xFF
        with table.open("r+b") as file:
            file.write(data)


READS = {
    "on the loop": job_pb2.GetJobRequest(job="job-7"),
    "on a helper": job_pb2.ListJobsRequest(),
}


@pytest.mark.parametrize("read", READS)
async def test_the_first_word_of_corruption_ends_the_leader_and_another_leads(
    tmp_path: Path, read: str
) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = await fill(nodes)
        damage_tables(leader)

        with pytest.raises((Corrupt, Refused)):
            await leader.read(READS[read], None, 5)

        await until(lambda: leader.ended.done())
        assert isinstance(leader.ended.exception(), Damaged)
        others = {name: node for name, node in nodes.items() if node is not leader}
        next_leader = await leader_of(others)
        assert (await next_leader.read(READS[read], None, 5)).revision >= JOBS
        await next_leader.write(once("after", 4_000_000_000_000), "somebody", 5)


async def test_nothing_is_decided_on_a_damaged_state(tmp_path: Path) -> None:
    """A rule that meets damage must not be taken for a rule that is broken."""
    async with cluster(tmp_path, 3) as nodes:
        leader = await fill(nodes)
        damage_tables(leader)
        before = leader.driver.core.journal.synced_index

        with pytest.raises(Exception):  # noqa: B017, PT011  # However it is told.
            await leader.write(job_pb2.DeleteJobRequest(job="job-7"), "somebody", 2)

        await until(lambda: leader.ended.done())
        assert isinstance(leader.ended.exception(), Damaged)
        assert leader.driver.core.journal.synced_index == before


async def reborn(nodes: dict[str, Node], node: Node) -> Node:
    """The node after it was started again on the same folder."""
    await node.stop()
    again = nodes[node.name] = Node(node.spec)
    await again.start()
    return again


async def test_it_comes_back_by_itself_with_its_disk_and_another_state(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = await fill(nodes)
        damage_tables(leader)
        disk = leader.driver.core.incarnation
        with pytest.raises((Corrupt, Refused)):
            await leader.read(READS["on a helper"], None, 5)
        await until(lambda: leader.ended.done())

        again = await reborn(nodes, leader)

        await until(lambda: again.revision >= JOBS and bool(again.leader_name), 20)
        assert again.driver.core.incarnation == disk
        assert (again.spec.folder / "damaged" / "state-1").is_dir()
        await until(lambda: again.driver.staleness() < 1, 20)
        found = await again.read(READS["on the loop"], STALE, 5)
        assert "job-7" in str(found.message)
        # Nothing of it is left for the start after that.
        again = await reborn(nodes, again)
        await until(lambda: again.revision >= JOBS, 20)
        assert [path.name for path in (again.spec.folder / "state").iterdir()] == ["state-2"]


def damage_data(node: Node) -> None:
    """Turn a few bytes of the data of each table, in a place that no start needs."""
    for table in node.replica.folder.rglob("*.sst"):
        data = bytearray(table.read_bytes())
        at = len(data) // 3
        data[at : at + 4] = bytes(byte ^ 0xFF for byte in data[at : at + 4])
        with table.open("r+b") as file:
            file.write(data)


async def test_it_does_not_go_back_to_a_snapshot_that_was_made_of_a_damaged_state(
    tmp_path: Path,
) -> None:
    """Its digests are those of the damaged tables. Seen before: it took the damaged state from it
    at each start, and ended at the next read."""
    async with cluster(tmp_path, 3) as nodes:
        leader = await fill(nodes)
        node = next(node for node in nodes.values() if node is not leader)
        await until(lambda: node.revision >= JOBS)
        node.damage._background.stop()
        node.replica.store.flush()
        damage_data(node)
        core = node.driver.core
        core.make_snapshot()
        node.driver.wake()
        await until(lambda: bool(core.snapshots.last_index), 20)
        with pytest.raises(Corrupt):
            read_all(node)
        await until(lambda: node.ended.done())

        again = await reborn(nodes, node)
        await until(lambda: again.revision >= JOBS, 20)
        assert not again.ended.done()
        again.replica.store.flush()
        read_all(again)


async def test_no_backup_is_made_of_a_damaged_state(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        node = await fill(nodes)
        node.replica.store.flush()
        damage_data(node)

        with pytest.raises(Corrupt):
            take(node.replica, tmp_path / "backups" / "one", {})

        await until(lambda: node.ended.done())
        assert isinstance(node.ended.exception(), Damaged)
        assert not list((tmp_path / "backups").iterdir())


def read_all(node: Node) -> None:
    store = node.replica.store
    assert isinstance(store, RocksStore)
    assert sum(1 for _ in store.scan(b"", b"\xff" * 8)) > JOBS


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST*", "*.sst"])
async def test_a_state_that_cannot_be_opened_is_set_aside(tmp_path: Path, name: str) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = await fill(nodes)
        follower = next(node for node in nodes.values() if node is not leader)
        await until(lambda: follower.revision == leader.revision)
        follower.replica.store.flush()
        await follower.stop()
        for path in follower.replica.folder.rglob(name):
            data = path.read_bytes()
            path.write_bytes(data[:8] + b"xxxx" + data[12:-50])
        again = nodes[follower.name] = Node(follower.spec)
        await again.start()

        await until(lambda: again.revision == leader.revision, 20)
        assert (again.spec.folder / "damaged").is_dir()


async def test_while_its_state_is_on_its_way_it_answers_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = await leader_of(nodes)
        leader.driver.core.node.bereft = True

        with pytest.raises(Refused, match="it fetches another"):
            await leader.read(READS["on the loop"], STALE, 1)
        with pytest.raises(Refused, match="it fetches another"):
            await leader.write(once("no", 4_000_000_000_000), "somebody", 1)
        leader.driver.core.node.bereft = False


async def ends_and_others_lead(nodes: dict[str, Node], node: Node, match: str) -> dict[str, Node]:
    """Wait for the node's end by damage; the others, which take writes."""
    await until(lambda: node.ended.done(), 10)
    error = node.ended.exception()
    assert isinstance(error, Damaged)
    assert match in str(error)
    others = {name: other for name, other in nodes.items() if other is not node}
    leader = await leader_of(others)
    await leader.write(once("after", 4_000_000_000_000), "somebody", 5)
    return others


@pytest.mark.parametrize("anew", [False, True])
async def test_a_leader_whose_folder_is_removed_ends_and_comes_back_empty(
    tmp_path: Path, anew: bool
) -> None:
    """Seen before: it went on acknowledging, and a restart of all began a new cluster."""
    async with cluster(tmp_path, 3) as nodes:
        node = await leader_of(nodes)
        disk = node.driver.core.incarnation
        await node.write(once("before", 4_000_000_000_000), "somebody", 5)
        shutil.rmtree(node.spec.folder)
        if anew:
            node.spec.folder.mkdir()

        others = await ends_and_others_lead(nodes, node, "removed or replaced")

        # Nothing is left there that a start would not take for a fresh folder.
        assert node.spec.folder.exists() == anew
        assert not anew or not list(node.spec.folder.iterdir())
        again = await reborn(nodes, node)
        leader = await leader_of(others)
        await until(lambda: again.revision >= leader.revision > 1, 20)
        assert again.driver.core.incarnation != disk
        await until(lambda: again.driver.core.members.is_voter, 20)


async def test_a_write_that_fails_since_the_folder_is_gone_is_damage(tmp_path: Path) -> None:
    """Where a new segment is begun before the next look at the files."""
    async with cluster(tmp_path, 3) as nodes:
        node = await leader_of(nodes)
        shutil.rmtree(node.spec.folder)
        node.driver.fail(DiskFailed("the disk refused a write: no such file"))

        await ends_and_others_lead(nodes, node, "removed or replaced")


async def test_a_node_whose_newest_segment_is_removed_does_not_use_that_disk_again(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = await leader_of(nodes)
        node = next(node for node in nodes.values() if node is not leader)
        await leader.write(once("before", 4_000_000_000_000), "somebody", 5)
        for path in (node.spec.folder / "consensus" / "journal").iterdir():
            path.unlink()

        await ends_and_others_lead(nodes, node, "removed or replaced")

        await node.stop()
        with pytest.raises(Damaged, match="empty one"):
            Node(node.spec)


def blank(journal: Path) -> None:
    """Leave one segment, with nothing in it."""
    last, *others = sorted(journal.iterdir(), reverse=True)
    last.write_bytes(bytes(1 << 20))
    for path in others:
        path.unlink()


LOSSES: dict[str, Callable[[Path], object]] = {
    "all of consensus": shutil.rmtree,
    "the journal": lambda folder: shutil.rmtree(folder / "journal"),
    "what is in the journal": lambda folder: blank(folder / "journal"),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("with_snapshot", [False, True])
async def test_a_state_without_its_journal_is_damage_at_each_start(
    tmp_path: Path, loss: str, with_snapshot: bool
) -> None:
    """Seen before: "this is a bug", for what somebody removed. It has lost its vote."""
    async with cluster(tmp_path, 3) as nodes:
        leader = await leader_of(nodes)
        node = next(node for node in nodes.values() if node is not leader)
        await leader.write(once("before", 4_000_000_000_000), "somebody", 5)
        await until(lambda: node.revision == leader.revision)
        if with_snapshot:
            node.driver.core.make_snapshot()
            node.driver.wake()
            await until(lambda: bool(node.driver.core.snapshots.last_index), 20)
        await node.stop()
        LOSSES[loss](node.spec.folder / "consensus")

        for _ in range(2):
            with pytest.raises(Damaged, match="must not vote"):
                Node(node.spec)


async def test_a_node_that_lacks_what_it_acknowledged_ends_and_says_so(tmp_path: Path) -> None:
    """Its folder is an older copy, or a copy of it runs elsewhere under the same name."""
    async with cluster(tmp_path, 3) as nodes:
        leader = await leader_of(nodes)
        node = next(node for node in nodes.values() if node is not leader)
        core = node.driver.core
        await until(lambda: core.node.leader == leader.name)

        beyond = core.journal.last_index + 1
        beat = Heartbeat(core.term, 0, beyond, beyond, 0.0, 0.0)
        node.driver._received(leader.name, leader.driver.core.incarnation, beat)

        await ends_and_others_lead(nodes, node, "older copy")
        await node.stop()
        for _ in range(2):
            with pytest.raises(Damaged, match="must not vote"):
                Node(node.spec)


async def test_what_was_set_aside_is_told_until_somebody_has_seen_to_it(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        node = await leader_of(nodes)
        figures = {one.name: one for one in NodeFigures(node, lambda: 0).collect()}
        name = "raftsched_damaged_timestamp_seconds"
        assert figures[name].samples[0].value == 0
        assert set_aside_at(node.spec.folder) == 0
        (node.spec.folder / "of-old").touch()
        set_aside(node.spec.folder, ["of-old"], "a test")
        figures = {one.name: one for one in NodeFigures(node, lambda: 0).collect()}
        assert figures[name].samples[0].value == set_aside_at(node.spec.folder) > 0
