"""Long chains, wide flows and many lanes on real nodes: nothing stands still for them.

What is promised in seconds is given ten times that: other tests want the cores as well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest

from raftsched.proto.v1 import (
    flow_pb2,
    flow_pb2_grpc,
    job_pb2,
    job_pb2_grpc,
    queue_pb2,
    queue_pb2_grpc,
    run_pb2,
    worker_pb2,
    worker_pb2_grpc,
)

from .processes import Cluster, cluster, crowd

Reply = TypeVar("Reply")
PIECE = 200
CALL_S = 60.0
LOOK_S = 0.2
PATIENCE = 10.0  # Times what is promised.


class Caller:
    """Calls to whoever leads, made again until they are answered."""

    def __init__(self, running: Cluster) -> None:
        self.running = running
        self.channels: dict[str, grpc.aio.Channel] = {}

    async def ask(
        self, service: Callable[[Any], Any], method: str, request: object, kind: type[Reply]
    ) -> Reply:
        began = time.monotonic()
        while True:
            name = await self.running.ready()
            if name not in self.channels:
                self.channels[name] = grpc.aio.insecure_channel(self.running.address(name))
            try:
                call = getattr(service(self.channels[name]), method)
                answer = await call(request, timeout=CALL_S)
                assert isinstance(answer, kind), answer
                return answer
            except grpc.aio.AioRpcError as error:
                if time.monotonic() - began > CALL_S * crowd():
                    raise AssertionError(f"{method} is not answered") from error
                await asyncio.sleep(LOOK_S)

    async def create(self, jobs: list[job_pb2.Job]) -> None:
        for first in range(0, len(jobs), PIECE):
            some = jobs[first : first + PIECE]
            request = job_pb2.ImportJobsRequest(jobs=some, request_id=f"{jobs[0].name}-{first}")
            answer = await self.ask(
                job_pb2_grpc.JobServiceStub, "ImportJobs", request, job_pb2.ImportJobsResponse
            )
            wrong = [one for one in answer.results if one.reason]
            assert not wrong, wrong[:3]

    async def trigger(self, job: str) -> str:
        request = job_pb2.TriggerJobRequest(job=job, request_id=f"run-{job}")
        run = await self.ask(job_pb2_grpc.JobServiceStub, "TriggerJob", request, run_pb2.Run)
        return run.flow

    async def end(self, worker: str, *, well: bool) -> None:
        """Lease one run and say how it ended."""
        hello = worker_pb2.WorkerHello(worker=worker, queues=["root"])
        request = worker_pb2.LeaseRequest(hello=hello, maximum=1, request_id=f"lease-{worker}")
        stub = worker_pb2_grpc.WorkerServiceStub
        [lease] = (await self.ask(stub, "Lease", request, worker_pb2.LeaseResponse)).leases
        if well:
            done = worker_pb2.CompleteRequest(run=lease.run, token=lease.token)
            await self.ask(stub, "Complete", done, worker_pb2.CompleteResponse)
        else:
            failed = worker_pb2.FailRequest(run=lease.run, token=lease.token)
            failed.failure.fatal = True
            await self.ask(stub, "Fail", failed, worker_pb2.FailResponse)

    async def until(self, reached: Callable[[], Awaitable[bool]], seconds: float) -> float:
        """Look now and then whether it is so; the seconds it took."""
        began = time.monotonic()
        while not await reached():
            taken = time.monotonic() - began
            assert taken < seconds * PATIENCE * crowd(), f"not after {taken:.1f} s"
            await asyncio.sleep(LOOK_S)
        return time.monotonic() - began

    async def has_ended(self, flow: str) -> bool:
        request = flow_pb2.GetFlowRequest(flow=flow)
        found = await self.ask(flow_pb2_grpc.FlowServiceStub, "GetFlow", request, flow_pb2.Flow)
        return found.HasField("end_time")


@asynccontextmanager
async def three(folder: Path) -> AsyncIterator[Caller]:
    async with cluster(folder) as running:
        caller = Caller(running)
        try:
            yield caller
        finally:
            for channel in caller.channels.values():
                await channel.close()


def job(name: str, after: Iterable[str] = (), queue: str = "") -> job_pb2.Job:
    made = job_pb2.Job(name=name)
    made.spec.action.handler = "work"
    made.spec.queue = queue
    for upstream in after:
        made.spec.upstream.jobs.add(job=upstream)
    return made


@pytest.mark.slow
async def test_a_chain_of_five_thousand_is_imported_and_its_root_fails(tmp_path: Path) -> None:
    chain = [job("job-0", queue="root")]
    chain += [job(f"job-{n}", [f"job-{n - 1}"]) for n in range(1, 5_000)]
    async with three(tmp_path) as caller:
        began = time.monotonic()
        await caller.create(chain)
        imported = time.monotonic() - began
        flow = await caller.trigger("job-0")
        began = time.monotonic()
        await caller.end("w", well=False)
        acknowledged = time.monotonic() - began

        async def settled() -> bool:
            return await caller.has_ended(flow)

        taken = await caller.until(settled, 10)

    assert imported < 5 * PATIENCE * crowd(), imported
    assert acknowledged < PATIENCE * crowd(), acknowledged
    assert taken < 10 * PATIENCE * crowd(), taken


@pytest.mark.slow
async def test_twenty_five_thousand_jobs_wait_for_one_and_begin(tmp_path: Path) -> None:
    wide = [job("root", queue="root")]
    wide += [job(f"job-{n}", ["root"], "wide") for n in range(25_000)]
    async with three(tmp_path) as caller:
        await caller.create(wide)
        await caller.trigger("root")
        await caller.end("w", well=True)

        async def all_ready() -> bool:
            request = queue_pb2.GetQueueRequest(queue="wide")
            stub = queue_pb2_grpc.QueueServiceStub
            found = await caller.ask(stub, "GetQueue", request, queue_pb2.Queue)
            return found.ready == 25_000

        taken = await caller.until(all_ready, 10)

    assert taken < 10 * PATIENCE * crowd(), taken


@pytest.mark.slow
async def test_ten_thousand_lanes_do_not_slow_a_change_down(tmp_path: Path) -> None:
    lanes = []
    for number in range(10_000):
        one = job(f"job-{number}")
        one.spec.worker_labels["host"] = f"host-{number}"
        lanes.append(one)
    async with three(tmp_path) as caller:

        async def rounds(name: str) -> float:
            await caller.create([job(f"{name}-{n}", queue="root") for n in range(20)])
            began = time.monotonic()
            for number in range(20):
                await caller.trigger(f"{name}-{number}")
                await caller.end(f"{name}-w{number}", well=True)
            return time.monotonic() - began

        before = await rounds("before")
        await caller.create(lanes)
        after = await rounds("after")

    assert after < PATIENCE * before * crowd(), (before, after)
