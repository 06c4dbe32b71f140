"""Time, chance and the links between nodes, all from one seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class SimViolation(Exception):
    """A promise was broken; the text is the evidence."""


@dataclass(kw_only=True)
class Wire:
    """How the links of this history behave."""

    delay: float = 0.0005
    jitter: float = 0.0005
    duplicate: float = 0.0
    reorder: bool = False
    late: float = 0.0  # How often a message comes seconds later, from a connection long gone.
    silent: float = 0.0  # How often a cut is not noticed by the ends.


class World:
    """The only clock and the only dice of a history."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.now = 0.0
        self.fault_events = 0
        self.story: list[str] = []
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, when: float, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (max(when, self.now), self._count, what))

    def after(self, delay: float, what: Callable[[], None]) -> None:
        self.at(self.now + delay, what)

    def run(self, until: float, stop: Callable[[], bool] | None = None) -> bool:
        """Let everything happen up to a time; return early, and True, when `stop` says so."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, what = heapq.heappop(self._heap)
            what()
            if stop is not None and stop():
                return True
        self.now = until
        return False

    def fault(self, what: str) -> None:
        """Note something bad that was done to the cluster."""
        self.fault_events += 1
        self.note(what)

    def note(self, what: str) -> None:
        self.story.append(f"{self.now:9.4f} {what}")


class SimLinks:
    """Who reaches whom. Each direction is in order unless the history says otherwise."""

    def __init__(self, world: World, wire: Wire, names: list[str]) -> None:
        self.world, self.wire = world, wire
        self.names = names
        self.cut: set[tuple[str, str]] = set()
        self.slow: dict[tuple[str, str], float] = {}
        self.up: set[tuple[str, str]] = set()  # Unordered pairs both ends believe in, sorted.
        self.epoch: dict[tuple[str, str], int] = {}
        self.last: dict[tuple[str, str], float] = {}
        self.deliver: Callable[[str, str, Any], None] = lambda a, b, m: None
        self.notice: Callable[[str, str, bool], None] = lambda a, b, up: None
        self.alive: Callable[[str], bool] = lambda name: True
        # What a schedule that is written down lets nobody hear.
        self.loses: Callable[[str, str, Any], bool] | None = None

    def send(self, a: str, b: str, frame: object) -> None:
        pair = (a, b) if a < b else (b, a)
        if pair not in self.up or (a, b) in self.cut:
            return
        dice, wire, key = self.world.dice, self.wire, (a, b)
        copies = 2 if wire.duplicate and dice.random() < wire.duplicate else 1
        epoch = self.epoch.get(pair, 0)
        for _ in range(copies):
            delay = wire.delay + wire.jitter * dice.random() + self.slow.get(key, 0.0)
            when = self.world.now + delay
            if wire.late and dice.random() < wire.late:
                late = self.world.now + dice.uniform(0.2, 3.0)
                self.world.at(late, lambda: self._arrive_late(a, b, frame))
                continue
            if not wire.reorder:
                when = max(when, self.last.get(key, 0.0) + 1e-7)
                self.last[key] = when
            self.world.at(when, lambda: self._arrive(a, b, pair, epoch, frame))

    def _arrive(self, a: str, b: str, pair: tuple[str, str], epoch: int, frame: object) -> None:
        # What was under way is lost with the connection, except where messages may come late.
        if self.loses is not None and self.loses(a, b, frame):
            return
        if (a, b) not in self.cut and (self.epoch.get(pair, 0) == epoch or self.wire.reorder):
            self.deliver(a, b, frame)

    def _arrive_late(self, a: str, b: str, frame: object) -> None:
        # Healing ends it: the heartbeats of a dead leader would hold back an election.
        if self.wire.late:
            self.deliver(a, b, frame)

    def break_pair(self, a: str, b: str, *, noticed: bool = True) -> None:
        """End a connection; what is under way is lost, and both ends see it or neither."""
        pair = (a, b) if a < b else (b, a)
        self.epoch[pair] = self.epoch.get(pair, 0) + 1
        if noticed and pair in self.up:
            self.up.discard(pair)
            self.notice(a, b, False)
            self.notice(b, a, False)

    def heal_pair(self, a: str, b: str) -> None:
        """Connect again, if both ends live and nothing is cut between them."""
        pair = (a, b) if a < b else (b, a)
        blocked = (a, b) in self.cut or (b, a) in self.cut
        if pair not in self.up and not blocked and self.alive(a) and self.alive(b):
            self.epoch[pair] = self.epoch.get(pair, 0) + 1
            self.up.add(pair)
            self.notice(a, b, True)
            self.notice(b, a, True)

    def keep_connecting(self) -> None:
        """Both ends dial every 50 to 200 ms, and pings end a connection that is dead."""
        for i, a in enumerate(self.names):
            for b in self.names[i + 1 :]:
                pair = (a, b)
                dead = (a, b) in self.cut or (b, a) in self.cut
                if dead and pair in self.up and self.world.dice.random() < 0.05:
                    self.break_pair(a, b)
                elif not dead:
                    self.heal_pair(a, b)
        self.world.after(0.05 + 0.1 * self.world.dice.random(), self.keep_connecting)
