"""Attacks find the node that leads, and find it again when it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import pytest

from raftsched.chaos.real.hostile import attacker
from raftsched.chaos.real.hostile.brief import AttackBrief
from raftsched.chaos.real.hostile.table import ATTACKS
from raftsched.proto.v1 import worker_pb2

SECONDS = 60.0  # Nobody waits for it: an attack is ended when it was heard.
HEARD_S = 20.0
# That say hello on a stream, but for one that makes 5,000 calls first.
GREET = (
    "many-lanes", "clumsy-hellos", "unknown-results", "large-results", "progress-storm",
    "held-leases", "sessions-that-come-and-go", "runs-given-back",
    "drain-and-credits",
)  # fmt: skip


class Node:
    """One that welcomes workers if it leads, sends them elsewhere if not, and takes all calls."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes, self.place, self.address = nodes, len(nodes), ""
        nodes.append(self)
        self.leader = 2
        # It says where the leader is.
        self.names_leader = True
        self.welcomed = asyncio.Event()
        self.greeted = False
        self.server = grpc.aio.server()

    @property
    def leader_address(self) -> str:
        return self.nodes[self.leader].address if self.names_leader else ""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = str(getattr(details, "method"))  # noqa: B009  # The stub leaves it out.
        if method.endswith("/Work"):
            return grpc.stream_stream_rpc_method_handler(self.work)
        return grpc.unary_unary_rpc_method_handler(self.call)

    async def call(self, data: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        context.set_trailing_metadata((("raftsched-leader", self.leader_address),))
        return b""

    async def work(
        self, frames: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> None:
        assert worker_pb2.WorkRequest.FromString(await anext(frames)).HasField("hello")
        self.greeted = True
        answer = worker_pb2.WorkResponse()
        leads = self.leader == self.place
        if leads:
            answer.welcome.heartbeat.FromSeconds(2)
        else:
            answer.redirect.leader = self.leader_address
        await context.write(answer.SerializeToString())
        if leads:
            self.welcomed.set()
            async for _ in frames:
                pass


class Handler(grpc.GenericRpcHandler):
    def __init__(self, node: Node) -> None:
        self.node = node

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        return self.node.service(details)


@asynccontextmanager
async def three() -> AsyncIterator[list[Node]]:
    nodes: list[Node] = []
    async with AsyncExitStack() as stack:
        for _ in range(3):
            node = Node(nodes)
            node.server.add_generic_rpc_handlers((Handler(node),))
            node.address = f"127.0.0.1:{node.server.add_insecure_port('127.0.0.1:0')}"
            await node.server.start()
            stack.push_async_callback(node.server.stop, 0)
        yield nodes


@asynccontextmanager
async def played(name: str, nodes: list[Node]) -> AsyncIterator[None]:
    addresses = tuple((node.address, "", "") for node in nodes)
    given = AttackBrief(name, 1, "tenant", SECONDS, SECONDS, 1.0, addresses, {"worker": "w"})
    playing = asyncio.create_task(attacker.play(given))
    try:
        yield
    finally:
        playing.cancel()
        await asyncio.wait([playing])


async def soon(what: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(HEARD_S):
        await what()


@pytest.mark.parametrize("name", GREET)
async def test_an_attack_is_heard_by_the_leader(name: str) -> None:
    async with three() as nodes, played(name, nodes):
        await soon(nodes[2].welcomed.wait)


@pytest.mark.parametrize("names_leader", [True, False])
async def test_an_attack_goes_on_at_the_next_leader(*, names_leader: bool) -> None:
    async with three() as nodes, played("held-leases", nodes):
        for node in nodes:
            node.names_leader = names_leader
        await soon(nodes[2].welcomed.wait)
        for node in nodes:
            node.leader = 1
        await soon(nodes[1].welcomed.wait)
        for node in nodes:
            node.leader = 0
        await nodes[1].server.stop(0)
        await soon(nodes[0].welcomed.wait)


async def test_an_attack_that_nobody_heard_is_wrong() -> None:
    async with three() as nodes:
        for node in nodes:
            node.leader = -1
            node.names_leader = False
        addresses = tuple((node.address, "", "") for node in nodes)
        # On a busy machine the time may be over before the first hello.
        for seconds in (0.2, 2.0, 20.0):
            given = AttackBrief(
                "held-leases", 1, "tenant", seconds, SECONDS, 1.0, addresses, {"worker": "w"}
            )
            found = await attacker.play(given)
            if any(node.greeted for node in nodes):
                break
    assert len(found.wrong) == 1
    assert "none was heard by a node that leads" in found.wrong[0]


def test_all_that_greet_are_attacks() -> None:
    assert set(GREET) <= set(ATTACKS)


async def test_a_worker_is_heard_although_what_came_first_took_all_the_time() -> None:
    async with three() as nodes:
        addresses = tuple((node.address, "", "") for node in nodes)
        name = "triggers-for-one-instant"
        found = await attacker.play(
            AttackBrief(name, 1, "tenant", 0.01, SECONDS, 1.0, addresses, {"worker": "w"})
        )
        assert nodes[2].welcomed.is_set()
    assert found.wrong == []
