"""One node's part in the agreement, without a clock, a socket or a thread.

`receive`, `link_up`, `link_down` and the calls of the port change state; `step` carries on from
whatever it finds. After each, the owner sends what `outbox` releases, runs the journal's batch
and the jobs on its helper threads, and calls `answers`. The asyncio driver and the simulator are
such owners; both see only this.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable

from .catchup import stand_on_latest
from .disk import Disk
from .faults import Damaged, DiskFull, Fatal, Refused, require
from .introduction import Introduction
from .journal import COMMAND, CONFIG, Entry, Journal
from .membership import MEMBERS_MAX, Configuration, Member, is_address
from .message import (
    Append,
    AppendAck,
    BadCopy,
    Chunk,
    Fetch,
    Heartbeat,
    HeartbeatAck,
    Introduce,
    Message,
    Offer,
    PreVote,
    PreVoteReply,
    TimeoutNow,
    Vote,
    VoteReply,
    Word,
)
from .port import Machine, Peer, Reply, Settings, Status, Watcher
from .progress import Progress
from .segment import ADVICE
from .snapshot import Snapshots
from .walled import LEADER, ROLES
from .witness import Witness

logger = logging.getLogger(__name__)


class Core(Introduction):
    """See the head of this file."""

    def __init__(
        self,
        me: str,
        contacts: dict[str, str],
        journal: Journal,
        disk: Disk,
        machine: Machine,
        watcher: Watcher,
        dice: random.Random,
        settings: Settings,
        now: float,
    ) -> None:
        self.contacts = dict(sorted(contacts.items()))
        check_contacts(self.contacts)
        self.snapshots = Snapshots(disk)
        self.new_reads: list[Reply] = []
        self.rounds: deque[tuple[int, int, list[Reply]]] = deque()
        self.confirmed_reads: list[tuple[int, Reply]] = []
        self.applicants, self.announced, self.seen, self.told = {}, {}, {}, {}
        self.verified = {}
        self.witness, self.met = Witness(), set()
        self.check_journal_is_there(journal, machine)
        self.stand_on_snapshot(journal, machine)
        floor = self.snapshots.last_index
        lost = self.snapshots.lost
        super().__init__(me, journal, machine, watcher, dice, settings, floor, lost)
        if self.bereft:
            logger.error("%s has lost its state and asks the leader for a snapshot", me)
        self.begin(dice.getrandbits(48))
        self.deadline = now + self.silence()
        # Before there is a cluster nobody can know anything of this disk.
        self.meet_until = now + settings.meet if self.formed else now

    def check_journal_is_there(self, journal: Journal, machine: Machine) -> None:
        """A disk that has a state or a snapshot has a number, or its journal was lost: the number
        is durable before anything else is."""
        if "incarnation" not in journal.identity:
            applied = max(machine.applied(), self.snapshots.last_index)
            if applied or self.snapshots.lost:
                raise Damaged(
                    f"there is a state with entries up to {applied} and no journal: its files were "
                    f"removed, or hold nothing. {ADVICE}"
                )

    def stand_on_snapshot(self, journal: Journal, machine: Machine) -> None:
        """Finish an installation that a crash cut off between its steps."""
        stand_on_latest(self.snapshots, journal, machine)

    # Driving.

    def step(self, now: float) -> bool:
        """Do what is due; return whether there is more to do at once."""
        if self.removed_self:
            self.notice_removal()
        self.tick_introduction(now)
        self.tick_election(now)
        self.tick_incoming(now)
        more = False
        if self.role == LEADER:
            before = self.commit
            self.advance_commit()
            if self.commit > before and self.waiting_bytes > self.settings.hurry_bytes:
                # With the next entries the others would hear of it when they have those to write.
                self.beat(now)
            more = self.apply(now)
        if self.role == LEADER:
            self.tick_members(now)
        if self.role == LEADER:
            self.tick_reads(now)
            if now >= self.beat_at:
                self.beat(now)
            self.replicate(now)
        else:
            more = self.apply(now)
        self.answer_reads()
        if self.role != LEADER:
            self.notice_own_removal()
        if self.journal.bytes_kept > self.settings.compact_bytes:
            self.compact()
        return more

    def compact(self) -> None:
        """Make a snapshot, unless the last one would allow the same cut."""
        if self.tail_before(self.last_applied) > self.snapshots.last_index:
            self.make_snapshot()
        else:
            self.cut_journal()

    def next_at(self, now: float) -> float:
        """When `step` is to be called at the latest."""
        if self.role == LEADER:
            return self.beat_at
        # With a full disk it may not lead, and so looks again often enough.
        at = max(self.deadline, now) if self.may_lead() else now + self.settings.silence_min
        if self.incoming is not None or not self.belongs or self.bereft:
            at = min(at, now + self.settings.probe)
        return at

    def receive(self, peer: str, incarnation: int, message: Message, now: float) -> None:
        """Take a message from a peer whose name the transport vouches for."""
        self.heard_disks[peer] = incarnation
        # Who asks whether it may stand names the term after its own.
        self.witness.heard(peer, incarnation, message.term - isinstance(message, PreVote))
        match message:
            case Append():
                self.on_append(peer, message, now)
            case AppendAck():
                self.on_append_ack(peer, incarnation, message, now)
            case Heartbeat():
                self.on_heartbeat(peer, message, now)
            case HeartbeatAck():
                self.on_heartbeat_ack(peer, incarnation, message, now)
            case PreVote():
                self.on_pre_vote(peer, message, now)
            case PreVoteReply():
                self.on_pre_vote_reply(peer, incarnation, message, now)
            case Vote():
                self.on_vote(peer, message, now)
            case VoteReply():
                self.on_vote_reply(peer, incarnation, message, now)
            case TimeoutNow():
                self.on_timeout_now(peer, message, now)
            case Offer():
                self.on_offer(peer, message, now)
            case Fetch():
                self.on_fetch(peer, message, now)
            case Chunk():
                self.on_chunk(peer, message, now)
            case BadCopy():
                self.on_bad_copy(message, now)
            case Introduce():
                self.on_introduce(peer, incarnation, message, now)
            case Word():
                self.watcher.told(peer, message.text)

    def tell(self, text: bytes) -> None:
        """Tell all connected members something that is not for the log; it may be lost."""
        for peer in sorted(self.connected & self.config.members.keys()):
            self.send_first(peer, Word(self.term, text), 64 + len(text))

    def disk_full(self, full: bool, now: float) -> None:
        """The last round could not be written, or now it could."""
        self.journal_full = full
        if full and self.role == LEADER:
            self.step_down(self.term, now)

    def apply(self, now: float) -> bool:
        """As `apply_committed`; what the machine has no room for waits, and is tried again. Until
        then this node leads no more and takes no entries."""
        if self.state_full and now < self.apply_at:
            return False
        try:
            more = self.apply_committed()
        except DiskFull as full:
            if not self.state_full:
                logger.error("%s: the state cannot be written (%s); nothing is lost", self.me, full)
            self.state_full, self.apply_at = True, now + self.settings.room
            if self.role == LEADER:
                self.step_down(self.term, now)
            return False
        self.state_full = False
        if self.role == LEADER and self.in_office and self.last_applied == self.commit:
            # Should the next entry find no room, what is here may still be read as old.
            self.freshness.heard(self.commit, self.quorum_at, self.last_applied)
        return more

    def run_answers(self) -> None:
        """Call back whoever waited. What they raise cannot touch the core, and is not hidden."""
        while self.answers:
            answer = self.answers.popleft()
            try:
                answer()
            except Fatal:
                raise
            except Exception as error:
                self.caller_failed(error)

    def caller_failed(self, error: Exception) -> None:
        raise Fatal("a caller of consensus raised when it was answered") from error

    # The port: changes.

    def propose(self, data: bytes, reply: Reply) -> None:
        """Replicate `data`. The reply is its index once applied, or None for "unknown"."""
        if not self.in_office or self.role != LEADER:
            leader = self.known_leader or "not known"
            raise Refused(f"{self.me} does not lead; the leader is {leader}")
        if self.transfer_to is not None:
            raise Refused(f"leadership is going to {self.transfer_to}; try there")
        if self.full:
            raise Refused(f"the disk of {self.me} is full; free space on it")
        if len(data) > self.journal.limits.entry:
            limit = self.journal.limits.entry
            raise Refused(f"{len(data)} bytes are over the limit of {limit} for an entry")
        if self.waiting_bytes + len(data) > self.settings.waiting_bytes:
            raise Refused(
                f"{self.waiting_bytes} bytes wait already, {self.settings.waiting_bytes} may; "
                "try again later"
            )
        self.add_entry(COMMAND, data, reply)

    def add_entry(self, kind: int, data: bytes, reply: Reply) -> None:
        index = self.journal.last_index + 1
        size = len(data) + 64
        self.journal.append(Entry(index, self.term, kind, data))
        self.waiting[index] = (self.term, size, reply)
        self.waiting_bytes += size

    # The port: reads.

    def read(self, reply: Reply) -> None:
        """Answer once everything that was committed before this call is applied here."""
        if not self.in_office or self.role != LEADER:
            leader = self.known_leader or "not known"
            raise Refused(f"{self.me} does not lead; the leader is {leader}")
        if len(self.new_reads) >= self.settings.reads_max:
            raise Refused(f"{len(self.new_reads)} reads wait already; try again later")
        self.new_reads.append(reply)

    def tick_reads(self, now: float) -> None:
        """Confirm leadership by rounds of heartbeats; reads that come meanwhile share the next."""
        rounds = sorted(
            (self.round if v == self.me else self.progress[v].round for v in self.config.voters),
            reverse=True,
        )
        confirmed = rounds[len(rounds) // 2]
        while self.rounds and self.rounds[0][0] <= confirmed:
            _, index, replies = self.rounds.popleft()
            self.confirmed_reads += [(index, reply) for reply in replies]
        if confirmed == self.round:
            # The round began before this moment, by at most one heartbeat.
            self.quorum_at = self.round_at
            if self.new_reads or now >= self.beat_at:
                self.begin_round(now)

    round_at = 0.0

    def begin_round(self, now: float) -> None:
        self.round += 1
        self.round_at = now
        if self.new_reads:
            self.rounds.append((self.round, self.commit, self.new_reads))
            self.new_reads = []
        self.beat(now)
        if self.config.majority({self.me}):
            self.tick_reads(now)

    def answer_reads(self) -> None:
        waiting = []
        for index, reply in self.confirmed_reads:
            if index <= self.last_applied:
                self.answer(reply, index)
            else:
                waiting.append((index, reply))
        self.confirmed_reads = waiting

    def fail_reads(self) -> None:
        for reply in self.new_reads:
            self.answer(reply, None)
        for _, _, replies in self.rounds:
            for reply in replies:
                self.answer(reply, None)
        self.new_reads = []
        self.rounds.clear()

    def staleness(self, now: float) -> float:
        """Return how old the applied state is at most, in seconds by this node's clock."""
        if self.role == LEADER and self.in_office:
            return now - self.quorum_at
        return now - self.freshness.as_of

    def unheard(self, now: float) -> float:
        """How long ago this node last heard of a majority, in office or on the way there."""
        return now - self.quorum_at if self.role == LEADER else self.staleness(now)

    # The port: leadership and members.

    def transfer(self, target: str | None, now: float, reply: Callable[[bool], None]) -> None:
        """Hand leadership to a node, or to the one that is furthest; reply whether it went."""
        self.transfer_to = self.heir(target)
        self.transfer_until = now + self.settings.transfer
        self.transfer_sent = False
        self.transfer_reply = reply

    def heir(self, target: str | None) -> str:
        """Who would lead instead; Refused if nobody can, or not this one."""
        if self.role != LEADER:
            raise Refused(f"{self.me} does not lead; ask {self.known_leader or 'the leader'}")
        if self.transfer_to is not None:
            raise Refused(f"leadership is already going to {self.transfer_to}")
        ready = [v for v in self.other_voters() if v in self.connected]
        if target is None and ready:
            target = max(ready, key=lambda v: (self.progress[v].match, v))
        if target is None or target not in ready:
            others = f"those are {', '.join(ready)}" if ready else "there is none beside this node"
            raise Refused(f"{target or 'nobody'} is no connected voter; {others}")
        return target

    def may_change_members(self) -> bool:
        """One change at a time, and none before this term has committed something."""
        return (
            self.role == LEADER
            and self.transfer_to is None
            and self.commit >= self.noop_index
            and self.commit >= self.config_index
        )

    def add_member(self, name: str, now: float, reply: Reply, client: str = "") -> None:
        """Admit a node that has introduced itself; it gets a vote when it has caught up. `client`
        is where clients reach it; empty: it says so itself."""
        self.change_members(self.admitting(name, client), now, reply)

    def admitting(self, name: str, client: str = "") -> Configuration:
        """The members with this one; Refused if it may not be now."""
        self.check_may_change()
        if name in self.config.members:
            raise Refused(f"{name} is a member already")
        if name not in self.applicants:
            raise Refused(f"{name} has not introduced itself; start it with this cluster's nodes")
        incarnation, address = self.applicants[name]
        config = self.config.with_learner(name, incarnation, address, client)
        config.check_size()
        return config

    def remove_member(self, name: str, now: float, reply: Reply) -> None:
        """Take a node out of the cluster; it is told and stops."""
        self.change_members(self.removing(name), now, reply)

    def removing(self, name: str) -> Configuration:
        """The members without this one; Refused if it may not be now."""
        self.check_may_change()
        return self.config.without(name)

    def move_member(self, name: str, address: str, client: str, now: float, reply: Reply) -> None:
        """Give a member other addresses: for nodes, for clients. An empty one stays as it was."""
        self.change_members(self.moving(name, address, client), now, reply)

    def moving(self, name: str, address: str, client: str) -> Configuration:
        """The members with this one elsewhere; Refused if it may not be now."""
        self.check_may_change()
        config = self.config.moved(name, address, client)
        config.check_size()
        return config

    def check_may_change(self) -> None:
        if self.role != LEADER:
            raise Refused(f"{self.me} does not lead; ask {self.known_leader or 'the leader'}")
        if not self.may_change_members():
            raise Refused("another change of members is not committed yet; try again")

    def change_members(
        self, config: Configuration, now: float, reply: Reply = lambda _: None
    ) -> None:
        require(self.may_change_members(), "two changes of members at a time")
        require(
            len(set(self.config.voters) ^ set(config.voters)) <= 1,
            f"voters would go from {self.config.voters} to {config.voters} at once",
        )
        self.add_entry(CONFIG, config.encode(), reply)
        self.config_changed()
        self.follow_config(now)

    def tick_members(self, now: float) -> None:
        """Promote learners that caught up, take members back in, let go of removed ones."""
        for peer in [p for p in self.progress if p not in self.config.members]:
            if self.progress[peer].told >= self.config_index <= self.commit:
                del self.progress[peer]
        if self.me not in self.config.members and self.config_index <= self.commit:
            self.beat(now)
            self.removed_self = True
            self.step_down(self.term, now)
            return
        if not self.may_change_members():
            return
        for peer, member in sorted(self.config.members.items()):
            if member.voter or peer not in self.progress:
                continue
            config = self.config.with_voter(peer)
            if self.caught_up(self.progress[peer]) and self.could_commit(config, peer, now):
                self.change_members(config, now)
                return
        for peer in sorted(self.applicants):
            self.readmit(peer, now)
            if not self.may_change_members():
                return

    def caught_up(self, progress: Progress) -> bool:
        left = self.journal.last_index - progress.match
        behind_noop = progress.match < self.noop_index
        return not progress.probing and not behind_noop and left <= self.settings.apply_step

    def could_commit(self, config: Configuration, newest: str, now: float) -> bool:
        """Tell whether a configuration has its majority here and now, the new voter included.

        A node that died since it caught up would only raise the number of votes that are needed.
        """
        since = now - self.settings.silence_min
        heard = {
            peer
            for peer, progress in self.progress.items()
            if peer in self.connected and progress.heard_at > since
        }
        return newest in heard and config.majority(heard | {self.me})

    def notice_own_removal(self) -> None:
        """See from the log that this node was removed."""
        if (
            self.formed
            and self.me not in self.config.members
            and 0 < self.config_index <= self.last_applied
            and self.was_member
        ):
            self.removed_self = True
        # By its disk: the log may begin with times in which another disk bore its name.
        self.was_member = self.was_member or self.belongs

    was_member = False

    def notice_removal(self) -> None:
        if not self.told_removed:
            self.told_removed = True
            self.watcher.removed()

    def is_member(self, peer: str) -> bool:
        """Whether it speaks for the disk that is a member, as far as it has spoken. It does not
        when a folder came back that was taken for lost."""
        member = self.config.members[peer]
        return self.heard_disks.get(peer, member.incarnation) == member.incarnation

    def status(self) -> Status:
        peers = {
            name: Peer(
                voter=member.voter,
                address=member.address,
                client=member.client,
                connected=name == self.me or (name in self.connected and self.is_member(name)),
                match=self.progress[name].match if name in self.progress else 0,
            )
            for name, member in self.config.members.items()
        }
        return Status(
            node=self.me,
            role=ROLES[self.role],
            term=self.term,
            leader=self.known_leader,
            ready=self.in_office,
            last_index=self.journal.last_index,
            commit=self.commit,
            applied=self.last_applied,
            durable=self.journal.synced_index,
            base=self.journal.base_index,
            full=self.full,
            bereft=self.bereft,
            removed=self.removed_self,
            missing=self.floor if self.floor > self.journal.last_index else 0,
            peers=peers,
        )


def check_contacts(contacts: dict[str, str]) -> None:
    """Refuse a list of nodes that could not be kept as members."""
    if len(contacts) > MEMBERS_MAX:
        raise Refused(f"{len(contacts)} nodes are listed; a cluster has at most {MEMBERS_MAX}")
    for name, address in contacts.items():
        if not is_address(address):
            raise Refused(f"{name} has address {address!r}, which is not host:port; correct it")
    Configuration({n: Member(1 << 55, a, True) for n, a in contacts.items()}).check_size()
