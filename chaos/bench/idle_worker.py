"""A worker that holds its leases and says nothing but that it is alive.

It speaks the contract by itself, which the SDK's worker cannot be made to do: it beats as
seldom as it may, shares connections with others, and goes where a redirect sends it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from ...client.worker.connection import Pauses
from ...proto.v1 import worker_pb2
from ...proto.v1.worker_pb2_grpc import WorkerServiceStub

OPTIONS = (("grpc.use_local_subchannel_pool", 1),)
BEAT_SHARE = 0.8  # Of a heartbeat: so often it speaks.
WELCOME_S = 10.0  # Half of what it waits for a welcome.
LOST = worker_pb2.Stop.KIND_LOST


@dataclass(slots=True)
class IdleWorkerPool:
    """All idle workers: the connections they share, and what became of them."""

    endpoints: Sequence[str]
    # Streams that share a connection.
    shared: int
    # Runs that were leased to anybody, and their token.
    begun: dict[str, int] = field(default_factory=dict)
    leases: int = 0
    lost: int = 0
    # Runs that came again although nobody gave them back.
    twice: int = 0
    # Streams that were opened, and how those that ended did so.
    opened: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    # When each of them was welcomed last, and where.
    welcomed: dict[int, tuple[float, str]] = field(default_factory=dict)
    channels: dict[tuple[str, int], grpc.aio.Channel] = field(default_factory=dict)

    def channel(self, endpoint: str, number: int) -> grpc.aio.Channel:
        key = endpoint, number // self.shared
        if key not in self.channels:
            self.channels[key] = grpc.aio.insecure_channel(endpoint, options=OPTIONS)
        return self.channels[key]

    def back(self, since: float) -> list[float]:
        """Seconds after an instant at which idle workers were welcome again, in order."""
        return sorted(at - since for at, _ in self.welcomed.values() if at >= since)

    async def close(self) -> None:
        for channel in self.channels.values():
            await channel.close()


class IdleWorker:
    """One of them."""

    def __init__(self, pool: IdleWorkerPool, number: int, credits: int) -> None:
        self.pool, self.number, self.credits = pool, number, credits
        self.held: dict[int, str] = {}
        self.heartbeat_s = WELCOME_S
        self.welcomed = asyncio.Event()
        self.pauses = Pauses(random.Random())

    async def keep(self, endpoint: str) -> None:
        """Hold a stream, at first with this node."""
        while True:
            began = time.monotonic()
            leader, why = await self._converse(endpoint)
            self.pool.ends[why] += 1
            at, _ = self.pool.welcomed.get(self.number, (began, ""))
            if not leader or at < began:
                await asyncio.sleep(self.pauses.next(time.monotonic() - max(at, began)))
            endpoint = leader or random.choice(self.pool.endpoints)

    async def _converse(self, endpoint: str) -> tuple[str, str]:
        """One stream: who leads now, if that was named, and why it ended."""
        self.pool.opened += 1
        self.heartbeat_s = WELCOME_S
        self.welcomed.clear()
        stub: Any = WorkerServiceStub(self.pool.channel(endpoint, self.number))
        call = stub.Work()
        writing = asyncio.create_task(self._speak(call))
        try:
            while True:
                async with asyncio.timeout(2 * self.heartbeat_s):
                    frame = await call.read()
                if frame is grpc.aio.EOF:
                    return "", "the server ended it"
                self._take(frame, endpoint)
                if frame.HasField("redirect"):
                    return frame.redirect.leader, f"redirect: {frame.redirect.reason}"
        except TimeoutError:
            return "", f"nothing was heard for {2 * self.heartbeat_s:.0f} s"
        except grpc.aio.AioRpcError as error:
            return "", f"{error.code().name}: {error.details()}"
        finally:
            call.cancel()
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def _speak(self, call: Any) -> None:  # noqa: ANN401  # gRPC's call.
        hello = worker_pb2.WorkerHello(worker=f"idle_worker-{self.number}", slots=self.credits)
        for token, run in self.held.items():
            hello.held.add(run=run, token=token)
        await call.write(worker_pb2.WorkRequest(hello=hello, credits=self.credits - len(self.held)))
        await self.welcomed.wait()
        while True:
            await asyncio.sleep(BEAT_SHARE * self.heartbeat_s)
            await call.write(worker_pb2.WorkRequest())

    def _take(self, frame: worker_pb2.WorkResponse, endpoint: str) -> None:
        pool = self.pool
        if frame.HasField("welcome"):
            self.heartbeat_s = frame.welcome.heartbeat.ToMilliseconds() / 1000
            self.welcomed.set()
            pool.welcomed[self.number] = time.monotonic(), endpoint
        for lease in frame.leases:
            pool.twice += lease.run in pool.begun
            pool.begun[lease.run] = lease.token
            self.held[lease.token] = lease.run
        pool.leases += len(frame.leases)
        for stop in frame.stops:
            if stop.kind == LOST and self.held.pop(stop.token, None) is not None:
                pool.lost += 1
                pool.leases -= 1
