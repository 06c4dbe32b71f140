"""How nodes with empty disks form a cluster once, and how an empty disk joins one later.

There is no flag that says "first start": an operator would set it again after a lost disk, and a
node that forgot its votes would vote twice. Instead a fresh node draws a number for its disk, its
incarnation, and asks every node on its list. It writes down the incarnations it heard, once, and
announces that table. Once every node announces the same table, or one that does belongs to a
cluster, the table is the first configuration. So a first start needs all nodes once.

A fresh node that hears of a cluster whose table does not have its incarnation is a newcomer: it
keeps introducing itself, and the leader admits it as a learner, in place of its former disk or
when an operator adds it. Its word must echo the index of the configuration its hearer is in: what
a former disk said, and what comes late, was said before the present one was admitted.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from .election import Election
from .journal import CONFIG, Entry
from .membership import CONFIG_MAX, MEMBERS_MAX, Configuration, Member, is_address
from .message import INDEX_MAX, Introduce
from .walled import LEADER

APPLICANTS_MAX = 32  # Who would join; whoever is pushed out introduces itself again.
LISTED_MAX = 500  # Characters of a list that came from elsewhere.


class Introduction(Election):
    """See the head of this file."""

    contacts: dict[str, str]  # Node -> address, as given at the start, this node included.
    applicants: dict[str, tuple[int, str]]
    announced: dict[str, Any]
    told: dict[
        str, dict[str, Any]
    ]  # Node of the list -> what it said last, until a cluster is formed.
    seen: dict[str, int]  # Node -> index of the configuration it said it is in.
    introduce_at = 0.0

    @property
    def formed(self) -> bool:
        """Tell whether this node belongs, or belonged, to a cluster."""
        return bool(self.journal.configs)

    def begin(self, incarnation: int) -> None:
        """Name this disk if it has no name yet."""
        if "incarnation" not in self.journal.identity:
            self.journal.set_identity({"incarnation": incarnation, "table": None})
        if not self.formed and list(self.contacts) == [self.me]:
            self.form({self.me: self.incarnation})

    @property
    def table(self) -> dict[str, int] | None:
        table: dict[str, int] | None = self.journal.identity.get("table")
        return table

    @property
    def belongs(self) -> bool:
        """Tell whether this disk, not just this node, is a member as far as it knows."""
        member = self.config.members.get(self.me)
        return self.formed and member is not None and member.incarnation == self.incarnation

    def tick_introduction(self, now: float) -> None:
        if now >= self.introduce_at and (self.bereft or not self.belongs):
            self.introduce_at = now + self.settings.introduce
            known = self.config.members if self.bereft else self.contacts
            for peer in sorted(known):
                if peer != self.me:
                    self.send(peer, self.introduction(peer))

    def greet(self, peer: str) -> None:
        """Tell a member at a new link what is known of its disk, and of what is committed."""
        if self.formed and peer in self.config.members:
            self.send_first(peer, self.introduction(peer))

    def introduction(self, peer: str) -> Introduce:
        self.bear_witness()
        held = self.witness.of(peer)
        text = json.dumps(
            {
                "formed": self.formed,
                "table": self.table,
                "member": self.belongs,
                "index": self.config_index,
                "seen": self.seen.get(peer),
                "address": self.contacts[self.me],
                "contacts": self.contacts,
                "lacks": self.journal.base_index if self.bereft else 0,
                "removed_at": self.removed_at(peer),
                "origin": self.config.origin,
                "committed": self.commit,
                "held": [held.disk, held.term, held.index] if held is not None else [0, 0, 0],
            }
        )
        return Introduce(self.term, text.encode())

    def on_introduce(self, peer: str, incarnation: int, message: Introduce, now: float) -> None:
        said = parse(message.text)
        if said is None:
            return
        keep_last(self.seen, peer, said["index"])
        if not self.formed:
            self.hear_table(peer, incarnation, said)
        elif said["member"]:
            self.hear_witness(peer, said)
            self.hear_lack(peer, incarnation, said["lacks"], now)
        else:
            self.send(peer, self.introduction(peer))
            if said["seen"] == self.config_index:
                keep_last(self.applicants, peer, (incarnation, said["address"]))
                self.readmit(peer, now)

    def hear_witness(self, peer: str, said: dict[str, Any]) -> None:
        """What a member knows of this disk, and of what all must hold who want to lead."""
        if said["origin"] != self.config.origin:
            return  # Indexes of another history say nothing of this one.
        if self.removed_at(peer):
            self.send(peer, self.introduction(peer))  # It does not know yet.
        if peer not in self.config.members:
            return
        if self.belongs and said["removed_at"] > self.config_index:
            self.removed_self = True
        disk, term, index = said["held"]
        if disk == self.incarnation:
            self.check_disk(peer, term, index)
        self.witness.committed = max(self.witness.committed, said["committed"])
        self.met.add(peer)

    def hear_lack(self, peer: str, incarnation: int, lacks: int, now: float) -> None:
        """A member has lost its state, not its journal: it is offered a snapshot."""
        progress = self.progress.get(peer)
        if self.role == LEADER and progress is not None and progress.disk == incarnation:
            progress.lacks = lacks if 0 <= lacks <= self.commit else 0
            progress.lacks_until = now + 10 * self.settings.introduce

    def config_changed(self) -> None:
        before = self.config
        super().config_changed()
        if self.config is not before:
            # Whoever still does not belong says so again.
            for peer in self.config.members:
                self.applicants.pop(peer, None)

    def hear_table(self, peer: str, incarnation: int, said: dict[str, Any]) -> None:
        """Take part in the first formation, with the nodes on the list only."""
        if peer not in self.contacts:
            return
        self.told[peer] = said
        if said["formed"]:
            if said["table"] == self.table and self.table is not None:
                self.form(self.table)
            return  # Otherwise this disk is new to a cluster that exists, and waits to be let in.
        if said["contacts"] != self.contacts:
            return  # Two lists cannot make one cluster; see `lack`.
        if self.table is None:
            self.applicants[peer] = (incarnation, said["address"])
            if len(self.applicants) == len(self.contacts) - 1:
                table = {p: number for p, (number, _) in self.applicants.items()}
                table[self.me] = self.incarnation
                # Durable before it is announced, and never another one.
                identity = {**self.journal.identity, "table": dict(sorted(table.items()))}
                self.journal.set_identity(identity)
        if said["table"] is not None:
            self.announced[peer] = (incarnation, said["table"])
        self.form_if_agreed()

    def lacks(self) -> dict[str, str]:
        """What is missing of each node of the list before this one belongs to a cluster."""
        others = [] if self.formed else [peer for peer in self.contacts if peer != self.me]
        return {peer: why for peer in others if (why := self.lack(peer))}

    def lack(self, peer: str) -> str:
        said = self.told.get(peer)
        if peer not in self.connected:
            return "is not connected"
        if said is None:
            return f"has not introduced itself; does its list of members name {self.me}?"
        if said["formed"]:
            return f"belongs to a cluster whose leader has not let the empty disk of {self.me} in"
        if said["contacts"] != self.contacts:
            return (
                f"has another list of members, {listed(said['contacts'])}, than {self.me}, "
                f"{listed(self.contacts)}; give both the same"
            )
        return ""

    def form_if_agreed(self) -> None:
        table = self.table
        others = [p for p in self.contacts if p != self.me]
        if table is not None and all(
            self.announced.get(p) == (table.get(p), table) for p in others
        ):
            self.form(table)

    def form(self, table: dict[str, int]) -> None:
        """Begin the log with the first configuration, the same on every node."""
        self.journal.set_identity({**self.journal.identity, "table": table})
        members = {n: Member(number, self.contacts[n], True) for n, number in table.items()}
        first = Configuration(members).encode()
        self.journal.append(Entry(1, 0, CONFIG, first))
        self.config_changed()
        self.applicants, self.told = {}, {}
        self.deadline = 0.0

    def readmit(self, peer: str, now: float) -> None:
        """A member came back with an empty disk: take it in as a learner."""
        member = self.config.members.get(peer)
        if self.role != LEADER or member is None or not self.may_change_members():
            return
        incarnation, address = self.applicants[peer]
        if member.incarnation != incarnation:
            config = self.config.with_learner(peer, incarnation, address)
            if len(config.encode()) <= CONFIG_MAX:
                self.change_members(config, now)

    def may_change_members(self) -> bool:
        raise NotImplementedError

    def change_members(self, config: Configuration, now: float) -> None:
        raise NotImplementedError


Told = TypeVar("Told")


def keep_last(told: dict[str, Told], peer: str, what: Told) -> None:
    """Note what a peer said, of a limited number of peers: names are free to strangers."""
    told.pop(peer, None)
    told[peer] = what
    if len(told) > APPLICANTS_MAX:
        del told[next(iter(told))]


def listed(contacts: dict[str, Any]) -> str:
    """A list of members, for people."""
    return ",".join(f"{name}={address}" for name, address in sorted(contacts.items()))[:LISTED_MAX]


def is_index(number: object) -> bool:
    return isinstance(number, int) and 0 <= number < INDEX_MAX


def parse(text: bytes) -> dict[str, Any] | None:
    """Return what a node said of itself, or None if it is nonsense."""
    try:
        said = json.loads(text)
        table = said["table"]
        shaped = (
            isinstance(said["formed"], bool)
            and isinstance(said["member"], bool)
            and is_address(said["address"])
            and isinstance(said["index"], int)
            and isinstance(said["seen"], int | None)
            and isinstance(said["contacts"], dict)
            and isinstance(said.setdefault("lacks", 0), int)
            and is_index(said.setdefault("removed_at", 0))
            and isinstance(said.setdefault("origin", ""), str)
            and is_index(said.setdefault("committed", 0))
            and len(said.setdefault("held", [0, 0, 0])) == 3
            and all(is_index(number) for number in said["held"])
            and (table is None or len(table) <= MEMBERS_MAX)
            and (table is None or all(isinstance(v, int) for v in table.values()))
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return said if shaped else None
