"""Each call that changes the folder of a node fails once, one after the other, over a whole life:
first start, writes, a snapshot, a backup, stop. Whatever fails, a start is refused with a code, or
the node waits or ends; it acknowledges nothing that is not there afterwards, and starts again."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from raftsched.cluster.local.ports import free_ports
from raftsched.cluster.node.backup import take
from raftsched.cluster.node.node import Node
from raftsched.cluster.node.node_spec import NodeSpec
from raftsched.cluster.ops import make_node as makes
from raftsched.cluster.ops.config import Config
from raftsched.cluster.ops.config_load import load
from raftsched.cluster.ops.data_dir import Folder
from raftsched.cluster.ops.exits import NodeCannotStart, NodeExit
from raftsched.cluster.raft.faults import DiskFailed
from raftsched.cluster.raft.port import RaftSettings
from raftsched.proto.v1 import job_pb2
from raftsched.statemachine.core.rejection import Refused
from raftsched.statemachine.core.store import Corrupt

from ...sampled import some
from .test_node import once, until

FAST = RaftSettings(heartbeat=0.02, silence_min=0.1, silence_max=0.2)
CALLS = (
    "open", "pwrite", "fsync", "fdatasync", "posix_fallocate", "rename", "replace", "unlink",
    "mkdir", "link",
)  # fmt: skip
CALLS_MAX = 400  # Of one life; a story that makes more is another one.
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
# What it may say when it does not start; all of them name what to do.
CODES = {NodeExit.DISK_FULL, NodeExit.FOLDER_UNWRITABLE, NodeExit.DAMAGED}


class Faulty:
    """The calls of the operating system that change something below a folder, counted."""

    def __init__(self, patch: pytest.MonkeyPatch, root: Path, at: int, number: int, *,
                 lasting: bool) -> None:  # fmt: skip
        self.root, self.at, self.number, self.lasting = str(root), at, number, lasting
        self.count, self.failed = 0, ""
        self._mutex = threading.Lock()
        for name in CALLS:
            patch.setattr(os, name, partial(self._call, name, getattr(os, name)))

    def _call(self, name: str, real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if self._changes(name, args):
            with self._mutex:
                self.count += 1
                fails = self.count == self.at or (self.lasting and self.count > self.at)
            if fails:
                self.failed = self.failed or f"{name} {args[0]}"
                raise OSError(self.number, os.strerror(self.number), str(args[0]))
        return real(*args, **kwargs)

    def _changes(self, name: str, args: tuple[Any, ...]) -> bool:
        if name == "open" and not args[1] & WRITES:
            return False
        path = args[0]
        if isinstance(path, int):
            with suppress(OSError):
                path = os.readlink(f"/proc/self/fd/{path}")
        return str(path).startswith(self.root)


def config_of(folder: Path) -> Config:
    peer, client = free_ports(2)
    flags = {
        "name": "n1", "members": f"n1=127.0.0.1:{peer}/127.0.0.1:{client}", "folder": str(folder),
        "segment_mb": "8",
    }  # fmt: skip
    return load(None, {}, flags).config


async def live(config: Config, acknowledged: set[str]) -> NodeExit | None:
    """One life; the code of a start that is refused, or of an end."""
    try:
        folder = Folder(Path(config.folder), config.cluster, config.name)
    except NodeCannotStart as refused:
        return refused.code
    try:
        node = makes.make_node(config, None, None)
    except NodeCannotStart as refused:
        folder.close()
        return refused.code
    try:
        await node.start()
        await work(node, acknowledged)
        error = node.ended.exception() if node.ended.done() else None
        assert error is None or isinstance(error, (DiskFailed, Corrupt)), repr(error)
        return NodeExit.DIED if error is not None else None
    finally:
        await node.stop()
        folder.close()


async def work(node: Node, acknowledged: set[str]) -> None:
    await until(lambda: node.leads or node.ended.done(), 10)
    for number in range(4):
        name = f"job-{len(acknowledged)}-{number}"
        with suppress(Refused):
            await node.write(once(name, 4_000_000_000_000), "", 2)
            acknowledged.add(name)
        if number == 1:
            node.driver.core.make_snapshot()
            node.driver.wake()
            await until(lambda: node.ended.done() or not node.driver.core.sender.making, 10)
            with suppress(OSError, Corrupt):
                take(node.replica, node.backups / "one", {})
        if node.ended.done():
            return


async def kept(config: Config) -> set[str]:
    """What is there after a start on a disk that is well again."""
    folder = Folder(Path(config.folder), config.cluster, config.name)
    node = makes.make_node(config, None, None)
    try:
        await node.start()
        await until(lambda: node.leads, 10)
        await node.write(once("after", 4_000_000_000_000), "", 5)
        answer = (await node.read(job_pb2.ListJobsRequest(), None, 5)).message
        assert isinstance(answer, job_pb2.ListJobsResponse)
        return {job.name for job in answer.jobs}
    finally:
        await node.stop()
        folder.close()


async def story(patch: pytest.MonkeyPatch, folder: Path, at: int, number: int, *,
                lasting: bool) -> str:  # fmt: skip
    """Two lives, in which the call `at` fails; what failed, empty if there were fewer calls."""
    config, acknowledged = config_of(folder), set[str]()
    with patch.context() as broken:
        faulty = Faulty(broken, folder, at, number, lasting=lasting)
        for _ in range(2):
            code = await live(config, acknowledged)
            assert code is None or code in CODES | {NodeExit.DIED}, (faulty.failed, code)
    if faulty.failed:
        assert acknowledged | {"after"} <= await kept(config), faulty.failed
    return faulty.failed


FAULTS = {
    "full": (errno.ENOSPC, False),
    "broken": (errno.EIO, False),
    "read only": (errno.EROFS, True),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("step", some([71, 23, 5], 1))
async def test_whatever_call_fails_what_was_acknowledged_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, step: int
) -> None:
    monkeypatch.setattr(makes, "NodeSpec", partial(NodeSpec, settings=FAST))
    number, lasting = FAULTS[fault]
    tried = []
    for at in range(1, CALLS_MAX, step):
        failed = await story(monkeypatch, tmp_path / str(at), at, number, lasting=lasting)
        if not failed:
            break
        tried.append(failed)
    else:
        raise AssertionError(f"a life takes more than {CALLS_MAX} calls; the last was {tried[-1]}")
    assert tried
