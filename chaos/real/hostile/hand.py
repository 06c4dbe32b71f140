"""A worker of the attacker's: it takes what it is given and ends it as ordered, at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from ....proto.v1 import worker_pb2
from .field import POLL_S, HostileCaller, Over, Stream

SLOTS = 200
END_S = 0.2
WELCOME_S, WORK_S = 15.0, 1.0
# How a run of a job ends.
End = Callable[[worker_pb2.Lease, worker_pb2.Result], None]


def succeed(lease: worker_pb2.Lease, result: worker_pb2.Result) -> None:
    result.success.SetInParent()


def fail(lease: worker_pb2.Lease, result: worker_pb2.Result) -> None:
    result.failure.error.kind, result.failure.fatal = "hostile", True


class HostileWorker:
    """One session, opened again when it breaks."""

    def __init__(
        self, field: HostileCaller, name: str, end: End = succeed, slots: int = SLOTS
    ) -> None:
        self.field, self.name, self.end, self.slots = field, name, end, slots
        self.taken = 0
        self.welcomed = False

    def hello(self) -> worker_pb2.WorkRequest:
        hello = worker_pb2.WorkerHello(
            worker=f"{self.field.namespace}-{self.name}", namespaces=[self.field.namespace],
            handlers=["work"], slots=self.slots,
        )  # fmt: skip
        return worker_pb2.WorkRequest(hello=hello, credits=self.slots)

    async def live(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.field.meet(self.hello(), self._work)
            await asyncio.sleep(END_S)

    async def _work(self, stream: Stream) -> None:
        self.welcomed = True
        beating = asyncio.create_task(beat(stream))
        try:
            while True:
                async with asyncio.timeout(5.0):
                    frame = await stream.read()
                if frame.leases:
                    await stream.write(self.answer(frame))
        finally:
            beating.cancel()

    def answer(self, frame: worker_pb2.WorkResponse) -> worker_pb2.WorkRequest:
        answer = worker_pb2.WorkRequest(credits=len(frame.leases))
        for lease in frame.leases:
            self.taken += 1
            self.end(lease, answer.results.add(run=lease.run, token=lease.token))
        return answer


async def beat(stream: Stream) -> None:
    """One write at a time is asked for by gRPC; a beat that meets an answer is left out."""
    while True:
        await asyncio.sleep(0.7)
        with suppress(Over):
            await stream.write(worker_pb2.WorkRequest())


@asynccontextmanager
async def working(
    field: HostileCaller, end: End = succeed, count: int = 1
) -> AsyncIterator[list[HostileWorker]]:
    """Workers for as long as the block lasts, which begins when a leader welcomed one. What came
    before may have taken all of the attack's time, so they get some of their own.
    """
    hands = [HostileWorker(field, f"hand-{number}", end) for number in range(count)]
    limit = time.monotonic() + WELCOME_S
    async with field.tasks([hand.live() for hand in hands]):
        while not any(hand.welcomed for hand in hands) and time.monotonic() < limit:
            await asyncio.sleep(POLL_S)
        field.until = max(field.until, time.monotonic() + WORK_S)
        yield hands
