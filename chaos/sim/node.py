"""One simulated process: the core, its journal and state, on its disk and its clock."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...cluster.raft.disk import FULL
from ...cluster.raft.faults import Fatal
from ...cluster.raft.journal import Batch
from ...cluster.raft.message import Introduce, decode, encode
from ...cluster.raft.outbox import HelperJob
from ...cluster.raft.port import Machine
from ...cluster.raft.raft import Raft
from ...cluster.raft.record import FUTURE
from .disk import SimDisk
from .register import Register
from .world import SimViolation

if TYPE_CHECKING:
    from .cluster import SimCluster

INBOX_MAX = 5_000
LATER_KIND = FUTURE[-1]  # Of entries that only a later release knows.


class SimNode:
    """Drives a core as the asyncio driver does, on the world's time."""

    def __init__(self, name: str, cluster: SimCluster) -> None:
        self.name, self.cluster, self.world = name, cluster, cluster.world
        self.disk = SimDisk()
        self.core: Raft | None = None
        self.paused = False
        self.rate = 1.0  # How fast its clock runs.
        self.slow = 0.0  # Added to each round of the disk.
        self.future = False  # Runs a later release, which knows one more kind of entry.
        self.broken = ""  # Why it stopped by itself.
        self.flipped = False
        self.rotten = ""  # The file of a snapshot that is not what was written.
        self.wrong_until = 0.0  # Somebody has set its wall clock, and no time server is heard.
        self.life = 0
        self.inbox: list[Callable[[], None]] = []
        self.marks = (0, 0)
        self.lives_applied = 0
        self.timer_at = float("inf")
        self.batch: Batch | None = None
        self.job: HelperJob | None = None
        self.led = False

    # Its clock.

    def clock(self) -> float:
        return self.world.now * self.rate

    # Life and death.

    def start(self) -> None:
        self.life += 1
        self.broken, self.paused = "", False
        self.marks, self.inbox = (0, 0), []
        self.batch = self.job = None
        self.timer_at = float("inf")
        self.lives_applied = 0
        dice = random.Random(self.world.dice.getrandbits(64))
        try:
            journal_id = f"{dice.getrandbits(64):016x}"
            options = self.cluster.options
            journal = self.cluster.kit.journal(self.disk, options.limits, journal_id)
            machine = self.new_machine()
            self.core = self.cluster.kit.core_type(
                self.name,
                self.cluster.contacts,
                journal,
                self.disk,
                machine,
                self,
                dice,
                options.settings,
                self.clock(),
            )
            self.lives_applied = self.core.last_applied
            if self.future:
                self.know_later(self.core)
            # A simulated client may raise without ending the node.
            self.core.caller_failed = self.caller_failed  # type: ignore[method-assign]  # See above.
            self.marks = (self.core.node.commit, self.core.last_applied)
        except Fatal as error:
            self.stop(error)
            return
        self.world.note(f"{self.name} starts")
        self.look_for_rot()
        self.began()
        self.wake()

    def know_later(self, core: Raft) -> None:
        """Run a later release, which knows a kind of entry more."""
        core.applying.known_kinds |= {LATER_KIND}

    def look_for_rot(self) -> None:
        """Its disk is whole again once it has done away with the damaged snapshot, and has another
        state in place of that: until then it does not lead, so no other disk may be lost."""
        is_bereft = self.core is None or self.core.bereft
        if self.rotten and self.rotten not in self.disk.kept and not is_bereft:
            self.rotten, self.flipped = "", False

    def jump(self, seconds: float, until: float) -> None:
        """Set the wall clock, which consensus does not have."""

    def new_machine(self) -> Machine:
        return Register(self.disk, self.applied)

    def began(self) -> None:
        """The process runs; what stands on consensus begins here."""

    def die(self, *, power: bool) -> None:
        """Kill the process, and maybe the power with it."""
        if self.core is not None and self.batch is not None:
            # The helper was somewhere in its round.
            for op in self.batch.ops[: self.world.dice.randint(0, len(self.batch.ops))]:
                if not self.try_op(op):
                    break
        if self.core is not None and self.job is not None and self.world.dice.random() < 0.5:
            self.try_op(self.job.run)
        self.core = None
        self.life += 1
        self.led = False
        if power:
            self.disk.crash(self.world.dice)
        self.disk.sync_error = False
        for other in self.cluster.names:
            if other != self.name:
                self.cluster.links.break_pair(self.name, other)

    def try_op(self, op: Callable[[], object]) -> bool:
        try:
            op()
        except (OSError, Fatal):
            return False
        return True

    def stop(self, error: Exception) -> None:
        """The node ends itself; whether it had a reason is checked by the cluster."""
        self.world.note(f"{self.name} stops: {type(error).__name__}: {error}")
        self.broken = f"{type(error).__name__}: {error}"
        self.die(power=False)
        self.cluster.stopped(self, error)

    def caller_failed(self, error: Exception) -> None:
        """Take what a simulated client raises on purpose; anything else is to be seen."""
        if not isinstance(error, RuntimeError):
            raise error

    # What happens to it.

    def receive(self, peer: str, frame: bytes, meant_for: int) -> None:
        def take() -> None:
            core = self.core
            if core is not None and meant_for in (0, core.incarnation):
                message, incarnation = decode(frame)
                core.receive(peer, incarnation, message, self.clock())

        self.do(take)

    def link(self, peer: str, up: bool) -> None:
        def notice() -> None:
            if self.core is not None:
                (self.core.link_up if up else self.core.link_down)(peer, self.clock())

        self.do(notice)

    def do(self, what: Callable[[], None]) -> None:
        """Do something on this node's loop, now or when it runs again."""
        if self.core is None:
            return
        if self.paused:
            if len(self.inbox) < INBOX_MAX:
                self.inbox.append(what)
            return
        try:
            what()
        except Fatal as error:
            self.stop(error)
            return
        self.wake()

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            waiting, self.inbox = self.inbox, []
            for what in waiting:
                self.do(what)
            self.do(lambda: None)

    # The driver.

    def wake(self) -> None:
        """Carry on until there is nothing to do at this moment."""
        core = self.core
        if core is None or self.paused:
            return
        try:
            more = core.step(self.clock())
            self.watch(core)
            core.run_answers()
        except Fatal as error:
            self.stop(error)
            return
        self.flush(core)
        self.begin_batch(core)
        self.begin_job(core)
        life = self.life
        if more:
            self.world.after(0.0001, lambda: self.wake() if life == self.life else None)
        self.set_timer(core)

    def watch(self, core: Raft) -> None:
        commit = self.marks[0]
        self.marks = self.cluster.checker.stepped(self.name, core, self.marks)
        if core.node.leads and core.node.commit > commit and self.world.dice.random() < 0.02:
            self.cluster.check_copies(self, core.node.commit)
        for peer in core.replication.progress if core.node.leads else ():
            follower = self.cluster.nodes[peer].core
            if follower is not None:
                self.cluster.checker.believed(core, peer, follower)

    def flush(self, core: Raft) -> None:
        for to, message in self.cluster.kit.release(core):
            self.cluster.checker.sent(self.name, core.incarnation, to, message)
            meant_for = 0 if isinstance(message, Introduce) else core.replication.disk_of(to)
            frame = encode(message, core.incarnation)
            self.cluster.links.send(self.name, to, (frame, meant_for))

    def set_timer(self, core: Raft) -> None:
        at = max(core.next_at(self.clock()) / self.rate, self.world.now + 0.0005)
        if at < self.timer_at - 1e-9 or self.timer_at <= self.world.now:
            self.timer_at = at
            life = self.life
            self.world.at(at, lambda: self.timer(life, at))

    def timer(self, life: int, at: float) -> None:
        if life == self.life and at == self.timer_at:
            self.timer_at = float("inf")
            self.wake()

    def begin_batch(self, core: Raft) -> None:
        if self.batch is not None:
            return
        self.batch = core.journal.take(idle=self.world.dice.random() < 0.05)
        if self.batch is not None:
            self.later(self.disk_time(), lambda: self.end_batch(core))

    def end_batch(self, core: Raft) -> None:
        batch = self.batch
        if batch is None:
            return
        try:
            batch.run()
        except OSError as error:
            if error.errno in FULL:
                core.disk_full(True, self.clock())
                core.free_room()
                core.journal.relieve(batch)
                self.wake()
                self.later(0.3, lambda: self.end_batch(core))
            else:
                self.stop(Fatal(f"the disk failed: {errno.errorcode.get(error.errno or 0)}"))
            return
        self.batch = None
        core.journal.end_round(batch)
        if core.node.journal_full:
            core.disk_full(False, self.clock())
        self.wake()

    def begin_job(self, core: Raft) -> None:
        if self.job is None and core.jobs:
            self.job = core.jobs.popleft()
            self.later(2 * self.disk_time(), lambda: self.end_job(core))

    def end_job(self, core: Raft) -> None:
        job = self.job
        if job is None:
            return
        try:
            result = job.run()
            self.job = None
            job.done(result)
        except OSError as error:
            if error.errno in FULL:
                self.later(0.5, lambda: self.end_job(core))
            else:
                self.stop(Fatal(f"the disk failed: {errno.errorcode.get(error.errno or 0)}"))
            return
        except Fatal as error:
            self.stop(error)
            return
        self.wake()

    def later(self, delay: float, what: Callable[[], None]) -> None:
        """Do something unless the process has ended by then; a paused one does it on resume."""
        life = self.life

        def run() -> None:
            if life == self.life and self.core is not None:
                if self.paused:
                    self.inbox.append(run)
                else:
                    what()

        self.world.after(delay, run)

    def disk_time(self) -> float:
        return 0.0001 + 0.0004 * self.world.dice.random() + self.slow

    # The machine and the watcher.

    def applied(self, index: int, data: bytes, digest: str) -> None:
        if index <= self.lives_applied:
            raise SimViolation(f"A1 {self.name} applied {index} twice")
        self.lives_applied = index
        self.cluster.checker.applied(self.name, index, data, digest)

    def leadership_gained(self, term: int) -> None:
        self.led = True
        self.world.note(f"{self.name} leads in term {term}")

    def leadership_lost(self, term: int) -> None:
        self.led = False
        self.world.note(f"{self.name} lost leadership, term is {term}")

    def removed(self) -> None:
        self.world.note(f"{self.name} was removed")

    def linked(self, peer: str) -> None:
        """Nobody sends anything in here."""

    def on_notice(self, peer: str, text: bytes) -> None:
        """Nobody sends anything in here."""
