"""How committed entries get to the machine: in order, each once, and none before it is durable."""

from __future__ import annotations

import logging

from .faults import DiskFull, Unsupported, require
from .freshness import Freshness
from .journal import COMMAND, CONFIG, NOOP, SWITCH, Entry
from .node_state import NodeState
from .port import Machine
from .proposals import Proposals
from .replication import Replication

logger = logging.getLogger(__name__)


class Applying:
    """See the head of this file."""

    def __init__(
        self,
        node: NodeState,
        machine: Machine,
        proposals: Proposals,
        replication: Replication,
        freshness: Freshness,
    ) -> None:
        self.node, self.journal, self.settings = node, node.journal, node.settings
        self.machine, self.proposals = machine, proposals
        self.replication, self.freshness = replication, freshness
        self.known_kinds = frozenset({NOOP, COMMAND, CONFIG, SWITCH})
        self.retry_at = 0.0  # When what found no room is tried again.

    def apply(self, now: float) -> bool:
        """As `apply_committed`; what the machine has no room for waits, and is tried again. Until
        then this node may not lead and takes no entries."""
        node = self.node
        if node.state_full and now < self.retry_at:
            return False
        try:
            more = self.apply_committed()
        except DiskFull as full:
            if not node.state_full:
                logger.error("%s: the state cannot be written (%s); nothing is lost", node.me, full)
            node.state_full, self.retry_at = True, now + self.settings.room
            return False
        node.state_full = False
        if node.leads and self.replication.in_office and node.applied == node.commit:
            # Should the next entry find no room, what is here may still be read as old.
            self.freshness.heard(node.commit, self.replication.quorum_at, node.applied)
        return more

    def apply_committed(self) -> bool:
        """Give committed entries to the machine; return whether there are more.

        Counted before anyone is notified: what a caller does cannot make an entry apply twice. An
        entry that is not durable here waits, so that the machine is never ahead of the journal.
        """
        limit = min(self.node.commit, self.journal.synced_index)
        if self.node.installing or self.node.bereft or self.node.applied >= limit:
            return False
        last = min(limit, self.node.applied + self.settings.apply_step)
        for entry in self.journal.entries(self.node.applied + 1, last, self.settings.apply_bytes):
            require(entry.index == self.node.applied + 1, f"entry {entry.index} is out of order")
            self.apply_entry(entry)
        return self.node.applied < limit

    def apply_entry(self, entry: Entry) -> None:
        """Apply one entry, count it, and note who waited for it."""
        if entry.kind not in self.known_kinds:
            raise Unsupported(
                f"entry {entry.index} is of kind {entry.kind}, which this release does not know. "
                "A newer node wrote it; upgrade this one."
            )
        self.carry_out(entry)
        self.node.applied = entry.index
        self.count_applied(entry)

    def carry_out(self, entry: Entry) -> None:
        """Do what an entry says."""
        if entry.kind not in (NOOP, CONFIG):
            self.machine.apply(entry.index, entry.data)

    def count_applied(self, entry: Entry) -> None:
        """Notify those who waited for an entry."""
        self.freshness.applied(entry.index)
        self.proposals.applied(entry)
        self.replication.applied(entry.index)
