"""What must hold at every moment of a history.

E1 one leader per term; L1, L2 one entry per index once it is committed; K1 commit and applied
never go down; K2 a committed entry is on the durable image of a majority from the moment its
leader calls it so, and what a leader believes of a follower is so; V1 no disk votes twice in a
term; A1 the same entries, each once, with equal digests; R1 reads see what was acknowledged
before; H1 everybody is answered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from ...cluster.raft.journal import Journal, JournalLimits
from ...cluster.raft.message import Message, VoteReply
from ...cluster.raft.raft import Raft
from .disk import SimDisk
from .world import SimViolation

HashOf = bytes


class Checker:
    """Knows what was promised; and is notified of everything that happens."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.note = note
        self.leaders: dict[int, str] = {}
        self.terms: dict[int, int] = {}  # Term of each committed index.
        self.entries: dict[int, HashOf] = {}  # What was applied at each index.
        self.digests: dict[int, str] = {}
        self.votes: dict[tuple[str, int, int], str] = {}
        self.acked: dict[str, int] = {}  # Request -> index.
        self.top = 0  # The highest index that was acknowledged,
        self.tops: dict[int, int] = {}  # and the highest of each term.
        self.acks = 0
        self.reads = 0

    def fail(self, text: str) -> None:
        raise SimViolation(text)

    def applied(self, node: str, index: int, data: bytes, digest: str) -> None:
        """A1."""
        found = hashlib.blake2b(data, digest_size=12).digest()
        if self.entries.setdefault(index, found) != found:
            self.fail(f"A1 {node} applied another entry at {index} than others did")
        if self.digests.setdefault(index, digest) != digest:
            self.fail(f"A1 {node} has digest {digest} at {index}, others {self.digests[index]}")

    def stepped(self, node: str, core: Raft, before: tuple[int, int]) -> tuple[int, int]:
        """E1, L1, L2, K1; returns commit and applied, to be given again next time."""
        commit, applied = core.node.commit, core.last_applied
        if commit < before[0] or applied < before[1]:
            self.fail(f"K1 {node} went back from {before} to {(commit, applied)}")
        if commit > core.journal.last_index:
            self.fail(f"K1 {node} has committed {commit} of {core.journal.last_index} entries")
        if core.node.leads and core.term not in self.leaders:
            self.leaders[core.term] = node
            # A candidate may wake up to win an election of a term that is long over; it owes
            # only what was committed in terms before its own.
            owed = max((top for term, top in self.tops.items() if term < core.term), default=0)
            if core.journal.last_index < owed:
                self.fail(f"L2 {node} leads with {core.journal.last_index} < {owed} acknowledged")
        if core.node.leads and self.leaders[core.term] != node:
            self.fail(f"E1 {node} and {self.leaders[core.term]} lead in term {core.term}")
        journal = core.journal
        start = max(before[0], journal.base_index) + 1
        for index in range(start, min(commit, journal.last_index) + 1):
            term = journal.term_at(index)
            if self.terms.setdefault(index, term) != term:
                self.fail(
                    f"L2 {node} committed {index} of term {term}, "
                    f"but it was committed with term {self.terms[index]}"
                )
        return commit, applied

    def believed(self, leader: Raft, peer: str, follower: Raft) -> None:
        """What a leader believes of a follower is so, once the follower is in its term."""
        progress = leader.replication.progress.get(peer)
        member = leader.config.members.get(peer)
        if progress is None or member is None or member.incarnation != follower.incarnation:
            return
        if not leader.node.leads or leader.term != follower.term or not progress.match:
            return
        match, journal = progress.match, follower.journal
        if match < max(journal.base_index, leader.journal.base_index):
            return
        if journal.last_index < match or journal.term_at(match) != leader.journal.term_at(match):
            self.fail(
                f"K2 {leader.me} believes {peer} has {match}; it ends at {journal.last_index}"
            )

    def sent(self, node: str, incarnation: int, to: str, message: Message) -> None:
        """V1, at the moment a vote leaves the node."""
        if isinstance(message, VoteReply) and message.granted:
            key = (node, incarnation, message.term)
            if self.votes.setdefault(key, to) != to:
                self.fail(f"V1 {node} votes for {to} and {self.votes[key]} in term {message.term}")

    def acknowledged(self, request: str, index: int, invoked_top: int) -> None:
        """R1 for writes: what begins after an acknowledgement comes behind it in the log."""
        if self.acked.setdefault(request, index) != index and index <= invoked_top:
            self.fail(f"R1 {request} was acknowledged at {index}, begun after {invoked_top}")
        self.top = max(self.top, index)
        term = self.terms.get(index)
        if term is None:
            self.fail(f"K2 {request} was acknowledged at {index}, which nobody has committed")
        else:
            self.tops[term] = max(self.tops.get(term, 0), index)
        self.acks += 1

    def read(self, node: str, index: int, applied: int, invoked_top: int) -> None:
        """R1 for reads."""
        self.reads += 1
        if index < invoked_top or applied < invoked_top:
            self.fail(f"R1 {node} reads at {index}, but {invoked_top} was acknowledged before")

    def durable(self, index: int, copies: list[bool], lost: int, voters: int) -> None:
        """K2; `lost` disks were taken away whole, which no protocol can help."""
        if 2 * (sum(copies) + lost) <= voters:
            self.fail(f"K2 entry {index} is committed with {sum(copies)} of {voters} copies")


def holds(disk: SimDisk, limits: JournalLimits, index: int, term: int) -> bool:
    """Return whether a node that starts from this durable image has the entry."""
    journal = Journal(disk.image(), limits, "00" * 8)
    if index <= journal.base_index:
        return True
    return index <= journal.last_index and journal.term_at(index) == term
