"""`raftsched dev` without a terminal: up soon, alive, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from raftsched.cluster.local.ports import free_ports
from raftsched.cluster.local.process import environment

from .processes import crowd, fetch, until

pytestmark = pytest.mark.slow


class Dev:
    """The command, and the lines it has printed."""

    def __init__(self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader) -> None:
        self.process, self.reader = process, reader
        self.lines: list[str] = []
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        # A terminal ends with an error when nobody is at the other end any more.
        with suppress(OSError):
            async for line in self.reader:
                self.lines.append(line.decode().rstrip())

    def has(self, *words: str) -> bool:
        return any(all(word in line for word in words) for line in self.lines)

    async def said(self, *words: str, seconds: float = 10) -> None:
        try:
            await until(lambda: self.has(*words), seconds)
        except AssertionError:
            raise AssertionError("\n".join([f"not said: {words}", *self.lines])) from None


@asynccontextmanager
async def dev(
    *arguments: str, terminal: int | None = None, lines: int | None = None
) -> AsyncIterator[Dev]:
    """Run it, on a terminal if there is one: then its lines come from the other end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from raftsched.client.cli import main; main()", "dev", *arguments,
        stdin=asyncio.subprocess.DEVNULL if terminal is None else terminal,
        stdout=asyncio.subprocess.PIPE if terminal is None else terminal,
        stderr=asyncio.subprocess.STDOUT, env=environment(),
    )  # fmt: skip
    reader = process.stdout
    if lines is not None and terminal is not None:
        os.close(terminal)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            partial(asyncio.StreamReaderProtocol, reader), os.fdopen(os.dup(lines), "rb")
        )
    assert reader is not None
    running = Dev(process, reader)
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await asyncio.wait([running.reading], timeout=5)


def children(parent: int) -> set[int]:
    """Processes with that parent, as the system has them."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.add(int(stat.parent.name))
    return found


async def answers(url: str) -> bool:
    with suppress(OSError):
        return (await fetch(url, ""))[0] == 200
    return False


def living(pids: set[int]) -> set[int]:
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}


async def test_it_is_up_within_five_seconds_fires_and_leaves_nothing(tmp_path: Path) -> None:
    port = str(*free_ports(1))
    began = time.monotonic()
    async with dev("--port", port) as running:
        await running.said("Ready in", seconds=30)
        took = time.monotonic() - began
        data = next(line for line in running.lines if line.startswith("Data: "))
        folder = data.removeprefix("Data: ").partition(",")[0]
        await running.said("hello", "succeeded", "hello you", seconds=15)
        url = next(line for line in running.lines if "HTTP and JSON: " in line).split()[-1]
        await until(lambda: answers(url), 10)
        pids = children(running.process.pid)
        running.process.send_signal(signal.SIGTERM)
        await until(lambda: running.process.returncode is not None, 10)

    assert took < 5.0 * crowd()
    assert running.process.returncode == 0
    assert "thrown away" in data
    assert len(pids) == 5
    assert living(pids) == set()
    assert not Path(folder).exists()


async def test_keys_kill_and_revive_and_move_the_leader(tmp_path: Path) -> None:
    """On a terminal of our own making."""
    ours, theirs = pty.openpty()
    async with dev("--port", str(*free_ports(1)), terminal=theirs, lines=ours) as running:
        await running.said("Keys: 1 2 3", seconds=30)
        await running.said("succeeded", seconds=15)

        os.write(ours, b"k")
        await running.said("│", "kill -9")
        killed = next(line for line in running.lines if "kill -9" in line and "│" in line)
        name = killed.split("│")[0].split()[-1].removeprefix("\x1b[0m")
        # What nodes say before all is ready is not shown.
        await until(lambda: any("leads in term" in line for line in running.lines), 10)
        fired = sum("succeeded" in line for line in running.lines)
        await until(lambda: sum("succeeded" in line for line in running.lines) > fired, 15)
        os.write(ours, name[-1].encode())
        await running.said(name, "starts again")
        await until(lambda: any(f"{name}" in x and "serves" in x for x in running.lines), 20)
        led = sum("leads in term" in line for line in running.lines)
        os.write(ours, b"l")
        await until(lambda: sum("leads in term" in line for line in running.lines) > led, 10)
        os.write(ours, b"q")
        await until(lambda: running.process.returncode is not None, 10)
    os.close(ours)

    assert running.process.returncode == 0
    assert [line for line in running.lines if "did not work" in line] == []


async def test_what_is_kept_goes_on_and_a_taken_port_is_no_hindrance(tmp_path: Path) -> None:
    folder, port = tmp_path / "data", *free_ports(1)
    blocker = await asyncio.start_server(lambda r, w: None, "127.0.0.1", port)
    async with dev("--dir", str(folder), "--port", str(port), "--nodes", "1") as first:
        await first.said("hello", "succeeded", seconds=20)
        first.process.send_signal(signal.SIGINT)
        await until(lambda: first.process.returncode is not None, 10)
    async with dev("--dir", str(folder), "--port", str(port), "--nodes", "1") as second:
        await second.said("hello", "succeeded", seconds=20)
        second.process.send_signal(signal.SIGTERM)
        await until(lambda: second.process.returncode is not None, 10)
    blocker.close()

    assert first.has(f"Ports from {port} on are in use, so it takes {port + 100}")
    assert first.has("hello was created") or first.has("hello", "succeeded")
    assert not second.has("was created")
    assert second.has(f"127.0.0.1:{port + 100}")
    assert (first.process.returncode, second.process.returncode) == (0, 0)


@pytest.mark.parametrize("is_ready", [True, False])
async def test_a_parent_that_is_killed_leaves_nothing_running(
    tmp_path: Path, is_ready: bool
) -> None:
    """Whether it is ready or still on its way: then the worker waits for a leader."""
    async with dev("--port", str(*free_ports(1)), "--dir", str(tmp_path / "data")) as running:
        if is_ready:
            await running.said("Ready in", seconds=30)
        await until(lambda: len(children(running.process.pid)) == 5, 30)
        pids = children(running.process.pid)

        os.kill(running.process.pid, signal.SIGKILL)

        await until(lambda: not living(pids), 8)
    assert len(pids) == 5
