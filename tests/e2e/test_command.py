"""`raftsched` as people type it, against three real nodes and a worker of its own."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from raftsched.cluster.local.process import environment

from .processes import Cluster, cluster, until

RUN = "from raftsched.client.cli import main; main()"


class Shell:
    """Types commands and reads what they print."""

    def __init__(self, running: Cluster, folder: Path) -> None:
        self.environment = environment() | {
            "RAFTSCHED_ENDPOINTS": running.endpoints,
            "RAFTSCHED_CONFIG": str(folder / "config.toml"),
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", RUN, *words], env=self.environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    async def __call__(self, *words: str, code: int = 0) -> str:
        process = self.start(*words)
        out, err = await asyncio.to_thread(process.communicate, timeout=60)
        assert process.returncode == code, f"{words}: {process.returncode}\n{out}\n{err}"
        assert "Traceback" not in err
        return out if not code else err

    async def json(self, *words: str) -> Any:  # noqa: ANN401  # Whatever the API says.
        return json.loads(await self(*words, "-o", "json"))


@pytest.mark.slow
async def test_a_session_at_the_shell(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        shell = Shell(running, tmp_path)
        await look_around(shell)
        await work(shell)
        await carry_over(shell, tmp_path)
        await move_the_lead(shell)


@pytest.mark.slow
async def test_top_shows_the_cluster_and_outlives_its_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        shell = Shell(running, tmp_path)
        worker = shell.start("worker", "run", "--executor", "shell")
        await shell("job", "create", "tick", "--every", "1s", "--shell", "true")

        async def one_look() -> bool:
            seen = await shell.json("top", "--once")
            return seen.get("rates", {}).get("ended", 0) > 0 and "lateness" in seen

        await until(one_look, 20)
        seen = await shell.json("top", "--once", "--endpoints", running.address("n2"))
        assert seen["cluster"]["tally"]["leased"]
        assert [queue["name"] for queue in seen["queues"]] == ["default"]
        assert len(seen["workers"]) == 1
        assert "missing" not in seen

        with Terminal(shell) as terminal:
            before = await running.leader()
            await terminal.shows(f"{before} leads")
            await terminal.shows("late p50")
            running.nodes[before].kill()
            await terminal.shows(*(f"{name} leads" for name in running.nodes if name != before))
            terminal.type("q")
            assert await terminal.ended() == 0
        assert terminal.said.endswith(LEFT)
        with Terminal(shell) as terminal:
            await terminal.shows("leads")
            terminal.type("\x03")
            assert await terminal.ended() == 0
        worker.send_signal(signal.SIGTERM)
        await until(lambda: worker.poll() is not None, 30)
        worker.communicate()


# What gives the screen back: the cursor is shown, and what was there before.
LEFT = "\x1b[?25h\x1b[?1049l"


class Terminal:
    """`raftsched top` on a terminal of its own."""

    def __init__(self, shell: Shell) -> None:
        self._ours, theirs = pty.openpty()
        os.set_blocking(self._ours, False)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-c", RUN, "top", "--every", "300ms"],
            env=shell.environment | {"TERM": "xterm", "NO_COLOR": "1"},
            stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=partial(own_terminal, theirs),
        )  # fmt: skip
        os.close(theirs)
        self.said = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(5)
        os.close(self._ours)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def _read(self) -> None:
        # A terminal that nobody is at any more answers with an error.
        with contextlib.suppress(OSError):
            while some := os.read(self._ours, 65_536):
                self.said += some.decode(errors="replace")

    async def shows(self, *either: str) -> None:
        """From now on one of these."""
        self._read()
        begun = len(self.said)

        def shown() -> bool:
            self._read()
            return any(words in self.said[begun:] for words in either)

        await until(shown, 20)

    async def ended(self) -> int:
        def over() -> bool:
            self._read()
            return self._process.poll() is not None

        await until(over, 10)
        self._read()
        self.said = self.said.rstrip()
        return self._process.returncode


def own_terminal(fd: int) -> None:
    """In the child: the terminal's keys send it signals."""
    os.setsid()
    fcntl.ioctl(fd, termios.TIOCSCTTY, 0)


async def look_around(shell: Shell) -> None:
    status = await shell.json("cluster", "status")
    findings = await shell.json("doctor")
    lines = (await shell("job", "next", "30 2 * * *", "--zone", "Europe/Berlin")).splitlines()

    assert (status["quorum"], len(status["nodes"]), status["margin"]) == (True, 3, 1)
    assert {one["check"] for one in findings} >= {"margin", "this clock", "clocks of nodes"}
    assert not [one for one in findings if one["verdict"] == "wrong"]
    assert len(lines) == 6


async def work(shell: Shell) -> None:
    """A job runs by a worker that is started by one command; one that fails says so."""
    lost = await shell("worker", "run", "--executor", "shell", "-n", "defalt", code=3)
    assert "there is no namespace 'defalt'" in lost
    assert "did you mean default?" in lost
    assert "raftsched namespace create defalt" in lost
    worker = shell.start("worker", "run", "--executor", "shell")
    try:
        await shell("job", "create", "good", "--shell", "echo done")
        await shell("job", "create", "bad", "--shell", "false", "--max-attempts", "1")
        run = (await shell("job", "trigger", "good", "-o", "name")).strip()
        ended = await shell.json("run", "wait", run)
        failed = (await shell("job", "trigger", "bad", "-o", "name")).strip()
        why = await shell("run", "wait", failed, code=1)

        assert ended["state"] == "RUN_STATE_SUCCEEDED"
        assert "exit.1" in why
        assert f"raftsched run get {failed}" in why
        assert (await shell("dead", "list", "-o", "name")).strip() == failed
        assert len((await shell.json("worker", "list"))["workers"]) == 1
        assert await shell("run", "logs", run) == "done\n"
        await shell("job", "create", "slow", "--shell", "sh -c 'echo one; sleep 1; echo two'")
        slow = (await shell("job", "trigger", "slow", "-o", "name")).strip()
        assert await shell("run", "logs", slow, "--follow") == "one\ntwo\n"
        await shell("alert", "put", "lost", "--dead-letters-above", "0")
        async with asyncio.timeout(30):
            while "raisedTime" not in await shell.json("alert", "get", "lost"):
                pass
        changes = await shell.json("audit-log", "--subject", "alert/lost")
        assert [one["method"] for one in changes["records"]] == ["PutAlert"]
        kinds = await shell("watch", "--since", "oldest", "--no-follow", "--run", run)
        assert [line.split("\t")[2] for line in kinds.splitlines()] == [
            "run fired", "run leased", "run succeeded",
        ]  # fmt: skip
        assert "yes" in await shell("audit", "--all", "--no-headers")
    finally:
        worker.send_signal(signal.SIGTERM)
        await until(lambda: worker.poll() is not None, 20)
        worker.communicate()
    assert worker.returncode == 0


async def carry_over(shell: Shell, folder: Path) -> None:
    """Jobs go out into a file, are deleted, and come back from it."""
    path = str(folder / "jobs.jsonl")
    await shell("job", "export", "--to", path)
    await shell("job", "delete", "good", "bad", "slow", "--yes")

    async def gone() -> bool:
        return await shell("job", "list", "-o", "name") == ""

    await until(gone, 20)
    await shell("job", "import", path)
    again = await shell.json("job", "apply", "-f", path)

    assert await shell("job", "list", "-o", "name") == "bad\ngood\nslow\n"
    assert {one["verdict"] for one in again["results"]} == {"VERDICT_UNCHANGED"}
    assert "raftsched job get bad" in await shell("job", "create", "bad", "--shell", "x", code=6)


async def move_the_lead(shell: Shell) -> None:
    before = await shell.json("cluster", "status")
    after = await shell.json("cluster", "transfer")
    verified = await shell.json("cluster", "verify")

    assert after["leader"] not in ("", before["leader"])
    assert verified["sound"]
    assert len(set(verified["fingerprints"].values())) == 1
