"""How a leader changes the members: one change at a time, moving one voter at most."""

from __future__ import annotations

from .faults import CallRefused, require
from .journal import CONFIG
from .members import Members
from .membership import CONFIG_MAX, Configuration
from .node_state import NodeState
from .port import Reply
from .progress import FollowerProgress
from .proposals import Proposals
from .replication import Replication


class MemberChanges:
    """See the head of this file."""

    def __init__(
        self,
        node: NodeState,
        members: Members,
        proposals: Proposals,
        replication: Replication,
    ) -> None:
        self.node, self.members, self.proposals = node, members, proposals
        self.replication = replication

    def possible(self) -> bool:
        """One change at a time, and none before this term has committed something."""
        commit = self.node.commit
        return (
            self.node.leads
            and self.node.transfer_to is None
            and commit >= self.replication.noop_index
            and commit >= self.members.config_index
        )

    def check_possible(self) -> None:
        self.node.check_leads()
        if not self.possible():
            raise CallRefused("another change of members is not committed yet; try again")

    # What may be asked for: the configuration it would make, or CallRefused.

    def admitting(self, name: str, client: str = "") -> Configuration:
        """The members with this one; `client` is where clients reach it, empty: it says so."""
        self.check_possible()
        if name in self.members.config.members:
            raise CallRefused(f"{name} is a member already")
        if name not in self.members.applicants:
            raise CallRefused(
                f"{name} has not introduced itself; start it with this cluster's nodes in its list,"
                " and add it once its log says that it waits to be let in"
            )
        incarnation, address = self.members.applicants[name]
        config = self.members.config.with_learner(name, incarnation, address, client)
        config.check_size()
        return config

    def removing(self, name: str) -> Configuration:
        """The members without this one."""
        self.check_possible()
        return self.members.config.without(name)

    def moving(self, name: str, address: str, client: str) -> Configuration:
        """The members with this one elsewhere; an empty address stays as it was."""
        self.check_possible()
        config = self.members.config.moved(name, address, client)
        config.check_size()
        return config

    # What is done.

    def change(self, config: Configuration, now: float, reply: Reply = lambda _: None) -> None:
        require(self.possible(), "two changes of members at a time")
        before = self.members.config.voters
        require(
            len(set(before) ^ set(config.voters)) <= 1,
            f"voters would go from {before} to {config.voters} at once",
        )
        self.proposals.add(CONFIG, config.encode(), reply)
        self.members.follow_log()
        self.replication.follow_config(now)

    def readmit(self, peer: str, now: float) -> None:
        """A member came back with an empty disk: take it in as a learner."""
        member = self.members.config.members.get(peer)
        if not self.node.leads or member is None or not self.possible():
            return
        incarnation, address = self.members.applicants[peer]
        if member.incarnation != incarnation:
            config = self.members.config.with_learner(peer, incarnation, address)
            if len(config.encode()) <= CONFIG_MAX:
                self.change(config, now)

    def tick(self, now: float) -> bool:
        """Promote learners that caught up, take members back in, let go of removed ones; return
        whether this node itself is removed, and so leads no longer."""
        members, progress = self.members, self.replication.progress
        committed = members.config_index <= self.node.commit
        for peer in [p for p in progress if p not in members.config.members]:
            if committed and progress[peer].known_commit >= members.config_index:
                del progress[peer]
        if self.node.me not in members.config.members and committed:
            self.replication.beat(now)
            members.removed = True
            return True
        if self.possible() and not self.promote_one(now):
            for peer in sorted(members.applicants):
                self.readmit(peer, now)
                if not self.possible():
                    break
        return False

    def promote_one(self, now: float) -> bool:
        """Give a vote to a learner that has caught up, if there is one."""
        members, progress = self.members.config.members, self.replication.progress
        for peer, member in sorted(members.items()):
            if member.voter or peer not in progress:
                continue
            config = self.members.config.with_voter(peer)
            if self.caught_up(progress[peer]) and self.could_commit(config, peer, now):
                self.change(config, now)
                return True
        return False

    def caught_up(self, progress: FollowerProgress) -> bool:
        left = self.node.journal.last_index - progress.match
        behind_noop = progress.match < self.replication.noop_index
        return not progress.probing and not behind_noop and left <= self.node.settings.apply_step

    def could_commit(self, config: Configuration, newest: str, now: float) -> bool:
        """Return whether a configuration has its majority here and now, the new voter included.

        A node that died since it caught up would only raise the number of votes that are needed.
        """
        since = now - self.node.settings.silence_min
        heard = {
            peer
            for peer, progress in self.replication.progress.items()
            if peer in self.members.connected and progress.heard_at > since
        }
        return newest in heard and config.majority(heard | {self.node.me})
