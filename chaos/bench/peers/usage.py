"""What processes and all they start use of processor and memory, while a load is on."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

EACH_S = 0.2
# Memory takes longer to read than processor time.
MEMORY_EVERY = 5
TICKS = os.sysconf("SC_CLK_TCK")
Pids = Callable[[], Iterable[int]]


def stat_of(pid: int) -> tuple[int, float] | None:
    """Its parent, and its processor time."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(fields[1]), sum(map(int, fields[11:13])) / TICKS


def below(roots: Iterable[int]) -> dict[int, float]:
    """The processor time of some processes and of all below them that are alive."""
    stats = {int(name): stat_of(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        if stat is not None:
            children.setdefault(stat[0], []).append(pid)
    found: dict[int, float] = {}
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        stat = stats.get(pid)
        if stat is not None and pid not in found:
            found[pid] = stat[1]
            waiting += children.get(pid, ())
    return found


def memory_of(pids: Iterable[int]) -> int:
    """Bytes; what processes share counts once (PSS)."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # It ended meanwhile.
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return total


@dataclass(slots=True)
class UsageWatch:
    """Looks at servers and at workers each fifth of a second, from a thread of its own."""

    servers: Pids
    # Whoever starts the workers is not counted.
    workers_of: Pids
    at: list[float] = field(default_factory=list)
    servers_s: list[float] = field(default_factory=list)
    workers_s: list[float] = field(default_factory=list)
    memory: int = 0
    # By process, also of those that have ended, so that a sum never falls.
    _servers: dict[int, float] = field(default_factory=dict)
    _workers: dict[int, float] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> UsageWatch:
        self._thread = threading.Thread(target=self._watch, name="usage", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        count = 0
        while not self._over.wait(EACH_S):
            self.look(with_memory=count % MEMORY_EVERY == 0)
            count += 1

    def look(self, *, with_memory: bool) -> None:
        roots, starters = set(self.servers()), set(self.workers_of())
        servers, workers = below(roots), below(starters)
        self._servers |= servers
        self._workers |= {
            pid: used for pid, used in workers.items() if pid not in starters and pid not in servers
        }
        self.at.append(time.time())
        self.servers_s.append(sum(self._servers.values()))
        self.workers_s.append(sum(self._workers.values()))
        if with_memory:
            self.memory = max(self.memory, memory_of(servers))

    def between(self, first: float, last: float) -> tuple[float, float]:
        """Processor seconds of servers and of workers between two instants."""
        if not self.at:
            return 0.0, 0.0
        start = max(0, bisect_left(self.at, first) - 1)
        end = min(len(self.at) - 1, bisect_left(self.at, last))
        return (
            self.servers_s[end] - self.servers_s[start], self.workers_s[end] - self.workers_s[start]
        )  # fmt: skip
