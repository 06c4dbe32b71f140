"""Schedules, backlogs and overlaps: very much that is due at once, or was."""

from __future__ import annotations

import asyncio
import time

from ....proto.v1 import job_pb2, schedule_pb2
from ....statemachine.schedule.zones import zone_names
from .attack import attack
from .field import HostileCaller
from .hand import working

MINUTE = 60
BACKFILL, BACKFILL_RATE, BACKFILL_S = 9_990, 60_000, 15.0
ZONES = 598
ENDS_S = 6  # What recurs ends so soon by itself.


def ends_soon(job: job_pb2.Job, seconds: int = ENDS_S) -> job_pb2.Job:
    job.spec.timing.end_time.seconds = int(time.time()) + seconds
    return job


def backfill(field: HostileCaller, job: str, minutes: int) -> job_pb2.BackfillJobRequest:
    now = int(time.time()) // MINUTE * MINUTE
    request = job_pb2.BackfillJobRequest(
        namespace=field.namespace, job=job, runs_per_minute=BACKFILL_RATE
    )
    request.from_time.seconds, request.to_time.seconds = now - MINUTE * minutes, now - MINUTE
    return request


@attack("P3", 12)
async def backfill_at_speed(field: HostileCaller) -> None:
    """A backfill of 9,990 times at 60,000 a minute, done within 15 s."""
    await field.load([field.job("minutes", cron="* * * * *")])
    async with working(field, count=2):
        began = time.monotonic()
        answer = await field.need(backfill(field, "minutes", BACKFILL), job_pb2.BackfillJobResponse)

        async def done() -> bool:
            return not (await field.status("minutes")).backlog

        await field.wait_until(done, BACKFILL_S, f"a backfill of {answer.planned} is not done")
        field.found.figures["seconds"] = round(time.monotonic() - began, 1)
        field.found.figures["planned"] = answer.planned


@attack("P3", 6)
async def many_backfills(field: HostileCaller) -> None:
    """Fifty jobs are backfilled with 9,990 times each, at once."""
    await field.load(field.job(f"b-{n}", cron="* * * * *") for n in range(50))
    await field.many(50, lambda n: field.ask(backfill(field, f"b-{n}", BACKFILL)), at_once=10)
    async with working(field):
        await field.rest()
    for number in range(50):
        await field.ask(job_pb2.DropBacklogRequest(namespace=field.namespace, job=f"b-{number}"))
        await field.ask(job_pb2.DeleteJobRequest(namespace=field.namespace, job=f"b-{number}"))


@attack("A3", 5)
async def replace_many(field: HostileCaller) -> None:
    """120 waiting runs with 60 kB each; then the policy becomes REPLACE and the job fires."""
    await field.load([ends_soon(field.job("many", cron="*/2 * * * * *"), 10)])
    data = bytes(60_000)

    async def one(number: int) -> None:
        request = job_pb2.TriggerJobRequest(namespace=field.namespace, job="many")
        request.payload.data = data
        await field.ask(request)

    await field.many(120, one)
    for rule in (
        job_pb2.OverlapPolicy.RULE_REPLACE,
        job_pb2.OverlapPolicy.RULE_QUEUE_ONE,
        job_pb2.OverlapPolicy.RULE_REPLACE,
    ):
        job = ends_soon(field.job("many", cron="* * * * * *"), 10)
        job.spec.overlap.rule = rule
        await field.ask(job_pb2.UpdateJobRequest(job=job))
        await field.trigger("many")
        await asyncio.sleep(1.5)
        await field.many(40, one)
    field.found.figures["live"] = (await field.status("many")).live


@attack("-", 5)
async def queue_many(field: HostileCaller) -> None:
    """3,000 triggers of a job that runs one at a time, whose policy is changed again and again."""
    job = field.job("queued")
    job.spec.overlap.rule = job_pb2.OverlapPolicy.RULE_QUEUE
    await field.load([job])
    await field.many(3_000, lambda _: field.trigger("queued"), at_once=30)
    for rule in (
        job_pb2.OverlapPolicy.RULE_ALLOW,
        job_pb2.OverlapPolicy.RULE_SKIP,
        job_pb2.OverlapPolicy.RULE_QUEUE_ONE,
        job_pb2.OverlapPolicy.RULE_REPLACE,
    ):
        job.spec.overlap.rule = rule
        await field.ask(job_pb2.UpdateJobRequest(job=job))
        await field.trigger("queued")


@attack("P10", 3)
async def all_zones(field: HostileCaller) -> None:
    """One import with jobs in 598 time zones, and the same in other names each time."""
    zones = zone_names()[:ZONES]
    for turn in range(3):
        jobs = []
        for number, zone in enumerate(zones):
            job = field.job(f"zone-{turn}-{number}", cron="30 2 29 2 *")
            job.spec.timing.zone = zone
            jobs.append(job)
        await field.load(jobs)


@attack("P7", 8)
async def pause_and_resume(field: HostileCaller) -> None:
    """1,000 jobs each second with misfire ALL are paused for three seconds and go on at once."""
    jobs = []
    for number in range(1_000):
        job = ends_soon(field.job(f"p-{number}", cron="* * * * * *"), 12)
        job.spec.misfire.rule = job_pb2.MisfirePolicy.RULE_ALL
        job.spec.misfire.maximum = 10_000
        jobs.append(job)
    await field.load(jobs)
    space = field.namespace
    names = [job.name for job in jobs]
    await field.many(
        1_000, lambda n: field.ask(job_pb2.PauseJobRequest(namespace=space, job=names[n])),
        at_once=30,
    )  # fmt: skip
    await asyncio.sleep(3)
    async with working(field):
        await field.many(
            1_000, lambda n: field.ask(job_pb2.ResumeJobRequest(namespace=space, job=names[n])),
            at_once=30,
        )  # fmt: skip


@attack("-", 6)
async def jobs_each_second(field: HostileCaller) -> None:
    """2,000 jobs each second without a worker, which end after six seconds."""
    await field.load(ends_soon(field.job(f"s-{n}", cron="* * * * * *"), 5) for n in range(2_000))
    await asyncio.sleep(5)


@attack("-", 5)
async def many_edits(field: HostileCaller) -> None:
    """A hundred jobs with a hundred occurrences each that are moved, skipped and added by hand."""
    await field.load(field.job(f"e-{n}", cron="* * * * *") for n in range(100))
    base = (int(time.time()) // MINUTE + 5) * MINUTE
    kinds = schedule_pb2.OccurrenceEdit

    async def one(number: int) -> None:
        request = job_pb2.EditOccurrenceRequest(namespace=field.namespace, job=f"e-{number % 100}")
        at = base + MINUTE * (number // 100)
        request.edit.scheduled_time.seconds = at + (7 if number % 3 == 2 else 0)
        request.edit.kind = (kinds.KIND_SKIP, kinds.KIND_MOVE, kinds.KIND_ADD)[number % 3]
        if number % 3 == 1:
            request.edit.moved_to.seconds = base - MINUTE
        await field.ask(request)

    await field.many(10_000, one, at_once=20)


@attack("A4", 6)
async def moved_before_a_ledger(field: HostileCaller) -> None:
    """A job with 5,000 outcomes gets times that lie before all of them, one after the other."""
    await field.load([field.job("ledger", cron="* * * * *")])
    async with working(field):
        await field.ask(backfill(field, "ledger", 5_000))
        await asyncio.sleep(4)
        kinds = schedule_pb2.OccurrenceEdit
        now = int(time.time())
        for number in range(100):
            request = job_pb2.EditOccurrenceRequest(namespace=field.namespace, job="ledger")
            request.edit.kind = kinds.KIND_MOVE
            request.edit.scheduled_time.seconds = (now // MINUTE + 2 + number) * MINUTE
            request.edit.moved_to.seconds = now - MINUTE * 9_000 + number
            await field.ask(request)
        job = field.job("ledger", cron="*/7 * * * *")
        await field.ask(job_pb2.UpdateJobRequest(job=job))
        await field.ask(backfill(field, "ledger", BACKFILL))
        await field.rest()


@attack("-", 4)
async def audits(field: HostileCaller) -> None:
    """Audits and ledgers of a job with thousands of outcomes, by a viewer, at all nodes."""
    await field.load([field.job("audited", cron="* * * * *")])
    await field.ask(backfill(field, "audited", 3_000))
    now = int(time.time())

    async def one(number: int) -> None:
        request = job_pb2.AuditJobRequest(namespace=field.namespace, job="audited")
        request.from_time.seconds, request.to_time.seconds = now - 9_000 * MINUTE, now
        reply = await field.ask(request, role="viewer", node=number % len(field.fronts))
        if reply.took > 5:
            field.wrong(f"an audit took {reply.took:.1f} s")

    await field.many(100, one, at_once=8)
