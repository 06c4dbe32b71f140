"""Questions and refusals that cost more than they look: lists, near names, long faults."""

from __future__ import annotations

import time

from google.protobuf.message import Message

from ....proto.v1 import dead_letter_pb2, flow_pb2, job_pb2, queue_pb2, run_pb2, worker_pb2
from .attack import attack
from .field import HostileCaller
from .hand import working


@attack("-", 4)
async def near_names(field: HostileCaller) -> None:
    """Jobs, queues, workers and namespaces that are nearly there are asked for by long names."""
    base = "abcdefghij" * 11
    await field.load(field.job(f"{base}-{n:05d}") for n in range(3_000))

    async def one(number: int) -> None:
        name = f"{base[::-1]}-{number:05d}" if number % 2 else f"{base}x{number:05d}"
        asked: tuple[Message, ...] = (
            job_pb2.GetJobRequest(namespace=field.namespace, job=name),
            job_pb2.TriggerJobRequest(namespace=field.namespace, job=name),
            queue_pb2.GetQueueRequest(namespace=field.namespace, queue=name),
            run_pb2.GetRunRequest(namespace=field.namespace, run=name),
            job_pb2.CreateJobRequest(job=field.job(f"up-{number}", after=[name])),
        )
        await field.ask(asked[number % len(asked)])

    await field.many(1_500, one, at_once=20)


@attack("-", 4)
async def wrong_zones(field: HostileCaller) -> None:
    """Imports of 1,000 jobs that each name a time zone which is nearly one."""
    for turn in range(6):
        jobs = []
        for number in range(1_000):
            job = field.job(f"z-{turn}-{number}", cron="* * * * *")
            job.spec.timing.zone = f"Europe/Berln{number}"
            jobs.append(job)
        if not field.goes_on:
            return
        await field.load(jobs)


@attack("-", 4)
async def wrong_everything(field: HostileCaller) -> None:
    """Imports of 1,000 jobs in which every field is wrong, with sixteen schedules each."""
    for turn in range(4):
        jobs = []
        for number in range(1_000):
            job = field.job(f"w-{turn}-{number}")
            for place in range(16):
                job.spec.schedules.add().cron.expression = f"*/{place} 25 32 13 {number} FOO"
            job.spec.timing.zone = "Nowhere/" + "x" * 40
            job.spec.timing.exclude_calendars.extend(f"none-{n}" for n in range(8))
            job.spec.upstream.jobs.add(job=f"nobody-{number}")
            job.spec.retry.max_attempts = -1
            jobs.append(job)
        if not field.goes_on:
            return
        await field.load(jobs)


@attack("-", 4)
async def rare_schedules(field: HostileCaller) -> None:
    """Imports of 500 jobs with sixteen schedules that are due once in decades, in many zones."""
    zones = ("America/St_Johns", "Asia/Kathmandu", "Pacific/Chatham", "Africa/Casablanca")
    for turn in range(4):
        jobs = []
        for number in range(500):
            job = field.job(f"r-{turn}-{number}")
            for place in range(16):
                expression = f"{number % 60} {place} 29 2 {(number + place) % 7}"
                job.spec.schedules.add().cron.expression = expression
            job.spec.timing.zone = zones[number % len(zones)]
            job.spec.timing.start_time.seconds = int(time.time()) + 86_400 * number
            jobs.append(job)
        if not field.goes_on:
            return
        await field.load(jobs)


@attack("-", 6)
async def filtered_lists(field: HostileCaller) -> None:
    """Lists of 20,000 jobs by filters that match nothing, twenty at once, fresh from the leader."""
    await field.load(field.job(f"l-{n}") for n in range(20_000))
    filters = ("labels.team=nobody", "job=*z*", 'owner="nobody"', "state=BROKEN")

    async def one(number: int) -> None:
        asked: Message = job_pb2.ListJobsRequest(
            namespace=field.namespace, filter=filters[number % len(filters)], page_size=1_000
        )
        await field.ask(asked, role="viewer")

    field.until = time.monotonic() + 3
    await field.many(400, one, at_once=20)


@attack("-", 6)
async def lists_of_runs(field: HostileCaller) -> None:
    """15,000 runs that wait, and lists of them by state, job and queue, twenty at once."""
    now = int(time.time())
    jobs = [field.job(f"due-{n}") for n in range(15_000)]
    for job in jobs:
        job.spec.schedules.add().once.time.FromSeconds(now)
    await field.load(jobs)
    filters = ("", "state=PENDING", "state=FAILED", "job=due-1*", "queue=nothing")

    async def one(number: int) -> None:
        asked: tuple[Message, ...] = (
            run_pb2.ListRunsRequest(
                namespace=field.namespace, filter=filters[number % len(filters)], page_size=1_000
            ),
            queue_pb2.ListQueuesRequest(namespace=field.namespace),
            queue_pb2.GetQueueRequest(namespace=field.namespace, queue="default"),
            job_pb2.ExplainJobRequest(namespace=field.namespace, job="due-7"),
            dead_letter_pb2.ListDeadLettersRequest(namespace=field.namespace),
            flow_pb2.ListFlowsRequest(namespace=field.namespace),
        )
        await field.ask(asked[number % len(asked)], role="viewer")

    field.until = time.monotonic() + 3
    await field.many(400, one, at_once=20)


@attack("-", 6)
async def graphs_and_waves(field: HostileCaller) -> None:
    """Graphs, flows and explanations of a job with 5,000 dependents, again and again."""
    await field.load([field.job("root")])
    await field.load(field.job(f"leaf-{n}", after=["root"]) for n in range(5_000))
    async with working(field):
        await field.trigger("root")

        async def one(number: int) -> None:
            asked: tuple[Message, ...] = (
                flow_pb2.GetGraphRequest(namespace=field.namespace, job="root"),
                flow_pb2.ListFlowsRequest(namespace=field.namespace),
                job_pb2.ExplainJobRequest(namespace=field.namespace, job="root"),
                job_pb2.GetJobRequest(namespace=field.namespace, job="root"),
                job_pb2.DeleteJobRequest(namespace=field.namespace, job="root"),
            )
            await field.ask(asked[number % len(asked)])

        field.until = time.monotonic() + 3
        await field.many(300, one, at_once=10)


@attack("C13", 6)
async def triggers_for_one_instant(field: HostileCaller) -> None:
    """4,000 triggers for the same instant, of a job that runs one at a time and of another."""
    queued = field.job("one-at-a-time")
    queued.spec.overlap.rule = job_pb2.OverlapPolicy.RULE_QUEUE
    await field.load([queued, field.job("free")])
    due = int(time.time()) + 5

    async def one(number: int) -> None:
        request = job_pb2.TriggerJobRequest(namespace=field.namespace)
        request.job = ("one-at-a-time", "free")[number % 2]
        request.due_time.FromSeconds(due)
        await field.ask(request)

    await field.many(4_000, one, at_once=30)
    async with working(field):
        await field.rest()


@attack("-", 6)
async def moved_runs(field: HostileCaller) -> None:
    """A job with 4,000 waiting runs changes its queue, labels, limits and priority, and pauses."""
    await field.load([field.job("moved")])
    await field.many(4_000, lambda _: field.trigger("moved"), at_once=30)
    space = field.namespace
    for turn in range(6):
        job = field.job("moved")
        job.spec.queue = f"q-{turn}"
        job.spec.worker_labels["host"] = f"h-{turn}"
        job.spec.concurrency.job = 1 + 1_000 * (turn % 2)
        job.spec.timeouts.queue.FromSeconds(2 + turn)
        await field.ask(job_pb2.UpdateJobRequest(job=job))
        await field.ask(job_pb2.PauseJobRequest(namespace=space, job="moved"))
        queue = queue_pb2.UpdateQueueRequest()
        queue.queue.namespace, queue.queue.name = space, "default"
        queue.queue.concurrency, queue.queue.rate = 1 + turn % 2 * 100_000, 1 + turn % 2 * 100_000
        await field.ask(queue)
        await field.ask(job_pb2.ResumeJobRequest(namespace=space, job="moved"))


@attack("-", 4)
async def results_in_bulk(field: HostileCaller) -> None:
    """Unary reports of 4 MiB with results of leases that are not there."""
    report = worker_pb2.ReportResultsRequest(worker=f"{field.namespace}-x")
    for number in range(40_000):
        report.results.add(run=f"AAAA.{number}.1", token=number + 1).success.SetInParent()
    body = report.SerializeToString()
    path = "/raftsched.v1.WorkerService/ReportResults"
    await field.many(60, lambda _: field.raw(path, body, role="worker"), at_once=6)
