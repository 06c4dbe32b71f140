"""Frames, lines and encodings that the standards allow and nobody sends."""

from __future__ import annotations

import asyncio
import gzip
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ....proto.v1 import alert_pb2, job_pb2, namespace_pb2, worker_pb2
from . import http2
from .attack import attack
from .bodies import payload
from .field import HostileCaller, Over, Stream
from .relay import foreign
from .sockets import probes_answer, split

LIST = "/raftsched.v1.JobService/ListJobs"
CREATE = "/raftsched.v1.JobService/CreateJob"
IMPORT = "/raftsched.v1.JobService/ImportJobs"
WATCH = "/raftsched.v1.EventService/WatchEvents"
WORK = "/raftsched.v1.WorkerService/Work"
REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
PRIORITY, ALTSVC = 2, 10
BREATH_S = 0.005
AGAIN_S = 0.05
COMPRESSED = b"\1"
Talk = Callable[[http2.Connection, int], Awaitable[None]]


async def connections(field: HostileCaller, count: int, talk: Talk, *, reads: bool = True) -> None:
    """So many connections, round the nodes, each opened again when it is broken."""

    async def one(number: int) -> None:
        address = field.brief.nodes[number % len(field.brief.nodes)][0]
        while field.goes_on:
            with suppress(OSError):
                connection = await http2.Connection.open(address)
                try:
                    async with field.tasks([connection.swallow()] if reads else []):
                        await talk(connection, number)
                finally:
                    connection.close()
            await asyncio.sleep(AGAIN_S)

    await asyncio.gather(*map(one, range(count)))


@attack("-", 4)
async def window_frames(field: HostileCaller) -> None:
    """Floods of windows of a byte, priorities and frames of kinds that nobody knows."""
    floods = (
        http2.frame(http2.WINDOW, 0, 0, struct.pack(">I", 1)) * 500,
        http2.frame(PRIORITY, 0, 3, struct.pack(">IB", 0, 255)) * 500,
        http2.frame(ALTSVC, 0, 0, bytes(64)) * 200,
        http2.frame(http2.WINDOW, 0, 0, struct.pack(">I", (1 << 31) - 1)),
    )

    async def talk(connection: http2.Connection, number: int) -> None:
        token = field.brief.tokens["viewer"] if number % 2 else ""
        connection.send(connection.begin(http2.headers(WATCH, token)), http2.message(b""))
        while field.goes_on and not connection.reader.at_eof():
            connection.writer.write(floods[number // 2 % len(floods)])
            field.found.calls += 500
            await connection.writer.drain()
            await asyncio.sleep(BREATH_S)

    await connections(field, 8, talk)


@attack("-", 5)
async def settings_storm(field: HostileCaller) -> None:
    """Windows of all streams made larger and smaller, while 500 are open on each connection."""
    settings = b"".join(
        http2.frame(http2.SETTINGS, 0, 0, struct.pack(">HI", http2.INITIAL_WINDOW, size))
        for size in (0, (1 << 31) - 1) * 20
    )

    async def talk(connection: http2.Connection, number: int) -> None:
        head = http2.headers(WATCH, field.brief.tokens["viewer"])
        for _ in range(500):
            connection.begin(head)
            field.found.calls += 1
        while field.goes_on and not connection.reader.at_eof():
            connection.writer.write(settings)
            await connection.writer.drain()
            await asyncio.sleep(BREATH_S)

    await connections(field, 6, talk)


@attack("-", 5)
async def tiny_data(field: HostileCaller) -> None:
    """Requests of 60 kB that come a byte a frame, or with 255 bytes of padding for each."""
    body = http2.message(payload(60_000))

    async def talk(connection: http2.Connection, number: int) -> None:
        stream = connection.begin(http2.headers(CREATE, field.brief.tokens["editor"]))
        for at in range(0, len(body), 500):
            if not field.goes_on:
                return
            for byte in body[at : at + 500]:
                data, flags = bytes((byte,)), 0
                if number % 2:
                    data, flags = b"\xff" + data + bytes(255), 8
                connection.writer.write(http2.frame(http2.DATA, flags, stream, data))
            field.found.calls += 1
            await connection.writer.drain()

    await connections(field, 20, talk)


@attack("-", 5)
async def letter_by_letter(field: HostileCaller) -> None:
    """HTTP/2, TLS and HTTP/1 to the port for clients, a letter at a time, on 300 connections."""
    words = (
        http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0) + http2.frame(
            http2.HEADERS, http2.END_HEADERS, 1, http2.headers(LIST)
        ),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 99,
    )  # fmt: skip

    async def one(number: int) -> None:
        node = field.brief.nodes[number % len(field.brief.nodes)]
        while field.goes_on:
            with suppress(OSError):
                reader, writer = await foreign(*split(node[0]))
                field.found.calls += 1
                for letter in words[number // 3 % len(words)]:
                    if reader.at_eof() or not field.goes_on:
                        break
                    writer.write(bytes((letter,)))
                    await asyncio.sleep(0.02)
                writer.close()
            await asyncio.sleep(AGAIN_S)

    await asyncio.gather(*map(one, range(300)))


@attack("-", 5)
async def gzip_bombs(field: HostileCaller) -> None:
    """Requests of 60 kB that unpack to 60 MB, and some that only say they are packed."""
    # No more than what gRPC lets come before anybody reads.
    bomb = gzip.compress(bytes(60_000_000), 9)
    bombs = (
        COMPRESSED + http2.message(bomb)[1:],
        COMPRESSED + http2.message(gzip.compress(payload(4_000_000)))[1:],
        COMPRESSED + http2.message(b"\x1f\x8b" + bytes(5_000))[1:],
    )

    async def talk(connection: http2.Connection, number: int) -> None:
        token = field.brief.tokens["editor"] if number % 3 else ""
        head = http2.headers(IMPORT, token, [("grpc-encoding", "gzip")])
        while field.goes_on and not connection.reader.at_eof():
            stream, data = connection.begin(head), bombs[number % len(bombs)]
            field.found.calls += 1
            for at in range(0, len(data), 16_000):
                connection.send(stream, data[at : at + 16_000])
                await connection.writer.drain()
            connection.send(stream, b"", end=True)
            await asyncio.sleep(AGAIN_S)

    await connections(field, 12, talk)


@attack("-", 4)
async def odd_deadlines(field: HostileCaller) -> None:
    """Deadlines of a nanosecond, of ten thousand years, of nothing and of no number."""
    odd = ("1n", "99999999H", "0S", "-1S", "1", "9999999999999999999S", "1m", "nS")

    async def talk(connection: http2.Connection, number: int) -> None:
        roles = ("", field.brief.tokens["editor"])
        while field.goes_on and not connection.reader.at_eof():
            for word in odd:
                more = [("grpc-timeout", word)]
                for token in roles:
                    for path in (CREATE, LIST, WATCH):
                        stream = connection.begin(http2.headers(path, token, more))
                        connection.send(stream, http2.message(b""), end=True)
                        field.found.calls += 1
            await connection.writer.drain()
            await asyncio.sleep(AGAIN_S)

    await connections(field, 6, talk)


@attack("-", 5)
async def given_up_writes(field: HostileCaller) -> None:
    """An editor writes with deadlines of a few milliseconds, fifty calls at once."""

    async def call(number: int) -> None:
        request = job_pb2.CreateJobRequest(job=field.job(f"late-{number}", data=bytes(5_000)))
        await field.ask(request, seconds=0.001 * (number % 20 + 1))

    await field.many(20_000, call, at_once=50)


@attack("-", 5)
async def many_messages(field: HostileCaller) -> None:
    """Calls of one request that come with thousands of them, empty ones, and never end."""
    many = http2.message(b"") * 3_000

    async def talk(connection: http2.Connection, number: int) -> None:
        while field.goes_on and not connection.reader.at_eof():
            path = (LIST, CREATE, WATCH)[number % 3]
            stream = connection.begin(http2.headers(path, field.brief.tokens["editor"]))
            field.found.calls += 1
            for at in range(0, len(many), 15_000):
                connection.send(stream, many[at : at + 15_000])
            await connection.writer.drain()
            await asyncio.sleep(BREATH_S)

    await connections(field, 12, talk)


@attack("-", 5)
async def known_flood(field: HostileCaller) -> None:
    """A viewer's connections, on which it then floods headers without a token."""
    head = http2.headers(LIST) + b"\x90" * 300

    async def talk(connection: http2.Connection, number: int) -> None:
        first = connection.begin(http2.headers(LIST, field.brief.tokens["viewer"]))
        connection.send(first, http2.message(b""), end=True)
        await connection.writer.drain()
        await asyncio.sleep(0.2)
        while field.goes_on and not connection.reader.at_eof():
            for _ in range(10):
                connection.begin(head)
                field.found.calls += 1
            await connection.writer.drain()
            await asyncio.sleep(0)

    await connections(field, 30, talk, reads=False)


@attack("-", 4)
async def hellos_on_one_stream(field: HostileCaller) -> None:
    """Workers that say hello again and again on one stream, under one name and under others."""

    def hello(name: str, number: int) -> worker_pb2.WorkRequest:
        first = worker_pb2.WorkerHello(
            worker=f"{field.namespace}-{name}", namespaces=[field.namespace], slots=number % 9 + 1,
            handlers=["work"],
        )  # fmt: skip
        return worker_pb2.WorkRequest(hello=first, credits=1)

    async def live(name: str) -> None:
        async def again(stream: Stream) -> None:
            with suppress(Over):
                for number in range(5_000):
                    await stream.write(hello(name if number % 2 else f"{name}-{number}", number))
                    field.found.calls += 1

        while field.goes_on:
            await field.meet(hello(name, 0), again)

    async with field.tasks(live(f"h{number}") for number in range(10)):
        await field.rest()


@attack("-", 5)
async def many_alerts(field: HostileCaller) -> None:
    """An editor puts thousands of alerts that are raised at once, with webhooks to nowhere."""

    async def call(number: int) -> None:
        alert = alert_pb2.Alert(namespace=field.namespace, name=f"a-{number}")
        if number % 2:
            alert.condition.workers_below.queue = f"q-{number}"
            alert.condition.workers_below.minimum = 5
        else:
            alert.condition.dead_letters_above = 0
        alert.webhook = "http://192.0.2.1:9/hook"
        await field.ask(alert_pb2.PutAlertRequest(alert=alert))

    await field.many(5_000, call, at_once=30)


@attack("-", 6)
async def clumsy_quotas(field: HostileCaller) -> None:
    """An operator sets the quotas of a namespace with 3,000 jobs each second to one and back."""
    jobs = [field.job(f"q-{number}", cron="* * * * * *") for number in range(3_000)]
    for job in jobs:
        job.spec.timing.end_time.GetCurrentTime()
        job.spec.timing.end_time.seconds += int(field.brief.seconds)
    await field.load(jobs)
    changed = namespace_pb2.UpdateNamespaceRequest()
    namespace, quota = changed.namespace, changed.namespace.quota
    namespace.name = field.namespace

    async def call(number: int) -> None:
        most = (1, 1_000_000)[number % 2]
        quota.jobs = quota.live_runs = quota.leases = quota.payload_bytes = most
        namespace.weight = number % 1_000 + 1
        await field.ask(changed, role="admin")
        gone = namespace_pb2.DeleteNamespaceRequest(namespace=field.namespace)
        if (await field.ask(gone, role="admin")).ok:
            field.wrong("a namespace with jobs was deleted")

    await field.many(2_000, call, at_once=5)


@attack("-", 4)
async def reflections(field: HostileCaller) -> None:
    """Streams of questions for the contracts, by strangers and by a viewer."""
    ask = http2.message(b"\x22\x1araftsched.v1.JobService/..") * 200

    async def talk(connection: http2.Connection, number: int) -> None:
        token = field.brief.tokens["viewer"] if number % 2 else ""
        while field.goes_on and not connection.reader.at_eof():
            connection.send(connection.begin(http2.headers(REFLECT, token)), ask[:15_000])
            field.found.calls += 200
            await connection.writer.drain()
            await asyncio.sleep(BREATH_S)

    await connections(field, 8, talk)


@attack("-", 4)
async def pipelined_probes(field: HostileCaller) -> None:
    """Thousands of requests in a row to the port for machines, long paths, and long headers."""
    words = (
        b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 500,
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /readyz?" + b"verbose&" * 5_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"x: y\r\n" * 20_000 + b"\r\n",
        b"POST /metrics HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n" + bytes(100_000),
    )

    async def one(number: int) -> None:
        node = field.brief.nodes[number % len(field.brief.nodes)]
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                reader, writer = await foreign(*split(node[2]))
                writer.write(words[number % len(words)])
                await writer.drain()
                if number % 2:
                    while await reader.read(1 << 16):
                        pass
                writer.close()
        field.found.calls += 1
        if number % 50 == 0:
            await probes_answer(field)

    await field.many(5_000, one, at_once=20)


@attack("-", 6)
async def frames_that_never_end(field: HostileCaller) -> None:
    """Workers' frames of 3 MiB that come but for the last bytes, on 200 streams."""
    token, size = field.brief.tokens["worker"], 3 << 20

    async def talk(connection: http2.Connection, number: int) -> None:
        windows: dict[int, int] = {}
        left = dict[int, int]()
        for place in range(20):
            hello = worker_pb2.WorkerHello(
                worker=f"{field.namespace}-{number}-{place}", namespaces=[field.namespace],
                handlers=["work"], slots=1,
            )  # fmt: skip
            stream = connection.begin(http2.headers(WORK, token))
            first = worker_pb2.WorkRequest(hello=hello).SerializeToString()
            begun = http2.message(first) + http2.message(b"", length=size)
            connection.send(stream, begun)
            windows[stream], left[stream] = http2.FIRST_WINDOW - len(begun), size - 100
            windows[0] = windows.get(0, http2.FIRST_WINDOW) - len(begun)
            field.found.calls += 1
        async with field.tasks([connection.allowed(windows)]):
            while field.goes_on and not connection.reader.at_eof():
                for stream, rest in left.items():
                    piece = min(rest, windows[stream], windows[0], 16_000)
                    if piece > 0:
                        connection.send(stream, bytes(piece))
                        left[stream] -= piece
                        windows[stream] -= piece
                        windows[0] -= piece
                await connection.writer.drain()
                await asyncio.sleep(BREATH_S)
        sent = sum(size - rest for rest in left.values()) / (1 << 20)
        field.found.figures["sent_mb"] = round(field.found.figures.get("sent_mb", 0) + sent)

    await connections(field, 10, talk, reads=False)
