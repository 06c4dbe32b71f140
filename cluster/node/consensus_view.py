"""What a node, its services and its figures ask of consensus, beside the port of its driver.

The only file that looks behind `Driver.core`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..raft import faults
from ..raft.driver import Driver
from ..raft.journal import Journal
from ..raft.manifest import Manifest, folder_of
from ..raft.membership import Member


class ConsensusView:
    """See the head of this file."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._core = driver, driver.core

    @property
    def journal(self) -> Journal:
        return self._core.journal

    @property
    def term(self) -> int:
        return int(self._core.term)

    @property
    def known_leader(self) -> str:
        """The leader as consensus knows it; empty when it knows none."""
        return self._core.known_leader or ""

    @property
    def was_handed_over(self) -> bool:
        """The leader before has asked for the election of this term."""
        return self._core.election.handed_term == self._core.term

    @property
    def is_bereft(self) -> bool:
        """The state is lost, and another one is on its way."""
        return self._core.bereft

    @property
    def applied_index(self) -> int:
        return self._core.last_applied

    # Members.

    @property
    def members(self) -> Mapping[str, Member]:
        return self._core.config.members

    @property
    def voters(self) -> Sequence[str]:
        return self._core.config.voters

    @property
    def connected(self) -> frozenset[str]:
        return frozenset(self._core.connected)

    def linked(self) -> list[str]:
        """The other members that this node has a connection to."""
        return sorted(self._core.connected & self._core.config.members.keys())

    def is_replaced(self, name: str) -> bool:
        """Somebody of this name is connected, and another disk has its place."""
        return name in self._core.connected and not self._core.members.is_member(name)

    def refusal_of(self, name: str) -> str:
        """Why the last connection to a node failed; empty if it did not."""
        return self._driver.links.refused.get(name) or ""

    def foreign_at(self, name: str) -> float | None:
        """When a node came last with another history of this cluster."""
        return self._driver.foreign.get(name)

    def address_of_applicant(self, name: str) -> str:
        """Where a node listens that asks to be admitted; empty if none of this name does."""
        applicant = self._core.applicants.get(name)
        return applicant[1] if applicant is not None else ""

    # Changes of members as they would be made; each raises faults.CallRefused.

    def check_add(self, name: str, client: str) -> None:
        self._core.changes.admitting(name, client)

    def check_remove(self, name: str) -> None:
        self._core.changes.removing(name)

    def check_move(self, name: str, address: str, client: str) -> None:
        self._core.changes.moving(name, address, client)

    def check_transfer(self, target: str) -> None:
        self._core.transfer_target(target or None)

    # Snapshots.

    @property
    def latest_snapshot(self) -> Manifest | None:
        return self._core.snapshots.latest

    @property
    def snapshot_index(self) -> int:
        return self._core.snapshots.last_index

    def snapshots(self) -> Iterable[Manifest]:
        return list(self._core.snapshots.by_index.values())

    def make_snapshot(self) -> None:
        self._core.make_snapshot()

    def set_damaged_snapshots_aside(self) -> None:
        self._core.snapshots.set_aside_damaged()

    def replace_snapshot(self, index: int, file: str) -> None:
        """Set one aside that is not what was written, and make another of the state."""
        if index in self._core.snapshots.by_index:
            why = f"{folder_of(index)}/{file} is not what was written"
            self._core.snapshots.set_aside(index, faults.Damaged(why))
            self._core.make_snapshot()
