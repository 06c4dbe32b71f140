"""Workers that live dangerously: they stall past their lease, report late, and report twice.

They speak the contract by themselves, frame by frame, so that what they received is written down
as it came. Several share a process, which is killed now and then.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import grpc

from ...proto.v1 import worker_pb2
from ...proto.v1.worker_pb2_grpc import WorkerServiceStub
from .history import Ack, HistoryFile, Lease, ReportSent

if TYPE_CHECKING:
    Stream = grpc.aio.StreamStreamCall[worker_pb2.WorkRequest, worker_pb2.WorkResponse]

SLOTS = 8
WORK_S = 0.05  # At most, as a rule.
SLOW_S = 0.8
# It connects again after a wait that grows until a node answers: 20 workers that did not kept a
# machine busy that had lost its leader by being too busy.
RECONNECT_S, RECONNECT_MAX_S = 0.2, 1.0
HINTS_MAX = 3  # So often in a row it follows the word on who leads without a wait, as the SDK does.
SINK_S = 30.0
# The secret of an access token, where one is needed.
TOKEN = "RAFTSCHED_CHAOS_TOKEN"
OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_retries", 0),
    # A connection that a partition has killed silently must not be taken again.
    ("grpc.use_local_subchannel_pool", 1),
)


@dataclass(frozen=True, slots=True)
class Manners:
    """How badly they behave: the chance of each for a run."""

    fail: float = 0.05
    stall: float = 0.0
    twice: float = 0.05
    late: float = 0.0


@dataclass(slots=True)
class Held:
    """A lease whose end is not acknowledged."""

    lease: worker_pb2.Lease
    # What was reported, once it was.
    result: worker_pb2.Result | None = None


@dataclass(slots=True)
class ChaosWorker:
    """One worker with its session."""

    name: str
    endpoints: list[str]
    sink: int
    journal: HistoryFile
    manners: Manners
    dice: random.Random
    held: dict[int, Held] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    # To the sink, for one at a time.
    line: asyncio.Lock = field(default_factory=asyncio.Lock)
    sink_link: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    # The stream that is open, and the worker's silence.
    stream: Stream | None = None
    silent_until: float = 0.0
    # gRPC breaks a stream off when two write at once.
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    outbox: list[worker_pb2.Result] = field(default_factory=list)
    # Leases that the server may still send over it.
    open_credits: int = 0
    heartbeat_s: float = 1.0
    lapse_s: float = 6.0
    wanted: str = ""
    hints: int = 0
    reconnect_s: float = RECONNECT_S
    heard_at: float = 0.0
    namespace: str = "default"
    token: str = ""

    async def live(self) -> None:
        """Connect, again and again."""
        self.dice.shuffle(self.endpoints)
        while True:
            await self.awake()
            address = self.take_address()
            try:
                async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
                    await self.work(channel)
            except (grpc.aio.AioRpcError, TimeoutError):
                # Whatever ended it, the contract says to say hello again.
                pass
            self.stream = None
            if self.wanted and self.hints < HINTS_MAX:
                self.hints += 1
                continue
            await asyncio.sleep(self.reconnect_s * self.dice.random())
            self.reconnect_s = min(2 * self.reconnect_s, RECONNECT_MAX_S)

    def take_address(self) -> str:
        """The leader that was named, or else the node that was tried longest ago. By chance it took
        the dead one again and again, and what it was leased just before waited for seconds."""
        address, self.wanted = self.wanted or self.endpoints[0], ""
        if address in self.endpoints:
            self.endpoints.remove(address)
            self.endpoints.append(address)
        return address

    async def work(self, channel: grpc.aio.Channel) -> None:
        who = (("authorization", f"Bearer {self.token}"),) if self.token else ()
        stream = WorkerServiceStub(channel).Work(metadata=who)
        if self.heard_at and time.monotonic() - self.heard_at > self.lapse_s:
            # Its leases may have lapsed (rule 5 of the contract).
            self.forget_all()
        hello = worker_pb2.WorkerHello(
            worker=self.name, handlers=["work", "slow"], slots=SLOTS, program="chaos",
            namespaces=[self.namespace],
        )  # fmt: skip
        for held in self.held.values():
            hello.held.add(run=held.lease.run, token=held.lease.token)
        self.outbox.clear()  # All of it is in the hello.
        self.open_credits = 0  # Those of the old stream are void.
        first = worker_pb2.WorkRequest(hello=hello, credits=self.credits())
        first.results.extend(held.result for held in self.held.values() if held.result)
        async with asyncio.timeout(5.0):
            await stream.write(first)
        self.stream = stream
        # What ended while hello was on its way is neither in it nor was there a stream for it.
        named = {result.token for result in first.results}
        late = [h.result for t, h in self.held.items() if h.result is not None and t not in named]
        if late:
            await self.say(*late)
        beating = asyncio.create_task(self.beat())
        try:
            while True:
                # So soon the contract wants it to look for another node.
                async with asyncio.timeout(2 * self.heartbeat_s):
                    received = await stream.read()
                if received is grpc.aio.EOF:
                    await stream.code()
                    return
                frame = cast("worker_pb2.WorkResponse", received)
                self.take(frame)
                if frame.HasField("redirect"):
                    self.wanted = frame.redirect.leader
                    return
        except TimeoutError:
            return
        finally:
            beating.cancel()
            stream.cancel()

    async def beat(self) -> None:
        while True:
            await asyncio.sleep(self.heartbeat_s * 0.6)
            await self.say()

    def take(self, frame: worker_pb2.WorkResponse) -> None:
        now = time.monotonic()
        self.heard_at = now
        self.reconnect_s = RECONNECT_S
        if frame.HasField("welcome"):
            self.hints = 0
            self.heartbeat_s = frame.welcome.heartbeat.ToTimedelta().total_seconds()
            self.lapse_s = frame.welcome.lapse.ToTimedelta().total_seconds()
        self.open_credits = max(0, self.open_credits - len(frame.leases))
        for lease in frame.leases:
            self.journal.add(
                Lease(
                    self.name, lease.run, lease.job, lease.token, lease.attempt,
                    lease.scheduled_time.ToMilliseconds(), lease.due_time.ToMilliseconds(),
                    time.time_ns() // 1_000_000, now,
                )
            )  # fmt: skip
            self.held[lease.token] = Held(lease)
            task = asyncio.create_task(self.carry_out(lease))
            self.tasks.add(task)
            task.add_done_callback(self.done)
        for ack in frame.acks:
            held = self.held.pop(ack.token, None)
            if held is not None and held.result is not None:
                end = str(held.result.WhichOneof("end"))
                self.journal.add(Ack(self.name, held.lease.run, ack.token, end, ack.reason, now))
        for stop in frame.stops:
            if stop.kind == worker_pb2.Stop.KIND_LOST:
                self.held.pop(stop.token, None)

    def done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled():
            task.result()

    def forget_all(self) -> None:
        self.held.clear()

    async def carry_out(self, lease: worker_pb2.Lease) -> None:
        most = SLOW_S if lease.action.handler == "slow" else WORK_S
        await asyncio.sleep(most * self.dice.random())
        if self.dice.random() < self.manners.stall:
            # As if the whole machine stood still: no beat, then on as if nothing had been.
            silence = self.lapse_s * (1.2 + self.dice.random())
            self.silent_until = time.monotonic() + silence
        await self.awake()
        result = worker_pb2.Result(run=lease.run, token=lease.token)
        accepted = await self.effect(lease)
        if not accepted or (lease.attempt == 1 and self.dice.random() < self.manners.fail):
            result.failure.error.kind = "chaos"
            result.failure.error.message = "meant to fail" if accepted else "the sink refused it"
        else:
            result.success.SetInParent()
        if self.dice.random() < self.manners.late:
            await asyncio.sleep(self.lapse_s * self.dice.random())
        held = self.held.get(lease.token)
        if held is not None:
            held.result = result
        end = str(result.WhichOneof("end"))
        self.journal.add(ReportSent(self.name, lease.run, lease.token, end, time.monotonic()))
        times = 2 if self.dice.random() < self.manners.twice else 1
        for _ in range(times):
            await self.say(result)

    async def awake(self) -> None:
        """While it stalls, it says nothing at all."""
        while (left := self.silent_until - time.monotonic()) > 0:
            await asyncio.sleep(left)

    def credits(self) -> int:
        """As many more as slots are free; what was reported and not yet acknowledged takes none."""
        busy = sum(held.result is None for held in self.held.values())
        more = max(0, SLOTS - busy - self.open_credits)
        self.open_credits += more
        return more

    async def say(self, *results: worker_pb2.Result) -> None:
        """If there is a stream; else the next hello says it."""
        await self.awake()
        self.outbox += results
        async with self.writing:
            if self.stream is None or (results and not self.outbox):
                return
            frame = worker_pb2.WorkRequest(results=self.outbox, credits=self.credits())
            self.outbox.clear()
            try:
                await self.stream.write(frame)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                self.stream = None

    async def effect(self, lease: worker_pb2.Lease) -> bool:
        async with asyncio.timeout(SINK_S), self.line:
            if self.sink_link is None:
                self.sink_link = await asyncio.open_connection("127.0.0.1", self.sink)
            reader, writer = self.sink_link
            writer.write(f"{lease.run} {lease.token}\n".encode())
            return await reader.readline() == b"1\n"


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m raftsched.chaos.real.worker")
    parser.add_argument("name")
    parser.add_argument("endpoints")
    parser.add_argument("sink", type=int)
    parser.add_argument("history", type=Path)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    for manner in ("fail", "stall", "twice", "late"):
        parser.add_argument(f"--{manner}", type=float, default=getattr(Manners(), manner))
    parser.add_argument("--namespace", default="default")
    options = parser.parse_args()
    token = os.environ.get(TOKEN, "")
    journal = HistoryFile(options.history)
    manners = Manners(options.fail, options.stall, options.twice, options.late)
    workers = [
        ChaosWorker(
            f"{options.name}-{number}", options.endpoints.split(","), options.sink, journal,
            manners, random.Random(f"{options.seed}/{options.name}/{number}"),
            namespace=options.namespace, token=token,
        )
        for number in range(options.count)
    ]  # fmt: skip
    await asyncio.gather(*(worker.live() for worker in workers))


if __name__ == "__main__":
    asyncio.run(main())
