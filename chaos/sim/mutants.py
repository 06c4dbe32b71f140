"""Known defects, each of which can be switched on, to show that the simulator finds it.

The names are those of the audit of PySyncObj (`A1` to `A11`, `C4`, `C10`): each mutant brings one
of its defects back into the core or the journal. Those after them are mistakes of our own kind.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace

from ...cluster.raft.core import Core
from ...cluster.raft.faults import Fatal, Unsupported
from ...cluster.raft.journal import Batch, Entry, Journal
from ...cluster.raft.membership import Configuration
from ...cluster.raft.message import Append, AppendAck, HeartbeatAck, Message, Offer, Vote, VoteReply
from ...cluster.raft.port import Machine, Reply
from ...cluster.raft.snapshot import Manifest
from ...cluster.raft.walled import CANDIDATE, LEADER
from .cluster import Kit, Schedule
from .directed import figure_8, late_ack, lone_leader
from .disk import SimDisk
from .endless import (
    clears_at_once,
    forgets_the_rest,
    tells_all_dependents,
    tells_whole_chains,
    walks_over_the_ledger,
)
from .rule_mutants import (
    DiesOfIt,
    LapsesAtOnce,
    LapsesByTheWall,
    NewLeader,
    coalesces_all,
    counts_held_runs,
    doubles_occurrences,
    drops_neighbours,
    drops_occurrences,
    forgets_tokens,
    ignores_the_grace,
    ignores_the_time,
    skips_for_overlap,
    skips_for_quota,
    stands_by_hand,
)


class A1Truncates(Core):
    """A follower deletes everything behind `prev`, also what is the same."""

    def store(self, message: Append) -> int:
        if message.prev < self.journal.last_index and message.prev >= self.commit:
            self.journal._void_from(message.prev + 1)
        return super().store(message)

    def on_append(self, peer: str, message: Append, now: float) -> None:
        super().on_append(peer, message, now)
        if self.commit > self.journal.last_index:
            self.commit = self.journal.last_index


class A2CommitsUnverifiedTail(Core):
    """The offer of a snapshot raises commit over a log that nobody compared."""

    def on_offer(self, peer: str, offer: Offer, now: float) -> None:
        super().on_offer(peer, offer, now)
        index = min(Manifest.decode(offer.manifest).index, self.journal.last_index)
        if index > self.commit and not self.installing:
            self.commit = index


class A3DropsTheSuffix(Core):
    """At start the journal must begin exactly where the snapshot ends, or it is cleared."""

    def stand_on_snapshot(self, journal: Journal, machine: Machine) -> None:
        super().stand_on_snapshot(journal, machine)
        latest = self.snapshots.latest
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
            self.settled(batch)
        for entry in kept:
            self.append(entry)
        self.synced_index = synced


class A5IgnoresTheTermOfRounds(Core):
    """The answer to a heartbeat counts whatever term it was given in."""

    def on_heartbeat_ack(self, peer: str, incarnation: int, ack: HeartbeatAck, now: float) -> None:
        super().on_heartbeat_ack(peer, incarnation, ack._replace(term=self.term), now)


class A5IgnoresTheTermOfAcks(Core):
    """The answer to entries counts whatever term it was given in.

    The swarm has not met the schedule in hundreds of seeds: the follower must have lost the entry
    again, and lag, when the old answer comes.
    """

    def on_append_ack(self, peer: str, incarnation: int, ack: AppendAck, now: float) -> None:
        if ack.ok and ack.at <= self.journal.last_index:
            ack = ack._replace(term=self.term)
        super().on_append_ack(peer, incarnation, ack, now)


class CommitsOldTerms(Core):
    """Copies of an entry of an old term commit it (figure 8 of the Raft paper)."""

    def advance_commit(self) -> None:
        voters, durable = self.config.voters, self.journal.synced_index
        match = [durable if v == self.me else self.progress[v].match for v in voters]
        index = min(durable, sorted(match, reverse=True)[len(voters) // 2])
        if index > self.commit:
            self.move_commit(index)


class CountsWhatItHasNotSynced(Core):
    """A leader counts itself for an entry that its own disk is still writing."""

    def advance_commit(self) -> None:
        voters, last = self.config.voters, self.journal.last_index
        match = [last if v == self.me else self.progress[v].match for v in voters]
        index = sorted(match, reverse=True)[len(voters) // 2]
        if index > self.commit and self.journal.term_at(index) == self.term:
            self.commit = index


COMMITS: weakref.WeakKeyDictionary[SimDisk, int] = weakref.WeakKeyDictionary()


class A6BelievesTheCommitIndex(Core):
    """The commit index is kept apart from the journal, at once, and believed at start."""

    began = False

    def step(self, now: float) -> bool:
        disk = self.snapshots.disk
        assert isinstance(disk, SimDisk)
        if not self.began:
            self.began = True
            self.commit = max(self.commit, COMMITS.get(disk, 0))
        more = super().step(now)
        COMMITS[disk] = max(COMMITS.get(disk, 0), self.commit)
        return more


class A7CallsBackBeforeCounting(Core):
    """A caller that raises keeps its entry from being counted."""

    def apply_entry(self, entry: Entry) -> None:
        self.carry_out(entry)
        waiter = self.waiting.get(entry.index)
        if waiter is not None:
            del self.waiting[entry.index]
            self.waiting_bytes -= waiter[1]
            try:
                waiter[2](entry.index if waiter[0] == entry.term else None)
            except Fatal:
                raise
            except RuntimeError:
                return
        self.last_applied = entry.index
        self.applied_entry(entry)

    def apply_committed(self) -> bool:
        limit = min(self.commit, self.journal.synced_index)
        if not self.installing and self.last_applied < limit:
            entry = self.journal.entry(self.last_applied + 1)
            self.apply_entry(entry)
        return self.last_applied < limit


class A8SkipsWhatItDoesNotKnow(Core):
    """An entry of a later release is left out and not counted."""

    def apply_entry(self, entry: Entry) -> None:
        try:
            super().apply_entry(entry)
        except Unsupported:
            self.last_applied = entry.index


class A9GoesOnAfterLosingApplied(Core):
    """Applied entries are deleted, and the node goes on as if nothing were wrong."""

    def void_from(self, index: int) -> None:
        """No objection."""

    def store(self, message: Append) -> int:
        if message.prev < self.journal.last_index:
            self.journal._void_from(max(message.prev, self.journal.base_index) + 1)
        verified = super().store(message)
        self.commit = min(self.commit, self.journal.last_index)
        return verified


class A10StartsEmpty(Core):
    """Whoever has lost its state and its snapshot goes on with an empty state."""

    def step(self, now: float) -> bool:
        if self.bereft:
            self.bereft = False
            self.commit = self.last_applied = self.journal.base_index
        return super().step(now)


class P6ServesCorruption(Core):
    """A damaged snapshot is taken for what was written."""

    def stand_on_snapshot(self, journal: Journal, machine: Machine) -> None:
        self.snapshots.verify = lambda manifest: None  # type: ignore[method-assign]  # No digests.
        super().stand_on_snapshot(journal, machine)


class A11TakesAnyOffer(Core):
    """A snapshot that is older than the state takes its place."""

    def has_snapshot(self, manifest: Manifest) -> bool:
        return manifest.index <= self.journal.base_index

    def installed(self, manifest: Manifest) -> None:
        self.commit = min(self.commit, manifest.index - 1)
        self.last_applied = min(self.last_applied, self.commit)
        self.journal.reset(manifest.index, manifest.term, manifest.configs)
        super().installed(manifest)


class C4RepairsOneByOne(Core):
    """A refusal takes `next` for granted, beyond the end of the log too, and asks no more."""

    def on_append_ack(self, peer: str, incarnation: int, ack: AppendAck, now: float) -> None:
        progress = self.progress.get(peer)
        if not ack.ok and progress is not None and ack.term == self.term:
            progress.heard_at = now
            progress.next = max(progress.match + 1, ack.prev)
            progress.probing, progress.probe_at = True, now + self.settings.heartbeat
            progress.in_flight, progress.probed = 0, -1
            progress.sent.clear()
            return
        super().on_append_ack(peer, incarnation, ack, now)


class C10LeavesCallersWaiting(Core):
    """Whoever waits on a leader that steps down, or is jumped over, waits for ever.

    The entry that comes in place of the awaited one answers too. So chance shows it only where a
    cluster has no leader for longer than a caller may wait, which one seed in some forty has.
    """

    def fail_waiting(self, upto: int | None = None) -> None:
        """Tell nobody."""


class VotesTwice(Core):
    """A13 and the like: a vote is given to whoever asks last."""

    def on_vote(self, peer: str, ask: Vote, now: float) -> None:
        if ask.term == self.term and self.role not in (LEADER, CANDIDATE):
            mine = (self.journal.last_term, self.journal.last_index)
            if (ask.last_term, ask.last) >= mine:
                self.send(peer, VoteReply(self.term, True))
                return
        super().on_vote(peer, ask, now)


class ReadsWithoutARound(Core):
    """A leader believes in itself."""

    def tick_reads(self, now: float) -> None:
        self.confirmed_reads += [(self.commit, reply) for reply in self.new_reads]
        self.new_reads = []
        super().tick_reads(now)


class SyncsNothing(Journal):
    """A round is taken for durable when it is written."""

    def take(self, *, idle: bool = False) -> Batch | None:
        batch = super().take(idle=idle)
        if batch is not None and len(self._segments) > 0 and len(batch.ops) == 2:
            batch.ops = batch.ops[:1]
        return batch


class ForgetsProgressOfDisk(Core):
    """A leader keeps what it knew of the disk that was replaced."""

    def change_members(
        self, config: Configuration, now: float, reply: Reply = lambda _: None
    ) -> None:
        before = dict(self.progress)
        super().change_members(config, now, reply)
        for peer in sorted(before.keys() & self.progress.keys()):
            self.progress[peer] = replace(before[peer], disk=self.progress[peer].disk)


def speaks_too_soon(core: Core) -> list[tuple[str, Message]]:
    """B1: messages leave before what they say is durable."""
    return core.outbox.release(core.journal.end)


@dataclass(frozen=True)
class Mutant:
    """A defect, and within how many seeds it must be found."""

    name: str
    kit: Kit
    budget: int
    faults: frozenset[str] = frozenset()  # Classes without which it cannot show.
    nodes: int = 0  # The size of the cluster it needs to show.
    schedule: Schedule | None = None  # In place of random faults.
    rules: bool = False  # It is one of the scheduler, not of consensus.


MUTANTS = [
    Mutant("A1", Kit(core=A1Truncates), 20),
    Mutant("A2", Kit(core=A2CommitsUnverifiedTail), 100, frozenset({"isolate", "kill"})),
    Mutant("A3", Kit(core=A3DropsTheSuffix), 50, frozenset({"snapshot", "power_all"})),
    Mutant("A4", Kit(journal=A4RewritesInPlace), 300, frozenset({"snapshot", "power_all"})),
    Mutant(
        "A5-rounds",
        Kit(core=A5IgnoresTheTermOfRounds),
        200,
        frozenset({"late", "halves", "isolate"}),
        nodes=5,
    ),
    Mutant("A5-entries", Kit(core=A5IgnoresTheTermOfAcks), 5, schedule=late_ack),
    Mutant("figure-8", Kit(core=CommitsOldTerms), 5, schedule=figure_8),
    Mutant("A6", Kit(core=A6BelievesTheCommitIndex), 100, frozenset({"power_all", "slow_disk"})),
    Mutant("A7", Kit(core=A7CallsBackBeforeCounting), 20, frozenset({"raise"})),
    Mutant("A8", Kit(core=A8SkipsWhatItDoesNotKnow), 30, frozenset({"upgrade"})),
    Mutant("A9", Kit(core=A9GoesOnAfterLosingApplied), 20),
    Mutant("A10", Kit(core=A10StartsEmpty), 100, frozenset({"rot", "kill"})),
    Mutant("P6", Kit(core=P6ServesCorruption), 100, frozenset({"rot", "kill"})),
    Mutant("A11", Kit(core=A11TakesAnyOffer), 100, frozenset({"snapshot", "slow_link"})),
    Mutant("C4", Kit(core=C4RepairsOneByOne), 100, frozenset({"isolate", "cut"})),
    Mutant("C10", Kit(core=C10LeavesCallersWaiting), 5, schedule=lone_leader),
    Mutant("B1-no-sync", Kit(journal=SyncsNothing), 30, frozenset({"power_all"})),
    Mutant("B1-outbox", Kit(release=speaks_too_soon), 50, frozenset({"power_all"})),
    Mutant(
        "own-unsynced", Kit(core=CountsWhatItHasNotSynced), 60, frozenset({"slow_disk", "isolate"})
    ),
    Mutant("A13-votes-twice", Kit(core=VotesTwice), 100, frozenset({"kill", "pause", "cut"})),
    Mutant(
        "read-without-round", Kit(core=ReadsWithoutARound), 100, frozenset({"isolate", "halves"})
    ),
    Mutant("disk-progress", Kit(core=ForgetsProgressOfDisk), 200, frozenset({"wipe", "kill"})),
    Mutant(
        "token-reuse", Kit(leader=NewLeader, rules=forgets_tokens), 20, frozenset({"kill"}),
        rules=True,
    ),
    Mutant(
        "early-lapse", Kit(sessions=LapsesAtOnce), 20, frozenset({"kill"}), rules=True
    ),
    Mutant(
        "lapse-by-wall-clock", Kit(sessions=LapsesByTheWall), 40, frozenset({"jump"}), rules=True
    ),
    Mutant(
        "occurrence-dropped", Kit(leader=NewLeader, rules=drops_occurrences), 20,
        frozenset({"kill"}), rules=True,
    ),
    Mutant(
        "occurrence-doubled", Kit(leader=NewLeader, rules=doubles_occurrences), 20,
        frozenset({"kill"}), rules=True,
    ),
    Mutant(
        "B1-nothing-stands", Kit(rules=coalesces_all), 20, frozenset({"kill"}), rules=True
    ),
    Mutant("B2-skip-stands", Kit(rules=stands_by_hand), 60, frozenset({"kill"}), rules=True),
    Mutant("B3-no-overlap", Kit(rules=skips_for_overlap), 60, frozenset({"kill"}), rules=True),
    Mutant("B4-no-quota", Kit(rules=skips_for_quota), 60, frozenset({"kill"}), rules=True),
    Mutant("B5-held-count", Kit(rules=counts_held_runs), 60, frozenset({"kill"}), rules=True),
    Mutant("B6-no-grace", Kit(rules=ignores_the_grace), 60, frozenset({"kill"}), rules=True),
    Mutant(
        "A5-endless-decision", Kit(rules=ignores_the_time), 20, frozenset({"hasty"}),
        rules=True,
    ),
    Mutant(
        "A1-whole-chain", Kit(rules=tells_whole_chains), 20, frozenset({"hasty", "flow"}),
        rules=True,
    ),
    Mutant(
        "A2-all-dependents", Kit(rules=tells_all_dependents), 20, frozenset({"hasty", "flow"}),
        rules=True,
    ),
    Mutant(
        "A2-forgets-the-rest", Kit(rules=forgets_the_rest), 20, frozenset({"hasty", "flow"}),
        rules=True,
    ),
    Mutant(
        "A3-all-room", Kit(rules=clears_at_once), 20, frozenset({"hasty", "replace"}), rules=True
    ),
    Mutant(
        "A4-P3-walk", Kit(rules=walks_over_the_ledger), 20, frozenset({"backfill"}), rules=True
    ),
    Mutant(
        "A0-dies", Kit(leader=DiesOfIt), 20, frozenset({"planted"}), rules=True
    ),
    Mutant(
        "A0-neighbours", Kit(rules=drops_neighbours), 60, frozenset({"planted"}), rules=True
    ),
]  # fmt: skip
