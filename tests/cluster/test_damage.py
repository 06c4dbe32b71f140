"""A node whose state is damaged under it: it answers nothing more, and ends; others lead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raftsched.cluster.consensus.faults import Damaged
from raftsched.cluster.node import Node
from raftsched.proto.v1 import common_pb2, job_pb2
from raftsched.statemachine.rejection import Refused
from raftsched.statemachine.store import Corrupt

from .test_node import cluster, leader_of, once, until

JOBS = 300
STALE = common_pb2.ReadOptions(consistency=common_pb2.CONSISTENCY_STALE)


async def fill(leader: Node) -> None:
    for number in range(JOBS):
        request = once(f"job-{number}", 4_000_000_000_000)
        request.job.spec.payload.data = os.urandom(2_000)
        await leader.write(request, "somebody", 5)


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
        leader = await leader_of(nodes)
        await fill(leader)
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
        leader = await leader_of(nodes)
        await fill(leader)
        damage_tables(leader)
        before = leader.driver.core.journal.synced_index

        with pytest.raises(Exception):  # noqa: B017, PT011  # However it is told.
            await leader.write(job_pb2.DeleteJobRequest(job="job-7"), "somebody", 2)

        await until(lambda: leader.ended.done())
        assert isinstance(leader.ended.exception(), Damaged)
        assert leader.driver.core.journal.synced_index == before
