"""The eight rules the handlers keep, and the defects of PySyncObj they close."""

from __future__ import annotations

import pytest

from raftsched.chaos.sim.group import Group, GroupNode
from raftsched.cluster.raft.faults import Broken, CallRefused, Fatal, Unsupported
from raftsched.cluster.raft.journal import COMMAND, Entry
from raftsched.cluster.raft.manifest import Manifest
from raftsched.cluster.raft.message import (
    Append,
    AppendAck,
    Heartbeat,
    HeartbeatAck,
    Message,
    SnapshotOffer,
    VoteReply,
)


def tell(node: GroupNode, peer: GroupNode, message: Message, now: float) -> list[Message]:
    """Give a node a message and return what it answers to that peer."""
    node.core.receive(peer.name, peer.core.incarnation, message, now)
    return [m for to, m in node.turn(now) if to == peer.name and isinstance(m, AppendAck)]


def command(index: int, term: int) -> Entry:
    return Entry(index, term, COMMAND, b'{"id":"%d-%d","key":"k","add":"x"}' % (index, term))


def followed(three: Group, count: int = 20) -> tuple[GroupNode, GroupNode, int]:
    """Return leader and follower after some writes, and the last index."""
    leader = three.lead()
    for number in range(count):
        three.write(leader, f"w{number}")
    three.run(0.3)
    follower = three.others(leader)[0]
    assert follower.core.last_applied == leader.core.journal.last_index
    return leader, follower, leader.core.journal.last_index


def test_a_late_append_deletes_nothing_that_is_the_same(three: Group) -> None:
    """Rule 1, A1: PySyncObj would end at entry 6 here."""
    leader, follower, last = followed(three)
    late = tuple(leader.core.journal.entry(i) for i in range(4, 7))
    prev_term = leader.core.journal.term_at(3)

    [ack] = tell(follower, leader, Append(leader.core.term, 3, prev_term, 6, late), three.now)

    assert follower.core.journal.last_index == last
    assert isinstance(ack, AppendAck)
    assert (ack.ok, ack.at) == (True, 6)


def test_a_late_heartbeat_deletes_nothing(three: Group) -> None:
    leader, follower, last = followed(three)

    tell(
        follower, leader, Append(leader.core.term, 3, leader.core.journal.term_at(3), 3), three.now
    )

    assert follower.core.journal.last_index == last


def test_deleting_a_committed_entry_stops_the_node(three: Group) -> None:
    """Rule 1, A9."""
    leader, follower, last = followed(three)
    term = leader.core.term
    prev_term = leader.core.journal.term_at(last - 1)
    other = Append(term + 1, last - 1, prev_term, 0, (command(last, term + 1),))

    with pytest.raises(Broken, match=f"another entry {last} than"):
        follower.core.receive(leader.name, leader.core.incarnation, other, three.now)


def test_commit_covers_only_what_this_message_verified(three: Group) -> None:
    """Rule 2: a tail nobody compared stays uncommitted whatever the leader's commit is."""
    leader, follower, last = followed(three)
    follower.core.journal.append(command(last + 1, leader.core.term))

    tell(follower, leader, Append(leader.core.term, last, leader.core.term, last + 1), three.now)

    assert follower.core.node.commit == last


def test_an_offer_of_a_snapshot_commits_nothing(three: Group) -> None:
    """Rule 2, A2."""
    leader, follower, last = followed(three)
    follower.core.journal.append(command(last + 1, leader.core.term))
    members = leader.core.journal.configs[-1:]
    manifest = Manifest(last + 50, leader.core.term, last + 50, members, [])
    offer = SnapshotOffer(leader.core.term, manifest.encode())

    follower.core.receive(leader.name, leader.core.incarnation, offer, three.now)

    assert follower.core.node.commit == last
    assert follower.core.last_applied == last


def test_copies_of_an_entry_of_an_old_term_commit_nothing(three: Group) -> None:
    """Figure 8 of the Raft paper: such an entry may still be replaced."""
    leader = three.lead()
    three.passes = lambda a, b, m: False
    for _ in range(3):
        three.write(leader)
    three.run(1.0)
    core, commit = leader.core, leader.core.node.commit
    core.election.stand(three.now, transfer=False)
    core.election.take_office(three.now)

    for progress in core.replication.progress.values():
        progress.match = core.replication.noop_index - 1
    core.replication.advance_commit()

    assert core.replication.noop_index - 1 > commit
    assert core.node.commit == commit


def test_an_acknowledgement_of_another_term_changes_nothing(three: Group) -> None:
    """Rule 3, A5."""
    leader, follower, last = followed(three)
    three.passes = lambda a, b, m: False
    three.write(leader, "more")
    three.turns()

    old = AppendAck(leader.core.term - 1, last, last + 1, True)
    leader.core.receive(follower.name, follower.core.incarnation, old, three.now)

    assert leader.core.replication.progress[follower.name].match == last


def test_a_stale_leader_is_told_of_the_new_term(three: Group) -> None:
    """Rule 3, C7."""
    leader, follower, last = followed(three)

    [ack] = tell(follower, leader, Append(leader.core.term - 1, last, 0, 0), three.now)

    assert isinstance(ack, AppendAck)
    assert (ack.ok, ack.term) == (False, leader.core.term)


def test_an_answer_to_a_stale_heartbeat_confirms_no_round(three: Group) -> None:
    """Found by the simulator: rounds are counted by each leader anew."""
    leader, follower, _ = followed(three)
    stale = Heartbeat(leader.core.term - 1, 99, 0, 0, 0.0, 0.0)

    follower.core.receive(leader.name, leader.core.incarnation, stale, three.now)
    said = [m for to, m in follower.turn(three.now) if isinstance(m, HeartbeatAck)]

    assert [m.round for m in said] == [0]


def test_a_refusal_never_goes_below_what_was_acknowledged(three: Group) -> None:
    """Rule 4, C4: nor beyond the leader's own end."""
    leader, follower, last = followed(three)
    progress = leader.core.replication.progress[follower.name]
    term, incarnation = leader.core.term, follower.core.incarnation

    leader.core.receive(follower.name, incarnation, AppendAck(term, last, 2, False), three.now)
    assert progress.next == last + 1
    progress.probing = False
    leader.core.receive(follower.name, incarnation, AppendAck(term, last, 9999, False), three.now)

    assert (progress.match, progress.next) == (last, last + 1)


def test_an_old_acknowledgement_lowers_nothing(three: Group) -> None:
    """Rule 4, A1."""
    leader, follower, last = followed(three)
    progress = leader.core.replication.progress[follower.name]

    ack = AppendAck(leader.core.term, 2, 3, True)
    leader.core.receive(follower.name, follower.core.incarnation, ack, three.now)

    assert (progress.match, progress.next) == (last, last + 1)


def test_one_voter_is_one_vote_however_often_it_answers() -> None:
    """Rule 5, A13."""
    group = Group(5)
    node, peer = group.nodes["n1"], group.nodes["n2"]
    group.lead()
    group.passes = lambda a, b, m: False
    group.run(1.0)
    node.core.election.stand(group.now, transfer=False)

    for _ in range(5):
        node.core.receive(
            peer.name, peer.core.incarnation, VoteReply(node.core.term, True), group.now
        )
    node.core.receive("stranger", 1, VoteReply(node.core.term, True), group.now)
    node.core.receive("n3", 12345, VoteReply(node.core.term, True), group.now)

    assert node.core.election.voters == {"n1", "n2"}
    assert node.core.node.leader is None


def test_two_leaders_in_a_term_stop_the_node_that_sees_them(three: Group) -> None:
    """Rule 5."""
    leader, follower, _ = followed(three)

    with pytest.raises(Broken, match="both lead in term"):
        leader.core.receive(
            follower.name,
            follower.core.incarnation,
            Heartbeat(leader.core.term, 1, 0, 0, 0.0, 0.0),
            three.now,
        )


def test_a_caller_that_raises_does_not_apply_an_entry_twice(three: Group) -> None:
    """Rule 6, A7."""
    leader = three.lead()

    def raises(_: int | None) -> None:
        raise ValueError("no")

    leader.core.propose(b'{"id":"a","key":"k","add":"x"}', raises)
    with pytest.raises(Fatal, match="a caller of consensus raised"):
        three.run(0.2)
    three.run(0.2)

    indexes = [i for i, _ in leader.applied]
    assert len(indexes) == len(set(indexes)) == 1


def test_an_entry_of_a_later_release_stops_the_node(three: Group) -> None:
    """A8: skipping it would shift everything after it."""
    leader = three.lead()
    leader.core.proposals.add(17, b"{}", lambda _: None)

    with pytest.raises(Unsupported, match="kind 17"):
        three.run(0.2)


def test_what_apply_raises_stops_the_node(three: Group) -> None:
    """C8: it is not tried again, and not swallowed."""
    leader = three.lead()
    leader.core.propose(b"this is no JSON", lambda _: None)

    with pytest.raises(ValueError, match="Expecting value"):
        three.run(0.2)


def test_an_old_snapshot_is_left_alone(three: Group) -> None:
    """Rule 7, A11."""
    leader, follower, last = followed(three)
    members = leader.core.journal.configs[-1:]
    old = Manifest(last - 5, leader.core.term, last - 5, members, [])

    [ack] = tell(follower, leader, SnapshotOffer(leader.core.term, old.encode()), three.now)

    assert isinstance(ack, AppendAck)
    assert (ack.ok, ack.at) == (True, last - 5)
    assert follower.core.receiver.incoming is None
    assert follower.core.journal.last_index == last


def test_losing_leadership_answers_everyone(three: Group) -> None:
    """Rule 8, C10."""
    leader = three.lead()
    three.passes = lambda a, b, m: False
    written, read = three.write(leader), list[int | None]()
    leader.core.read(read.append)

    three.run(1.0)

    assert (written, read) == ([None], [None])
    assert leader.lost == leader.gained


def test_the_commit_index_is_not_taken_from_a_disk(three: Group) -> None:
    """A6."""
    _, follower, last = followed(three)

    follower.start(three.now)

    assert follower.core.node.commit == follower.core.last_applied == 0
    assert follower.core.journal.last_index == last


def test_a_follower_with_a_longer_log_is_repaired_in_one_exchange(three: Group) -> None:
    """C4: PySyncObj takes one heartbeat for each entry, or never ends."""
    leader, follower, last = followed(three)
    for index in range(last + 1, last + 301):
        follower.core.journal.append(command(index, leader.core.term))
    follower.core.node.set_term(leader.core.term + 1, None)

    three.run(1.5)
    new = three.lead()
    three.write(new, "after")
    three.run(0.5)

    ends = {n.core.journal.last_index for n in three.nodes.values()}
    terms = {n.core.journal.last_term for n in three.nodes.values()}
    assert (len(ends), len(terms)) == (1, 1)


def test_pysyncobj_can_be_called_for_term_vote_and_role_only(three: Group) -> None:
    held = three.lead().core.node._upstream._held

    with pytest.raises(Broken, match="only the port"):
        held._applyCommand(b"x", None)
    with pytest.raises(Broken, match="only the port"):
        held.doTick(0.0)


def test_a_follower_refuses_and_names_the_leader(three: Group) -> None:
    leader = three.lead()

    with pytest.raises(CallRefused, match=f"the leader is {leader.name}"):
        three.others(leader)[0].core.propose(b"{}", lambda _: None)
