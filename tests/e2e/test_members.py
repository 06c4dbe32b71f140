"""Nodes as processes that move to other addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftsched.client import AsyncClient
from raftsched.cluster.ops.exits import Exit

from .processes import READY_S, Cluster, cluster, free_base, until

REMOVED = int(Exit.REMOVED)


@pytest.mark.slow
async def test_a_node_moves_while_the_others_work_on(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, AsyncClient(running.endpoints, timeout=10) as client:
        moved = next(name for name in running.nodes if name != "n1")
        await running.nodes[moved].stop()
        place = int(moved[1:]) - 1
        base = free_base(3)
        peer, address = f"127.0.0.1:{base + 10 + place}", f"127.0.0.1:{base + place}"

        await client.cluster.move(moved, peer_address=peer, client_address=address)
        await client.jobs.create("meanwhile", handler="nobody")
        there = Cluster(tmp_path, base, 3).nodes[moved]
        # The addresses of the others as they are; its own where it is now.
        there.arguments[there.arguments.index("--members") + 1] = running.members_with(
            moved, peer, address
        )
        running.nodes[moved] = there
        there.start()

        async with AsyncClient(address, timeout=10) as other:
            await until(lambda: is_whole(other), READY_S)
            kept = [job.name async for job in other.jobs.list(stale=True)]
            shown = await client.cluster.status()

    assert kept == ["meanwhile"]
    [one] = [node for node in shown.nodes if node.name == moved]
    assert (one.peer_address, one.client_address, one.reachable) == (peer, address, True)


async def test_a_cluster_that_was_stopped_begins_again_at_other_addresses(tmp_path: Path) -> None:
    """Nobody could write the move down: there was no majority at either place."""
    async with cluster(tmp_path) as running:
        async with AsyncClient(running.endpoints, timeout=10) as client:
            await client.jobs.create("kept", handler="nobody")
        for node in running.nodes.values():
            await node.stop()
        elsewhere = Cluster(tmp_path, free_base(3), 3)
        try:
            elsewhere.start()
            await elsewhere.ready()
            async with AsyncClient(elsewhere.endpoints, timeout=10) as client:
                kept = [job.name async for job in client.jobs.list()]
                problems = list((await client.cluster.status()).problems)
                for name in elsewhere.nodes:
                    place = elsewhere.base + 10 + int(name[1:]) - 1
                    await client.cluster.move(name, peer_address=f"127.0.0.1:{place}")
                await until(lambda: is_sound(client), 5)
        finally:
            elsewhere.end()

    assert kept == ["kept"]
    assert any("raftsched cluster move" in line for line in problems)


@pytest.mark.slow
async def test_a_removed_node_that_is_started_again_says_so(tmp_path: Path) -> None:
    """Also one that was away when it was removed. Seen before: it asked the others for ever."""
    async with cluster(tmp_path) as running, AsyncClient(running.endpoints, timeout=10) as client:
        leader = await running.leader()
        here, away = (node for name, node in running.nodes.items() if name != leader)
        await away.stop()
        shown = await client.cluster.remove(away.name)
        assert any("no failure is survived" in problem for problem in shown.problems)
        away.start()
        await until(lambda: not away.alive, READY_S)
        assert away.process is not None
        assert away.process.returncode == 0

        shown = await client.cluster.remove(here.name)
        assert any("everything is lost" in problem for problem in shown.problems)
        await until(lambda: not here.alive, READY_S)
        assert here.process is not None
        assert here.process.returncode == 0
        for node in (here, away):
            node.start()
            await until(lambda: not here.alive and not away.alive, READY_S)
            assert node.process is not None
            assert node.process.returncode == REMOVED
            assert "empty its folder" in node.log.read_text()


async def is_whole(client: AsyncClient) -> bool:
    status = await client.cluster.status()
    return all(node.reachable and node.serving for node in status.nodes)


async def is_sound(client: AsyncClient) -> bool:
    return not (await client.cluster.status()).problems
