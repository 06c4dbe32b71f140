"""One node's part in the agreement, without a clock, a socket or a thread.

`Raft` owns the parts and hands each message to the one that it is for. The parts share one value,
`NodeState`; each has what it changes, and is given the parts that it needs.

`receive`, `link_up`, `link_down` and the calls of the port change state; `step` carries on from
whatever it finds. After each, the owner (the asyncio driver, the simulator) sends what `outbox`
releases, runs the journal's batch and the jobs on its helper threads, and calls `run_answers`.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from .applying import Applying
from .election import Election
from .faults import CallRefused, Fatal
from .follower import Follower
from .freshness import Freshness
from .handover import Handover
from .join import Join, check_contacts
from .journal import COMMAND, Journal
from .member_changes import MemberChanges
from .members import Members
from .membership import Configuration
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
    NodeNotice,
    PreVote,
    PreVoteReply,
    SnapshotOffer,
    TimeoutNow,
    Vote,
    VoteReply,
)
from .node_state import NodeState
from .outbox import HelperJobs, Outbox
from .port import Disk, LeadershipWatcher, Machine, RaftSettings, Reply, Status
from .proposals import Proposals
from .reads import Reads
from .replication import Replication
from .snapshot import Snapshots
from .snapshot_receiver import SnapshotReceiver, stand_on_latest
from .snapshot_sender import SnapshotSender
from .start import begin_at_state, check_journal_is_there
from .status import status_of
from .terms import Terms
from .witness import Witness

logger = logging.getLogger(__name__)


class Raft:
    """See the head of this file."""

    # The simulator has one of these exchanged for a broken one.
    applying_type: type[Applying] = Applying
    election_type: type[Election] = Election
    follower_type: type[Follower] = Follower
    changes_type: type[MemberChanges] = MemberChanges
    proposals_type: type[Proposals] = Proposals
    reads_type: type[Reads] = Reads
    receiver_type: type[SnapshotReceiver] = SnapshotReceiver
    replication_type: type[Replication] = Replication

    def __init__(
        self,
        me: str,
        contacts: dict[str, str],
        journal: Journal,
        disk: Disk,
        machine: Machine,
        watcher: LeadershipWatcher,
        dice: random.Random,
        settings: RaftSettings,
        now: float,
    ) -> None:
        check_contacts(contacts)
        self.me, self.journal, self.settings = me, journal, settings
        self.machine, self.watcher = machine, watcher
        self.snapshots = Snapshots(disk)
        check_journal_is_there(journal, self.snapshots, machine)
        self.stand_on_snapshot()
        self.node = node = NodeState(me, journal, dice, settings)
        self.members = Members(node)
        self.members.follow_log()
        begin_at_state(node, self.members, self.snapshots, machine)
        self.outbox = Outbox(journal, settings.outbox_max, settings.outbox_bytes)
        self.jobs = HelperJobs()
        self.notified_removal = False
        self.make_parts(dict(sorted(contacts.items())))
        if node.bereft:
            logger.error("%s has lost its state and asks the leader for a snapshot", me)
        self.join.begin(dice.getrandbits(48))
        self.election.deadline = now + node.silence()
        # Before there is a cluster nobody can know anything of this disk.
        self.election.meet_until = now + settings.meet if self.members.formed else now

    def make_parts(self, contacts: dict[str, str]) -> None:
        """Give each part those it needs; none needs one that comes after it."""
        node, members, outbox, jobs = self.node, self.members, self.outbox, self.jobs
        self.witness, self.freshness = Witness(node), Freshness()
        self.proposals = self.proposals_type(node)
        self.sender = SnapshotSender(node, outbox, jobs, self.snapshots, self.machine)
        self.receiver = self.receiver_type(node, members, outbox, jobs, self.sender, self.proposals)
        self.replication = leader = self.replication_type(
            node, members, outbox, self.sender, self.witness, self.freshness, self.watcher
        )
        self.follower = self.follower_type(node, members, outbox, self.witness, self.freshness)
        self.applying = self.applying_type(
            node, self.machine, self.proposals, leader, self.freshness
        )
        self.reads = self.reads_type(node, members, self.proposals, leader)
        self.election = self.election_type(node, members, outbox, self.witness, leader)
        self.handover = Handover(node, members, outbox, self.proposals, leader)
        self.changes = self.changes_type(node, members, self.proposals, leader)
        self.join = Join(
            contacts, node, members, outbox, self.witness, leader, self.election,
            self.changes.readmit,
        )  # fmt: skip
        self.terms = Terms(
            node, members, outbox, self.proposals, self.reads, leader, self.election,
            self.handover, self.follower, self.receiver,
        )  # fmt: skip

    # Start.

    def stand_on_snapshot(self) -> None:
        """Finish an installation that a crash cut off between its steps."""
        stand_on_latest(self.snapshots, self.journal, self.machine)

    # Driving.

    def step(self, now: float) -> bool:
        """Do what is due; return whether there is more to do at once."""
        node, leader = self.node, self.replication
        if self.members.removed and not self.notified_removal:
            self.notified_removal = True
            self.watcher.removed()
        self.join.tick(now)
        self.step_election(now)
        self.receiver.tick(now)
        more = False
        if node.leads:
            before = node.commit
            leader.advance_commit()
            if node.commit > before and self.proposals.bytes > self.settings.hurry_bytes:
                # With the next entries the others would hear of it when they have those to write.
                leader.beat(now)
            more = self.apply(now)
        if node.leads and self.changes.tick(now):
            self.terms.step_down(node.term, now)
        if node.leads:
            self.reads.tick(now)
            if now >= leader.beat_at:
                leader.beat(now)
            leader.replicate(now)
        else:
            more = self.apply(now)
        self.reads.answer()
        if not node.leads:
            self.members.notice_own_removal()
        if self.journal.bytes_kept > self.settings.compact_bytes:
            self.sender.compact()
        return more

    def step_election(self, now: float) -> None:
        if not self.node.leads:
            self.election.tick(now)
            return
        if not self.replication.has_quorum(now):
            self.terms.step_down(self.node.term, now)
        self.handover.tick(now)

    def apply(self, now: float) -> bool:
        was_full = self.node.state_full
        more = self.applying.apply(now)
        if self.node.state_full and self.node.leads:
            self.terms.step_down(self.node.term, now)
        if self.node.state_full and not was_full:
            self.free_room()
        return more

    def next_at(self, now: float) -> float:
        """When `step` is to be called at the latest."""
        if self.node.leads:
            return self.replication.beat_at
        # With a full disk it may not lead, and so looks again often enough.
        able = self.election.may_lead()
        at = max(self.election.deadline, now) if able else now + self.settings.silence_min
        if self.receiver.incoming is not None or not self.members.belongs or self.node.bereft:
            at = min(at, now + self.settings.probe)
        return at

    def disk_full(self, full: bool, now: float) -> None:
        """The last round could not be written, or now it could."""
        self.node.journal_full = full
        if full and self.node.leads:
            self.terms.step_down(self.node.term, now)

    def free_room(self) -> None:
        """Something found no room on the disk: give back what this node does not need."""
        self.sender.free_room()

    def run_answers(self) -> None:
        """Call back whoever waited. What they raise cannot touch the core, and is not hidden."""
        answers = self.proposals.answers
        while answers:
            answer = answers.popleft()
            try:
                answer()
            except Fatal:
                raise
            except Exception as error:
                self.caller_failed(error)

    def caller_failed(self, error: Exception) -> None:
        raise Fatal("a caller of consensus raised when it was answered") from error

    def stop(self) -> None:
        """Answer all who wait: what is not known is answered as unknown."""
        self.proposals.fail()
        self.reads.fail()
        self.run_answers()

    # Links and messages.

    def link_up(self, peer: str, now: float) -> None:
        self.members.connected.add(peer)
        self.watcher.linked(peer)
        self.join.greet(peer)
        if self.node.leads and peer in self.replication.progress:
            self.replication.progress[peer].reconnected(now)
        elif peer == self.node.leader:
            self.election.leader_linked(now)

    def link_down(self, peer: str, now: float) -> None:
        self.members.connected.discard(peer)
        if peer not in self.members.config.members:
            self.members.heard_disks.pop(peer, None)  # Names are free to strangers; memory is not.
            self.witness.forget(peer)
        if peer == self.node.leader and not self.node.leads:
            self.election.leader_unlinked(peer, now)

    def receive(self, peer: str, incarnation: int, message: Message, now: float) -> None:
        """Take a message from a peer whose name the transport vouches for."""
        self.members.heard_disks[peer] = incarnation
        # Who asks whether it may stand names the term after its own.
        self.witness.heard(peer, incarnation, message.term - isinstance(message, PreVote))
        match message:
            case Append() | Heartbeat() | SnapshotOffer():
                self.terms.from_leader(peer, message, now)
            case AppendAck() | HeartbeatAck() | PreVoteReply() | VoteReply():
                self.terms.answered(peer, incarnation, message, now)
            case PreVote():
                self.election.on_pre_vote(peer, message, now)
            case Vote():
                self.terms.asked_for_vote(peer, message, now)
            case TimeoutNow():
                self.election.on_timeout_now(peer, message, now)
            case Fetch():
                self.sender.on_fetch(peer, message, now)
            case Chunk():
                self.receiver.on_chunk(peer, message, now)
            case BadCopy():
                self.sender.on_bad_copy(message, now)
            case Introduce():
                self.join.on_introduce(peer, incarnation, message, now)
            case NodeNotice():
                self.watcher.on_notice(peer, message.text)

    # The port: changes and reads.

    def propose(self, data: bytes, reply: Reply, kind: int = COMMAND) -> None:
        """Replicate `data`. The reply is its index once applied, or None for "unknown"."""
        self.check_in_office()
        if self.node.transfer_to is not None:
            raise CallRefused(f"leadership is going to {self.node.transfer_to}; try there")
        if self.node.full:
            raise CallRefused(f"the disk of {self.me} is full; free space on it")
        if len(data) > self.journal.limits.entry:
            limit = self.journal.limits.entry
            raise CallRefused(f"{len(data)} bytes are over the limit of {limit} for an entry")
        waiting, limit = self.proposals.bytes, self.settings.waiting_bytes
        if waiting + len(data) > limit:
            raise CallRefused(f"{waiting} bytes wait already, {limit} may; try again later")
        self.proposals.add(kind, data, reply)

    def read(self, reply: Reply) -> None:
        """Answer once everything that was committed before this call is applied here."""
        self.check_in_office()
        self.reads.add(reply)

    def check_in_office(self) -> None:
        if not self.in_office or not self.node.leads:
            leads = self.known_leader or "not known"
            raise CallRefused(f"{self.me} does not lead; the leader is {leads}")

    def staleness(self, now: float) -> float:
        """Return how old the applied state is at most, in seconds by this node's clock."""
        if self.node.leads and self.in_office:
            return now - self.replication.quorum_at
        return now - self.freshness.as_of

    def silence_s(self, now: float) -> float:
        """How long ago this node last heard of a majority, in office or on the way there."""
        return now - self.replication.quorum_at if self.node.leads else self.staleness(now)

    def notify(self, text: bytes) -> None:
        """Send all connected members something that is not for the log; it may be lost."""
        for peer in sorted(self.members.connected & self.members.config.members.keys()):
            self.outbox.send_first(peer, NodeNotice(self.node.term, text), 64 + len(text))

    # The port: leadership and members.

    def transfer(self, target: str | None, now: float, reply: Callable[[bool], None]) -> None:
        """Hand leadership to a node, or to the one that is furthest; reply whether it went."""
        self.handover.begin(target, now, reply)

    def add_member(self, name: str, now: float, reply: Reply, client: str = "") -> None:
        """Admit a node that has introduced itself; it gets a vote when it has caught up. `client`
        is where clients reach it; empty: it says so itself."""
        self.changes.change(self.changes.admitting(name, client), now, reply)

    def remove_member(self, name: str, now: float, reply: Reply) -> None:
        """Take a node out of the cluster; it is notified and stops."""
        self.changes.change(self.changes.removing(name), now, reply)

    def move_member(self, name: str, address: str, client: str, now: float, reply: Reply) -> None:
        """Give a member other addresses: for nodes, for clients. An empty one stays as it was."""
        self.changes.change(self.changes.moving(name, address, client), now, reply)

    def transfer_target(self, target: str | None) -> str:
        """Who would lead instead; CallRefused if nobody can, or not this one."""
        return self.handover.choose(target)

    def make_snapshot(self) -> None:
        """Write the present state beside the journal, on the helper."""
        self.sender.make_snapshot()

    # The port: where this node stands.

    @property
    def term(self) -> int:
        return self.node.term

    @property
    def last_applied(self) -> int:
        return self.node.applied

    @property
    def journal_full(self) -> bool:
        return self.node.journal_full

    @property
    def bereft(self) -> bool:
        return self.node.bereft

    @property
    def known_leader(self) -> str | None:
        return self.node.known_leader

    @property
    def in_office(self) -> bool:
        """This node leads, and was announced as leader."""
        return self.replication.in_office

    @property
    def config(self) -> Configuration:
        return self.members.config

    @property
    def applicants(self) -> dict[str, tuple[int, str]]:
        return self.members.applicants

    @property
    def connected(self) -> set[str]:
        return self.members.connected

    @property
    def incarnation(self) -> int:
        return self.members.incarnation

    def status(self) -> Status:
        return status_of(self.node, self.members, self.replication, self.witness)
