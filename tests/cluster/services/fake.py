"""A node with real rules and no consensus: what is decided is applied at once, in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from google.protobuf.message import Message

from raftsched.cluster import refusals
from raftsched.cluster.consensus.journal import COMMAND, Entry
from raftsched.proto.v1 import common_pb2
from raftsched.statemachine.machine import Request, apply, decide, read_meta
from raftsched.statemachine.reads import read
from raftsched.statemachine.record import MetaRecord
from raftsched.statemachine.rejection import Refused, Rejection
from raftsched.statemachine.store import MemoryStore
from raftsched.statemachine.view import View

Listener = Callable[[int, bytes, MetaRecord], None]


@dataclass
class Answer:
    message: Message
    revision: int
    age_ms: int = 0


class Replica:
    """The state of one or several nodes of a test."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.listeners: list[Listener] = []
        self.meta = read_meta(self.store)

    def apply(self, index: int, change: bytes) -> None:
        self.meta = apply(self.store, index, change)
        for listener in list(self.listeners):
            listener(index, change, self.meta)


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


@dataclass
class Core:
    journal: Journal


class Driver:
    """Consensus, as far as a node of a test has it."""

    def __init__(self, journal: Journal) -> None:
        self.core = Core(journal)
        self.stale_s = 0.0

    def staleness(self) -> float:
        return self.stale_s


@dataclass
class World:
    """What all nodes of a test share: one state, and who leads."""

    replica: Replica = field(default_factory=Replica)
    journal: Journal = field(default_factory=Journal)
    leader: FakeNode | None = None
    term: int = 1


class FakeNode:
    """See the head of this file."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.world = world
        self.replica, self.journal = world.replica, world.journal
        self.draining = False
        self.address = ""
        self.driver = Driver(world.journal)
        # Calls wait for this before they are decided.
        self.gate = asyncio.Event()
        self.gate.set()
        self.read_gate = asyncio.Event()
        self.read_gate.set()
        # Somebody waits at a gate.
        self.waits = asyncio.Event()
        # Whom this node takes for the leader, if not for the one that leads.
        self.believes: FakeNode | None = None
        self.written: list[object] = []
        self.actors: list[str] = []

    @property
    def leads(self) -> bool:
        return self.world.leader is self

    @property
    def leader_address(self) -> str:
        leader = self.believes or self.world.leader
        return leader.address if leader else ""

    @property
    def term(self) -> int:
        return self.world.term

    @property
    def revision(self) -> int:
        return self.replica.meta.revision

    async def barrier(self, timeout: float) -> None:
        if not self.leads:
            raise refusals.not_leader(self.name, self.leader_address)

    async def write(self, body: object, actor: str, timeout: float) -> object:
        if not self.gate.is_set():
            self.waits.set()
        try:
            async with asyncio.timeout(timeout):
                await self.gate.wait()
        except TimeoutError:
            raise refusals.commit_timeout(timeout) from None
        if not self.leads:
            raise refusals.not_leader(self.name, self.leader_address)
        view = View(self.replica.store, int(time.time() * 1000))
        decision = decide(view, [Request(body, actor)])
        self.written.append(body)
        self.actors.append(actor)
        if decision.change:
            self.replica.apply(self.journal.append(decision.change), decision.change)
        [reply] = decision.replies
        if isinstance(reply, Rejection):
            raise Refused(reply)
        return reply

    async def read(
        self, body: Message, options: common_pb2.ReadOptions | None, timeout: float
    ) -> Answer:
        stale = options is not None and options.consistency == common_pb2.CONSISTENCY_STALE
        if not stale and not self.leads:
            raise refusals.not_leader(self.name, self.leader_address)
        if not self.read_gate.is_set():
            self.waits.set()
            await self.read_gate.wait()
        answer = read(View(self.replica.store, int(time.time() * 1000)), body)
        if isinstance(answer, Rejection):
            raise Refused(answer)
        return Answer(answer, self.revision, 7 if stale else 0)
