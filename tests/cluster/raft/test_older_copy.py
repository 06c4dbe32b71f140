"""A node that begins with an older copy of its folder: it has forgotten what it acknowledged, and
perhaps a vote. Whoever is there and knows better says so before it can do harm."""

from __future__ import annotations

import pytest

from raftsched.chaos.sim.disk import SimDisk
from raftsched.chaos.sim.group import Group, GroupNode
from raftsched.cluster.raft.faults import JournalDamaged
from raftsched.cluster.raft.message import Append, Introduce, Message, PreVote, Vote
from raftsched.cluster.raft.segment import SUFFIX


def write(group: Group, node: GroupNode, count: int, what: str) -> None:
    """Have so many entries acknowledged."""
    answers = [group.write(node, f"{what}-{number}") for number in range(count)]
    group.run(0.3)
    assert all(answer and answer[0] for answer in answers)


def stop(group: Group, node: GroupNode) -> None:
    """The process ends: its links break, and nothing reaches it."""
    for other in group.others(node):
        other.core.link_down(node.name, group.now)
        node.core.link_down(other.name, group.now)


def start(group: Group, node: GroupNode, *, meets: list[GroupNode] | None = None) -> None:
    """Begin again with what is on the disk, linked to those that run."""
    node.start(group.now)
    for other in group.others(node) if meets is None else meets:
        node.core.link_up(other.name, group.now)
        other.core.link_up(node.name, group.now)


def pair(group: Group, *, copied: str) -> tuple[GroupNode, GroupNode, GroupNode, int]:
    """One node is away, the two others acknowledge, and one of these gets back the copy of its
    folder from before. Returns the node with the copy, the witness, the one that was away, and the
    last entry that was acknowledged."""
    leader = group.lead()
    write(group, leader, 3, "before")
    follower, away = group.others(leader)
    older, witness = (leader, follower) if copied == "leader" else (follower, leader)
    copy = older.disk.image()
    stop(group, away)
    group.passes = lambda a, b, m: away.name not in (a, b)
    write(group, leader, 5, "pair")
    last = leader.core.node.commit
    stop(group, older)
    older.disk = copy
    older.applied.clear()
    return older, witness, away, last


def without_elections_of(node: GroupNode) -> object:
    """The node is too slow to stand: whoever else can be elected is."""
    return lambda a, b, m: a != node.name or not isinstance(m, PreVote | Vote)


@pytest.mark.parametrize("copied", ["leader", "follower"])
def test_an_older_copy_is_told_so_and_nothing_is_lost(copied: str) -> None:
    """Seen before: the copy and the node that was away led without what the pair acknowledged."""
    group = Group(3)
    older, witness, away, last = pair(group, copied=copied)
    group.passes = without_elections_of(witness)  # type: ignore[assignment]

    start(group, away, meets=[witness])
    start(group, older)
    with pytest.raises(JournalDamaged, match="older copy"):
        group.run(3.0)

    assert not older.core.in_office
    assert not away.core.in_office
    # Its next start sets the disk aside, and the others lead with all that was acknowledged.
    stop(group, older)
    group.passes = lambda a, b, m: True
    older.disk = SimDisk()
    start(group, older)
    leader = group.lead()
    group.run(2.0)
    assert leader is witness
    assert all(node.core.node.commit > last for node in group.nodes.values())
    assert len({node.machine.digest for node in group.nodes.values()}) == 1


def test_what_is_committed_is_known_after_all_were_restarted() -> None:
    """Nobody remembers what the copy had. But the witness has applied it, so it is committed, and
    whoever ends before it gets no vote."""
    group = Group(3)
    older, witness, away, last = pair(group, copied="follower")
    # The state on its disk: the machine in here has no other.
    witness.core.make_snapshot()
    group.turns(3)
    stop(group, witness)
    group.passes = without_elections_of(witness)  # type: ignore[assignment]
    for node in (witness, away, older):
        start(group, node)
    assert witness.core.node.commit == last
    group.run(3.0)
    assert not any(node.core.in_office for node in group.nodes.values())
    assert [node.core.status().missing for node in (older, away)] == [last, last]

    group.passes = lambda a, b, m: True
    assert group.lead() is witness
    group.run(1.0)
    assert all(node.core.node.commit > last for node in group.nodes.values())


def test_a_forgotten_vote_is_found_out() -> None:
    """Nothing was written since the copy was made; but the node has voted."""
    group = Group(3)
    leader = group.lead()
    group.run(0.3)
    older, other = group.others(leader)
    copy = older.disk.image()
    leader.core.transfer(other.name, group.now, lambda _: None)
    group.run(0.5)
    assert other.core.in_office
    stop(group, older)
    older.disk = copy

    # Neither the log nor a heartbeat tells it.
    group.passes = lambda a, b, m: isinstance(m, Introduce)
    start(group, older)
    with pytest.raises(JournalDamaged, match="in term"):
        group.run(0.2)


def test_a_start_gives_no_vote_before_the_others_could_say_what_they_know() -> None:
    group = Group(3)
    leader = group.lead()
    write(group, leader, 3, "before")
    node, other = group.others(leader)
    for each in (leader, node):
        stop(group, each)
    group.passes = lambda a, b, m: leader.name not in (a, b)
    start(group, node, meets=[other])
    began = group.now
    ask = Vote(other.core.term + 1, other.core.journal.last_index, other.core.journal.last_term,
               False)  # fmt: skip
    node.core.terms.asked_for_vote(other.name, ask, group.now)
    assert node.core.node.vote is None

    # Whoever is gone keeps nobody waiting for long.
    while not other.core.in_office and not node.core.in_office:
        group.run(0.01)
    assert group.now - began < 1.5


def test_all_that_meet_wait_for_nothing() -> None:
    group = Group(3)
    leader = group.lead()
    write(group, leader, 3, "before")
    node, other = group.others(leader)
    stop(group, node)
    start(group, node)
    group.turns(3)
    assert node.core.election.has_met(group.now)
    ask = Vote(other.core.term + 1, other.core.journal.last_index, other.core.journal.last_term,
               True)  # fmt: skip
    node.core.terms.asked_for_vote(other.name, ask, group.now)
    assert node.core.node.vote == other.name


def test_zeros_in_the_place_of_what_was_acknowledged_are_told_from_a_torn_write() -> None:
    """By itself a start takes them for the end of the journal: nothing behind says otherwise."""
    group = Group(3)
    leader = group.lead()
    write(group, leader, 3, "before")
    node = group.others(leader)[0]
    stop(group, node)
    path = max(name for name in node.disk.files if name.endswith(SUFFIX))
    content = node.disk.files[path].seen
    half = len(content.rstrip(b"\0")) - 300
    node.disk.write(path, half, bytes(len(content) - half))

    start(group, node)
    with pytest.raises(JournalDamaged, match="older copy"):
        group.run(0.5)


def test_what_was_never_committed_may_go() -> None:
    """A former leader gives up entries of its own that nobody has: no older copy."""
    group = Group(3)
    leader = group.lead()
    write(group, leader, 3, "before")
    group.passes = lambda a, b, m: not (a == leader.name and isinstance(m, Append))
    for number in range(5):
        group.write(leader, f"alone-{number}")
    group.run(0.3)
    longest = leader.core.journal.last_index
    stop(group, leader)
    group.passes = lambda a, b, m: leader.name not in (a, b)
    group.run(2.0)
    group.passes = lambda a, b, m: True
    start(group, leader)
    group.run(2.0)
    assert leader.core.journal.last_index < longest
    stop(group, leader)
    start(group, leader)
    group.run(1.0)
    assert len({node.core.node.commit for node in group.nodes.values()}) == 1


def test_a_word_that_is_none_changes_nothing() -> None:
    group = Group(3)
    leader = group.lead()
    node = group.others(leader)[0]
    text = leader.core.join.introduction(node.name).text
    seen = node.core.witness.committed
    for old, new in ((b'"committed": ', b'"committed": -'), (b'"held": [', b'"held": [-'),
                     (b'"held": [', b'"held": ["x", ')):  # fmt: skip
        said: Message = Introduce(leader.core.term, text.replace(old, new))
        node.core.receive(leader.name, leader.core.incarnation, said, group.now)
    assert node.core.witness.committed == seen
