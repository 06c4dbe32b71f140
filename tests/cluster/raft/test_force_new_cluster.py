"""One disk becomes a cluster of its own."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from raftsched.chaos.sim.disk import SimDisk
from raftsched.chaos.sim.group import LIMITS, Group, GroupNode
from raftsched.chaos.sim.register import Register
from raftsched.cluster.raft.faults import Broken
from raftsched.cluster.raft.force_new_cluster import NOBODY, force_new_cluster
from raftsched.cluster.raft.journal import Journal
from raftsched.cluster.raft.membership import Configuration
from raftsched.cluster.raft.snapshot import Snapshots

from .recording import RecordingDisk, images
from .test_membership import restart

NEW = 1 << 47


def grown(group: Group) -> tuple[GroupNode, GroupNode, GroupNode]:
    """A leader and its followers, with some entries that all have applied."""
    leader = group.lead()
    for number in range(5):
        group.write(leader, f"k{number}")
    group.run(0.3)
    first, second = group.others(leader)
    return leader, first, second


def recover(node: GroupNode, disk: SimDisk, *, ahead: int = 1) -> int:
    """Make a cluster of what a node's disk holds; the index it begins at."""
    journal, snapshots = Journal(disk, LIMITS, "00112233445566bb"), Snapshots(disk)
    machine = Register(disk, lambda *_: None)
    machine.values, machine.requests = dict(node.machine.values), dict(node.machine.requests)
    machine.index = max(journal.last_index, snapshots.last_index) + ahead
    machine.digest = "new"
    force_new_cluster(
        journal, snapshots, node.name, node.contacts, origin="new", incarnation=NEW,
        term=journal.term + 1, checkpoint=machine.checkpoint(),
    )  # fmt: skip
    return machine.index


def test_a_survivor_leads_alone_and_the_others_come_with_empty_disks(three: Group) -> None:
    gone, also_gone, kept = grown(three)
    values = dict(kept.machine.values)
    three.passes = lambda a, b, m: False
    at = recover(kept, kept.disk)

    restart(three, kept)
    three.run(2.0)
    alone = (kept.core.in_office, kept.core.config.voters, dict(kept.machine.values))
    assert kept.core.config.members[gone.name].incarnation == NOBODY
    three.write(kept, "after")
    three.run(0.2)
    three.passes = lambda a, b, m: True
    for node in (gone, also_gone):
        restart(three, node, empty=True)
    three.run(3.0)

    assert alone == (True, [kept.name], values)
    assert {tuple(n.core.config.voters) for n in three.nodes.values()} == {("n1", "n2", "n3")}
    assert {n.core.config.origin for n in three.nodes.values()} == {"new"}
    assert {n.machine.digest for n in three.nodes.values()} == {kept.machine.digest}
    assert {n.core.snapshots.last_index >= at for n in three.nodes.values()} == {True}
    assert "after" in kept.machine.requests


def test_what_is_left_of_the_former_cluster_has_no_say_in_the_new_one(three: Group) -> None:
    """Even without the links, which let no other history in: two of three old disks live on."""
    leader, other, kept = grown(three)
    recover(kept, kept.disk)
    restart(three, kept)
    three.run(2.0)

    three.write(kept, "new")
    three.write(leader, "old")
    three.run(1.0)
    for node in (leader, other):
        restart(three, node)
        three.run(2.0)

    assert kept.core.in_office
    assert kept.core.config.voters == [kept.name]
    assert ("new" in kept.machine.requests, "old" in kept.machine.requests) == (True, False)
    assert [n for n in (leader, other) if n.core.in_office]
    assert leader.machine.digest == other.machine.digest
    assert ("new" in other.machine.requests, "old" in other.machine.requests) == (False, True)


@pytest.mark.slow
def test_wherever_the_power_goes_there_is_the_old_history_or_the_new_one() -> None:
    group = Group(3)
    disk = RecordingDisk()
    kept = group.nodes["n3"] = GroupNode(
        "n3", group.names, replace(group.nodes["n3"].settings), disk
    )
    for name in ("n1", "n2"):
        kept.core.link_up(name, 0.0)
    grown(group)
    before, index = len(disk.steps), kept.core.last_applied
    values, digest = dict(kept.machine.values), kept.machine.digest
    voted = (kept.core.journal.term, kept.core.journal.vote)
    at = recover(kept, disk)
    steps, seen = disk.steps, set[str]()

    for end in range(before, len(steps) + 1):
        for image in images(steps[:end], random.Random(end)):
            node = GroupNode("n3", group.names, kept.settings, image)
            core = node.core
            if core.config.origin:
                seen.add("new")
                assert (core.last_applied, node.machine.digest) == (at, "new")
                assert node.machine.values == values
                assert core.config.voters == ["n3"]
                assert core.members.is_voter
                continue
            assert core.journal.last_index >= index
            assert core.config.voters == ["n1", "n2", "n3"]
            assert (core.term, core.journal.vote) >= voted or core.term > voted[0]
            seen.add("old" if core.members.is_voter else "in between")
            # What was applied is in memory only, so it comes again.
            assert node.machine.digest in ("", digest)
            recover(kept, image)
            assert GroupNode("n3", group.names, kept.settings, image).core.members.is_voter

    assert seen == {"old", "in between", "new"}


def test_a_history_that_does_not_go_on_is_none(three: Group) -> None:
    _, _, kept = grown(three)

    with pytest.raises(Broken, match="the disk holds entries to"):
        recover(kept, kept.disk, ahead=0)


def test_the_origin_stays_whatever_becomes_of_members() -> None:
    config = Configuration({}, "new").with_learner("n1", 7, "n1:1").with_learner("n2", 8, "n2:1")
    config = config.with_voter("n1").moved("n2", "n2:2", "").without("n2")

    assert Configuration.decode(config.encode()) == config
    assert config.origin == "new"
    for wrong in (b'{"":7}', b'{"":"' + b"x" * 33 + b'"}', b"[]"):
        with pytest.raises(ValueError, match=r"origin|names no members"):
            Configuration.decode(wrong)
