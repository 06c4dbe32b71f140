"""The scheduler on simulated nodes: its state, its leader's loop, its sessions and its clock.

The state is the real one on a store in memory. RocksDB keeps what it flushed and no more when a
process ends, so does this: the rest comes again from the journal.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Iterable, Iterator

import msgspec

from ...cluster.node.applier import Applied
from ...cluster.node.clock import SteadyClock
from ...cluster.node.peer_info import PeerDirectory
from ...cluster.node.troubles import Troubles
from ...cluster.raft import faults
from ...cluster.raft.port import Disk, Machine, Reply
from ...cluster.raft.raft import Raft
from ...statemachine.core.budget import Steps
from ...statemachine.core.store import MemoryStore
from ...statemachine.model import keys
from ...statemachine.piecewise import Failure
from .disk import SimDisk
from .node import SimNode
from .oracle import HEARTBEAT_MS, Oracle

EPOCH_MS = 1_767_225_600_000
SKEW_MAX_MS = 1_000
SYNC = 0.5  # Seconds between looks at a time server.
# What a mistake in the code raises, and no defect of a rule.
SLIPS = (AttributeError, NameError, TypeError)
FLUSHED: weakref.WeakKeyDictionary[SimDisk, dict[bytes, bytes]] = weakref.WeakKeyDictionary()


AppliedListener = Callable[[int, bytes, str], None]


class Watched(MemoryStore):
    """Counts the entries of the ledger that scans come by."""

    scanned = 0

    def scan(
        self, first: bytes, end: bytes, *, backwards: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        rows = super().scan(first, end, backwards=backwards)
        return self._counted(rows) if first[:1] == keys.LEDGER else rows

    def _counted(self, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        for row in rows:
            self.scanned += 1
            yield row


class WatchedTroubles(Troubles):
    """Notifies the oracle of mistakes in the code of a rule, which a leader survives."""

    def __init__(
        self, name: str, now_ms: Callable[[], int], seconds: Callable[[], float], oracle: Oracle
    ) -> None:
        super().__init__(name, now_ms, seconds)
        self._oracle = oracle

    def add(self, failures: Iterable[Failure]) -> None:
        failures = list(failures)
        for failure in failures:
            if isinstance(failure.error, SLIPS):
                self._oracle.slipped(failure.what, failure.error)
        super().add(failures)


class SimReplica(Applied):
    """The state of one process."""

    def __init__(
        self, disk: SimDisk, seen: AppliedListener, oracle: Oracle, dice: random.Random
    ) -> None:
        self.disk, self.seen, self.oracle, self.dice = disk, seen, oracle, dice
        super().__init__(Watched(FLUSHED.get(disk)))

    def items(self) -> dict[bytes, bytes]:
        assert isinstance(self.store, MemoryStore)
        return self.store.items

    def apply(self, index: int, data: bytes) -> None:
        super().apply(index, data)
        if self.changed_at == index:
            self.oracle.changed(index, data, self.meta.revision)
        if self.dice.random() < 0.02:
            FLUSHED[self.disk] = dict(self.items())
        self.seen(index, data, self.meta.fingerprint.hex())

    def checkpoint(self) -> Callable[[str], int]:
        def write(folder: str) -> int:
            rows = sorted(self.items().items())
            for number, part in enumerate((rows[::2], rows[1::2])):
                path = f"{folder}/part-{number}"
                self.disk.write(path, 0, msgspec.msgpack.encode(part))
                self.disk.sync(path)
            return self.meta.applied_index

        return write

    def check(self, folder: str) -> None:
        """The digests of its files say all in here."""

    def restore(self, folder: str) -> None:
        items: dict[bytes, bytes] = {}
        for number in range(2):
            items |= read_rows(self.disk, f"{folder}/part-{number}")
        FLUSHED[self.disk] = dict(items)
        self.replace(Watched(items))


def read_rows(disk: Disk, path: str) -> dict[bytes, bytes]:
    rows = msgspec.msgpack.decode(disk.read(path, 0, disk.size(path)))
    return dict(rows)


class SchedulerNode(SimNode):
    """Drives a leader's loop beside the core, as a node's own loop does."""

    offset = 0.0  # How far its wall clock is from its own monotonic one, in seconds.
    turning = False
    ring = 0

    @property
    def oracle(self) -> Oracle:
        oracle: Oracle = self.cluster.oracle  # type: ignore[attr-defined]  # Of SchedulerCluster.
        return oracle

    def wall_ms(self) -> int:
        return EPOCH_MS + self.cluster.slept_ms + int((self.clock() + self.offset) * 1000)

    def clock_ms(self) -> int:
        return int(self.clock() * 1000)

    def jump(self, seconds: float, until: float) -> None:
        self.offset += seconds
        self.wrong_until = until
        if self.core is not None:
            self.want_turn()

    # Life.

    def new_machine(self) -> Machine:
        dice = random.Random(self.world.dice.getrandbits(64))
        self.replica = SimReplica(self.disk, self.applied, self.oracle, dice)
        return self.replica

    def began(self) -> None:
        kit = self.cluster.kit
        self.turning = False
        self.lapsing: set[object] = set()
        self.steady = SteadyClock(self.wall_ms, self.clock)
        self.sessions = kit.sessions(
            self.clock_ms, self.steady.now_ms, self.want_turn, heartbeat_ms=HEARTBEAT_MS
        )
        troubles = WatchedTroubles(self.name, self.steady.now_ms, self.clock, self.oracle)
        self.leader = kit.leader(
            self.name, self.replica, self, self.sessions, self.steady.now_ms, self.clock,
            self.new_budget, troubles=troubles, clock_is_sure=False,
        )  # fmt: skip
        self.known = PeerDirectory(self.name, self.replica, self.wall_ms, self.clock)
        self.replica.on_change(lambda index, data, meta: self.known.applied(meta))
        self.later(self.world.dice.random(), self.tick)
        self.set_clock()

    def set_clock(self) -> None:
        """Follow a time server, which is right within some milliseconds."""
        if self.world.now >= self.wrong_until:
            error = self.world.dice.uniform(-0.02, 0.02)
            self.offset = self.world.now + error - self.clock()

    def tick(self) -> None:
        """Notify the others of this node, and look whether the clocks agree."""
        core = self.core
        if core is None:
            return
        self.set_clock()
        self.introduce(core)
        self.look(core)
        self.want_turn()
        self.later(SYNC if self.steady.sure else SYNC / 10, self.tick)

    def introduce(self, core: Raft) -> None:
        core.notify(self.known.message("", "sim", serving=True))

    def look(self, core: Raft) -> None:
        skew_ms = self.steady.look(self.known, core.config.voters, SKEW_MAX_MS)
        if skew_ms and not self.leader.skew_ms:
            self.world.note(f"{self.name} is {skew_ms} ms away from the others")
        self.leader.clock_compared(skew_ms, is_sure=self.steady.sure)
        if skew_ms and self.leader.leading:
            try:
                core.transfer(None, self.clock(), lambda _: None)
            except faults.CallRefused:
                self.world.note(f"{self.name} cannot hand over")

    # Turns of the leader's loop.

    def want_turn(self) -> None:
        if not self.turning:
            self.turning = True
            self.later(0.00002, self.turn)

    def turn(self) -> None:
        self.turning = False
        self.leader.step()
        self.look_at_work()
        self.oracle.troubled(self)
        for session in self.sessions.by_worker.values():
            if session.lapsing and session not in self.lapsing:
                self.lapsing.add(session)
                self.oracle.lapses(self, session.worker)
        self.wake()
        next_ms = self.leader.next_ms()
        if next_ms is not None:
            self.ring += 1
            ring = self.ring
            delay = max(0, next_ms - self.steady.now_ms()) / 1000 / self.rate + 0.0002
            self.later(min(delay, SYNC), lambda: self.want_turn() if ring == self.ring else None)

    def new_budget(self) -> Steps:
        """For a decision that begins, or begins again and carefully."""
        self.look_at_work()
        return Steps(self.cluster.options.steps)

    def look_at_work(self) -> None:
        store = self.replica.store
        assert isinstance(store, Watched)
        entries, store.scanned = store.scanned, 0
        self.oracle.scanned(entries)

    # What the loop takes for consensus.

    def submit(self, data: bytes, reply: Reply) -> None:
        assert self.core is not None
        top = self.cluster.checker.top

        def answered(index: int | None) -> None:
            if index is not None:
                self.cluster.acknowledged(self, f"entry {index}", index, top)
            reply(index)

        self.core.propose(data, answered)
        self.later(0.0, self.wake)

    def confirm(self, reply: Reply) -> None:
        assert self.core is not None
        top = self.cluster.checker.top

        def answered(index: int | None) -> None:
            if index is not None and self.core is not None:
                self.cluster.checker.read(self.name, index, self.core.last_applied, top)
            reply(index)

        self.core.read(answered)
        self.later(0.0, self.wake)

    # What consensus says.

    def leadership_gained(self, term: int) -> None:
        super().leadership_gained(term)
        self.oracle.gained(self)
        self.leader.gained()

    def leadership_lost(self, term: int) -> None:
        super().leadership_lost(term)
        self.leader.lost()

    def linked(self, peer: str) -> None:
        if self.core is not None:
            self.introduce(self.core)

    def on_notice(self, peer: str, text: bytes) -> None:
        self.known.received(peer, text)
        if self.core is not None and not self.steady.sure:
            self.look(self.core)
            self.want_turn()
