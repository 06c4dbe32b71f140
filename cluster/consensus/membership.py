"""Who belongs to the cluster, as the log says it.

A member is a node with one disk: its incarnation names the disk. A node that comes back with an
empty disk is another incarnation and cannot be mistaken for the one that voted before. Each
change moves one voter at most, so any majority before it and any after it have a node in common.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from .faults import Refused

MEMBERS_MAX = 9


@dataclass(frozen=True, slots=True)
class Member:
    """One node: the disk it had when it was admitted, where it listens, whether it votes."""

    incarnation: int
    address: str
    voter: bool


@dataclass(frozen=True)
class Configuration:
    """The members from one index of the log on."""

    members: dict[str, Member]

    def encode(self) -> bytes:
        rows = {n: [m.incarnation, m.address, m.voter] for n, m in sorted(self.members.items())}
        return json.dumps(rows, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, text: str | bytes) -> Configuration:
        return cls({name: Member(*row) for name, row in json.loads(text).items()})

    @property
    def voters(self) -> list[str]:
        return sorted(n for n, m in self.members.items() if m.voter)

    def is_voter(self, name: str, incarnation: int) -> bool:
        member = self.members.get(name)
        return member is not None and member.voter and member.incarnation == incarnation

    def majority(self, of: set[str]) -> bool:
        """Tell whether these nodes include a majority of the voters."""
        voters = self.voters
        return 2 * sum(v in of for v in voters) > len(voters)

    def with_learner(self, name: str, incarnation: int, address: str) -> Configuration:
        """Admit a disk without a vote, in place of the node's former one if there was one."""
        if name not in self.members and len(self.members) >= MEMBERS_MAX:
            raise Refused(f"a cluster has at most {MEMBERS_MAX} members; remove one first")
        return Configuration({**self.members, name: Member(incarnation, address, False)})

    def with_voter(self, name: str) -> Configuration:
        old = self.members[name]
        return Configuration({**self.members, name: Member(old.incarnation, old.address, True)})

    def without(self, name: str) -> Configuration:
        if name not in self.members:
            raise Refused(f"{name} is no member; members are {', '.join(sorted(self.members))}")
        rest = {n: m for n, m in self.members.items() if n != name}
        if not any(m.voter for m in rest.values()):
            raise Refused(f"{name} is the last voter and cannot be removed")
        return Configuration(rest)
