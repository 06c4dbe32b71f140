"""A node whose state and snapshot are damaged, and whose journal is whole: it forgets no vote and
no entry, does not lead, and takes another state from the leader by itself."""

from __future__ import annotations

import pytest

from raftsched.chaos.sim.group import Group, GroupNode
from raftsched.cluster.raft.faults import CallRefused, Damaged
from raftsched.cluster.raft.manifest import folder_of
from raftsched.cluster.raft.message import Message, SnapshotOffer
from raftsched.cluster.raft.port import RaftSettings

SETTINGS = RaftSettings(tail_entries=0, tail_bytes=0, chunk_bytes=2_000)


def write(group: Group, node: GroupNode, count: int) -> None:
    """Fill more than a segment, so that a snapshot lets the journal be cut."""
    for number in range(count):
        body = b'{"id":"%d-%d","key":"k","add":"%s"}' % (
            node.core.journal.last_index, number, b"x" * 2_000,
        )  # fmt: skip
        node.core.propose(body, lambda _: None)
    group.run(0.3)


def cut(count: int = 3) -> tuple[Group, GroupNode]:
    """A group whose journals begin behind their snapshots; and its leader."""
    group = Group(count, SETTINGS)
    leader = group.lead()
    write(group, leader, 20)
    for node in group.nodes.values():
        node.core.make_snapshot()
    group.run(0.2)
    write(group, leader, 3)
    for node in group.nodes.values():
        assert node.core.journal.base_index > 0
        assert node.core.journal.last_index > node.core.snapshots.last_index
    return group, leader


def damage(node: GroupNode) -> None:
    for index in node.core.snapshots.by_index:
        node.disk.flip(f"{folder_of(index)}/part-1", 3, 1)


def restart(group: Group, node: GroupNode) -> None:
    """Its links break and come again, as with a process that ends."""
    for other in group.others(node):
        other.core.link_down(node.name, group.now)
    node.start(group.now)
    for other in group.others(node):
        node.core.link_up(other.name, group.now)
        other.core.link_up(node.name, group.now)


def test_it_comes_back_with_its_disk_its_term_and_its_entries() -> None:
    group, leader = cut()
    node = group.others(leader)[0]
    journal = node.core.journal
    before = (node.core.incarnation, journal.term, journal.last_index)
    damage(node)

    restart(group, node)
    found = node.core.journal
    assert node.core.bereft
    assert (node.core.incarnation, found.term, found.last_index) == before
    assert node.core.status().bereft
    write(group, leader, 2)
    group.run(3.0)

    assert not node.core.bereft
    assert node.core.incarnation == before[0]
    assert node.machine.digest == leader.machine.digest
    assert node.core.last_applied == leader.core.last_applied


def test_what_it_acknowledges_meanwhile_counts() -> None:
    """Its journal is what is asked for, and that is whole."""
    group, leader = cut()
    node, gone = group.others(leader)
    damage(node)
    restart(group, node)

    def passes(a: str, b: str, message: Message) -> bool:
        return gone.name not in (a, b) and not isinstance(message, SnapshotOffer)

    group.passes = passes
    answers = group.write(leader, "while it has no state")
    group.run(0.5)

    assert answers == [leader.core.journal.last_index]
    assert node.core.bereft
    assert node.machine.applied() == 0


def test_it_votes_and_does_not_stand() -> None:
    group, leader = cut()
    node, other = group.others(leader)
    damage(node)
    group.passes = lambda a, b, m: leader.name not in (a, b)
    restart(group, node)
    for each in (node, other):
        each.core.link_down(leader.name, group.now)
    group.run(3.0)

    assert other.core.in_office
    assert not node.core.bereft
    assert node.machine.digest == other.machine.digest


def test_nothing_is_made_of_a_state_that_is_not_there() -> None:
    group, leader = cut()
    node = group.others(leader)[0]
    damage(node)
    group.passes = lambda a, b, m: node.name not in (a, b)
    restart(group, node)
    node.core.make_snapshot()
    group.run(2.0)

    assert node.core.snapshots.latest is None
    assert node.machine.applied() == 0
    assert node.gained == []
    with pytest.raises(CallRefused):
        node.core.read(lambda _: None)


def test_a_leader_whose_snapshot_is_older_makes_another() -> None:
    group, leader = cut()
    node = group.others(leader)[0]
    write(group, leader, 20)
    node.core.make_snapshot()
    group.run(0.2)
    assert node.core.journal.base_index > leader.core.snapshots.last_index
    damage(node)

    restart(group, node)
    assert node.core.bereft
    group.run(3.0)

    assert not node.core.bereft
    assert node.machine.digest == leader.machine.digest


def test_a_second_start_without_a_state_still_waits_for_one() -> None:
    group, leader = cut()
    node = group.others(leader)[0]
    damage(node)
    group.passes = lambda a, b, m: node.name not in (a, b)
    restart(group, node)
    group.run(0.5)
    restart(group, node)
    assert node.core.bereft

    group.passes = lambda a, b, m: True
    group.run(3.0)
    assert node.machine.digest == leader.machine.digest


def test_who_is_alone_says_that_a_backup_is_needed() -> None:
    _, node = cut(1)
    damage(node)
    with pytest.raises(Damaged, match="raftsched node restore"):
        node.start(0.0)
