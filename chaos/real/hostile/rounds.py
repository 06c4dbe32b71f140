"""What comes round again: failures that begin their own flow, names that are taken anew, schedules
that are written anew, changes of thousands that are only tried or taken back."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from google.protobuf.message import Message

from ....proto.v1 import cluster_pb2, common_pb2, event_pb2, job_pb2, run_pb2
from .attack import attack
from .field import HostileCaller
from .hand import fail, succeed, working
from .times import ends_soon

WIDE = 64
# The first run, 64 that fail behind it, and that 16 times more, with room for a lost answer.
COME_BACK_MAX = 2 * 17 * (1 + WIDE)
ENDS_S = 12.0
ADDRESSES = ("127.0.0.61", "127.0.0.62")
Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]
EACH = 1_000  # As many connections as one address may have.


@attack("-", 6)
async def failures_that_come_back(field: HostileCaller) -> None:
    """64 jobs wait for the failure of one, and the failure of each of them triggers that one."""
    root = field.job("root")
    root.spec.retry.max_attempts = 1
    await field.load([root])
    jobs = []
    for number in range(WIDE):
        job = field.job(f"back-{number}")
        job.spec.retry.max_attempts, job.spec.on_failure.job = 1, "root"
        job.spec.upstream.jobs.add(job="root", condition=job_pb2.Dependency.CONDITION_FAILURE)
        jobs.append(job)
    await field.load(jobs)
    async with working(field, fail) as hands:
        await field.trigger("root")
        before = -1

        async def ended() -> bool:
            nonlocal before
            was, before = before, hands[0].taken
            if was != before or not before:
                await asyncio.sleep(0.5)
                return False
            return True

        await field.wait_until(ended, ENDS_S, "failures still bring each other about")
        field.found.figures["leases"] = hands[0].taken
    if hands[0].taken > COME_BACK_MAX:
        field.wrong(f"one failure brought {hands[0].taken} runs, of at most {COME_BACK_MAX}")


@attack("-", 6)
async def dry_runs(field: HostileCaller) -> None:
    """Imports of 1,000 jobs and changes of 5,000 that are only tried, ten at once."""
    await field.load(field.job(f"dry-{number}", cron="0 0 * * *") for number in range(5_000))
    piece = job_pb2.ImportJobsRequest(
        validate_only=True, mode=job_pb2.ImportJobsRequest.MODE_UPSERT
    )
    for number in range(1_000):
        piece.jobs.append(field.job(f"dry-{number}", cron=f"{number % 60} */3 * * *", after=[]))
    change = job_pb2.ChangeJobsRequest(namespace=field.namespace, validate_only=True)
    change.change = job_pb2.ChangeJobsRequest.CHANGE_PAUSE
    asked: list[Message] = [piece, change]

    async def one(number: int) -> None:
        await field.ask(asked[number % 2], seconds=20.0)

    await field.many(400, one, at_once=10)


@attack("-", 6)
async def names_taken_anew(field: HostileCaller) -> None:
    """Jobs that others wait for are triggered, deleted and made again under the same 30 names."""
    space = field.namespace
    await field.load(field.job(f"again-{number}") for number in range(30))

    async def one(number: int) -> None:
        name = f"again-{number % 30}"
        behind = field.job(f"behind-{number % 30}", after=[name])
        await field.ask(job_pb2.CreateJobRequest(job=behind))
        await field.trigger(name)
        for gone in (behind.name, name):
            await field.ask(job_pb2.DeleteJobRequest(namespace=space, job=gone))
        again = ends_soon(field.job(name, cron="*/2 * * * * *"), 20)
        await field.ask(job_pb2.CreateJobRequest(job=again))

    async with working(field, succeed):
        await field.many(3_000, one, at_once=20)


@attack("-", 7)
async def later_and_never(field: HostileCaller) -> None:
    """5,000 runs are triggered for one instant, and ended by a call for all as it comes."""
    await field.load([field.job("later")])
    due = int(time.time()) + 5

    async def one(_: int) -> None:
        request = job_pb2.TriggerJobRequest(namespace=field.namespace, job="later")
        request.due_time.FromSeconds(due)
        await field.ask(request)

    await field.many(5_000, one, at_once=30)
    await asyncio.sleep(max(0.0, due - time.time()))
    request = run_pb2.ChangeRunsRequest(
        namespace=field.namespace, change=run_pb2.ChangeRunsRequest.CHANGE_TERMINATE
    )
    limit = time.monotonic() + ENDS_S
    while time.monotonic() < limit:
        reply = await field.ask(request)
        if not reply.ok:
            await asyncio.sleep(0.05)
            continue
        answer = common_pb2.BulkChange.FromString(reply.data)
        request.page_token = answer.next_page_token
        if not answer.next_page_token:
            break


@attack("-", 8)
async def schedules_in_other_forms(field: HostileCaller) -> None:
    """200 jobs each second, misfire ALL, whose times are written in other forms again and again."""
    forms = (["* * * * * *"], [f"{n}-59/4 * * * * *" for n in range(4)], ["*/2 * * * * *"])

    def job(number: int, form: int) -> job_pb2.Job:
        made = ends_soon(field.job(f"form-{number}"), 15)
        for expression in forms[form % len(forms)]:
            made.spec.schedules.add().cron.expression = expression
        made.spec.timing.max_runs = form % 2 * (5 + form)
        made.spec.misfire.rule = job_pb2.MisfirePolicy.RULE_ALL
        return made

    await field.load(job(number, 0) for number in range(200))

    async def one(number: int) -> None:
        request = job_pb2.UpdateJobRequest(job=job(number % 200, number // 200 + 1))
        await field.ask(request)

    async with working(field, succeed):
        await field.many(20_000, one, at_once=20)


@attack("-", 6)
async def changes_taken_back(field: HostileCaller) -> None:
    """3,000 jobs are paused and go on again by calls for all of them, four callers at once."""
    await field.load(field.job(f"back-{number}", cron="0 0 * * *") for number in range(3_000))
    kinds = job_pb2.ChangeJobsRequest

    async def one(number: int) -> None:
        change = kinds.CHANGE_PAUSE if number % 2 else kinds.CHANGE_RESUME
        request = kinds(namespace=field.namespace, change=change)
        while field.goes_on:
            reply = await field.ask(request)
            if not reply.ok:
                return
            answer = common_pb2.BulkChange.FromString(reply.data)
            request.page_token = answer.next_page_token
            if not answer.next_page_token:
                return

    await field.many(200, one, at_once=4)


@attack("-", 7)
async def pages_left_open(field: HostileCaller) -> None:
    """What the web page asks of 2,300 jobs with outcomes, by 30 callers at all nodes."""
    space = field.namespace
    often = (field.job(f"page-{number}", cron="* * * * * *") for number in range(300))
    await field.load(ends_soon(job, 15) for job in often)
    await field.load(field.job(f"idle-{number}", cron="0 0 * * *") for number in range(2_000))
    outcomes = job_pb2.GetOutcomesRequest(namespace=space, count=20)
    outcomes.jobs.extend(f"page-{number}" for number in range(100))
    ahead = job_pb2.ForecastFiringsRequest(namespace=space)
    ahead.ahead.FromSeconds(3_600)
    asked: list[Message] = [
        outcomes, ahead, cluster_pb2.GetFiguresRequest(),
        job_pb2.ListJobsRequest(namespace=space, page_size=100, with_count=True),
        run_pb2.ListRunsRequest(namespace=space, page_size=100, with_count=True),
        event_pb2.ListEventsRequest(namespace=space, page_size=100),
    ]  # fmt: skip

    async def one(number: int) -> None:
        node = number // len(asked) % len(field.fronts)
        await field.ask(asked[number % len(asked)], role="viewer", node=node)

    async with working(field, succeed):
        await field.many(20_000, one, at_once=30)


@attack("-", 7)
async def lists_in_order(field: HostileCaller) -> None:
    """20,000 runs that wait, listed by time from either end, by filters that fit few of them."""
    due = int(time.time()) + 3_600
    jobs = []
    for number in range(20_000):
        job = field.job(f"order-{number}")
        job.spec.schedules.add().once.time.FromSeconds(due - 7_200)
        jobs.append(job)
    await field.load(jobs)
    orders, filters = ("scheduled_time", "scheduled_time desc"), ("", "job=order-1999*", "queue=b")

    async def one(number: int) -> None:
        request = run_pb2.ListRunsRequest(
            namespace=field.namespace, filter=filters[number % 3], order_by=orders[number % 2],
            page_size=100, with_count=True,
        )  # fmt: skip
        await field.ask(request, role="viewer", node=number // 6 % len(field.fronts))

    field.until = max(field.until, time.monotonic() + 4)
    await field.many(2_000, one, at_once=20)


@attack("-", 6)
async def http_two_addresses(field: HostileCaller) -> None:
    """Two addresses take all 2,000 connections of a gateway and say half a head on each of them,
    again and again."""
    host, _, port = field.brief.gateway.rpartition(":")
    lines: dict[int, Line] = {}

    async def one(number: int) -> None:
        address = ADDRESSES[number % len(ADDRESSES)]
        with suppress(OSError):
            made = await asyncio.open_connection(host, int(port), local_addr=(address, 0))
            made[1].write(b"GET /v1/jobs HTT")
            field.found.calls += 1
            lines[number] = made

    try:
        while field.goes_on:
            for number in range(len(ADDRESSES) * EACH):
                if number not in lines or lines[number][0].at_eof():
                    await one(number)
            field.found.figures["connections"] = len(lines)
            await asyncio.sleep(0.1)
    finally:
        for _, writer in lines.values():
            writer.transport.abort()
