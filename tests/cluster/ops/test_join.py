"""A node with an empty disk gets the state as a snapshot: real consensus, real RocksDB."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path

from raftsched.cluster.local.ports import free_ports
from raftsched.cluster.node.node import Node
from raftsched.cluster.node.node_spec import MemberAddresses, NodeSpec
from raftsched.cluster.raft.journal import JournalLimits
from raftsched.cluster.raft.port import RaftSettings
from raftsched.statemachine.core.rejection import Refused
from raftsched.statemachine.selfcheck import verify

from ..node.test_node import leader_of, once, until

SMALL = RaftSettings(compact_bytes=3 << 20, tail_entries=3, chunk_bytes=8 << 10)
LIMITS = JournalLimits(segment=1 << 20, entry=512 << 10)
NAMES = ("n1", "n2", "n3")


def node(folder: Path, name: str, ports: list[int]) -> Node:
    members = {
        n: MemberAddresses(peer=f"127.0.0.1:{port}", client=f"{n}.example:7400")
        for n, port in zip(NAMES, ports, strict=True)
    }
    return Node(
        NodeSpec(
            name=name, cluster="test", folder=folder / name, members=members,
            cache_bytes=8 << 20, settings=SMALL, journal=LIMITS,
        )
    )  # fmt: skip


async def create(nodes: dict[str, Node], names: list[str]) -> Node:
    """Jobs whose payloads fill some segments of the journal; who leads then. On a busy machine it
    may be another one than before, which knows by the request id what was done."""
    leader = await leader_of(nodes)
    async with asyncio.timeout(60):
        for name in names:
            request = once(name, leader.spec.wall_ms() + 3_600_000)
            request.job.spec.payload.data = name.encode() * 7_000
            while True:
                with suppress(Refused):
                    await leader.write(request, "", 10)
                    break
                await asyncio.sleep(0.01)
                leader = await leader_of(nodes)
    return leader


def image(one: Node) -> dict[bytes, bytes]:
    return dict(one.replica.store.scan(b"\0", b"\xff" * 64))


async def test_a_node_joins_empty_while_the_others_work_on(tmp_path: Path) -> None:
    ports = free_ports(3)
    nodes = {name: node(tmp_path, name, ports) for name in NAMES}
    try:
        for each in nodes.values():
            await each.start()
        await create(nodes, ["before"])
        leader = await leader_of(nodes)
        name = next(n for n in NAMES if nodes[n] is not leader)
        gone = nodes.pop(name)
        await gone.stop()
        shutil.rmtree(tmp_path / name)
        # More than the journal keeps, so that the log alone cannot bring it back.
        leader = await create(nodes, [f"job-{number:04}" for number in range(90)])
        await until(lambda: leader.driver.core.journal.base_index > 2, 20)

        back = nodes[name] = node(tmp_path, name, ports)
        await back.start()
        leader = await create({n: nodes[n] for n in NAMES if n != name}, ["meanwhile"])
        await until(lambda: back.revision == leader.revision, 30)

        assert back.driver.core.snapshots.last_index > 0
        assert back.replica.number > 1
        assert back.replica.meta.fingerprint == leader.replica.meta.fingerprint
        assert image(back) == image(leader)
        assert verify.verify(back.replica.store) == []
        await until(lambda: leader.status().peers[name].voter, 10)

        # Restarted, it goes on from what it got.
        await back.stop()
        again = nodes[name] = node(tmp_path, name, ports)
        await again.start()
        await until(lambda: again.revision == leader.revision, 20)
        assert image(again) == image(leader)
    finally:
        await asyncio.gather(*(each.stop() for each in nodes.values()))
