from __future__ import annotations

import pytest

from raftsched.chaos.sim.group import Group, GroupNode
from raftsched.cluster.raft.adapter import FOLLOWER
from raftsched.cluster.raft.message import (
    Append,
    AppendAck,
    Heartbeat,
    Message,
    PreVote,
    PreVoteReply,
    Vote,
    VoteReply,
)


def cut_off(group: Group, node: GroupNode, *, noticed: bool) -> None:
    """Take a node away, as a killed process or as a silent line."""
    group.passes = lambda a, b, m: node.name not in (a, b)
    for other in group.others(node) if noticed else []:
        other.core.link_down(node.name, group.now)
        node.core.link_down(other.name, group.now)


def test_a_first_start_elects_one_leader_and_applies_its_entry(three: Group) -> None:
    leader = three.lead()

    assert leader.gained == [leader.core.term]
    assert leader.core.node.commit == leader.core.replication.noop_index
    assert {n.core.node.leader for n in three.nodes.values()} == {leader.name}


def test_a_broken_connection_to_the_leader_elects_within_a_few_milliseconds(three: Group) -> None:
    leader = three.lead()

    cut_off(three, leader, noticed=True)
    three.run(0.05)

    assert [n for n in three.others(leader) if n.core.in_office]


@pytest.mark.parametrize("noticed", [True, False])
def test_who_lost_both_others_names_no_leader_until_it_hears_from_one(
    three: Group, noticed: bool
) -> None:
    leader = three.lead()
    alone = three.others(leader)[0]
    passes = three.passes

    cut_off(three, alone, noticed=noticed)
    three.run(1.0)

    assert alone.core.known_leader is None
    assert alone.core.status().leader is None
    assert leader.core.known_leader == leader.name
    three.passes = passes
    for other in three.others(alone) if noticed else []:
        other.core.link_up(alone.name, three.now)
        alone.core.link_up(other.name, three.now)
    three.run(1.0)
    assert alone.core.known_leader == leader.name


def test_the_first_in_rank_stands_first(three: Group) -> None:
    leader = three.lead()

    cut_off(three, leader, noticed=True)

    first, second = sorted(three.others(leader), key=lambda n: n.name)
    step = first.core.settings.rank_step
    assert first.core.election.deadline < three.now + step / 2
    assert second.core.election.deadline >= three.now + step


def test_a_silent_leader_is_followed_by_the_first_in_rank_before_the_latest_time(
    three: Group,
) -> None:
    """Each drew from all the time there is, and of fifty leaders that were stopped one was followed
    after 0.56 s."""
    leader = three.lead()
    first, second = (node.core for node in sorted(three.others(leader), key=lambda n: n.name))
    low, beat = first.settings.silence_min, first.settings.heartbeat

    for now in range(2, 200):
        for core in (first, second):
            core.election.heard_leader(float(now))
        assert now + low + beat < first.election.deadline < second.election.deadline - beat / 2
        assert second.election.deadline < now + first.settings.silence_max
    cut_off(three, leader, noticed=False)
    three.now = 199.0
    three.run(low + 3 * beat)

    assert first.in_office


def test_a_leader_that_stalls_now_and_then_is_given_more_time_for_a_while(three: Group) -> None:
    """Beside a flood of headers all nodes stalled for 0.1 to 0.35 s, and one leader in three
    fell."""
    leader = three.lead()
    first = min(three.others(leader), key=lambda n: n.name).core
    low, high = first.settings.silence_min, first.settings.silence_max
    election, now = first.election, three.now

    def given(gap: float) -> float:
        nonlocal now
        now += gap
        election.heard_leader(now)
        return election.deadline - now

    usual = given(0.05)
    assert given(0.1) == pytest.approx(usual, abs=0.05)
    assert 0.5 < given(0.2) < 0.65
    assert election.leader_lives(now + 0.45), "nor do the others elect one before that"
    assert given(0.05) > 0.5
    for _ in range(600):
        given(0.05)
    assert given(0.05) == pytest.approx(usual, abs=0.05)
    assert given(0.35) < high + (high - low), "there is a bound"
    assert given(30.0) == pytest.approx(usual, abs=0.05), "that was no stall"


def cross(group: Group, *nodes: GroupNode) -> None:
    """Let all of them speak before any of them hears."""
    said = [(node, message) for node in nodes for message in node.turn(group.now)]
    for node, (to, message) in said:
        if group.passes(node.name, to, message):
            group.hand_over(node, to, message)


def test_of_two_who_stand_at_the_same_time_the_first_in_rank_is_elected(three: Group) -> None:
    """They shared the votes and began anew after 40 to 80 ms, now and then three times over."""
    leader = three.lead()
    first, second = three.others(leader)
    term = leader.core.term
    cut_off(three, leader, noticed=True)

    first.core.election.deadline = second.core.election.deadline = three.now
    for _ in range(8):
        cross(three, first, second)

    assert first.core.in_office
    assert (first.core.term, second.core.node.leader) == (term + 1, first.name)


def test_of_two_who_stand_at_the_same_time_the_longer_log_is_elected(three: Group) -> None:
    leader = three.lead()
    first, second = three.others(leader)
    term = leader.core.term
    three.passes = lambda a, b, m: first.name not in (a, b)
    three.write(leader)
    three.turns(3)
    cut_off(three, leader, noticed=True)

    first.core.election.deadline = second.core.election.deadline = three.now
    for _ in range(12):
        cross(three, first, second)

    assert second.core.in_office
    assert (second.core.term, first.core.node.leader) == (term + 1, second.name)


def test_who_asked_too_early_is_answered_when_the_leader_is_lost_here_too(three: Group) -> None:
    """The lost connection is seen some milliseconds apart, and the first to see it asks once."""
    leader = three.lead()
    first, second = three.others(leader)
    three.passes = lambda a, b, m: leader.name not in (a, b)
    first.core.link_down(leader.name, three.now)
    three.now = first.core.election.deadline
    for _ in range(4):
        cross(three, first, second)
    assert not first.core.in_office

    second.core.link_down(leader.name, three.now)
    for _ in range(8):
        cross(three, first, second)

    assert first.core.in_office


def test_who_asked_long_ago_is_not_answered(three: Group) -> None:
    leader = three.lead()
    first, second = three.others(leader)
    ask = PreVote(leader.core.term + 1, first.core.journal.last_index, first.core.journal.last_term)
    second.core.receive(first.name, first.core.incarnation, ask, three.now)
    three.run(1.0)

    second.core.link_down(leader.name, three.now)

    assert second.core.election.deadline < three.now + second.core.settings.retry_min
    replies = [m for _, m in second.turn(three.now) if isinstance(m, PreVoteReply)]
    assert replies == []


def test_a_pre_vote_does_not_wait_for_a_slow_disk(three: Group) -> None:
    leader = three.lead()
    first = three.others(leader)[0]
    three.write(leader)
    [append] = [m for to, m in leader.turn(three.now) if isinstance(m, Append) and to == first.name]
    core = first.core
    core.receive(leader.name, leader.core.incarnation, append, three.now)
    core.link_down(leader.name, three.now)

    core.step(core.election.deadline)
    said = [type(message) for _, message in core.outbox.release(core.journal.synced)]

    assert PreVote in said
    assert AppendAck not in said


def test_a_pre_vote_does_not_overtake_a_vote_that_waits_for_the_disk(three: Group) -> None:
    leader = three.lead()
    asker, asked = three.others(leader)
    core, log = asked.core, asked.core.journal
    core.link_down(leader.name, three.now)
    incarnation, term = asker.core.incarnation, core.term

    core.receive(asker.name, incarnation, Vote(term + 1, log.last_index, log.last_term, False), 0.0)
    again = PreVote(term + 2, log.last_index, log.last_term)
    core.receive(asker.name, incarnation, again, three.now)
    said = [type(m) for to, m in asked.turn(three.now) if to == asker.name]

    assert said.index(VoteReply) < said.index(PreVoteReply)


def test_who_lets_another_stand_waits_a_moment_and_not_longer(three: Group) -> None:
    """The other may die of it."""
    leader = three.lead()
    first, second = three.others(leader)
    cut_off(three, leader, noticed=True)
    core = first.core
    core.election.deadline = three.now

    ask = PreVote(core.term + 1, core.journal.last_index, core.journal.last_term)
    core.receive(second.name, second.core.incarnation, ask, three.now)

    assert core.election.deadline == three.now + core.settings.retry_min


def test_mere_silence_elects_nobody_for_300_ms(three: Group) -> None:
    leader = three.lead()
    terms = {n.core.term for n in three.nodes.values()}

    cut_off(three, leader, noticed=False)
    three.run(0.25)
    early = {n.core.term for n in three.nodes.values()}
    three.run(0.8)

    assert early == terms
    assert [n for n in three.others(leader) if n.core.in_office]


def test_a_leader_without_a_majority_steps_down_after_two_timeouts(three: Group) -> None:
    leader = three.lead()

    cut_off(three, leader, noticed=False)
    three.run(0.5)
    early = leader.core.in_office
    three.run(0.15)

    assert early
    assert not leader.core.in_office
    assert leader.core.node.role == FOLLOWER


def test_a_node_that_was_cut_off_does_not_depose_the_leader(three: Group) -> None:
    """C7: PySyncObj came back with term 67 after a minute and won."""
    leader = three.lead()
    lonely = three.others(leader)[0]
    cut_off(three, lonely, noticed=False)
    three.run(3.0)

    three.passes = lambda a, b, m: True
    three.run(1.0)

    assert leader.core.in_office
    assert {n.core.term for n in three.nodes.values()} == {leader.core.term}


def test_one_broken_link_does_not_depose_a_leader_the_others_hear(three: Group) -> None:
    leader = three.lead()
    one, other = three.others(leader)
    three.passes = lambda a, b, m: {a, b} != {leader.name, one.name}

    one.core.link_down(leader.name, three.now)
    three.run(2.0)

    assert leader.core.in_office
    assert other.core.node.leader == leader.name
    assert {n.core.term for n in three.nodes.values()} == {leader.core.term}


def test_an_answer_goes_to_the_disk_that_spoke(three: Group) -> None:
    """Found by the simulator: the follower's configuration may be older than the leader's disk."""
    leader = three.lead()
    follower = three.others(leader)[0]

    beat = Heartbeat(leader.core.term, 0, 0, 0, 0.0, 0.0)
    follower.core.receive(leader.name, 4711, beat, three.now)

    assert follower.core.replication.disk_of(leader.name) == 4711


def test_a_vote_asked_for_without_need_is_not_answered(three: Group) -> None:
    leader = three.lead()
    asker, asked = three.others(leader)
    term = asked.core.term

    ask = Vote(term + 5, 10_000, term + 4, False)
    asked.core.receive(asker.name, asker.core.incarnation, ask, three.now)

    assert asked.core.term == term


def test_a_log_that_is_behind_gets_no_pre_vote(three: Group) -> None:
    leader = three.lead()
    asker, asked = three.others(leader)
    asked.core.link_down(leader.name, three.now)

    ask = PreVote(asked.core.term + 1, 0, 0)
    asked.core.receive(asker.name, asker.core.incarnation, ask, three.now)
    asked.core.election.deadline = three.now + 1
    replies = [m for to, m in asked.turn(three.now) if isinstance(m, PreVoteReply)]

    assert [r.granted for r in replies] == [False]


def test_leadership_goes_to_a_target_that_has_everything(three: Group) -> None:
    leader = three.lead()
    target = three.others(leader)[0]
    answers: list[bool] = []
    three.write(leader)

    leader.core.transfer(target.name, three.now, answers.append)
    three.run(0.2)

    assert target.core.in_office
    assert answers == [True]


def test_a_transfer_waits_for_the_target_and_gives_up_in_time(three: Group) -> None:
    leader = three.lead()
    target = three.others(leader)[0]
    three.passes = lambda a, b, m: b != target.name
    written = three.write(leader)
    answers: list[bool] = []

    leader.core.transfer(target.name, three.now, answers.append)
    three.run(0.9)
    waiting = (leader.core.in_office, list(answers))
    three.run(0.3)

    assert waiting == (True, [])
    assert answers == [False]
    assert leader.core.in_office
    assert written != [None]


def test_reads_that_come_together_share_a_round(three: Group) -> None:
    leader = three.lead()
    answers: list[int | None] = []
    three.run(0.1)
    before = leader.core.replication.round

    for _ in range(100):
        leader.core.read(answers.append)
    three.turns(4)

    assert len(answers) == 100
    assert None not in answers
    assert leader.core.replication.round <= before + 2


def test_a_leader_that_was_replaced_serves_no_read(three: Group) -> None:
    leader = three.lead()
    cut_off(three, leader, noticed=False)
    answers: list[int | None] = []

    leader.core.read(answers.append)
    three.run(1.0)

    assert answers == [None]


def test_a_stale_read_knows_how_stale_it_is(three: Group) -> None:
    leader = three.lead()
    follower = three.others(leader)[0]
    three.run(1.0)
    fresh = follower.core.staleness(three.now)

    cut_off(three, leader, noticed=False)
    follower.core.election.deadline = three.now + 100
    three.now += 5.0

    assert fresh < 0.3
    assert 5.0 <= follower.core.staleness(three.now) < 5.3


def test_a_leader_that_was_deposed_still_knows_how_old_its_state_is(three: Group) -> None:
    leader = three.lead()
    three.run(1.0)
    cut_off(three, leader, noticed=False)

    began = three.now
    while leader.core.node.leads:
        three.run(0.01)

    assert leader.core.staleness(three.now) <= three.now - began + 0.3


def test_a_new_leader_is_not_taken_for_one_that_hears_nothing(three: Group) -> None:
    """A majority has just voted for it, though no round of its own was confirmed yet."""
    three.now = 100.0
    for node in three.nodes.values():
        node.core.election.deadline = three.now

    ages = []
    while not any(node.core.in_office for node in three.nodes.values()):
        three.run(0.01)
        ages += [n.core.silence_s(three.now) for n in three.nodes.values() if n.core.node.leads]

    assert ages
    assert max(ages) < 1.0


def test_a_follower_whose_clock_began_anew_knows_how_old_its_state_is(three: Group) -> None:
    """Its host was started again; its disk and the leader are the same."""
    three.now = 1_000_000.0
    for node in three.nodes.values():
        node.core.election.deadline = three.now
    leader = three.lead()
    three.run(1.0)
    follower = three.others(leader)[0]
    said: list[Heartbeat] = []

    def passes(a: str, b: str, message: Message) -> bool:
        if b == follower.name and isinstance(message, Heartbeat):
            said.append(message)
        return True

    three.passes = passes
    leader.core.link_down(follower.name, three.now)
    leader.core.link_up(follower.name, three.now)
    leader.core.replication.beat(three.now)
    three.turns()
    follower.core.follower.on_heartbeat(
        leader.name, said[-1]._replace(echo=three.now + 100), three.now
    )

    # Nothing of the clock before is said, and what is ahead of the present one is not believed.
    assert said[0].echo == 0.0
    assert follower.core.staleness(three.now) >= 0.0


def test_who_leads_without_having_committed_anything_does_not_say_how_fresh_it_is(
    three: Group,
) -> None:
    """What its predecessor committed and answered may not be known here yet."""
    old = three.lead()
    three.run(1.0)
    cut_off(three, old, noticed=True)
    new, follower = three.others(old)
    three.passes = lambda a, b, m: old.name not in (a, b) and not isinstance(m, AppendAck)
    left_at = three.now

    three.run(0.5)

    leads = new if new.core.node.leads else follower
    assert leads.core.node.leads
    assert not leads.core.in_office
    for node in (new, follower):
        assert node.core.staleness(three.now) >= three.now - left_at - 0.2
    assert leads.core.silence_s(three.now) < 0.3
