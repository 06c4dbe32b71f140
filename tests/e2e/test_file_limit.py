"""A node that meets the limit on the size of files ends, and its last line says which and why."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from raftsched.client import AsyncClient, ClusterError
from raftsched.cluster.ops.exits import NodeExit

from .processes import alone, lines_of, until

SEGMENT_BYTES = 8 << 20
LIMIT = 100_000


async def fill(client: AsyncClient) -> None:
    for number in range(100):
        await client.jobs.create(f"j{number}", handler="nobody", payload="x" * 30_000)


@pytest.mark.slow
async def test_the_limit_on_files_is_named_while_it_runs_and_at_a_start(tmp_path: Path) -> None:
    node = alone(tmp_path)
    node.start()
    try:
        leads = "n1 leads in term 1"
        await until(lambda: leads in {line["event"] for line in lines_of(node)}, 20)
        async with AsyncClient(node.client, timeout=1) as client:
            await client.jobs.create("kept", handler="nobody")
            resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (LIMIT, SEGMENT_BYTES))
            with pytest.raises(ClusterError):
                await fill(client)
        await until(lambda: not node.alive, 10)
        assert node.code == NodeExit.FILE_LIMIT
        last = lines_of(node)[-1]
        assert (last["event"], last["code"]) == ("stopped", NodeExit.FILE_LIMIT)
        assert f"RLIMIT_FSIZE, {LIMIT} bytes" in last["why"]
        assert "ulimit -f" in last["why"]
        assert "Replace the disk" not in node.log.read_text()

        node.log.write_text("")
        node.wrap = ("prlimit", f"--fsize={LIMIT}")
        node.start()
        await until(lambda: not node.alive, 10)
        assert node.code == NodeExit.FILE_LIMIT, node.log.read_text()
        assert f"RLIMIT_FSIZE, {LIMIT} bytes" in node.log.read_text().splitlines()[-1]

        node.wrap = ()
        node.start()
        async with AsyncClient(node.client, timeout=1) as client:
            await until(lambda: client.jobs.get("kept"), 20)
    finally:
        node.kill()
