"""Workers that are clumsy or malicious: too many kinds, too many frames, none at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from ....proto.v1 import access_pb2, namespace_pb2, options_pb2, run_pb2, worker_pb2
from . import http2
from .attack import attack
from .field import HostileCaller, Stream
from .hand import HostileWorker, working

WORK = "/raftsched.v1.WorkerService/Work"
LANES = 10_000
SILENT = 3_000
STREAMS_OF_ONE = 500  # On one connection.


@attack("P11, C12", 6)
async def many_lanes(field: HostileCaller) -> None:
    """10,000 jobs that each ask for a worker label of their own, with a run each; one worker."""
    jobs = []
    for number in range(LANES):
        job = field.job(f"lane-{number}")
        job.spec.worker_labels["host"] = f"h{number}"
        job.spec.schedules.add().once.time.GetCurrentTime()
        jobs.append(job)
    await field.load(jobs)
    async with working(field):
        await field.rest()


@attack("S8", 5)
async def clumsy_hellos(field: HostileCaller) -> None:
    """A hundred workers with 32 labels, 32 queues and 1,000 handlers each, some of them twice."""

    def hello(number: int) -> worker_pb2.WorkRequest:
        hello = worker_pb2.WorkerHello(worker=f"{field.namespace}-{number % 90}", slots=10_000)
        hello.namespaces.append(field.namespace)
        hello.queues.extend(f"q-{number}-{n}" for n in range(32))
        hello.handlers.extend(f"h-{number}-{n}" for n in range(1_000))
        for n in range(32):
            hello.labels[f"label-{n}"] = f"value-{number}-{n}"
        return worker_pb2.WorkRequest(hello=hello, credits=10_000)

    async with field.tasks(keep(field, hello, number) for number in range(100)):
        await field.rest()


async def keep(
    field: HostileCaller, first: Callable[[int], worker_pb2.WorkRequest], number: int,
    more: Callable[[int], worker_pb2.WorkRequest] | None = None, role: str = "worker",
) -> None:  # fmt: skip
    """Hold a stream open, and say more on it as often as it takes it."""
    count = 0

    async def say(stream: Stream) -> None:
        nonlocal count
        reading = asyncio.ensure_future(stream.read_on())
        # It may end as the writing does, for the same reason.
        reading.add_done_callback(lambda read: read.cancelled() or read.exception())
        try:
            while field.goes_on and more is not None and not reading.done():
                count += 1
                await stream.write(more(count))
                await asyncio.sleep(0)
            await reading
        finally:
            reading.cancel()

    while field.goes_on:
        await field.meet(first(number), say, role=role)
        await asyncio.sleep(0.2)


@attack("S3", 5)
async def silent_streams(field: HostileCaller) -> None:
    """3,000 Work streams that never say hello, half of them without a token."""
    connections = []
    for number in range(SILENT // STREAMS_OF_ONE):
        with suppress(OSError):
            address = field.brief.nodes[number % len(field.brief.nodes)][0]
            connection = await http2.Connection.open(address)
            connections.append(connection)
            token = field.brief.tokens["worker"] if number % 2 else ""
            for _ in range(STREAMS_OF_ONE):
                connection.begin(http2.headers(WORK, token))
                field.found.calls += 1
            await connection.writer.drain()
    async with field.tasks(connection.swallow() for connection in connections):
        await field.rest()
    for connection in connections:
        connection.close()


@attack("S3", 4)
async def half_messages(field: HostileCaller) -> None:
    """1,000 calls whose message is announced with 4 MiB and ends after a few bytes."""
    connections = []
    for number in range(10):
        with suppress(OSError):
            address = field.brief.nodes[number % len(field.brief.nodes)][0]
            connection = await http2.Connection.open(address)
            connections.append(connection)
            for place in range(100):
                path = WORK if place % 2 else "/raftsched.v1.JobService/ImportJobs"
                stream = connection.begin(http2.headers(path, field.brief.tokens["worker"]))
                connection.send(stream, http2.message(b"\x0a\x05", length=(4 << 20) - 10))
                field.found.calls += 1
            with suppress(OSError):
                await connection.writer.drain()
    async with field.tasks(connection.swallow() for connection in connections):
        await field.rest()
    for connection in connections:
        connection.close()


def greeting(field: HostileCaller, held: int = 0) -> Callable[[int], worker_pb2.WorkRequest]:
    def first(number: int) -> worker_pb2.WorkRequest:
        hello = worker_pb2.WorkerHello(
            worker=f"{field.namespace}-{number}", namespaces=[field.namespace], slots=10,
            handlers=["work"],
        )  # fmt: skip
        for token in range(held):
            # The ids of half of them are such as runs have, so that they are looked for.
            run = f"work.{token}.{1_700_000_000_000 + token}" if token % 2 else f"AAAA{token:06d}"
            hello.held.add(run=run, token=token + 1)
        return worker_pb2.WorkRequest(hello=hello)

    return first


@attack("-", 4)
async def unknown_results(field: HostileCaller) -> None:
    """Workers report 200 results a frame for leases that nobody has, as fast as they can."""

    def frame(turn: int) -> worker_pb2.WorkRequest:
        frame = worker_pb2.WorkRequest()
        for number in range(200):
            result = frame.results.add(run=f"AAAAAAAAAAAAAAAAAAAA{number:06d}", token=turn + number)
            result.success.result.data = b"x" * 100
        return frame

    async with field.tasks(keep(field, greeting(field), n, frame) for n in range(4)):
        await field.rest()


@attack("-", 5)
async def runs_of_others(field: HostileCaller) -> None:
    """A tenant's workers speak of another tenant's runs, a thousand results, reports and extensions
    in a frame, as fast as they can."""
    await field.load([field.job("held")])
    run = run_pb2.Run.FromString((await field.trigger("held")).data).id
    secret = await other_tenant(field)

    def hello(number: int) -> worker_pb2.WorkRequest:
        frame = worker_pb2.WorkRequest()
        frame.hello.worker = f"{field.namespace}-{number}"
        frame.hello.namespaces.append(f"{field.namespace}-b")
        return frame

    def frame(turn: int) -> worker_pb2.WorkRequest:
        frame = worker_pb2.WorkRequest()
        for token in range(turn, turn + 1_000):
            frame.results.add(run=run, token=token).success.SetInParent()
            frame.progress.add(run=run, token=token)
            frame.extensions.add(run=run, token=token).by.FromSeconds(60)
        return frame

    async with field.tasks(keep(field, hello, n, frame, secret) for n in range(4)):
        await field.rest()


@attack("S12", 5)
async def large_results(field: HostileCaller) -> None:
    """Workers report results of 60 kB, 40 in a frame, for leases that nobody has."""
    data = bytes(60_000)

    def frame(turn: int) -> worker_pb2.WorkRequest:
        frame = worker_pb2.WorkRequest()
        for number in range(40):
            result = frame.results.add(run="AAAAAAAAAAAAAAAAAAAAAAAAAA", token=turn + number + 1)
            result.success.result.data = data
        return frame

    async with field.tasks(keep(field, greeting(field), n, frame) for n in range(4)):
        await field.rest()


@attack("S12", 5)
async def large_failures(field: HostileCaller) -> None:
    """2,000 runs fail for good with traces and log tails as long as they may be."""

    def end(_: worker_pb2.Lease, result: worker_pb2.Result) -> None:
        error = result.failure.error
        error.kind, error.message, error.trace = "x" * 128, "m" * 4_096, "t" * 16_384
        result.failure.fatal = True
        result.log_tail = b"l" * 16_384

    await field.load([field.job("fails", data=bytes(60_000))])
    async with working(field, end):
        await field.many(2_000, lambda _: field.trigger("fails"), at_once=20)
        await field.rest()


@attack("-", 4)
async def progress_storm(field: HostileCaller) -> None:
    """Workers say how far they are, with checkpoints of 16 kB, in a tight loop."""
    await field.load([field.job("slow")])
    await field.many(20, lambda _: field.trigger("slow"))
    answer = await field.need(
        worker_pb2.LeaseRequest(
            hello=worker_pb2.WorkerHello(
                worker=f"{field.namespace}-0", namespaces=[field.namespace], slots=20,
                handlers=["work"],
            ),
            maximum=20,
        ),
        worker_pb2.LeaseResponse, role="worker",
    )  # fmt: skip
    leases = list(answer.leases)

    def frame(turn: int) -> worker_pb2.WorkRequest:
        frame = worker_pb2.WorkRequest()
        for lease in leases:
            report = frame.progress.add(run=lease.run, token=lease.token, checkpoint=bytes(16_000))
            report.progress.done, report.progress.total = turn, 1 << 40
            report.log_tail = b"x" * 16_000
        return frame

    async with field.tasks(keep(field, greeting(field), n, frame) for n in (0, 0, 1)):
        await field.rest()


@attack("-", 4)
async def held_leases(field: HostileCaller) -> None:
    """Hellos that claim 10,000 leases each, again and again."""
    first = greeting(field, held=10_000)
    frames = {number: first(number) for number in range(4)}

    async def again(number: int) -> None:
        while field.goes_on:
            await field.meet(frames[number], seconds=1.0)

    async with field.tasks(again(number) for number in range(4)):
        await field.rest()


@attack("-", 4)
async def long_polls(field: HostileCaller) -> None:
    """2,000 waits for leases and for runs, which come and go."""
    await field.load([field.job("waited")])
    reply = await field.trigger("waited")
    run = run_pb2.Run.FromString(reply.data).id if reply.ok else "AAAAAAAAAAAAAAAAAAAAAAAAAA"

    async def one(number: int) -> None:
        if number % 2:
            asked = run_pb2.WaitRunRequest(namespace=field.namespace, run=run)
            asked.timeout.FromSeconds(30)
            await field.ask(asked, role="viewer", seconds=2.0)
        else:
            hello = worker_pb2.WorkerHello(
                worker=f"{field.namespace}-{number}", namespaces=[field.namespace], slots=1,
                handlers=["nothing"],
            )  # fmt: skip
            lease = worker_pb2.LeaseRequest(hello=hello, maximum=1)
            lease.wait.FromSeconds(30)
            await field.ask(lease, role="worker", seconds=2.0)

    await field.many(4_000, one, at_once=2_000)


@attack("-", 4)
async def sessions_that_come_and_go(field: HostileCaller) -> None:
    """Workers say hello and are gone, hundreds of times a second, with leases in their hands."""
    await field.load([field.job("lost")])
    await field.many(200, lambda _: field.trigger("lost"), at_once=20)

    async def again(number: int) -> None:
        turn = 0
        while field.goes_on:
            turn += 1
            hand = HostileWorker(field, f"{number}-{turn % 500}", slots=3)
            await field.meet(hand.hello(), seconds=0.5)

    async with field.tasks(again(number) for number in range(20)):
        await field.rest()


@attack("-", 4)
async def ids_of_others(field: HostileCaller) -> None:
    """Workers say hello under the ids of other tenants' workers, and keep ids with which others
    come later."""
    ids = ["by-0", *(f"w{group}-{number}" for group in range(3) for number in range(10)),
           *(f"{field.namespace}-{number}" for number in range(20))]  # fmt: skip
    secret = await other_tenant(field)
    came: set[str] = set()
    async with field.tasks(squat(field, worker) for worker in ids):
        while field.goes_on and len(came) < len(ids):
            for worker in ids:
                hello = worker_pb2.WorkerHello(worker=worker, namespaces=[f"{field.namespace}-b"])
                if await field.meet(worker_pb2.WorkRequest(hello=hello), role=secret):
                    came.add(worker)
        await field.rest()
    if kept_out := sorted(set(ids) - came):
        field.wrong(f"{len(kept_out)} workers of another tenant never came, first {kept_out[0]}")


async def other_tenant(field: HostileCaller) -> str:
    """Another tenant; the secret of its workers."""
    space = f"{field.namespace}-b"
    made = namespace_pb2.CreateNamespaceRequest(namespace=namespace_pb2.Namespace(name=space))
    await field.need(made, namespace_pb2.Namespace, role="admin")
    token = access_pb2.AccessToken(name=space, role=options_pb2.ROLE_WORKER, namespace=space)
    asked = access_pb2.CreateAccessTokenRequest(access_token=token, request_id=space)
    answer = access_pb2.CreateAccessTokenResponse
    return (await field.need(asked, answer, role="admin")).secret


async def squat(field: HostileCaller, worker: str) -> None:
    """Hold a stream open under an id."""
    hello = worker_pb2.WorkerHello(worker=worker, namespaces=[field.namespace])
    while field.goes_on:
        await field.meet(worker_pb2.WorkRequest(hello=hello), Stream.read_on)
