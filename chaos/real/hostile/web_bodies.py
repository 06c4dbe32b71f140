"""Bodies sent to a gateway: deep, wide, large, packed, or in chunks of one byte."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from contextlib import suppress

from .attack import attack
from .field import HostileCaller
from .http1 import AGAIN_S, Door, Pair, request

# As long as the body of an import may be, which is the longest that is read.
LARGE = 12 << 20
CHUNKED: Pair = ("Transfer-Encoding", "chunked")
JSON_BODY: Pair = ("Content-Type", "application/json")
DRIPS = 150


@attack("-", 6)
async def http_deep_json(field: HostileCaller) -> None:
    """JSON that is nested, wide, full of numbers, escapes and repeated keys, or no JSON at all."""
    door = Door(field)
    texts = (
        "[" * 100_000, '{"a":' * 100_000, "[" * 10_000 + "]" * 10_000, "[[],[]," * 30_000,
        "[" + "1," * 90_000 + "1]", "[" + "1e9999," * 20_000 + "1]", '{"job": ' + "9" * 300_000,
        json.dumps({f"k{n}": n for n in range(50_000)}), '{"a": 1, "a": 2}', '"\\ud800"',
        json.dumps({"job": {"labels": {f"k{n}": "v" for n in range(40_000)}}}),
        '"' + "\\" * 200_001,
        '"' + "\\u0041" * 60_000 + '"', "\x00" * 60_000, " " * 400_000, '"' + "a" * 400_000 + '"',
        '{"job": {"spec": {"schedules": [' + '{"cron": {"expression": "* * * * *"}},' * 5_000,
        "{" + '"\\u0061\\u0061": 1,' * 10_000 + '"b": 1}', "NaN", "-", "1" * 5_000, "nul", "'a'",
        '{"name": "' + "x" * 50_000 + '", "cron": "' + "* " * 20_000 + '", "callback_url": "x"}',
        json.dumps({"jobs": [{}] * 90_000}),
    )  # fmt: skip
    bodies = [text.encode() for text in texts]
    paths = ("/v1/jobs", "/api/v1/jobs", "/v1/jobs:import")

    async def one(number: int) -> None:
        body = bodies[number % len(bodies)]
        token = door.token("editor") if number % 2 else ""
        asked = request("POST", paths[number % 3], body, token=token)
        reply = await door.ask(asked, f"the body {body[:40]!r}")
        if reply is not None and reply.status < 300:
            field.wrong(f"the body {body[:40]!r} was taken")

    await field.many(1_000, one, at_once=16)


@attack("-", 6)
async def http_large_bodies(field: HostileCaller) -> None:
    """Bodies of 12 MiB on 24 connections, with and without a token, with a length and in chunks."""
    door = Door(field)
    start = b'{"jobs": [{"name": "'
    whole = start + b"x" * (LARGE - len(start))

    async def one(number: int) -> None:
        token = door.token("editor") if number % 2 else ""
        headers = [CHUNKED, JSON_BODY] if number % 4 < 2 else [("Content-Length", str(LARGE))]
        line = await door.line()
        if line is None:
            return
        try:
            line.writer.write(request("POST", "/v1/jobs:import", token=token, headers=headers))
            for at in range(0, LARGE, 1 << 18):
                part = whole[at : at + (1 << 18)]
                framed = b"%x\r\n%b\r\n" % (len(part), part) if headers[0] == CHUNKED else part
                await line.send(framed)
            reply = await line.read()
            door.saw(reply, "a body of 12 MiB")
            if reply is not None and reply.status < 300:
                field.wrong("a body of 12 MiB that is no JSON was taken")
        except ConnectionError:
            door.saw(None, "a body of 12 MiB")
        except TimeoutError:
            door.silent()
        finally:
            line.abort()

    await field.many(300, one, at_once=24)


@attack("-", 4)
async def http_packed_bodies(field: HostileCaller) -> None:
    """Bodies that say they are packed, among them 100 MB of zeros in 100 kB."""
    door = Door(field)
    bomb = gzip.compress(bytes(100_000_000), 9)
    small = gzip.compress(b'{"name": "packed", "cron": "0 0 1 1 *", "callback_url": "x"}')

    async def one(number: int) -> None:
        coding = ("gzip", "br", "deflate", "gzip, gzip", "x-gzip", "GZIP", "zstd")[number % 7]
        named = ("Content-Encoding", "Transfer-Encoding")[number % 2]
        headers = [(named, coding if number % 2 == 0 else f"{coding}, chunked")]
        if number % 3 == 0:
            headers = [("Content-Encoding", "gzip"), ("Content-Encoding", "identity")]
        body = bomb if number % 5 == 0 else small
        token = door.token("editor")
        reply = await door.ask(request("POST", "/api/v1/jobs", body, token=token, headers=headers),
                               f"a body as {coding}")  # fmt: skip
        if reply is not None and reply.status < 300:
            field.wrong(f"a body as {headers} was taken")

    await field.many(400, one, at_once=10)


@attack("-", 6)
async def http_small_chunks(field: HostileCaller) -> None:
    """Bodies in chunks of one byte, each with a word behind its size, on 150 connections."""
    door = Door(field)
    plain, worded = b"1\r\na\r\n" * 20_000, (b"1;" + b"x" * 50 + b"\r\na\r\n") * 2_000
    head = request("POST", "/v1/jobs", headers=[CHUNKED, JSON_BODY])

    async def one(number: int) -> None:
        while door.goes_on:
            line = await door.line()
            if line is None:
                continue
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(max(0.1, field.until - time.monotonic())):
                    line.writer.write(head + b'1\r\n"\r\n')
                    while not line.reader.at_eof():
                        await line.send(worded if number % 3 == 0 else plain)
                        field.found.calls += 1
            line.abort()
            await asyncio.sleep(AGAIN_S)

    await asyncio.gather(*(one(number) for number in range(DRIPS)))
