"""How the log gets from the leader to the others, and when an entry counts as committed.

The rules, checked at run time:
 1. Entries are deleted only from the first conflict on, never at or below commit or applied.
 2. Commit moves up only, over entries this leader is known to have the same as ours.
 3. Every message carries a term; another term's answer changes nothing.
 4. An ack raises `match` and `next` and never lowers them; a refusal never reaches `match`.
 5. What a leader sends and has not on its own disk yet it has created itself, in this term; it
    commits nothing before it has it there.
"""

from __future__ import annotations

from .catchup import CatchUp
from .faults import JournalDamaged, Unsupported, require
from .journal import NOOP, Entry
from .message import Append, AppendAck, Heartbeat, HeartbeatAck
from .progress import Progress
from .segment import ADVICE
from .walled import FOLLOWER, LEADER


class Replication(CatchUp):
    """See the head of this file."""

    # The leader's side.

    def take_office(self, now: float) -> None:
        require(self.role != LEADER, f"{self.me} became leader of term {self.term} twice")
        self.set_role(LEADER)
        self.leader = self.me
        self.attempts = 0
        self.progress = {}
        self.follow_config(now)
        self.quorum_at = self.round_at = now
        require(
            self.journal.spoken_index == self.journal.last_index,
            f"{self.me} leads with entries that came after its vote",
        )
        self.noop_index = self.journal.last_index + 1
        self.journal.append(Entry(self.noop_index, self.term, NOOP, b""))
        self.beat(now)
        self.replicate(now)

    def follow_config(self, now: float) -> None:
        """Keep a progress for each member's disk; a removed one is kept until it knows."""
        for peer, member in sorted(self.config.members.items()):
            progress = self.progress.get(peer)
            if peer == self.me or (progress is not None and progress.disk == member.incarnation):
                continue
            # What a former disk had acknowledged is not on this one.
            self.progress[peer] = Progress(
                self.journal.last_index + 1, now, member.incarnation, probe_at=now
            )

    def beat(self, now: float) -> None:
        """Tell everyone that the leader lives; this waits for no entry to be durable."""
        self.beat_at = now + self.settings.heartbeat
        age = now - self.quorum_at
        for peer, progress in self.progress.items():
            known = min(progress.match, self.commit)
            progress.told = max(progress.told, known)
            # Until something of this term is committed, more may be than is known here.
            echo = progress.echo if self.commit >= self.noop_index else 0.0
            beat = Heartbeat(self.term, self.round, self.commit, known, echo, age)
            self.send_first(peer, beat)

    def replicate(self, now: float) -> None:
        shared: dict[int, Append] = {}
        for peer, progress in self.progress.items():
            if peer in self.connected:
                self.feed(peer, progress, now, shared)

    def feed(self, peer: str, progress: Progress, now: float, shared: dict[int, Append]) -> None:
        if progress.lacks:
            # Its journal is whole, so it goes on as any other beside this.
            progress.lacks = progress.lacks if now < progress.lacks_until else 0
            self.offer(peer, progress, now)
        if progress.next <= self.journal.base_index:
            if not progress.lacks:
                self.offer(peer, progress, now)
        elif progress.probing:
            if now >= progress.probe_at:
                if progress.probed == progress.next - 1:
                    progress.wait_longer(self.settings.probe)
                progress.probe_at = now + max(self.settings.probe, progress.patience)
                progress.probed = progress.next - 1
                message = self.append_from(progress.next, shared)
                self.send_entries(peer, message, size_of(message))
        elif progress.match < progress.next - 1 and now - progress.moved_at > (
            2 * max(self.settings.probe, progress.patience)
        ):
            progress.wait_longer(self.settings.probe)
            progress.probe(progress.match + 1, now)
            self.feed(peer, progress, now, shared)
        else:
            self.stream(peer, progress, now, shared)

    def stream(self, peer: str, progress: Progress, now: float, shared: dict[int, Append]) -> None:
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
        require(self.role == LEADER, f"{self.me} sends entries and does not lead")
        self.send_first(peer, message, size)

    def append_from(self, first: int, shared: dict[int, Append]) -> Append:
        """Return the append that begins at `first`; one for all who need the same."""
        if first not in shared:
            last, size = self.journal.last_index, self.settings.append_bytes
            entries = self.journal.entries(first, last, size) if first <= last else []
            prev = first - 1
            prev_term = self.journal.term_at(prev)
            shared[first] = Append(self.term, prev, prev_term, self.commit, tuple(entries))
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

    def answer_of(self, peer: str, incarnation: int, term: int, now: float) -> Progress | None:
        """Return the progress an answer is about, if it is for this leader in this term."""
        if term > self.term:
            self.step_down(term, now)
        member = self.config.members.get(peer)
        replaced = member is not None and member.incarnation != incarnation
        if term != self.term or self.role != LEADER or peer not in self.progress or replaced:
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
        read here, and after a crash this node must not be behind what it has told.
        """
        voters = self.config.voters
        durable = self.journal.synced_index
        match = [durable if v == self.me else self.progress[v].match for v in voters]
        index = min(durable, sorted(match, reverse=True)[len(voters) // 2])
        if index > self.commit and self.journal.term_at(index) == self.term:
            self.move_commit(index)

    def move_commit(self, index: int) -> None:
        require(index >= self.commit, f"commit would go back from {self.commit} to {index}")
        require(index <= self.journal.last_index, f"commit {index} is beyond the journal")
        require(
            self.role != LEADER or index <= self.journal.synced_index,
            f"{self.me} would commit {index} before it has it on its disk",
        )
        self.commit = index

    # The follower's side.

    def hear(self, peer: str, term: int, now: float) -> bool:
        """Take note of a leader; return False if its term is over."""
        if term < self.term:
            return False
        require(
            term > self.term or self.role != LEADER,
            f"{peer} and {self.me} both lead in term {term}",
        )
        if term > self.term or self.role != FOLLOWER:
            self.step_down(term, now)
        require(self.leader in (None, peer), f"{peer} and {self.leader} both lead in term {term}")
        self.leader = peer
        self.attempts = 0
        self.heard_at = now
        self.deadline = now + self.silence()
        return True

    def on_append(self, peer: str, message: Append, now: float) -> None:
        prev, commit = message.prev, message.commit
        if not self.hear(peer, message.term, now):
            # The old leader learns of the term and steps down.
            self.send(peer, AppendAck(self.term, prev, 0, False))
            return
        self.note_commit(peer, commit)
        if self.full or self.installing:
            return
        if prev > self.journal.last_index:
            self.send(peer, AppendAck(self.term, prev, self.journal.last_index + 1, False))
        elif prev >= self.journal.base_index and self.journal.term_at(prev) != message.prev_term:
            require(prev > self.commit, forked(peer, prev))
            retry = max(self.commit + 1, self.journal.first_of_term(prev))
            self.send(peer, AppendAck(self.term, prev, retry, False))
        else:
            verified = self.store(message)
            self.send(peer, AppendAck(self.term, prev, verified, True))
            if min(commit, verified) > self.commit and not self.bereft:
                self.move_commit(min(commit, verified))

    def note_commit(self, peer: str, index: int) -> None:
        """A leader said what is committed, which is on its own disk too."""
        self.witness.committed = max(self.witness.committed, index)
        self.witness.holds(peer, self.heard_disks[peer], index)

    def check_disk(self, peer: str, term: int, index: int) -> None:
        """Hold what a peer knows of this disk against it."""
        if term > self.term or (index > self.journal.last_index and not self.installing):
            raise JournalDamaged(
                f"{peer} has it from {self.me} that this disk holds entries up to {index} and term "
                f"{term}, but its journal ends at {self.journal.last_index} in term {self.term}: "
                f"the folder is an older copy, or another process runs as {self.me} with a copy "
                f"of it; stop that one. {ADVICE}"
            )

    def store(self, message: Append) -> int:
        """Add what is new, from the first conflict on; return the last index that agrees."""
        for entry in message.entries:
            if entry.index <= self.journal.base_index:
                continue  # Below our snapshot: committed, hence the same.
            if entry.index <= self.journal.last_index:
                if self.journal.term_at(entry.index) == entry.term:
                    continue
                self.void_from(entry.index)
            self.journal.append(entry)
        self.config_changed()
        return max(message.prev + len(message.entries), self.journal.base_index)

    def void_from(self, index: int) -> None:
        require(
            index > max(self.commit, self.last_applied),
            forked(str(self.leader), index),
        )

    def on_heartbeat(self, peer: str, beat: Heartbeat, now: float) -> None:
        if not self.hear(peer, beat.term, now):
            # With our term but without its round: rounds are counted by each leader, and this
            # answer could reach the same node in a later office.
            self.send_first(peer, HeartbeatAck(self.term, 0, now))
            return
        self.check_disk(peer, 0, beat.known)
        self.note_commit(peer, beat.commit)
        if beat.known > self.commit and not self.installing and not self.bereft:
            self.move_commit(beat.known)
        if beat.echo <= now:
            # What is ahead of this clock was said by one before it, of a host that has begun anew.
            self.freshness.heard(beat.commit, beat.echo - beat.age, self.last_applied)
        self.send_first(peer, HeartbeatAck(self.term, beat.round, now))

    # Applying.

    def apply_committed(self) -> bool:
        """Give committed entries to the machine; return whether there are more.

        Counted before anyone is told: what a caller does cannot make an entry apply twice. An
        entry that is not durable here waits, so that the machine is never ahead of the journal.
        """
        limit = min(self.commit, self.journal.synced_index)
        if self.installing or self.bereft or self.last_applied >= limit:
            return False
        last = min(limit, self.last_applied + self.settings.apply_step)
        for entry in self.journal.entries(self.last_applied + 1, last, self.settings.apply_bytes):
            require(entry.index == self.last_applied + 1, f"entry {entry.index} is out of order")
            self.apply_entry(entry)
        return self.last_applied < limit

    def apply_entry(self, entry: Entry) -> None:
        """Apply one entry, count it, and note who waited for it."""
        if entry.kind not in self.known_kinds:
            raise Unsupported(
                f"entry {entry.index} is of kind {entry.kind}, which this release does not know. "
                "A newer node wrote it; upgrade this one."
            )
        self.carry_out(entry)
        self.last_applied = entry.index
        self.applied_entry(entry)


def forked(peer: str, index: int) -> str:
    """What a leader says that has not what is committed here."""
    return (
        f"{peer} leads and has another entry {index} than the one that is committed here: what was "
        "acknowledged is missing on a majority, as when older copies of their folders were put "
        "back. Keep this folder, stop all nodes, and see on each how far it goes: raftsched node "
        "recover --look"
    )


def size_of(message: Append) -> int:
    return sum(len(e.data) for e in message.entries) + 64
