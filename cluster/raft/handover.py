"""How a leader hands leadership to another node, on demand."""

from __future__ import annotations

from collections.abc import Callable

from .faults import CallRefused
from .members import Members
from .message import TimeoutNow
from .node_state import NodeState
from .outbox import Outbox
from .proposals import Proposals
from .replication import Replication


class Handover:
    """The one transfer that is under way, if there is any."""

    def __init__(
        self,
        node: NodeState,
        members: Members,
        outbox: Outbox,
        proposals: Proposals,
        replication: Replication,
    ) -> None:
        self.node, self.members, self.outbox = node, members, outbox
        self.proposals, self.replication = proposals, replication
        self.until = 0.0
        self.sent = False
        self.reply: Callable[[bool], None] | None = None

    def begin(self, target: str | None, now: float, reply: Callable[[bool], None]) -> None:
        """Hand leadership to a node, or to the one that is furthest; reply whether it went."""
        self.node.transfer_to = self.choose(target)
        self.until = now + self.node.settings.transfer
        self.sent = False
        self.reply = reply

    def choose(self, target: str | None) -> str:
        """Who would lead instead; CallRefused if nobody can, or not this one."""
        self.node.check_leads()
        if self.node.transfer_to is not None:
            raise CallRefused(f"leadership is already going to {self.node.transfer_to}")
        progress = self.replication.progress
        ready = [v for v in self.members.other_voters() if v in self.members.connected]
        if target is None and ready:
            target = max(ready, key=lambda v: (progress[v].match, v))
        if target is None or target not in ready:
            others = f"those are {', '.join(ready)}" if ready else "there is none beside this node"
            raise CallRefused(f"{target or 'nobody'} is no connected voter; {others}")
        return target

    def tick(self, now: float) -> None:
        if self.node.transfer_to is None:
            return
        progress = self.replication.progress.get(self.node.transfer_to)
        if now >= self.until or progress is None:
            self.end(over=False)
        elif progress.match == self.node.journal.last_index and not self.sent:
            self.sent = True
            self.outbox.send(self.node.transfer_to, TimeoutNow(self.node.term))

    def end(self, *, over: bool) -> None:
        """Answer whoever asked for it, if anybody did."""
        reply, self.reply, self.node.transfer_to = self.reply, None, None
        if reply is not None:
            self.proposals.answers.append(lambda: reply(over))
