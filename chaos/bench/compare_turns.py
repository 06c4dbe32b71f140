"""One turn of a peer: its servers, the program that puts the load on it, what that came to."""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ...cluster.local.process import Process, ProcessFailed
from ..percentile import percentile
from .peers.peer import Number, PeerSystem, end_group, figures_of, load_process, serving
from .peers.servers import PeerServers
from .peers.usage import UsageWatch

# From the first due time to the loss of the primary.
KILL_AFTER_S = 5.0
LOOK_S = 0.02
# Beyond what inserting and running may take: servers, warming up, waiting for what is lost.
MORE_S = 240.0
Pairs = Sequence[tuple[float, float]]


@dataclass(slots=True)
class PeerTurn:
    """When runs were due and when they began; when the primary was killed, if it was."""

    folder: Path
    peer: PeerSystem
    kit: Path
    asked: Mapping[str, object]
    pairs: list[tuple[float, float]] = field(default_factory=list)
    killed: float = 0.0
    # When its program had ended.
    ended: float = 0.0
    # Processor seconds of servers and workers, and the most memory of the servers.
    servers_s: float = 0.0
    workers_s: float = 0.0
    memory: int = 0

    @property
    def failover(self) -> bool:
        return bool(self.asked["failover"])

    @property
    def limit_s(self) -> float:
        """Until it is given up: generous, its program has closer limits of its own."""
        runs, rate = float(str(self.asked["runs"])), float(str(self.asked["rate"]))
        least = float(str(self.asked["least_rate"]))
        return MORE_S + 2 * runs / least + (runs / rate if rate else 0.0)

    def play(self) -> dict[str, Number]:
        """Put the load on it; what its program found."""
        self.folder.mkdir()
        times = self.folder / "pairs"
        with serving(self.peer, failover=self.failover)(self.folder / "servers") as servers:
            process = load_process(
                self.peer, self.kit, servers, {**self.asked, "pairs": str(times)}
            )
            process.start()
            try:
                with UsageWatch(servers.pids, lambda: [process.pid]) as usage:
                    self._wait(process, servers)
            finally:
                end_group(process)
            found = figures_of(process.log.read_text(errors="replace"), self.peer.name)
        whole = array("d")
        whole.frombytes(times.read_bytes())
        self.pairs = list(zip(whole[::2], whole[1::2], strict=True))
        self.servers_s, self.workers_s = usage.between(found["first"], found["done"])
        self.memory = usage.memory
        return found

    def _wait(self, process: Process, servers: PeerServers) -> None:
        until = time.monotonic() + self.limit_s
        while process.alive:
            if self.failover and not self.killed:
                first = first_due(process.log)
                if first and time.time() > first + KILL_AFTER_S:
                    self.killed = time.time()
                    servers.kill_primary()
            if time.monotonic() > until:
                raise ProcessFailed(
                    f"{process.name} took over {self.limit_s:.0f} s:\n{process.tail()}"
                )
            time.sleep(LOOK_S)
        self.ended = time.time()
        if process.code:
            raise ProcessFailed(f"{process.name} ended with {process.code}:\n{process.tail()}")


def first_due(log: Path) -> float:
    """The first due time, once the program has written it; 0 before."""
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith('{"first":') and line.endswith("}"):
            return float(json.loads(line)["first"])
    return 0.0


def figures_of_turn(turn: PeerTurn, found: Mapping[str, Number]) -> dict[str, Number]:
    """All figures that any load shows."""
    runs = int(str(turn.asked["runs"]))
    late = [1000 * (at - due) for due, at in turn.pairs]
    # A due time that came to be a little later than was asked for counts as it came to be.
    first = found["first"] if turn.asked["rate"] else max(due for due, _ in turn.pairs)
    return {
        "runs_per_s": runs / (found["done"] - first),
        "inserted_per_s": found["inserted_per_s"],
        **{f"lateness_p{p}_ms": percentile(late, p / 100) for p in (50, 95, 99)},
        "lateness_max_ms": max(late),
        "servers_us_per_run": 1e6 * turn.servers_s / runs,
        "workers_us_per_run": 1e6 * turn.workers_s / runs,
        "servers_mb": turn.memory / 1e6,
        **(of_failover(turn.pairs, turn.killed, runs, turn.ended) if turn.failover else {}),
    }


def of_failover(pairs: Pairs, killed: float, runs: int, ended: float) -> dict[str, Number]:
    """The longest time without any run from the loss on; what never ran, what ran twice. Where some
    never ran, nothing came until the look at it ended, and they are late by that at least."""
    if not killed:
        raise ProcessFailed("the load was over before the primary was killed")
    # Each job has a due time of its own.
    begun = len({round(1000 * due) for due, _ in pairs})
    lost = max(0, runs - begun)
    instants = [killed, *sorted(at for _, at in pairs if at >= killed), *([ended] if lost else [])]
    late = [at - due for due, at in pairs] + ([ended - killed] if lost else [])
    return {
        "pause_ms": 1000 * max(later - earlier for earlier, later in pairwise(instants)),
        "lost": lost, "twice": max(0, len(pairs) - begun), "lateness_max_ms": 1000 * max(late),
    }  # fmt: skip
