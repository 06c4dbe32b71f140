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
from functools import partial

from google.protobuf.message import Message

from ...client import AsyncClient, OutcomeUnknown, RaftschedError, Unavailable
from ...client.errors import CallerError
from ...cluster.local.process import ProcessFailed
from ...proto.v1 import job_pb2, run_pb2
from . import jobs
from .history import OK, REFUSED, UNKNOWN, ClientCall, HistoryFile, Probe, RecurringJob

DEADLINE_S = 5.0
PROBE_S = 0.025
PROBE_DEADLINE_S = 1.0
PROBES_OPEN = 100
RECORDS = 20
CALLS_PER_RECORD = 40  # More would make the search for an order too long.
RESUME_S = 240.0  # A majority that was killed may need long to come back on a busy machine.


@dataclass(slots=True)
class Load:
    """The clients, until `stop`."""

    endpoints: str
    journal: HistoryFile
    seed: int
    clients: int = 5
    token: str | None = None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    stopping: bool = False
    numbers: int = 0
    # The last instant that a job for one instant was asked for.
    last_due_ms: int = 0

    async def prepare(self, client: AsyncClient) -> None:
        """Create the jobs that are there from the beginning."""
        request = job_pb2.ImportJobsRequest(jobs=jobs.everything())
        response = await client.call(request, timeout=30.0)
        wrong = [result for result in response.results if result.reason]
        assert not wrong, wrong

    def start(self) -> None:
        for number in range(self.clients):
            dice = random.Random(f"{self.seed}/client/{number}")
            self.tasks.append(asyncio.create_task(self.write(f"c{number}", dice)))
        self.tasks.append(asyncio.create_task(self.rest(random.Random(f"{self.seed}/rest"))))
        self.tasks.append(asyncio.create_task(self.probe()))

    async def stop(self) -> None:
        """Let the calls that are under way end."""
        self.stopping = True
        async with asyncio.timeout(3 * DEADLINE_S + RESUME_S):
            await asyncio.gather(*self.tasks)

    def check(self) -> None:
        """A client that broke is a fault of the harness."""
        for task in self.tasks:
            if task.done():
                task.result()

    # Writers.

    async def write(self, name: str, dice: random.Random) -> None:
        async with AsyncClient(self.endpoints, timeout=DEADLINE_S, token=self.token) as client:
            while not self.stopping:
                if dice.random() < 0.05:
                    await self.once(name, client, dice)
                elif dice.random() < 0.3:
                    await self.trigger(name, client, f"hand-{dice.randrange(jobs.HANDS)}")
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
            request = job_pb2.CreateJobRequest(job=jobs.valued(record, value))
        elif what == "update":
            request = job_pb2.UpdateJobRequest(job=jobs.valued(record, value))
            request.update_mask.paths.append("spec.payload")
        elif what == "delete":
            request, value = job_pb2.DeleteJobRequest(job=record), ""
        else:
            request, value = job_pb2.GetJobRequest(job=record), ""
        await self.note_call(name, what, record, value, lambda: client.call(request))

    async def trigger(self, name: str, client: AsyncClient, job: str) -> None:
        request = job_pb2.TriggerJobRequest(job=job)
        await self.note_call(name, "trigger", job, "", lambda: client.call(request))

    async def once(self, name: str, client: AsyncClient, dice: random.Random) -> None:
        """A job for one instant: acknowledged, it has to happen."""
        self.numbers += 1
        job, value = f"{jobs.ONCE}-{self.numbers:08d}", f"{name}-{self.numbers}"
        due_ms = int(1000 * (time.time() + 4 * dice.random()))
        self.last_due_ms = max(self.last_due_ms, due_ms)
        request = job_pb2.CreateJobRequest(job=jobs.valued(job, value))
        request.job.spec.schedules.add().once.time.FromMilliseconds(due_ms)
        outcome = await self.note_call(name, "create", job, value, lambda: client.call(request))
        if outcome == OK:
            self.journal.add(
                RecurringJob(job, due_ms, due_ms, due_ms, jobs.ATTEMPTS, must_run=True)
            )

    async def rest(self, dice: random.Random) -> None:
        """Pause recurring jobs and let them go on, again and again."""
        async with AsyncClient(self.endpoints, timeout=DEADLINE_S, token=self.token) as client:
            while not self.stopping:
                job = dice.choice(jobs.RESTS)
                pause = job_pb2.PauseJobRequest(job=job, reason="chaos")
                await self.note_call("r", "pause", job, "", partial(client.call, pause))
                await asyncio.sleep(1 + 2 * dice.random())
                await self.resume(client, job)
                await asyncio.sleep(dice.random())

    async def resume(self, client: AsyncClient, job: str) -> None:
        """Until it is done, since all are to be awake at the end."""
        limit = time.monotonic() + RESUME_S
        request = job_pb2.ResumeJobRequest(job=job)
        while time.monotonic() < limit:
            now = str(time.time_ns() // 1_000_000)
            if await self.note_call("r", "resume", job, now, lambda: client.call(request)) == OK:
                return
            await asyncio.sleep(0.1)
        raise ProcessFailed(f"{job} could not be resumed within {RESUME_S:.0f} s")

    async def note_call(
        self,
        name: str,
        what: str,
        job: str,
        value: str,
        call: Callable[[], Awaitable[Message]],
    ) -> str:
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
            elif what == "pause":
                value = str(time.time_ns() // 1_000_000)
        except RaftschedError as error:
            outcome, reason = outcome_of(what, error), error.reason or type(error).__name__
            if what == "get" and error.reason == "JOB_NOT_FOUND":
                outcome = OK
        ended = time.monotonic()
        self.journal.add(
            ClientCall(name, what, job, began, ended, DEADLINE_S, outcome, value, reason)
        )
        return outcome

    # The probe.

    async def probe(self) -> None:
        """Open loop: a write every few milliseconds, whatever became of the ones before."""
        under_way: set[asyncio.Task[None]] = set()
        async with AsyncClient(
            self.endpoints, timeout=PROBE_DEADLINE_S, token=self.token
        ) as client:
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
        request = job_pb2.UpdateJobRequest(job=jobs.valued(jobs.PROBE, str(number)))
        request.update_mask.paths.append("spec.payload")
        began, ok = time.monotonic(), True
        try:
            await client.call(request)
        except RaftschedError:
            ok = False
        self.journal.add(Probe(began, time.monotonic() - began, ok, number))


def outcome_of(what: str, error: RaftschedError) -> str:
    if isinstance(error, CallerError | Unavailable):
        return REFUSED
    assert isinstance(error, OutcomeUnknown), error
    return UNKNOWN
