"""Where a node stands, as it is shown to others."""

from __future__ import annotations

from .adapter import ROLES
from .members import Members
from .node_state import NodeState
from .port import Peer, Status
from .replication import Replication
from .witness import Witness


def status_of(
    node: NodeState, members: Members, replication: Replication, witness: Witness
) -> Status:
    journal, progress = node.journal, replication.progress
    floor, last = witness.floor, journal.last_index
    peers = {
        name: Peer(
            voter=member.voter,
            address=member.address,
            client=member.client,
            connected=name == node.me or (name in members.connected and members.is_member(name)),
            match=progress[name].match if name in progress else 0,
        )
        for name, member in members.config.members.items()
    }
    return Status(
        node=node.me,
        role=ROLES[node.role],
        term=node.term,
        leader=node.known_leader,
        ready=replication.in_office,
        last_index=last,
        commit=node.commit,
        applied=node.applied,
        durable=journal.synced_index,
        base=journal.base_index,
        full=node.full,
        bereft=node.bereft,
        removed=members.removed,
        missing=floor if floor > last else 0,
        peers=peers,
    )
