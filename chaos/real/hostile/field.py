"""What a hostile caller has: addresses, the tokens of a tenant, and a count of what it did.

It comes from an address of the loopback that no other process of the run has, so that a limit by
address meets the attacker alone.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from ....proto.contract import method_of
from ....proto.v1 import job_pb2, namespace_pb2, worker_pb2
from ....proto.v1.worker_pb2_grpc import WorkerServiceStub
from .brief import AttackBrief, AttackFindings
from .relay import Relay

MESSAGE_MAX = 4 << 20
CALL_S = 10.0
PIECE = 1_000  # Jobs in one import.
POLL_S = 0.1
LOAD_CALL_S = 30.0  # A call with many jobs; an attack looks at its time between two calls.
LOAD_S = 5.0  # So long jobs are sent again that a leader did not take, since it died.
OPTIONS = (
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)
LOST_S = 0.05  # Until a worker asks again whose stream was lost, or that was sent elsewhere.
LATER = ("UNAVAILABLE", "ABORTED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")
# Answers that no second try changes.
FINAL = ("INVALID_ARGUMENT", "PERMISSION_DENIED", "NOT_FOUND", "FAILED_PRECONDITION")
Channel = Any  # grpc.aio.Channel; its callables have no useful types.
M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Reply:
    """How a call ended."""

    code: str
    words: str
    data: bytes
    took: float

    @property
    def ok(self) -> bool:
        return self.code == "OK"


class Over(Exception):
    """A stream is over, and who leads if somebody named it."""

    def __init__(self, leader: str = "") -> None:
        super().__init__(leader)
        self.leader = leader


class Stream:
    """A worker's stream."""

    def __init__(self, call: Any) -> None:  # noqa: ANN401  # A call of gRPC's.
        self.call = call
        # The first frame, with the welcome; it is read again by whoever goes on.
        self.first: worker_pb2.WorkResponse | None = None

    async def write(self, frame: worker_pb2.WorkRequest) -> None:
        try:
            await self.call.write(frame)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            raise Over from None

    async def welcomed(self, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            self.first = await self.read()

    async def read(self) -> worker_pb2.WorkResponse:
        """The next frame of a node that leads."""
        if self.first is not None:
            frame, self.first = self.first, None
            return frame
        try:
            frame = await self.call.read()
        except grpc.aio.AioRpcError:
            raise Over from None
        if frame is grpc.aio.EOF:
            raise Over
        assert isinstance(frame, worker_pb2.WorkResponse)
        if frame.HasField("redirect"):
            raise Over(frame.redirect.leader)
        return frame

    async def read_on(self) -> None:
        """To its end."""
        while True:
            await self.read()


Then = Callable[[Stream], Awaitable[object]]


@dataclass(slots=True)
class HostileCaller:
    """See the head of this file."""

    brief: AttackBrief
    found: AttackFindings = field(default_factory=AttackFindings)
    dice: random.Random = field(default_factory=random.Random)
    until: float = 0.0
    # Where the nodes are found, by way of the relays; the leader is asked for, and may move.
    fronts: list[str] = field(default_factory=list)
    leader: int = 0
    channels: dict[int, Channel] = field(default_factory=dict)
    relays: list[Relay] = field(default_factory=list)
    # Hellos, and how many of them a node heard that leads.
    hellos: int = 0
    heard: int = 0

    async def start(self) -> None:
        self.dice = random.Random(f"{self.brief.seed}/{self.brief.name}")
        self.until = time.monotonic() + self.brief.seconds
        for client, _, _ in self.brief.nodes:
            relay = Relay(client)
            await relay.start()
            self.relays.append(relay)
            self.fronts.append(relay.address)

    async def stop(self) -> None:
        for channel in self.channels.values():
            await channel.close()
        for relay in self.relays:
            await relay.stop()

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self.until

    @property
    def namespace(self) -> str:
        return self.brief.namespace

    def wrong(self, words: str) -> None:
        if len(self.found.wrong) < 20:
            self.found.wrong.append(words)

    def who(self, role: str) -> tuple[tuple[str, str], ...]:
        token = self.brief.tokens.get(role, role)
        return (("authorization", f"Bearer {token}"),) if token else ()

    def channel(self, node: int) -> Channel:
        """One connection to each node, kept."""
        if node not in self.channels:
            self.channels[node] = self.new_channel(node)
        return self.channels[node]

    def new_channel(self, node: int) -> Channel:
        return grpc.aio.insecure_channel(self.fronts[node], options=OPTIONS)

    # Calls.

    async def raw(
        self,
        path: str,
        data: bytes,
        *,
        role: str = "editor",
        node: int | None = None,
        seconds: float = CALL_S,
        channel: Channel | None = None,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> Reply:
        """Send bytes to a method, and count how it ended."""
        at = self.leader if node is None else node
        began = time.monotonic()
        call = (channel or self.channel(at)).unary_unary(path)(
            data, timeout=seconds, metadata=(*self.who(role), *metadata)
        )
        answer, code, words = b"", "OK", ""
        try:
            answer = await call
        except grpc.aio.AioRpcError as error:
            code, words = error.code().name, error.details() or ""
        if node is None:
            away = code == "UNAVAILABLE" and "failed to connect" in words
            self._follow(at, await leader_of(call), lost=away)
        self.found.calls += 1
        self.found.refused += code != "OK"
        self.found.codes[code] = self.found.codes.get(code, 0) + 1
        if words:
            self.found.words.setdefault(code, f"{path.rpartition('/')[2]}: {words[:200]}")
        if code == "INTERNAL" and "failed inside the node" in words:
            self.wrong(f"{path} failed inside the node: {words[:200]}")
        return Reply(code, words, answer, time.monotonic() - began)

    def _follow(self, node: int, leader: str, *, lost: bool) -> None:
        """Go on at the leader that a node named; or at the next one, if it was lost and nobody has
        found another meanwhile."""
        for place, (client, _, _) in enumerate(self.brief.nodes):
            if client == leader and not (lost and place == node):
                self.leader = place
                return
        if lost and self.leader == node:
            self.leader = (node + 1) % len(self.fronts)

    async def ask(self, request: Message, *, role: str = "editor", **how: Any) -> Reply:  # noqa: ANN401
        return await self.raw(
            method_of(type(request)).path, request.SerializeToString(), role=role, **how
        )

    async def need(self, request: Message, kind: type[M], **how: Any) -> M:  # noqa: ANN401
        """What an attack prepares: it is tried for a while, then the attack ends."""
        limit = time.monotonic() + 4 * CALL_S
        while True:
            reply = await self.ask(request, **how)
            if reply.ok:
                return kind.FromString(reply.data)
            if time.monotonic() > limit or reply.code in FINAL:
                raise AttackNotPlayed(f"{type(request).__name__}: {reply.code} {reply.words[:300]}")
            await asyncio.sleep(POLL_S)

    async def many(
        self, count: int, what: Callable[[int], Awaitable[object]], at_once: int = 10
    ) -> None:
        """Do something so many times, some at once, until the attack's time is over."""
        numbers = iter(range(count))

        async def line() -> None:
            for number in numbers:
                if not self.goes_on:
                    return
                await what(number)

        await asyncio.gather(*(line() for _ in range(at_once)))

    async def rest(self) -> None:
        """Wait until the attack's time is over."""
        await asyncio.sleep(max(0.0, self.until - time.monotonic()))

    async def meet(
        self, hello: worker_pb2.WorkRequest, then: Then | None = None, *, role: str = "worker",
        seconds: float = CALL_S,
    ) -> bool:  # fmt: skip
        """Say hello on a stream to whoever leads and, once welcomed, do what comes then, as long as
        the stream stands. Whether it was welcomed; if not, ask again."""
        node, welcomed = self.leader, False
        stub: Any = WorkerServiceStub(self.channel(node))
        self.found.calls += 1
        self.hellos += 1
        stream = Stream(stub.Work(metadata=self.who(role)))
        try:
            await stream.write(hello)
            await stream.welcomed(seconds)
            welcomed = True
            if then is not None:
                await then(stream)
        except Over as over:
            await self._part(stream.call, node, over.leader)
        except TimeoutError:
            self._follow(node, "", lost=True)
        finally:
            stream.call.cancel()
            self.heard += welcomed
        return welcomed

    async def _part(self, call: Any, node: int, leader: str) -> None:  # noqa: ANN401
        """A stream is over: learn who leads."""
        if leader or not call.done():
            self._follow(node, leader, lost=True)
        else:
            lost = await call.code() in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE)
            self._follow(node, await leader_of(call), lost=lost)
            # Whoever leads refuses by a name.
            self.heard += not lost
        await asyncio.sleep(LOST_S)

    async def wait_until(
        self, is_so: Callable[[], Awaitable[bool]], seconds: float, words: str
    ) -> float:
        """Wait until something is so; it is wrong when it is not in time."""
        began = time.monotonic()
        while not await is_so():
            if time.monotonic() - began > seconds * self.brief.slack:
                self.wrong(f"{words} after {seconds * self.brief.slack:.0f} s")
                break
            await asyncio.sleep(POLL_S)
        return time.monotonic() - began

    # Jobs.

    def job(self, name: str, **how: Any) -> job_pb2.Job:  # noqa: ANN401
        job = job_pb2.Job(namespace=self.namespace, name=name)
        job.spec.action.handler = "work"
        job.spec.overlap.rule = job_pb2.OverlapPolicy.RULE_ALLOW
        for key, value in how.items():
            if key == "cron":
                job.spec.schedules.add().cron.expression = value
            elif key == "after":
                for each in value:
                    job.spec.upstream.jobs.add(job=each)
            elif key == "data":
                job.spec.payload.data = value
            else:
                raise TypeError(key)
        return job

    async def load(self, jobs: Iterable[job_pb2.Job], piece: int = PIECE) -> list[str]:
        """Import jobs in pieces; why some were refused."""
        refused: list[str] = []
        request = job_pb2.ImportJobsRequest()

        async def send() -> None:
            limit = time.monotonic() + LOAD_S
            reply = await self.ask(request, seconds=LOAD_CALL_S)
            while reply.code in LATER and time.monotonic() < limit:
                # What was done of it is found to be there.
                request.mode = job_pb2.ImportJobsRequest.MODE_UPSERT
                await asyncio.sleep(POLL_S)
                reply = await self.ask(request, seconds=LOAD_CALL_S)
            if reply.ok:
                answer = job_pb2.ImportJobsResponse.FromString(reply.data)
                refused.extend(f"{r.reason}: {r.message}" for r in answer.results if r.reason)
            else:
                refused.append(f"{reply.code}: {reply.words[:300]}")
            request.Clear()

        for job in jobs:
            request.jobs.append(job)
            if len(request.jobs) == piece:
                await send()
        if request.jobs:
            await send()
        return refused

    async def trigger(self, job: str, **how: Any) -> Reply:  # noqa: ANN401
        request = job_pb2.TriggerJobRequest(namespace=self.namespace, job=job)
        return await self.ask(request, **how)

    async def status(self, job: str) -> job_pb2.JobStatus:
        request = job_pb2.GetJobStatusRequest(namespace=self.namespace, job=job)
        return await self.need(request, job_pb2.JobStatus)

    async def usage(self) -> namespace_pb2.Usage:
        request = namespace_pb2.GetNamespaceRequest(namespace=self.namespace)
        return (await self.need(request, namespace_pb2.Namespace, role="admin")).usage

    @asynccontextmanager
    async def tasks(self, many: Iterable[Awaitable[object]]) -> AsyncIterator[None]:
        """Let them run beside, and end them. How each ends does not matter."""
        ours = [asyncio.ensure_future(each) for each in many]
        try:
            yield
        finally:
            for task in ours:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*ours, return_exceptions=True)


class AttackNotPlayed(Exception):
    """What an attack needs first was refused, so that it cannot be played."""


async def leader_of(call: Any) -> str:  # noqa: ANN401  # A call of gRPC's.
    """Where the leader is, as the end of a call names it."""
    trailing = await call.trailing_metadata()
    return str(next((v for k, v in trailing or () if k == "raftsched-leader"), ""))
