"""Nodes as processes that move to other addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftsched.client import AsyncClient
from raftsched.cluster.local.nodes import NodeProcesses, free_addresses
from raftsched.cluster.ops.exits import NodeExit

from .processes import READY_S, SMALL, Cluster, cluster, stop, until

REMOVED, REPLACED = int(NodeExit.REMOVED), int(NodeExit.REPLACED)


@pytest.mark.slow
async def test_a_node_moves_while_the_others_work_on(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, AsyncClient(running.endpoints, timeout=10) as client:
        moved = next(name for name in running.nodes if name != "n1")
        await stop(running.nodes[moved])
        [place] = free_addresses(1).values()

        await client.cluster.move(moved, peer_address=place.peer, client_address=place.client)
        await client.jobs.create("meanwhile", handler="nobody")
        # The addresses of the others as they are; its own where it is now.
        running.newcomer(moved, place).start()

        async with AsyncClient(place.client, timeout=10) as other:
            await until(lambda: is_whole(other), READY_S)
            kept = [job.name async for job in other.jobs.list(stale=True)]
            shown = await client.cluster.status()

    assert kept == ["meanwhile"]
    [one] = [node for node in shown.nodes if node.name == moved]
    assert (one.peer_address, one.client_address) == (place.peer, place.client)
    assert one.reachable


@pytest.mark.slow
async def test_a_cluster_that_was_stopped_begins_again_at_other_addresses(tmp_path: Path) -> None:
    """Nobody could write the move down: there was no majority at either place."""
    async with cluster(tmp_path) as running:
        async with AsyncClient(running.endpoints, timeout=10) as client:
            await client.jobs.create("kept", handler="nobody")
        for node in running.nodes.values():
            await stop(node)
        elsewhere = Cluster(NodeProcesses(tmp_path, free_addresses(3), settings=SMALL))
        try:
            elsewhere.start()
            await elsewhere.ready()
            async with AsyncClient(elsewhere.endpoints, timeout=10) as client:
                kept = [job.name async for job in client.jobs.list()]
                problems = list((await client.cluster.status()).problems)
                for name, node in elsewhere.nodes.items():
                    await client.cluster.move(name, peer_address=node.peer)
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
        await stop(away)
        shown = await client.cluster.remove(away.name)
        assert any("no failure is survived" in problem for problem in shown.problems)
        away.start()
        await until(lambda: not away.alive, READY_S)
        assert away.code == 0

        shown = await client.cluster.remove(here.name)
        assert any("everything is lost" in problem for problem in shown.problems)
        await until(lambda: not here.alive, READY_S)
        assert here.code == 0
        for node in (here, away):
            node.start()
            await until(lambda: not here.alive and not away.alive, READY_S)
            assert node.code == REMOVED
            assert "empty its folder" in node.log.read_text()


@pytest.mark.slow
async def test_a_folder_whose_place_another_one_took_is_kept_out(tmp_path: Path) -> None:
    """A volume was not mounted at one start, and is at the next."""
    async with cluster(tmp_path) as running, AsyncClient(running.endpoints, timeout=10) as client:
        leader = await running.leader()
        away = next(node for name, node in running.nodes.items() if name != leader)
        folder, former, fresh = (tmp_path / name for name in (away.name, "former", "fresh"))
        await stop(away)
        folder.rename(former)
        away.start()
        await until(lambda: is_whole(client), READY_S)
        await stop(away)

        folder.rename(fresh)
        former.rename(folder)
        for _ in range(2):
            away.start()
            await until(lambda: not away.alive, READY_S)
            assert away.code == REPLACED
            assert "has taken another disk in as" in away.log.read_text().splitlines()[-1]

        folder.rename(former)
        fresh.rename(folder)
        away.start()
        await until(lambda: is_whole(client), READY_S)


async def is_whole(client: AsyncClient) -> bool:
    status = await client.cluster.status()
    return all(node.reachable and node.serving for node in status.nodes)


async def is_sound(client: AsyncClient) -> bool:
    return not (await client.cluster.status()).problems
