"""Brings all nodes to another build as an operator does: by `raftsched cluster upgrade`.

The command drains each node and looks after it. What restarts the node is a hook of its own here,
which leaves a word with the harness, whose child the node is, and waits for an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import tempfile
from pathlib import Path

from ...cluster.local.process import PROGRAM_OF_CLIENT, ProcessFailed
from .builds import Build
from .chaos_cluster import ChaosCluster
from .restarts import build_of, stop

COMMAND_S, WAIT_S, SETTLE_S = 360, 90, 2  # For all nodes, for one, and between two.
LOOK_S = 0.05
SHOWN = 2_000  # Of what the command wrote, where it failed.
# Written under another name first, so that no half of it is read.
HOOK = """
printf %s "$NODE" > {folder}/new && mv {folder}/new {folder}/asked
until [ -e {folder}/"done-$NODE" ]; do sleep 0.05; done
rm {folder}/"done-$NODE"
"""


async def change_all(cluster: ChaosCluster, build: Build) -> str:
    """All of them, one after the other; the sign is what the last one runs."""
    node = cluster.nodes[cluster.nodes.names[-1]]
    before = await build_of(cluster, node)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        restarts = asyncio.create_task(_restart_who_asks(cluster, build, folder))
        try:
            await _carry_out(cluster, build, folder, restarts)
        finally:
            restarts.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await restarts
    after = await build_of(cluster, node)
    return f"{before} to {after}" if after != before else ""


async def _carry_out(
    cluster: ChaosCluster, build: Build, folder: Path, restarts: asyncio.Task[None]
) -> None:
    wanted = await asyncio.to_thread(build.number)
    hook = HOOK.format(folder=shlex.quote(str(folder)))
    words = [
        *PROGRAM_OF_CLIENT, "cluster", "upgrade", "--endpoints", cluster.nodes.endpoints,
        "--to", wanted, "--hook", hook, "--wait", f"{WAIT_S}s", "--settle", f"{SETTLE_S}s", "--yes",
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    ended = asyncio.create_task(process.communicate())
    try:
        async with asyncio.timeout(COMMAND_S):
            await asyncio.wait({ended, restarts}, return_when=asyncio.FIRST_COMPLETED)
            if restarts.done():
                restarts.result()
            output, _ = await ended
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        text = output[-SHOWN:].decode(errors="replace").strip()
        raise ProcessFailed(f"raftsched cluster upgrade ended with {process.returncode}:\n{text}")


async def _restart_who_asks(cluster: ChaosCluster, build: Build, folder: Path) -> None:
    """Until it is cancelled, stop each node that is named and start it as the build."""
    asked = folder / "asked"
    while True:
        await asyncio.sleep(LOOK_S)
        if not asked.exists():
            continue
        name = asked.read_text()
        asked.unlink()
        node = cluster.nodes[name]
        await stop(cluster, node)
        cluster.put(name, build)
        await cluster.restart([node])
        (folder / f"done-{name}").touch()
