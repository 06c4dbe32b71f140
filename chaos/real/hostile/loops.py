"""Jobs and workers that keep each other busy for ever, and much that ends in one instant."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from ....proto.v1 import (
    cluster_pb2,
    dead_letter_pb2,
    event_pb2,
    job_pb2,
    queue_pb2,
    run_pb2,
    worker_pb2,
)
from . import http2
from .attack import attack
from .field import CALL_S, LATER, HostileCaller, Stream
from .hand import HostileWorker, fail, succeed, working
from .sockets import PROBE_S, split
from .times import ends_soon

WATCH = "/raftsched.v1.EventService/WatchEvents"


@attack("-", 4)
async def runs_given_back(field: HostileCaller) -> None:
    """500 runs that a worker gives back at once, without a delay, again and again."""

    def give_back(_: worker_pb2.Lease, result: worker_pb2.Result) -> None:
        result.given_back.checkpoint = bytes(10_000)

    await field.load([field.job("back")])
    await field.many(500, lambda _: field.trigger("back"), at_once=20)
    async with working(field, give_back) as hands:
        await field.rest()
        field.found.figures["leases"] = hands[0].taken
    await field.ask(job_pb2.DeleteJobRequest(namespace=field.namespace, job="back"))


@attack("-", 4)
async def runs_that_fail_at_once(field: HostileCaller) -> None:
    """500 jobs with a thousand attempts a millisecond apart, and a worker that fails them all."""

    def end(_: worker_pb2.Lease, result: worker_pb2.Result) -> None:
        result.failure.error.message = "x" * 4_000

    jobs = [field.job(f"retry-{n}") for n in range(500)]
    for job in jobs:
        job.spec.retry.max_attempts, job.spec.retry.jitter_percent = 1_000, 0
        job.spec.retry.first.FromMilliseconds(1)
        job.spec.retry.cap.FromMilliseconds(1)
        job.spec.schedules.add().once.time.GetCurrentTime()
    await field.load(jobs)
    async with working(field, end) as hands:
        await field.rest()
        field.found.figures["leases"] = hands[0].taken
    field.until += 2
    space = field.namespace
    await field.many(
        500, lambda n: field.ask(job_pb2.DeleteJobRequest(namespace=space, job=f"retry-{n}")),
        at_once=20,
    )  # fmt: skip


@attack("-", 4)
async def runs_after_their_end(field: HostileCaller) -> None:
    """300 jobs that are due again at once when they have ended."""
    jobs = [field.job(f"again-{n}") for n in range(300)]
    for job in jobs:
        job.spec.schedules.add().after_end.delay.FromMilliseconds(1)
        ends_soon(job)
    refused = await field.load(jobs)
    field.found.figures["refused"] = len(refused)
    async with working(field) as hands:
        await field.rest()
        field.found.figures["leases"] = hands[0].taken


@attack("-", 6)
async def leases_that_lapse_at_once(field: HostileCaller) -> None:
    """A worker takes 5,000 leases with 20 kB each and is gone; all lapse at one instant."""
    await field.load([field.job("lapsed", data=bytes(20_000))])
    await field.many(5_000, lambda _: field.trigger("lapsed"), at_once=30)
    hand = HostileWorker(field, "greedy", slots=10_000)

    async def take(stream: Stream) -> None:
        async with asyncio.timeout(3.0):
            await stream.read_on()

    while not await field.meet(hand.hello(), take) and field.goes_on:
        pass
    # Silent for three heartbeats of a second, its leases go to others.
    await asyncio.sleep(4.0)


@attack("-", 5)
async def timeouts_at_once(field: HostileCaller) -> None:
    """3,000 waiting runs whose time to be leased is over at one instant."""
    job = field.job("timed")
    job.spec.timeouts.queue.FromSeconds(4)
    await field.load([job])
    await field.many(3_000, lambda _: field.trigger("timed"), at_once=30)
    await asyncio.sleep(3.0)


@attack("-", 6)
async def jobs_that_delete_themselves(field: HostileCaller) -> None:
    """10,000 jobs due at one instant, which delete themselves and their history a second later."""
    due = int(time.time()) + 3
    jobs = []
    for number in range(10_000):
        job = field.job(f"gone-{number}")
        job.spec.schedules.add().once.time.FromSeconds(due)
        job.spec.keep_history.FromSeconds(1)
        job.spec.delete_after.FromSeconds(1)
        jobs.append(job)
    refused = await field.load(jobs)
    if refused:
        field.found.figures["refused"] = len(refused)
    async with working(field, count=2):
        await asyncio.sleep(max(0.0, due + 4 - time.time()))


@attack("-", 5)
async def herd_of_a_tenant(field: HostileCaller) -> None:
    """20,000 jobs of one tenant are due at one instant, without a worker."""
    due = int(time.time()) + 4
    jobs = []
    for number in range(20_000):
        job = field.job(f"h-{number}")
        job.spec.schedules.add().once.time.FromSeconds(due)
        jobs.append(job)
    await field.load(jobs)
    await asyncio.sleep(max(0.0, due + 2 - time.time()))


@attack("-", 5)
async def dead_letters(field: HostileCaller) -> None:
    """2,000 dead letters are requeued, fail, and are requeued again in calls for all of them."""
    await field.load([field.job("dead")])
    space = field.namespace
    async with working(field, fail):
        await field.many(2_000, lambda _: field.trigger("dead"), at_once=30)
        while field.goes_on:
            await field.ask(dead_letter_pb2.RequeueDeadLettersRequest(namespace=space))
            await asyncio.sleep(0.1)
    await field.ask(dead_letter_pb2.PurgeDeadLettersRequest(namespace=space))


@attack("-", 5)
async def stuck_flows(field: HostileCaller) -> None:
    """500 flows that are stuck after a millisecond, and more begun on top."""
    jobs = []
    for number in range(50):
        jobs.append(field.job(f"a-{number}"))
        jobs.append(field.job(f"b-{number}", after=[f"a-{number}"]))
        join = field.job(f"c-{number}", after=[f"a-{number}", f"b-{number}"])
        join.spec.upstream.stuck_after.FromMilliseconds(1)
        jobs.append(join)
    await field.load(jobs)
    for number in range(50):
        # Nothing brings it any more, and the join waits for it.
        request = job_pb2.UpdateJobRequest(job=field.job(f"b-{number}"))
        request.update_mask.paths.append("spec.upstream")
        await field.need(request, job_pb2.Job)
    async with working(field):
        await field.many(3_000, lambda n: field.trigger(f"a-{n % 50}"), at_once=20)


@attack("-", 5)
async def replaying_watchers(field: HostileCaller) -> None:
    """300 watchers and as many lists begin at the first change there is, and match nothing."""
    status = await field.need(
        cluster_pb2.GetClusterStatusRequest(), cluster_pb2.ClusterStatus, role="admin"
    )
    oldest = status.oldest_revision + 100
    request = event_pb2.WatchEventsRequest(namespace=field.namespace, filter="job=nothing-at-all")
    request.after.change = oldest
    head = http2.headers(WATCH, field.brief.tokens["viewer"])
    connections = []
    for number in range(6):
        with suppress(OSError):
            address = field.brief.nodes[number % len(field.brief.nodes)][0]
            connection = await http2.Connection.open(address)
            connections.append(connection)
            for _ in range(50):
                body = http2.message(request.SerializeToString())
                connection.send(connection.begin(head), body, end=True)
                field.found.calls += 1
            await connection.writer.drain()

    async def one(number: int) -> None:
        asked = event_pb2.ListEventsRequest(namespace=field.namespace, filter="job=nothing-at-all")
        asked.after.change = oldest
        await field.ask(asked, role="viewer", node=number % len(field.fronts))

    async with field.tasks(connection.swallow() for connection in connections):
        await field.many(300, one, at_once=20)
    for connection in connections:
        connection.close()


@attack("-", 5)
async def many_queues(field: HostileCaller) -> None:
    """5,000 queues with settings and a run in each; then the port for metrics is read."""
    space = field.namespace

    async def one(number: int) -> None:
        request = queue_pb2.UpdateQueueRequest()
        request.queue.namespace, request.queue.name = space, f"q-{number}"
        await field.ask(request)
        job = field.job(f"in-{number}")
        job.spec.queue = f"q-{number}"
        await field.ask(job_pb2.CreateJobRequest(job=job))
        await field.trigger(job.name)

    await field.many(5_000, one, at_once=20)
    for _, _, http in field.brief.nodes:
        began, size = time.monotonic(), 0
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(PROBE_S):
                reader, writer = await asyncio.open_connection(*split(http))
                writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
                while data := await reader.read(1 << 16):
                    size += len(data)
                writer.close()
        field.found.figures["metrics_bytes"] = size
        field.found.figures["metrics_s"] = round(time.monotonic() - began, 2)


@attack("-", 2)
async def stolen_leases(field: HostileCaller) -> None:
    """A worker of one tenant reports, extends and says hello for leases and workers of others."""
    request = run_pb2.ListRunsRequest(namespace="victim", page_size=1_000)
    request.filter = "state=SUCCEEDED"
    runs = (await field.need(request, run_pb2.ListRunsResponse, role="admin")).runs
    taken = await field.need(
        worker_pb2.ListWorkersRequest(namespace="victim"), worker_pb2.ListWorkersResponse,
        role="admin",
    )  # fmt: skip
    space = field.namespace
    for run in runs[:20]:
        for token in range(run.token - 2, run.token + 3):
            report = worker_pb2.ReportResultsRequest(worker=f"{space}-x")
            report.results.add(run=run.id, token=token).success.SetInParent()
            extend = worker_pb2.ExtendRequest(run=run.id, token=token)
            complete = worker_pb2.CompleteRequest(run=run.id, token=token)
            for asked in (report, extend, complete):
                reply = await field.ask(asked, role="worker")
                if reply.code == "OK" and not isinstance(asked, worker_pb2.ReportResultsRequest):
                    field.wrong(f"{type(asked).__name__} for a run of another tenant was taken")
    for worker in taken.workers:
        for role in ("worker", "editor"):
            asked_drain = worker_pb2.DrainWorkerRequest(worker=worker.worker)
            if (await field.ask(asked_drain, role=role)).ok:
                field.wrong(f"{role} of {space} drained the worker {worker.worker} of another")
        hello = worker_pb2.WorkerHello(worker=worker.worker, namespaces=[space], slots=1)
        lease = worker_pb2.LeaseRequest(hello=hello, maximum=1)
        reply = await field.ask(lease, role="worker")
        if not reply.ok and reply.code not in LATER:
            field.wrong(f"a worker of {space} is kept out by an id that is taken: {reply.words}")
    hello = worker_pb2.WorkerHello(worker=f"{space}-y", namespaces=[space])
    for run in runs[:200]:
        hello.held.add(run=run.id, token=run.token)
    field.found.figures["listed"] = len(hello.held)

    async def look(stream: Stream) -> None:
        seen = 0
        while seen < len(hello.held):
            for stop in (await stream.read()).stops:
                seen += 1
                if "the run is unknown" not in stop.message:
                    field.wrong(f"a worker of {space} hears: {stop.message}")
        field.found.figures["answered"] = seen

    first = worker_pb2.WorkRequest(hello=hello)
    await field.wait_until(lambda: field.meet(first, look), CALL_S, "no leader heard the hello")


@attack("-", 3)
async def request_ids_of_others(field: HostileCaller) -> None:
    """Two tenants use the same request ids; neither is refused for what the other did."""
    for number in range(50):
        word = f"shared-{field.brief.seed}-{number}"
        mine = job_pb2.TriggerJobRequest(namespace=field.namespace, job="a", request_id=word)
        if number == 0:
            await field.load([field.job("a")])
        await field.ask(mine)
        theirs = job_pb2.CreateJobRequest(request_id=word)
        theirs.job.namespace, theirs.job.name = "victim", f"id-{field.brief.seed}-{number}"
        theirs.job.spec.action.handler = "nobody"
        reply = await field.ask(theirs, role="admin")
        # A leader that was killed meanwhile has refused nothing.
        if not reply.ok and reply.code not in LATER:
            field.wrong(f"a tenant's request id spoils another's call: {reply.words[:150]}")
            return


@attack("-", 5)
async def drain_and_credits(field: HostileCaller) -> None:
    """Workers that drain and do not, ask for two billion leases, and beat thousands of times."""
    await field.load([field.job("thin")])
    await field.many(500, lambda _: field.trigger("thin"), at_once=20)

    async def say(stream: Stream) -> None:
        for beat in range(5_000):
            if not field.goes_on:
                break
            frame = worker_pb2.WorkRequest(
                credits=(2**31 - 1, 0, -1)[beat % 3], drain=beat % 7 == 0, beat=beat
            )
            await stream.write(frame)
            if beat % 50 == 0:
                await asyncio.sleep(0)

    async def one(number: int) -> None:
        while field.goes_on:
            await field.meet(HostileWorker(field, f"odd-{number}", succeed).hello(), say)
            await asyncio.sleep(0.1)

    async with field.tasks(one(number) for number in range(6)):
        await field.rest()
