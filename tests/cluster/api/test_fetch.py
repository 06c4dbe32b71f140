"""What a node fetches from an address that an admin has named, and what it does not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from raftsched.cluster.api import fetch as fetch_module
from raftsched.cluster.api.fetch import FetchFailed, fetch

from .talk import Anything

Serve = Callable[[bytes], Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """A server that answers everybody with these bytes; its address. b"" never answers."""
    servers = []

    async def begin(answer: bytes) -> str:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            if answer:
                writer.close()
            else:
                await reader.read()
                writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        servers.append(server)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"

    yield begin
    for server in servers:
        server.close()


def answer(status: str, *headers: str, body: bytes = b"") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode() + body


async def test_a_document_comes_whole_or_in_pieces(serve: Serve) -> None:
    assert await fetch(await serve(answer("200 OK", "Content-Length: 2", body=b"{}"))) == b"{}"
    assert await fetch(await serve(answer("200 OK", body=b"to the end"))) == b"to the end"
    chunked = answer("200 OK", "Transfer-Encoding: chunked", body=b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n")
    assert await fetch(await serve(chunked)) == b"{}"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (answer("302 Found", "Location: http://127.0.0.1:1/x"), "answers 302"),
        (answer("404 Not Found", "Content-Length: 0"), "answers 404"),
        (answer("200 OK", body=b"x" * 70_000), "sends over 65536 bytes"),
        (answer("200 OK", *[f"X-{n}: {'x' * 100}" for n in range(900)]), "127.0.0.1"),
        (answer("200 OK", "Content-Length: 9", body=b"short"), "127.0.0.1"),
        (b"SSH-2.0-x\r\n\r\n", "127.0.0.1"),
    ],
)
async def test_what_is_no_small_document_is_not_taken(serve: Serve, said: bytes, why: str) -> None:
    with pytest.raises(FetchFailed, match=why):
        await fetch(await serve(said))


async def test_who_does_not_answer_is_given_up(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_module, "FETCH_S", 0.05)
    with pytest.raises(FetchFailed, match="did not answer within"):
        await fetch(await serve(b""))


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("169.254.169.254", "never asked"), ("fe80::1", "never asked"), ("0.0.0.0", "never asked"),
        ("::ffff:169.254.169.254", "never asked"), ("224.0.0.1", "never asked"),
        ("127.0.0.1", "loopback is asked only"), ("::1", "loopback is asked only"),
        ("::ffff:127.0.0.1", "loopback is asked only"),
    ],
)  # fmt: skip
async def test_a_name_that_points_inside_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, address: str, why: str
) -> None:
    async def look_up(*_: Anything, **__: Anything) -> list[Anything]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    with pytest.raises(FetchFailed, match=why):
        await fetch("https://id.example/keys")


@pytest.mark.parametrize(
    "url", ["http://id.example/k", "ftp://id.example", "https://", "https://u@id.example", "x"]
)
async def test_nothing_but_https_is_asked_beyond_loopback(url: str) -> None:
    with pytest.raises(FetchFailed, match="is no https address"):
        await fetch(url)
