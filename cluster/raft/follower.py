"""What a follower does with what its leader sends; the leader's side is in `replication.py`.

The leader is heard before (`Terms.hear`), so all that comes here is of the present term.
"""

from __future__ import annotations

from .faults import require
from .freshness import Freshness
from .members import Members
from .message import Append, AppendAck, Heartbeat, HeartbeatAck
from .node_state import NodeState
from .outbox import Outbox
from .witness import Witness


class Follower:
    """See the head of this file."""

    def __init__(
        self,
        node: NodeState,
        members: Members,
        outbox: Outbox,
        witness: Witness,
        freshness: Freshness,
    ) -> None:
        self.node, self.journal, self.members = node, node.journal, members
        self.outbox, self.witness, self.freshness = outbox, witness, freshness

    def on_append(self, peer: str, message: Append, now: float) -> None:
        prev, commit = message.prev, message.commit
        self.witness.note_commit(peer, self.members.heard_disks[peer], commit)
        if self.node.full or self.node.installing:
            return
        if prev > self.journal.last_index:
            retry = self.journal.last_index + 1
            self.outbox.send(peer, AppendAck(self.node.term, prev, retry, False))
        elif prev >= self.journal.base_index and self.journal.term_at(prev) != message.prev_term:
            require(prev > self.node.commit, forked(peer, prev))
            retry = max(self.node.commit + 1, self.journal.first_of_term(prev))
            self.outbox.send(peer, AppendAck(self.node.term, prev, retry, False))
        else:
            verified = self.store(message)
            self.outbox.send(peer, AppendAck(self.node.term, prev, verified, True))
            if min(commit, verified) > self.node.commit and not self.node.bereft:
                self.node.move_commit(min(commit, verified))

    def store(self, message: Append) -> int:
        """Add what is new, from the first conflict on; return the last index that agrees."""
        for entry in message.entries:
            if entry.index <= self.journal.base_index:
                continue  # Below our snapshot: committed, hence the same.
            if entry.index <= self.journal.last_index:
                if self.journal.term_at(entry.index) == entry.term:
                    continue
                self.check_truncation(entry.index)
            self.journal.append(entry)
        self.members.follow_log()
        return max(message.prev + len(message.entries), self.journal.base_index)

    def check_truncation(self, index: int) -> None:
        require(
            index > max(self.node.commit, self.node.applied),
            forked(str(self.node.leader), index),
        )

    def on_heartbeat(self, peer: str, beat: Heartbeat, now: float) -> None:
        self.witness.check_own_disk(peer, 0, beat.known)
        self.witness.note_commit(peer, self.members.heard_disks[peer], beat.commit)
        if beat.known > self.node.commit and not self.node.installing and not self.node.bereft:
            self.node.move_commit(beat.known)
        if beat.echo <= now:
            # What is ahead of this clock is of one before it, of a host that has begun anew.
            self.freshness.heard(beat.commit, beat.echo - beat.age, self.node.applied)
        self.outbox.send_first(peer, HeartbeatAck(self.node.term, beat.round, now))


def forked(peer: str, index: int) -> str:
    """What a leader says that has not what is committed here."""
    return (
        f"{peer} leads and has another entry {index} than the one that is committed here: what was "
        "acknowledged is missing on a majority, as when older copies of their folders were put "
        "back. Keep this folder, stop all nodes, and see on each how far it goes: raftsched node "
        "recover --look"
    )
