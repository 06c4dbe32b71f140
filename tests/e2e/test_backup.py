"""A cluster of processes is saved by the command line while it works."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

from raftsched.client import AsyncClient, cron

from .processes import cluster
from .test_command import Shell


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
