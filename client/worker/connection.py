"""Carries a worker's session over one stream after the other."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from time import monotonic
from typing import Any

import grpc.aio

from ...proto.contract import Next, method_of
from ...proto.v1 import worker_pb2
from ..sdk.async_core import AsyncClientCore
from ..sdk.backoff import backoff
from ..sdk.endpoints import Endpoints
from ..sdk.errors import RaftschedError
from ..sdk.links import failure_of
from ..sdk.refusals import FailedTry
from .protocol import Orders, Session
from .runner import Runner

LOG = logging.getLogger("raftsched.worker")

WORK = method_of(worker_pb2.WorkRequest)

# Looks at the clock at least so often.
TICK_S = 0.1
# Waits between two streams: each longer by half than the one before, spread by half either way.
WAIT_FIRST_S, WAIT_GROWTH, WAIT_MAX_S = 0.05, 1.5, 2.0
# After a stream that lived, whose leader has died perhaps: an election takes some 5 ms, and a node
# that knows no leader holds the next stream until it does. Spread in the same way.
WAIT_LIVED_S = 0.01
# A stream that was welcome for so long was no failure, however it ended.
LIVED_S = 1.0
# Words on who leads that are followed at once, until one leads to a welcome.
FOLLOWED_MAX = 3
# With the waits above, this is some seconds without a node.
TRIES_BEFORE_WARNING = 8
WARN_EVERY_S = 30.0
# How long another node may take to say who leads; meanwhile nobody looks at the clock.
WORD_S = 0.2
# How long the server may take to see that the worker has closed its side.
GOODBYE_S = 1.0
# A worker that is refused like this with its first hello has been set up wrongly.
HOPELESS = frozenset(
    {"INVALID_ARGUMENT", "NOT_FOUND", "UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED"}
)
GIVE_TOKEN = (
    "give the worker an access token: Worker(token=...), or for `raftsched worker run` the option "
    "--token-file FILE or the variable RAFTSCHED_TOKEN_FILE"
)


class Pauses:
    """How long to wait before the next stream: it grows, and differs between workers."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        # Streams in a row that came to nothing.
        self.failures = 0

    def next(self, lived_s: float) -> float:
        """After a stream that was welcome for so long; 0 if it never was."""
        if lived_s >= LIVED_S:
            self.failures = 0
            return WAIT_LIVED_S * self._chance.uniform(0.5, 1.5)
        self.failures += 1
        wait = backoff(self.failures, WAIT_FIRST_S, WAIT_MAX_S, WAIT_GROWTH)
        return wait * self._chance.uniform(0.5, 1.5)


class Streams:
    """Connects, reads, writes, ticks. What it means is the session's to say."""

    def __init__(self, client: AsyncClientCore, session: Session) -> None:
        self._client = client
        self._session = session
        self._runner: Runner | None = None
        self._call: Any = None
        # Whom the stream is with, and how many others were asked who leads.
        self._endpoint, self._inquiries = "", 0
        self._leaving = ""
        self._leader = ""
        self._redirected = False
        # The nodes of the cluster that its namespaces live in, where that is another one.
        self._elsewhere: Endpoints | None = None
        self._ready = asyncio.Event()
        # Endpoints since the last welcome, and whether there ever was one.
        self._tried: deque[str] = deque(maxlen=64)
        self._welcomed = False
        self._followed = 0
        self._over = False
        self._warned_at = -WARN_EVERY_S
        self._pauses = Pauses(random.Random())
        self._welcomed_at: float | None = None
        # There may be something to say. Called for each run, so it is the event's own method.
        self.changed = self._ready.set

    def attach(self, runner: Runner) -> None:
        self._runner = runner

    @property
    def _nodes(self) -> Endpoints:
        return self._elsewhere or self._client.endpoints

    async def keep(self) -> None:
        """Hold a stream until goodbye is said."""
        while True:
            endpoint = self._nodes.pick(monotonic(), self._tried)
            self._tried.append(endpoint)
            why = await self._converse(endpoint)
            if self._over:
                return
            wait = self._pause_s()
            LOG.log(
                self._level(),
                "stream with %s ended: %s; the next one in %.2f s",
                endpoint,
                why,
                wait,
            )
            await asyncio.sleep(wait)

    def _level(self) -> int:
        """A change of leader is no news; a worker that finds no node for long is."""
        waits = self._pauses.failures < TRIES_BEFORE_WARNING
        if waits or monotonic() < self._warned_at + WARN_EVERY_S:
            return logging.INFO
        self._warned_at = monotonic()
        return logging.WARNING

    def _pause_s(self) -> float:
        known = self._leader and not self._nodes.suspect(self._leader, monotonic())
        if known and self._followed < FOLLOWED_MAX:
            self._followed += 1
            return 0.0
        welcomed_at = self._welcomed_at
        return self._pauses.next(0.0 if welcomed_at is None else monotonic() - welcomed_at)

    async def _converse(self, endpoint: str) -> str:
        """One stream, from its opening to its end; says why it ended."""
        self._leaving = self._leader = ""
        self._redirected = False
        self._welcomed_at = None
        self._endpoint = endpoint
        self._call = call = self._client.connections.duplex(WORK, endpoint)
        self._session.opened(monotonic())
        writer = asyncio.create_task(self._write(call))
        writer.add_done_callback(lambda ended: _is_broken(ended) and call.cancel())
        try:
            await self._read(call, endpoint)
        except grpc.aio.AioRpcError as error:
            # A stream that we leave may end with any status.
            if not self._leaving:
                return self._failed(endpoint, failure_of(error))
        except asyncio.CancelledError:
            _raise_if_meant_for_us()
        finally:
            self._session.closed()
            self._call = None
            call.cancel()
            writer.cancel()
            await asyncio.wait([writer])
        if not writer.cancelled():
            # What broke in it is ours, and must not pass in silence.
            writer.result()
        return self._left(endpoint)

    async def _read(self, call: Any, endpoint: str) -> None:  # noqa: ANN401  # gRPC's call.
        # Silence is watched by the session's tick, which cancels the call.
        while (frame := await call.read()) is not grpc.aio.EOF:
            if frame.HasField("welcome"):
                self._on_welcome(endpoint, frame.welcome)
            self.obey(self._session.received(frame, monotonic()))
            self.changed()

    def _on_welcome(self, endpoint: str, welcome: worker_pb2.Welcome) -> None:
        if self._runner is not None and self._runner.spans is not None:
            self._runner.spans.cluster = welcome.cluster
        LOG.info("worker %s is connected to %s", self._session.worker, endpoint)
        self._welcomed = True
        self._welcomed_at = monotonic()
        self._tried.clear()
        self._followed = 0
        self._nodes.answered(endpoint, endpoint)

    def _failed(self, endpoint: str, failed: FailedTry) -> str:
        nodes = self._nodes
        if failed.next == Next.NEXT_OTHER_CLUSTER:
            self._move(failed)
            return f"{failed.reason}: {failed.message}"
        if failed.leader and failed.leader != endpoint:
            nodes.learn(failed.leader)
        if failed.broken:
            nodes.broke(endpoint, monotonic())
            if self._pauses.failures >= TRIES_BEFORE_WARNING:
                # Perhaps the namespaces have come back meanwhile.
                self._elsewhere = None
        elif not failed.leader:
            nodes.forget_leader(endpoint)
        why = f"{failed.reason or failed.code}: {failed.distrust or failed.message}"
        if failed.code == "UNAUTHENTICATED":
            why = f"{why}; {GIVE_TOKEN}"
        if failed.code in HOPELESS and not self._welcomed:
            raise failed.error(failed.error_kind, f"{endpoint} refused this worker: {why}", "")
        if failed.code in HOPELESS:
            LOG.warning("%s refused this worker: %s", endpoint, why)
        return why

    def _move(self, failed: FailedTry) -> None:
        """The namespaces live in another cluster. One that says so of a third is not believed, so
        that two that point at each other are asked by turns, after a wait."""
        nodes = self._client.endpoints
        here = self._elsewhere is None
        self._elsewhere = nodes.elsewhere(failed.values.get("addresses", "")) if here else None
        self._tried.clear()

    def _left(self, endpoint: str) -> str:
        nodes = self._nodes
        if self._leader:
            nodes.learn(self._leader)
        elif self._redirected:
            nodes.forget_leader(endpoint)
            # It would hold the next stream until it knows who leads; others may know by now.
            self._tried.append(endpoint)
        elif self._leaving:
            nodes.broke(endpoint, monotonic())
        return self._leaving or "the server ended it"

    async def _write(self, call: Any) -> None:  # noqa: ANN401  # gRPC's call.
        try:
            while True:
                self._ready.clear()
                for frame in self._session.frames(monotonic()):
                    await call.write(frame)
                await self._ready.wait()
        except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            # The stream is over; the reader learns why.
            return

    async def tick(self) -> None:
        """Look at the clock, whether there is a stream or not."""
        while True:
            self.obey(self._session.tick(monotonic()))
            self.changed()
            if self._session.inquires(monotonic()):
                await self._inquire()
            left = self._session.next_at() - monotonic()
            await asyncio.sleep(max(0.01, min(TICK_S, left)))

    async def _inquire(self) -> None:
        """Ask another node who leads, and go there. The stream stays where it is unless somebody
        else leads: a leader that is merely slow keeps its workers."""
        call, here, nodes = self._call, self._endpoint, self._nodes
        others = [one for one in nodes.configured if one != here]
        if call is None or not others:
            return
        self._inquiries += 1
        other = others[self._inquiries % len(others)]
        request = worker_pb2.HeartbeatRequest(worker=self._session.worker)
        try:
            await self._client.call(
                request, endpoint=other, timeout=WORD_S, forward=False, retry=False
            )
        except RaftschedError as error:
            # It is refused wherever this worker has no session. Each answer names the leader.
            LOG.debug("asked %s who leads: %s", other, error)
        leader = nodes.leader
        if leader and leader != here and call is self._call:
            why = f"{here} does not answer, and {other} says that {leader} leads"
            self.obey(Orders(reconnect=why, redirected=True, leader=leader))

    def obey(self, orders: Orders) -> None:
        assert self._runner is not None
        for lease in orders.start:
            self._runner.start(lease)
        for stop in orders.stop:
            LOG.info("run %s is to stop: %s", stop.run, stop.message or "cancelled")
            self._runner.stop(stop)
        for ack in orders.extended:
            self._runner.extended(ack)
        for complaint in orders.complaints:
            LOG.warning("%s", complaint)
        if orders.reconnect and self._call is not None:
            self._leaving, self._leader = orders.reconnect, orders.leader
            self._redirected = orders.redirected
            self._call.cancel()

    async def goodbye(self) -> None:
        """Close our side, which ends the stream and no lease."""
        call = self._call
        self._over = True
        if call is None:
            return
        try:
            async with asyncio.timeout(GOODBYE_S):
                await call.done_writing()
                await call.code()
        except (TimeoutError, grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            LOG.info("the server did not say goodbye")
        except asyncio.CancelledError:
            _raise_if_meant_for_us()


def _is_broken(writer: asyncio.Task[None]) -> bool:
    return not writer.cancelled() and writer.exception() is not None


def _raise_if_meant_for_us() -> None:
    """To be called where CancelledError was caught: a call that is cancelled raises it too."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise
