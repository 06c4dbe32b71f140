"""One node: its copy of the state, its consensus and its leader's loop, on one asyncio loop.

Services, the HTTP port and the command around it know a node by this class alone. What it does
itself is to make its parts, start and stop them, and hand each event to whoever it is for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import cast

from google.protobuf.message import Message

from ...proto.v1 import common_pb2
from ...statemachine.core.rejection import Refused
from ...statemachine.core.store import Reading
from ..raft.disk import RealDisk
from ..raft.driver import Driver
from ..raft.journal import Journal
from ..raft.port import Status
from . import refusals
from .alert_watch import AlertWatch
from .bootstrap_token import Bootstrap
from .clock import SteadyClock
from .clock_watch import ClockWatch
from .condition import NodeCondition
from .consensus_view import ConsensusView
from .damage_watch import DamageWatch
from .figure_watch import FigureWatch
from .gossip import Gossip
from .handover import LeaderHandover
from .leader_loop import Leader
from .leader_turns import MIN_CHANGE_INTERVAL, LeaderTurns
from .node_reads import Finish, NodeReads, ReadAnswer, nothing
from .node_spec import NodeSpec
from .node_writes import NodeWrites
from .peer_info import PeerDirectory
from .preload import Ahead
from .readers import Readers
from .removal import try_to_note_removal
from .restoring import Restores
from .virtual_time import VirtualTimeDriver
from .whereabouts import Whereabouts
from .worker_sessions import WorkerSessions

logger = logging.getLogger(__name__)

# A leader without a message of a majority for so long may be one no more, and moves no time.
LEADER_CONTACT_TIMEOUT = 0.5


class Node:
    """See the head of this file. It is the watcher of its own consensus."""

    was_removed = False
    term_began_ms = 0
    _draining = False
    _ticker: asyncio.TimerHandle | None = None
    _time_driver: VirtualTimeDriver | None = None

    def __init__(self, spec: NodeSpec) -> None:
        self.spec, self.name, self.cluster = spec, spec.name, spec.cluster
        self.damage = DamageWatch(spec.name, spec.folder, spec.scrub_rate, self._end)
        self.disk = RealDisk(spec.folder / "consensus")
        self.backups = spec.clear_leftovers()
        self.replica = self.damage.open_state(self.disk.root, spec.cache_bytes)
        self.steps = spec.loop_steps()
        try:
            self.driver = Driver(
                spec.place(), self.disk, self.replica, self, clock=spec.seconds, steps=self.steps
            )
        except BaseException:
            # Somebody may set these folders aside and try again.
            self.replica.close()
            self.disk.close()
            raise
        self.consensus = ConsensusView(self.driver)
        self.damage.watch(self.disk, self.replica, self.driver, self.consensus)
        self.clock = spec.virtual or SteadyClock(spec.wall_ms, spec.seconds)
        clocks = spec.wall_ms, spec.seconds
        self.directory = PeerDirectory(spec.name, self.replica, *clocks, spec.secret_keys)
        self.secret_keys, self.lacks_key = spec.secret_keys, self.directory.lacks_key
        self.bootstrap = Bootstrap(spec.folder)
        self._make_loop()
        self._make_watches()
        self.replica.on_change(lambda index, prepared, meta: self.directory.applied(meta))

    def _make_loop(self) -> None:
        """What decides and answers."""
        spec, is_virtual = self.spec, self.spec.virtual is not None
        self.sessions = WorkerSessions(
            lambda: int(spec.seconds() * 1000), self.clock.now_ms, self._wake, spec.heartbeat_ms,
            shows_time=not is_virtual, state=lambda: self.replica.store,
        )  # fmt: skip
        self.leader = Leader(
            spec.name, self.replica, self.driver, self.sessions, self.clock.now_ms, spec.seconds,
            steps=self.steps, leader_address=lambda: self.leader_address, clock_is_sure=False,
            clock_stands_still=is_virtual,
        )  # fmt: skip
        self.turns = LeaderTurns(
            self.leader, self.driver, self.clock.now_ms, self.fail, self._after_turn,
            0.0 if is_virtual else MIN_CHANGE_INTERVAL,
        )  # fmt: skip
        clients = {name: member.client for name, member in spec.members.items()}
        self._whereabouts = where = Whereabouts(
            spec.name, clients, self.consensus, self.leader, self.directory
        )
        self.driver.on_leader_change(where.changed)
        self._readers = Readers(steps=self.steps, is_busy=lambda: self.leader.is_busy)
        self._zones = Ahead(self._readers)
        self._writes = NodeWrites(self.leader, self._zones, self.clock.now_ms)
        self._reads = NodeReads(self.driver, self.leader, self.clock, self._readers, where)

    def _make_watches(self) -> None:
        """What looks now and then."""
        spec, leader, driver, directory = self.spec, self.leader, self.driver, self.directory
        self._handover = LeaderHandover(spec.name, leader, driver)
        handover, skew_max_ms = self._handover, spec.skew_max_ms
        self._clocks = ClockWatch(self.clock, directory, driver, leader, handover, skew_max_ms)
        self.condition = NodeCondition(spec, driver, self.consensus, directory)
        ahead_ms = self._clocks.state_ahead_ms
        self._alerts = AlertWatch(leader, driver, directory, self.condition.elections, ahead_ms)
        self.figures = FigureWatch(leader, driver)
        self._gossip = Gossip(
            spec.version, directory, self.consensus, self.sessions, self._zones, self.bootstrap,
            self.steps, self.figures, driver.notify, leader.token_uses,
        )  # fmt: skip
        self.restores = Restores(spec, leader, self.replica, driver, directory, self.introduce)
        if (clock := spec.virtual) is not None:
            self._time_driver = VirtualTimeDriver(clock, leader, self._wake, self._alerts.look)

    # Life.

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.turns.start(self._loop)
        self.watch_bootstrap()
        await self.driver.start()
        self.steps.watch(self._loop)
        self.driver.ended.add_done_callback(self._driver_ended)
        self._tick()
        self.damage.start(self._loop)
        if self._time_driver is not None:
            self._time_driver.start()

    async def stop(self) -> None:
        """End in order: nothing is lost by it. Drain and hand over before."""
        if self._ticker is not None:
            self._ticker.cancel()
        self.turns.stop()
        self.steps.stop()
        self._zones.stop()
        self._reads.stop()
        if self._time_driver is not None:
            self._time_driver.stop()
        self._handover.stop()
        await self.driver.stop()
        if self.leads:
            self.leader.lost()
        for close in (self._readers.close, self.restores.close, self.damage.stop):
            await self._loop.run_in_executor(None, close)
        if self.replica.close() and not (self.ended.done() and self.ended.exception()):
            self.damage.stopped_in_order()
        self.disk.close()
        if not self.ended.done():
            self.ended.set_result(None)

    async def hand_over(self, timeout: float) -> bool:
        """Give leadership away, if this node has it and there is somebody to take it."""
        return await self._handover.hand_over(timeout)

    def fail(self, error: BaseException) -> None:
        """Something broke that must not: the node ends, and `ended` says why."""
        if not self.ended.done():
            logger.critical("%s ends: %s: %s", self.name, type(error).__name__, error)
            self.ended.set_exception(error)
            self.turns.stop()

    def _end(self, error: BaseException) -> bool:
        """The same, and nothing leaves this node from now on; whether it had not ended before."""
        if self.ended.done():
            return False
        self.driver.fail(error)
        self.fail(error)
        return True

    def _driver_ended(self, ended: asyncio.Future[None]) -> None:
        error = ended.exception()
        if error is not None and not self.ended.done():
            self.damage.consensus_ended(error)
            self.fail(error)

    # Draining.

    @property
    def draining(self) -> bool:
        return self._draining

    def drain(self) -> None:
        """Take no more calls, and give leadership away as soon as it is here."""
        self._draining = True

    def resume(self) -> None:
        self._draining = False

    # Where it stands.

    @property
    def leads(self) -> bool:
        return self.leader.leading

    @property
    def serves(self) -> bool:
        """It takes calls: it neither drains nor doubts its state."""
        return not self.draining and not self.directory.diverged and not self.consensus.is_bereft

    @property
    def term(self) -> int:
        return self.consensus.term

    @property
    def revision(self) -> int:
        return self.replica.meta.revision

    @property
    def journal(self) -> Journal:
        return self.consensus.journal

    @property
    def leader_name(self) -> str:
        return self._whereabouts.leader_name

    @property
    def leader_address(self) -> str:
        return self._whereabouts.leader_address

    def client_address(self, name: str) -> str:
        return self._whereabouts.client_address(name)

    def on_leader_change(self, listener: Callable[[], None]) -> None:
        self._whereabouts.on_change(listener)

    def knows(self, level: int) -> bool:
        return self.directory.knows(level, self.consensus.members)

    @property
    def needs_token(self) -> bool:
        return self.spec.tokens or self.directory.any_bootstrap

    @property
    def bootstraps(self) -> frozenset[bytes]:
        return frozenset({self.bootstrap.digest, *self.directory.bootstraps()} - {b""})

    def recovering(self, digest: bytes) -> tuple[int, int]:
        voters, own = self.consensus.voters, self.bootstrap.recovery
        return self.directory.recovering(digest, own, voters), len(voters)

    @property
    def forward_keys(self) -> dict[str, bytes]:
        return self.directory.forward_keys()

    @property
    def bootstrap_file(self) -> str:
        return self.bootstrap.place

    @property
    def ahead_ms(self) -> int:
        """How far the state's time is ahead of the clocks; 0 when near enough, or nobody knows."""
        return self._clocks.state_ahead_ms()

    def status(self) -> Status:
        return self.driver.status()

    def staleness(self) -> float:
        """How old the applied state is at most, in seconds."""
        return self.driver.staleness()

    # Calls.

    def check_serving(self) -> None:
        """Refuse while this node drains, or when it cannot trust its state."""
        if self.draining:
            leader = "" if self.leads else self.leader_address
            raise refusals.draining(self.name, leader)
        if self.directory.diverged:
            raise refusals.state_diverged(self.name)
        if self.consensus.is_bereft:
            raise refusals.state_lost(self.name)

    def write(self, body: Message, actor: str, timeout: float,
              tenant: str = "") -> Awaitable[Message]:  # fmt: skip
        """Have a call decided, replicated and applied. Raises Refused. No coroutine: it costs."""
        return cast("Awaitable[Message]", self.ask(body, actor, timeout, tenant))

    def ask(self, body: object, actor: str, timeout: float, tenant: str = "") -> Awaitable[object]:
        self.check_serving()
        return self._writes.ask(body, actor, timeout, tenant)

    def read(
        self, body: Message, options: common_pb2.ReadOptions | None, timeout: float,
        caller: str = "", finish: Finish = nothing,
    ) -> Coroutine[None, None, ReadAnswer]:  # fmt: skip
        """Answer a read; see NodeReads. Raises Refused."""
        self.check_serving()
        return self._reads.read(body, options, timeout, caller, finish)

    def snapshot(self) -> Reading:
        """The state as it is now, for a thread, which stands back for the loop."""
        return self._reads.snapshot()

    def barrier(self, timeout: float) -> Awaitable[None]:
        """Return when all that was acknowledged before is in the state of this leader."""
        return self._reads.barrier(timeout)

    def nobody_leads(self) -> Refused:
        return self._reads.nobody_leads()

    def too_late(self, seconds: float) -> Refused:
        return self._reads.too_late(seconds)

    # What consensus says.

    def leadership_gained(self, term: int) -> None:
        logger.info("%s leads in term %d", self.name, term)
        self.term_began_ms = self.spec.wall_ms()
        self.leader.gained()
        self.leader.make_alerts()
        self._whereabouts.changed()

    def leadership_lost(self, term: int) -> None:
        logger.info("%s leads no more; the term is %d", self.name, term)
        self.leader.lost()
        self._whereabouts.changed()

    def removed(self) -> None:
        self.was_removed = True
        try_to_note_removal(self.name, self.spec.folder)
        if not self.ended.done():
            self.ended.set_result(None)
            self.turns.stop()

    def linked(self, peer: str) -> None:
        # Whoever has just started may decide nothing before it has compared its clock. Sent ahead
        # of everything else, it has by the time it could be elected.
        self.introduce()

    def on_notice(self, peer: str, text: bytes) -> None:
        self._gossip.received(peer, text, self.clock.now_ms())
        self._whereabouts.changed()
        if not self.clock.sure:
            self._clocks.look(is_draining=self.draining)
            self._wake()

    # Turns.

    def _wake(self) -> None:
        self.turns.wake()

    def _after_turn(self) -> None:
        if self.leads and self.draining:
            # It turns all callers away, so they must not wait for the next look.
            self._clocks.look(is_draining=self.draining)
        driver = self._time_driver
        led_lately = driver is not None and self.driver.staleness() < LEADER_CONTACT_TIMEOUT
        if driver is not None and led_lately and not self.turns.is_awake:
            driver.advance()

    def introduce(self) -> None:
        """Introduce this node to the others: each second, and at once when that changes."""
        address = self.client_address(self.name)
        self._gossip.introduce(address, serving=self.serves, leads=self.leads)

    def _tick(self) -> None:
        """Each second: introduce this node to the others, and look at all that may change."""
        if self.ended.done():
            return
        interval = self._gossip.interval(clock_is_sure=self.clock.sure)
        self._ticker = self._loop.call_later(interval, self._tick)
        try:
            self.damage.look_at_files()
            self.condition.look()
            self.watch_bootstrap()
            self.introduce()
            self._clocks.look(is_draining=self.draining)
            self._whereabouts.changed()
            self._alerts.try_to_look()
            self.restores.look()
        except Exception as error:
            self.fail(error)
        self._wake()

    def watch_bootstrap(self) -> None:
        """Have the secret for the first token as long as there is none."""
        self.bootstrap.look(self.replica.store, is_wanted=self.spec.tokens)
