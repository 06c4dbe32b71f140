"""A node that meets the limit on the size of files ends, and its last line says which and why."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from raftsched.client import AsyncClient, ClusterError
from raftsched.cluster.ops.exits import Exit

from .processes import SMALL, NodeProcess, free_base, until

SEGMENT_BYTES = 8 << 20
LIMIT = 100_000


async def fill(client: AsyncClient) -> None:
    for number in range(100):
        await client.jobs.create(f"j{number}", handler="nobody", payload="x" * 30_000)


async def test_the_limit_on_files_is_named_while_it_runs_and_at_a_start(tmp_path: Path) -> None:
    base = free_base(1)
    member = f"n1=127.0.0.1:{base + 10}/127.0.0.1:{base}"
    arguments = [
        "--name", "n1", "--members", member, "--folder", str(tmp_path / "n1"), "--http", "",
        "--log-format", "json", *SMALL,
    ]  # fmt: skip
    node = NodeProcess("n1", arguments, tmp_path / "log")
    node.start()
    try:
        await until(lambda: any(line["event"] == "n1 leads in term 1" for line in node.said()), 20)
        async with AsyncClient(f"127.0.0.1:{base}", timeout=1) as client:
            await client.jobs.create("kept", handler="nobody")
            resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (LIMIT, SEGMENT_BYTES))
            with pytest.raises(ClusterError):
                await fill(client)
        await until(lambda: not node.alive, 10)
        assert node.process is not None
        assert node.process.returncode == Exit.FILE_LIMIT
        last = node.said()[-1]
        assert (last["event"], last["code"]) == ("stopped", Exit.FILE_LIMIT)
        assert f"RLIMIT_FSIZE, {LIMIT} bytes" in last["why"]
        assert "ulimit -f" in last["why"]
        assert "Replace the disk" not in node.log.read_text()

        node.log.write_text("")
        node.wrap = ("prlimit", f"--fsize={LIMIT}")
        node.start()
        await until(lambda: not node.alive, 10)
        assert node.process.returncode == Exit.FILE_LIMIT, node.log.read_text()
        assert f"RLIMIT_FSIZE, {LIMIT} bytes" in node.log.read_text().splitlines()[-1]

        node.wrap = ()
        node.start()
        async with AsyncClient(f"127.0.0.1:{base}", timeout=1) as client:
            await until(lambda: client.jobs.get("kept"), 20)
    finally:
        if node.alive:
            node.kill()
