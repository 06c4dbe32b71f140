"""How nodes with empty disks form a cluster once, and how an empty disk joins one later.

There is no flag that says "first start": an operator would set it again after a lost disk, and a
node that forgot its votes would vote twice. Instead a fresh node draws a number for its disk, its
incarnation, and asks every node on its list. It writes down the incarnations it heard, once, and
announces that table. Once every node announces the same table, or one that does belongs to a
cluster, the table is the first configuration. So a first start needs all nodes once.

A fresh node that hears of a cluster whose table does not have its incarnation is a newcomer: it
keeps introducing itself, and the leader admits it as a learner, in place of its former disk or
when an operator adds it. Its introduction must echo the index of the configuration its hearer is
in: what a former disk sent, and what comes late, was sent before the present one was admitted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from .election import Election
from .faults import CallRefused
from .journal import CONFIG, Entry
from .members import APPLICANTS_MAX, Members
from .membership import MEMBERS_MAX, Configuration, Member, is_address
from .message import Introduce
from .node_state import NodeState
from .outbox import Outbox
from .record import INDEX_MAX
from .replication import Replication
from .witness import Witness

LISTED_MAX = 500  # Characters of a list that came from elsewhere.


class Join:
    """See the head of this file."""

    def __init__(
        self,
        contacts: dict[str, str],
        node: NodeState,
        members: Members,
        outbox: Outbox,
        witness: Witness,
        replication: Replication,
        election: Election,
        readmit: Callable[[str, float], None],
    ) -> None:
        self.contacts = contacts  # Node -> address, as given at the start, this node included.
        self.node, self.journal, self.settings = node, node.journal, node.settings
        self.members, self.outbox, self.witness = members, outbox, witness
        self.replication, self.election = replication, election
        self.readmit = readmit  # Takes a member back in that came with an empty disk.
        self.announced: dict[str, Any] = {}
        # Node of the list -> what it sent last, until a cluster is formed.
        self.heard: dict[str, dict[str, Any]] = {}
        self.seen: dict[str, int] = {}  # Node -> index of the configuration it is in.
        self.introduce_at = 0.0

    def begin(self, incarnation: int) -> None:
        """Name this disk if it has no name yet."""
        if "incarnation" not in self.journal.identity:
            self.journal.set_identity({"incarnation": incarnation, "table": None})
        if not self.members.formed and list(self.contacts) == [self.node.me]:
            self.form({self.node.me: self.members.incarnation})

    @property
    def table(self) -> dict[str, int] | None:
        table: dict[str, int] | None = self.journal.identity.get("table")
        return table

    def tick(self, now: float) -> None:
        if now >= self.introduce_at and (self.node.bereft or not self.members.belongs):
            self.introduce_at = now + self.settings.introduce
            known = self.members.config.members if self.node.bereft else self.contacts
            for peer in sorted(known):
                if peer != self.node.me:
                    self.outbox.send(peer, self.introduction(peer))

    def greet(self, peer: str) -> None:
        """Send a member at a new link what is known of its disk, and of what is committed."""
        if self.members.formed and peer in self.members.config.members:
            self.outbox.send_first(peer, self.introduction(peer))

    def introduction(self, peer: str) -> Introduce:
        self.replication.bear_witness()
        held = self.witness.of(peer)
        text = json.dumps(
            {
                "formed": self.members.formed,
                "table": self.table,
                "member": self.members.belongs,
                "index": self.members.config_index,
                "seen": self.seen.get(peer),
                "address": self.contacts[self.node.me],
                "contacts": self.contacts,
                "lacks": self.journal.base_index if self.node.bereft else 0,
                "removed_at": self.members.removed_at(peer),
                "named": self.members.named_disk(peer),
                "origin": self.members.config.origin,
                "committed": self.node.commit,
                "held": [held.disk, held.term, held.index] if held is not None else [0, 0, 0],
            }
        )
        return Introduce(self.node.term, text.encode())

    def on_introduce(self, peer: str, incarnation: int, message: Introduce, now: float) -> None:
        sent = parse(message.text)
        if sent is None:
            return
        keep_last(self.seen, peer, sent["index"])
        if not self.members.formed:
            self.hear_table(peer, incarnation, sent)
        elif sent["member"]:
            self.hear_witness(peer, sent)
            self.hear_lack(peer, incarnation, sent["lacks"], now)
        else:
            self.outbox.send(peer, self.introduction(peer))
            if sent["seen"] == self.members.config_index:
                keep_last(self.members.applicants, peer, (incarnation, sent["address"]))
                self.readmit(peer, now)

    def hear_witness(self, peer: str, sent: dict[str, Any]) -> None:
        """What a member knows of this disk, and of what all must hold who want to lead."""
        members, witness = self.members, self.witness
        if sent["origin"] != members.config.origin:
            return  # Indexes of another history say nothing of this one.
        if members.removed_at(peer):
            self.outbox.send(peer, self.introduction(peer))  # It does not know yet.
        if peer not in members.config.members:
            return
        if members.belongs:
            members.note_removal(sent["removed_at"])
            members.check_not_replaced(peer, *sent["named"])
        disk, term, index = sent["held"]
        if disk == members.incarnation:
            witness.check_own_disk(peer, term, index)
        witness.committed = max(witness.committed, sent["committed"])
        self.election.met.add(peer)

    def hear_lack(self, peer: str, incarnation: int, lacks: int, now: float) -> None:
        """A member has lost its state, not its journal: it is offered a snapshot."""
        progress = self.replication.progress.get(peer)
        if self.node.leads and progress is not None and progress.disk == incarnation:
            progress.lacks = lacks if 0 <= lacks <= self.node.commit else 0
            progress.lacks_until = now + 10 * self.settings.introduce

    def hear_table(self, peer: str, incarnation: int, sent: dict[str, Any]) -> None:
        """Take part in the first formation, with the nodes on the list only."""
        if peer not in self.contacts:
            return
        self.heard[peer] = sent
        if sent["formed"]:
            if sent["table"] == self.table and self.table is not None:
                self.form(self.table)
            return  # Otherwise this disk is new to a cluster that exists, and waits to be let in.
        if sent["contacts"] != self.contacts:
            return  # Two lists cannot make one cluster; see `lack`.
        if self.table is None:
            self.members.applicants[peer] = (incarnation, sent["address"])
            if len(self.members.applicants) == len(self.contacts) - 1:
                table = {p: number for p, (number, _) in self.members.applicants.items()}
                table[self.node.me] = self.members.incarnation
                # Durable before it is announced, and never another one.
                identity = {**self.journal.identity, "table": dict(sorted(table.items()))}
                self.journal.set_identity(identity)
        if sent["table"] is not None:
            self.announced[peer] = (incarnation, sent["table"])
        self.form_if_agreed()

    def lacks(self) -> dict[str, str]:
        """What is missing of each node of the list before this one belongs to a cluster."""
        others = (
            [] if self.members.formed else [peer for peer in self.contacts if peer != self.node.me]
        )
        return {peer: why for peer in others if (why := self.lack(peer))}

    def meets_cluster(self) -> bool:
        """Whether a node of the list that is connected belongs to a cluster."""
        return any(
            sent["formed"] for peer, sent in self.heard.items() if peer in self.members.connected
        )

    def lack(self, peer: str) -> str:
        sent, me = self.heard.get(peer), self.node.me
        if peer not in self.members.connected:
            return "is not connected"
        if sent is None:
            return f"has not introduced itself; does its list of members name {me}?"
        if sent["formed"]:
            return f"belongs to a cluster whose leader has not let the empty disk of {me} in"
        if sent["contacts"] != self.contacts:
            return (
                f"has another list of members, {listed(sent['contacts'])}, than {me}, "
                f"{listed(self.contacts)}; give both the same"
            )
        return ""

    def form_if_agreed(self) -> None:
        table = self.table
        others = [p for p in self.contacts if p != self.node.me]
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
        self.members.follow_log()
        self.members.applicants, self.heard = {}, {}
        self.election.deadline = 0.0


Value = TypeVar("Value")


def keep_last(values: dict[str, Value], peer: str, value: Value) -> None:
    """Note what a peer sent, of a limited number of peers: names are free to strangers."""
    values.pop(peer, None)
    values[peer] = value
    if len(values) > APPLICANTS_MAX:
        del values[next(iter(values))]


def listed(contacts: dict[str, Any]) -> str:
    """A list of members, for people."""
    return ",".join(f"{name}={address}" for name, address in sorted(contacts.items()))[:LISTED_MAX]


def is_index(number: object) -> bool:
    return isinstance(number, int) and 0 <= number < INDEX_MAX


def parse(text: bytes) -> dict[str, Any] | None:
    """Return what a node sent of itself, or None if it is nonsense."""
    try:
        sent = json.loads(text)
        table = sent["table"]
        shaped = (
            isinstance(sent["formed"], bool)
            and isinstance(sent["member"], bool)
            and is_address(sent["address"])
            and isinstance(sent["index"], int)
            and isinstance(sent["seen"], int | None)
            and isinstance(sent["contacts"], dict)
            and isinstance(sent.setdefault("lacks", 0), int)
            and is_index(sent.setdefault("removed_at", 0))
            and isinstance(sent.setdefault("origin", ""), str)
            and is_index(sent.setdefault("committed", 0))
            and len(sent.setdefault("held", [0, 0, 0])) == 3
            and all(is_index(number) for number in sent["held"])
            and len(sent.setdefault("named", [0, 0])) == 2
            and all(is_index(number) for number in sent["named"])
            and (table is None or len(table) <= MEMBERS_MAX)
            and (table is None or all(isinstance(v, int) for v in table.values()))
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return sent if shaped else None


def check_contacts(contacts: dict[str, str]) -> None:
    """Refuse a list of nodes that could not be kept as members."""
    if len(contacts) > MEMBERS_MAX:
        raise CallRefused(f"{len(contacts)} nodes are listed; a cluster has at most {MEMBERS_MAX}")
    for name, address in contacts.items():
        if not is_address(address):
            raise CallRefused(f"{name} has address {address!r}, which is not host:port; correct it")
    Configuration({n: Member(1 << 55, a, True) for n, a in contacts.items()}).check_size()
