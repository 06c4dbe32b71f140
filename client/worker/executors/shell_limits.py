"""What a command may use, as the kernel's limits; and which of them a command met, in words."""

from __future__ import annotations

import re
import resource
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from .launch import Ended

MEMORY_MIN = 16 << 20
OUTPUT_BYTES_MAX = 1 << 30
NICENESS_MAX = 19
# A second after SIGXCPU, which may be ignored.
CPU_GRACE_S = 1
# What programs say when the kernel refuses them more.
NO_MEMORY = re.compile(rb"MemoryError|[Cc]annot allocate memory|[Oo]ut of memory|bad_alloc|ENOMEM")
NO_PROCESS = re.compile(
    rb"Resource temporarily unavailable|[Cc]annot fork|can't start new thread|EAGAIN"
)
NO_FILE = re.compile(rb"File too large|EFBIG")


@dataclass(frozen=True)
class ShellLimits:
    """None: as much as the worker itself."""

    # Address space of each of its processes, in bytes; with a cgroup also the memory of all.
    memory: int | None = None
    # Seconds of CPU, by process.
    cpu: int | None = None
    # With a cgroup those of the command; else so many more than its user has as it starts.
    processes: int | None = None
    # The size of each file that it writes, in bytes.
    file_size: int | None = None
    # What it may write to its two outputs, in bytes.
    output: int = OUTPUT_BYTES_MAX
    # How much it stands back for others.
    niceness: int = 0

    def __post_init__(self) -> None:
        least = {
            "memory": MEMORY_MIN, "cpu": 1, "processes": 1, "file_size": 0, "output": 1,
            "niceness": 0,
        }  # fmt: skip
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < low):
                raise ValueError(f"{name} is {value!r}; it must be at least {low:,}")
        if self.niceness > NICENESS_MAX:
            raise ValueError(f"niceness is {self.niceness}; it must be at most {NICENESS_MAX}")

    def of_kernel(self, tasks: int) -> list[tuple[int, int, int]]:
        """For setrlimit, soft and hard; `tasks` is what the command's user has already."""
        found = [(resource.RLIMIT_CORE, 0, 0)]
        if self.memory is not None:
            found.append((resource.RLIMIT_AS, self.memory, self.memory))
        if self.cpu is not None:
            found.append((resource.RLIMIT_CPU, self.cpu, self.cpu + CPU_GRACE_S))
        if self.processes is not None:
            most = tasks + self.processes
            found.append((resource.RLIMIT_NPROC, most, most))
        if self.file_size is not None:
            found.append((resource.RLIMIT_FSIZE, self.file_size, self.file_size))
        return found

    def of_cgroup(self, offered: frozenset[str]) -> Mapping[str, str]:
        """What is written into the files of its cgroup, of those that there are."""
        wanted = {"memory.max": self.memory, "pids.max": self.processes}
        if self.memory is not None:
            wanted["memory.swap.max"] = 0
        return {
            name: str(value)
            for name, value in wanted.items()
            if value is not None and name in offered
        }

    def of_scope(self) -> list[str]:
        """The same as properties of a scope of systemd."""
        found = []
        if self.memory is not None:
            found += [f"MemoryMax={self.memory}", "MemorySwapMax=0"]
        if self.processes is not None:
            # The launcher is in it too.
            found.append(f"TasksMax={self.processes + 1}")
        return found

    def met(self, ended: Ended, words: bytes) -> tuple[str, str]:
        """The kind of the failure and why, if it surely was a limit that ended a command."""
        number = -ended.code if ended.code < 0 else ended.code - 128
        cpu = self.cpu is not None and (
            number == signal.SIGXCPU or (number == signal.SIGKILL and ended.cpu_s >= self.cpu)
        )
        if ended.memory_met and self.memory is not None:
            return "shell.memory", f"it used more memory than the {size(self.memory)} it may have"
        if cpu:
            return "shell.cpu", f"it used more than the {self.cpu} s of CPU it may have"
        if number == signal.SIGXFSZ and self.file_size is not None:
            why = f"it wrote a file of more than the {size(self.file_size)} it may write"
            return "shell.file_size", why
        if ended.processes_met and self.processes is not None:
            return "shell.processes", f"it began more than the {self.processes:,} it may have"
        return "", ""

    def perhaps(self, ended: Ended, words: bytes) -> str:
        """A word on what may have ended it, by what it said; empty: nothing."""
        if self.memory is not None and NO_MEMORY.search(words):
            return f"each of its processes may have {size(self.memory)} of memory"
        if self.processes is not None and NO_PROCESS.search(words):
            return f"its user may have {self.processes:,} processes more than as it started"
        if self.file_size is not None and NO_FILE.search(words):
            return f"a file may have {size(self.file_size)}"
        if -ended.code == signal.SIGKILL:
            return "not by this worker; perhaps the machine had no memory left"
        return ""


def size(count: int) -> str:
    """For people."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.4g} {name}"
    return f"{count} bytes"
