"""A node with the real leader's loop, sessions and rules, and no consensus: what is decided is
applied at once, in memory. Several nodes share one state; a test says which of them leads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from google.protobuf.message import Message

from raftsched.cluster.node import refusals
from raftsched.cluster.node.applier import Applied
from raftsched.cluster.node.leader_loop import Leader
from raftsched.cluster.node.secret_keys import SecretKeys
from raftsched.cluster.node.worker_sessions import WorkerSessions
from raftsched.cluster.raft.journal import COMMAND, Entry
from raftsched.cluster.raft.port import Reply
from raftsched.proto.v1 import common_pb2
from raftsched.statemachine.core import budget
from raftsched.statemachine.core.rejection import Refused, Rejection
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model.view import View
from raftsched.statemachine.reads.reads import read

HEARTBEAT_MS = 600_000  # No session lapses while a test lasts, however busy the machine is.


@dataclass
class Answer:
    message: Message
    revision: int
    age_ms: int = 0


class Journal:
    """Entries in memory, cut by hand."""

    def __init__(self) -> None:
        self.base_index = 0
        self.kept: list[Entry] = []

    def append(self, change: bytes) -> int:
        index = self.base_index + len(self.kept) + 1
        self.kept.append(Entry(index, 1, COMMAND, change))
        return index

    def cut(self, index: int) -> None:
        del self.kept[: index - self.base_index]
        self.base_index = index

    def entries(self, first: int, last: int, size: int) -> list[Entry]:
        assert self.base_index < first
        return self.kept[first - self.base_index - 1 : last - self.base_index]


class Driver:
    """Consensus, as far as a node of a test has it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stale_s = 0.0
        # While it is a list, changes are agreed on, but nobody is told.
        self.held: list[Callable[[], None]] | None = None

    def submit(self, data: bytes, reply: Reply) -> None:
        index = self.world.journal.append(data)
        self.world.replica.apply(index, data)
        if self.held is not None:
            self.held.append(lambda: reply(index))
        else:
            asyncio.get_running_loop().call_soon(reply, index)

    def release(self) -> None:
        """Tell all that were held."""
        held, self.held = self.held, None
        for tell in held or []:
            tell()

    def confirm(self, reply: Reply) -> None:
        asyncio.get_running_loop().call_soon(reply, self.world.replica.meta.applied_index)


@dataclass
class World:
    """What all nodes of a test share: one state, and who leads."""

    replica: Applied = field(default_factory=lambda: Applied(MemoryStore()))
    journal: Journal = field(default_factory=Journal)
    leader: FakeNode | None = None
    nodes: list[FakeNode] = field(default_factory=list)
    term: int = 0
    # Whoever wants to know who leads.
    listeners: list[Callable[[], None]] = field(default_factory=list)

    def lead(self, node: FakeNode | None) -> None:
        """Another node leads, or nobody."""
        before, self.leader = self.leader, node
        if before is not None:
            before.leader.lost()
        if node is not None:
            self.term += 1
            node.leader.gained()
        self.changed()

    def changed(self) -> None:
        for listener in self.listeners:
            listener()


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class FakeNode:
    """See the head of this file."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.world = world
        world.nodes.append(self)
        self.replica = world.replica
        self.driver = Driver(world)
        self.sessions = WorkerSessions(
            lambda: int(time.monotonic() * 1000), wall_ms, self._wake, HEARTBEAT_MS
        )
        # A clock would end a decision early on a busy machine, and a grant would give less.
        self.leader = Leader(
            name, world.replica, self.driver, self.sessions, wall_ms, time.monotonic,
            new_budget=lambda: budget.unlimited, leader_address=lambda: self.leader_address,
        )  # fmt: skip
        self.draining = False
        self.needs_token = False
        # What the other nodes know.
        self.levels: dict[str, int] = {}
        self.secret_keys = SecretKeys()
        # Which other node lacks a key.
        self.lacking: dict[str, str] = {}
        self.bootstraps: frozenset[bytes] = frozenset()
        # By the hash of a secret: how many of three voters have it in their folders.
        self.recoveries: dict[bytes, int] = {}
        self.bootstrap_file = "/data/bootstrap-secret"
        self.address = ""
        # Calls wait for these before they are decided, or answered.
        self.gate, self.read_gate = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.read_gate.set()
        # Somebody waits at a gate.
        self.waits = asyncio.Event()
        # Whom this node takes for the leader, if not for the one that leads.
        self._believes: FakeNode | None = None
        self.written: list[object] = []
        # What ended the node.
        self.failed: BaseException | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def journal(self) -> Journal:
        return self.world.journal

    def staleness(self) -> float:
        return self.driver.stale_s

    def on_leader_change(self, listener: Callable[[], None]) -> None:
        self.world.listeners.append(listener)

    def believe(self, leader: FakeNode) -> None:
        """Take this one for the leader."""
        self._believes = leader
        self.world.changed()

    def drain(self) -> None:
        self.draining = True

    @property
    def serves(self) -> bool:
        return not self.draining

    def introduce(self) -> None:
        """There are no links in here."""

    @property
    def leads(self) -> bool:
        return self.leader.leading

    def recovering(self, digest: bytes) -> tuple[int, int]:
        return self.recoveries.get(digest, 0), 3

    @property
    def forward_keys(self) -> dict[str, bytes]:
        return {node.name: node.name.encode() * 32 for node in self.world.nodes}

    def knows(self, level: int) -> bool:
        return all(each >= level for each in self.levels.values())

    @property
    def lacks_key(self) -> Callable[[str], str]:
        return lambda key_id: self.lacking.get(key_id, "")

    @property
    def leader_name(self) -> str:
        leader = self._believes or self.world.leader
        return leader.name if leader else ""

    def nobody_leads(self) -> Refused:
        return refusals.no_quorum(self.name)

    def too_late(self, seconds: float) -> Refused:
        return (
            refusals.deadline_passed(self.name, seconds)
            if self.leader_name
            else self.nobody_leads()
        )

    @property
    def cluster(self) -> str:
        return "c-1"

    @property
    def leader_address(self) -> str:
        leader = self._believes or self.world.leader
        return leader.address if leader else ""

    @property
    def term(self) -> int:
        return self.world.term

    @property
    def revision(self) -> int:
        return self.replica.meta.revision

    def fail(self, error: BaseException) -> None:
        self.failed = error

    async def barrier(self, timeout: float) -> None:
        if not self.leads:
            raise refusals.not_leader(self.name, self.leader_address)

    def check_serving(self) -> None:
        if self.draining:
            raise refusals.draining(self.name, "" if self.leads else self.leader_address)

    async def write(self, body: Message, actor: str, timeout: float, tenant: str = "") -> Message:
        return cast(Message, await self.ask(body, actor, timeout, tenant))

    async def ask(self, body: object, actor: str, timeout: float, tenant: str = "") -> object:
        self.check_serving()
        if not self.gate.is_set():
            self.waits.set()
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout):
                await self.gate.wait()
                self.leader.ask(
                    body, actor, future.set_result, lambda: future.set_result(None), tenant
                )
                reply = await future
        except TimeoutError:
            raise refusals.commit_timeout(timeout) from None
        self.written.append(body)
        if isinstance(reply, Rejection):
            raise Refused(reply)
        if isinstance(reply, Exception):
            try:
                raise reply.with_traceback(None)
            finally:
                del reply, future
        return reply

    async def read(
        self, body: Message, options: common_pb2.ReadOptions | None, timeout: float,
        caller: str = "", finish: Callable[[Message], None] = lambda answer: None,
    ) -> Answer:  # fmt: skip
        self.check_serving()
        stale = options is not None and options.consistency == common_pb2.CONSISTENCY_STALE
        if not stale and not self.leads:
            raise refusals.not_leader(self.name, self.leader_address)
        if not self.read_gate.is_set():
            self.waits.set()
            await self.read_gate.wait()
        workers = self.sessions.workers()
        answer = read(View(self.replica.store, wall_ms()), body, workers)
        if isinstance(answer, Rejection):
            raise Refused(answer)
        finish(answer)
        return Answer(answer, self.revision, 7 if stale else 0)

    def _wake(self) -> None:
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self.leader.step()
        if self._timer is not None:
            self._timer.cancel()
        next_ms = self.leader.next_ms()
        if next_ms is not None:
            delay = max(0, next_ms - wall_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay, self._wake)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
