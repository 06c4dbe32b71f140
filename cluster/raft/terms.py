"""The rule of terms: who hears of a higher one follows in it, and a lower one does not count.

Messages of which a term decides come here first: what only a leader sends, what answers to what a
node sent in its own term, and what asks for a vote.
"""

from __future__ import annotations

from .adapter import FOLLOWER
from .election import Election
from .faults import require
from .follower import Follower
from .handover import Handover
from .members import Members
from .message import (
    Append,
    AppendAck,
    Heartbeat,
    HeartbeatAck,
    PreVoteReply,
    SnapshotOffer,
    Vote,
    VoteReply,
)
from .node_state import NodeState
from .outbox import Outbox
from .proposals import Proposals
from .reads import Reads
from .replication import Replication
from .snapshot_receiver import SnapshotReceiver, manifest_of

FromLeader = Append | Heartbeat | SnapshotOffer
Answer = AppendAck | HeartbeatAck | PreVoteReply | VoteReply


class Terms:
    """See the head of this file."""

    def __init__(
        self,
        node: NodeState,
        members: Members,
        outbox: Outbox,
        proposals: Proposals,
        reads: Reads,
        replication: Replication,
        election: Election,
        handover: Handover,
        follower: Follower,
        receiver: SnapshotReceiver,
    ) -> None:
        self.node, self.members, self.outbox = node, members, outbox
        self.proposals, self.reads = proposals, reads
        self.replication, self.election, self.handover = replication, election, handover
        self.follower, self.receiver = follower, receiver

    def step_down(self, term: int, now: float) -> None:
        """Follow in `term`. Nobody is left waiting: what is not known is answered as unknown."""
        node, led = self.node, self.node.leads
        node.set_role(FOLLOWER)
        if term > node.term:
            node.set_term(term, None)
        node.leader = None
        self.election.step_down()
        if led:
            self.replication.bear_witness()
            self.replication.progress.clear()
            self.election.deadline = now + node.silence()
            self.proposals.fail()
            self.reads.fail()
            self.handover.end(over=True)
            self.replication.leave_office()

    def hear(self, peer: str, term: int, now: float) -> bool:
        """Take note of a leader; return False if its term is over."""
        node = self.node
        if term < node.term:
            return False
        require(
            term > node.term or not node.leads, f"{peer} and {node.me} both lead in term {term}"
        )
        if term > node.term or node.role != FOLLOWER:
            self.step_down(term, now)
        require(node.leader in (None, peer), f"{peer} and {node.leader} both lead in term {term}")
        node.leader = peer
        self.election.heard_leader(now)
        return True

    def from_leader(self, peer: str, message: FromLeader, now: float) -> None:
        """What only a leader sends. One whose term is over learns of ours and steps down."""
        offered = manifest_of(message) if isinstance(message, SnapshotOffer) else None
        if not self.hear(peer, message.term, now):
            self.refuse(peer, message, now)
        elif isinstance(message, Append):
            self.follower.on_append(peer, message, now)
        elif isinstance(message, Heartbeat):
            self.follower.on_heartbeat(peer, message, now)
        elif offered is not None:
            self.receiver.on_offer(peer, offered, now)

    def refuse(self, peer: str, message: FromLeader, now: float) -> None:
        term = self.node.term
        if isinstance(message, Heartbeat):
            # With our term but without its round: rounds are counted by each leader, and this
            # answer could reach the same node in a later office.
            self.outbox.send_first(peer, HeartbeatAck(term, 0, now))
        else:
            prev = message.prev if isinstance(message, Append) else 0
            self.outbox.send(peer, AppendAck(term, prev, 0, False))

    def answered(
        self,
        peer: str,
        incarnation: int,
        reply: Answer,
        now: float,
    ) -> None:
        """Answers count in the term they are given in; one of a later term ends ours."""
        if isinstance(reply, PreVoteReply):
            self.members.note_removal(reply.removed_at)
        if reply.term > self.node.term:
            self.step_down(reply.term, now)
            return
        match reply:
            case AppendAck():
                self.replication.on_append_ack(peer, incarnation, reply, now)
            case HeartbeatAck():
                self.replication.on_heartbeat_ack(peer, incarnation, reply, now)
            case PreVoteReply():
                self.election.on_pre_vote_reply(peer, incarnation, reply, now)
            case VoteReply():
                self.election.on_vote_reply(peer, incarnation, reply, now)

    def asked_for_vote(self, peer: str, ask: Vote, now: float) -> None:
        if ask.term > self.node.term:
            if not ask.transfer and self.election.leader_lives(now):
                return  # A node that was cut off may not depose a leader that works.
            self.step_down(ask.term, now)
        self.election.on_vote(peer, ask, now)
