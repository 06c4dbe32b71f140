"""Callers that write and read through whoever leads, and try again under the same id."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ...cluster.raft.faults import CallRefused
from ...cluster.raft.raft import Raft
from .world import SimViolation

if TYPE_CHECKING:
    from .cluster import SimCluster
    from .node import SimNode

ANSWER_WITHIN = 4.0  # H1: a node that does not lead any more has answered its callers by then.


@dataclass
class SimCall:
    """One call to one node."""

    node: SimNode
    life: int
    since: float
    what: str
    term: int = 0
    answered: bool = False

    @property
    def leads(self) -> bool:
        """Return whether the node that was asked still leads in the term in which it was."""
        core = self.node.core
        return core is not None and core.node.leads and core.term == self.term


class Caller(Protocol):
    """Somebody who calls nodes, and is owed answers."""

    stopped: bool
    current: SimCall | None
    calls: list[SimCall]

    def go(self) -> None:
        """Begin the next request, if it is not stopped."""

    def check(self) -> None:
        """Raise SimViolation if an answer is overdue."""


class SimClient:
    """One request at a time. It gives up and asks elsewhere; the first call lives on."""

    def __init__(self, number: int, cluster: SimCluster) -> None:
        self.number, self.cluster, self.world = number, cluster, cluster.world
        self.count = 0
        self.calls: list[SimCall] = []
        self.current: SimCall | None = None
        self.stopped = False

    def go(self) -> None:
        """Begin the next request."""
        self.current = None
        if self.stopped:
            return
        dice = self.world.dice
        self.top = self.cluster.checker.top
        if dice.random() < 0.3:
            self.read()
            return
        self.count += 1
        self.request = f"c{self.number}-{self.count}"
        size = dice.randint(1, self.cluster.options.payload)
        body = {"id": self.request, "key": f"k{dice.randint(0, 9)}", "add": "x" * size}
        self.body = json.dumps(body).encode()
        self.write()

    def write(self) -> None:
        """Send the request, or send it again."""
        self.current = None
        if self.stopped:
            return
        request, top, node = self.request, self.top, self.cluster.guess_leader()
        call = SimCall(node, node.life, self.world.now, request)

        def reply(index: int | None) -> None:
            self.take_answer(call)
            if call is not self.current:
                return
            if index is None:
                self.later(0.02, self.write)
            else:
                self.cluster.acknowledged(node, request, index, top)
                self.later(0.01, self.go)
            self.maybe_raise()

        self.ask(call, lambda core: core.propose(self.body, reply), self.write)

    def read(self) -> None:
        top, node = self.top, self.cluster.guess_leader()
        call = SimCall(node, node.life, self.world.now, "read")

        def reply(index: int | None) -> None:
            self.take_answer(call)
            if index is not None and node.core is not None:
                self.cluster.checker.read(node.name, index, node.core.last_applied, top)
            if call is self.current:
                self.later(0.01, self.go)

        self.ask(call, lambda core: core.read(reply), self.go)

    def ask(self, call: SimCall, do: Callable[[Raft], None], again: Callable[[], None]) -> None:
        """Call a node on its loop; come back later if it refuses, is gone, or takes long."""
        node = call.node
        self.current = call
        try:
            if node.core is None or node.paused:
                raise CallRefused("nobody is there")
            call.term = node.core.term
            do(node.core)
        except CallRefused:
            self.later(0.03, again)
            return
        self.calls.append(call)
        node.wake()
        if not call.answered:
            delay = self.world.dice.choice((0.1, 0.3, 1.0))
            self.world.after(delay, lambda: again() if call is self.current else None)

    def later(self, delay: float, what: Callable[[], None]) -> None:
        waiting = self.current
        pause = delay * (0.5 + self.world.dice.random())
        self.world.after(pause, lambda: what() if waiting is self.current else None)

    def take_answer(self, call: SimCall) -> None:
        if call.answered:
            raise SimViolation(f"H1 {call.what} was answered twice by {call.node.name}")
        call.answered = True

    def maybe_raise(self) -> None:
        if "raise" in self.cluster.options.faults and self.world.dice.random() < 0.02:
            raise RuntimeError("a client raises when it is answered")

    def check(self) -> None:
        """H1. A call whose node died is not answered by it; the caller sees that.

        A leader may keep a caller as long as it leads, since all it knows is that it does not
        know yet; the driver adds the deadline. Phase two demands an answer to everyone.
        """
        self.calls = overdue(self.calls, self.world.now)


def overdue(calls: list[SimCall], now: float) -> list[SimCall]:
    """Return those that still wait, or raise SimViolation for one that waits for too long."""
    waiting = [c for c in calls if not c.answered and c.node.life == c.life]
    for call in waiting:
        if call.node.paused or call.leads:
            call.since = now
        elif now - call.since > ANSWER_WITHIN:
            raise SimViolation(f"H1 {call.what} waits since {call.since:.2f} on {call.node.name}")
    return waiting
