"""Requests to a gateway that are odd, ambiguous, endless, or simply too many."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from urllib.parse import quote

from .attack import attack
from .field import HostileCaller
from .http1 import AGAIN_S, HOST, Door, HttpLine, Pair, request

HEAD_BYTES = 31_000
STREAM = "text/event-stream"
FLOOD_LINES = 100
END = "\r\n\r\n"


@attack("-", 6)
async def http_header_flood(field: HostileCaller) -> None:
    """Heads of thousands of headers, of values as long as may be, and such as never end."""
    door = Door(field)
    long = "a" * HEAD_BYTES
    many = [(f"{number:x}", "") for number in range(HEAD_BYTES // 8)]
    heads: Sequence[list[Pair]] = (
        many, [("Accept", "," * HEAD_BYTES)], [("Accept", "a/b;q=0.1," * (HEAD_BYTES // 10))],
        [("Accept-Encoding", "," * HEAD_BYTES)], [("Cookie", long)], [("If-Match", f'"{long}"')],
        [("Idempotency-Key", long)], [("Last-Event-ID", long)], [("Authorization", long)],
        [("Authorization", f"Bearer {long}")], [("Forwarded", "for=1.1.1.1," * 2_500)],
        [("traceparent", long)], [("X-Long", long * 40)], many * 20, [("Origin", long)],
    )  # fmt: skip

    async def one(number: int) -> None:
        headers = heads[number % len(heads)]
        if len(headers) == 1:
            # None is like another one, so nothing that is kept of one helps with the next.
            [(name, value)] = headers
            headers = [(name, f"{number},{value}")]
        token = door.token("viewer") if number % 2 else ""
        asked = request("GET", "/v1/jobs/none", headers=headers, token=token)
        await door.ask(asked, f"a head with {headers[0][0]}")

    await field.many(4_000, one, at_once=60)


@attack("-", 4)
async def http_paths(field: HostileCaller) -> None:
    """Paths of other forms: encoded slashes and zeros, dots, whole addresses, all methods."""
    door = Door(field)
    verbs = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PRI",
             "GE", "get", "A" * 1_000)  # fmt: skip
    odd = ("%00", "%2e%2e", "..", "%2f", "//", "%", "%zz", "%ff%fe", "%F0%9F%92%A5", ":", ";a=b",
           "jobs", "v1", "api", "{job}", "*", "%0d%0aX:%20y", "~", "a" * 3_000)  # fmt: skip
    whole = ("*", "http://evil.example/v1/jobs", "evil.example:443", "//evil.example/v1/jobs",
             "/v1/jobs/../accessTokens", "/v1/%6aobs", "/v1/jobs/%2e%2e/accessTokens", "/docs/../",
             "/v1/jobs:", "/v1/jobs/a:b:c", "/v1", "/", "/openapi.json/", "?", "#")  # fmt: skip

    async def one(number: int) -> None:
        dice = door.dice
        parts = [dice.choice((*odd, "v1", "jobs")) for _ in range(dice.randrange(1, 8))]
        path = dice.choice(whole) if number % 3 == 0 else "/" + "/".join(parts)
        verb = dice.choice(verbs)
        token = door.token(dice.choice(("viewer", "worker", "none")))
        asked = request(verb, path, b"{}" if number % 2 else b"", token=token)
        reply = await door.ask(asked, f"{verb[:20]} {path}")
        if reply is not None and reply.status < 300 and not token and path.startswith("/v1/"):
            field.wrong(f"nobody could {verb} {path[:60]}")

    await field.many(2_000, one, at_once=20)


@attack("-", 3)
async def http_hosts_and_origins(field: HostileCaller) -> None:
    """Names and pages from elsewhere, as a browser that was led here would send them."""
    door = Door(field)
    port = door.address.rpartition(":")[2]
    hosts = ("", "evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil",
             "127.0.0.1@evil.example", "evil.example@127.0.0.1", "127.0.0.1/evil.example", "[::1",
             "127.0.0.1#.evil.example", "127.0.0.1?.evil.example", "2130706433", "0x7f.0.0.1",
             "127.1", "127.0.0.1:evil", "a" * 20_000, "\xe9vil")  # fmt: skip
    origins = ("null", "http://evil.example", "http://127.0.0.1.evil.example", "http://127.0.0.1:1",
               f"http://evil.example:{port}", "http://localhost", "file://", "x" * 5_000,
               f"http://user@127.0.0.1:{port}", "http://[", "*", "http://")  # fmt: skip

    async def one(number: int) -> None:
        path = ("/v1/jobs?namespace=" + field.namespace, "/", "/openapi.json")[number % 3]
        token = door.token("editor")
        if number % 2:
            host = hosts[number // 2 % len(hosts)]
            reply = await door.ask(request("GET", path, token=token, host=host), f"Host {host}")
            what = f"Host: {host[:60]}"
        else:
            origin = origins[number // 2 % len(origins)]
            asked = request("GET", path, token=token, headers=[("Origin", origin)],
                            host=f"{HOST}:{port}")  # fmt: skip
            reply = await door.ask(asked, f"Origin {origin}")
            what = f"Origin: {origin[:60]}"
        if reply is not None and reply.status < 400:
            field.wrong(f"{what} was served with {reply.status}")

    await field.many(600, one, at_once=10)


@attack("-", 3)
async def http_event_ids(field: HostileCaller) -> None:
    """Places in a stream of events that are none, never were, or have not come yet."""
    door = Door(field)
    places = ("x", "1", "1.2.3", "-1.0", "1.-1", "9" * 400, "1." + "9" * 400, "1e9.0", "0x1.0",
              "9223372036854775807.0", "18446744073709551616.1", "\xff\xfe", "1.0\t1.0", "+1.+0",
              "999999999999.0", ".", "..", "1.", ".1", "\u0661.0", "9" * 20_000)  # fmt: skip

    async def one(number: int) -> None:
        place = places[number % len(places)]
        path = f"/v1/events:watch?namespace={field.namespace}"
        headers = [("Accept", STREAM)]
        if number % 2:
            headers.append(("Last-Event-ID", place))
        else:
            path += f"&after.change={quote(place[:2_000])}"
        asked = request("GET", path, token=door.token("viewer"), headers=headers)
        reply = await door.ask(asked, f"a stream behind {place[:40]!r}")
        if reply is not None and reply.status == 200 and number % 2 and len(place) > 20:
            field.wrong(f"a stream behind {place[:40]!r} was begun")

    await field.many(600, one, at_once=10)


@attack("-", 4)
async def http_queries(field: HostileCaller) -> None:
    """Queries of 30,000 letters: filters, fields of fields, one field thousands of times."""
    door = Door(field)
    fill = HEAD_BYTES - 500
    queries = (
        "filter=" + quote("(" * (fill // 3)), "filter=" + quote("NOT " * (fill // 6) + "job=a"),
        "filter=" + quote(" OR ".join(["job=a*"] * (fill // 20))), "a=b&" * (fill // 4),
        "pageSize=" + "9" * fill, "&" * fill, "=" * fill, "read." * (fill // 5) + "x=1",
        "pageToken=" + "A" * fill, "%00=%00", "namespace=" + "%F0%9F%92%A5" * (fill // 12),
        "orderBy=" + quote(",name desc" * (fill // 20)), "namespace=a&namespace=b",
        "filter=job%3D" + "*a" * 100 + "b", "read.consistency=9", "pageSize=-1", "x" * fill,
        "filter=job%3D%22" + "%5C" * (fill // 3), "%", "a[]=1", "namespace=%ff",
    )  # fmt: skip

    async def one(number: int) -> None:
        query = queries[number % len(queries)]
        path = ("/v1/jobs", "/v1/runs", "/v1/events")[number % 3]
        token = door.token("viewer") if number % 4 else ""
        await door.ask(request("GET", f"{path}?{query}", token=token), f"the query {query[:40]}")

    await field.many(2_000, one, at_once=30)


def shapes(smuggled: bytes) -> dict[str, bytes]:
    """Requests that two programs may understand in two ways, each with another request in it."""
    path, size = "POST /v1/jobs", len(smuggled)
    last = f"0{END}".encode() + smuggled
    chunk = f"{size:x}\r\n".encode() + smuggled + f"\r\n0{END}".encode()

    def head(*lines: str, version: str = "1.1") -> bytes:
        words = [f"{path} HTTP/{version}", f"Host: {HOST}", "Content-Type: application/json"]
        return "\r\n".join((*words, *lines)).encode("latin-1") + END.encode()

    coded = "Transfer-Encoding: chunked"
    return {
        "both lengths": head(f"Content-Length: {len(last)}", coded) + last,
        "both lengths, other order": head(coded, "Content-Length: 5") + last,
        "two codings": head(coded, "Transfer-Encoding: identity") + last,
        "an unknown coding": head("Transfer-Encoding: xchunked") + smuggled,
        "a quoted coding": head('Transfer-Encoding: "chunked"') + last,
        "chunked twice": head("Transfer-Encoding: chunked, chunked") + last,
        "chunked is not last": head("Transfer-Encoding: chunked, identity") + last,
        "gzip in chunks": head("Transfer-Encoding: gzip, chunked") + last,
        "a blank before the colon": head("Transfer-Encoding : chunked") + last,
        "a blank before the length": head("Content-Length : 0") + smuggled,
        "a folded header": head("X: y", f" {coded}", "Content-Length: 0") + smuggled,
        "a tab in the coding": head("Transfer-Encoding:\x0bchunked") + last,
        "a zero in a header": head("X: a\0b", "Content-Length: 0") + smuggled,
        "a return in a header": head("X: a\rContent-Length: 9", "Content-Length: 0") + smuggled,
        "two lengths": head("Content-Length: 0", f"Content-Length: {size}") + smuggled,
        "a list of lengths": head(f"Content-Length: 0, {size}") + smuggled,
        "a length with a sign": head("Content-Length: +0") + smuggled,
        "a length below zero": head("Content-Length: -1") + smuggled,
        "a length in hex": head("Content-Length: 0x0") + smuggled,
        "a length that is none": head("Content-Length: ") + smuggled,
        "a huge length": head("Content-Length: " + "9" * 30) + smuggled,
        "chunks in 1.0": head(coded, "Connection: keep-alive", version="1.0") + last,
        "a chunk with a sign": head(coded) + b"+0" + END.encode() + smuggled,
        "a chunk in hex": head(coded) + b"0x0" + END.encode() + smuggled,
        "a chunk below zero": head(coded) + b"-1" + END.encode() + smuggled,
        "a huge chunk": head(coded) + b"f" * 30 + b"\r\n" + smuggled,
        "a chunk's end is missing": head(coded) + chunk.replace(b"\r\n0", b"0", 1),
        "a bare line end in a chunk": head(coded) + b"0;a\n\r\n" + smuggled,
        "two methods in a line": b"GET /v1/jobs POST /v1/jobs HTTP/1.1\r\n" + smuggled,
        "a line before the first": b" GET / HTTP/1.1\r\n" + smuggled,
        "no colon": head("Content-Length 5") + smuggled,
        "two hosts": head("Host: evil.example", "Content-Length: 0") + smuggled,
    }


@attack("-", 5)
async def http_smuggling(field: HostileCaller) -> None:
    """Requests with two lengths, odd chunks and odd line ends, each with a second one inside."""
    door = Door(field)

    async def play(name: str, data: bytes) -> None:
        line = await door.line()
        if line is None:
            return
        try:
            await line.send(data)
            first = await line.read()
            door.saw(first, name)
            if first is not None and first.status < 400:
                field.wrong(f"{name}: it was served with {first.status}")
            second = await line.read(2.0) if first is not None else None
            if second is not None:
                field.wrong(f"{name}: a second request was answered with {second.status}")
        except TimeoutError:
            field.wrong(f"{name}: the connection stays open")
        except ConnectionError:
            door.saw(None, name)
        finally:
            line.abort()

    async def one(number: int) -> None:
        job = {"name": f"smuggled-{number}", "namespace": field.namespace, "cron": "0 0 1 1 *",
               "callback_url": "https://example.com/hook"}  # fmt: skip
        token = door.token("editor")
        inner = request("POST", "/api/v1/jobs", json.dumps(job).encode(), token=token)
        made = [*shapes(inner).items()]
        await play(*made[number % len(made)])

    await field.many(len(shapes(b"")) * 4, one, at_once=8)
    listed = await door.ask(
        request("GET", f"/v1/jobs?namespace={field.namespace}", token=door.token("viewer")),
        "a list",
    )
    if listed is not None and b"smuggled-" in listed.body:
        field.wrong("a job was made by a request that stood in another one")


@attack("-", 4)
async def http_old(field: HostileCaller) -> None:
    """HTTP/0.9, 1.0 and 2, TLS, upgrades, tunnels, and answers that are sent as requests."""
    door = Door(field)
    upgrades = [("Connection", "Upgrade, HTTP2-Settings"), ("HTTP2-Settings", "AAMAAABkAAQAAP__")]
    socket = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
              ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")]  # fmt: skip
    sent = (
        b"GET /\r\n", b"GET / HTTP/0.9\r\n\r\n", request("GET", "/v1/jobs", version="1.0"),
        request("POST", "/v1/jobs", b"{}", version="1.0"), request("GET", "/", version="9.9"),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(200), b"\x16\x03\x01\x02\x00\x01" + bytes(500),
        request("GET", "/", headers=[*upgrades, ("Upgrade", "h2c")]),
        request("GET", "/v1/events:watch", headers=socket), b"HTTP/1.1 200 OK\r\n\r\n",
        request("CONNECT", "example.com:443"), request("TRACE", "/v1/jobs"), b"\r\n" * 1_000,
        request("GET", "/", headers=[("Expect", "100-continue")]), b"\0" * 1_000,
        request("POST", "/v1/jobs", headers=[("Content-Length", "5"), ("Expect", "magic")]) + b"{}",
    )  # fmt: skip

    async def one(number: int) -> None:
        line = await door.line()
        if line is None:
            return
        data = sent[number % len(sent)]
        try:
            await line.send(data if number % 7 else door.dice.randbytes(2_000))
            door.saw(await line.read(1.0), repr(data[:40]))
        except (TimeoutError, ValueError):
            # It waits for more, or what came is no answer of HTTP.
            field.found.codes["open"] = field.found.codes.get("open", 0) + 1
        except ConnectionError:
            door.saw(None, repr(data[:40]))
        finally:
            line.abort()

    await field.many(1_000, one, at_once=40)


def anything(door: Door) -> Callable[[], bytes]:
    """What a stranger sends in a flood."""
    dice = door.dice
    job = b'{"name": "flood", "cron": "* * * * *", "callback_url": "https://example.com/x"}'
    asked = (
        request("GET", "/v1/jobs"), request("POST", "/api/v1/jobs", job), request("GET", "/docs"),
        request("GET", "/v1/runs?pageSize=1000"), request("DELETE", "/v1/jobs/report"),
        request("GET", "/v1/events:watch", headers=[("Accept", STREAM)]), request("GET", "/"),
        request("POST", "/v1/jobs:import", b"[" * 8_000), request("GET", "/nothing"),
        request("GET", "/v1/whoami", token="rs_" + "x" * 40), request("OPTIONS", "/v1/jobs"),
        request("POST", "/v1/jobs", b'{"job": {"name": "a", "spec": {' + b'"x": 1,' * 1_000),
        request("GET", "/openapi.json", headers=[("Accept-Encoding", "gzip")]),
    )  # fmt: skip
    return lambda: dice.choice(asked)


@attack("-", 10)
async def http_flood(field: HostileCaller) -> None:
    """Strangers on 100 connections send all they can, as fast as it is answered, for 10 s."""
    door = Door(field)
    some = anything(door)

    async def ask(line: HttpLine) -> None:
        while door.goes_on:
            await line.send(some())
            reply = await line.read()
            door.saw(reply, "a flood")
            if reply is None or b"connection: close" in reply.head.lower():
                return

    async def one() -> None:
        while door.goes_on:
            line = await door.line()
            if line is None:
                continue
            try:
                await ask(line)
            except ConnectionError:
                door.saw(None, "a flood")
            except TimeoutError:
                door.silent()
            finally:
                line.abort()
            await asyncio.sleep(AGAIN_S)

    await asyncio.gather(*(one() for _ in range(FLOOD_LINES)))
    field.found.figures["per_s"] = round(field.found.calls / field.brief.seconds)
