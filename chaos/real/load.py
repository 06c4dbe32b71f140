"""What clients do to a cluster while it is mistreated, and what they saw.

Some write records with values that are never the same twice, some trigger runs, one probes many
times a second whether the cluster is there. Every call is written down with its instants, its
outcome and its deadline.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from google.protobuf.message import Message

from ...client import AsyncClient, OutcomeUnknown, RaftschedError, Unavailable
from ...client.errors import CallerError
from ...proto.v1 import job_pb2, run_pb2
from .history import OK, REFUSED, UNKNOWN, Call, Journal, Plan, Probe

DEADLINE_S = 5.0
PROBE_S = 0.025
PROBE_DEADLINE_S = 1.0
PROBES_OPEN = 100
RECORDS = 20
HANDS = 5
# Recurring jobs: seconds between their nominal times, and how many jobs of each.
PERIODS = {1: 10, 2: 10, 5: 20}
CALLS_PER_RECORD = 40  # More would make the search for an order too long.
ATTEMPTS = 20
FAR_MS = 3_600_000


@dataclass(slots=True)
class Load:
    """The clients, until `stop`."""

    endpoints: str
    journal: Journal
    seed: int
    clients: int = 5
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    stopping: bool = False
    numbers: int = 0

    async def prepare(self, client: AsyncClient) -> dict[str, int]:
        """Create the recurring jobs and those that are triggered; name -> period in ms."""
        periods: dict[str, int] = {}
        request = job_pb2.ImportJobsRequest()
        for seconds, count in PERIODS.items():
            for number in range(count):
                job = request.jobs.add(name=f"every-{seconds}-{number}")
                recurring(job.spec, seconds, cron=number % 2 == 0)
                periods[job.name] = 1000 * seconds
        for number in range(HANDS):
            plain(request.jobs.add(name=f"hand-{number}").spec)
        plain(request.jobs.add(name="probe").spec)
        response = await client.call(request, timeout=30.0)
        wrong = [result for result in response.results if result.reason]
        assert not wrong, wrong
        return periods

    def start(self) -> None:
        for number in range(self.clients):
            dice = random.Random(f"{self.seed}/client/{number}")
            self.tasks.append(asyncio.create_task(self.write(f"c{number}", dice)))
        self.tasks.append(asyncio.create_task(self.probe()))

    async def stop(self) -> None:
        """Let the calls that are under way end."""
        self.stopping = True
        async with asyncio.timeout(3 * DEADLINE_S):
            await asyncio.gather(*self.tasks)

    def check(self) -> None:
        """A client that broke is a fault of the harness."""
        for task in self.tasks:
            if task.done():
                task.result()

    # Writers.

    async def write(self, name: str, dice: random.Random) -> None:
        async with AsyncClient(self.endpoints, timeout=DEADLINE_S) as client:
            while not self.stopping:
                if dice.random() < 0.3:
                    await self.trigger(name, client, f"hand-{dice.randrange(HANDS)}")
                else:
                    await self.touch(name, client, dice)
                await asyncio.sleep(0.05 * dice.random())

    async def touch(self, name: str, client: AsyncClient, dice: random.Random) -> None:
        self.numbers += 1
        generation = self.numbers // (RECORDS * CALLS_PER_RECORD)
        record = f"record-{generation}-{dice.randrange(RECORDS)}"
        what = dice.choices(["create", "update", "delete", "get"], [3, 4, 1, 4])[0]
        value = f"{name}-{self.numbers}"
        request: Message
        if what == "create":
            request = job_pb2.CreateJobRequest(job=valued(record, value))
        elif what == "update":
            request = job_pb2.UpdateJobRequest(job=valued(record, value))
            request.update_mask.paths.append("spec.payload")
        elif what == "delete":
            request, value = job_pb2.DeleteJobRequest(job=record), ""
        else:
            request, value = job_pb2.GetJobRequest(job=record), ""
        await self.tell(name, what, record, value, lambda: client.call(request))

    async def trigger(self, name: str, client: AsyncClient, job: str) -> None:
        request = job_pb2.TriggerJobRequest(job=job)
        await self.tell(name, "trigger", job, "", lambda: client.call(request))

    async def tell(
        self,
        name: str,
        what: str,
        job: str,
        value: str,
        call: Callable[[], Awaitable[Message]],
    ) -> None:
        began = time.monotonic()
        outcome, reason = OK, ""
        try:
            answer = await call()
            if what == "get":
                assert isinstance(answer, job_pb2.Job)
                value = answer.spec.payload.data.decode()
            elif what == "trigger":
                assert isinstance(answer, run_pb2.Run)
                value = answer.id
        except RaftschedError as error:
            outcome, reason = outcome_of(what, error), error.reason or type(error).__name__
            if what == "get" and error.reason == "JOB_NOT_FOUND":
                outcome = OK
        ended = time.monotonic()
        self.journal.add(Call(name, what, job, began, ended, DEADLINE_S, outcome, value, reason))

    # The probe.

    async def probe(self) -> None:
        """Open loop: a write every few milliseconds, whatever became of the ones before."""
        under_way: set[asyncio.Task[None]] = set()
        async with AsyncClient(self.endpoints, timeout=PROBE_DEADLINE_S) as client:
            number, at = 0, time.monotonic()
            while not self.stopping:
                number, at = number + 1, at + PROBE_S
                await asyncio.sleep(max(0.0, at - time.monotonic()))
                if len(under_way) < PROBES_OPEN:
                    task = asyncio.create_task(self.probe_once(client, number))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
            await asyncio.gather(*under_way)

    async def probe_once(self, client: AsyncClient, number: int) -> None:
        request = job_pb2.UpdateJobRequest(job=valued("probe", str(number)))
        request.update_mask.paths.append("spec.payload")
        began, ok = time.monotonic(), True
        try:
            await client.call(request)
        except RaftschedError:
            ok = False
        self.journal.add(Probe(began, time.monotonic() - began, ok))


def outcome_of(what: str, error: RaftschedError) -> str:
    if isinstance(error, CallerError | Unavailable):
        return REFUSED
    assert isinstance(error, OutcomeUnknown), error
    return UNKNOWN


def plans_of(periods: dict[str, int], from_ms: int, until_ms: int) -> list[Plan]:
    """What is surely due of the recurring jobs."""
    return [
        Plan(job, every_ms, from_ms, until_ms, max_attempts=ATTEMPTS)
        for job, every_ms in periods.items()
    ]


def plain(spec: job_pb2.JobSpec) -> None:
    """A job that loses nothing by overlap or patience, so that every nominal time has to run."""
    spec.action.handler = "work"
    spec.overlap.rule = job_pb2.OverlapPolicy.RULE_ALLOW
    spec.misfire.grace.FromMilliseconds(FAR_MS)
    spec.retry.max_attempts = ATTEMPTS
    spec.retry.first.FromMilliseconds(100)
    spec.retry.cap.FromMilliseconds(1_000)


def recurring(spec: job_pb2.JobSpec, seconds: int, *, cron: bool) -> None:
    """Two ways to say the same, so that both are tried: all on whole multiples of the period."""
    plain(spec)
    schedule = spec.schedules.add()
    if cron:
        schedule.cron.expression = f"*/{seconds} * * * * *"
    else:
        schedule.interval.every.FromSeconds(seconds)
        schedule.interval.anchor.FromSeconds(0)


def valued(name: str, value: str) -> job_pb2.Job:
    job = job_pb2.Job(name=name)
    plain(job.spec)
    job.spec.payload.data = value.encode()
    return job
