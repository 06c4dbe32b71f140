"""A node's consensus on one asyncio loop: the only place where it meets time and threads.

Three threads: the loop, which decides everything; `sync`, which writes and syncs the journal;
`bulk`, which makes and installs snapshots. Both helpers get work that touches nothing the loop
changes. If any of the three raises, the node ends: `ended` has the reason.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from .adapter import check_audited
from .faults import Broken, CallRefused
from .journal import SWITCH, Journal, JournalLimits
from .link import Identity, LinkLimits
from .membership import Configuration
from .message import Message, WireError
from .port import Disk, LeadershipWatcher, LoopMeter, Machine, RaftSettings, Reply, Status, Untimed
from .raft import Raft
from .threads import BulkThread, JournalThread
from .transport import PeerLinks

logger = logging.getLogger(__name__)

Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Who this node is and whom it starts with."""

    cluster: str
    node: str
    contacts: dict[str, str]  # Node -> host:port, this one included, the same on all of them.
    listen: str = ""  # Where this node listens, if not where the others find it.
    settings: RaftSettings = field(default_factory=RaftSettings)
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
        watcher: LeadershipWatcher,
        clock: Callable[[], float] = time.monotonic,
        dice: random.Random | None = None,
        steps: LoopMeter | None = None,
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
        self.links = PeerLinks(
            identity, place.links, clock, self.dice,
            self._received, self._up, self._down, place.contexts, self._origin, self._foreign,
            lambda: self.core.known_leader, self.go_on,
        )  # fmt: skip
        self.stopping = False
        self._journal = JournalThread(self, self._synced)
        self._bulk = BulkThread(self)
        self._turning = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._sync_listeners: list[Callable[[float], None]] = []
        self._leader_listeners: list[Callable[[], None]] = []
        self._led: tuple[str | None, bool] = (None, False)
        self._following: Configuration | None = None
        # Who came with another history of this cluster, and when last.
        self.foreign: dict[str, float] = {}

    def on_sync(self, listener: Callable[[float], None]) -> None:
        """Have a listener called after each round of the journal, with the seconds it took."""
        self._sync_listeners.append(listener)

    def on_leader_change(self, listener: Callable[[], None]) -> None:
        """Have a listener called when another node leads, or none, as far as this one knows."""
        self._leader_listeners.append(listener)

    def _synced(self, took: float) -> None:
        for listener in self._sync_listeners:
            listener(took)

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        await self.links.listen(self.place.listen or self.place.contacts[self.place.node])
        self.wake()

    async def stop(self) -> None:
        """End in order: nothing is lost by it, and nothing is handed over either."""
        self.stopping = True
        if self._timer is not None:
            self._timer.cancel()
        await self.links.close()
        # The round that is under way ends; the disk may be closed after this.
        for thread in (self._journal.thread, self._bulk.thread):
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
        self.wake()

    def submit_switch(self, data: bytes, reply: Reply) -> None:
        """As `submit`, for a command by which the machine goes on from another state."""
        self.core.propose(data, reply, SWITCH)
        self.wake()

    def confirm(self, reply: Reply) -> None:
        """As `barrier`, with a reply that is called on the loop."""
        self.core.read(reply)
        self.wake()

    def notify(self, text: bytes) -> None:
        """Send all connected members something that is not for the log; it may be lost."""
        self.core.notify(text)
        self.wake()

    async def in_bulk(
        self, name: str, work: Callable[[], Made], undo: Callable[[Made], None]
    ) -> Made:
        """Do work on the helper that makes and installs snapshots, so between two of these. What
        it raises is the caller's; what comes for a caller that has left is undone."""
        return await self._bulk.do(name, work, undo)

    def status(self) -> Status:
        return self.core.status()

    def bootstrap_waits(self) -> str:
        """What a node without a cluster waits for, in a sentence; empty once it has one."""
        core = self.core
        if core.members.formed:
            return ""
        lacks = core.join.lacks()
        for peer in lacks:
            lacks[peer] = self.links.refused.get(peer) or lacks[peer]
        waits = "; ".join(f"{peer} {why}" for peer, why in sorted(lacks.items()))
        if core.join.meets_cluster():
            return (
                f"{core.me} is in no cluster yet, and waits to be let in by one that is there;"
                f" where it is new to that one: raftsched cluster add {core.me} --peer"
                f" {core.join.contacts[core.me]} --client HOST:PORT. {waits}."
            )
        listed = len(core.join.contacts)
        return (
            f"{core.me} is new and in no cluster yet. A new cluster begins once all "
            f"{listed} nodes of its list have met, so that no lost disk votes twice; "
            f"{core.me} waits for them: {waits or 'they agree at this moment'}."
        )

    def silence_s(self) -> float:
        return self.core.silence_s(self.clock())

    def staleness(self) -> float:
        """Return how old the applied state is at most, in seconds."""
        return self.core.staleness(self.clock())

    async def _ask(
        self, call: Callable[[Callable[[int | None], None]], None], timeout: float
    ) -> int | None:
        if self.stopping or self.ended.done():
            raise CallRefused(f"{self.place.node} is stopping; ask another node")
        future: asyncio.Future[int | None] = self._loop.create_future()

        def reply(index: int | None) -> None:
            if not future.done():
                future.set_result(index)

        call(reply)
        self.wake()
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            return None

    # What happens.

    def _received(self, peer: str, incarnation: int, message: Message) -> None:
        now = self.clock()
        self.guard(lambda: self.core.receive(peer, incarnation, message, now))
        self.steps.end("a message of a member", now)

    def _up(self, peer: str) -> None:
        self.guard(lambda: self.core.link_up(peer, self.clock()))

    def _down(self, peer: str) -> None:
        self.guard(lambda: self.core.link_down(peer, self.clock()))

    def _origin(self) -> str | None:
        return self.core.config.origin if self.core.members.formed else None

    def _foreign(self, peer: str, origin: str) -> None:
        """A node has another history on its disk. If both were restored, and apart, each would
        lead alone: none of them may."""
        config = self.core.config
        if peer in config.members:
            self.foreign[peer] = self.clock()
        if origin and config.origin and config.voters == [self.place.node]:
            self.fail(
                Broken(
                    f"{peer} and {self.place.node} were restored or recovered apart, and each "
                    "would be a cluster of its own. Choose one; empty the folder of the other, and "
                    "start both"
                )
            )

    def guard(self, what: Callable[[], None]) -> None:
        """Do something to the core; if it raises, this node has ended."""
        if self.stopping or self.ended.done():
            return
        try:
            what()
        except WireError:
            raise  # Nothing was changed; it costs the peer its connection.
        except Exception as error:
            self.fail(error)
            return
        self.wake()

    def fail(self, error: BaseException) -> None:
        """Going on could break a promise. Nothing leaves this node any more, not even what was
        decided in this turn of the loop."""
        if not self.ended.done():
            logger.critical("%s ends: %s: %s", self.place.node, type(error).__name__, error)
            self.ended.set_exception(error)
            self.stopping = True
            for session in list(self.links.sessions.values()):
                session.close("this node ends")

    # Turns.

    def wake(self) -> None:
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
        if self.stopping or self.ended.done():
            return
        try:
            now = self.clock()
            # What came goes to the disk while what is committed is applied.
            self._journal.begin(now)
            more = self.core.step(now)
            self.steps.end("consensus and apply", now)
            stepped = self.clock()
            self._flush()
            self._journal.begin(now)
            self._bulk.begin()
            self.steps.end("send to members and journal", stepped)
            self.core.run_answers()
            self._follow_leader()
            self._follow_members()
            for task in self.links.tasks:
                if task.done():
                    task.result()
                    raise CallRefused(f"the task {task.get_name()} of the links ended")
        except Exception as error:
            self.fail(error)
            return
        if more:
            self.wake()
        else:
            self._set_timer(now)

    def _flush(self) -> None:
        core = self.core
        ready = core.outbox.release(core.journal.synced)
        if ready:
            self.links.send([(to, core.replication.disk_of(to), message) for to, message in ready])

    def _set_timer(self, now: float) -> None:
        at = max(self.core.next_at(now), now + 0.0005)
        if self._timer is None or at < self._timer_at or self._timer_at <= now:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer = self._loop.call_later(at - now, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.turn_unless_due()

    def turn_unless_due(self) -> None:
        """Take a turn now, unless one is about to come."""
        if not self._turning:
            self._turn()

    def _follow_leader(self) -> None:
        led = (self.core.known_leader, self.core.in_office)
        if led != self._led:
            self._led = led
            for listener in self._leader_listeners:
                listener()

    def _follow_members(self) -> None:
        core = self.core
        if core.config is not self._following:
            self._following = core.config
            # Where the log says a node is, else where its own list has it: those who moved while
            # there was no majority to write it down must find each other to have one.
            addresses = {n: [m.address] for n, m in core.config.members.items()}
            for name, address in self.place.contacts.items():
                if address not in addresses.setdefault(name, []):
                    addresses[name].append(address)
            self.links.follow(addresses)
            self.foreign = {n: at for n, at in self.foreign.items() if n in core.config.members}
