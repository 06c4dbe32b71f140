"""Known defects, each of which can be switched on, to show that the simulator finds it.

The names are those of the audit of PySyncObj (`A1` to `A11`, `C4`, `C10`): each mutant brings one
of its defects back into the core or the journal. Those after them are mistakes of our own kind.
"""

from __future__ import annotations

import weakref
from dataclasses import replace

from ...cluster.raft.adapter import CANDIDATE, LEADER
from ...cluster.raft.applying import Applying
from ...cluster.raft.election import Election
from ...cluster.raft.faults import Fatal, Unsupported
from ...cluster.raft.follower import Follower
from ...cluster.raft.journal import Batch, Entry, Journal
from ...cluster.raft.manifest import Manifest
from ...cluster.raft.member_changes import MemberChanges
from ...cluster.raft.membership import Configuration
from ...cluster.raft.message import Append, AppendAck, HeartbeatAck, Message, Vote, VoteReply
from ...cluster.raft.port import Reply
from ...cluster.raft.proposals import Proposals
from ...cluster.raft.raft import Raft
from ...cluster.raft.reads import Reads
from ...cluster.raft.replication import Replication
from ...cluster.raft.snapshot_receiver import SnapshotReceiver
from .disk import SimDisk


class A1Truncates(Follower):
    """A follower deletes everything behind `prev`, also what is the same."""

    def store(self, message: Append) -> int:
        if message.prev < self.journal.last_index and message.prev >= self.node.commit:
            self.journal._truncate(message.prev + 1)
        return super().store(message)

    def on_append(self, peer: str, message: Append, now: float) -> None:
        super().on_append(peer, message, now)
        if self.node.commit > self.journal.last_index:
            self.node.commit = self.journal.last_index


class A2CommitsUnverifiedTail(SnapshotReceiver):
    """The offer of a snapshot raises commit over a log that nobody compared."""

    def on_offer(self, peer: str, manifest: Manifest, now: float) -> None:
        super().on_offer(peer, manifest, now)
        index = min(manifest.index, self.node.journal.last_index)
        if index > self.node.commit and not self.node.installing:
            self.node.commit = index


class A3DropsTheSuffix(Raft):
    """At start the journal must begin exactly where the snapshot ends, or it is cleared."""

    def stand_on_snapshot(self) -> None:
        super().stand_on_snapshot()
        journal, machine, latest = self.journal, self.machine, self.snapshots.latest
        if latest is not None and journal.base_index != latest.index:
            machine.restore(f"snapshots/{latest.index:020d}")
            journal.reset(latest.index, latest.term, latest.configs)


class A4RewritesInPlace(Journal):
    """A cut empties the journal first and writes the rest again afterwards."""

    def cut(self, index: int) -> None:
        if index <= self.base_index:
            return
        kept = self.entries(index + 1, self.last_index, 1 << 40) if index < self.last_index else []
        term, configs = self.term_at(index), [c for c in self.configs if c[0] <= index][-1:]
        synced = self.synced_index
        self.reset(index, term, configs)
        batch = self.take()
        if batch is not None:
            batch.run()
            self.end_round(batch)
        for entry in kept:
            self.append(entry)
        self.synced_index = synced


class A5IgnoresTheTermOfRounds(Replication):
    """The answer to a heartbeat counts whatever term it was given in."""

    def on_heartbeat_ack(self, peer: str, incarnation: int, ack: HeartbeatAck, now: float) -> None:
        super().on_heartbeat_ack(peer, incarnation, ack._replace(term=self.node.term), now)


class A5IgnoresTheTermOfAcks(Replication):
    """The answer to entries counts whatever term it was given in.

    The swarm has not met the schedule in hundreds of seeds: the follower must have lost the entry
    again, and lag, when the old answer comes.
    """

    def on_append_ack(self, peer: str, incarnation: int, ack: AppendAck, now: float) -> None:
        if ack.ok and ack.at <= self.journal.last_index:
            ack = ack._replace(term=self.node.term)
        super().on_append_ack(peer, incarnation, ack, now)


class CommitsOldTerms(Replication):
    """Copies of an entry of an old term commit it (figure 8 of the Raft paper)."""

    def advance_commit(self) -> None:
        voters, durable = self.members.config.voters, self.journal.synced_index
        match = [durable if v == self.node.me else self.progress[v].match for v in voters]
        index = min(durable, sorted(match, reverse=True)[len(voters) // 2])
        if index > self.node.commit:
            self.node.move_commit(index)


class CountsWhatItHasNotSynced(Replication):
    """A leader counts itself for an entry that its own disk is still writing."""

    def advance_commit(self) -> None:
        voters, last = self.members.config.voters, self.journal.last_index
        match = [last if v == self.node.me else self.progress[v].match for v in voters]
        index = sorted(match, reverse=True)[len(voters) // 2]
        if index > self.node.commit and self.journal.term_at(index) == self.node.term:
            self.node.commit = index


COMMITS: weakref.WeakKeyDictionary[SimDisk, int] = weakref.WeakKeyDictionary()


class A6BelievesTheCommitIndex(Raft):
    """The commit index is kept apart from the journal, at once, and believed at start."""

    began = False

    def step(self, now: float) -> bool:
        disk = self.snapshots.disk
        assert isinstance(disk, SimDisk)
        if not self.began:
            self.began = True
            self.node.commit = max(self.node.commit, COMMITS.get(disk, 0))
        more = super().step(now)
        COMMITS[disk] = max(COMMITS.get(disk, 0), self.node.commit)
        return more


class A7CallsBackBeforeCounting(Applying):
    """A caller that raises keeps its entry from being counted."""

    def apply_entry(self, entry: Entry) -> None:
        self.carry_out(entry)
        waiter = self.proposals.waiting.get(entry.index)
        if waiter is not None:
            del self.proposals.waiting[entry.index]
            self.proposals.bytes -= waiter[1]
            try:
                waiter[2](entry.index if waiter[0] == entry.term else None)
            except Fatal:
                raise
            except RuntimeError:
                return
        self.node.applied = entry.index
        self.count_applied(entry)

    def apply_committed(self) -> bool:
        limit = min(self.node.commit, self.journal.synced_index)
        if not self.node.installing and self.node.applied < limit:
            entry = self.journal.entry(self.node.applied + 1)
            self.apply_entry(entry)
        return self.node.applied < limit


class A8SkipsWhatItDoesNotKnow(Applying):
    """An entry of a later release is left out and not counted."""

    def apply_entry(self, entry: Entry) -> None:
        try:
            super().apply_entry(entry)
        except Unsupported:
            self.node.applied = entry.index


class A9GoesOnAfterLosingApplied(Follower):
    """Applied entries are deleted, and the node goes on as if nothing were wrong."""

    def check_truncation(self, index: int) -> None:
        """No objection."""

    def store(self, message: Append) -> int:
        if message.prev < self.journal.last_index:
            self.journal._truncate(max(message.prev, self.journal.base_index) + 1)
        verified = super().store(message)
        self.node.commit = min(self.node.commit, self.journal.last_index)
        return verified


class A10StartsEmpty(Raft):
    """Whoever has lost its state and its snapshot goes on with an empty state."""

    def step(self, now: float) -> bool:
        if self.node.bereft:
            self.node.bereft = False
            self.node.commit = self.node.applied = self.journal.base_index
        return super().step(now)


class P6ServesCorruption(Raft):
    """A damaged snapshot is taken for what was written."""

    def stand_on_snapshot(self) -> None:
        self.snapshots.verify = lambda manifest: None  # type: ignore[method-assign]  # No digests.
        super().stand_on_snapshot()


class A11TakesAnyOffer(SnapshotReceiver):
    """A snapshot that is older than the state takes its place."""

    def has_snapshot(self, manifest: Manifest) -> bool:
        return manifest.index <= self.node.journal.base_index

    def installed(self, manifest: Manifest) -> None:
        node = self.node
        node.commit = min(node.commit, manifest.index - 1)
        node.applied = min(node.applied, node.commit)
        node.journal.reset(manifest.index, manifest.term, manifest.configs)
        super().installed(manifest)


class C4RepairsOneByOne(Replication):
    """A refusal takes `next` for granted, beyond the end of the log too, and asks no more."""

    def on_append_ack(self, peer: str, incarnation: int, ack: AppendAck, now: float) -> None:
        progress = self.progress.get(peer)
        if not ack.ok and progress is not None and ack.term == self.node.term:
            progress.heard_at = now
            progress.next = max(progress.match + 1, ack.prev)
            progress.probing, progress.probe_at = True, now + self.settings.heartbeat
            progress.in_flight, progress.probed = 0, -1
            progress.sent.clear()
            return
        super().on_append_ack(peer, incarnation, ack, now)


class C10LeavesCallersWaiting(Proposals):
    """Whoever waits on a leader that steps down, or is jumped over, waits for ever.

    The entry that comes in place of the awaited one answers too. So chance shows it only where a
    cluster has no leader for longer than a caller may wait, which one seed in some forty has.
    """

    def fail(self, upto: int | None = None) -> None:
        """Notify nobody."""


class VotesTwice(Election):
    """A13 and the like: a vote is given to whoever asks last."""

    def on_vote(self, peer: str, ask: Vote, now: float) -> None:
        if ask.term == self.node.term and self.node.role not in (LEADER, CANDIDATE):
            mine = (self.journal.last_term, self.journal.last_index)
            if (ask.last_term, ask.last) >= mine:
                self.outbox.send(peer, VoteReply(self.node.term, True))
                return
        super().on_vote(peer, ask, now)


class ReadsWithoutARound(Reads):
    """A leader believes in itself."""

    def tick(self, now: float) -> None:
        self.confirmed += [(self.node.commit, reply) for reply in self.new]
        self.new = []
        super().tick(now)


class SyncsNothing(Journal):
    """A round is taken for durable when it is written."""

    def take(self, *, idle: bool = False) -> Batch | None:
        batch = super().take(idle=idle)
        if batch is not None and len(self._segments) > 0 and len(batch.ops) == 2:
            batch.ops = batch.ops[:1]
        return batch


class ForgetsProgressOfDisk(MemberChanges):
    """A leader keeps what it knew of the disk that was replaced."""

    def change(self, config: Configuration, now: float, reply: Reply = lambda _: None) -> None:
        progress = self.replication.progress
        before = dict(progress)
        super().change(config, now, reply)
        for peer in sorted(before.keys() & progress.keys()):
            progress[peer] = replace(before[peer], disk=progress[peer].disk)


def speaks_too_soon(core: Raft) -> list[tuple[str, Message]]:
    """B1: messages leave before what they say is durable."""
    return core.outbox.release(core.journal.end)
