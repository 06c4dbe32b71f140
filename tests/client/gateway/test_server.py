"""Connections: how many, how long, and what is said to what is no HTTP."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from raftsched.client.gateway import bodies, connection, server
from raftsched.client.gateway.config import HEAD_BYTES, Limits, Settings
from raftsched.client.gateway.head import HEADERS_MAX
from raftsched.client.gateway.server import may_have

from ..stage import Stage
from ..test_calls import certify
from .served import Served, serving


def refusal(answer: bytes) -> tuple[int, str, Any]:
    """Status, reason and metadata of an answer as it came."""
    head, _, body = answer.partition(b"\r\n\r\n")
    details = json.loads(body)["error"]["details"][0]
    return int(head.split()[1]), details["reason"], details["metadata"]


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nX\x00y: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nX: y\r\n Transfer-Encoding: chunked\r\n\r\n0",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: y\n\tz\r\n\r\n",
    ],
)  # fmt: skip
async def test_what_is_no_http_is_told_so(data: bytes, gateway: Served) -> None:
    status, reason, metadata = refusal(await gateway.raw(data + b"\r\n\r\n"))
    assert (status, reason) == (400, "REQUEST_MALFORMED")
    assert metadata["detail"]


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        (b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b""),
        (b"Authorization: Bearer SECRET\r\nAuthorization: Bearer b\r\nConnection: close\r\n", b""),
        (b"Idempotency-Key: SECRET\r\nIdempotency-Key: b\r\nConnection: close\r\n", b""),
        (b"Authorization : Bearer SECRET\r\n", b"illegal header line"),
        (b"Content-Type: application/json\r\nConnection: close\r\nContent-Length: 5000\r\n\r\n"
         + b"1" * 5000, b"5,000 digits"),
    ],
)  # fmt: skip
async def test_what_may_mean_two_things_is_refused_and_not_shown(
    lines: bytes, kept: bytes, gateway: Served
) -> None:
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    answer = await gateway.raw(head + lines + b"\r\n")
    assert refusal(answer)[:2] == (400, "REQUEST_MALFORMED")
    assert kept in answer
    for word in (b"SECRET", b"bytearray", b"set_int_max"):
        assert word not in answer


async def test_what_is_no_http_behind_an_answer_is_not_answered(gateway: Served) -> None:
    head = b"POST /v1/x HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
    writer.write(head)
    first = await reader.readuntil(b"}}\n")
    assert first.startswith(b"HTTP/1.1 404")
    writer.write(b"no chunk\r\n")
    assert await rest_of(reader) == b""
    writer.close()


async def test_a_head_that_is_too_long_is_refused_by_name(gateway: Served) -> None:
    data = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * HEAD_BYTES
    status, reason, metadata = refusal(await gateway.raw(data))
    assert (status, reason, metadata["limit"]) == (431, "LIMIT_EXCEEDED", "head")


async def test_a_head_of_more_headers_than_anybody_needs_is_refused_by_name(
    gateway: Served,
) -> None:
    def head(count: int) -> bytes:
        lines = b"".join(b"x%d:\r\n" % number for number in range(count))
        return (
            b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n" + lines + b"\r\n"
        )

    assert (await gateway.raw(head(HEADERS_MAX - 2))).startswith(b"HTTP/1.1 200")
    status, reason, metadata = refusal(await gateway.raw(head(HEADERS_MAX + 1)))
    assert (status, reason, metadata["limit"]) == (431, "LIMIT_EXCEEDED", "head")


async def test_what_comes_at_once_is_looked_at_in_turns(
    gateway: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "READ_BYTES", 100)
    body = {"name": "long", "callback_url": "https://a.example", "payload": "x" * 60_000}
    assert (await gateway.ask("POST", "/api/v1/jobs", body)).status == 201
    many = b"".join(
        b"GET /v1/jobs/long HTTP/1.1\r\nHost: 127.0.0.1\r\n%b\r\n" % last
        for last in [b""] * 20 + [b"Connection: close\r\n"]
    )
    assert (await gateway.raw(many)).count(b"HTTP/1.1 200") == 21


async def test_a_head_must_come_soon(gateway: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 0.1)
    reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
    writer.write(b"GET / HTTP/1.1\r\nHo")
    assert await rest_of(reader) == b""
    writer.close()
    reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
    writer.write(b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert (await reader.readuntil(b"\r\n")).split()[1] == b"200"
    # The next one has begun, and does not come.
    await reader.readuntil(b"{}\n")
    writer.write(b"GET /v1")
    assert await rest_of(reader) == b""
    writer.close()


async def test_between_two_requests_there_is_more_time(
    gateway: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head that has begun must come in 10 s, and the next one may begin in 75."""
    monkeypatch.setattr(connection, "IDLE_S", 0.1)
    reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
    writer.write(b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    # Long before the 10 s of a head.
    async with asyncio.timeout(5):
        assert (await reader.read()).endswith(b"{}\n")
    writer.close()


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """What comes until the other side closes, or breaks the connection off."""
    async with asyncio.timeout(20):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


async def test_a_body_must_come_soon(gateway: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_S", 0.1)
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    status, reason, _ = refusal(await gateway.raw(head + b"Content-Length: 10\r\n\r\n{"))
    assert (status, reason) == (408, "DEADLINE_PASSED")


async def test_an_answer_that_nobody_reads_is_given_up(
    gateway: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "READ_S", 0.2)
    for number in range(20):
        body = {"name": f"j{number}", "callback_url": "https://a.example", "payload": "x" * 60_000}
        assert (await gateway.ask("POST", "/api/v1/jobs", body)).status == 201
    reader, writer = await asyncio.open_connection(gateway.host, gateway.port, limit=1 << 10)
    for _ in range(40):
        writer.write(b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    # It is broken off although it goes on asking.
    async with asyncio.timeout(20):
        while not writer.transport.is_closing():
            writer.write(b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await asyncio.sleep(0.05)
    del reader


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.mark.parametrize(
    ("limits", "name", "status"),
    [
        (Limits(connections=2, connections_by_address=9), "connections", 503),
        (Limits(connections_by_address=2), "connections_by_address", 429),
    ],
)
async def test_connections_are_bounded(
    limits: Limits, name: str, status: int, stage: Stage
) -> None:
    async with serving(stage.endpoints, Settings(limits)) as gateway:
        held = [await asyncio.open_connection(gateway.host, gateway.port) for _ in range(2)]
        # They are counted as the loop takes them.
        got = refusal(await gateway.raw(b""))
        assert got[:2] == (status, "NODE_LIMIT")
        assert got[2]["limit"] == name
        for _, writer in held:
            writer.close()
            await writer.wait_closed()
        async with asyncio.timeout(20):
            while (await gateway.ask("GET", "/v1/jobs")).status != 200:
                await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "said", [b"", b"GET /v1/jo", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"],
    ids=["nothing", "half a head", "a request"],
)  # fmt: skip
async def test_an_idle_connection_gives_its_place_to_another_address(
    said: bytes, stage: Stage
) -> None:
    """Seen before: two addresses kept everybody else out for ten seconds at a time."""
    limits = Limits(connections=6, connections_by_address=3)
    async with serving(stage.endpoints, Settings(limits)) as gateway:

        async def opened(address: str, said: bytes) -> Connection:
            made = await asyncio.open_connection(
                gateway.host, gateway.port, local_addr=(address, 0)
            )
            made[1].write(said)
            if said.endswith(b"\r\n\r\n"):
                await made[0].readuntil(b"\r\n\r\n")
            return made

        held = [await opened(f"127.0.0.{2 + number % 2}", said) for number in range(6)]
        async with asyncio.timeout(20):
            assert (await gateway.ask("GET", "/v1/jobs")).status == 200
            # Its own connection stays open, and another one finds a place, too.
            other = await opened("127.0.0.9", b"GET /v1/jobs HTTP/1.1\r\nHost: a\r\n\r\n")
            ended = [one for one in held if await at_its_end(one[0])]
        assert len(ended) == 2
        for _, writer in (*held, other):
            writer.close()


async def at_its_end(reader: asyncio.StreamReader) -> bool:
    """Whether a connection was broken off, or is within a moment."""
    try:
        async with asyncio.timeout(0.3):
            while await reader.read(1_000):
                pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


async def test_bodies_are_bounded_together(stage: Stage) -> None:
    async with serving(stage.endpoints, Settings(Limits(body_mb=2))) as gateway:
        head = (
            b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: 700000\r\n\r\n{"
        )
        # What is only announced takes no room.
        slow = [await asyncio.open_connection(gateway.host, gateway.port) for _ in range(5)]
        for _, writer in slow:
            writer.write(head)
        assert (await gateway.ask("POST", "/v1/jobs", {"name": "a"})).status == 400
        _, writer = slow[0]
        writer.write(b" " * 600_000)
        async with asyncio.timeout(20):
            while gateway.server._app._bodies._total < 600_000:
                await asyncio.sleep(0.01)
            while True:
                # The rest of a body that was refused is read and dropped.
                reader, another = await asyncio.open_connection(gateway.host, gateway.port)
                another.write(head + b" " * 699_999)
                status, reason, metadata = refusal(await reader.readuntil(b"}}\n"))
                another.close()
                if reason == "NODE_LIMIT":
                    break
        assert (status, metadata["limit"]) == (429, "body_mb_by_address")
        for _, writer in slow:
            writer.close()


async def test_answers_that_nobody_reads_are_bounded_together(stage: Stage) -> None:
    async with serving(stage.endpoints, Settings(Limits(answers_mb=2))) as gateway:
        for number in range(12):
            body = {"name": f"j{number}", "callback_url": "https://a.example"}
            body["payload"] = "x" * 60_000
            assert (await gateway.ask("POST", "/api/v1/jobs", body)).status == 201
        # The system takes some of them from us.
        held = [await asyncio.open_connection(gateway.host, gateway.port) for _ in range(8)]
        for _, writer in held:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 40)
        async with asyncio.timeout(20):
            while (got := await gateway.ask("GET", "/v1/jobs")).status == 200:
                pass
        assert (got.status, got.reason) == (429, "NODE_LIMIT")
        assert got.error["details"][0]["metadata"]["limit"] == "answers_mb_by_address"
        # Short ones are answered, and what is given up makes room.
        assert (await gateway.ask("GET", "/v1/jobs?pageSize=1&filter=name%3Dnone")).status == 200
        for _, writer in held:
            writer.transport.abort()
        async with asyncio.timeout(20):
            while (await gateway.ask("GET", "/v1/jobs")).status != 200:
                await asyncio.sleep(0.02)


@pytest.mark.slow
def test_so_many_connections_are_let_in_as_files_may_be_open() -> None:
    ask = (
        "import resource; from raftsched.client.gateway.server import may_have;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, ({}, {}));"
        "print(may_have(500), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )

    def told(soft: int, hard: int) -> str:
        words = [sys.executable, "-c", ask.format(soft, hard)]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    assert told(64, 4_000) == "500 600"
    assert told(64, 300) == "200 300"
    assert told(900, 4_000) == "500 900"
    assert may_have(1) == 1


async def test_no_answer_waits_for_a_confirmation(gateway: Served) -> None:
    """Else an answer of head and body takes 40 ms."""
    await gateway.ask("GET", "/v1/jobs")
    [one] = gateway.server._server.server_state.connections
    assert one.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
async def test_a_certificate_turns_https_on(stage: Stage, tmp_path: Path) -> None:
    certify(tmp_path, "node")
    made = Settings(certificate=str(tmp_path / "node.pem"), key=str(tmp_path / "node.key"))
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    async with serving(stage.endpoints, made) as gateway:
        path = f"https://{gateway.host}:{gateway.port}/v1/jobs"
        async with gateway.session.get(path, ssl=trusting) as answer:
            assert answer.status == 200
        plain = await gateway.raw(b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert not plain.startswith(b"HTTP")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
async def test_a_renewed_certificate_is_shown(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "RENEW_S", 0.02)
    certify(tmp_path, "node")
    pem, key = tmp_path / "node.pem", tmp_path / "node.key"

    async def shown(gateway: Served) -> str:
        return await asyncio.to_thread(ssl.get_server_certificate, (gateway.host, gateway.port))

    async with serving(stage.endpoints, Settings(certificate=str(pem), key=str(key))) as gateway:
        first = await shown(gateway)
        # A key of another pair is not taken.
        former = key.read_bytes()
        (tmp_path / "other").mkdir()
        certify(tmp_path / "other", "node")
        key.write_bytes((tmp_path / "other" / "node.key").read_bytes())
        async with asyncio.timeout(10):
            while gateway.server._certificate is None or (
                gateway.server._certificate._stamps() != gateway.server._certificate._known
            ):
                await asyncio.sleep(0.01)
        assert await shown(gateway) == first
        assert former != key.read_bytes()
        pem.write_bytes((tmp_path / "other" / "node.pem").read_bytes())
        async with asyncio.timeout(10):
            while await shown(gateway) == first:
                await asyncio.sleep(0.01)


async def test_requests_on_one_connection_are_answered_in_order(gateway: Served) -> None:
    asked = [f"/v1/nothing-{number}" for number in range(5)]
    lines = "".join(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" for path in asked)
    last = "GET /v1/last HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    answer = (await gateway.raw((lines + last).encode())).decode()
    places = [answer.index(f'"path":"{path}"') for path in [*asked, "/v1/last"]]
    assert places == sorted(places)


async def test_chunks_belong_to_http_1_1(gateway: Served) -> None:
    """A proxy of that time would take what follows for another request."""
    head = (
        b"POST /v1/jobs HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    answer = await gateway.raw(head + b"0\r\n\r\nGET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert refusal(answer)[:2] == (400, "REQUEST_MALFORMED")
    assert answer.count(b"HTTP/1.1 ") == 1
