"""The harness's worker, before a server that breaks off."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from raftsched.chaos.real.history import HistoryFile
from raftsched.chaos.real.worker import SLOTS, ChaosWorker, Manners
from raftsched.proto.v1 import worker_pb2

LIMIT_S = 20.0
Frames = AsyncIterator[worker_pb2.WorkRequest]
Context = grpc.aio.ServicerContext[worker_pb2.WorkRequest, worker_pb2.WorkResponse]


class Alone(ChaosWorker):
    """It has no sink."""

    async def effect(self, lease: worker_pb2.Lease) -> bool:
        return True


class Breaking:
    """Fills all slots, reads all results, acknowledges none and ends the first stream."""

    def __init__(self) -> None:
        self.streams = 0
        self.again: asyncio.Future[worker_pb2.WorkRequest] = asyncio.Future()

    async def work(self, frames: Frames, _: object) -> AsyncIterator[worker_pb2.WorkResponse]:
        self.streams += 1
        first = await anext(frames)
        if self.streams > 1:
            self.again.set_result(first)
            await asyncio.sleep(LIMIT_S)
        assert first.credits == SLOTS
        answer = worker_pb2.WorkResponse()
        for token in range(1, SLOTS + 1):
            answer.leases.add(run=f"r.{token}", token=token, attempt=1)
        yield answer
        reported: set[int] = set()
        while len(reported) < SLOTS:
            reported |= {result.token for result in (await anext(frames)).results}


async def test_what_was_reported_and_not_acknowledged_takes_no_slot(tmp_path: Path) -> None:
    """Else a worker that lost its leader with a full hand never got work again."""
    service = Breaking()
    server, address = await serve(service)
    journal = HistoryFile(tmp_path / "history")
    worker = Alone("w", [address], 0, journal, Manners(), random.Random(1))
    living = asyncio.create_task(worker.live())
    try:
        hello = await asyncio.wait_for(service.again, LIMIT_S)
    finally:
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)
        await server.stop(0)
        journal.close()
    assert len(hello.hello.held) == len(hello.results) == SLOTS
    assert hello.credits == SLOTS


class Dice(random.Random):
    """It writes down each wait that it is asked for."""

    met: list[str]

    def random(self) -> float:
        self.met.append("wait")
        return 0.0

    def getrandbits(self, k: int, /) -> int:
        """So that choices do not ask `random`."""
        return super().getrandbits(k)


class Node:
    """Writes down each hello, then breaks off, names a leader or stays."""

    def __init__(self, name: str, met: list[str], leader: str = "") -> None:
        self.name, self.met, self.leader = name, met, leader
        self.stays = asyncio.Event()

    async def work(
        self, frames: Frames, context: Context
    ) -> AsyncIterator[worker_pb2.WorkResponse]:
        await anext(frames)
        self.met.append(self.name)
        if self.name == "dying":
            await context.abort(grpc.StatusCode.UNAVAILABLE)
        if self.leader:
            yield worker_pb2.WorkResponse(redirect=worker_pb2.Redirect(leader=self.leader))
            return
        welcome = worker_pb2.Welcome()
        welcome.heartbeat.FromSeconds(int(LIMIT_S))
        yield worker_pb2.WorkResponse(welcome=welcome)
        self.stays.set()
        await asyncio.sleep(LIMIT_S)


async def serve(node: Node | Breaking) -> tuple[grpc.aio.Server, str]:
    server = grpc.aio.server()
    work = grpc.stream_stream_rpc_method_handler(
        node.work, worker_pb2.WorkRequest.FromString, worker_pb2.WorkResponse.SerializeToString
    )
    name = "raftsched.v1.WorkerService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {"Work": work}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, f"127.0.0.1:{port}"


@pytest.mark.parametrize("seed", range(8))
async def test_it_comes_to_the_leader_by_the_shortest_way(tmp_path: Path, seed: int) -> None:
    """What was leased to it just before a leader died begins elsewhere only when it is back."""
    met: list[str] = []
    leader = Node("leader", met)
    new, address = await serve(leader)
    old, dying = await serve(Node("dying", met))
    other, follower = await serve(Node("follower", met, address))
    journal = HistoryFile(tmp_path / "history")
    dice = Dice(seed)
    dice.met = met
    worker = Alone("w", [dying, follower], 0, journal, Manners(), dice, wanted=dying)
    living = asyncio.create_task(worker.live())
    try:
        await asyncio.wait_for(leader.stays.wait(), LIMIT_S)
    finally:
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)
        await asyncio.gather(*(server.stop(0) for server in (new, old, other)))
        journal.close()
    assert met == ["dying", "wait", "follower", "leader"]
