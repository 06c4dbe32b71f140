"""Connections to a gateway that are many, slow, cut off, or never read."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress

from .attack import attack
from .field import HostileCaller
from .http1 import AGAIN_S, Door, HttpLine, request

CONNECTIONS = 1_200  # More than one address may have.
SLOW, SLOW_S = 500, 0.3
WATCHERS = 600
READERS = 300
PIPED = 250
# Written at once behind a request that is under way.
PIPED_BYTES = 200_000
LARGE_BODY = 900_000


@attack("-", 5)
async def http_idle(field: HostileCaller) -> None:
    """1,200 connections to the gateway that say nothing, opened again as they are closed."""
    door = Door(field)
    async with door.connections(CONNECTIONS) as lines:
        while door.goes_on:
            for number, line in enumerate(lines):
                if line.reader.at_eof() and (new := await door.line()) is not None:
                    field.found.calls += 1
                    line.abort()
                    lines[number] = new
            await asyncio.sleep(SLOW_S)


@attack("-", 6)
async def http_slow_heads(field: HostileCaller) -> None:
    """500 connections that send a letter of a header now and then, and never the last line."""
    door = Door(field)
    head = b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
    async with door.connections(SLOW) as lines:
        for line in lines:
            line.writer.write(head)
        while door.goes_on:
            for line in lines:
                line.writer.write(b"a")
            await asyncio.sleep(SLOW_S)


@attack("-", 6)
async def http_slow_bodies(field: HostileCaller) -> None:
    """500 requests whose large bodies come by the byte; half of them show a token."""
    door = Door(field)
    sized = [("Content-Length", str(LARGE_BODY)), ("Content-Type", "application/json")]
    async with door.connections(SLOW) as lines:
        for number, line in enumerate(lines):
            token = door.token("editor") if number % 2 else ""
            line.writer.write(request("POST", "/v1/jobs", token=token, headers=sized) + b'{"a": "')
        while door.goes_on:
            for line in lines:
                line.writer.write(b"a")
            await asyncio.sleep(SLOW_S)


@attack("-", 6)
async def http_unread_lists(field: HostileCaller) -> None:
    """Lists of two megabytes, asked for on 300 connections, and never read."""
    await field.load(field.job(f"fat-{n}", data=field.dice.randbytes(7_500)) for n in range(200))
    door = Door(field)
    path = f"/v1/jobs?namespace={field.namespace}&pageSize=1000"
    asked = request("GET", path, token=door.token("viewer"))

    async def one(line: HttpLine) -> None:
        with suppress(OSError):
            await line.send(asked)
        field.found.calls += 1

    async with door.connections(READERS) as lines:
        for line in lines:
            # Whoever does not read lets nothing into its own memory either.
            line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.gather(*(one(line) for line in lines))
        await field.rest()


@attack("-", 6)
async def http_unread_streams(field: HostileCaller) -> None:
    """600 watchers of events, each of others, who read nothing while much happens."""
    door = Door(field)
    takes = [("Accept", "text/event-stream")]
    await field.load([field.job("watched", data=bytes(10_000))])
    async with door.connections(WATCHERS) as lines:
        for number, line in enumerate(lines):
            line.writer.transport.pause_reading()  # type: ignore[attr-defined]
            # Half of them want the same, which one stream of the cluster is enough for.
            other = f"%20OR%20job%3Dother-{number}" if number % 2 else ""
            path = f"/v1/events:watch?namespace={field.namespace}&filter=job%3Dwatched{other}"
            line.writer.write(request("GET", path, token=door.token("viewer"), headers=takes))
        await field.many(500, lambda _: field.trigger("watched"), at_once=10)
        await field.rest()


@attack("-", 5)
async def http_pipelined(field: HostileCaller) -> None:
    """Thousands of requests at once on each of 250 connections, behind one that waits."""
    door = Door(field)
    waits = request(
        "GET", f"/v1/events:watch?namespace={field.namespace}", token=door.token("viewer")
    )
    one = request("GET", "/v1/jobs/none")
    many = one * (PIPED_BYTES // len(one))

    async def line(number: int) -> None:
        while door.goes_on:
            made = await door.line()
            if made is None:
                continue
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(max(0.1, field.until - time.monotonic())):
                    made.writer.write(waits * (number % 2) + many)
                    field.found.calls += PIPED_BYTES // len(one)
                    await made.writer.drain()
                    # Every other one reads nothing.
                    while number % 4 < 2 and await made.reader.read(1 << 16):
                        pass
                    await field.rest()
            made.abort()
            await asyncio.sleep(AGAIN_S)

    await asyncio.gather(*(line(number) for number in range(PIPED)))


@attack("-", 5)
async def http_aborts(field: HostileCaller) -> None:
    """Writes and reads whose connections are reset in the head, the body or before the answer."""
    door = Door(field)
    token, names = door.token("editor"), set[str]()

    async def one(number: int) -> None:
        name = f"cut-{number}"
        body = json.dumps({
            "name": name, "namespace": field.namespace, "cron": "0 0 1 1 *",
            "callback_url": "https://example.com/hook", "payload": "x" * door.dice.randrange(5_000),
        }).encode()  # fmt: skip
        data = request("POST", "/api/v1/jobs", body, token=token)
        line = await door.line()
        if line is None:
            return
        cut = door.dice.randrange(len(data) + 2_000)
        with suppress(OSError):
            await line.send(data[:cut])
            if cut >= len(data):
                names.add(name)
        field.found.calls += 1
        line.abort()

    await field.many(3_000, one, at_once=30)
    # What was cut off before its end was never done.
    await asyncio.sleep(0.5)
    listed = await door.ask(
        request("GET", f"/v1/jobs?namespace={field.namespace}&pageSize=1000", token=token), "a list"
    )
    if listed is not None and listed.status == 200:
        made = {job["name"] for job in json.loads(listed.body).get("jobs", ())}
        field.found.figures["made"] = len(made)
        if halves := made - names:
            field.wrong(
                f"{len(halves)} jobs were made of requests that were cut off: {min(halves)}"
            )


@attack("-", 4)
async def http_come_and_go(field: HostileCaller) -> None:
    """Thousands of connections to the gateway that are opened and closed, or reset, at once."""
    door = Door(field)

    async def one(number: int) -> None:
        line = await door.line()
        if line is None:
            return
        with suppress(OSError):
            if number % 3 == 0:
                await line.send(b"GET / HTTP/1.1\r\n")
        line.abort() if number % 2 else line.close()
        field.found.calls += 1

    await field.many(20_000, one, at_once=30)
