"""Reads that see all that was committed before they came."""

from __future__ import annotations

from collections import deque

from .faults import CallRefused
from .members import Members
from .node_state import NodeState
from .port import Reply
from .proposals import Proposals
from .replication import Replication


class Reads:
    """Those that wait for a round of heartbeats, for its answers, and for entries to be applied."""

    def __init__(
        self, node: NodeState, members: Members, proposals: Proposals, replication: Replication
    ) -> None:
        self.node, self.members = node, members
        self.proposals, self.replication = proposals, replication
        self.new: list[Reply] = []
        self.rounds: deque[tuple[int, int, list[Reply]]] = deque()  # Round, index, who waits.
        self.confirmed: list[tuple[int, Reply]] = []

    def add(self, reply: Reply) -> None:
        """Answer once everything that was committed before this call is applied here."""
        if len(self.new) >= self.node.settings.reads_max:
            raise CallRefused(f"{len(self.new)} reads wait already; try again later")
        self.new.append(reply)

    def tick(self, now: float) -> None:
        """Confirm leadership by rounds of heartbeats; reads that come meanwhile share the next."""
        leader, me = self.replication, self.node.me
        rounds = sorted(
            (
                leader.round if v == me else leader.progress[v].round
                for v in self.members.config.voters
            ),
            reverse=True,
        )
        confirmed = rounds[len(rounds) // 2]
        while self.rounds and self.rounds[0][0] <= confirmed:
            _, index, replies = self.rounds.popleft()
            self.confirmed += [(index, reply) for reply in replies]
        if confirmed == leader.round:
            # The round began before this moment, by at most one heartbeat.
            leader.quorum_at = leader.round_at
            if self.new or now >= leader.beat_at:
                self.begin_round(now)

    def begin_round(self, now: float) -> None:
        leader = self.replication
        leader.round += 1
        leader.round_at = now
        if self.new:
            self.rounds.append((leader.round, self.node.commit, self.new))
            self.new = []
        leader.beat(now)
        if self.members.config.majority({self.node.me}):
            self.tick(now)

    def answer(self) -> None:
        """Answer those whose entries are applied."""
        waiting = []
        for index, reply in self.confirmed:
            if index <= self.node.applied:
                self.proposals.answer(reply, index)
            else:
                waiting.append((index, reply))
        self.confirmed = waiting

    def fail(self) -> None:
        """Answer "unknown" to those whose round is not over."""
        for reply in self.new:
            self.proposals.answer(reply, None)
        for _, _, replies in self.rounds:
            for reply in replies:
                self.proposals.answer(reply, None)
        self.new = []
        self.rounds.clear()
