"""Nodes with real rules behind real servers, in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import grpc
import pytest
from google.protobuf.message import Message

from raftsched.cluster.api import places, unary, worker_frames, worker_streams
from raftsched.cluster.api.call import Call
from raftsched.cluster.api.observer import Nobody
from raftsched.cluster.api.server import Server
from raftsched.cluster.node.limits import CallerLimits

from .fake import FakeNode, World

# How long a node waits for word of a leader, of a namespace, of a worker.
WAITS = (
    (unary, "ELECTION_WAIT_S"), (worker_streams, "LEADER_WAIT_S"), (places, "CATCH_UP_S"),
    (worker_frames, "HELLO_S"),
)  # fmt: skip


@dataclass
class Served:
    """A node, its server, and a channel to it."""

    node: FakeNode
    server: Server
    address: str
    channel: grpc.aio.Channel
    counted: Counted
    # Calls that this node answered itself.
    admitted: list[Call] = field(default_factory=list)

    async def counted_route(self, most: int) -> None:
        """Return when so many calls are under way."""
        async with asyncio.timeout(60):
            while self.server.shares.calls.total < most:
                await asyncio.sleep(0)


@dataclass
class Counted(Nobody):
    """What an observer was told."""

    calls: list[tuple[str, str]] = field(default_factory=list)

    def called(self, method: str, code: str, seconds: float) -> None:
        assert seconds >= 0
        self.calls.append((method, code))


Start = Callable[..., Awaitable[Served]]


@pytest.fixture
async def world() -> World:
    return World()


@pytest.fixture
async def start(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    """Start a node; the first one leads. However busy the machine is, it stops waiting in no test
    that does not set how long it waits."""
    for module, name in WAITS:
        monkeypatch.setattr(module, name, 60.0)
    all_served: list[Served] = []

    async def begin(name: str, **limits: int) -> Served:
        node, counted = FakeNode(name, world), Counted()
        server = Server(node, "127.0.0.1:0", metrics=counted, limits=CallerLimits(**limits))
        node.address = await server.start()
        channel = grpc.aio.insecure_channel(node.address)
        served = Served(node, server, node.address, channel, counted)
        admit = server.calls.admit

        def note(call: Call, request: Message) -> None:
            served.admitted.append(call)
            admit(call, request)

        server.calls.admit = note
        all_served.append(served)
        if world.leader is None:
            world.lead(node)
        return served

    yield begin
    for served in all_served:
        await served.channel.close()
        await served.server.drain("the test is over")
        await served.server.stop(0.1)
        served.node.stop()
