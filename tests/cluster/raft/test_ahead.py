"""A leader sends entries while its own disk still writes them, and counts on none before."""

from __future__ import annotations

import random

import pytest

from raftsched.chaos.sim.group import LIMITS, Group, GroupNode
from raftsched.cluster.raft.faults import Broken
from raftsched.cluster.raft.journal import Batch, Journal
from raftsched.cluster.raft.message import Append, Heartbeat, Vote
from raftsched.cluster.raft.port import RaftSettings

from .recording import RecordingDisk, images


def writes(group: Group, leader: GroupNode) -> tuple[Batch, list[int | None]]:
    """Let the leader write something; its disk does not come to it, the others' do."""
    answers = begin_writes(group, leader)
    leader.core.step(group.now)
    batch = leader.core.journal.take()
    assert batch is not None
    for _ in range(3):
        pass_on(group, leader)
        for other in group.others(leader):
            for to, message in other.turn(group.now):
                if to == leader.name and group.passes(other.name, to, message):
                    group.hand_over(other, to, message)
        leader.core.step(group.now)
        leader.core.run_answers()
    return batch, answers


def begin_writes(group: Group, leader: GroupNode) -> list[int | None]:
    answers: list[int | None] = []
    for number in range(3):
        body = b'{"id":"%d","key":"k","add":"x"}' % number
        leader.core.propose(body, answers.append)
    return answers


def pass_on(group: Group, node: GroupNode) -> None:
    for to, message in node.core.outbox.release(node.core.journal.synced):
        if group.passes(node.name, to, message):
            group.hand_over(node, to, message)


def rested(group: Group) -> GroupNode:
    leader = group.lead()
    group.run(0.3)
    return leader


def test_entries_leave_before_they_are_on_the_disk_of_the_leader(three: Group) -> None:
    leader = rested(three)
    last = leader.core.journal.last_index

    writes(three, leader)

    assert leader.core.journal.synced_index == last
    assert {n.core.journal.synced_index for n in three.others(leader)} == {last + 3}


def test_nothing_is_committed_before_it_is_on_the_disk_of_the_leader(three: Group) -> None:
    """Not even with both followers, so that nobody applies what this node may lose."""
    leader = rested(three)
    last = leader.core.journal.last_index

    batch, answers = writes(three, leader)

    assert {p.match for p in leader.core.replication.progress.values()} == {last + 3}
    assert leader.core.node.commit == last
    assert answers == []
    batch.run()
    leader.core.journal.end_round(batch)
    leader.core.step(three.now)
    leader.core.run_answers()
    assert leader.core.node.commit == leader.core.last_applied == last + 3
    assert answers == [last + 1, last + 2, last + 3]


def test_the_disk_of_the_leader_alone_is_no_majority(three: Group) -> None:
    leader = rested(three)
    last = leader.core.journal.last_index
    three.passes = lambda a, b, m: not isinstance(m, Append)

    batch, answers = writes(three, leader)
    batch.run()
    leader.core.journal.end_round(batch)
    leader.core.step(three.now)

    assert leader.core.node.commit == last
    assert answers == []


def test_a_commit_beyond_the_disk_of_the_leader_stops_it(three: Group) -> None:
    leader = rested(three)
    writes(three, leader)

    with pytest.raises(Broken, match="before it has it on its disk"):
        leader.core.node.move_commit(leader.core.journal.last_index)


def lost_power(group: Group, leader: GroupNode) -> None:
    """Let the leader start again from what its disk has."""
    leader.disk.restart_from_kept()
    for other in group.others(leader):
        other.core.link_down(leader.name, group.now)
    leader.start(group.now)


def reunite(group: Group) -> None:
    group.passes = lambda a, b, m: True
    for node in group.nodes.values():
        for other in group.others(node):
            node.core.link_up(other.name, group.now)
    group.run(2.0)


def test_what_the_leader_lost_with_the_power_lives_on_where_it_is(three: Group) -> None:
    leader = rested(three)
    term, last = leader.core.term, leader.core.journal.last_index
    writes(three, leader)

    lost_power(three, leader)

    assert (leader.core.term, leader.core.node.vote) == (term, leader.name)
    assert leader.core.journal.last_index == last
    reunite(three)
    assert {n.core.last_applied for n in three.nodes.values()} == {last + 4}
    assert len({n.machine.digest for n in three.nodes.values()}) == 1
    assert leader.core.journal.term_at(last + 3) == term


def test_what_the_leader_lost_with_the_power_is_replaced_where_nobody_committed_it(
    three: Group,
) -> None:
    """One follower has entries of the leader's term; the leader comes back without them, and
    leads again, in a later term, with others at their place."""
    leader = rested(three)
    term, last = leader.core.term, leader.core.journal.last_index
    ahead, behind = three.others(leader)
    three.passes = lambda a, b, m: behind.name not in (a, b)
    writes(three, leader)
    assert ahead.core.journal.last_index == last + 3
    lost_power(three, leader)

    three.passes = lambda a, b, m: ahead.name not in (a, b)
    for node in (leader, behind):
        node.core.link_down(ahead.name, three.now)
        node.core.link_up((behind if node is leader else leader).name, three.now)
    three.run(1.5)
    [new] = [n for n in (leader, behind) if n.core.in_office]
    three.write(new, "other")
    three.run(0.2)
    assert new.core.term > term
    assert new.core.journal.term_at(last + 1) == new.core.term
    reunite(three)

    assert len({n.machine.digest for n in three.nodes.values()}) == 1
    assert ahead.core.journal.term_at(last + 1) == leader.core.journal.term_at(last + 1) > term


def test_entries_wait_for_the_vote(three: Group) -> None:
    """A term that may be forgotten could be led twice, with different entries."""
    node = three.nodes["n1"]
    three.lead()
    three.run(1.0)
    three.passes = lambda a, b, m: False
    three.run(1.0)
    core = node.core
    core.outbox.release(core.journal.synced)
    core.election.stand(three.now, transfer=False)
    core.election.take_office(three.now)
    core.step(three.now)

    assert core.journal.synced < core.journal.spoken_for
    assert core.outbox.release(core.journal.synced) == []
    batch = core.journal.take()
    assert batch is not None
    batch.run()
    core.journal.end_round(batch)
    said = [type(m) for _, m in core.outbox.release(core.journal.synced)]
    assert said.count(Append) == said.count(Vote) == 2


def test_a_leader_whose_entries_came_after_its_vote_stops(three: Group) -> None:
    leader = rested(three)
    follower = three.others(leader)[0]
    follower.core.election.stand(three.now, transfer=False)
    follower.core.journal.append(leader.core.journal.entry(1)._replace(
        index=follower.core.journal.last_index + 1, term=follower.core.term - 1,
    ))  # fmt: skip

    with pytest.raises(Broken, match="entries that came after its vote"):
        follower.core.election.take_office(three.now)


Said = list[tuple[int, Vote | Append | Heartbeat]]


def led(disk: RecordingDisk) -> Said:
    """Let a node lead in two terms on a disk that is slow now and then; return what it said, and
    after how many steps of its disk."""
    group, said, dice = Group(3), Said(), random.Random(3)
    node = group.nodes["n1"] = GroupNode("n1", group.names, RaftSettings(), disk)
    core = node.core
    for peer in ("n2", "n3"):
        core.link_up(peer, 0.0)
    group.lead()
    for _ in range(2):
        core.election.stand(group.now, transfer=True)
        for step in range(70):
            group.now += 0.01
            if core.node.leads and step > 5:
                node.core.propose(b'{"id":"%d","key":"k","add":"x"}' % step, lambda _: None)
            core.step(group.now)
            for to, message in core.outbox.release(core.journal.synced):
                if isinstance(message, Vote | Append | Heartbeat):
                    said.append((len(disk.steps), message))
                group.hand_over(node, to, message)
            for other in group.others(node):
                for to, message in other.turn(group.now):
                    group.hand_over(other, to, message)
            if dice.random() < 0.4 and (batch := core.journal.take()) is not None:
                batch.run()
                core.journal.end_round(batch)
    assert core.node.leads
    assert core.node.commit > 50
    return said


def test_wherever_the_power_goes_a_leader_has_its_term_and_what_it_called_committed() -> None:
    disk = RecordingDisk()
    said = led(disk)
    dice, tried, behind = random.Random(1), 0, 0

    for end in range(said[0][0], len(disk.steps) + 1):
        before = [m for at, m in said if at <= end]
        term = max(m.term for m in before)
        commit = max((m.commit for m in before if isinstance(m, Append | Heartbeat)), default=0)
        sent = [e for m in before if isinstance(m, Append) for e in m.entries]
        for image in images(disk.steps[:end], dice):
            tried += 1
            journal = Journal(image, LIMITS, "00112233445566aa")
            assert journal.term >= term, end
            assert journal.term > term or journal.vote == "n1", end
            assert journal.last_index >= commit, end
            behind += bool(sent) and max(sent).index > journal.last_index
            for entry in sent:
                if journal.base_index < entry.index <= journal.last_index:
                    assert journal.entry(entry.index) == entry, end

    assert tried > 500
    assert behind > 100  # Followers had more than the disk of the leader.
