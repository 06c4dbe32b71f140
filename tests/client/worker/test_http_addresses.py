"""Where the HTTP executor goes and does not go, and what it takes from those whom it calls."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from raftsched.client import Worker, webhooks
from raftsched.client.executors import HttpExecutor

from .node import Node
from .test_executors import LOOPBACK, carry_out, http, website
from .test_worker import serving

SECRETS = [webhooks.new_secret(), webhooks.new_secret()]


class Site:
    """Answers all, and remembers whom."""

    def __init__(self) -> None:
        self.asked: list[web.Request] = []
        self.bodies: list[bytes] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        self.bodies.append(await request.read())
        return web.Response(text="in")


DENIED = {"http.denied"}
# Some versions of the library refuse these by themselves, and some systems know none.
ODD = {"http.denied", "http.url", "http.connection"}
SPELLINGS = {
    "127.0.0.1": DENIED, "localhost": DENIED, "[::1]": DENIED, "[::ffff:127.0.0.1]": DENIED,
    "[::ffff:7f00:1]": DENIED, "[64:ff9b::7f00:1]": DENIED, "0.0.0.0": DENIED, "[::]": DENIED,
    "169.254.169.254": DENIED, "[fe80::1]": DENIED, "224.0.0.1": DENIED, "2130706433": ODD,
    "0x7f000001": ODD, "0177.0.0.1": ODD, "127.1": ODD, "127\u30020\u30020\u30021": ODD,
}  # fmt: skip


async def test_this_machine_is_not_called_however_it_is_spelled() -> None:
    site = Site()
    worker = [HttpExecutor(timeout=5)]
    async with (
        website(site.answer) as url,
        Node() as node,
        serving(Worker(node.address, executors=worker)),
    ):
        places = {host: url.replace("127.0.0.1", host) for host in SPELLINGS}
        leases = {host: node.lease(action=http(place)) for host, place in places.items()}
        errors = {host: (await node.ended(lease)).failure for host, lease in leases.items()}

    wrong = {
        host: failure.error.message
        for host, failure in errors.items()
        if failure.error.kind not in SPELLINGS[host]
        or failure.fatal != (failure.error.kind != "http.connection")
        or ("--allow-address" in failure.error.message) != (failure.error.kind == "http.denied")
    }
    assert wrong == {}
    assert site.asked == []


async def test_of_a_names_addresses_only_those_that_may_be_are_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, site = asyncio.get_running_loop(), Site()
    found = {"both.example": ["127.0.0.2", "127.0.0.1"], "shut.example": ["127.0.0.2", "127.0.0.3"]}
    looked: list[str] = []

    async def getaddrinfo(host: str, port: int, **_: object) -> list[Any]:
        looked.append(host)
        return [(2, 1, 6, "", (one, port)) for one in found[host]]

    async with website(site.answer) as url:
        executor = HttpExecutor(allow=["127.0.0.1"])
        async with Node() as node, serving(Worker(node.address, executors=[executor])):
            monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
            one = await node.ended(
                node.lease(action=http(url.replace("127.0.0.1", "both.example")))
            )
            # Meanwhile the name stands for another: what was connected to stays what was asked.
            found["both.example"] = ["127.0.0.2"]
            two = await node.ended(
                node.lease(action=http(url.replace("127.0.0.1", "shut.example")))
            )

    assert one.success.result.data == b"in"
    assert two.failure.error.kind == "http.denied"
    assert "127.0.0.2" in two.failure.error.message
    assert "127.0.0.3" in two.failure.error.message
    assert len(site.asked) == 1


async def test_a_redirect_is_followed_nowhere() -> None:
    site = Site()
    async with website(site.answer) as inside:

        async def answer(request: web.Request) -> web.Response:
            return web.Response(status=307, headers={"Location": f"{inside}/admin"})

        async with website(answer) as url:
            action = http(url, headers={"Authorization": "Bearer x"})
            end = await carry_out(HttpExecutor(allow=LOOPBACK), action)

    assert end.failure.error.kind == "http.307"
    assert site.asked == []


async def test_calls_are_signed_with_the_new_secret_and_the_old_one() -> None:
    site = Site()
    async with website(site.answer) as url:
        forged = {"Webhook-Id": "forged", "webhook-signature": "v1,forged"}
        executor = HttpExecutor(allow=LOOPBACK, secrets=SECRETS)
        end = await carry_out(executor, http(url, headers=forged), b'{"n": 1}')

    for secret in SECRETS:
        assert webhooks.verify(site.asked[0].headers, site.bodies[0], [secret]) == end.run
    with pytest.raises(webhooks.SignatureInvalid):
        webhooks.verify(site.asked[0].headers, site.bodies[0], [webhooks.new_secret()])


@pytest.mark.parametrize(
    "headers", [{"X-A": "a\r\nX-Evil: 1"}, {"X-A\r\nX-Evil: 1": "a"}, {"X-A": "\0"}]
)
async def test_a_header_cannot_hold_another_one(headers: dict[str, str]) -> None:
    site = Site()
    async with website(site.answer) as url:
        end = await carry_out(HttpExecutor(allow=LOOPBACK), http(url, headers=headers))

    assert all("X-Evil" not in request.headers for request in site.asked)
    assert site.asked or (end.failure.error.kind, end.failure.fatal) == ("http.request", True)


async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An answer that never ends, a byte at a time."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def large_header(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX-Large: " + b"x" * 1_000_000 + b"\r\n\r\n")
    await writer.drain()
    writer.close()


async def many_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200_000 + b"Content-Length: 0\r\n\r\n")
    await writer.drain()
    writer.close()


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


async def bomb(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    body = gzip.compress(bytes(100_000_000))
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
        + body
    )
    await writer.drain()
    writer.close()


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.mark.parametrize(
    ("talk", "kinds"),
    [
        (drips, {"http.timeout"}), (large_header, {"http.connection"}),
        # The library counts headers since 3.14; before, their bytes alone are bounded.
        (many_headers, {"http.connection", ""}), (endless, {""}), (bomb, {""}),
    ],
)  # fmt: skip
async def test_an_answer_is_bounded(talk: Talk, kinds: set[str]) -> None:
    async def talked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(talked, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    timeout = 0.5 if talk is drips else 30
    end = await carry_out(HttpExecutor(allow=LOOPBACK, timeout=timeout), http(url))
    server.close()

    assert end.failure.error.kind in kinds, end.failure.error.message
    assert not end.success.HasField("result")


async def test_a_host_gets_so_many_calls_at_a_time() -> None:
    now, most = 0, 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.05)
        now -= 1
        return web.Response()

    async with website(answer) as url:
        executor = HttpExecutor(allow=LOOPBACK, per_host=2)
        async with Node() as node, serving(Worker(node.address, executors=[executor])):
            leases = [node.lease(action=http(url)) for _ in range(6)]
            ends = [await node.ended(lease) for lease in leases]

    assert all(end.HasField("success") for end in ends)
    assert most == 2


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"allow": ["everything"]}, "is no address rule"),
        ({"deny": ["10.0.0.1/8"]}, "is no address rule"),
        ({"secrets": ["plain"]}, "no base64"),
        ({"per_host": 0}, "per_host is 0"),
        ({"connections": 0}, "connections is 0"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        HttpExecutor(**settings)
