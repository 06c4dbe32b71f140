"""What all parts of a node's consensus agree on: its term and role, and how far it is.

Nothing in the parts reads a clock: `now` comes in with each call, from one clock that never runs
backwards. Nothing waits either: what has to happen later is found again by `Raft.step`.
"""

from __future__ import annotations

import random

from .adapter import LEADER, Upstream
from .faults import CallRefused, require
from .journal import Journal
from .port import RaftSettings


class NodeState:
    """One value that all parts hold. Term, vote and role change through its methods only."""

    def __init__(
        self, me: str, journal: Journal, dice: random.Random, settings: RaftSettings
    ) -> None:
        self.me, self.journal, self.dice, self.settings = me, journal, dice, settings
        self._upstream = Upstream(me, journal)
        self.term, self.vote, self.role = journal.term, journal.vote, self._upstream.role
        if journal.last_term > journal.term:
            self.set_term(journal.last_term, None)
        self.leader: str | None = None  # Who leads as far as this node knows.
        self.attempts = 0  # How often it gave up that leader, or stood, since it last heard of one.
        self.transfer_to: str | None = None  # To whom this leader hands leadership.
        # Never read from a disk: a commit index beyond the journal's end would be believed.
        self.commit = self.applied = journal.base_index
        self.journal_full = False  # A round of the journal waits for room, or for a descriptor,
        self.state_full = False  # or a committed entry does, which the machine could not take.
        self.installing = False  # A snapshot takes the place of the state.
        # The state is lost, and so is the snapshot that the journal was cut below. Until another
        # has come from the leader nothing is applied, and this node does not lead. Its term, its
        # vote and its entries are whole, so it votes and acknowledges as before.
        self.bereft = False

    @property
    def leads(self) -> bool:
        return bool(self.role == LEADER)

    @property
    def full(self) -> bool:
        """It takes no writes for want of room."""
        return self.journal_full or self.state_full

    @property
    def known_leader(self) -> str | None:
        """Whom to send callers to: the leader of this term until this node has given it up.

        Its name is kept even then (a term has one leader), and the next term may never come: who
        lost both others asks for pre-votes for ever.
        """
        return self.leader if self.leads or self.attempts == 0 else None

    def check_leads(self) -> None:
        """Raise CallRefused, and say whom to ask, if this node does not lead."""
        if not self.leads:
            raise CallRefused(f"{self.me} does not lead; ask {self.known_leader or 'the leader'}")

    def set_term(self, term: int, vote: str | None) -> None:
        self._upstream.set_term(term, vote)
        self.term, self.vote = self._upstream.term, self._upstream.vote

    def set_role(self, role: int) -> None:
        self._upstream.set_role(role)
        self.role = self._upstream.role

    def move_commit(self, index: int) -> None:
        require(index >= self.commit, f"commit would go back from {self.commit} to {index}")
        require(index <= self.journal.last_index, f"commit {index} is beyond the journal")
        require(
            self.role != LEADER or index <= self.journal.synced_index,
            f"{self.me} would commit {index} before it has it on its disk",
        )
        self.commit = index

    def silence(self) -> float:
        """Return how long a leader may be silent this time."""
        low, high = self.settings.silence_min, self.settings.silence_max
        return low + (high - low) * self.dice.random()
