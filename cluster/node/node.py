"""One node: its copy of the state, its consensus and its leader's loop, on one asyncio loop.

Services, the HTTP port and the command around it know a node by this class alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import shutil
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import cast

from google.protobuf.message import Message

from ...proto.v1 import common_pb2
from ...statemachine.core.rejection import Refused, Rejection
from ...statemachine.core.rocks_store import CACHE_BYTES, RocksStore
from ...statemachine.core.store import Corrupt, Reading
from ...statemachine.machine import Prepared
from ...statemachine.model.record import MetaRecord
from ...statemachine.model.view import View
from ...statemachine.piecewise import FATAL, Failure, failed
from ...statemachine.reads import reads
from ...statemachine.tenants import access
from ..raft import faults, segment
from ..raft.disk import RealDisk
from ..raft.disk_errors import disk_failed
from ..raft.driver import Driver, Place
from ..raft.journal import JournalLimits
from ..raft.manifest import folder_of
from ..raft.port import Settings, Status
from . import damage, refusals
from .applier import RENEWING, Replica
from .bootstrap_token import BOOTSTRAP, Bootstrap, used_by
from .clock import SteadyClock
from .elections import Elections
from .leader_loop import Leader, NodeHealth
from .loop_steps import LoopSteps
from .peer_info import NodeInfo, PeerDirectory
from .preload import Ahead
from .readers import Readers
from .removal import note_removal
from .scrub import Background, Pace, Scrub, set_stop_mark, take_stop_mark
from .virtual_time import VirtualClock, VirtualTimeDriver
from .worker_sessions import Sessions

logger = logging.getLogger(__name__)

STATE = "state"  # The folder of the state.
DOUBT = "it met damage before it ended"
JOURNAL_DOUBT = "the journal lacks entries, as this node found before it ended"
REPLACED = (
    "{path} is not the file any more that was opened at the start: it was removed or replaced "
    "under the running node, so what is written would be lost. If it was moved, put it back; else "
    "start this node while the others lead, and it takes all from them. If it befell a majority of "
    "the nodes, do not start them with empty folders: that would begin a new cluster; restore a "
    "backup"
)
STALE_MAX = 10.0  # Seconds without a word from a leader that are a problem of the cluster.
STALE_READ_MAX = 86_400.0  # Seconds; no stale read is answered from an older state.
# Seconds without a message of a majority after which there may be none.
MAJORITY_CONTACT_TIMEOUT = 1.0
GOSSIP_INTERVAL = 1.0  # How often nodes tell each other of themselves.
FAST_GOSSIP_INTERVAL = 0.1  # The same, while somebody has not heard from all it is linked to.
# Seconds between the beginnings of two changes, unless somebody waits for the next one.
MIN_CHANGE_INTERVAL = 0.005
# A leader without a word from a majority for so long may be one no more, and moves no time.
LEADER_CONTACT_TIMEOUT = 0.5
# A state that is ahead of the clocks by more was moved by clocks that were wrong.
AHEAD_MS = 5_000


@dataclass(frozen=True, kw_only=True)
class Member:
    """Where a node is found: host:port for other nodes, and for clients."""

    peer: str
    client: str


@dataclass(frozen=True, kw_only=True)
class NodeSpec:
    """What a node must know to start."""

    name: str
    cluster: str
    folder: Path
    # By name, this one included; the same on all of them.
    members: dict[str, Member]
    # Where it listens for other nodes, if not at its own address in the list.
    listen_peer: str = ""
    # Nobody may call without an access token, not even before there is one.
    tokens: bool = False
    version: str = "0"
    heartbeat_ms: int = 2_000
    skew_max_ms: int = 1_000
    cache_bytes: int = CACHE_BYTES
    contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None = None
    settings: Settings = field(default_factory=Settings)
    journal: JournalLimits = field(default_factory=JournalLimits)
    scrub_rate: int = 8 << 20  # Bytes a second that are read again in the background.
    # The clocks, for tests: milliseconds since 1970, and seconds that only grow.
    wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    seconds: Callable[[], float] = time.monotonic
    # The time that jobs go by, in tests of programs that use them.
    virtual: VirtualClock | None = None


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """An answer, the revision it is true at, and how old it may be."""

    message: Message
    revision: int
    age_ms: int = 0


Finish = Callable[[Message], None]


def nothing(answer: Message) -> None:
    """It is finished as it is."""


class Node:
    """See the head of this file. It is the watcher of its own consensus."""

    draining = was_removed = False
    term_began_ms = 0
    # Until when the certificates of its doors are valid, in seconds since 1970.
    expiries: Mapping[str, float] = MappingProxyType({})
    _is_awake = False
    _delayed_turn: asyncio.TimerHandle | None = None
    _timer: asyncio.TimerHandle | None = None
    _ticker: asyncio.TimerHandle | None = None
    _handing_over: asyncio.Task[bool] | None = None
    _time_driver: VirtualTimeDriver | None = None

    def __init__(self, spec: NodeSpec) -> None:
        self.spec, self.name = spec, spec.name
        doubt = damage.noted(spec.folder)
        if doubt == damage.JOURNAL:
            raise faults.Damaged(f"{spec.folder}: {JOURNAL_DOUBT}. {segment.ADVICE}")
        disk = RealDisk(spec.folder / "consensus")
        self.disk = disk
        # Checkpoints that are being streamed; what is there now was left by a crash.
        self.backups = spec.folder / "backups"
        for left in (self.backups, spec.folder / RENEWING):
            shutil.rmtree(left, ignore_errors=True)
        self._thread = 0  # That of the loop, once it runs.
        self.scrub = Scrub(spec.folder)
        self._background = Background(self._scrub, self._scrub_failed, spec.scrub_rate)
        self.replica = Replica(
            spec.folder / STATE, disk.root, cache_bytes=spec.cache_bytes, damaged=self._damaged,
            set_aside=self._set_aside, doubt=DOUBT if doubt == damage.STATE else "",
            check=None if take_stop_mark(spec.folder) else self.scrub.check_at_start,
        )  # fmt: skip
        if doubt == damage.STATE:
            # Once it is aside: what comes after may fail, and must not set an empty state aside.
            damage.forget(spec.folder)
        self.steps = LoopSteps(
            spec.name, spec.wall_ms, spec.seconds, spec.settings.silence_min / 3
        )  # fmt: skip
        contacts = {name: member.peer for name, member in spec.members.items()}
        place = Place(
            cluster=spec.cluster, node=spec.name, contacts=contacts, listen=spec.listen_peer,
            settings=spec.settings, journal=spec.journal, contexts=spec.contexts,
        )  # fmt: skip
        try:
            self.driver = Driver(
                place, disk, self.replica, self, clock=spec.seconds, steps=self.steps
            )
        except BaseException:
            # Somebody may set these folders aside and try again.
            self.replica.close()
            disk.close()
            raise
        if doubt == damage.SNAPSHOT:
            self.driver.core.snapshots.set_aside_damaged()
            damage.forget(spec.folder)
        self.clock = spec.virtual or SteadyClock(spec.wall_ms, spec.seconds)
        self.sessions = Sessions(
            lambda: int(spec.seconds() * 1000), self.clock.now_ms, self._wake, spec.heartbeat_ms
        )
        self.leader = Leader(
            spec.name, self.replica, self.driver, self.sessions, self.clock.now_ms, spec.seconds,
            steps=self.steps,
        )  # fmt: skip
        self._elections = Elections(spec.seconds)
        self.leader.leader_address = lambda: self.leader_address
        self.leader.clock_is_sure = False
        self.leader.clock_stands_still = spec.virtual is not None
        self.sessions.tells_time = spec.virtual is None
        self.known = PeerDirectory(spec.name, self.replica, spec.wall_ms, spec.seconds)
        self.bootstrap = Bootstrap(spec.folder)
        self._readers = Readers(steps=self.steps, is_busy=lambda: self.leader.is_busy)
        self._ahead = Ahead(self._readers)
        self._moved = asyncio.Event()
        self._min_interval = MIN_CHANGE_INTERVAL
        if spec.virtual is not None:
            self._min_interval = 0.0
            self._time_driver = VirtualTimeDriver(
                spec.virtual, self.leader, self._wake, self._watch_alerts
            )
        self.replica.listeners.append(self._applied)

    # Life.

    async def start(self) -> None:
        self._thread = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.watch_bootstrap()
        await self.driver.start()
        self.steps.watch(self._loop)
        self.driver.ended.add_done_callback(self._driver_ended)
        self._tick()
        self._background.start(hastes=self.scrub.behind)
        if self._time_driver is not None:
            self._time_driver.start()

    async def stop(self) -> None:
        """End in order: nothing is lost by it. Drain and hand over before."""
        for timer in (self._timer, self._ticker):
            if timer is not None:
                timer.cancel()
        self.steps.stop()
        self._ahead.stop()
        if self._time_driver is not None:
            self._time_driver.stop()
        if self._handing_over is not None:
            self._handing_over.cancel()
        await self.driver.stop()
        if self.leads:
            self.leader.lost()
        await self._loop.run_in_executor(None, self._readers.close)
        await self._loop.run_in_executor(None, self._background.stop)
        if self.replica.close() and not (self.ended.done() and self.ended.exception()):
            try:
                set_stop_mark(self.spec.folder)
            except OSError as error:
                # The next start reads the tables, as after a stop that was not in order.
                logger.warning("%s cannot note that it stopped in order: %s", self.name, error)
        self.disk.close()
        if not self.ended.done():
            self.ended.set_result(None)

    async def hand_over(self, timeout: float) -> bool:
        """Give leadership away, if this node has it and there is somebody to take it."""
        if not self.leads:
            return True
        if self.status().peers.keys() == {self.name}:
            # It is alone, and nobody asks why it stops as a leader.
            return False
        under_way = self._handing_over
        if under_way is not None and asyncio.current_task() is not under_way:
            await asyncio.wait([under_way], timeout=timeout)
            if not self.leads:
                return True
        try:
            return await self.driver.transfer(None, timeout)
        except faults.Refused as refused:
            logger.warning("%s keeps leading: %s", self.name, refused)
            return False

    def fail(self, error: BaseException) -> None:
        """Something broke that must not: the node ends, and `ended` tells why."""
        if not self.ended.done():
            logger.critical("%s ends: %s: %s", self.name, type(error).__name__, error)
            self.ended.set_exception(error)

    def _damaged(self, error: Corrupt) -> None:
        """The store met damage, on whatever thread: no answer leaves this node any more. Who asked
        the store may make of it what he likes, so this does not rely on him."""
        if not self._thread or self._loop.is_closed():
            return  # It does not run yet, or no more: whoever asked ends with the error itself.
        if threading.get_ident() == self._thread:
            self._end_damaged(error)
        else:
            self._loop.call_soon_threadsafe(self._end_damaged, error)

    def _end_damaged(self, error: Corrupt, what: str = damage.STATE) -> None:
        if not self.ended.done():
            told = faults.Damaged(
                f"{error}. Others lead on; at its next start this node sets that state aside and "
                "takes another by itself, from its own snapshot or from theirs"
            )
            self.driver.fail(told)
            self.fail(told)
            self._note(what, told)

    def _note(self, what: str, why: Exception) -> None:
        try:
            damage.note(self.spec.folder, what, str(why))
        except OSError as error:
            # The next start looks by itself after such an end.
            logger.warning("%s cannot note that it met damage: %s", self.name, error)

    def _watch_files(self) -> None:
        """End if the files that are written are not those of the folder any more: nothing of it
        would be there after the next start."""
        ours, newest = self.disk.holds_its_lock(), self.driver.core.journal.newest
        if ours and self.disk.holds(newest):
            return
        path = self.disk.root / newest if ours else self.disk.root
        told = faults.Damaged(REPLACED.format(path=path))
        self.driver.fail(told)
        self.fail(told)
        if ours:
            # Else there is nothing of ours to note it in.
            self._note(damage.JOURNAL, told)

    def _scrub(self, pace: Pace) -> None:
        """One pass over all that does not change any more; on a thread of its own."""
        store, journal = self.replica.store, self.driver.core.journal
        what = damage.STATE
        try:
            assert isinstance(store, RocksStore)
            self.scrub.check_state(store, pace)
            what = damage.SNAPSHOT
            self.scrub.check_journal(journal.full_segments(), pace)
        except Corrupt as error:
            self._loop.call_soon_threadsafe(self._end_damaged, error, what)
            return
        except Exception:
            if self.replica.store is store:
                raise
            return  # Another state took its place, and the files of this one are gone.
        for manifest in list(self.driver.core.snapshots.by_index.values()):
            if name := self.scrub.check_snapshot(manifest, pace):
                self._loop.call_soon_threadsafe(self._without_snapshot, manifest.index, name)
        with contextlib.suppress(OSError):
            # On a full disk the next start reads through more than it must.
            self.scrub.save()
        self.scrub.pass_ended = time.time()

    def _scrub_failed(self, error: Exception) -> None:
        """A disk that cannot be read is as good as damaged."""
        self._loop.call_soon_threadsafe(self.driver.fail, disk_failed(error))

    def _without_snapshot(self, index: int, name: str) -> None:
        """One that the state does not need any more; another is made of the state."""
        core = self.driver.core
        if index in core.snapshots.by_index and not self.ended.done():
            why = f"{folder_of(index)}/{name} is not what was written"
            core.snapshots.set_aside(index, faults.Damaged(why))
            core.make_snapshot()
            self._wake()

    def _set_aside(self, name: str, why: str) -> None:
        damage.set_aside(self.spec.folder, [f"{STATE}/{name}"], why)

    # Where it stands.

    @property
    def leads(self) -> bool:
        return self.leader.leading

    @property
    def serves(self) -> bool:
        """It takes calls: it neither drains nor doubts its state."""
        return not self.draining and not self.known.diverged and not self.driver.core.bereft

    @property
    def term(self) -> int:
        return int(self.driver.core.term)

    @property
    def revision(self) -> int:
        return self.replica.meta.revision

    @property
    def leader_name(self) -> str:
        if self.leads:
            return self.name
        leader = self.driver.core.known_leader
        # It may still be finding out that it leads no more.
        return leader if leader is not None and leader != self.name else ""

    @property
    def leader_address(self) -> str:
        """Where clients find the leader; empty when none is known."""
        return self.client_address(self.leader_name)

    def client_address(self, name: str) -> str:
        member = self.driver.core.config.members.get(name)
        if member is not None and member.client:
            return member.client  # It was moved: what the cluster was told counts.
        about = self.known.peer_infos.get(name)
        if about is not None:
            return about.client_address
        listed = self.spec.members.get(name)
        return listed.client if listed is not None else ""

    @property
    def peer_infos(self) -> dict[str, NodeInfo]:
        """What the other nodes said of themselves."""
        return self.known.peer_infos

    def knows(self, level: int) -> bool:
        """No member is known to be of a version before that feature level."""
        members = self.driver.core.config.members
        return all(
            info.feature_level >= level for name, info in self.peer_infos.items() if name in members
        )

    @property
    def needs_token(self) -> bool:
        """Somebody of the cluster was told to let nobody in without an access token."""
        return self.spec.tokens or self.known.any_bootstrap

    @property
    def bootstraps(self) -> frozenset[bytes]:
        """Hashes of the secrets that make the first access token."""
        others = (bytes.fromhex(about.bootstrap) for about in self.peer_infos.values())
        return frozenset(one for one in (self.bootstrap.digest, *others) if one)

    @property
    def bootstrap_file(self) -> str:
        return str(self.bootstrap.file) if self.bootstrap.digest else BOOTSTRAP

    def status(self) -> Status:
        return self.driver.status()

    # Calls.

    def write(self, body: Message, actor: str, timeout: float) -> Awaitable[Message]:
        """Have a call decided, replicated and applied. Raises Refused. No coroutine of its own,
        since each call would pay for it: the rules answer a message with one."""
        return cast("Awaitable[Message]", self.ask(body, actor, timeout))

    async def ask(self, body: object, actor: str, timeout: float) -> object:
        """As `write`, for a request of any kind that the rules know."""
        self.check_serving()
        if unseen := self._ahead.unseen(body):
            try:
                async with asyncio.timeout(timeout):
                    await self._ahead.look_at(unseen, actor, self.clock.now_ms())
            except TimeoutError:
                raise refusals.commit_timeout(timeout) from None
        future: asyncio.Future[object] = self._loop.create_future()

        def answer(reply: object) -> None:
            if not future.done():
                future.set_result(reply)

        def unknown() -> None:
            answer(refusals.leader_changed(self.name).rejection)

        def late() -> None:
            part.withdrawn = not future.done()
            answer(refusals.commit_timeout(timeout).rejection)

        part = self.leader.ask(body, actor, answer, unknown)
        # Half of what `asyncio.timeout` costs each call.
        timer = self._loop.call_later(timeout, late)
        try:
            reply = await future
        finally:
            timer.cancel()
            if future.cancelled():
                # Whoever waited is gone; what was not decided yet need not be.
                part.withdrawn = True
        if isinstance(reply, Rejection):
            raise Refused(reply)
        if isinstance(reply, Exception):
            try:
                # Its trace, which the leader's log has, holds the part that it was raised for.
                raise reply.with_traceback(None)
            finally:
                # Its new trace holds this frame, which must not hold it in turn.
                del reply, future, answer, unknown, late, timer, part
        return reply

    async def read(
        self, body: Message, options: common_pb2.ReadOptions | None, timeout: float,
        caller: str = "", finish: Finish = nothing,
    ) -> ReadAnswer:  # fmt: skip
        """Answer a read. Raises Refused. What looks at much takes its turn among callers; `finish`
        is done to the answer where it is made."""
        self.check_serving()
        options, state = options or common_pb2.ReadOptions(), "no quorum"
        try:
            async with asyncio.timeout(timeout):
                stale = options.consistency == common_pb2.CONSISTENCY_STALE
                await self._wait_for_state(timeout, stale=stale)
                state = "revision"
                await self._wait_for_revision(options.min_revision.change)
                state = "read"
                return await self._read(body, caller, finish, stale=stale)
        except TimeoutError:
            if state == "read":
                raise refusals.read_timeout(timeout, caller) from None
            if state == "revision":
                wanted = options.min_revision.change
                raise refusals.not_reached(self.name, wanted, self.revision, timeout) from None
            raise self.too_late(timeout) from None

    def check_serving(self) -> None:
        """Refuse while this node drains, or when it cannot trust its state."""
        if self.draining:
            leader = "" if self.leads else self.leader_address
            raise refusals.draining(self.name, leader)
        if self.known.diverged:
            raise refusals.state_diverged(self.name)
        if self.driver.core.bereft:
            raise refusals.state_lost(self.name)

    async def _wait_for_state(self, timeout: float, *, stale: bool) -> None:
        """Return when the state here is fresh enough."""
        if not stale:
            await self.barrier(timeout)
        elif (age_s := self._age_s()) > STALE_READ_MAX:
            raise refusals.too_old(self.name, age_s, STALE_READ_MAX)

    def _age_s(self) -> float:
        """How old the state is at most. A node that has heard of no leader since it began goes by
        its last change, as far as its clock can be trusted."""
        heard = self.driver.staleness()
        since_change = (self.clock.now_ms() - self.replica.meta.now_ms) / 1000
        return heard if math.isfinite(heard) else max(0.0, since_change)

    async def _wait_for_revision(self, wanted: int) -> None:
        while self.revision < wanted:
            # Whoever moves it makes a new one.
            await self._moved.wait()

    async def _read(self, body: Message, caller: str, finish: Finish, *, stale: bool) -> ReadAnswer:
        try:
            if isinstance(body, reads.OF_FEW_RECORDS):
                began = self.spec.seconds()
                found = self._reading(body, finish, self.replica.store, stale=stale)()
                self.steps.end("read", began, body)
            else:
                found = await self._readers.read(
                    caller,
                    lambda: self._reading(body, finish, self.snapshot(), stale=stale),
                )
        except (Refused, *FATAL):
            raise
        except Exception as error:
            name = type(body).__name__
            self.leader.troubles.add([Failure(name, error, "refused")])
            raise Refused(failed(name, error)) from None
        if isinstance(found, Rejection):
            raise Refused(found)
        return found

    def snapshot(self) -> Reading:
        """The state as it is now, for a thread, which stands back for the loop."""
        return self._readers.paced(self.replica.store.snapshot())

    def _reading(
        self, body: Message, finish: Finish, reading: Reading, *, stale: bool
    ) -> Callable[[], ReadAnswer | Rejection]:
        """What is to be done to answer a read from the state as it is now."""
        age_ms = int(self._age_s() * 1000) if stale else 0
        meta = self.replica.meta
        now_ms = max(self.clock.now_ms(), meta.now_ms)
        wanted = self.leads and isinstance(body, reads.OF_WORKERS)
        workers = self.sessions.workers() if wanted else []

        def answer() -> ReadAnswer | Rejection:
            reply = reads.read(View(reading, now_ms), body, workers)
            if isinstance(reply, Rejection):
                return reply
            finish(reply)
            return ReadAnswer(reply, meta.revision, age_ms)

        return answer

    def nobody_leads(self) -> Refused:
        """Why a call finds no leader: a full disk of this node keeps it from leading itself."""
        full = self.status().full
        return refusals.disk_full(self.name) if full else refusals.no_quorum(self.name)

    def too_late(self, seconds: float) -> Refused:
        """Why a read was not answered within its time: a majority that was heard just now is there,
        so the time was too short."""
        if self.leader_name and self.driver.unheard() < MAJORITY_CONTACT_TIMEOUT:
            return refusals.deadline_passed(self.name, seconds)
        return self.nobody_leads()

    async def barrier(self, timeout: float) -> None:
        """Return when all that was acknowledged before is in the state of this leader."""
        if not self.leads:
            raise refusals.not_leader(self.name, self.leader_address)
        try:
            index = await self.driver.barrier(timeout)
        except faults.Refused:
            index = None
        if index is None:
            raise self.too_late(timeout)

    # What consensus says.

    def leadership_gained(self, term: int) -> None:
        logger.info("%s leads in term %d", self.name, term)
        self.term_began_ms = self.spec.wall_ms()
        self.leader.gained()
        self.leader.make_alerts()

    def leadership_lost(self, term: int) -> None:
        logger.info("%s leads no more; the term is %d", self.name, term)
        self.leader.lost()

    def removed(self) -> None:
        self.was_removed = True
        try:
            note_removal(self.spec.folder, datetime.now(UTC).isoformat(timespec="seconds"))
        except OSError as error:
            # The next start asks the others, which tell it again.
            logger.warning("%s cannot note that it was removed: %s", self.name, error)
        if not self.ended.done():
            self.ended.set_result(None)

    def linked(self, peer: str) -> None:
        # Whoever has just started may decide nothing before it has compared its clock. Told ahead
        # of everything else, it has by the time it could be elected.
        self.introduce()

    def told(self, peer: str, text: bytes) -> None:
        began = self.spec.seconds()
        about = self.known.told(peer, text)
        if about is not None:
            self._ahead.soon(about.zones_in_use, self.clock.now_ms())
        self.steps.end("gossip", began)
        if not self.clock.sure:
            self._watch_clock()
            self._wake()

    def _applied(self, index: int, prepared: Prepared, meta: MetaRecord) -> None:
        self.known.applied(meta)
        self._moved.set()
        self._moved = asyncio.Event()

    def _driver_ended(self, ended: asyncio.Future[None]) -> None:
        error = ended.exception()
        if error is None or self.ended.done():
            return
        if isinstance(error, faults.DiskFailed):
            # Perhaps since the folder is not there any more.
            self._watch_files()
        elif isinstance(error, faults.Damaged):
            forgot = isinstance(error, faults.JournalDamaged)
            self._note(damage.JOURNAL if forgot else damage.SNAPSHOT, error)
        self.fail(error)

    # Turns of the leader's loop.

    def _wake(self) -> None:
        """Have the leader's loop look, soon: not before a moment has gone by since the last change
        began, so that under a steady load what belongs together gathers. While a change is on its
        way there is nothing to look for; who answers it comes here again."""
        if self.leader.is_busy:
            return
        if not self._is_awake:
            self._is_awake = True
            rest = self.leader.began_at + self._min_interval - self.spec.seconds()
            if rest > 0 and not self.leader.is_urgent:
                self._delayed_turn = self._loop.call_later(rest, self._turn)
            else:
                self._loop.call_soon(self._turn)
        elif self._delayed_turn is not None and self.leader.is_urgent:
            self._delayed_turn.cancel()
            self._delayed_turn = None
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_awake, self._delayed_turn = False, None
        if self.ended.done():
            return
        try:
            self.leader.step()
            self.driver.go_on()
            if self.leads and self.draining:
                # It turns all callers away, so they must not wait for the next look.
                self._watch_clock()
            if self.leader.is_busy:
                self._loop.call_soon(self._prepare)
            if (
                self._time_driver is not None
                and not self._is_awake
                and self.driver.staleness() < LEADER_CONTACT_TIMEOUT
            ):
                self._time_driver.go_on()
            self._set_timer()
        except Exception as error:
            self.fail(error)

    def _prepare(self) -> None:
        try:
            self.leader.prepare()
        except Exception as error:
            self.fail(error)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_ms = self.leader.next_ms()
        if next_ms is not None:
            # The clock may be set meanwhile; the ticker looks again each second.
            delay = max(0, next_ms - self.clock.now_ms()) / 1000
            self._timer = self._loop.call_later(delay, self._wake)

    def introduce(self) -> None:
        """Tell the others of this node: each second, and at once when that changes."""
        began = self.spec.seconds()
        address, met = self.client_address(self.name), self.known.has_met(self._linked())
        words = self.known.words(
            address, self.spec.version, serving=self.serves, met=met,
            workers=len(self.sessions.by_worker), bootstrap=self.bootstrap.digest,
            zones_in_use=self._ahead.in_use() if self.leads else (),
        )  # fmt: skip
        self.driver.tell(words)
        self.steps.end("gossip", began)

    def _linked(self) -> list[str]:
        """The other members that this node has a connection to."""
        core = self.driver.core
        return sorted(core.connected & core.config.members.keys())

    def _tick(self) -> None:
        """Each second: tell the others of this node, and look whether the clocks agree."""
        if self.ended.done():
            return
        # At first a node does not know who belongs, and then it can tell nobody.
        belongs = bool(self.driver.core.config.members)
        met = belongs and self.clock.sure and self.known.all_met(self._linked())
        self._ticker = self._loop.call_later(
            GOSSIP_INTERVAL if met else FAST_GOSSIP_INTERVAL, self._tick
        )
        try:
            self._watch_files()
            self._elections.look(self.term)
            self.watch_bootstrap()
            self.introduce()
            self._watch_clock()
            self._try("looking at the alerts", self._watch_alerts)
        except Exception as error:
            self.fail(error)
        self._wake()

    @property
    def ahead_ms(self) -> int:
        """How far the state's time is ahead of the clocks; 0 when near enough, or nobody knows."""
        sure = self.clock.sure and not self.leader.skew_ms and self.spec.virtual is None
        ahead = self.replica.meta.now_ms - self.clock.now_ms() if sure else 0
        return ahead if ahead > AHEAD_MS else 0

    def watch_bootstrap(self) -> None:
        """Have the secret for the first token as long as there is none."""
        bootstrap, closed = self.bootstrap, access.any_token(self.replica.store)
        if closed and bootstrap.open_still:
            bootstrap.close(used_by(*access.first_token(self.replica.store)))
        elif self.spec.tokens and not bootstrap.digest and not closed:
            bootstrap.open()

    def _try(self, what: str, work: Callable[[], None]) -> None:
        """Do what the node can live without."""
        began = self.spec.seconds()
        try:
            work()
        except FATAL:
            raise
        except Exception as error:
            self.leader.troubles.failed(what, error)
        self.steps.end(what, began)

    def _watch_alerts(self) -> None:
        if self.leads:
            voters = [peer for peer in self.status().peers.values() if peer.voter]
            there = sum(peer.connected for peer in voters)
            skews = [abs(about.wall_skew_ms) for about in self.known.fresh().values()]
            seen = NodeHealth(
                margin=there - 1 > len(voters) // 2,
                skew_ms=max(self.ahead_ms, *skews, 0),
                leader_changes=self._elections.recent(), differ=bool(self.known.differences()),
            )  # fmt: skip
            self.leader.lacking = self.known.lacking()
            self.leader.watch(seen)

    def _watch_clock(self) -> None:
        voters = [name for name, peer in self.status().peers.items() if peer.voter]
        sure = self.clock.sure
        skew_ms = self.clock.look(self.known, voters, self.spec.skew_max_ms)
        if self.clock.sure and not sure:
            logger.info("the clock of %s is that of a majority", self.name)
        if skew_ms and not self.leader.skew_ms:
            logger.error("%s", refusals.clock_skew(skew_ms).rejection.message)
        self.leader.skew_ms, self.leader.clock_is_sure = skew_ms, self.clock.sure
        busy = self._handing_over is not None and not self._handing_over.done()
        # Among nodes that all stop it would only go round.
        drained = self.draining and any(about.serving for about in self.known.fresh().values())
        if self.leads and (skew_ms or self.known.diverged or drained) and not busy:
            # Somebody whose clock and state are sound should lead, and who serves.
            self._handing_over = self._loop.create_task(self.hand_over(GOSSIP_INTERVAL))
            self._handing_over.add_done_callback(_look)


def _look(task: asyncio.Task[bool]) -> None:
    """What a task raises must not be lost."""
    with contextlib.suppress(asyncio.CancelledError):
        task.result()
