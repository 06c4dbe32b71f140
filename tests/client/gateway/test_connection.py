"""One connection as its bytes: versions, bodies that nobody reads, what goes first."""

from __future__ import annotations

import asyncio

import h11
import pytest
import uvloop

from raftsched.client.gateway.head import RequestReader, head_of, stays

from ...rows import each
from ..stage import Stage
from .served import Served, serving

GET = b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n"


async def answers(gateway: Served, data: bytes) -> list[tuple[h11.Response, bytes]]:
    """All answers until the other side closes, as h11 reads them."""
    verbs = [line.split()[0] for line in data.split(b"\r\n") if b" HTTP/1" in line]
    came, found = await gateway.raw(data), list[tuple[h11.Response, bytes]]()
    while came and len(found) < len(verbs):
        reader = h11.Connection(h11.CLIENT)
        reader.send(h11.Request(method=verbs[len(found)], target="/", headers=[("host", "a")]))
        reader.send(h11.EndOfMessage())
        reader.receive_data(came)
        reader.receive_data(b"")
        body = b""
        while type(event := reader.next_event()) not in (h11.EndOfMessage, h11.ConnectionClosed):
            if isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
        found.append((head, body))
        came = reader.trailing_data[0]
    assert came == b""
    return found


async def test_a_body_that_nobody_reads_does_not_become_a_request(gateway: Served) -> None:
    inner = GET + b"\r\n"
    post = b"POST /v1/nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(
        inner
    )
    found = await answers(gateway, post + inner + GET + b"Connection: close\r\n\r\n")
    assert [head.status_code for head, _ in found] == [404, 200]


async def test_head_has_no_body_and_the_next_answer_follows(gateway: Served) -> None:
    head = GET.replace(b"GET", b"HEAD") + b"\r\n"
    found = await answers(gateway, head + GET + b"connection: Close\r\n\r\n")
    assert [(one.status_code, body) for one, body in found] == [(200, b""), (200, b"{}\n")]


@pytest.mark.parametrize("lines", [b"", b"Connection: keep-alive\r\n"])
async def test_a_caller_of_1_0_is_answered_once(lines: bytes, gateway: Served) -> None:
    ask = b"GET /v1/jobs HTTP/1.0\r\nHost: 127.0.0.1\r\n%b\r\n" % lines
    came = await gateway.raw(ask + ask)
    assert came.count(b"HTTP/1.1 200") == 1
    assert b"\r\nconnection: close\r\n" in came


async def test_a_stream_for_1_0_is_not_in_chunks(gateway: Served) -> None:
    reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
    writer.write(b"GET /v1/events:watch HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert (await reader.readline()).startswith(b"{")
    writer.close()


async def test_who_waits_for_a_word_before_the_body_gets_it(gateway: Served) -> None:
    reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
    body = b'{"name": "asked-first", "callback_url": "https://a.example"}'
    lines = b"Host: 127.0.0.1\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
    writer.write(b"POST /api/v1/jobs HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (lines, len(body)))
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 201")
    writer.close()


async def test_who_is_refused_before_the_body_does_not_wait_for_the_word(gateway: Served) -> None:
    lines = b"Host: evil.example\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"
    reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
    writer.write(b"POST /api/v1/jobs HTTP/1.1\r\n" + lines)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 421")
    writer.close()


def test_it_works_on_the_loop_that_the_command_uses() -> None:
    """uvloop's connections are none of asyncio's by their class."""

    async def play() -> bytes:
        async with serving("127.0.0.1:1", timeout=0.1) as gateway:
            return await gateway.raw(GET + b"Connection: close\r\n\r\n")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(play()).startswith(b"HTTP/1.1 503 Service Unavailable\r\n")


@pytest.mark.parametrize("wrong", [b"a\r\nb: c", b"a\nb", b"a\rb", b"a\0b"])
def test_no_header_of_an_answer_makes_another_one(wrong: bytes) -> None:
    assert head_of(200, [(b"a", b"b")]) == b"HTTP/1.1 200 OK\r\na: b\r\n\r\n"
    with pytest.raises(ValueError, match="the end of a line"):
        head_of(200, [(b"location", wrong)])


@each(
    ("data", "expected"),
    [
        (GET, True), (GET + b"Connection: a, Close\r\n", False),
        (GET + b"Connection: keep-alive\r\n", True), (GET.replace(b"1.1", b"1.0"), False),
        (GET + b"Connection: a\r\nConnection: close\r\n", False),
    ],
)  # fmt: skip
def test_how_long_a_connection_stays(data: bytes, expected: bool) -> None:
    request = RequestReader(data + b"\r\n").next_event()
    assert isinstance(request, h11.Request)
    assert stays(request) is expected


async def test_a_caller_who_leaves_ends_what_it_waits_for(stage: Stage) -> None:
    async with serving(stage.endpoints) as gateway:
        reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
        writer.write(b"GET /v1/events:watch HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        state = gateway.server._server.server_state
        assert len(state.tasks) == 1
        writer.transport.abort()
        async with asyncio.timeout(20):
            while state.tasks or state.connections:
                await asyncio.sleep(0.01)
