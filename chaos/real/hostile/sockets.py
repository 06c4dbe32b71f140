"""Connections that are idle, slow, reset or speak another language."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import grpc

from ....proto.v1 import event_pb2, job_pb2
from . import http2
from .attack import attack
from .field import HostileCaller
from .relay import foreign

LIST = "/raftsched.v1.JobService/ListJobs"
WATCH = "/raftsched.v1.EventService/WatchEvents"
HEALTH_WATCH = "/grpc.health.v1.Health/Watch"
IDLE = 400  # On each port of each node.
WATCHERS = 1_000
WATCHERS_OF_ONE = 100
PROBE_S = 2.0
DOWN = -1  # The harness kills nodes meanwhile.


def split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


async def status_of(address: str, path: str) -> int:
    """What HTTP says to whoever comes from this machine; 0 for nothing, -1 where no node is up."""
    try:
        async with asyncio.timeout(PROBE_S):
            reader, writer = await asyncio.open_connection(*split(address))
            writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            line = await reader.readline()
            writer.close()
            return int(line.split()[1])
    except ConnectionRefusedError:
        return DOWN
    except (OSError, TimeoutError, IndexError, ValueError):
        return 0


async def probes_answer(field: HostileCaller) -> None:
    """An orchestrator asks whether the nodes are well; "no" would end them."""
    for _, _, http in field.brief.nodes:
        status = await status_of(http, "/healthz")
        if status not in (200, DOWN):
            field.wrong(f"/healthz of {http} says {status or 'nothing'}")


async def hold(address: str, count: int) -> list[asyncio.StreamWriter]:
    writers = []
    for _ in range(count):
        with suppress(OSError):
            writers.append((await foreign(*split(address)))[1])
    return writers


@attack("P5, P13", 5)
async def idle_connections(field: HostileCaller) -> None:
    """400 idle connections to each port of each node; probes are answered all the same."""
    writers = []
    for node in field.brief.nodes:
        for address in node:
            writers += await hold(address, IDLE)
            field.found.calls += IDLE
    began = time.monotonic()
    while time.monotonic() - began < 3:
        await probes_answer(field)
        await asyncio.sleep(0.5)
    for writer in writers:
        writer.close()


@attack("P13, S11", 4)
async def slow_http(field: HostileCaller) -> None:
    """300 connections to the port for probes that send a letter now and then, and never a line."""
    writers = []
    for _, _, http in field.brief.nodes:
        writers += await hold(http, 100)
    field.found.calls += len(writers)
    while field.goes_on:
        for writer in writers:
            with suppress(OSError):
                writer.write(b"G")
        await probes_answer(field)
        await asyncio.sleep(0.4)
    for writer in writers:
        writer.close()


@attack("-", 3)
async def garbage(field: HostileCaller) -> None:
    """Random bytes, TLS, HTTP/1 and huge lengths at each port of each node."""
    greetings = (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n",
        b"\xff\xff\xff\xff\xff\xff\xff\xff" * 100, b"\0" * 10_000,
        http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0, b"\xff" * 6 * 500),
        http2.PREFACE + http2.frame(200, 255, 1, b"\xff" * 16_000),
    )  # fmt: skip

    async def one(number: int) -> None:
        node = field.brief.nodes[number % len(field.brief.nodes)]
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                reader, writer = await foreign(*split(node[number // 3 % 3]))
                words = greetings[number % len(greetings)]
                writer.write(words if number % 5 else field.dice.randbytes(5_000))
                await writer.drain()
                await reader.read(100)
                writer.close()
        field.found.calls += 1

    await field.many(900, one, at_once=20)


@attack("P16", 5)
async def rapid_reset(field: HostileCaller) -> None:
    """Streams that begin and are reset at once, thousands a second, on six connections."""

    async def one(number: int) -> None:
        while field.goes_on:
            with suppress(OSError):
                connection = await http2.Connection.open(
                    field.brief.nodes[number % len(field.brief.nodes)][0]
                )
                reading = asyncio.ensure_future(connection.swallow())
                try:
                    token = field.brief.tokens["viewer"] if number % 2 else ""
                    head = http2.headers(LIST, token)
                    while field.goes_on and not reading.done():
                        for _ in range(50):
                            stream = connection.begin(head)
                            connection.send(stream, http2.message(b""))
                            connection.reset(stream)
                            field.found.calls += 1
                        await connection.writer.drain()
                        await asyncio.sleep(0)
                finally:
                    reading.cancel()
                    connection.close()
            await asyncio.sleep(0.1)

    await asyncio.gather(*(one(number) for number in range(6)))


@attack("-", 4)
async def control_frames(field: HostileCaller) -> None:
    """Floods of pings, settings, empty frames and headers that never end."""

    async def one(number: int) -> None:
        while field.goes_on:
            with suppress(OSError):
                connection = await http2.Connection.open(
                    field.brief.nodes[number % len(field.brief.nodes)][0]
                )
                floods = (
                    http2.frame(http2.PING, 0, 0, bytes(8)) * 200,
                    http2.frame(http2.SETTINGS, 0, 0) * 200,
                    http2.frame(http2.DATA, 0, 1) * 200,
                    http2.frame(http2.CONTINUATION, 0, 1, http2.literal("x", "y" * 1_000)) * 20,
                )
                if number % 4 > 1:
                    head = http2.headers(LIST)
                    flags = http2.END_HEADERS if number % 4 == 2 else 0
                    connection.writer.write(http2.frame(http2.HEADERS, flags, 1, head))
                reading = asyncio.ensure_future(connection.swallow())
                while field.goes_on and not reading.done():
                    connection.writer.write(floods[number % 4])
                    field.found.calls += 200
                    await connection.writer.drain()
                    await asyncio.sleep(0.005)
                reading.cancel()
                connection.close()
            await asyncio.sleep(0.1)

    await asyncio.gather(*(one(number) for number in range(8)))


@attack("S10, P13", 6)
async def watchers_that_do_not_read(field: HostileCaller) -> None:
    """1,000 watchers that read nothing, while much happens; another one can still watch."""
    body = event_pb2.WatchEventsRequest(namespace=field.namespace).SerializeToString()
    head = http2.headers(WATCH, field.brief.tokens["viewer"])
    connections = []
    for number in range(WATCHERS // WATCHERS_OF_ONE):
        with suppress(OSError):
            address = field.brief.nodes[number % len(field.brief.nodes)][0]
            connection = await http2.Connection.open(address, {http2.INITIAL_WINDOW: 0})
            connections.append(connection)
            for _ in range(WATCHERS_OF_ONE):
                connection.send(connection.begin(head), http2.message(body), end=True)
                field.found.calls += 1
            with suppress(OSError):
                await connection.writer.drain()
    await field.load([field.job("watched", data=bytes(10_000))])
    await field.many(1_000, lambda _: field.trigger("watched"), at_once=10)
    for node in range(len(field.fronts)):
        await can_watch(field, node)
    for connection in connections:
        connection.close()


async def can_watch(field: HostileCaller, node: int) -> None:
    """Somebody else, from elsewhere, begins to watch and is notified of a change."""
    async with grpc.aio.insecure_channel(field.brief.nodes[node][0]) as channel:
        watch: Any = channel.unary_stream(WATCH)
        body = event_pb2.WatchEventsRequest().SerializeToString()
        stream = watch(body, metadata=field.who("admin"))
        try:
            async with asyncio.timeout(5.0):
                await stream.read()
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            words = error.details() if isinstance(error, grpc.aio.AioRpcError) else "no word in 5 s"
            field.wrong(f"another one cannot watch at node {node + 1}: {words}")
        stream.cancel()


@attack("S10", 4)
async def health_watchers(field: HostileCaller) -> None:
    """2,000 streams that watch the health of nodes without a token and read nothing."""
    connections = []
    for number in range(20):
        with suppress(OSError):
            address = field.brief.nodes[number % len(field.brief.nodes)][0]
            connection = await http2.Connection.open(address, {http2.INITIAL_WINDOW: 0})
            connections.append(connection)
            for _ in range(100):
                stream = connection.begin(http2.headers(HEALTH_WATCH))
                connection.send(stream, http2.message(b""), end=True)
                field.found.calls += 1
            with suppress(OSError):
                await connection.writer.drain()
    await probes_answer(field)
    await field.rest()
    for connection in connections:
        connection.close()


@attack("S10", 5)
async def slow_readers(field: HostileCaller) -> None:
    """Lists of a megabyte each, asked for two thousand times and never read."""
    await field.load(field.job(f"fat-{n}", data=bytes(10_000)) for n in range(200))
    body = job_pb2.ListJobsRequest(namespace=field.namespace, page_size=1_000).SerializeToString()
    head = http2.headers(LIST, field.brief.tokens["editor"])
    connections = []
    for number in range(20):
        with suppress(OSError):
            address = field.brief.nodes[number % len(field.brief.nodes)][0]
            connection = await http2.Connection.open(address, {http2.INITIAL_WINDOW: 0})
            connections.append(connection)
            for _ in range(100):
                connection.send(connection.begin(head), http2.message(body), end=True)
                field.found.calls += 1
            with suppress(OSError):
                await connection.writer.drain()
            await asyncio.sleep(0.1)
    await field.rest()
    for connection in connections:
        connection.close()


@attack("-", 4)
async def connections_that_come_and_go(field: HostileCaller) -> None:
    """Thousands of connections to all ports that are opened and closed, or cut off, at once."""

    async def one(number: int) -> None:
        node = field.brief.nodes[number % len(field.brief.nodes)]
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                _, writer = await foreign(*split(node[number // 3 % 3]))
                if number % 2:
                    writer.write(http2.PREFACE)
                    writer.transport.abort()
                else:
                    writer.close()
        field.found.calls += 1

    await field.many(10_000, one, at_once=30)
