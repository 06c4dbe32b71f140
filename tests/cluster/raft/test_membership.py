from __future__ import annotations

import json
from dataclasses import replace

import pytest

from raftsched.chaos.sim.disk import SimDisk
from raftsched.chaos.sim.group import LIMITS, Group, GroupNode
from raftsched.cluster.raft.faults import CallRefused, Replaced
from raftsched.cluster.raft.journal import COMMAND, CONFIG, NOOP, Entry
from raftsched.cluster.raft.membership import Configuration, Member
from raftsched.cluster.raft.message import Append, Introduce, Message, Vote, VoteReply
from raftsched.cluster.raft.port import RaftSettings

SMALL = replace(RaftSettings(), compact_bytes=30 << 10, tail_entries=5, chunk_bytes=100)


def connect(group: Group, name: str) -> None:
    for other in group.names:
        if other != name:
            group.nodes[other].core.link_up(name, group.now)
            group.nodes[name].core.link_up(other, group.now)


def restart(group: Group, node: GroupNode, *, empty: bool = False) -> None:
    for other in group.others(node):
        other.core.link_down(node.name, group.now)
    if empty:
        node.disk = SimDisk()
        node.applied.clear()
    node.start(group.now)
    connect(group, node.name)


def add(group: Group, name: str) -> GroupNode:
    node = GroupNode(name, [*group.names, name], RaftSettings())
    group.nodes[name] = node
    group.names.append(name)
    connect(group, name)
    return node


def test_nothing_begins_before_all_nodes_have_met() -> None:
    """A first start needs every node once; a majority could be one that forgot."""
    group = Group(3)
    group.passes = lambda a, b, m: "n3" not in (a, b)

    group.run(3.0)
    formed = [n.core.members.formed for n in group.nodes.values()]
    group.passes = lambda a, b, m: True
    group.lead()

    assert formed == [False, False, False]


def test_all_nodes_begin_with_the_same_configuration(three: Group) -> None:
    three.lead()

    assert len({n.core.journal.entry(1).data for n in three.nodes.values()}) == 1


def test_two_lists_of_members_never_make_a_cluster() -> None:
    group = Group(3)
    group.nodes["n3"].core.join.contacts = {"n3": "n3:1", "n1": "n1:1", "n2": "elsewhere:1"}

    group.run(3.0)

    assert not any(n.core.members.formed for n in group.nodes.values())


def test_a_lost_disk_comes_back_as_another_and_gets_its_vote_again(three: Group) -> None:
    leader = three.lead()
    lost = three.others(leader)[0]
    three.write(leader, "before")
    three.run(0.2)
    former = lost.core.incarnation

    restart(three, lost, empty=True)
    three.turns(2)
    at_once = lost.core.members.is_voter
    three.run(2.0)

    assert not at_once
    assert lost.core.incarnation != former
    assert lost.core.members.is_voter
    assert lost.core.last_applied == leader.core.last_applied


def test_an_empty_disk_grants_nothing_that_counts(three: Group) -> None:
    """Its former disk may have voted in this very term."""
    leader = three.lead()
    lost, other = three.others(leader)
    three.passes = lambda a, b, m: False
    restart(three, lost, empty=True)
    other.core.terms.step_down(other.core.term, three.now)
    other.core.node.leader = None
    other.core.election.stand(three.now, transfer=False)

    reply = VoteReply(other.core.term, True)
    other.core.receive(lost.name, lost.core.incarnation, reply, three.now)

    assert other.core.election.voters == {other.name}


def test_an_added_node_learns_first_and_votes_when_it_has_caught_up(three: Group) -> None:
    leader = three.lead()
    added = add(three, "n4")
    three.run(0.5)
    answers: list[int | None] = []

    leader.core.add_member("n4", three.now, answers.append)
    learner = not leader.core.config.members["n4"].voter
    three.run(1.0)

    assert learner
    assert answers != [None]
    assert leader.core.config.voters == ["n1", "n2", "n3", "n4"]
    assert added.core.members.is_voter


def test_members_change_one_at_a_time(three: Group) -> None:
    """A12: PySyncObj tests a variable that nothing sets."""
    leader = three.lead()
    three.passes = lambda a, b, m: False
    leader.core.remove_member("n1" if leader.name != "n1" else "n2", three.now, lambda _: None)

    with pytest.raises(CallRefused, match="not committed yet"):
        leader.core.remove_member(leader.name, three.now, lambda _: None)


def test_a_removed_node_is_told_and_stops(three: Group) -> None:
    leader = three.lead()
    gone = three.others(leader)[0]

    leader.core.remove_member(gone.name, three.now, lambda _: None)
    three.run(0.5)

    assert gone.gone
    assert gone.core.status().removed
    assert len(leader.core.config.voters) == 2
    assert gone.name not in leader.core.replication.progress


def test_a_removed_node_that_missed_it_learns_it_when_it_asks(three: Group) -> None:
    leader = three.lead()
    gone = three.others(leader)[0]
    three.passes = lambda a, b, m: gone.name not in (a, b)
    leader.core.remove_member(gone.name, three.now, lambda _: None)
    three.run(0.5)
    leader.core.replication.progress.pop(gone.name, None)

    three.passes = lambda a, b, m: True
    gone.core.link_down(leader.name, three.now)
    three.run(1.0)

    assert gone.gone
    assert leader.core.in_office


def test_a_node_that_was_removed_while_it_was_away_is_told_at_once(three: Group) -> None:
    """Also one without a vote, which asks nobody for theirs."""
    leader = three.lead()
    gone = three.others(leader)[0]
    for other in three.others(gone):
        other.core.link_down(gone.name, three.now)
    three.passes = lambda a, b, m: gone.name not in (a, b)
    leader.core.remove_member(gone.name, three.now, lambda _: None)
    three.run(0.5)

    three.passes = lambda a, b, m: isinstance(m, Introduce) or gone.name not in (a, b)
    gone.start(three.now)
    for other in three.others(gone):
        gone.core.link_up(other.name, three.now)
        other.core.link_up(gone.name, three.now)
    three.run(0.1)

    assert gone.gone


def test_a_leader_that_removes_itself_hands_over(three: Group) -> None:
    leader = three.lead()
    answers: list[int | None] = []

    leader.core.remove_member(leader.name, three.now, answers.append)
    three.run(2.0)

    assert leader.gone
    assert not leader.core.in_office
    assert len(answers) == 1
    assert [n for n in three.others(leader) if n.core.in_office]


def test_the_last_voter_cannot_be_removed() -> None:
    group = Group(1)
    leader = group.lead()

    with pytest.raises(CallRefused, match="last voter"):
        leader.core.remove_member("n1", group.now, lambda _: None)


def test_members_survive_restart_and_snapshot() -> None:
    group = Group(3, SMALL)
    leader = group.lead()
    leader.core.remove_member(group.others(leader)[0].name, group.now, lambda _: None)
    group.run(0.3)
    voters = leader.core.config.voters
    for number in range(400):
        group.write(leader, f"w{number}" + "x" * 100)
        group.run(0.01)
    group.run(0.3)

    assert leader.core.journal.base_index > leader.core.members.config_index
    leader.start(group.now)
    assert leader.core.config.voters == voters


# Snapshots.


def grown(group: Group) -> GroupNode:
    """Write until the leader's journal has been cut."""
    leader = group.lead()
    for number in range(600):
        group.write(leader, f"w{number}" + "x" * 100)
        group.run(0.01)
        if leader.core.journal.base_index > 50:
            break
    group.run(0.3)
    return leader


def test_a_node_far_behind_joins_by_snapshot() -> None:
    group = Group(3, SMALL)
    lost = "n3" if group.lead().name != "n3" else "n2"
    group.passes = lambda a, b, m: lost not in (a, b)
    leader = grown(group)
    node = group.nodes[lost]

    group.passes = lambda a, b, m: True
    connect(group, lost)
    group.run(4.0)

    assert leader.core.journal.base_index > 50
    assert node.core.snapshots.last_index > 0
    assert node.core.last_applied == leader.core.last_applied
    assert node.machine.digest == leader.machine.digest


def test_large_entries_behind_a_snapshot_are_kept_up_to_a_number_of_bytes() -> None:
    """Ten thousand entries of an import are gigabytes, to be kept on the disk and read at a start;
    and all of them were kept before the first snapshot was made."""
    kept = 64 << 10
    group = Group(3, RaftSettings(compact_bytes=kept, tail_entries=1000, tail_bytes=16 << 10))
    leader = group.lead()
    made = set()
    for number in range(150):
        group.write(leader, f"{number:03d}" + "x" * 3000)
        group.run(0.02)
        made.add(leader.core.snapshots.last_index)

    # Two entries fill a segment, and each snapshot is of use for two segments.
    assert len(made) <= 150 / 4
    for node in group.nodes.values():
        journal = node.core.journal
        assert journal.bytes_kept <= kept + LIMITS.segment
        # And the tail is there, so that nobody needs a snapshot for having been away a moment.
        behind = node.core.snapshots.last_index - journal.base_index
        assert behind >= 2


def test_a_snapshot_goes_on_where_the_line_broke() -> None:
    group = Group(3, replace(SMALL, chunk_bytes=300))
    lost = "n3" if group.lead().name != "n3" else "n2"
    group.passes = lambda a, b, m: lost not in (a, b)
    leader = grown(group)
    node = group.nodes[lost]
    group.passes = lambda a, b, m: True
    connect(group, lost)
    for _ in range(200):
        group.run(0.01)
        if node.core.receiver.incoming is not None and node.core.receiver.incoming.got > (0, 3000):
            break
    assert node.core.receiver.incoming is not None
    got = node.core.receiver.incoming.got

    group.passes = lambda a, b, m: lost not in (a, b)
    group.run(0.25)
    group.passes = lambda a, b, m: True
    connect(group, lost)
    resumed = node.core.receiver.incoming.got if node.core.receiver.incoming is not None else None
    group.run(4.0)

    assert resumed is not None
    assert resumed >= got > (0, 0)
    assert node.core.last_applied == leader.core.last_applied


def test_a_crash_at_any_step_of_an_installation_leaves_a_whole_state() -> None:
    group = Group(3, SMALL)
    leader = grown(group)
    follower = group.others(leader)[0]
    group.run(0.5)

    follower.start(group.now)

    assert follower.core.last_applied >= follower.core.snapshots.last_index
    assert follower.core.journal.last_index >= follower.core.snapshots.last_index


def test_the_journal_behind_a_snapshot_is_kept_at_start() -> None:
    """A3: PySyncObj clears it unless it begins exactly where the snapshot ends."""
    group = Group(3)
    leader = group.lead()
    for number in range(30):
        group.write(leader, f"w{number}")
    group.run(0.3)
    leader.core.make_snapshot()
    group.run(0.1)
    for number in range(30):
        group.write(leader, f"after{number}")
    group.run(0.3)
    last, snapshot = leader.core.journal.last_index, leader.core.snapshots.last_index

    leader.start(group.now)

    assert snapshot < last
    assert leader.core.journal.last_index == last
    assert leader.core.last_applied == snapshot


def test_a_damaged_snapshot_keeps_the_node_from_leading_until_it_has_another() -> None:
    """A10: PySyncObj starts with an empty state, votes and leads."""
    group = Group(3)
    leader = group.lead()
    group.write(leader)
    group.run(0.3)
    leader.core.make_snapshot()
    group.run(0.1)
    path = next(n for n in leader.disk.files if n.endswith("part-0"))
    leader.disk.flip(path, 5, 2)
    leader.start(group.now)

    # The journal reaches back to the first entry here, so all is played again.
    assert leader.core.snapshots.lost
    assert leader.machine.applied() == 0
    group.run(3.0)
    assert len({node.machine.digest for node in group.nodes.values()}) == 1


def test_a_late_word_of_a_replaced_disk_does_not_take_it_back_in(three: Group) -> None:
    """Found by the simulator: it took the vote from the disk that had come in its place."""
    leader = three.lead()
    lost, other = three.others(leader)
    said: list[tuple[int, Message]] = []

    def heard(a: str, b: str, message: Message) -> bool:
        if a == lost.name and isinstance(message, Introduce):
            said.append((lost.core.incarnation, message))
        return b != other.name or not isinstance(message, Introduce)

    three.passes = heard
    restart(three, lost, empty=True)
    three.run(2.0)
    former = lost.core.incarnation
    restart(three, lost, empty=True)
    three.run(2.0)
    present = lost.core.incarnation
    assert leader.core.config.is_voter(lost.name, present)

    for core in (leader.core, other.core):
        for incarnation, message in [s for s in said if s[0] == former]:
            core.receive(lost.name, incarnation, message, three.now)
    leader.core.transfer(other.name, three.now, lambda _: None)
    three.run(2.0)

    assert other.core.in_office
    assert other.core.config.is_voter(lost.name, present)


def test_more_changes_of_members_than_a_header_holds(three: Group) -> None:
    """Each segment names members; only those that may still be in force."""
    leader = three.lead()
    added = add(three, "n4")
    three.run(0.5)
    for _ in range(60):
        if "n4" in leader.core.config.members:
            leader.core.remove_member("n4", three.now, lambda _: None)
        else:
            leader.core.add_member("n4", three.now, lambda _: None)
        three.run(0.6)
    for number in range(60):
        three.write(leader, f"w{number}-{'x' * 400}")
    three.run(0.5)

    restart(three, leader)

    assert len(leader.core.journal.configs) > 60
    assert added.core.members.formed


def test_a_vote_for_the_old_disk_is_not_one_for_the_new(three: Group) -> None:
    leader = three.lead()
    lost = three.others(leader)[0]
    three.run(0.2)
    former = lost.core.incarnation
    restart(three, lost, empty=True)
    three.run(2.0)

    term = leader.core.term + 1
    assert leader.core.config.members[lost.name].incarnation != former
    leader.core.receive(lost.name, former, Vote(term, 0, 0, False), three.now)
    assert leader.core.in_office


def test_a_removed_node_that_comes_back_empty_is_another(three: Group) -> None:
    """What the leader knew of the disk that was removed says nothing about the one that comes."""
    leader = three.lead()
    gone = three.others(leader)[0]
    for number in range(20):
        three.write(leader, f"before-{number}")
    three.run(0.3)
    # It is removed and never hears of it.
    three.passes = lambda a, b, m: gone.name not in (a, b)
    leader.core.remove_member(gone.name, three.now, lambda _: None)
    three.run(0.3)

    restart(three, gone, empty=True)
    three.passes = lambda a, b, m: True
    three.run(0.5)
    leader.core.add_member(gone.name, three.now, lambda _: None)
    three.turns(1)
    assert leader.core.replication.progress[gone.name].match == 0
    three.run(2.0)

    assert gone.core.members.is_voter
    assert gone.core.last_applied == leader.core.last_applied


def test_a_change_of_members_that_takes_the_place_of_another_counts(three: Group) -> None:
    """Both stand at one index: the first was never committed, the second is of the next term."""
    leader = three.lead()
    three.run(0.2)
    follower, other = three.others(leader)
    three.passes = lambda a, b, m: False
    core, config = follower.core, follower.core.config
    prev, term = core.journal.last_index, core.term
    void, valid = config.moved("n1", "void:1", ""), config.moved("n1", "valid:1", "")

    for peer, later, kind, members in (
        (leader, term, COMMAND, void), (other, term + 1, NOOP, valid),
    ):  # fmt: skip
        entries = (
            Entry(prev + 1, later, kind, b""),
            Entry(prev + 2, later, CONFIG, members.encode()),
        )
        message = Append(later, prev, core.journal.term_at(prev), prev, entries)
        core.receive(peer.name, peer.core.incarnation, message, three.now)

    assert core.config == valid


# Addresses.


def test_a_member_that_moves_keeps_disk_and_vote(three: Group) -> None:
    leader = three.lead()
    moved, other = three.others(leader)
    before = leader.core.config.members[moved.name]
    answers: list[int | None] = []

    leader.core.move_member(moved.name, "new:7", "", three.now, answers.append)
    three.run(0.5)
    leader.core.move_member(moved.name, "", "new:8", three.now, answers.append)
    three.run(0.5)

    after = replace(before, address="new:7", client="new:8")
    assert None not in answers
    assert [n.core.config.members[moved.name] for n in three.nodes.values()] == [after] * 3
    restart(three, other)
    assert other.core.config.members[moved.name] == after


def test_an_empty_disk_has_its_own_word_for_where_it_is(three: Group) -> None:
    """It says where nodes find it; where clients do, the cluster was told."""
    leader = three.lead()
    lost = three.others(leader)[0]
    leader.core.move_member(lost.name, "elsewhere:7", "clients:8", three.now, lambda _: None)
    three.run(0.5)

    restart(three, lost, empty=True)
    three.run(2.0)

    member = leader.core.config.members[lost.name]
    assert (member.address, member.client) == (f"{lost.name}:1", "clients:8")
    assert lost.core.members.is_voter


def test_who_cannot_move_a_member_changes_nothing(three: Group) -> None:
    leader = three.lead()
    follower = three.others(leader)[0]
    long = "h" * 63 + ".h" * 60 + ":1"

    with pytest.raises(CallRefused, match="does not lead"):
        follower.core.move_member("n1", "new:7", "", three.now, lambda _: None)
    with pytest.raises(CallRefused, match="no member"):
        leader.core.move_member("n9", "new:7", "", three.now, lambda _: None)
    leader.core.move_member("n1", long, "", three.now, lambda _: None)
    with pytest.raises(CallRefused, match="not committed yet"):
        leader.core.move_member("n1", "new:7", "", three.now, lambda _: None)


def test_addresses_that_cannot_be_kept_are_refused() -> None:
    long = "h" * 63 + ".hh" * 40 + ":1"
    config = Configuration({f"n{i}": Member(1, "n:1", True) for i in range(9)})
    for name in config.members:
        config = config.moved(name, long, long)
    with pytest.raises(CallRefused, match="use shorter ones"):
        config.check_size()
    for row in ([1, "n:1", True, ""], [1, "n:1", True, "x"], [1, "n:1", True, "n:2", "n:3"]):
        with pytest.raises(ValueError, match="not described"):
            Configuration.decode(json.dumps({"n1": row}))
    written_before = b'{"n1":[1,"n:1",true]}'
    assert Configuration.decode(written_before).encode() == written_before


def test_who_is_added_again_is_not_told_of_the_removal_of_its_former_disk() -> None:
    """It reads of that on its way through the log, before it reads that it was added."""
    group = Group(3, RaftSettings(window_bytes=1 << 18, append_bytes=1 << 17))
    leader = group.lead()
    group.run(0.5)
    away = group.others(leader)[0]

    def fill(mark: str) -> None:
        for number in range(300):
            order = {"id": f"{mark}{number}", "key": "k", "add": "y" * 3_500}
            leader.core.propose(json.dumps(order).encode(), lambda _: None)
            if number % 10 == 9:
                group.run(0.02)
        group.run(0.2)

    fill("a")
    leader.core.remove_member(away.name, group.now, lambda _: None)
    group.run(1.0)
    assert away.gone
    for other in group.others(away):
        other.core.link_down(away.name, group.now)
    group.names.remove(away.name)
    fill("b")
    back = add(group, away.name)
    back.lives += 10
    back.start(group.now)
    connect(group, back.name)
    group.run(0.6)
    leader.core.add_member(back.name, group.now, lambda _: None)

    group.run(3.0)

    assert not back.gone
    assert back.name in leader.core.config.voters


def test_a_disk_that_comes_back_after_another_took_its_place_ends_and_counts_for_nothing(
    three: Group,
) -> None:
    """Its volume was not mounted at one start, and is at the next. Seen before: it asked the
    others for ever."""
    leader = three.lead()
    three.run(0.5)
    away = three.others(leader)[1]
    former = away.disk
    for other in three.others(away):
        other.core.link_down(away.name, three.now)
    fresh = GroupNode(away.name, three.names, RaftSettings())
    fresh.lives += 10
    fresh.start(three.now)
    three.nodes[away.name] = fresh
    connect(three, away.name)
    three.run(2.0)
    assert leader.core.config.members[away.name].incarnation == fresh.core.incarnation
    assert leader.core.status().peers[away.name].connected
    for other in three.others(fresh):
        other.core.link_down(away.name, three.now)

    three.nodes[away.name] = GroupNode(away.name, three.names, RaftSettings(), former)
    three.passes = lambda a, b, m: b != away.name or not isinstance(m, Introduce)
    connect(three, away.name)
    three.run(2.0)
    assert not leader.core.status().peers[away.name].connected
    three.passes = lambda a, b, m: True
    connect(three, away.name)
    with pytest.raises(Replaced, match="taken another disk in as"):
        three.run(2.0)
    for other in three.others(three.nodes[away.name]):
        other.core.link_down(away.name, three.now)

    # The one that took its place is taken for nothing else.
    three.nodes[away.name] = fresh
    fresh.start(three.now)
    connect(three, away.name)
    three.run(2.0)
    assert leader.core.status().peers[away.name].connected
    assert fresh.name in leader.core.config.voters
