"""Who belongs to the cluster as this node's log says it, and who is there.

The last configuration in the log counts, committed or not.
"""

from __future__ import annotations

from .faults import Replaced
from .membership import Configuration
from .node_state import NodeState

APPLICANTS_MAX = 32  # Who would join; whoever is pushed out introduces itself again.


class Members:
    """The configuration in force, the links, the disks that spoke and those that would join."""

    def __init__(self, node: NodeState) -> None:
        self.node, self.journal = node, node.journal
        self.config, self.config_index, self._text = Configuration({}), -2, ""
        self.connected: set[str] = set()
        self.heard_disks: dict[str, int] = {}
        self.applicants: dict[str, tuple[int, str]] = {}  # Node -> its disk and its address.
        self.removed = False  # This node is no member any more.
        self.was_member = False

    def follow_log(self) -> None:
        """Take over the last configuration in the log, committed or not."""
        index, text = self.journal.configs[-1] if self.journal.configs else (-1, "{}")
        # One that was never committed may have stood at the same index.
        if (index, text) == (self.config_index, self._text):
            return
        self.config_index, self._text = index, text
        self.config = Configuration.decode(text)
        if self.node.me in self.config.members:
            self.removed = False  # Added again while it was still running.
        # Whoever still does not belong says so again.
        for peer in self.config.members:
            self.applicants.pop(peer, None)

    # This node.

    @property
    def incarnation(self) -> int:
        """The name of this node's disk."""
        number: int = self.journal.identity.get("incarnation", 0)
        return number

    @property
    def formed(self) -> bool:
        """Return whether this node belongs, or belonged, to a cluster."""
        return bool(self.journal.configs)

    @property
    def belongs(self) -> bool:
        """Return whether this disk, not just this node, is a member as far as it knows."""
        member = self.config.members.get(self.node.me)
        return self.formed and member is not None and member.incarnation == self.incarnation

    @property
    def is_voter(self) -> bool:
        return self.config.is_voter(self.node.me, self.incarnation)

    @property
    def is_leaving(self) -> bool:
        """Return whether this node's removal is in its log and not known as committed.

        It must still be able to lead: the others may need its vote, and its log is the newest.
        """
        configs = self.journal.configs
        return (
            self.config_index > self.node.commit
            and len(configs) > 1
            and Configuration.decode(configs[-2][1]).is_voter(self.node.me, self.incarnation)
        )

    def note_removal(self, removed_at: int) -> None:
        """Another node has a committed configuration without this one."""
        if removed_at > self.config_index:
            self.removed = True

    def named_disk(self, peer: str) -> tuple[int, int]:
        """Return the disk that a committed configuration has for a peer, and its index; zeros if
        none is known."""
        member = self.config.members.get(peer)
        if member is None or self.config_index > self.node.commit:
            return 0, 0
        return member.incarnation, max(self.config_index, 0)

    def check_not_replaced(self, peer: str, disk: int, index: int) -> None:
        """Hold against this disk what a peer has of the one that bears its name."""
        if self.belongs and disk not in (0, self.incarnation) and index > self.config_index:
            raise Replaced(
                f"the cluster has taken another disk in as {self.node.me} (entry {index}, by "
                f"{peer}), so this folder has no part in it any more. If another folder is the "
                f"right one, name that one (`folder`); else keep this one aside, or empty it, and "
                f"do not start two nodes as {self.node.me}"
            )

    def notice_own_removal(self) -> None:
        """See from the log that this node was removed."""
        if (
            self.formed
            and self.node.me not in self.config.members
            and 0 < self.config_index <= self.node.applied
            and self.was_member
        ):
            self.removed = True
        # By its disk: the log may begin with times in which another disk bore its name.
        self.was_member = self.was_member or self.belongs

    # The others.

    def other_voters(self) -> list[str]:
        return [v for v in self.config.voters if v != self.node.me]

    def removed_at(self, peer: str) -> int:
        """Return the index of the committed configuration that lacks a peer, or 0."""
        if peer in self.config.members or self.config_index > self.node.commit:
            return 0
        return max(self.config_index, 0)

    def is_member(self, peer: str) -> bool:
        """Whether it speaks for the disk that is a member, as far as it has spoken. It does not
        when a folder came back that was taken for lost."""
        member = self.config.members[peer]
        return self.heard_disks.get(peer, member.incarnation) == member.incarnation
