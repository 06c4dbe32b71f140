"""What a tenant with valid tokens can do to others: ask too much, or ask for what is theirs."""

from __future__ import annotations

import time

from google.protobuf.message import Message

from ....proto.v1 import (
    access_pb2,
    alert_pb2,
    calendar_pb2,
    event_pb2,
    job_pb2,
    namespace_pb2,
    options_pb2,
    queue_pb2,
    run_pb2,
)
from .attack import attack
from .field import HostileCaller

MARKER = "marker-7f3a9c-that-nobody-may-see"
KINDS = run_pb2.UniqueKey


@attack("P12", 2)
async def secrets_shown(field: HostileCaller) -> None:
    """A viewer asks for jobs with credentials in headers, URL, metadata and environment."""
    jobs = [field.job(f"secret-{kind}") for kind in ("http", "grpc", "shell", "plain")]
    jobs[0].spec.action.http.url = f"http://127.0.0.1:9/x?key={MARKER}"
    jobs[0].spec.action.http.headers["Authorization"] = f"Bearer {MARKER}"
    jobs[1].spec.action.grpc.target, jobs[1].spec.action.grpc.method = "127.0.0.1:9", "a.B/C"
    jobs[1].spec.action.grpc.metadata["authorization"] = MARKER
    jobs[2].spec.action.shell.argv.extend(["true", f"--password={MARKER}"])
    jobs[2].spec.action.shell.environment["PASSWORD"] = MARKER
    jobs[3].spec.payload.data = MARKER.encode()
    for job in jobs:
        await field.need(job_pb2.CreateJobRequest(job=job), job_pb2.Job)
        await field.trigger(job.name)
    space = field.namespace
    asked: list[Message] = [
        job_pb2.ListJobsRequest(namespace=space),
        run_pb2.ListRunsRequest(namespace=space),
        event_pb2.ListEventsRequest(namespace=space),
    ]
    for job in jobs:
        asked += [
            job_pb2.GetJobRequest(namespace=space, job=job.name),
            job_pb2.ListJobHistoryRequest(namespace=space, job=job.name),
            job_pb2.ExplainJobRequest(namespace=space, job=job.name),
        ]
    runs = await field.need(run_pb2.ListRunsRequest(namespace=space), run_pb2.ListRunsResponse)
    asked += [run_pb2.GetRunRequest(namespace=space, run=run.id) for run in runs.runs]
    for request in asked:
        # The same of followers, which answer reads that may be old by themselves.
        for node in (None, *range(len(field.fronts))):
            reply = await field.ask(request, role="viewer", node=node)
            if MARKER.encode() in reply.data:
                field.wrong(f"{type(request).__name__} of {request} shows a secret to a viewer")


@attack("S4", 2)
async def others_things(field: HostileCaller) -> None:
    """A tenant asks for, changes and deletes what belongs to others or to the cluster."""
    alert = alert_pb2.Alert(name="mine")
    alert.condition.dead_letters_above = 1
    asked: list[Message] = [
        job_pb2.GetJobRequest(job="probe"),
        job_pb2.DeleteJobRequest(job="probe"),
        job_pb2.ListJobsRequest(namespace="victim"),
        job_pb2.PauseJobRequest(namespace="victim", job="pulse-0"),
        job_pb2.TriggerJobRequest(namespace="victim", job="pulse-0"),
        run_pb2.ListRunsRequest(namespace="*"),
        queue_pb2.PauseQueueRequest(namespace="victim", queue="default"),
        event_pb2.ListEventsRequest(namespace="victim"),
        namespace_pb2.DeleteNamespaceRequest(namespace="victim"),
        access_pb2.CreateAccessTokenRequest(
            access_token=access_pb2.AccessToken(name="mine", role=options_pb2.ROLE_ADMIN)
        ),
        access_pb2.ListAccessTokensRequest(),
        alert_pb2.PutAlertRequest(alert=alert),
        alert_pb2.DeleteAlertRequest(alert="anything"),
    ]
    for request in asked:
        for role in ("editor", "worker", "viewer"):
            reply = await field.ask(request, role=role)
            if reply.ok:
                field.wrong(f"{role} of {field.namespace} may {type(request).__name__} {request}")


@attack("S18", 3)
async def namespace_names(field: HostileCaller) -> None:
    """10,000 calls about namespaces that are not there, with and without a token."""

    async def call(number: int) -> None:
        name = f"{field.dice.getrandbits(60):x}"
        role = ("editor", "", "viewer", "wrong-secret")[number % 4]
        await field.ask(job_pb2.ListJobsRequest(namespace=name), role=role)

    await field.many(10_000, call, at_once=30)


@attack("S18", 5)
async def forecasts(field: HostileCaller) -> None:
    """A viewer forecasts a day of thousands of jobs each second, eight at a time, at all nodes."""
    until = int(time.time()) + 3
    jobs = [field.job(f"f-{n}", cron="* * * * * *") for n in range(5_000)]
    for job in jobs:
        # They are due years from now, so that the forecast is what costs.
        job.spec.timing.start_time.seconds = until + 3_600
    await field.load(jobs)

    async def call(number: int) -> None:
        request = job_pb2.ForecastFiringsRequest(namespace=field.namespace)
        request.ahead.FromSeconds(86_400)
        await field.ask(request, role="viewer", node=number % len(field.fronts))

    await field.many(80, call, at_once=8)


@attack("-", 4)
async def trigger_storm(field: HostileCaller) -> None:
    """One tenant triggers as fast as it can, thirty calls at once, with 50 kB each."""
    await field.load([field.job("storm")])
    data = bytes(50_000)

    async def call(number: int) -> None:
        request = job_pb2.TriggerJobRequest(namespace=field.namespace, job="storm")
        if number % 5 == 0:
            request.payload.data = data
        await field.ask(request)

    await field.many(20_000, call, at_once=30)


@attack("-", 4)
async def cancel_storm(field: HostileCaller) -> None:
    """Runs are triggered and cancelled at once, and cancelled again."""
    await field.load([field.job("cancelled")])

    async def call(_: int) -> None:
        reply = await field.trigger("cancelled")
        if reply.ok:
            run = run_pb2.Run.FromString(reply.data)
            for _ in range(3):
                await field.ask(run_pb2.CancelRunRequest(namespace=field.namespace, run=run.id))

    await field.many(5_000, call, at_once=20)


@attack("C18", 4)
async def remembered_answers(field: HostileCaller) -> None:
    """Thousands of calls with a request id each, whose answers are 65 kB large."""
    await field.load([field.job("remembered", data=bytes(65_000))])

    async def call(number: int) -> None:
        request = job_pb2.TriggerJobRequest(
            namespace=field.namespace, job="remembered", request_id=f"{field.brief.seed}-{number}"
        )
        await field.ask(request)

    await field.many(5_000, call, at_once=20)


@attack("-", 4)
async def unique_keys(field: HostileCaller) -> None:
    """Triggers under one unique key that replace each other, and thousands of keys."""
    await field.load([field.job("unique")])

    async def call(number: int) -> None:
        request = job_pb2.TriggerJobRequest(namespace=field.namespace, job="unique")
        request.unique.key = "one" if number % 2 else f"{number:0200d}"
        request.unique.policy = KINDS.POLICY_REPLACE
        request.unique.hold.FromSeconds(86_400)
        await field.ask(request)

    await field.many(8_000, call, at_once=30)


@attack("-", 4)
async def updates_of_one_job(field: HostileCaller) -> None:
    """One job is updated, paused and resumed by thirty callers at once."""
    await field.load([field.job("torn", cron="0 0 1 1 *")])
    space = field.namespace

    async def call(number: int) -> None:
        if number % 3 == 0:
            job = field.job("torn", cron=f"{number % 60} {number % 24} 1 1 *")
            request: Message = job_pb2.UpdateJobRequest(job=job)
        elif number % 3 == 1:
            request = job_pb2.PauseJobRequest(namespace=space, job="torn")
        else:
            request = job_pb2.ResumeJobRequest(namespace=space, job="torn")
        await field.ask(request)

    await field.many(10_000, call, at_once=30)


@attack("-", 5)
async def shared_calendar(field: HostileCaller) -> None:
    """A calendar that 3,000 jobs leave out is changed again and again."""
    calendar = calendar_pb2.Calendar(namespace=field.namespace, name="days")
    calendar.rules.add().date = "2030-01-01"
    await field.ask(calendar_pb2.CreateCalendarRequest(calendar=calendar))
    jobs = [field.job(f"c-{number}", cron="0 0 * * *") for number in range(3_000)]
    for job in jobs:
        job.spec.timing.exclude_calendars.append("days")
    if refused := await field.load(jobs):
        field.wrong(f"jobs with a calendar were refused: {refused[0]}")

    async def call(number: int) -> None:
        del calendar.rules[1:]
        for day in range(400):
            calendar.rules.add().date = (
                f"20{31 + number % 60}-{day % 12 + 1:02d}-{day % 28 + 1:02d}"
            )
        await field.ask(calendar_pb2.UpdateCalendarRequest(calendar=calendar))

    await field.many(200, call, at_once=3)


@attack("-", 5)
async def shared_key(field: HostileCaller) -> None:
    """5,000 runs wait for one concurrency key, whose limit is raised and lowered."""
    jobs = [field.job(f"k-{number}") for number in range(10)]
    for job in jobs:
        job.spec.concurrency.key, job.spec.concurrency.key_limit = "one", 1
    await field.load(jobs)
    await field.many(5_000, lambda number: field.trigger(f"k-{number % 10}"), at_once=30)
    for limit in (1_000_000, 1, 1_000_000):
        for job in jobs:
            job.spec.concurrency.key_limit = limit
            await field.ask(job_pb2.UpdateJobRequest(job=job))


@attack("-", 5)
async def mass_deletion(field: HostileCaller) -> None:
    """2,000 runs wait, jobs go with them, the queue is paused and goes on in between."""
    space = field.namespace
    await field.load(field.job(f"d-{number}") for number in range(20))
    await field.many(2_000, lambda number: field.trigger(f"d-{number % 20}"), at_once=30)
    for number in range(20):
        await field.ask(job_pb2.DeleteJobRequest(namespace=space, job=f"d-{number}"))
        pause = queue_pb2.PauseQueueRequest(namespace=space, queue="default")
        go_on = queue_pb2.ResumeQueueRequest(namespace=space, queue="default")
        await field.ask(go_on if number % 2 else pause)
