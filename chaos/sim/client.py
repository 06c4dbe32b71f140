"""Callers that write and read through whoever leads, and try again under the same id."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...cluster.consensus.core import Core
from ...cluster.consensus.faults import Refused
from .world import Violation

if TYPE_CHECKING:
    from .cluster import Cluster
    from .node import SimNode

PATIENCE = 4.0  # H1: on a node that runs, a call is answered in this time, one way or another.


class Client:
    """One call at a time."""

    def __init__(self, number: int, cluster: Cluster) -> None:
        self.number, self.cluster, self.world = number, cluster, cluster.world
        self.count = 0
        self.attempt = 0
        self.request = ""
        self.stopped = False
        self.reading = False
        self.pending: tuple[SimNode, int, float] | None = None  # node, its life, since

    def go(self) -> None:
        if self.stopped:
            return
        dice = self.world.dice
        self.reading = dice.random() < 0.2
        if self.reading:
            self.read()
            return
        self.count += 1
        self.request = f"c{self.number}-{self.count}"
        size = dice.randint(1, self.cluster.options.payload)
        self.body = json.dumps(
            {"id": self.request, "key": f"k{dice.randint(0, 9)}", "add": "x" * size}
        ).encode()
        self.top = self.cluster.checker.top
        self.write()

    def write(self) -> None:
        """Send the request, or send it again."""
        node = self.cluster.guess_leader()
        self.attempt += 1
        attempt = self.attempt

        def reply(index: int | None) -> None:
            self.answered(attempt, index)

        if not self.ask(node, lambda core: core.propose(self.body, reply)):
            self.again(0.03)

    def ask(self, node: SimNode, call: Callable[[Core], None]) -> bool:
        """Call a node on its loop; return False if it refuses or is not there."""
        if node.core is None or node.paused:
            return False
        try:
            call(node.core)
        except Refused:
            return False
        self.pending = (node, node.life, self.world.now)
        node.poke()
        return True

    def again(self, delay: float) -> None:
        self.pending = None
        if not self.stopped:
            self.world.after(delay * (0.5 + self.world.dice.random()), self.write)

    def answered(self, attempt: int, index: int | None) -> None:
        if attempt != self.attempt:
            raise Violation(f"H1 {self.request} was answered twice")
        self.attempt += 1
        self.pending = None
        if index is None:
            self.again(0.02)
        else:
            self.cluster.acknowledged(self.request, index, self.top)
            self.world.after(0.001 + 0.02 * self.world.dice.random(), self.go)
        if "raise" in self.cluster.options.faults and self.world.dice.random() < 0.02:
            raise RuntimeError("a client raises when it is answered")

    def read(self) -> None:
        node = self.cluster.guess_leader()
        self.attempt += 1
        attempt, top = self.attempt, self.cluster.checker.top

        def reply(index: int | None) -> None:
            if attempt != self.attempt:
                raise Violation("H1 a read was answered twice")
            self.attempt += 1
            self.pending = None
            if index is not None and node.core is not None:
                self.cluster.checker.read(node.name, index, node.core.last_applied, top)
            self.world.after(0.005, self.go)

        if not self.ask(node, lambda core: core.read(reply)):
            self.world.after(0.03, self.go)

    def check(self) -> None:
        """H1. A call whose node died is not answered by it; the caller sees that."""
        if self.pending is None:
            return
        node, life, since = self.pending
        if node.life != life:
            self.attempt += 1
            self.pending = None
            self.world.after(0.02, self.go if self.reading else self.write)
        elif node.paused:
            self.pending = (node, life, self.world.now)
        elif self.world.now - since > PATIENCE:
            raise Violation(f"H1 {self.request} waits since {since:.2f} on {node.name}")
