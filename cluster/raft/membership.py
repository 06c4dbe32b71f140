"""Who belongs to the cluster, as the log says it.

A member is a node with one disk: its incarnation names the disk. A node that comes back with an
empty disk is another incarnation and cannot be mistaken for the one that voted before. Each
change moves one voter at most, so any majority before it and any after it have a node in common.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from .faults import CallRefused

MEMBERS_MAX = 9
CONFIG_MAX = 2048  # Bytes; a segment's header holds two and must stay within its 8 KiB.
NAME_MAX = 64
HOST_MAX = 200
ORIGIN_MAX = 32
_ORIGIN = ""  # Its key among the names of members.
_HOST = re.compile(r"(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?|\[[0-9A-Fa-f:.]+\]", re.ASCII)


def is_address(text: object) -> bool:
    """Return whether this is host:port as every node can dial it."""
    if not isinstance(text, str):
        return False
    host, _, port = text.rpartition(":")
    dialled = port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 1 << 16
    return dialled and len(host) <= HOST_MAX and _HOST.fullmatch(host) is not None


@dataclass(frozen=True, slots=True)
class Member:
    """One node: the disk it had when it was admitted, where it listens, whether it votes.

    `client` is where clients reach it, if the cluster knows it; else the node says so itself.
    """

    incarnation: int
    address: str
    voter: bool
    client: str = ""

    def row(self) -> list[object]:
        return [self.incarnation, self.address, self.voter, *([self.client] if self.client else [])]


@dataclass(frozen=True)
class Configuration:
    """The members from one index of the log on.

    `origin` keeps histories apart: a cluster that goes on from a backup, or without its majority,
    has another one than the cluster it was. It is empty in one that was founded by all its nodes.
    """

    members: dict[str, Member]
    origin: str = ""

    def encode(self) -> bytes:
        rows: dict[str, object] = {_ORIGIN: self.origin} if self.origin else {}
        rows |= {name: member.row() for name, member in sorted(self.members.items())}
        return json.dumps(rows, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, text: str | bytes) -> Configuration:
        """Raise ValueError if this is no configuration: a peer may have written it."""
        if len(text) > CONFIG_MAX:
            raise ValueError(f"{len(text)} bytes of members are over {CONFIG_MAX}")
        try:
            rows = json.loads(text)
        except RecursionError as error:
            raise ValueError("it is nested too deep") from error
        if not isinstance(rows, dict):
            raise ValueError("it names no members")
        origin = rows.pop(_ORIGIN, "")
        if not isinstance(origin, str) or len(origin) > ORIGIN_MAX:
            raise ValueError(f"{str(origin)[:ORIGIN_MAX]!r} is no origin")
        if len(rows) > MEMBERS_MAX:
            raise ValueError(f"it names more than {MEMBERS_MAX} members")
        return cls({name: _member(name, row) for name, row in rows.items()}, origin)

    def check_size(self) -> None:
        """Raise CallRefused if names and addresses are too long to be kept together."""
        size = len(self.encode())
        if size > CONFIG_MAX:
            raise CallRefused(
                f"names and addresses of all members take {size} bytes, {CONFIG_MAX} may; "
                "use shorter ones"
            )

    @property
    def voters(self) -> list[str]:
        return sorted(n for n, m in self.members.items() if m.voter)

    def is_voter(self, name: str, incarnation: int) -> bool:
        member = self.members.get(name)
        return member is not None and member.voter and member.incarnation == incarnation

    def majority(self, of: set[str]) -> bool:
        """Return whether these nodes include a majority of the voters."""
        voters = self.voters
        return 2 * sum(v in of for v in voters) > len(voters)

    def with_learner(
        self, name: str, incarnation: int, address: str, client: str = ""
    ) -> Configuration:
        """Admit a disk without a vote, in place of the node's former one if there was one."""
        if name not in self.members and len(self.members) >= MEMBERS_MAX:
            raise CallRefused(f"a cluster has at most {MEMBERS_MAX} members; remove one first")
        client = self.members[name].client if name in self.members else client
        return self._with(name, Member(incarnation, address, False, client))

    def with_voter(self, name: str) -> Configuration:
        return self._with(name, replace(self.members[name], voter=True))

    def moved(self, name: str, address: str, client: str) -> Configuration:
        """Give a member other addresses; an empty one stays as it was."""
        self._need(name)
        old = self.members[name]
        address, client = address or old.address, client or old.client
        return self._with(name, replace(old, address=address, client=client))

    def _with(self, name: str, member: Member) -> Configuration:
        return replace(self, members={**self.members, name: member})

    def _need(self, name: str) -> None:
        if name not in self.members:
            raise CallRefused(f"{name} is no member; members are {', '.join(sorted(self.members))}")

    def without(self, name: str) -> Configuration:
        self._need(name)
        rest = {n: m for n, m in self.members.items() if n != name}
        if not any(m.voter for m in rest.values()):
            raise CallRefused(f"{name} is the last voter and cannot be removed")
        return replace(self, members=rest)


def _member(name: str, row: Any) -> Member:  # noqa: ANN401  # It came out of JSON.
    shaped = (
        0 < len(name) <= NAME_MAX
        and isinstance(row, list)
        and [type(field) for field in row] == [int, str, bool, str][: max(3, len(row))]
        and 0 < row[0] < 1 << 56
        and all(is_address(address) for address in row[1::2])
    )
    if not shaped:
        raise ValueError(f"{name[:NAME_MAX]!r} is not described as a member is")
    return Member(*row)
