"""How the log gets from the leader to the others, and when an entry counts as committed.

The rules, checked at run time:
 1. Entries are deleted only from the first conflict on, never at or below commit or applied.
 2. Commit moves up only, over entries this leader is known to have the same as ours.
 3. Every message carries a term; another term's answer changes nothing.
 4. An ack raises `match` and `next` and never lowers them; a refusal never reaches `match`.
 5. What a leader sends and has not on its own disk yet it has created itself, in this term; it
    commits nothing before it has it there.

This is the leader's side; `follower.py` has the other.
"""

from __future__ import annotations

from .adapter import LEADER
from .faults import require
from .freshness import Freshness
from .journal import NOOP, Entry
from .members import Members
from .message import Append, AppendAck, Heartbeat, HeartbeatAck
from .node_state import NodeState
from .outbox import Outbox
from .port import LeadershipWatcher
from .progress import FollowerProgress
from .snapshot_sender import SnapshotSender
from .witness import Witness


class Replication:
    """What a leader knows of the others, and its term of office."""

    def __init__(
        self,
        node: NodeState,
        members: Members,
        outbox: Outbox,
        sender: SnapshotSender,
        witness: Witness,
        freshness: Freshness,
        watcher: LeadershipWatcher,
    ) -> None:
        self.node, self.journal, self.settings = node, node.journal, node.settings
        self.members, self.outbox, self.sender = members, outbox, sender
        self.witness, self.freshness, self.watcher = witness, freshness, watcher
        self.progress = sender.progress
        self.beat_at = 0.0
        self.round, self.round_at = 0, 0.0
        self.quorum_at = 0.0  # When a majority followed for sure.
        self.noop_index = 0
        self.in_office = False  # Leadership was announced to the watcher.

    # The office.

    def take_office(self, now: float) -> None:
        node = self.node
        require(not node.leads, f"{node.me} became leader of term {node.term} twice")
        node.set_role(LEADER)
        node.leader = node.me
        self.progress.clear()
        self.follow_config(now)
        self.quorum_at = self.round_at = now
        require(
            self.journal.spoken_index == self.journal.last_index,
            f"{node.me} leads with entries that came after its vote",
        )
        self.noop_index = self.journal.last_index + 1
        self.journal.append(Entry(self.noop_index, node.term, NOOP, b""))
        self.beat(now)
        self.replicate(now)

    def applied(self, index: int) -> None:
        """An entry is applied; with the first of its own a leader is in office."""
        if index == self.noop_index and self.node.leads:
            self.in_office = True
            self.watcher.leadership_gained(self.node.term)

    def leave_office(self) -> None:
        """Announce that this node does not lead any more; who waited is answered in this turn."""
        if self.in_office:
            self.in_office = False
            # It knew of everything that was committed while a majority followed it.
            self.freshness.heard(self.node.commit, self.quorum_at, self.node.applied)
            self.watcher.leadership_lost(self.node.term)

    def bear_witness(self) -> None:
        """Keep what a leader knows of the others' disks: nobody replaces what is committed."""
        for peer, progress in self.progress.items():
            self.witness.holds(peer, progress.disk, min(progress.match, self.node.commit))

    def has_quorum(self, now: float) -> bool:
        """Return whether a majority answered within two election timeouts, and there is room."""
        since = now - 2 * self.settings.silence_min
        heard = {p for p, progress in self.progress.items() if progress.heard_at > since}
        return not self.node.full and self.members.config.majority(heard | {self.node.me})

    # Sending.

    def disk_of(self, peer: str) -> int:
        """Return the incarnation a message to a peer is meant for, or 0 if any may have it.

        What a leader sends a follower is about the disk it knows; an empty one that has taken
        its place must not believe it. A follower answers whoever spoke last: its own
        configuration may be older than the disk it is led from.
        """
        if self.node.leads and peer in self.progress:
            return self.progress[peer].disk
        member = self.members.config.members.get(peer)
        known = member.incarnation if member is not None else 0
        return known if self.node.leads else self.members.heard_disks.get(peer, known)

    def follow_config(self, now: float) -> None:
        """Keep a progress for each member's disk; a removed one is kept until it knows."""
        for peer, member in sorted(self.members.config.members.items()):
            progress = self.progress.get(peer)
            same = progress is not None and progress.disk == member.incarnation
            if peer == self.node.me or same:
                continue
            # What a former disk had acknowledged is not on this one.
            self.progress[peer] = FollowerProgress(
                self.journal.last_index + 1, now, member.incarnation, probe_at=now
            )

    def beat(self, now: float) -> None:
        """Let everyone know that the leader lives; this waits for no entry to be durable."""
        self.beat_at = now + self.settings.heartbeat
        age = now - self.quorum_at
        for peer, progress in self.progress.items():
            known = min(progress.match, self.node.commit)
            progress.known_commit = max(progress.known_commit, known)
            # Until something of this term is committed, more may be than is known here.
            echo = progress.echo if self.node.commit >= self.noop_index else 0.0
            beat = Heartbeat(self.node.term, self.round, self.node.commit, known, echo, age)
            self.outbox.send_first(peer, beat)

    def replicate(self, now: float) -> None:
        shared: dict[int, Append] = {}
        for peer, progress in self.progress.items():
            if peer in self.members.connected:
                self.feed(peer, progress, now, shared)

    def feed(
        self, peer: str, progress: FollowerProgress, now: float, shared: dict[int, Append]
    ) -> None:
        if progress.lacks:
            # Its journal is whole, so it goes on as any other beside this.
            progress.lacks = progress.lacks if now < progress.lacks_until else 0
            self.sender.offer(peer, progress, now)
        if progress.next <= self.journal.base_index:
            if not progress.lacks:
                self.sender.offer(peer, progress, now)
        elif progress.probing:
            if now >= progress.probe_at:
                if progress.probed == progress.next - 1:
                    progress.wait_longer(self.settings.probe)
                progress.probe_at = now + max(self.settings.probe, progress.backoff)
                progress.probed = progress.next - 1
                message = self.append_from(progress.next, shared)
                self.send_entries(peer, message, size_of(message))
        elif progress.match < progress.next - 1 and now - progress.moved_at > (
            2 * max(self.settings.probe, progress.backoff)
        ):
            progress.wait_longer(self.settings.probe)
            progress.probe(progress.match + 1, now)
            self.feed(peer, progress, now, shared)
        else:
            self.stream(peer, progress, now, shared)

    def stream(
        self, peer: str, progress: FollowerProgress, now: float, shared: dict[int, Append]
    ) -> None:
        while (
            progress.next <= self.journal.last_index
            and progress.in_flight < self.settings.window_bytes
        ):
            message = self.append_from(progress.next, shared)
            size = size_of(message)
            if not progress.sent:
                progress.moved_at = now
            progress.next += len(message.entries)
            progress.sent.append((progress.next - 1, size))
            progress.in_flight += size
            self.send_entries(peer, message, size)

    def send_entries(self, peer: str, message: Append, size: int) -> None:
        """Let entries go while our own disk still writes them (thesis of Raft, 10.2.1).

        They wait for our vote, and with it for all that came before it; what came after it is
        our own of this term. After a crash nobody can take another entry of this term for them:
        this node stands in a later one.
        """
        require(self.node.leads, f"{self.node.me} sends entries and does not lead")
        self.outbox.send_first(peer, message, size)

    def append_from(self, first: int, shared: dict[int, Append]) -> Append:
        """Return the append that begins at `first`; one for all who need the same."""
        if first not in shared:
            last, size = self.journal.last_index, self.settings.append_bytes
            entries = self.journal.entries(first, last, size) if first <= last else []
            prev, node = first - 1, self.node
            prev_term = self.journal.term_at(prev)
            shared[first] = Append(node.term, prev, prev_term, node.commit, tuple(entries))
        return shared[first]

    def on_append_ack(self, peer: str, incarnation: int, ack: AppendAck, now: float) -> None:
        progress = self.answer_of(peer, incarnation, ack.term, now)
        if progress is None:
            return
        if ack.ok:
            require(
                ack.at <= self.journal.last_index, f"{peer} acknowledged {ack.at}, unknown here"
            )
            progress.acked(ack.at, now)
        elif ack.prev >= progress.match and (not progress.probing or ack.prev == progress.probed):
            # Of several refusals to what was under way the first counts: `probe` forgets the rest.
            progress.probe(min(progress.next, ack.at, self.journal.last_index + 1), now)

    def answer_of(
        self, peer: str, incarnation: int, term: int, now: float
    ) -> FollowerProgress | None:
        """Return the progress an answer is about, if it is for this leader in this term."""
        member = self.members.config.members.get(peer)
        replaced = member is not None and member.incarnation != incarnation
        if term != self.node.term or not self.node.leads or peer not in self.progress or replaced:
            return None
        progress = self.progress[peer]
        progress.heard_at = now
        return progress

    def on_heartbeat_ack(self, peer: str, incarnation: int, ack: HeartbeatAck, now: float) -> None:
        progress = self.answer_of(peer, incarnation, ack.term, now)
        if progress is not None:
            require(ack.round <= self.round, f"{peer} answered round {ack.round}, not yet begun")
            progress.round = max(progress.round, ack.round)
            progress.echo = ack.at

    def advance_commit(self) -> None:
        """Commit what is durable on a majority, if it is of this term (Raft, section 5.4.2).

        And on our own disk: the others alone may be a majority, but what is committed here is
        read here, and after a crash this node must not be behind what it has answered.
        """
        voters = self.members.config.voters
        durable = self.journal.synced_index
        match = [durable if v == self.node.me else self.progress[v].match for v in voters]
        index = min(durable, sorted(match, reverse=True)[len(voters) // 2])
        if index > self.node.commit and self.journal.term_at(index) == self.node.term:
            self.node.move_commit(index)


def size_of(message: Append) -> int:
    return sum(len(e.data) for e in message.entries) + 64
