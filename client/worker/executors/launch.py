"""Starts a command below its launcher (`launcher.py`), and hears how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import IO, Any

LAUNCHER = Path(__file__).with_name("launcher.py")
TERM, KILL = b"T", b"K"
# A launcher that is to kill all and is still there then was itself held up or stopped.
LAUNCHER_S = 12.0
# After that it is looked so long whether a cgroup is empty and can go.
GROUP_S, LOOK_S = 1.0, 0.02
SAID_MAX = 4_096


@dataclass(frozen=True)
class LaunchOrder:
    """What a launcher is given."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    # What stands before the launcher: bubblewrap or systemd-run, with its options.
    before: Sequence[str] = ()
    directory: str = ""
    # RLIMIT_…, soft and hard.
    limits: Sequence[tuple[int, int, int]] = ()
    niceness: int = 0
    # Number, group and other groups of the user that it becomes.
    user: tuple[int, int, Sequence[int]] | None = None
    # A cgroup to be made for it, and what is written into its files.
    cgroup: str = ""
    cgroup_limits: Mapping[str, str] = field(default_factory=dict)
    # Whether what stands before it gives it process numbers of its own.
    is_private: bool = False
    # The cgroup that the launcher is in holds it and the command alone; and where cgroups are.
    scope: bool = False
    cgroups: str = ""

    def as_bytes(self) -> bytes:
        asked: dict[str, Any] = {
            "argv": [word.encode() for word in self.argv],
            "environment": {one.encode(): text.encode() for one, text in self.environment.items()},
            "directory": self.directory, "limits": [tuple(one) for one in self.limits],
            "niceness": self.niceness, "cgroup": self.cgroup,
            "user": None if self.user is None else (*self.user[:2], list(self.user[2])),
            "cgroup_limits": dict(self.cgroup_limits), "scope": self.scope,
            "cgroups": self.cgroups, "worker": os.getpid(),
        }  # fmt: skip
        return marshal.dumps(asked)


@dataclass(frozen=True)
class Ended:
    """How it ended, as its launcher says."""

    code: int
    # Processes that were there after it and were killed.
    left: int = 0
    cpu_s: float = 0.0
    # How often its cgroup was out of memory, or out of processes.
    memory_met: int = 0
    processes_met: int = 0


class NotStarted(Exception):
    """It was not started; the text says why."""


class Lost(Exception):
    """Its launcher ended before it could say how the command did."""


class Launched:
    """A command under way."""

    def __init__(self, process: Process, control: socket.socket, *, is_private: bool) -> None:
        self._process, self._control = process, control
        self._is_private = is_private
        self._said = b""
        self._is_over = False

    async def ended(self) -> Ended:
        """Wait for it and for all that it began."""
        code = await self._process.wait()
        words = self._lines()
        self._is_over = True
        self._control.close()
        if (why := words.get("refused")) is not None:
            raise NotStarted(why)
        if (said := words.get("ended")) is not None:
            number, left, cpu_ms, memory, processes = map(int, said.split())
            return Ended(number, left, cpu_ms / 1000, memory, processes)
        await self._force(words)
        raise Lost(_end(code))

    def ask_to_stop(self) -> None:
        self._send(TERM)

    def kill(self) -> None:
        """All of it; a launcher does that when nobody is left to hear of it, too."""
        self._send(KILL)

    async def killed(self) -> None:
        """Kill it, and return when it has ended."""
        self.kill()
        try:
            await asyncio.wait_for(self._process.wait(), LAUNCHER_S)
        except TimeoutError:
            # Whoever has the same user may have stopped it.
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def _send(self, word: bytes) -> None:
        if not self._is_over:
            with contextlib.suppress(OSError):
                self._control.send(word)

    def _lines(self) -> dict[str, str]:
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while len(self._said) < SAID_MAX and (more := self._control.recv(SAID_MAX)):
                self._said += more
        lines = self._said.decode("utf-8", "replace").splitlines()
        return {line.partition(" ")[0]: line.partition(" ")[2] for line in lines}

    async def _force(self, words: dict[str, str]) -> None:
        """Without a launcher: what of the command can be found from here."""
        number, _, group = words.get("began", "").partition(" ")
        if group:
            with contextlib.suppress(OSError):
                Path(group, "cgroup.kill").write_text("1")
            await self._remove(group)
        elif number.isdecimal() and not self._is_private:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(int(number), signal.SIGKILL)

    async def _remove(self, group: str) -> None:
        until = monotonic() + GROUP_S
        while monotonic() < until:
            try:
                os.rmdir(group)
            except FileNotFoundError:
                return
            except OSError:
                await asyncio.sleep(LOOK_S)
            else:
                return


def _end(code: int) -> str:
    if code >= 0:
        return f"its launcher ended with code {code}"
    return f"its launcher was ended by {signal.Signals(-code).name}"


async def launch(order: LaunchOrder, given: IO[bytes], output: int, words: int) -> Launched:
    """Start it. OSError if there is no room for another process."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    handed = os.memfd_create("order")
    try:
        os.write(handed, order.as_bytes())
        os.lseek(handed, 0, os.SEEK_SET)
        process = await asyncio.create_subprocess_exec(
            *order.before, sys.executable, "-I", "-S", str(LAUNCHER), str(handed),
            str(theirs.fileno()), stdin=given, stdout=output, stderr=words, env={},
            pass_fds=(handed, theirs.fileno()), start_new_session=True,
        )  # fmt: skip
    except BaseException:
        ours.close()
        raise
    finally:
        os.close(handed)
        theirs.close()
    return Launched(process, ours, is_private=order.is_private)
