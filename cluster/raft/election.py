"""Who leads: pre-vote, vote, and how long a leader may be silent.

Two kinds of silence. A lost connection says that the leader's process is gone: the first in rank
stands within milliseconds. A connection that is merely silent says little: a disk or an
interpreter may stall, so nobody stands for 300 ms, and then one after the other: the first in rank
late enough that all have lost the leader by then, and each behind it when the one before must have
failed. A pre-vote is granted only by nodes that have lost the leader themselves, so one broken
connection cannot depose a leader the others still hear.
"""

from __future__ import annotations

import logging

from .adapter import CANDIDATE, FOLLOWER
from .members import Members
from .message import PreVote, PreVoteReply, TimeoutNow, Vote, VoteReply
from .node_state import NodeState
from .outbox import Outbox
from .replication import Replication
from .witness import Witness

logger = logging.getLogger(__name__)

# When the first in rank stands, and by how much later each behind it, in shares of the time from
# `silence_min` to `silence_max`. The first waits as long as the sooner of two who both drew from
# all of that time, on average, so a stall deposes no more leaders; but it is never as late.
FIRST_SHARE, RANK_SHARE, DRAWN_SHARE, LAST_RANK = 0.25, 0.3, 0.15, 2

# A leader whose words came with gaps of late is given so many of the longest one, which counts for
# half as much after some seconds, but no more than `silence_max` before the first in rank waits: a
# machine that is short of processors stalls, and whoever takes over has no more of them.
GAPS, GAP_HALF_LIFE_S = 2.5, 5.0


class Election:
    """See the head of this file."""

    def __init__(
        self,
        node: NodeState,
        members: Members,
        outbox: Outbox,
        witness: Witness,
        replication: Replication,
    ) -> None:
        self.node, self.journal, self.settings = node, node.journal, node.settings
        self.members, self.outbox = members, outbox
        self.witness, self.replication = witness, replication
        self.voters: set[str] = set()
        self.pre_voters: set[str] = set()
        # Who asked last for a pre-vote while the leader lived, what, and when.
        self.refused: tuple[str, PreVote, float] | None = None
        # The last term whose election the leader before it has asked for.
        self.handed_term = 0
        self.heard_at = float("-inf")
        # The longest gap of late between two words of the leader of this term.
        self.gap, self.gap_term = 0.0, 0
        self.deadline = 0.0  # When to stand unless a leader is heard.
        self.met: set[str] = set()  # Voters that sent what they know of this disk since this start.
        self.meet_until = 0.0

    def has_met(self, now: float) -> bool:
        """Return whether all other voters could say what they know of this disk: it may have voted
        in this term, or have acknowledged what it does not hold any more."""
        return now >= self.meet_until or self.met.issuperset(self.members.other_voters())

    def may_lead(self) -> bool:
        able = not self.node.full and not self.node.installing and not self.members.removed
        # Its journal is whole without a state, so it votes; but what it would lead it cannot read.
        able = able and not self.node.bereft and self.journal.last_index >= self.witness.floor
        return able and (self.members.is_voter or self.members.is_leaving)

    def tick(self, now: float) -> None:
        """Stand if a leader was silent for too long."""
        if now < self.deadline:
            return
        if not self.has_met(now):
            self.deadline = self.meet_until
            return
        self.deadline = now + self.retry_delay()
        self.node.attempts += 1
        if self.may_lead():
            self.ask_pre_votes(now)

    def step_down(self) -> None:
        self.voters, self.pre_voters = set(), set()

    def retry_delay(self) -> float:
        """How long to wait for the outcome of an election before the next one."""
        if self.node.leader is not None and self.node.leader in self.members.connected:
            return self.node.silence()
        low, high, dice = self.settings.retry_min, self.settings.retry_max, self.node.dice
        delay = (low + (high - low) * dice.random()) * float(2 ** min(self.node.attempts, 8))
        return min(delay, self.node.silence())

    def take_office(self, now: float) -> None:
        self.node.attempts = 0
        self.replication.take_office(now)

    # Who leads.

    def leader_lives(self, now: float) -> bool:
        """Return whether this node has reason to believe in the present leader."""
        if self.node.leads:
            return True
        return (
            self.node.leader is not None
            and self.node.leader in self.members.connected
            and now - self.heard_at < self.stall()
        )

    def heard_leader(self, now: float) -> None:
        self.node.attempts = 0
        self.count_gap(now)
        self.heard_at = now
        self.deadline = now + self.silence()

    def leader_linked(self, now: float) -> None:
        """There is a new connection to the leader."""
        self.node.attempts = 0
        self.deadline = now + self.silence()

    def count_gap(self, now: float) -> None:
        """Longer ones than a living leader makes were no stalls."""
        gap, is_new = now - self.heard_at, self.gap_term != self.node.term
        self.gap_term = self.node.term
        self.gap = 0.0 if is_new else self.gap * 0.5 ** (gap / GAP_HALF_LIFE_S)
        if not is_new and gap <= self.settings.silence_max:
            self.gap = max(gap, self.gap)

    def stall(self) -> float:
        """How long the leader may be silent and still be taken to live."""
        low, high = self.settings.silence_min, self.settings.silence_max
        return min(max(low, GAPS * self.gap), high)

    def rank(self) -> int:
        """How many stand before this node when the leader is lost: an order all of them know."""
        standing = [v for v in self.members.config.voters if v != self.node.leader]
        return standing.index(self.node.me) if self.node.me in standing else len(standing)

    def silence(self) -> float:
        """How long the leader may be silent this time."""
        low, high = self.settings.silence_min, self.settings.silence_max
        share = FIRST_SHARE + RANK_SHARE * min(self.rank(), LAST_RANK)
        return self.stall() + (high - low) * (share + DRAWN_SHARE * self.node.dice.random())

    def leader_unlinked(self, leader: str, now: float) -> None:
        """The leader's process is gone, or the link is. The others see the same at the same time,
        so they stand one after the other."""
        logger.info("%s has lost the connection to the leader %s", self.node.me, leader)
        step = self.settings.rank_step
        jitter = self.node.dice.random() * step / 4
        self.deadline = min(self.deadline, now + self.rank() * step + jitter)
        self.node.attempts = 0
        self.grant_belatedly(now)

    # Pre-vote.

    def ask_pre_votes(self, now: float) -> None:
        self.pre_voters = {self.node.me}
        if self.members.config.majority(self.pre_voters):
            self.stand(now, transfer=False)
            return
        level = logging.INFO if self.node.attempts == 1 else logging.DEBUG
        term = self.node.term + 1
        logger.log(level, "%s asks whether it may stand in term %d", self.node.me, term)
        ask = PreVote(term, self.journal.last_index, self.journal.last_term)
        for peer in self.members.other_voters():
            self.send_pre_vote(peer, ask)

    def send_pre_vote(self, peer: str, message: PreVote | PreVoteReply) -> None:
        """It binds nobody, so it need not wait for the disk to have our last entries.

        But it may not overtake a vote that does wait: whoever hears first that it may stand in
        the next term gives up this one, in which it was about to be elected.
        """
        voting = self.journal.synced < self.journal.spoken_for
        (self.outbox.send if voting else self.outbox.send_first)(peer, message)

    def on_pre_vote(self, peer: str, ask: PreVote, now: float) -> None:
        # Whether it was removed is for the asker to judge: our configuration may be the older.
        removed_at = self.members.removed_at(peer)
        granted = (
            ask.term > self.node.term
            and self.has_met(now)
            and ask.last >= self.witness.floor
            and not self.leader_lives(now)
            and (ask.last_term, ask.last) >= (self.journal.last_term, self.journal.last_index)
        )
        if granted:
            self.give_way(peer, ask, now)
        elif self.leader_lives(now):
            self.refused = peer, ask, now
        self.send_pre_vote(peer, PreVoteReply(self.node.term, ask.term, granted, removed_at))

    def grant_belatedly(self, now: float) -> None:
        """Answer whoever asked just before this node, too, lost the leader."""
        asked, self.refused = self.refused, None
        if asked is not None and now - asked[2] < self.settings.silence_min:
            self.on_pre_vote(asked[0], asked[1], now)

    def give_way(self, peer: str, ask: PreVote, now: float) -> None:
        """Leave it to a peer to stand, for a moment.

        Two who stand in the same term share the votes and neither is elected. So of two who ask
        each other, both know which one goes on: the one with the longer log, or first in rank.
        """
        mine = (self.journal.last_term, self.journal.last_index)
        asking = self.node.me in self.pre_voters
        if not asking or (ask.last_term, ask.last) > mine or peer < self.node.me:
            self.pre_voters = set()
            self.deadline = max(self.deadline, now + self.settings.retry_min)

    def on_pre_vote_reply(
        self, peer: str, incarnation: int, reply: PreVoteReply, now: float
    ) -> None:
        if reply.granted and reply.asked == self.node.term + 1 and not self.node.leads:
            given_way = self.node.me not in self.pre_voters
            if given_way or self.leader_lives(now) or not self.may_lead():
                return
            if self.members.config.is_voter(peer, incarnation):
                self.pre_voters.add(peer)
            if self.members.config.majority(self.pre_voters):
                self.stand(now, transfer=False)

    # Vote.

    def stand(self, now: float, *, transfer: bool) -> None:
        self.pre_voters = set()
        self.voters = {self.node.me}
        self.node.leader = None
        self.node.set_role(CANDIDATE)
        self.node.set_term(self.node.term + 1, self.node.me)
        self.handed_term = self.node.term if transfer else self.handed_term
        logger.info("%s stands in term %d", self.node.me, self.node.term)
        self.deadline = now + self.retry_delay()
        if self.members.config.majority(self.voters):
            self.take_office(now)
            return
        ask = Vote(self.node.term, self.journal.last_index, self.journal.last_term, transfer)
        for peer in self.members.other_voters():
            self.outbox.send(peer, ask)

    def on_vote(self, peer: str, ask: Vote, now: float) -> None:
        self.handed_term = ask.term if ask.transfer else self.handed_term
        # Granted also by a node that does not know yet that it votes, and to a disk it does not
        # know yet: our log may be the older one, and the only complete one could wait for ever.
        # The candidate counts the disks its own log names, and a replaced disk asks nobody.
        granted = (
            ask.term == self.node.term
            and self.node.role == FOLLOWER
            and self.has_met(now)
            and ask.last >= self.witness.floor
            and self.node.vote in (None, peer)
            and (ask.last_term, ask.last) >= (self.journal.last_term, self.journal.last_index)
        )
        if granted:
            self.node.set_term(self.node.term, peer)
            self.deadline = now + self.node.silence()
        self.outbox.send(peer, VoteReply(self.node.term, granted))

    def on_vote_reply(self, peer: str, incarnation: int, reply: VoteReply, now: float) -> None:
        if reply.granted and reply.term == self.node.term and self.node.role == CANDIDATE:
            # A set of members, not a count: a reply may come twice, or from a stranger.
            if self.members.config.is_voter(peer, incarnation):
                self.voters.add(peer)
            if self.members.config.majority(self.voters):
                self.take_office(now)

    def on_timeout_now(self, peer: str, message: TimeoutNow, now: float) -> None:
        if message.term == self.node.term and peer == self.node.leader and self.may_lead():
            self.stand(now, transfer=True)
