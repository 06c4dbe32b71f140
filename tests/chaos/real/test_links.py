"""The proxies between nodes: real sockets, cut one way or both, held, slowed, healed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from raftsched.chaos.real.links import CLIENTS, LinkProxies, LinksProcess
from raftsched.cluster.local.ports import free_ports

LONG_S = 10.0
SOON_S = 0.1


class Echo:
    """A node that sends back what it gets, and remembers it."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []
        self.heard = bytearray()
        self.news = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1_000):
                async with self.news:
                    self.heard += data
                    self.news.notify_all()
                writer.write(data)
                await writer.drain()

    async def connect(
        self, front: int, who: str = ""
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """As a node does: the first frame says who it is. Clients say nothing."""
        reader, writer = await asyncio.open_connection("127.0.0.1", front)
        self.writers.append(writer)
        if who:
            hello = json.dumps({"node": who}).encode()
            frame = struct.pack("<I", len(hello)) + hello
            writer.write(frame)
            assert await back(reader, len(frame)) == frame
        return reader, writer

    async def close(self) -> None:
        for writer in self.writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def has(self, data: bytes) -> None:
        async with asyncio.timeout(LONG_S), self.news:
            await self.news.wait_for(lambda: data in self.heard)


@asynccontextmanager
async def stage(*, peers: bool) -> AsyncIterator[tuple[LinkProxies, Echo, int]]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    (front,) = free_ports(1)
    links = LinkProxies()
    await links.put_before("n1", f"127.0.0.1:{port}", front, peers=peers)
    async with server:
        yield links, echo, front
        await echo.close()
        await links.close()


async def back(reader: asyncio.StreamReader, count: int) -> bytes:
    async with asyncio.timeout(LONG_S):
        return await reader.readexactly(count)


async def silent(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(SOON_S):
            return not await reader.read(1)
    except TimeoutError:
        return True


Story = Callable[[LinkProxies, Echo, int], Awaitable[None]]


def play(story: Story, *, peers: bool = True) -> None:
    async def run() -> None:
        async with asyncio.timeout(3 * LONG_S), stage(peers=peers) as (links, echo, front):
            await story(links, echo, front)

    asyncio.run(run())


def test_bytes_pass_and_the_speaker_is_read_from_the_first_frame() -> None:
    async def story(links: LinkProxies, echo: Echo, front: int) -> None:
        reader, writer = await echo.connect(front, "n2")
        writer.write(b"hello")
        assert await back(reader, 5) == b"hello"
        assert set(links.ways) == {("n2", "n1"), ("n1", "n2")}
        assert links.touched == 0

    play(story)


def test_one_way_can_be_cut_while_the_other_goes_on() -> None:
    async def story(links: LinkProxies, echo: Echo, front: int) -> None:
        reader, writer = await echo.connect(front, "n2")
        other, other_writer = await echo.connect(front, "n3")
        links.cut([("n1", "n2")])
        writer.write(b"there")
        await echo.has(b"there")
        assert await silent(reader)
        assert links.touched == 5
        other_writer.write(b"as ever")
        assert await back(other, 7) == b"as ever"

    play(story)


def test_a_cut_the_other_way_keeps_bytes_from_the_node() -> None:
    async def story(links: LinkProxies, echo: Echo, front: int) -> None:
        reader, writer = await echo.connect(front, "n2")
        links.cut([("n2", "n1")])
        writer.write(b"lost")
        assert await silent(reader)
        assert b"lost" not in echo.heard
        links.heal()
        # A stream with a hole in it must not go on; a new connection may.
        writer.write(b"later")
        assert await silent(reader)
        assert b"later" not in echo.heard
        again, again_writer = await echo.connect(front, "n2")
        again_writer.write(b"new")
        assert await back(again, 3) == b"new"

    play(story)


def test_nobody_connects_through_a_cut() -> None:
    async def story(links: LinkProxies, echo: Echo, front: int) -> None:
        links.cut([("n1", "n2")])
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await echo.connect(front, "n2")
        assert not echo.heard
        assert links.touched == 1

    play(story)


def test_what_is_held_comes_when_it_is_let_go() -> None:
    async def story(links: LinkProxies, echo: Echo, front: int) -> None:
        reader, writer = await echo.connect(front, "n2")
        links.hold([("n2", "n1")])
        writer.write(b"wait")
        assert await silent(reader)
        assert links.touched == 4
        links.heal([("n2", "n1")])
        assert await back(reader, 4) == b"wait"

    play(story)


def test_a_slow_link_is_slow() -> None:
    async def story(links: LinkProxies, echo: Echo, front: int) -> None:
        reader, writer = await echo.connect(front, "n2")
        links.slow([("n2", "n1")], delay_s=0.3)
        loop = asyncio.get_running_loop()
        began = loop.time()
        writer.write(b"slow")
        assert await back(reader, 4) == b"slow"
        assert loop.time() - began >= 0.3
        links.slow([("n2", "n1")], delay_s=0.0, rate=100.0)
        began = loop.time()
        writer.write(b"x" * 30)
        assert await back(reader, 30) == b"x" * 30
        assert loop.time() - began >= 0.3

    play(story)


def test_healing_one_pair_leaves_the_others() -> None:
    async def story(links: LinkProxies, echo: Echo, front: int) -> None:
        links.cut([("n2", "n1"), ("n3", "n1")])
        links.heal([("n2", "n1")])
        assert not links.ways["n2", "n1"].cut
        assert links.ways["n3", "n1"].cut

    play(story)


def test_clients_need_not_say_who_they_are() -> None:
    async def story(links: LinkProxies, echo: Echo, front: int) -> None:
        reader, writer = await echo.connect(front)
        writer.write(b"any protocol")
        assert await back(reader, 12) == b"any protocol"
        links.cut([(CLIENTS, "n1"), ("n1", CLIENTS)])
        writer.write(b"x")
        assert await silent(reader)

    play(story, peers=False)


def test_a_process_of_its_own_does_what_it_is_asked() -> None:
    async def story() -> None:
        echo = Echo()
        server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        (front,) = free_ports(1)
        links = LinksProcess()
        await links.start()
        try:
            assert await links.act(
                "put_before", node="n1", address=address, port=front, peers=True
            ) == 0  # fmt: skip
            reader, writer = await echo.connect(front, "n2")
            await links.act("cut", pairs=[("n1", "n2")])
            writer.write(b"there")
            await echo.has(b"there")
            assert await silent(reader)
            assert await links.act("heal") == 5
        finally:
            await echo.close()
            await links.close()
            server.close()

    asyncio.run(story())
