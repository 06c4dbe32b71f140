"""The harness's worker, before a server that breaks off."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from raftsched.chaos.real.history import Journal
from raftsched.chaos.real.worker import SLOTS, Manners, Worker
from raftsched.proto.v1 import worker_pb2

LIMIT_S = 20.0
Frames = AsyncIterator[worker_pb2.WorkRequest]


class Alone(Worker):
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

    def handler(self) -> grpc.GenericRpcHandler:
        work = grpc.stream_stream_rpc_method_handler(
            self.work,
            worker_pb2.WorkRequest.FromString,
            worker_pb2.WorkResponse.SerializeToString,
        )
        service = "raftsched.v1.WorkerService"
        return grpc.method_handlers_generic_handler(service, {"Work": work})


async def test_what_was_reported_and_not_acknowledged_takes_no_slot(tmp_path: Path) -> None:
    """Else a worker that lost its leader with a full hand never got work again."""
    server, service = grpc.aio.server(), Breaking()
    server.add_generic_rpc_handlers((service.handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    journal = Journal(tmp_path / "history")
    worker = Alone("w", [f"127.0.0.1:{port}"], 0, journal, Manners(), random.Random(1))
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
