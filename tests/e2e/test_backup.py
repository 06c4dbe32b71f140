"""Clusters of processes that are saved, lost, and begun anew, by the command line."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from raftsched.client import AsyncClient, cron

from .handlers import working
from .processes import READY_S, Cluster, cluster, command, ends, until
from .test_command import Shell
from .test_life import certificates, cluster_with_tls


@pytest.mark.slow
async def test_a_backup_is_made_at_the_shell(tmp_path: Path) -> None:
    file = tmp_path / "nightly.tar"
    async with cluster(tmp_path) as running, AsyncClient(running.endpoints, timeout=10) as client:
        shell = Shell(running, tmp_path)
        for number in range(30):
            await client.jobs.create(f"job-{number}", handler="nobody", schedule=cron("0 * * * *"))

        said = json.loads(await shell("cluster", "backup", str(file), "-o", "json"))
        kept = file.read_bytes()
        refused = await shell("cluster", "backup", str(file), code=6)
        await shell("cluster", "backup", str(file), "--force", "--endpoints", running.address("n2"))

    assert (said["cluster"], said["size"]) == ("raftsched", len(kept))
    assert said["revision"] >= 30
    assert "with --force" in refused
    assert file.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.glob("nightly*")) == ["nightly.tar"]
    with tarfile.open(file) as archive:
        assert archive.getnames()[-1] == "manifest.json"
    for name in running.nodes:
        folder = tmp_path / name / "backups"
        assert not folder.exists() or list(folder.iterdir()) == []


async def offline(running: Cluster, name: str, *words: str, code: int = 0) -> str:
    """A command of a node that does not run; what it says."""
    ended = command(running.folder, *words, *running.nodes[name].arguments)
    found, lines = await ends(ended)
    assert found == code, lines
    assert not any("Traceback" in line for line in lines)
    return "\n".join(lines)


async def is_whole(client: AsyncClient) -> bool:
    """All three vote, and have the same state."""
    status = await client.cluster.status()
    found = await client.cluster.verify() if status.margin == 1 else None
    return found is not None and found.sound and len(found.fingerprints) == 3


async def lose(running: Cluster, *kept: str) -> None:
    """Power goes everywhere, and the disks of all but some with it."""
    for name, node in running.nodes.items():
        if node.alive:
            node.kill()
        if name not in kept:
            shutil.rmtree(running.folder / name)


@pytest.mark.slow
async def test_a_cluster_that_is_lost_begins_anew_from_its_backup(tmp_path: Path) -> None:
    file = tmp_path / "nightly.tar"
    async with cluster(tmp_path) as running:
        async with (
            working(running.endpoints) as noted,
            AsyncClient(running.endpoints, timeout=10) as client,
        ):
            await client.jobs.create("beat", handler="note", schedule=cron("* * * * * *"))
            await until(lambda: len(noted.runs) >= 2, 10)
            await Shell(running, tmp_path)("cluster", "backup", str(file))
            saved = (await client.cluster.status()).revision
            seen = len(noted.runs)
            await until(lambda: len(noted.runs) >= seen + 2, 10)
        await lose(running)

        said = await offline(running, "n2", "restore", str(file))
        again = await offline(running, "n2", "restore", str(file), code=10)
        running.nodes["n2"].start()
        await until(lambda: running.leader(), READY_S)
        refused = await offline(running, "n3", "restore", str(file), code=20)
        shutil.rmtree(tmp_path / "n3", ignore_errors=True)
        running.start()
        async with (
            AsyncClient(running.endpoints, timeout=20) as client,
            working(running.endpoints) as noted,
        ):
            await until(lambda: is_whole(client), READY_S)
            await until(lambda: len(noted.runs) >= 3, 20)
            sound = (await client.jobs.audit("beat")).sound
            status = await client.cluster.status()
            # The new cluster stands the loss of the node that it began on.
            running.nodes["n2"].kill()
            await client.jobs.create("after", handler="nobody")

    assert "then n1, n3, each with an empty folder" in said
    assert "a backup is put into an empty folder" in again
    assert "n2 run as nodes of a cluster" in refused
    assert sound
    assert status.revision > saved + (1 << 39)
    assert noted.doubled == []


@pytest.mark.slow
async def test_one_folder_that_is_left_becomes_a_cluster(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        async with AsyncClient(running.endpoints, timeout=10) as client:
            await client.jobs.create("kept", handler="nobody")
        refused = await offline(running, "n1", "recover", code=11)
        running.nodes["n1"].kill()
        lives = await offline(running, "n1", "recover", "--confirm", "raftsched", code=20)
        await lose(running, "n1")
        seen = await offline(running, "n1", "recover", "--look")
        unsure = await offline(running, "n1", "recover", "--confirm", "other", code=2)
        assert "and 'other' was typed" in unsure

        said = await offline(running, "n1", "recover", "--confirm", "raftsched")
        running.start()
        async with AsyncClient(running.endpoints, timeout=20) as client:
            await until(lambda: is_whole(client), READY_S)
            kept = [job.name async for job in client.jobs.list()]

    assert "is in use by another process" in refused
    assert "start n1 instead" in lives
    assert "voters: n1, n2, n3; alive: none of the others answers" in seen
    assert "nothing was done" in unsure
    assert "a new cluster begins on n1" in said
    assert kept == ["kept"]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl to make certificates")
async def test_who_answers_is_seen_through_tls(tmp_path: Path) -> None:
    certificates(tmp_path, ["n1", "n2", "n3", "me"])
    made = cluster_with_tls(tmp_path)
    async with cluster(tmp_path, arguments=made, scheme="https") as running:
        running.nodes["n1"].kill()
        seen = await offline(running, "n1", "recover", "--look")
        lives = await offline(running, "n1", "recover", "--confirm", "raftsched", code=20)

    assert "alive: n2, n3" in seen
    assert "start n1 instead" in lives
