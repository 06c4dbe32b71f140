"""A worker of the tests, on the stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc

from raftsched.proto.v1 import worker_pb2, worker_pb2_grpc

from .talk import Anything, Refusal, refusal_of

Request = worker_pb2.WorkRequest


class Worker:
    """Keeps all it is told. Nothing is sent that a test does not send."""

    def __init__(
        self, channel: grpc.aio.Channel, name: str = "w1", metadata: Anything = ()
    ) -> None:
        self.name = name
        stub: Anything = worker_pb2_grpc.WorkerServiceStub(channel)
        self.call = stub.Work(metadata=metadata)
        self.frames: list[worker_pb2.WorkResponse] = []
        self.leases: list[worker_pb2.Lease] = []
        self.acks: list[worker_pb2.ResultAck] = []
        self.stops: list[worker_pb2.Stop] = []
        self.refusal: Refusal | None = None
        self.over = False

    async def hello(self, credits: int = 0, **more: Anything) -> Worker:
        """Say hello, and wait for the welcome."""
        hello = worker_pb2.WorkerHello(worker=self.name, slots=10, **more)
        await self.send(hello=hello, credits=credits)
        await self.until(lambda: bool(self.frames))
        return self

    async def send(self, **frame: Anything) -> None:
        await self.call.write(Request(**frame))

    async def succeed(self, *leases: worker_pb2.Lease, credits: int = 0) -> None:
        results = [
            worker_pb2.Result(run=lease.run, token=lease.token, success=worker_pb2.Success())
            for lease in leases
        ]
        await self.send(results=results, credits=credits)

    async def until(self, happened: Callable[[], bool], seconds: float = 60) -> None:
        """Read until something has happened."""
        async with asyncio.timeout(seconds):
            while not happened():
                await self._read()

    async def ended(self, seconds: float = 60) -> Worker:
        """Read until the stream has ended."""
        await self.until(lambda: self.over, seconds)
        return self

    async def _read(self) -> None:
        assert not self.over, f"the stream has ended: {self.refusal}"
        try:
            frame = await self.call.read()
        except grpc.aio.AioRpcError as error:
            self.over, self.refusal = True, refusal_of(error)
            return
        if frame is grpc.aio.EOF:
            self.over = True
            return
        self.frames.append(frame)
        self.leases += frame.leases
        self.acks += frame.acks
        self.stops += frame.stops

    @property
    def redirect(self) -> worker_pb2.Redirect:
        return self.frames[-1].redirect
