"""A rolling restart, and an upgrade forth and back under load, by the commands one types."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from raftsched.chaos.real.builds import Build, from_git
from raftsched.client import AsyncClient, cron
from raftsched.cluster.local.nodes import PROGRAM, NodeProcesses, free_addresses
from raftsched.cluster.local.process import PROGRAM_OF_CLIENT, environment
from raftsched.cluster.node.build import build as build_id

from .handlers import working
from .processes import SMALL, Cluster, cluster, until

pytestmark = pytest.mark.slow

# It asks the test, which has the processes, and waits until that was done.
HOOK = 'touch "{folder}/ask-$NODE"; until [ -e "{folder}/done-$NODE" ]; do sleep 0.05; done'


async def typed(running: Cluster, *words: str) -> subprocess.Popen[str]:
    hook = HOOK.format(folder=running.folder)
    return subprocess.Popen(
        [*PROGRAM_OF_CLIENT, "cluster", *words, "--hook", hook, "--yes", "--settle", "2s"],
        env=environment() | {"RAFTSCHED_ENDPOINTS": running.endpoints}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


async def carried_out(
    running: Cluster, command: subprocess.Popen[str], build: Build | None = None
) -> tuple[list[str], str]:
    """Restart whom the command names; in which order, and what it said."""
    order: list[str] = []

    async def ended() -> bool:
        for name, node in running.nodes.items():
            asked = running.folder / f"ask-{name}"
            if asked.exists():
                asked.unlink()
                await asyncio.to_thread(node.stop)
                if build is not None:
                    node.program = build.program(name)
                    node.environment |= dict(build.environment)
                node.start()
                order.append(name)
                (running.folder / f"done-{name}").touch()
        return command.poll() is not None

    try:
        await until(ended, 90)
    finally:
        command.kill()
    for name in running.nodes:
        (running.folder / f"done-{name}").unlink(missing_ok=True)
    assert command.stdout is not None
    said = command.stdout.read()
    command.stdout.close()
    return order, said


async def test_a_node_that_was_not_restarted_stops_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        command = subprocess.Popen(
            [*PROGRAM_OF_CLIENT, "cluster", "rolling-restart", "--hook", "true", "--yes",
             "--wait", "4s", "--settle", "2s"],
            env=environment() | {"RAFTSCHED_ENDPOINTS": running.endpoints}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        order, said = await carried_out(running, command)

        assert command.returncode == 1
        assert order == []
        assert "was it restarted at all?" in said
        assert said.count(" drains; ") == 1


async def test_an_upgrade_goes_forth_and_back_under_load_and_loses_nothing(tmp_path: Path) -> None:
    old = from_git(tmp_path)
    now = Build("now", lambda name: PROGRAM, {"PYTHONPATH": environment()["PYTHONPATH"]})
    addresses = free_addresses(3)
    nodes = NodeProcesses(tmp_path / "nodes", addresses, settings=SMALL, program=old.program)
    for node in nodes:
        node.environment |= dict(old.environment)
    running = Cluster(nodes)
    try:
        running.start()
        await running.ready()
        async with (
            AsyncClient(running.endpoints, timeout=10) as client,
            working(running.endpoints) as noted,
        ):  # fmt: skip
            await client.jobs.create("tick", handler="note", schedule=cron("* * * * * *"))
            [before] = {one.build for one in (await client.cluster.status()).nodes}

            for build, wanted in ((now, build_id()), (old, before)):
                leader = await running.leader()
                command = await typed(running, "upgrade", "--to", wanted)
                order, said = await carried_out(running, command, build)
                assert "3 nodes done" in said, said
                assert order[-1] == leader
                assert {one.build for one in (await client.cluster.status()).nodes} == {wanted}
                # Typed again there is nothing to do.
                _, said = await carried_out(
                    running, await typed(running, "upgrade", "--to", wanted)
                )
                assert "already" in said

            assert (await client.jobs.audit("tick")).sound
            assert noted.doubled == []
            assert len(noted.runs) > 10
    finally:
        running.end()
