"""A backup is put back into a cluster of processes, which runs on."""

from __future__ import annotations

import asyncio
import json
import secrets
from pathlib import Path

import pytest

from raftsched.client import AsyncClient, RaftschedError, cron

from .handlers import working
from .processes import READY_S, cluster, until
from .test_backup import is_whole
from .test_command import Shell


@pytest.mark.slow
async def test_a_backup_is_put_back_at_the_shell(tmp_path: Path) -> None:
    file = tmp_path / "nightly.tar"
    async with cluster(tmp_path) as running, AsyncClient(running.endpoints, timeout=10) as client:
        shell = Shell(running, tmp_path)
        await client.jobs.create("kept", handler="nobody", schedule=cron("0 * * * *"))
        said = await shell.json("cluster", "backup", str(file))
        await client.jobs.create("lost", handler="nobody")
        processes = {name: node.pid for name, node in running.nodes.items()}

        unasked = await shell("cluster", "restore", str(file), code=2)
        tried = await shell.json("cluster", "restore", str(file), "--dry-run")
        other = tmp_path / "other.tar"
        other.write_bytes(file.read_bytes()[:-2048])
        broken = await shell("cluster", "restore", str(other), "--yes", code=1)
        assert {job.name async for job in client.jobs.list()} == {"kept", "lost"}
        done = json.loads(await shell("cluster", "restore", str(file), "--yes", "-o", "json"))

        assert {job.name async for job in client.jobs.list()} == {"kept"}
        await until(lambda: is_whole(client), READY_S)
        noted = [record.method async for record in client.access.records(namespace="")]
        assert {name: node.pid for name, node in running.nodes.items()} == processes

    assert said["jobs"] == 1
    assert "the same with --yes" in unasked
    assert (tried["jobs"], tried["live_runs"], tried["revision"]) == (1, 0, said["revision"])
    assert "is not whole" in broken
    assert int(done["revision"]) > int(done["formerRevision"]) + (1 << 39)
    assert "RestoreBackup" in noted


@pytest.mark.slow
async def test_it_is_put_back_under_load_while_leaders_die(tmp_path: Path) -> None:
    file = tmp_path / "nightly.tar"
    async with (
        cluster(tmp_path) as running,
        AsyncClient(running.endpoints, timeout=20) as client,
        working(running.endpoints) as noted,
    ):
        shell = Shell(running, tmp_path)
        await client.jobs.create("beat", handler="note", schedule=cron("* * * * * *"))
        for number in range(400):
            payload = secrets.token_bytes(40_000)
            await client.jobs.create(f"large-{number}", handler="nobody", payload=payload)
        await until(lambda: len(noted.runs) >= 2, 10)
        before = len(noted.runs)
        await shell("cluster", "backup", str(file))
        await client.jobs.create("lost", handler="nobody")
        made: list[str] = []

        async def load() -> None:
            while True:
                name = f"load-{len(made)}"
                try:
                    await client.jobs.create(name, handler="nobody")
                    made.append(name)
                except RaftschedError:
                    # Between two leaders it is not known what became of it.
                    made.append("")
                await asyncio.sleep(0.01)

        loading = asyncio.create_task(load())
        restoring = shell.start("cluster", "restore", str(file), "--yes", "-o", "json")
        await until(lambda: len(made) >= 60, 30)
        first = await running.leader()
        running.nodes[first].kill()
        said = await asyncio.to_thread(restoring.communicate, timeout=120)
        assert restoring.returncode == 0, said
        second = await running.leader()
        running.nodes[second].kill()
        running.nodes[first].start()
        running.nodes[second].start()
        await until(lambda: is_whole(client), READY_S)
        loading.cancel()
        await asyncio.wait([loading])
        back = len(noted.runs)
        await until(lambda: len(noted.runs) >= back + 3, 20)

        names = {job.name async for job in client.jobs.list()}
        audit = await client.jobs.audit("beat")
    # What was answered with success before is gone as a whole, what came after is there as a whole.
    kept = [name in names for name in made if name]
    assert "lost" not in names
    assert len([name for name in names if name.startswith("large-")]) == 400
    assert kept == sorted(kept)
    assert audit.sound, audit
    # What ran in what is lost may run again; what ended before, or began after, never does.
    assert len(set(noted.runs[:before])) == before
    # The last one may have been under way in the backup.
    assert not {*noted.runs[: before - 1]} & {*noted.runs[back:]}
    assert len(set(noted.runs[back:])) == len(noted.runs[back:])
