"""What all parts of the core share: the node's place in the cluster and its outbox.

Nothing in the core reads a clock: `now` comes in with each call, from one clock that never runs
backwards. Nothing waits either: what has to happen later is found again by `step`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .faults import Damaged
from .journal import COMMAND, CONFIG, NOOP, Entry, Journal
from .membership import Configuration
from .message import Message, PreVote
from .port import Machine, Reply, Settings, Watcher
from .progress import Progress
from .segment import ADVICE
from .walled import FOLLOWER, LEADER, Walled
from .witness import Witness


class Outbox:
    """Messages that wait until what they say is durable.

    Each waits for the journal to be durable up to where it ended when the message was written.
    Heartbeats say nothing about entries, only about the term, pre-votes bind nobody, and a leader
    counts on no entry that it sends before it has it itself. So these go in a line of their own
    that waits for the last vote: a slow disk does not silence a leader.
    A message may be lost anywhere on its way, so a line that is full, by number or by bytes, drops
    its oldest.
    """

    def __init__(self, limit: int, limit_bytes: int) -> None:
        self.limit, self.limit_bytes = limit, limit_bytes
        self.lines: tuple[deque[tuple[int, str, Message, int]], ...] = (deque(), deque())
        self.bytes = [0, 0]

    def put(self, line: int, need: int, to: str, message: Message, size: int) -> None:
        waiting = self.lines[line]
        waiting.append((need, to, message, size))
        self.bytes[line] += size
        while len(waiting) > self.limit or self.bytes[line] > self.limit_bytes:
            self.bytes[line] -= waiting.popleft()[3]

    def release(self, synced: int) -> list[tuple[str, Message]]:
        """Return what may leave now; first what waits for a vote only."""
        ready = []
        for number, line in enumerate(self.lines):
            while line and line[0][0] <= synced:
                _, to, message, size = line.popleft()
                self.bytes[number] -= size
                ready.append((to, message))
        return ready


@dataclass
class Job:
    """Work for the helper thread; `done` is called on the loop with what `run` returned."""

    name: str
    run: Callable[[], Any]
    done: Callable[[Any], None]


class Freshness:
    """How old the applied state may be, by this node's own clock.

    The leader echoes the time we last told it. Its commit index of that moment included
    everything committed up to then, if it was still followed by a majority; `age` accounts for
    the time it cannot be sure of that.
    """

    def __init__(self) -> None:
        self.as_of = float("-inf")
        self._pending: tuple[int, float] | None = None

    def heard(self, commit: int, as_of: float, applied: int) -> None:
        if commit <= applied:
            self.as_of = max(self.as_of, as_of)
        elif self._pending is None:
            self._pending = (commit, as_of)

    def applied(self, index: int) -> None:
        if self._pending is not None and self._pending[0] <= index:
            self.as_of = max(self.as_of, self._pending[1])
            self._pending = None


ALONE = (
    "The state of {me} is damaged, so is its snapshot, and no other node has what the journal does "
    "not reach back to. Put a backup back: raftsched node restore --help"
)


class State(Walled):
    """The fields of the core and what every part of it does with them."""

    witness: Witness

    def __init__(
        self,
        me: str,
        journal: Journal,
        machine: Machine,
        watcher: Watcher,
        dice: random.Random,
        settings: Settings,
        floor: int,
        lost: bool,
    ) -> None:
        """`floor` is what the newest snapshot says; `lost`, that one was set aside as damaged."""
        self.settings = settings
        self.machine = machine
        self.watcher = watcher
        self.outbox = Outbox(settings.outbox_max, settings.outbox_bytes)
        self.jobs: deque[Job] = deque()
        self.answers: deque[Callable[[], None]] = deque()
        self.connected: set[str] = set()
        self.heard_disks: dict[str, int] = {}
        self.progress: dict[str, Progress] = {}
        self.voters: set[str] = set()
        self.pre_voters: set[str] = set()
        # Who asked last for a pre-vote while the leader lived, what, and when.
        self.refused: tuple[str, PreVote, float] | None = None
        self.attempts = 0
        self.heard_at = float("-inf")
        self.quorum_at = 0.0
        self.beat_at = 0.0
        self.round = 0
        self.noop_index = 0
        self.in_office = False  # Leadership was announced to the watcher.
        self.journal_full = False  # A round of the journal waits for room, or for a descriptor,
        self.state_full = False  # or a committed entry does, which the machine could not take.
        self.apply_at = 0.0  # When it is tried again.
        self.installing = False
        # The state is lost, and so is the snapshot that the journal was cut below. Until another
        # has come from the leader nothing is applied, and this node does not lead. Its term, its
        # vote and its entries are whole, so it votes and acknowledges as before.
        self.bereft = False
        self.removed_self = False
        self.told_removed = False
        self.known_kinds = frozenset({NOOP, COMMAND, CONFIG})
        self.freshness = Freshness()
        self.waiting: dict[int, tuple[int, int, Reply]] = {}  # index -> term, size, reply
        self.waiting_bytes = 0
        self.transfer_to: str | None = None
        self.transfer_until = 0.0
        self.transfer_sent = False
        self.transfer_reply: Callable[[bool], None] | None = None
        # PySyncObj's constructor looks at every attribute, so all must be there before.
        self.config_index, self.config, self.config_text = -2, Configuration({}), ""
        super().__init__(me, journal, dice)
        self.config_changed()
        # A snapshot may end with entries that are no business of the machine.
        applied = max(machine.applied(), floor)
        if lost and applied < journal.base_index:
            if self.config.voters == [me]:
                raise Damaged(ALONE.format(me=me))
            self.bereft, applied = True, journal.base_index - 1
        if not journal.base_index <= applied <= journal.last_index and not self.bereft:
            raise Damaged(
                f"the state holds entries up to {applied}, but the journal those from "
                f"{journal.base_index} to {journal.last_index}: files of one of them were removed, "
                f"or are older copies. {ADVICE}"
            )
        self.last_applied = applied
        # What was applied had been committed; entries after it may be, and will be found out.
        self.commit = applied

    @property
    def full(self) -> bool:
        """It takes no writes for want of room."""
        return self.journal_full or self.state_full

    # Who is who.

    @property
    def incarnation(self) -> int:
        """The name of this node's disk."""
        number: int = self.journal.identity.get("incarnation", 0)
        return number

    @property
    def is_voter(self) -> bool:
        return self.config.is_voter(self.me, self.incarnation)

    @property
    def is_leaving(self) -> bool:
        """Tell whether this node's removal is in its log and not known as committed.

        It must still be able to lead: the others may need its vote, and its log is the newest.
        """
        configs = self.journal.configs
        return (
            self.config_index > self.commit
            and len(configs) > 1
            and Configuration.decode(configs[-2][1]).is_voter(self.me, self.incarnation)
        )

    def other_voters(self) -> list[str]:
        return [v for v in self.config.voters if v != self.me]

    def disk_of(self, peer: str) -> int:
        """Return the incarnation a message to a peer is meant for, or 0 if any may have it.

        What a leader tells a follower is about the disk it knows; an empty one that has taken
        its place must not believe it. A follower answers whoever spoke last: its own
        configuration may be older than the disk it is led from.
        """
        if self.role == LEADER and peer in self.progress:
            return self.progress[peer].disk
        member = self.config.members.get(peer)
        known = member.incarnation if member is not None else 0
        return known if self.role == LEADER else self.heard_disks.get(peer, known)

    def removed_at(self, peer: str) -> int:
        """Return the index of the committed configuration that lacks a peer, or 0."""
        if peer in self.config.members or self.config_index > self.commit:
            return 0
        return max(self.config_index, 0)

    def config_changed(self) -> None:
        """Follow the last configuration in the log, committed or not."""
        index, text = self.journal.configs[-1] if self.journal.configs else (-1, "{}")
        # One that was never committed may have stood at the same index.
        if (index, text) != (self.config_index, self.config_text):
            self.config_index, self.config_text = index, text
            self.config = Configuration.decode(text)
            if self.me in self.config.members:
                self.removed_self = False  # Added again while it was still running.

    def silence(self) -> float:
        """Return how long a leader may be silent this time."""
        low, high = self.settings.silence_min, self.settings.silence_max
        return low + (high - low) * self.dice.random()

    # Messages.

    def send(self, to: str, message: Message, size: int = 64) -> None:
        """Let a message go when what it says is durable; `size` is what it holds in memory."""
        self.outbox.put(1, self.journal.end, to, message, size)

    def send_first(self, to: str, message: Message, size: int = 64) -> None:
        """Let a message go when our last vote is durable, whatever entries wait for the disk."""
        self.outbox.put(0, self.journal.spoken_for, to, message, size)

    # Terms and callers.

    def step_down(self, term: int, now: float) -> None:
        """Follow in `term`. Nobody is left waiting: what is not known is answered as unknown."""
        was_leader = self.role == LEADER
        self.set_role(FOLLOWER)
        if term > self.term:
            self.set_term(term, None)
        self.leader = None
        self.voters, self.pre_voters = set(), set()
        if was_leader:
            self.bear_witness()
            self.progress = {}
            self.deadline = now + self.silence()
            self.fail_waiting()
            self.fail_reads()
            self.answer_transfer(True)
            if self.in_office:
                self.in_office = False
                # It knew of everything that was committed while a majority followed it.
                self.freshness.heard(self.commit, self.quorum_at, self.last_applied)
                self.watcher.leadership_lost(self.term)

    def bear_witness(self) -> None:
        """Keep what a leader knows of the others' disks: nobody replaces what is committed."""
        for peer, progress in self.progress.items():
            self.witness.holds(peer, progress.disk, min(progress.match, self.commit))

    @property
    def floor(self) -> int:
        """The highest index that is committed, as far as this node was told. Whoever can be elected
        holds it, so no vote goes to a shorter log: that one is of an older copy of a folder."""
        return max(self.commit, self.witness.committed)

    def fail_waiting(self, upto: int | None = None) -> None:
        """Answer "unknown" to those who wait for entries up to an index, or for any."""
        for index in sorted(i for i in self.waiting if upto is None or i <= upto):
            _, size, reply = self.waiting.pop(index)
            self.waiting_bytes -= size
            self.answer(reply, None)

    def fail_reads(self) -> None:
        raise NotImplementedError

    def answer(self, reply: Reply, index: int | None) -> None:
        """Answer later, outside the core: what a caller does cannot get into it."""
        self.answers.append(lambda: reply(index))

    def answer_transfer(self, over: bool) -> None:
        reply, self.transfer_reply, self.transfer_to = self.transfer_reply, None, None
        if reply is not None:
            self.answers.append(lambda: reply(over))

    def carry_out(self, entry: Entry) -> None:
        """Do what an entry says."""
        if entry.kind not in (NOOP, CONFIG):
            self.machine.apply(entry.index, entry.data)

    def applied_entry(self, entry: Entry) -> None:
        """Tell those who waited for an entry that it is applied."""
        self.freshness.applied(entry.index)
        waiter = self.waiting.pop(entry.index, None)
        if waiter is not None:
            term, size, reply = waiter
            self.waiting_bytes -= size
            self.answer(reply, entry.index if term == entry.term else None)
        if entry.index == self.noop_index and self.role == LEADER:
            self.in_office = True
            self.watcher.leadership_gained(self.term)
