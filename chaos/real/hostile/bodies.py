"""Requests that are large, empty, nested or garbage, with and without a token."""

from __future__ import annotations

import asyncio

from ....proto.v1 import calendar_pb2, cluster_pb2, event_pb2, job_pb2, run_pb2
from .attack import attack
from .field import MESSAGE_MAX, HostileCaller

CREATE = "/raftsched.v1.JobService/CreateJob"
IMPORT = "/raftsched.v1.JobService/ImportJobs"
LIST_RUNS = "/raftsched.v1.RunService/ListRuns"
NOBODY = ""
BIG = 256 << 10
FULL = MESSAGE_MAX - 1_024
EMPTY_JOB = b"\x0a\x00"


def payload(size: int) -> bytes:
    """A CreateJob with a payload of this size."""
    job = job_pb2.Job(name="big")
    job.spec.payload.data = bytes(size)
    return job_pb2.CreateJobRequest(job=job).SerializeToString()


@attack("P1", 4)
async def refused_calls(field: HostileCaller) -> None:
    """300 calls of 256 KiB without a token, one after the other."""
    body = payload(BIG)
    for _ in range(300):
        if not field.goes_on:
            return
        await field.raw(CREATE, body, role=NOBODY)


@attack("P4", 4)
async def many_refused(field: HostileCaller) -> None:
    """Ten callers without a token, with 4 MiB each, again and again, at all nodes."""
    body = payload(FULL)
    channels = [field.new_channel(number % len(field.fronts)) for number in range(10)]

    async def call(number: int) -> None:
        at = number % len(channels)
        await field.raw(CREATE, body, role=NOBODY, node=at % len(field.fronts),
                        channel=channels[at])  # fmt: skip

    await field.many(200, call)
    for channel in channels:
        await channel.close()


@attack("S2", 4)
async def empty_jobs(field: HostileCaller) -> None:
    """Imports that are nothing but 130,000 or 2,000,000 empty jobs, ten at once, with a token."""

    async def call(number: int) -> None:
        size = FULL if number % 4 == 0 else BIG
        role = "editor" if number % 2 else NOBODY
        reply = await field.raw(IMPORT, EMPTY_JOB * (size // 2), role=role)
        if reply.ok:
            field.wrong("an import of more jobs than its limit was taken")

    await field.many(60, call)


@attack("S2", 3)
async def nested_bodies(field: HostileCaller) -> None:
    """Messages nested a hundred thousand deep, and fields that no contract knows."""
    deep = b""
    for _ in range(2_000):
        size, head = len(deep), bytearray(b"\x0a")
        while size >= 128:
            head.append(size % 128 + 128)
            size //= 128
        head.append(size)
        deep = bytes(head) + deep
    groups = b"\x0b" * 100_000 + b"\x0c" * 100_000
    unknown = b"\xf8\xff\xff\xff\x0f\x01" * 40_000
    bodies = (deep, groups, unknown, b"\xff" * BIG, b"\x0a\xff\xff\xff\x7f")

    async def call(number: int) -> None:
        await field.raw((CREATE, IMPORT, LIST_RUNS)[number % 3], bodies[number % len(bodies)])

    await field.many(300, call)


@attack("-", 3)
async def huge_metadata(field: HostileCaller) -> None:
    """Tokens of 4 KiB, metadata near gRPC's limit, and bytes that are no text."""

    async def call(number: int) -> None:
        if number % 3 == 0:
            await field.raw(CREATE, b"", role="x" * 4_000)
        elif number % 3 == 1:
            await field.raw(CREATE, b"", metadata=[(f"x-{n}", "y" * 200) for n in range(30)])
        else:
            await field.raw(CREATE, b"", metadata=[("raftsched-forwarded", "n1"), ("te", "x")])

    await field.many(1_500, call)


@attack("-", 3)
async def unknown_methods(field: HostileCaller) -> None:
    """Calls of methods that are not there, and of streams as if they were none."""
    paths = ("/raftsched.v1.JobService/Nothing", "/", "/raftsched.v1.WorkerService/Work",
             "/raftsched.v1.EventService/WatchEvents", "/raftsched.v1.ClusterService/Backup",
             "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")  # fmt: skip

    async def call(number: int) -> None:
        role = "viewer" if number % 2 else NOBODY
        await field.raw(paths[number % len(paths)], b"\xff" * 100, role=role, seconds=0.5)

    await field.many(1_000, call, at_once=20)


@attack("-", 4)
async def evil_filters(field: HostileCaller) -> None:
    """Filters of many words and stars, over all of a namespace."""
    names = [f"{'a' * 60}-{number}" for number in range(2_000)]
    await field.load(field.job(name) for name in names)
    filters = (
        "job=" + "*a" * 40 + "b", " OR ".join(["job=a*"] * 2_000), "(" * 5_000 + "job=a",
        "NOT " * 5_000 + "job=a", 'job="' + "\\" * 20_000 + '"', "job=" + "a" * 100_000,
        " AND ".join(f"job=*{n}*" for n in range(500)),
    )  # fmt: skip

    async def call(number: int) -> None:
        wanted = filters[number % len(filters)]
        request: job_pb2.ListJobsRequest | run_pb2.ListRunsRequest
        kind = (job_pb2.ListJobsRequest, run_pb2.ListRunsRequest)[number % 2]
        request = kind(namespace=field.namespace, filter=wanted, page_size=1_000)
        reply = await field.ask(request, role="viewer")
        if reply.took > 5:
            field.wrong(f"the filter {wanted[:40]} took {reply.took:.1f} s")

    await field.many(200, call)


@attack("-", 3)
async def evil_pages(field: HostileCaller) -> None:
    """Page tokens that are garbage, sizes below zero, revisions from the future."""

    async def call(number: int) -> None:
        token = ("x" * 10_000, "////", "\0", "AAAA" * 50, "💥" * 200)[number % 5]
        if number % 2:
            request = job_pb2.ListJobsRequest(
                namespace=field.namespace, page_token=token, page_size=-number
            )
            request.read.min_revision.change = 1 << 62
            await field.ask(request, role="viewer", seconds=0.3)
        else:
            events = event_pb2.ListEventsRequest(namespace=field.namespace, page_size=1 << 30)
            events.after.change = -(1 << 62) if number % 4 else 1 << 62
            await field.ask(events, role="viewer", seconds=0.3)

    await field.many(600, call)


@attack("-", 3)
async def odd_values(field: HostileCaller) -> None:
    """Instants, durations and numbers at the ends of their types, in all fields of a job."""
    most, least = (1 << 63) - 1, -(1 << 63)

    async def call(number: int) -> None:
        job = field.job(f"odd-{number}")
        value = (most, least, -1, 0, 1 << 40)[number % 5]
        spec = job.spec
        schedule = spec.schedules.add()
        if number % 3 == 0:
            schedule.interval.every.seconds = value
            schedule.interval.anchor.seconds = value
        elif number % 3 == 1:
            schedule.once.time.seconds = value
            schedule.once.time.nanos = -5
        else:
            schedule.cron.expression = ("*/0 * * * *", "99 * * * *", "0 0 30 2 *", "@" * 1_000,
                                        "0-59/1,0-59/1 " * 40)[number // 3 % 5]  # fmt: skip
        spec.timing.zone = ("", "../../etc/passwd", "UTC\0", "Europe/" + "x" * 5_000)[number % 4]
        spec.timing.end_time.seconds = value
        spec.timing.jitter.seconds = value
        spec.timing.max_runs = value
        spec.misfire.grace.seconds = value
        spec.misfire.maximum = -1
        spec.retry.first.seconds = value
        spec.keep_history.seconds = value
        spec.timeouts.run.seconds = value
        if number % 2:
            spec.ClearField("timing")
        await field.ask(job_pb2.CreateJobRequest(job=job))

    await field.many(600, call)


@attack("-", 4)
async def endless_schedules(field: HostileCaller) -> None:
    """Previews of schedules that hardly ever or never fire, beside calendars that leave out all."""
    calendar = calendar_pb2.Calendar(namespace=field.namespace, name="all")
    for day in range(7):
        calendar.rules.add().weekday = day + 1
    await field.ask(calendar_pb2.CreateCalendarRequest(calendar=calendar))

    async def call(number: int) -> None:
        request = job_pb2.PreviewScheduleRequest(namespace=field.namespace, count=1_000)
        expressions = ("* * * * * *", "0 0 29 2 MON", "0 0 29 2 *", "59 59 23 31 12 *")
        for _ in range(16):
            request.schedules.add().cron.expression = expressions[number % len(expressions)]
        if number % 2:
            request.timing.exclude_calendars.append("all")
        reply = await field.ask(request, role="viewer")
        if reply.took > 5:
            field.wrong(f"a preview of {expressions[number % 4]} took {reply.took:.1f} s")
        job = field.job(f"never-{number}", cron="* * * * * *")
        job.spec.timing.exclude_calendars.append("all")
        job.spec.timing.end_time.GetCurrentTime()
        job.spec.timing.end_time.seconds += 20
        await field.ask(job_pb2.CreateJobRequest(job=job))

    await field.many(200, call)


@attack("-", 3)
async def admin_calls(field: HostileCaller) -> None:
    """A tenant asks for what only an admin of the cluster may do."""
    asked = (
        cluster_pb2.RemoveNodeRequest(node="n1"), cluster_pb2.TakeSnapshotRequest(),
        cluster_pb2.TransferLeadershipRequest(), cluster_pb2.DrainNodeRequest(node="n1"),
        cluster_pb2.VerifyStateRequest(repair=True), cluster_pb2.AddNodeRequest(name="n9"),
    )  # fmt: skip

    async def call(number: int) -> None:
        role = ("editor", "worker", "viewer", NOBODY)[number % 4]
        reply = await field.ask(asked[number // 4 % len(asked)], role=role)
        if reply.ok:
            field.wrong(f"{role or 'nobody'} could {type(asked[number // 4 % 6]).__name__}")

    await field.many(400, call)
    await asyncio.sleep(0)
