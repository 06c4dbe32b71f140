"""Valid frames with hostile contents, from a peer whose name is proven.

Such a peer may keep a cluster from working; nobody can help that who trusts a majority. It must
not end a node otherwise than by a stop for what cannot be true, make it take back what it has
committed, or cost it memory.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from raftsched.chaos.sim.group import Group, GroupNode
from raftsched.cluster.raft.faults import Fatal
from raftsched.cluster.raft.journal import COMMAND, CONFIG, NOOP, Entry
from raftsched.cluster.raft.manifest import FileOf, Manifest
from raftsched.cluster.raft.membership import MEMBERS_MAX
from raftsched.cluster.raft.message import (
    Append,
    AppendAck,
    BadCopy,
    Chunk,
    Fetch,
    Heartbeat,
    HeartbeatAck,
    Introduce,
    Message,
    PreVote,
    PreVoteReply,
    SnapshotOffer,
    TimeoutNow,
    Vote,
    VoteReply,
    WireError,
    decode,
    encode,
)
from raftsched.cluster.raft.port import RaftSettings
from raftsched.cluster.raft.record import INDEX_MAX, TERM_MAX

from ...sampled import some

SETTINGS = RaftSettings(
    compact_bytes=40 << 10, tail_entries=5, chunk_bytes=512, append_bytes=4000,
    window_bytes=8000, outbox_bytes=200_000,
)  # fmt: skip
NESTED = b"[" * 20_000
DIGEST = "ab" * 32
ADDRESSES = ["n3:1", "", "nonsense", "h:99999999", "a..b:1", "x" * 70 + ".y:1", "n3:", "h:1" * 999]


class Hostile:
    """Speaks as n3, and as strangers, to the other two."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"hostile {seed}")
        self.group = Group(3, SETTINGS)
        leader = self.group.lead()
        for number in range(self.dice.randint(0, 40)):
            self.group.write(leader, f"w{number}-{'x' * 200}")
        self.group.run(0.3)
        if self.dice.random() < 0.7:
            self.group.passes = lambda a, b, m: "n3" not in (a, b)
        self.targets = [self.group.nodes[n] for n in ("n1", "n2")]
        self.incarnation = self.group.nodes["n3"].core.incarnation
        self.refused = 0

    def attack(self, target: GroupNode) -> None:
        dice, core = self.dice, target.core
        message = dice.choice(MAKERS)(self, target)
        peer = "n3" if dice.random() < 0.8 else f"stranger{dice.randrange(10**6)}"
        known = self.incarnation if dice.random() < 0.8 else dice.randrange(1, 1 << 56)
        try:
            said, incarnation = decode(encode(message, known))
            core.receive(peer, incarnation, said, self.group.now)
        except WireError:
            self.refused += 1
        if peer != "n3":
            core.link_down(peer, self.group.now)

    # What it may say.

    def number(self, target: GroupNode) -> int:
        core, dice = target.core, self.dice
        near = dice.choice((core.journal.last_index, core.node.commit, core.journal.base_index))
        return dice.choice((
            0, 1, max(near + dice.randint(-3, 3), 0), near, dice.randrange(200),
            INDEX_MAX - 1, dice.randrange(INDEX_MAX),
        ))  # fmt: skip

    def term(self, target: GroupNode) -> int:
        term, dice = target.core.term, self.dice
        if dice.random() < 0.003:
            return dice.choice((TERM_MAX, TERM_MAX - 1, 1 << 40))
        return max(dice.choice((term, term, term, term + 1, term - 1, 0)), 0)

    def entries(self, target: GroupNode, prev: int, term: int) -> tuple[Entry, ...]:
        dice = self.dice
        count = dice.choice((0, 1, 1, 3, 300))
        return tuple(Entry(prev + 1 + i, term, *self.body()) for i in range(count))

    def body(self) -> tuple[int, bytes]:
        dice = self.dice
        if dice.random() < 0.2:
            return CONFIG, self.config()
        command = b'{"id":"h%d","key":"k","add":"x"}' % dice.randrange(10**6)
        return dice.choice(((COMMAND, command), (NOOP, b""), (NOOP, b"junk")))

    def config(self) -> bytes:
        dice = self.dice
        row = [self.incarnation, dice.choice(ADDRESSES), True]
        rows: dict[str, Any] = {f"n{i}": row for i in range(dice.choice((0, 1, 3, 9, 40)))}
        shapes = (b"\xff\xfe", b"{}", b"[]", b"1", NESTED, b'{"n1":[]}', b'{"n1":[1,2,3]}')
        return dice.choice((*shapes, json.dumps(rows).encode(), json.dumps(rows).encode()))

    def manifest(self, target: GroupNode) -> bytes:
        dice, index = self.dice, self.number(target)
        names = ("part-0", "part-1", "part-0", "../vote", "", "x" * 300, "a\0b", "manifest.json")
        files = [
            FileOf(dice.choice(names), dice.choice((0, 5, 600, 1 << 62, -1)), DIGEST)
            for _ in range(dice.choice((0, 1, 2, 500)))
        ]
        rows = {n.name: [n.core.incarnation, "h:1", True] for n in self.group.nodes.values()}
        text = dice.choice((json.dumps(rows), json.dumps(rows), "{}", "[", "1"))
        configs = [(dice.choice((1, index, index + 5)), text)] * dice.choice((0, 1, 1, 1, 9))
        good = Manifest(index, self.term(target), dice.choice((index, 0)), configs, files)
        odd = dice.choice((NESTED, b"[1e999,1,1,[],[]]", b"[1,1,1]", b"{}", b"[NaN,0,0,[],[]]"))
        return dice.choice((good.encode(), good.encode(), good.encode(), checked(odd), odd))

    def snapshot(self, target: GroupNode) -> int:
        incoming = target.core.receiver.incoming
        ids = [m.id for m in target.core.snapshots.by_index.values()]
        return self.dice.choice([incoming.manifest.id if incoming else 1, *ids, 7])

    def introduction(self, target: GroupNode) -> bytes:
        dice, contacts = self.dice, target.core.join.contacts
        said = {
            "formed": dice.choice((True, False, 1)),
            "table": dice.choice((None, {}, {"n1": 1, "n2": -5}, [], {"n1": "x"})),
            "member": dice.choice((True, False)),
            "address": dice.choice((*ADDRESSES, 5)),
            "contacts": dice.choice((contacts, {}, [])),
            "index": dice.choice((1, -1, "x")),
            "seen": dice.choice((target.core.members.config_index, None, [])),
        }
        shapes = (b"", b"[]", NESTED, b"\xff", json.dumps(said).encode() + b" " * 1_000_000)
        return dice.choice((*shapes, *[json.dumps(said).encode()] * 8))


def checked(body: bytes) -> bytes:
    """Make what is no manifest look like one."""
    return b"%08x" % zlib.crc32(body) + body


Maker = Callable[[Hostile, GroupNode], Message]


def append(h: Hostile, t: GroupNode) -> Append:
    prev, term = h.number(t), h.term(t)
    journal = t.core.journal
    inside = journal.base_index <= prev <= journal.last_index
    prev_term = journal.term_at(prev) if inside and h.dice.random() < 0.8 else h.term(t)
    return Append(term, prev, prev_term, h.number(t), h.entries(t, prev, term))


def chunk(h: Hostile, t: GroupNode) -> Chunk:
    size = h.dice.choice((0, 5, 512, 512, 88, 600_000))
    incoming, there = t.core.receiver.incoming, h.dice.random() < 0.9
    file, offset = incoming.got if incoming else (0, 0)
    if h.dice.random() < 0.3:
        file, offset = h.dice.choice((0, 1, 1 << 31)), h.number(t)
    return Chunk(h.term(t), h.snapshot(t), file, offset, there, bytes(size))


def fetch(h: Hostile, t: GroupNode) -> Fetch:
    file, size = h.dice.choice((0, 1, 1 << 31)), h.dice.choice((1, 512, (1 << 32) - 1))
    return Fetch(h.term(t), h.snapshot(t), file, h.number(t), size)


MAKERS: list[Maker] = [
    append,
    append,
    chunk,
    chunk,
    fetch,
    lambda h, t: AppendAck(h.term(t), h.number(t), h.number(t), h.dice.random() < 0.3),
    lambda h, t: Heartbeat(h.term(t), h.number(t), h.number(t), 0, -1e16, 1e16),
    lambda h, t: Heartbeat(h.term(t), h.number(t), h.number(t), h.number(t), 0.0, 0.0),
    lambda h, t: HeartbeatAck(h.term(t), h.dice.choice((0, 1, t.core.replication.round)), 1e16),
    lambda h, t: PreVote(h.term(t), h.number(t), h.term(t)),
    lambda h, t: PreVoteReply(h.term(t), h.term(t), True, h.dice.choice((0, 0, 0, 10**9))),
    lambda h, t: Vote(h.term(t), h.number(t), h.term(t), h.dice.random() < 0.2),
    lambda h, t: VoteReply(h.term(t), True),
    lambda h, t: TimeoutNow(h.term(t)),
    lambda h, t: SnapshotOffer(h.term(t), h.manifest(t)),
    lambda h, t: BadCopy(h.term(t), h.snapshot(t)),
    lambda h, t: Introduce(h.term(t), h.introduction(t)),
]


def committed(node: GroupNode) -> dict[int, int]:
    """The terms of what this node has committed, as far as its journal still has them."""
    core = node.core
    return {
        i: core.journal.term_at(i) for i in range(core.journal.base_index, core.node.commit + 1)
    }


def check_memory(node: GroupNode) -> None:
    core = node.core
    assert sum(core.outbox.bytes) <= 2 * SETTINGS.outbox_bytes
    assert len(core.applicants) <= 64
    assert len(core.join.seen) <= 64
    assert len(core.members.heard_disks) <= 64
    assert len(core.join.announced) <= MEMBERS_MAX
    assert len(core.jobs) <= 3
    assert len(core.replication.progress) <= MEMBERS_MAX
    if core.receiver.incoming is not None:
        held = sum(map(len, core.receiver.incoming.early.values()))
        held += sum(len(data) for _, _, data in core.receiver.incoming.pieces)
        assert held <= 4 * SETTINGS.chunk_window * SETTINGS.chunk_bytes


def play(seed: int, rounds: int = 25) -> tuple[int, list[str]]:
    """Return how many frames were refused, and why nodes stopped themselves."""
    hostile, stops = Hostile(seed), list[str]()
    group = hostile.group
    for _ in range(rounds):
        for target in hostile.targets:
            before, commit = committed(target), target.core.node.commit
            try:
                for _ in range(hostile.dice.choice((1, 5, 20))):
                    hostile.attack(target)
                    target.turn(group.now)
                group.run(hostile.dice.choice((0.01, 0.05)))
            except Fatal as error:
                stops.append(str(error))
                if not restarted(hostile):
                    return hostile.refused, stops
                commit = 0
            after = committed(target)
            assert target.core.node.commit >= commit
            assert target.core.node.commit <= target.core.journal.last_index
            assert all(after[i] == before[i] for i in after.keys() & before.keys())
            check_memory(target)
    return hostile.refused, stops


def restarted(hostile: Hostile) -> bool:
    """Start everyone again; what a hostile leader had them store may forbid it."""
    group = hostile.group
    for node in group.nodes.values():
        node.applied.clear()
        try:
            node.start(group.now)
        except Fatal:
            return False
    for node in group.nodes.values():
        for other in group.others(node):
            node.core.link_up(other.name, group.now)
    return True


@pytest.mark.parametrize("first", some(range(0, 48, 8), 2))
def test_hostile_contents_end_a_node_by_a_stop_or_not_at_all(first: int) -> None:
    results = {seed: play(seed) for seed in range(first, first + 8)}

    assert sum(refused for refused, _ in results.values()) > 100
