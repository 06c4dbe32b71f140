"""What a start looks at before it takes part: whether journal, state and snapshots fit together."""

from __future__ import annotations

from .faults import Damaged
from .journal import Journal
from .members import Members
from .node_state import NodeState
from .port import Machine
from .segment import ADVICE
from .snapshot import Snapshots

ALONE = (
    "The state of {me} is damaged, so is its snapshot, and no other node has what the journal does "
    "not reach back to. Put a backup back: raftsched node restore --help"
)


def check_journal_is_there(journal: Journal, snapshots: Snapshots, machine: Machine) -> None:
    """A disk that has a state or a snapshot has a number, or its journal was lost: the number
    is durable before anything else is."""
    if "incarnation" not in journal.identity:
        applied = max(machine.applied(), snapshots.last_index)
        if applied or snapshots.lost:
            raise Damaged(
                f"there is a state with entries up to {applied} and no journal: its files were "
                f"removed, or hold nothing. {ADVICE}"
            )


def begin_at_state(
    node: NodeState, members: Members, snapshots: Snapshots, machine: Machine
) -> None:
    """Go on from what the state holds, or without it if it is lost."""
    journal = node.journal
    # A snapshot may end with entries that are no business of the machine.
    applied = max(machine.applied(), snapshots.last_index)
    if snapshots.lost and applied < journal.base_index:
        if members.config.voters == [node.me]:
            raise Damaged(ALONE.format(me=node.me))
        node.bereft, applied = True, journal.base_index - 1
    if not journal.base_index <= applied <= journal.last_index and not node.bereft:
        raise Damaged(
            f"the state holds entries up to {applied}, but the journal those from "
            f"{journal.base_index} to {journal.last_index}: files of one of them were removed, "
            f"or are older copies. {ADVICE}"
        )
    # What was applied had been committed; entries after it may be, and will be found out.
    node.commit = node.applied = applied
