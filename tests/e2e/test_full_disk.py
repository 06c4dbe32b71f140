"""A disk that fills up under a node: it says so, loses nothing, and goes on when there is room.

The disk is a small one of memory, in a name space of its own, which needs no rights where the
system allows it; where not, the test is left out with that word.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from raftsched.client import AsyncClient, ClusterError, Unavailable
from raftsched.cluster.local.nodes import free_addresses
from raftsched.cluster.ops.data_dir import Folder
from raftsched.cluster.ops.exits import NodeExit

from .processes import alone, ends, fetch, until

pytestmark = pytest.mark.slow

MOUNT = 'mount -t tmpfs -o size=%s none "$1" && shift && exec "$@"'

READ_ONLY = 'mount -t tmpfs none "$1" && %s && mount -o remount,ro "$1" && shift && exec "$@"'


def small_disks_work(folder: Path) -> bool:
    if not shutil.which("unshare"):
        return False
    words = ["unshare", "-rm", "sh", "-c", MOUNT % "80m", "sh", str(folder), "true"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


# Where the journal meets it first, and where the state does: the segment has room left then, and
# 64 MB of changes wait in memory for a flush.
@pytest.mark.parametrize(("size", "segment"), [("80m", "8"), ("800m", "160")])
async def test_a_disk_that_fills_up_stops_writes_and_nothing_else(
    tmp_path: Path, size: str, segment: str
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if not small_disks_work(disk):
        pytest.skip("this system does not let us mount a small disk")
    [address] = free_addresses(1).values()
    http = f"http://{address.http}"
    node = alone(tmp_path, "--folder", str(disk / "n1"), "--segment-mb", segment, address=address)
    node.wrap = ("unshare", "-rm", "sh", "-c", MOUNT % size, "sh", str(disk))
    node.start()
    log = node.log
    try:
        await until(lambda: '"serves"' in log.read_text(), 20)
        # The disk as the node sees it.
        inside = Path(f"/proc/{node.pid}/root{disk}")
        async with AsyncClient(address.client, timeout=2) as client:
            # A node that has never led knows of no state that it could show.
            await until(lambda: client.jobs.create("first", handler="nobody"), 20)
            filler = inside / "filler"
            fill(filler)
            kept = await write_until_refused(client)
            with pytest.raises(Unavailable) as refused:
                await client.jobs.create("refused", handler="nobody")
            seen = {job.name async for job in client.jobs.list(stale=True)}
            figures = (await fetch(http, "/metrics"))[1]
            ready = await fetch(http, "/readyz")
            alive = await fetch(http, "/healthz")
            filler.unlink()
            await until(lambda: client.jobs.create("after", handler="nobody"), 10)
            after = {job.name async for job in client.jobs.list()}
    finally:
        node.kill()

    assert "the disk of n1 is full" in str(refused.value)
    assert "raftsched_disk_full 1.0" in figures
    assert (ready[0], alive[0]) == (503, 200)
    assert "disk: it is full" in ready[1]
    assert kept <= seen
    assert kept | {"after"} <= after
    assert "nothing is lost" in log.read_text()
    if segment == "160":
        assert "the state cannot be written" in log.read_text()


async def test_a_disk_that_only_the_journal_fills_is_emptied_by_the_node_itself(
    tmp_path: Path,
) -> None:
    """Compaction begins at 256 MiB, and the disk has less: seen before, nothing was written any
    more from the last segment on."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if not small_disks_work(disk):
        pytest.skip("this system does not let us mount a small disk")
    [address] = free_addresses(1).values()
    node = alone(tmp_path, "--folder", str(disk / "n1"), "--segment-mb", "8", address=address)
    node.wrap = ("unshare", "-rm", "sh", "-c", MOUNT % "120m", "sh", str(disk))
    node.start()
    try:
        async with AsyncClient(address.client, timeout=2) as client:
            await until(lambda: client.jobs.create("job", handler="nobody"), 20)
            # Half as much again as the disk has, in one place: the state stays small.
            for number in range(3_000):
                await until(partial(put, client, number), 20)
    finally:
        node.kill()

    text = node.log.read_text()
    assert "the disk is full" in text
    assert "of its journal that its newest snapshot stands for" in text


async def put(client: AsyncClient, number: int) -> bool:
    job = await client.jobs.update("job", payload=b"%d" % number + b"x" * 60_000)
    return bool(job)


@pytest.mark.parametrize("fresh", [True, False])
async def test_a_node_on_a_disk_that_may_only_be_read_says_so(
    tmp_path: Path, *, fresh: bool
) -> None:
    disk, before = tmp_path / "disk", tmp_path / "before"
    disk.mkdir()
    if not small_disks_work(disk):
        pytest.skip("this system does not let us mount a small disk")
    Folder(before, "raftsched", "n1").close()
    copy = "true" if fresh else f'cp -r "{before}" "$1/n1"'
    node = alone(tmp_path, "--folder", str(disk / "n1"))
    node.wrap = ("unshare", "-rm", "sh", "-c", READ_ONLY % copy, "sh", str(disk))

    code, lines = await ends(node)

    assert code == NodeExit.FOLDER_UNWRITABLE, lines
    assert "cannot be written to: Read-only file system" in lines[-1]


def fill(filler: Path) -> None:
    """Take what is left."""
    with filler.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(b"\0" * (1 << 16))
        except OSError:
            return


async def write_until_refused(client: AsyncClient) -> set[str]:
    """Create jobs until the journal needs a new piece and gets none."""
    kept: set[str] = set()
    for number in range(2_000):
        name = f"job-{number}"
        try:
            await client.jobs.create(name, handler="nobody", payload=b"x" * 60_000)
        except ClusterError:
            return kept
        kept.add(name)
        await asyncio.sleep(0)
    raise AssertionError("the disk never filled up")
