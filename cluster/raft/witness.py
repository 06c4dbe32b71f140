"""What a node knows of the others' disks, so that an older copy of a folder is found out.

A disk never goes back: its term grows, and what it holds of committed entries stays. So whoever
heard of them is a witness, for as long as its process lives. It sends at each new link what it
knows of the disk at the other end, and a node that holds less, or is in an earlier term, knows
that its folder is an older copy: it may have forgotten a vote or what it acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass

from .faults import JournalDamaged
from .node_state import NodeState
from .segment import ADVICE


@dataclass(slots=True)
class KnownDisk:
    """What one disk has had for sure: its term, and committed entries up to an index."""

    disk: int
    term: int = 0
    index: int = 0


class Witness:
    """See the head of this file."""

    def __init__(self, node: NodeState) -> None:
        self.node = node
        self._held: dict[str, KnownDisk] = {}
        self.committed = 0  # The highest index that anybody sent as committed.

    @property
    def floor(self) -> int:
        """The highest index that is committed, as far as this node knows. Whoever can be elected
        holds it, so no vote goes to a shorter log: that one is of an older copy of a folder."""
        return max(self.node.commit, self.committed)

    def check_own_disk(self, peer: str, term: int, index: int) -> None:
        """Hold what a peer knows of this disk against it."""
        node, last = self.node, self.node.journal.last_index
        if term > node.term or (index > last and not node.installing):
            raise JournalDamaged(
                f"{peer} has it from {node.me} that this disk holds entries up to {index} and term "
                f"{term}, but its journal ends at {last} in term {node.term}: "
                f"the folder is an older copy, or another process runs as {node.me} with a copy "
                f"of it; stop that one. {ADVICE}"
            )

    def note_commit(self, peer: str, disk: int, index: int) -> None:
        """A leader sent what is committed, which is on its own disk too."""
        self.committed = max(self.committed, index)
        self.holds(peer, disk, index)

    def of(self, peer: str) -> KnownDisk | None:
        """What is known of the disk of a peer."""
        return self._held.get(peer)

    def heard(self, peer: str, disk: int, term: int) -> None:
        """A message came, and what leaves a node is in a term that its disk has."""
        held = self._disk(peer, disk)
        held.term = max(held.term, term)

    def holds(self, peer: str, disk: int, index: int) -> None:
        """Its disk has all committed entries up to an index."""
        held = self._disk(peer, disk)
        held.index = max(held.index, index)

    def _disk(self, peer: str, disk: int) -> KnownDisk:
        held = self._held.get(peer)
        if held is None or held.disk != disk:
            held = self._held[peer] = KnownDisk(disk)
        return held

    def forget(self, peer: str) -> None:
        """It is no member: names are free to strangers, memory is not."""
        self._held.pop(peer, None)
