"""A node's consensus on one asyncio loop: the only place where it meets time and threads.

Three threads: the loop, which decides everything; `sync`, which writes and syncs the journal;
`bulk`, which makes and installs snapshots. Both helpers get work that touches nothing the loop
changes. If any of the three raises, the node ends: `ended` tells why.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import secrets
import ssl
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .adapter import check_audited
from .disk import FULL, LACKS, Disk, file_limit
from .faults import Broken, DiskFailed, FileLimit, Refused
from .journal import Batch, Journal, JournalLimits
from .membership import Configuration
from .message import Message, WireError
from .outbox import Job
from .port import Machine, Reply, Settings, Status, Steps, Untimed, Watcher
from .raft import Raft
from .transport import Identity, LinkLimits, Links

logger = logging.getLogger(__name__)

Made = TypeVar("Made")
SLOW_SYNC = 0.1  # Seconds of a round above which the log says so: an election waits for two.
FULL_RETRY = 0.5  # Seconds between attempts to write on a full disk.


@dataclass(frozen=True, kw_only=True)
class Place:
    """Who this node is and whom it starts with."""

    cluster: str
    node: str
    contacts: dict[str, str]  # Node -> host:port, this one included, the same on all of them.
    listen: str = ""  # Where this node listens, if not where the others find it.
    settings: Settings = field(default_factory=Settings)
    journal: JournalLimits = field(default_factory=JournalLimits)
    links: LinkLimits = field(default_factory=LinkLimits)
    contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None = None


class Driver:
    """The port of consensus, for a node."""

    def __init__(
        self,
        place: Place,
        disk: Disk,
        machine: Machine,
        watcher: Watcher,
        clock: Callable[[], float] = time.monotonic,
        dice: random.Random | None = None,
        steps: Steps | None = None,
    ) -> None:
        check_audited()
        self.place, self.clock, self.steps = place, clock, steps or Untimed()
        # The system's own randomness: nodes that start together must not draw the same.
        self.dice = dice or random.Random(secrets.randbits(128))
        journal = Journal(disk, place.journal, f"{self.dice.getrandbits(64):016x}")
        self.core = Raft(
            place.node, place.contacts, journal, disk, machine, watcher,
            self.dice, place.settings, clock(),
        )  # fmt: skip
        identity = Identity(
            cluster=place.cluster, node=place.node, incarnation=self.core.incarnation
        )
        self.links = Links(
            identity, place.links, clock, self.dice,
            self._received, self._up, self._down, place.contexts, self._origin, self._foreign,
            lambda: self.core.known_leader, self.go_on,
        )  # fmt: skip
        self._sync = ThreadPoolExecutor(1, "sync")
        self._bulk = ThreadPoolExecutor(1, "bulk")
        self._batch: Batch | None = None
        self._job: Job | None = None
        self._turning = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._wrote_at = self._batch_at = clock()
        # Told of each round of the journal: the seconds until it was durable.
        self.synced: Callable[[float], None] = lambda seconds: None
        # Told when another node leads, or none, as far as this one knows.
        self.leader_moved: Callable[[], None] = lambda: None
        self._led: tuple[str | None, bool] = (None, False)
        self._following: Configuration | None = None
        # Who came with another history of this cluster, and when last.
        self.foreign: dict[str, float] = {}
        self._stopping = False

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        await self.links.listen(self.place.listen or self.place.contacts[self.place.node])
        self._poke()

    async def stop(self) -> None:
        """End in order: nothing is lost by it, and nothing is handed over either."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        await self.links.close()
        # The round that is under way ends; the disk may be closed after this.
        for thread in (self._sync, self._bulk):
            await self._loop.run_in_executor(None, thread.shutdown)
        self.core.stop()
        if not self.ended.done():
            self.ended.set_result(None)

    # The port.

    async def propose(self, data: bytes, timeout: float) -> int | None:
        """Return the index of the entry once it is applied here, or None for "unknown"."""
        return await self._ask(lambda reply: self.core.propose(data, reply), timeout)

    async def barrier(self, timeout: float) -> int | None:
        """Return when all that was committed before is applied; None if that is not known."""
        return await self._ask(self.core.read, timeout)

    async def add_member(self, name: str, client: str, timeout: float) -> int | None:
        return await self._ask(
            lambda reply: self.core.add_member(name, self.clock(), reply, client), timeout
        )

    async def remove_member(self, name: str, timeout: float) -> int | None:
        return await self._ask(
            lambda reply: self.core.remove_member(name, self.clock(), reply), timeout
        )

    async def move_member(self, name: str, address: str, client: str, timeout: float) -> int | None:
        return await self._ask(
            lambda reply: self.core.move_member(name, address, client, self.clock(), reply), timeout
        )

    async def transfer(self, target: str | None, timeout: float) -> bool:
        """Hand leadership over; True if this node does not lead any more."""
        answer = await self._ask(
            lambda reply: self.core.transfer(
                target, self.clock(), lambda over: reply(1 if over else None)
            ),
            timeout,
        )
        return answer is not None

    def submit(self, data: bytes, reply: Reply) -> None:
        """As `propose`, with a reply that is called on the loop. `go_on` sends it on its way."""
        self.core.propose(data, reply)
        self._poke()

    def confirm(self, reply: Reply) -> None:
        """As `barrier`, with a reply that is called on the loop."""
        self.core.read(reply)
        self._poke()

    def tell(self, text: bytes) -> None:
        """Tell all connected members something that is not for the log; it may be lost."""
        self.core.tell(text)
        self._poke()

    async def in_bulk(
        self, name: str, work: Callable[[], Made], undo: Callable[[Made], None]
    ) -> Made:
        """Do work on the helper that makes and installs snapshots, so between two of these. What
        it raises is the caller's; what comes for a caller that has left is undone."""
        future: asyncio.Future[Made] = self._loop.create_future()

        def run() -> tuple[Made | None, Exception | None]:
            try:
                return (None, None) if future.done() else (work(), None)
            except Exception as error:
                return None, error

        def done(result: tuple[Made | None, Exception | None]) -> None:
            made, error = result
            if not future.done():
                if error is not None:
                    future.set_exception(error)
                elif made is not None:
                    future.set_result(made)
            elif made is not None:
                self.core.jobs.append(Job(f"undo: {name}", lambda: undo(made), lambda _: None))

        self.core.jobs.append(Job(name, run, done))
        self._poke()
        return await future

    def status(self) -> Status:
        return self.core.status()

    def founding(self) -> str:
        """What a node without a cluster waits for, in a sentence; empty once it has one."""
        core = self.core
        if core.members.formed:
            return ""
        lacks = core.join.lacks()
        for peer in lacks:
            lacks[peer] = self.links.refused.get(peer) or lacks[peer]
        waits = "; ".join(f"{peer} {why}" for peer, why in sorted(lacks.items()))
        listed = len(core.join.contacts)
        return (
            f"{core.me} is new and in no cluster yet. A new cluster begins once all "
            f"{listed} nodes of its list have met, so that no lost disk votes twice; "
            f"{core.me} waits for them: {waits or 'they agree at this moment'}."
        )

    def unheard(self) -> float:
        return self.core.unheard(self.clock())

    def staleness(self) -> float:
        """Return how old the applied state is at most, in seconds."""
        return self.core.staleness(self.clock())

    async def _ask(
        self, call: Callable[[Callable[[int | None], None]], None], timeout: float
    ) -> int | None:
        if self._stopping or self.ended.done():
            raise Refused(f"{self.place.node} is stopping; ask another node")
        future: asyncio.Future[int | None] = self._loop.create_future()

        def reply(index: int | None) -> None:
            if not future.done():
                future.set_result(index)

        call(reply)
        self._poke()
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            return None

    # What happens.

    def _received(self, peer: str, incarnation: int, message: Message) -> None:
        now = self.clock()
        self._guard(lambda: self.core.receive(peer, incarnation, message, now))
        self.steps.end("a message of a member", now)

    def _up(self, peer: str) -> None:
        self._guard(lambda: self.core.link_up(peer, self.clock()))

    def _down(self, peer: str) -> None:
        self._guard(lambda: self.core.link_down(peer, self.clock()))

    def _origin(self) -> str | None:
        return self.core.config.origin if self.core.members.formed else None

    def _foreign(self, peer: str, origin: str) -> None:
        """A node has another history on its disk. If both were restored, and apart, each would
        lead alone: none of them may."""
        config = self.core.config
        if peer in config.members:
            self.foreign[peer] = self.clock()
        if origin and config.origin and config.voters == [self.place.node]:
            self._fail(
                Broken(
                    f"{peer} and {self.place.node} were restored or recovered apart, and each "
                    "would be a cluster of its own. Choose one; empty the folder of the other, and "
                    "start both"
                )
            )

    def _guard(self, what: Callable[[], None]) -> None:
        """Do something to the core; if it raises, this node has ended."""
        if self._stopping or self.ended.done():
            return
        try:
            what()
        except WireError:
            raise  # Nothing was changed; it costs the peer its connection.
        except Exception as error:
            self._fail(error)
            return
        self._poke()

    def _fail(self, error: BaseException) -> None:
        if not self.ended.done():
            logger.critical("%s ends: %s: %s", self.place.node, type(error).__name__, error)
            self.ended.set_exception(error)
            self._stopping = True
            for session in list(self.links.sessions.values()):
                session.close("this node ends")

    def fail(self, error: BaseException) -> None:
        """The node's user found out that going on could break a promise. Nothing leaves it any
        more, not even what was decided in this turn of the loop."""
        self._fail(error)

    # Turns.

    def _poke(self) -> None:
        if not self._turning:
            self._turning = True
            self._loop.call_soon(self.go_on)

    def go_on(self) -> None:
        """Take the turn that is due now, and not behind all else that the loop has to do: each of
        those waits would come on top of a commit, and of all that waits for it."""
        if self._turning:
            self._turn()

    def _turn(self) -> None:
        self._turning = False
        if self._stopping or self.ended.done():
            return
        try:
            now = self.clock()
            # What came goes to the disk while what is committed is applied.
            self._begin_batch(now)
            more = self.core.step(now)
            self.steps.end("consensus and apply", now)
            stepped = self.clock()
            self._flush()
            self._begin_batch(now)
            self._begin_job()
            self.steps.end("send to members and journal", stepped)
            self.core.run_answers()
            self._follow_leader()
            self._follow_members()
            for task in self.links.tasks:
                if task.done():
                    task.result()
                    raise Refused(f"the task {task.get_name()} of the links ended")
        except Exception as error:
            self._fail(error)
            return
        if more:
            self._poke()
        else:
            self._set_timer(now)

    def _flush(self) -> None:
        core = self.core
        ready = core.outbox.release(core.journal.synced)
        if ready:
            self.links.send([(to, core.disk_of(to), message) for to, message in ready])

    def _set_timer(self, now: float) -> None:
        at = max(self.core.next_at(now), now + 0.0005)
        if self._timer is None or at < self._timer_at or self._timer_at <= now:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer = self._loop.call_later(at - now, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if not self._turning:
            self._turn()

    def _follow_leader(self) -> None:
        led = (self.core.known_leader, self.core.in_office)
        if led != self._led:
            self._led = led
            self.leader_moved()

    def _follow_members(self) -> None:
        core = self.core
        if core.config is not self._following:
            self._following = core.config
            # Where the log says a node is, else where this node was told: those who moved while
            # there was no majority to write it down must find each other to have one.
            addresses = {n: [m.address] for n, m in core.config.members.items()}
            for name, address in self.place.contacts.items():
                if address not in addresses.setdefault(name, []):
                    addresses[name].append(address)
            self.links.follow(addresses)
            self.foreign = {n: at for n, at in self.foreign.items() if n in core.config.members}

    # The journal's helper.

    def _begin_batch(self, now: float) -> None:
        if self._batch is not None:
            return
        idle = now - self._wrote_at > self.place.settings.heartbeat
        self._batch = self.core.journal.take(idle=idle)
        if self._batch is not None:
            self._run_batch()

    def _run_batch(self) -> None:
        batch = self._batch
        if batch is not None and not self._stopping:
            self._batch_at = self.clock()
            ran = self._sync.submit(batch.run)
            # An asyncio future would tell of it one turn of the loop later.
            ran.add_done_callback(lambda done: self._from_thread(self._batch_ran, done))

    def _from_thread(self, then: Callable[[Future[None]], None], done: Future[None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(then, done)

    def _batch_ran(self, done: Future[None]) -> None:
        error = done.exception()
        batch = self._batch
        if batch is None or self._stopping:
            return
        if isinstance(error, OSError) and error.errno in LACKS:
            if not self.core.node.journal_full:
                logger.error("%s: %s; nothing is lost", self.place.node, lacking(error))
            self._guard(lambda: self.core.disk_full(True, self.clock()))
            self._loop.call_later(FULL_RETRY, self._run_batch)
        elif error is not None:
            self._fail(disk_failed(error))
        else:
            self._batch = None
            self._wrote_at = self.clock()
            took = self._wrote_at - self._batch_at
            if took > SLOW_SYNC:
                logger.info("a sync of the journal took %d ms", 1000 * took)
            self.synced(took)
            self.core.journal.settled(batch)
            if self.core.node.journal_full:
                self.core.disk_full(False, self.clock())
            if not self._turning:
                self._turn()

    # The helper for bulk.

    def _begin_job(self) -> None:
        if self._job is None and self.core.jobs:
            self._job = self.core.jobs.popleft()
            self._run_job()

    def _run_job(self) -> None:
        job = self._job
        if job is not None and not self._stopping:
            self.steps.begin_beside(job.name)
            self._loop.run_in_executor(self._bulk, job.run).add_done_callback(self._job_ran)

    def _job_ran(self, done: asyncio.Future[Any]) -> None:
        error = done.exception()
        job = self._job
        if job is None or self._stopping:
            return
        self.steps.end_beside(job.name)
        if isinstance(error, OSError) and error.errno in LACKS:
            said = self.place.node, job.name, lacking(error)
            logger.error("%s cannot %s: %s; it is tried again", *said)
            self._loop.call_later(FULL_RETRY, self._run_job)
        elif error is not None:
            self._fail(disk_failed(error))
        else:
            self._job = None
            result = done.result()
            began = self.clock()
            self._guard(lambda: job.done(result))
            self.steps.end(f"after: {job.name}", began)


def lacking(error: OSError) -> str:
    """What must be had before the same works, for people."""
    if error.errno in FULL:
        return f"the disk is full ({error})"
    return (
        f"no file can be opened ({error}); raise the limit on open files (ulimit -n, LimitNOFILE), "
        "or see who holds that many connections"
    )


def disk_failed(error: BaseException) -> BaseException:
    """Say what an error of the operating system means for this node."""
    if isinstance(error, OSError):
        if error.errno == errno.EFBIG:
            return FileLimit(file_limit())
        return DiskFailed(
            f"the disk refused a write or a sync ({error}); what it holds is not known any more, "
            "so this node stops. Replace the disk, or start again with an empty folder."
        )
    return error
