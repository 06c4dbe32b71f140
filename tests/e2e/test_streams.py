"""Thousands of workers on one leader that is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from raftsched.proto.v1 import worker_pb2, worker_pb2_grpc

from .processes import cluster, crowd, stop, until

STREAMS, CHANNELS = 2_000, 20
# Of a crowd that comes at once some are turned away, and come again as the SDK does. INTERNAL is
# what gRPC says to who was still writing then.
TURNED_AWAY = (
    grpc.StatusCode.CANCELLED, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL,
)  # fmt: skip
TRY_AGAIN_S = (0.05, 1.0)


class Idle:
    """A worker that waits for runs and notes the last word it was told."""

    def __init__(self, number: int) -> None:
        self.hello = worker_pb2.WorkerHello(worker=f"w-{number}", handlers=["none"], slots=1)
        self.welcome = False
        self.last = worker_pb2.WorkResponse()

    async def serve(self, channel: grpc.aio.Channel) -> None:
        stub, (wait, last) = worker_pb2_grpc.WorkerServiceStub(channel), TRY_AGAIN_S
        while True:
            try:
                async for answer in stub.Work(self._requests()):
                    self.welcome |= answer.HasField("welcome")
                    self.last = answer
                return
            except grpc.aio.AioRpcError as error:
                if self.welcome or error.code() not in TURNED_AWAY:
                    raise
            await asyncio.sleep(wait)
            wait = min(2 * wait, last)

    async def _requests(self) -> AsyncIterator[worker_pb2.WorkRequest]:
        yield worker_pb2.WorkRequest(hello=self.hello)
        yield worker_pb2.WorkRequest(credits=1)
        while True:
            await asyncio.sleep(2)
            yield worker_pb2.WorkRequest()


@pytest.mark.slow
async def test_each_stream_gets_a_word_and_none_holds_up_the_stop(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        leader = await running.leader()
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [
            grpc.aio.insecure_channel(running.address(leader), options) for _ in range(CHANNELS)
        ]
        workers = [Idle(number) for number in range(STREAMS)]
        serving = [
            asyncio.create_task(worker.serve(channels[number % CHANNELS]))
            for number, worker in enumerate(workers)
        ]
        await until(lambda: all(worker.welcome for worker in workers), 30)

        code, seconds = await stop(running.nodes[leader])
        await asyncio.gather(*serving)
        for channel in channels:
            await channel.close()

    assert code == 0
    assert seconds < 2.0 * crowd()
    told = {worker.last.redirect.reason for worker in workers}
    # Whichever comes first: it stops, and for that it gives the leadership away.
    assert told <= {f"{leader} is stopping", f"{leader} leads no more"}
