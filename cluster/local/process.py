"""A program beside this one. It ends when this process does, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

# `raftsched` itself, for its commands.
PROGRAM_OF_CLIENT = (sys.executable, "-c", "from raftsched.client.cli import main; main()")
# A node ends by itself three seconds after the signal, whatever hangs.
STOP_S = 8.0
LAUNCH = str(Path(__file__).with_name("launch.py"))
# Where this package was imported from, for programs that import it.
HOME = str(Path(__file__).parents[3])
PREFIX = "RAFTSCHED_"
TAIL_LINES, TAIL_BYTES = 15, 1 << 16


class ProcessFailed(Exception):
    """A process did not do what it was started for."""


@dataclass(slots=True)
class Process:
    """A program, ours unless another is named. It can be started again after it ended."""

    name: str
    arguments: Sequence[str]
    # What it writes is appended here, unless `streams` says otherwise.
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    program: Sequence[str] = (sys.executable, "-m")
    # Its command line begins with these words, which become the program (exec).
    wrap: Sequence[str] = ()
    # The user it runs as, where this process is root and the program refuses to be.
    user: str = ""
    # All that it writes goes to the log; or all of it to `popen.stdout`, line by line; or input and
    # output are the pipes `popen.stdin` and `popen.stdout`, and only errors go to the log.
    streams: Literal["log", "lines", "dialog"] = "log"
    popen: subprocess.Popen[bytes] | None = None

    @property
    def command(self) -> list[str]:
        return [*self.wrap, *self.program, *self.arguments]

    def start(self) -> None:
        if self.alive:
            raise ProcessFailed(f"{self.name} runs already, as process {self.pid}; stop it first")
        pid, pipe = os.getpid(), subprocess.PIPE
        with self.log.open("ab") as log:
            start = _thread_of(pid).submit(
                subprocess.Popen[bytes],
                [sys.executable, "-I", "-S", LAUNCH, str(pid), self.user, *self.command],
                stdin=pipe if self.streams == "dialog" else subprocess.DEVNULL,
                stdout=log if self.streams == "log" else pipe,
                stderr=subprocess.STDOUT if self.streams == "lines" else log,
                env=environment() | self.environment,
                # Ctrl-C at a terminal is for this process, which stops the others in order.
                start_new_session=True,
            )
            self.popen = start.result()

    @property
    def alive(self) -> bool:
        return self.popen is not None and self.popen.poll() is None

    @property
    def pid(self) -> int:
        if self.popen is None:
            raise ProcessFailed(f"{self.name} has no process id, as it was never started")
        return self.popen.pid

    @property
    def code(self) -> int | None:
        """What it ended with; None while it runs."""
        return None if self.popen is None else self.popen.poll()

    @property
    def ended_by_itself(self) -> bool:
        """It ended, and not by a signal."""
        return self.code is not None and self.code >= 0

    @property
    def state(self) -> str:
        """One letter, as the kernel calls it: R, S, T for stopped."""
        return self._stat()[0]

    def signal(self, number: int) -> None:
        if self.popen is not None and self.alive:
            self.popen.send_signal(number)

    def pause(self) -> None:
        """It stands still, as on a machine that swaps, until `resume`."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def wait(self, seconds: float = STOP_S) -> int:
        """The exit code; subprocess.TimeoutExpired where it goes on for longer."""
        return 0 if self.popen is None else self.popen.wait(seconds)

    def kill(self) -> None:
        """As a power failure ends it; returns when it is gone."""
        self.signal(signal.SIGKILL)
        self.wait()
        if self.popen is not None and self.popen.stdin is not None:
            self.popen.stdin.close()

    def stop(self) -> int:
        """SIGTERM, and the exit code. One that takes too long is killed, which is an error."""
        if stop_all([self]):
            raise ProcessFailed(f"{self.name} did not stop within {STOP_S:.0f} s; it was killed")
        return self.code or 0

    def finish(self, seconds: float) -> None:
        """Start it and wait until its work is done, which must be in time and without a fault."""
        self.start()
        try:
            code = self.wait(seconds)
        except subprocess.TimeoutExpired:
            raise ProcessFailed(f"{self.name} took over {seconds:.0f} s:\n{self.tail()}") from None
        finally:
            self.kill()
        if code:
            raise ProcessFailed(f"{self.name} ended with {code}:\n{self.tail()}")

    def tail(self) -> str:
        """The end of its log."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])

    def cpu_s(self) -> float:
        """Processor time it has used, its own and the kernel's for it."""
        fields = self._stat()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self, *, peak: bool = False) -> int:
        """Memory that is resident, now or at most since it started."""
        field = "VmHWM:" if peak else "VmRSS:"
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) >> 10
        return 0

    def _stat(self) -> list[str]:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()


def stop_all(processes: Iterable[Process], seconds: float = STOP_S) -> list[Process]:
    """End them together: SIGTERM, and SIGKILL after a while; those that had to be killed."""
    started = list(processes)
    for process in started:
        process.resume()
        process.signal(signal.SIGTERM)
    until, killed = time.monotonic() + seconds, []
    for process in started:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            killed.append(process)
    return killed


def environment() -> dict[str, str]:
    """That of this process, with this installation first and without any of our settings."""
    kept = {key: text for key, text in os.environ.items() if not key.startswith(PREFIX)}
    known = kept.get("PYTHONPATH")
    return kept | {"PYTHONPATH": f"{HOME}{os.pathsep}{known}" if known else HOME}


@cache
def _thread_of(pid: int) -> ThreadPoolExecutor:
    """Where processes are started: a child ends with the thread that started it, and this thread
    lives as long as the process does."""
    return ThreadPoolExecutor(1, f"starter-{pid}")
