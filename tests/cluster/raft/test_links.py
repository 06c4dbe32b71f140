"""Two nodes that find each other over a machine that is slow."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from raftsched.cluster.raft.link import PING, Identity, Link, LinkLimits
from raftsched.cluster.raft.transport import PeerLinks

LIMITS = LinkLimits(
    hello=0.05, hello_max=2.0, dial_min=0.001, dial_max=0.002, dial_timeout=0.1, dead=60.0,
    ping=0.01,
)  # fmt: skip
DELAY_S = 0.1  # Each way: the answer comes long after the first patience is over.
LIMIT_S = 20.0


def links(name: str, up: asyncio.Event) -> PeerLinks:
    identity = Identity(cluster="c", node=name, incarnation=1)
    return PeerLinks(
        identity, LIMITS, time.monotonic, random.Random(1), lambda *_: None,
        up=lambda _: up.set(), down=lambda _: None,
    )  # fmt: skip


class Slow:
    """A way to a node that delays all bytes and counts connections."""

    def __init__(self, port: int) -> None:
        self.port, self.open, self.most = port, 0, 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.most = max(self.most, self.open)
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.port)
        pumps = [
            asyncio.create_task(self.pump(*way))
            for way in ((reader, there_writer), (there_reader, writer))
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        writer.close()
        there_writer.close()
        self.open -= 1

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            await asyncio.sleep(DELAY_S)
            writer.write(data)


async def test_answers_that_come_too_late_are_waited_for_longer_and_not_dialled_over() -> None:
    """Else each try to connect makes the next one slower, and two live nodes never meet."""
    called, calling = asyncio.Event(), asyncio.Event()
    callee, caller = links("a", called), links("b", calling)
    address = await callee.listen("127.0.0.1:0")
    slow = Slow(int(address.rpartition(":")[2]))
    front = await asyncio.start_server(slow.carry, "127.0.0.1", 0)
    port = front.sockets[0].getsockname()[1]
    await caller.listen("127.0.0.1:0")
    caller.follow({"a": [f"127.0.0.1:{port}"]})
    try:
        async with asyncio.timeout(LIMIT_S):
            await calling.wait()
            await called.wait()
        # One that was given up may not have been noticed at once by the way between.
        assert slow.most <= 4
    finally:
        await caller.close()
        await callee.close()
        front.close()
        while slow.open:
            await asyncio.sleep(0.01)


async def test_a_resolver_that_takes_longer_than_a_dial_may_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its first server is dead, so each answer comes late, and right."""
    real = socket.getaddrinfo

    def late(host: str, *how: Any, **more: Any) -> object:  # noqa: ANN401
        if host == "localhost":
            time.sleep(3 * LIMITS.dial_timeout)
        return real(host, *how, **more)

    called, calling = asyncio.Event(), asyncio.Event()
    callee, caller = links("a", called), links("b", calling)
    address = await callee.listen("127.0.0.1:0")
    await caller.listen("127.0.0.1:0")
    monkeypatch.setattr(socket, "getaddrinfo", late)
    caller.follow({"a": [address.replace("127.0.0.1", "localhost")]})
    try:
        async with asyncio.timeout(LIMIT_S):
            await calling.wait()
            await called.wait()
    finally:
        await caller.close()
        await callee.close()


class CutShort(Link):
    """Its dial ends in the turn in which the connection began and the other node answered."""

    dial: asyncio.Task[None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.links.accept(self, "a")
        self.dial.cancel()


@pytest.mark.parametrize("factory", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_a_dial_that_is_cut_short_leaves_no_link_that_cannot_be_written_to(
    factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """After a turn of the loop that took long, a dial's time is over just when it is answered. The
    loop closes the connection then, and uvloop tells nobody: a node ended by its next message."""

    async def meet() -> None:
        caller = links("b", asyncio.Event())
        ended = asyncio.Event()

        async def listen_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.read(4096):
                pass
            writer.close()
            ended.set()

        silent = await asyncio.start_server(listen_on, "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        session = CutShort(caller, "a")
        session.dial = asyncio.create_task(caller._dial(session, "a", f"127.0.0.1:{port}"))
        await asyncio.wait([session.dial], timeout=LIMIT_S)
        try:
            assert session.dial.cancelled()
            session.write([PING])
            assert (caller.sessions, session.pending) == ({}, False)
        finally:
            await asyncio.wait_for(ended.wait(), LIMIT_S)
            silent.close()
            await caller.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(meet())


async def some_turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("turns", range(-8, 6))
async def test_who_is_accepted_as_it_closes_is_closed_too(turns: int) -> None:
    """At each turn of the loop that an accepted connection may have come to, and in each in which
    it may come while all is being closed. The loop warns of one that nobody closed."""
    called = links("a", asyncio.Event())
    host, _, port = (await called.listen("127.0.0.1:0")).rpartition(":")
    closing = asyncio.create_task(called.close()) if turns < 0 else None
    await some_turns(-turns)
    try:
        caller = socket.create_connection((host, int(port)), timeout=LIMIT_S)
    except ConnectionRefusedError:
        assert turns < 0, "nobody listens, and nothing was closed"
        return
    finally:
        if closing is not None:
            await closing
    with caller:
        caller.setblocking(False)
        await some_turns(turns)
        await called.close()
        with contextlib.suppress(ConnectionResetError):
            while caller.recv(4096):
                pass
