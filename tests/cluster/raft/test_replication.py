"""What a leader sends to whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftsched.chaos.sim.group import Group, GroupNode
from raftsched.cluster.raft.message import Append, Message, SnapshotOffer
from raftsched.cluster.raft.port import RaftSettings

SMALL = replace(RaftSettings(), compact_bytes=40 << 10, tail_entries=5, append_bytes=1000)


def filled(group: Group, entries: int) -> GroupNode:
    leader = group.lead()
    for number in range(entries):
        group.write(leader, f"w{number}" + "x" * 100)
        group.turns()
    group.run(0.3)
    return leader


def replaced(group: Group, leader: GroupNode) -> GroupNode:
    """Let the leader's process die and another one lead, which never heard of it in its term."""
    group.passes = lambda a, b, m: leader.name not in (a, b)
    for other in group.others(leader):
        other.core.link_down(leader.name, group.now)
    leader.start(group.now)
    group.run(0.1)
    [successor] = [n for n in group.others(leader) if n.core.in_office]
    return successor


def back(group: Group, node: GroupNode) -> list[Message]:
    """Connect a node again; return what will have been said to it."""
    heard: list[Message] = []

    def passes(a: str, b: str, message: Message) -> bool:
        if b == node.name:
            heard.append(message)
        return True

    group.passes = passes
    for other in group.others(node):
        other.core.link_up(node.name, group.now)
        node.core.link_up(other.name, group.now)
    return heard


def entries_in(heard: list[Message]) -> list[int]:
    return [e.index for m in heard if isinstance(m, Append) for e in m.entries]


def test_a_leader_that_comes_back_is_sent_only_what_it_lacks(three: Group) -> None:
    """Found by the simulator (seed 6249): it was sent the whole journal."""
    old = filled(three, 50)
    last = old.core.journal.last_index
    new = replaced(three, old)
    three.write(new, "more")
    three.run(0.1)

    heard = back(three, old)
    three.run(0.5)

    assert old.core.last_applied == new.core.last_applied
    assert min(entries_in(heard)) == last + 1


def test_who_has_the_log_gets_no_snapshot() -> None:
    group = Group(3, SMALL)
    old = filled(group, 400)
    new = replaced(group, old)

    heard = back(group, old)
    group.run(0.5)

    assert new.core.journal.base_index > 0
    assert old.core.last_applied == new.core.last_applied
    assert [m for m in heard if isinstance(m, SnapshotOffer)] == []


def test_after_a_broken_line_what_was_under_way_is_sent_again(three: Group) -> None:
    leader = filled(three, 5)
    follower = three.others(leader)[0]
    match = leader.core.replication.progress[follower.name].match
    three.passes = lambda a, b, m: b != follower.name or not isinstance(m, Append)
    three.write(leader, "lost")
    three.turns(2)
    assert leader.core.replication.progress[follower.name].next == match + 2

    heard = back(three, follower)
    three.turns(2)

    assert entries_in(heard) == [match + 1]


@pytest.mark.parametrize(("hurry_bytes", "told"), [(10, True), (64 << 10, False)])
def test_a_commit_of_much_is_told_at_once(hurry_bytes: int, told: bool) -> None:
    group = Group(3, replace(RaftSettings(), hurry_bytes=hurry_bytes))
    leader = group.lead()
    group.run(0.3)

    answers = group.write(leader)
    # No time goes by, so no heartbeat is due.
    group.turns(20)

    last = leader.core.journal.last_index
    assert answers == [last]
    assert [node.core.journal.last_index for node in group.others(leader)] == [last, last]
    assert any(node.core.last_applied == last for node in group.others(leader)) == told
    group.run(0.3)
    assert all(node.core.last_applied == last for node in group.others(leader))


def test_a_slow_link_is_not_filled_with_the_same_entries(three: Group) -> None:
    leader = three.lead()
    three.run(0.5)
    slow = three.others(leader)[0]
    times = []

    def passes(a: str, b: str, message: Message) -> bool:
        if b == slow.name and isinstance(message, Append) and message.entries:
            times.append(three.now)
            return False  # It is on its way.
        return True

    three.passes = passes
    three.write(leader, "w")
    three.run(10.0)

    assert 5 <= len(times) <= 11
    three.passes = lambda a, b, m: True
    three.run(2.5)
    assert leader.core.replication.progress[slow.name].match == leader.core.journal.last_index
    assert leader.core.replication.progress[slow.name].backoff == 0.0


def test_large_entries_are_applied_a_few_at_a_time() -> None:
    group = Group(3, replace(RaftSettings(), apply_bytes=1000))
    leader = group.lead()
    steps: list[int] = []
    follower = group.others(leader)[0]
    apply_committed = follower.core.applying.apply_committed

    def counted() -> bool:
        before = follower.core.last_applied
        more = apply_committed()
        steps.append(follower.core.last_applied - before)
        return more

    follower.core.applying.apply_committed = counted  # type: ignore[method-assign]
    for number in range(40):
        group.write(leader, f"w{number}" + "x" * 400)
    group.run(0.5)

    assert follower.core.last_applied == leader.core.last_applied >= 40
    # Some 450 bytes each: the third is over the limit.
    assert max(steps) == 3
