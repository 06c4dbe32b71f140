"""Who leads: pre-vote, vote, the leader's own quorum check, and handing over.

Two kinds of silence. A lost connection says that the leader's process is gone: the first in rank
stands within milliseconds. A connection that is merely silent says little: a disk or an
interpreter may stall, so nobody stands for 300 ms. A pre-vote is granted only by nodes that have
lost the leader themselves, so one broken connection cannot depose a leader the others still hear.
"""

from __future__ import annotations

import logging

from .faults import require
from .message import PreVote, PreVoteReply, TimeoutNow, Vote, VoteReply
from .replication import Replication
from .walled import CANDIDATE, FOLLOWER, LEADER

logger = logging.getLogger(__name__)


class Election(Replication):
    """See the head of this file."""

    met: set[str]  # Voters that said what they know of this disk since this start.
    meet_until = 0.0

    def has_met(self, now: float) -> bool:
        """Tell whether all other voters could say what they know of this disk: it may have voted
        in this term, or have acknowledged what it does not hold any more."""
        return now >= self.meet_until or self.met.issuperset(self.other_voters())

    def tick_election(self, now: float) -> None:
        if self.role == LEADER:
            self.check_quorum(now)
            self.tick_transfer(now)
        elif now >= self.deadline and not self.has_met(now):
            self.deadline = self.meet_until
        elif now >= self.deadline:
            self.deadline = now + self.retry_delay()
            self.attempts += 1
            if self.may_lead():
                self.ask_pre_votes(now)

    def may_lead(self) -> bool:
        able = not self.full and not self.installing and not self.removed_self
        # Its journal is whole without a state, so it votes; but what it would lead it cannot read.
        able = able and not self.bereft and self.journal.last_index >= self.floor
        return able and (self.is_voter or self.is_leaving)

    def retry_delay(self) -> float:
        """How long to wait for the outcome of an election before the next one."""
        if self.leader is not None and self.leader in self.connected:
            return self.silence()
        low, high = self.settings.retry_min, self.settings.retry_max
        delay = (low + (high - low) * self.dice.random()) * float(2 ** min(self.attempts, 8))
        return min(delay, self.silence())

    def leader_lives(self, now: float) -> bool:
        """Tell whether this node has reason to believe in the present leader."""
        if self.role == LEADER:
            return True
        return (
            self.leader is not None
            and self.leader in self.connected
            and now - self.heard_at < self.settings.silence_min
        )

    @property
    def known_leader(self) -> str | None:
        """Whom to send callers to: the leader of this term until this node has given it up.

        Its name is kept even then (a term has one leader), and the next term may never come: who
        lost both others asks for pre-votes for ever.
        """
        return self.leader if self.role == LEADER or self.attempts == 0 else None

    # Links.

    def link_up(self, peer: str, now: float) -> None:
        self.connected.add(peer)
        self.watcher.linked(peer)
        self.greet(peer)
        if self.role == LEADER and peer in self.progress:
            self.progress[peer].reconnected(now)
        elif peer == self.leader:
            self.attempts = 0
            self.deadline = now + self.silence()

    def greet(self, peer: str) -> None:
        raise NotImplementedError

    def link_down(self, peer: str, now: float) -> None:
        self.connected.discard(peer)
        if peer not in self.config.members:
            self.heard_disks.pop(peer, None)  # Names are free to strangers; memory is not.
            self.witness.forget(peer)
        if peer == self.leader and self.role != LEADER:
            # Its process is gone, or the line is. The others see the same at the same time, so
            # they stand one after the other, in an order all of them know.
            logger.info("%s has lost the connection to the leader %s", self.me, peer)
            standing = [v for v in self.config.voters if v != peer]
            rank = standing.index(self.me) if self.me in standing else len(standing)
            jitter = self.dice.random() * self.settings.rank_step / 4
            self.deadline = min(self.deadline, now + rank * self.settings.rank_step + jitter)
            self.attempts = 0
            self.grant_belatedly(now)

    # Pre-vote.

    def ask_pre_votes(self, now: float) -> None:
        self.pre_voters = {self.me}
        if self.config.majority(self.pre_voters):
            self.stand(now, transfer=False)
            return
        level = logging.INFO if self.attempts == 1 else logging.DEBUG
        logger.log(level, "%s asks whether it may stand in term %d", self.me, self.term + 1)
        ask = PreVote(self.term + 1, self.journal.last_index, self.journal.last_term)
        for peer in self.other_voters():
            self.send_pre_vote(peer, ask)

    def send_pre_vote(self, peer: str, message: PreVote | PreVoteReply) -> None:
        """It binds nobody, so it need not wait for the disk to have our last entries.

        But it may not overtake a vote that does wait: whoever hears first that it may stand in
        the next term gives up this one, in which it was about to be elected.
        """
        voting = self.journal.synced < self.journal.spoken_for
        (self.send if voting else self.send_first)(peer, message)

    def on_pre_vote(self, peer: str, ask: PreVote, now: float) -> None:
        # Whether it was removed is for the asker to judge: our configuration may be the older.
        removed_at = self.removed_at(peer)
        granted = (
            ask.term > self.term
            and self.has_met(now)
            and ask.last >= self.floor
            and not self.leader_lives(now)
            and (ask.last_term, ask.last) >= (self.journal.last_term, self.journal.last_index)
        )
        if granted:
            self.give_way(peer, ask, now)
        elif self.leader_lives(now):
            self.refused = peer, ask, now
        self.send_pre_vote(peer, PreVoteReply(self.term, ask.term, granted, removed_at))

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
        asking = self.me in self.pre_voters
        if not asking or (ask.last_term, ask.last) > mine or peer < self.me:
            self.pre_voters = set()
            self.deadline = max(self.deadline, now + self.settings.retry_min)

    def on_pre_vote_reply(
        self, peer: str, incarnation: int, reply: PreVoteReply, now: float
    ) -> None:
        if reply.removed_at > self.config_index:
            self.removed_self = True
        if reply.term > self.term:
            self.step_down(reply.term, now)
        elif reply.granted and reply.asked == self.term + 1 and self.role != LEADER:
            given_way = self.me not in self.pre_voters
            if given_way or self.leader_lives(now) or not self.may_lead():
                return
            if self.config.is_voter(peer, incarnation):
                self.pre_voters.add(peer)
            if self.config.majority(self.pre_voters):
                self.stand(now, transfer=False)

    # Vote.

    def stand(self, now: float, *, transfer: bool) -> None:
        self.pre_voters = set()
        self.voters = {self.me}
        self.leader = None
        self.set_role(CANDIDATE)
        self.set_term(self.term + 1, self.me)
        logger.info("%s stands in term %d", self.me, self.term)
        self.deadline = now + self.retry_delay()
        if self.config.majority(self.voters):
            self.take_office(now)
            return
        ask = Vote(self.term, self.journal.last_index, self.journal.last_term, transfer)
        for peer in self.other_voters():
            self.send(peer, ask)

    def on_vote(self, peer: str, ask: Vote, now: float) -> None:
        if ask.term > self.term:
            if not ask.transfer and self.leader_lives(now):
                return  # A node that was cut off may not depose a leader that works.
            self.step_down(ask.term, now)
        # Granted also by a node that does not know yet that it votes, and to a disk it does not
        # know yet: our log may be the older one, and the only complete one could wait for ever.
        # The candidate counts the disks its own log names, and a replaced disk asks nobody.
        granted = (
            ask.term == self.term
            and self.role == FOLLOWER
            and self.has_met(now)
            and ask.last >= self.floor
            and self.vote in (None, peer)
            and (ask.last_term, ask.last) >= (self.journal.last_term, self.journal.last_index)
        )
        if granted:
            self.set_term(self.term, peer)
            self.deadline = now + self.silence()
        self.send(peer, VoteReply(self.term, granted))

    def on_vote_reply(self, peer: str, incarnation: int, reply: VoteReply, now: float) -> None:
        if reply.term > self.term:
            self.step_down(reply.term, now)
        elif reply.granted and reply.term == self.term and self.role == CANDIDATE:
            # A set of members, not a count: a reply may come twice, or from a stranger.
            if self.config.is_voter(peer, incarnation):
                self.voters.add(peer)
            if self.config.majority(self.voters):
                self.take_office(now)

    # Handing over.

    def tick_transfer(self, now: float) -> None:
        target = self.transfer_to
        if target is None:
            return
        progress = self.progress.get(target)
        if now >= self.transfer_until or progress is None:
            self.transfer_to = None
            self.answer_transfer(False)
        elif progress.match == self.journal.last_index and not self.transfer_sent:
            self.transfer_sent = True
            self.send(target, TimeoutNow(self.term))

    def on_timeout_now(self, peer: str, message: TimeoutNow, now: float) -> None:
        if message.term == self.term and peer == self.leader and self.may_lead():
            self.stand(now, transfer=True)

    def check_quorum(self, now: float) -> None:
        """Step down when no majority answered for two election timeouts."""
        since = now - 2 * self.settings.silence_min
        heard = {p for p, progress in self.progress.items() if progress.heard_at > since}
        require(self.role == LEADER, "only a leader checks its quorum")
        if self.full or not self.config.majority(heard | {self.me}):
            self.step_down(self.term, now)
