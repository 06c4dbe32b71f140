"""A cluster that a test steps by hand: no faults but those the test makes, no chance in links."""

from __future__ import annotations

import random
from collections.abc import Callable

from ...cluster.raft.journal import Journal, JournalLimits
from ...cluster.raft.message import Introduce, Message
from ...cluster.raft.port import RaftSettings
from ...cluster.raft.raft import Raft
from .disk import SimDisk
from .register import Register

LIMITS = JournalLimits(segment=16 << 10, cache=4 << 10, entry=4 << 10)


class GroupNode:
    """A core with its disk, and everything it sent."""

    def __init__(
        self, name: str, names: list[str], settings: RaftSettings, disk: SimDisk | None = None
    ) -> None:
        self.name = name
        self.contacts = {n: f"{n}:1" for n in names}
        self.settings = settings
        self.disk = disk or SimDisk()
        self.sent: list[tuple[str, Message]] = []
        self.applied: list[tuple[int, bytes]] = []
        self.gained: list[int] = []
        self.lost: list[int] = []
        self.gone = False
        self.lives = 0
        self.start(0.0)

    def start(self, now: float) -> None:
        self.lives += 1
        dice = random.Random(f"{self.name}/{self.lives}")
        self.machine = Register(self.disk, lambda i, data, _: self.applied.append((i, data)))
        journal = Journal(self.disk, LIMITS, "00112233445566aa")
        self.core = Raft(
            self.name, self.contacts, journal, self.disk, self.machine, self,
            dice, self.settings, now,
        )  # fmt: skip

    def leadership_gained(self, term: int) -> None:
        self.gained.append(term)

    def leadership_lost(self, term: int) -> None:
        self.lost.append(term)

    def removed(self) -> None:
        self.gone = True

    def linked(self, peer: str) -> None:
        """Nobody sends anything in here."""

    def on_notice(self, peer: str, text: bytes) -> None:
        """Nobody sends anything in here."""

    def turn(self, now: float) -> list[tuple[str, Message]]:
        """Step, let the disk finish, and return what leaves."""
        core = self.core
        core.step(now)
        while (batch := core.journal.take()) is not None:
            batch.run()
            core.journal.end_round(batch)
            core.step(now)
        while core.jobs:
            job = core.jobs.popleft()
            job.done(job.run())
            core.step(now)
        core.run_answers()
        ready = core.outbox.release(core.journal.synced)
        self.sent += ready
        return ready


class Group:
    """Nodes whose messages arrive at once, except where the test takes them away."""

    def __init__(self, count: int, settings: RaftSettings | None = None) -> None:
        self.names = [f"n{i}" for i in range(1, count + 1)]
        self.now = 0.0
        self.nodes = {n: GroupNode(n, self.names, settings or RaftSettings()) for n in self.names}
        self.passes: Callable[[str, str, Message], bool] = lambda a, b, m: True
        for a in self.names:
            for b in self.names:
                if a != b:
                    self.nodes[a].core.link_up(b, 0.0)

    def turns(self, count: int = 1) -> None:
        for _ in range(count):
            for name in self.names:
                node = self.nodes[name]
                for to, message in node.turn(self.now):
                    if to in self.nodes and self.passes(name, to, message):
                        self.hand_over(node, to, message)

    def hand_over(self, node: GroupNode, to: str, message: Message) -> None:
        """Deliver a message, unless it is meant for a disk that is gone."""
        there, meant_for = self.nodes[to].core, node.core.replication.disk_of(to)
        if meant_for in (0, there.incarnation) or isinstance(message, Introduce):
            there.receive(node.name, node.core.incarnation, message, self.now)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += 0.01
            self.turns()

    def lead(self) -> GroupNode:
        """Run until somebody leads, and return it."""
        for _ in range(300):
            self.run(0.01)
            leading = [n for n in self.nodes.values() if n.core.in_office]
            if leading:
                self.run(0.1)
                return leading[0]
        raise AssertionError("nobody leads after three seconds")

    def others(self, node: GroupNode) -> list[GroupNode]:
        return [n for n in self.nodes.values() if n is not node]

    def write(self, node: GroupNode, key: str = "k") -> list[int | None]:
        """Propose something; the list gets the answer."""
        answers: list[int | None] = []
        body = b'{"id":"%s","key":"k","add":"x"}' % key.encode()
        node.core.propose(body, answers.append)
        return answers
