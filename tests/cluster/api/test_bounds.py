"""What callers cannot make a node hold, look through or ask again and again."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from raftsched.cluster.api import rates, worker_frames, worker_stream
from raftsched.cluster.api.rates import CallRates
from raftsched.proto.v1 import (
    job_pb2,
    namespace_pb2,
    run_pb2,
    run_pb2_grpc,
    worker_pb2,
)

from .conftest import Served, Start
from .talk import Anything, create, refused, until
from .test_auth import jobs
from .test_worker_stream import trigger
from .worker import Worker


def waiting(served: Served) -> int:
    """Bytes of results that wait for a change."""
    sessions = served.node.sessions.by_worker.values()
    return sum(result.ByteSize() for session in sessions for result in session.results)


async def test_results_that_no_change_takes_are_not_read(start: Start) -> None:
    served = await start("a")
    worker = await Worker(served.channel).hello()
    large = worker_pb2.Success()
    large.result.data = bytes(60_000)
    # From here on the disks of a majority do not answer.
    served.node.driver.held = []
    frames = [
        [
            worker_pb2.Result(run="report.1.1", token=40 * frame + n, success=large)
            for n in range(40)
        ]
        for frame in range(20)
    ]

    async def say() -> None:
        for results in frames:
            await worker.send(results=results)

    saying = asyncio.ensure_future(say())
    await until(lambda: served.server.work.unprocessed.total > worker_stream.UNPROCESSED_MAX)
    for _ in range(100):
        await asyncio.sleep(0.001)
        assert waiting(served) < worker_stream.UNPROCESSED_MAX + 2 * worker_frames.FRAME_MAX
    served.node.driver.release()
    await saying
    await worker.until(lambda: len(worker.acks) == 800, seconds=30)
    # The frame that was read last counts until the next one, or the end.
    await worker.call.done_writing()
    await worker.ended()
    await until(lambda: served.server.work.unprocessed.total == 0)


async def test_what_is_not_read_stays_with_the_worker(start: Start) -> None:
    """Of a fast worker gRPC would take many frames ahead of who reads them, if it were let."""
    served = await start("a")
    worker = await Worker(served.channel).hello()
    large = worker_pb2.Success()
    large.result.data = bytes(60_000)
    results = [worker_pb2.Result(run="report.1.1", token=n, success=large) for n in range(40)]

    for _ in range(30):
        await worker.send(results=results)
    await worker.until(lambda: len(worker.acks) == 30 * 40, seconds=30)
    # From here on a change is on its way, and what the worker says waits for it.
    served.node.driver.held = []
    job = asyncio.ensure_future(jobs(served).CreateJob(create("report")))
    await until(lambda: served.node.driver.held)
    # One frame is read; of the next one comes what anybody may send unasked.
    await worker.send(results=results)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await worker.send(results=results)
    served.node.driver.release()
    await job


async def test_namespaces_that_are_not_there_push_no_bucket_out(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "BUCKETS", 10)
    monkeypatch.setattr(CallRates.__init__, "__defaults__", (lambda: 100.0,))
    served = await start("a")
    quota = namespace_pb2.Quota(calls_per_second=1)
    team = namespace_pb2.Namespace(name="team", quota=quota)
    await served.node.write(namespace_pb2.CreateNamespaceRequest(namespace=team), "", 5)
    await jobs(served).ListJobs(job_pb2.ListJobsRequest(namespace="team"))
    for number in range(20):
        await refused(jobs(served).ListJobs(job_pb2.ListJobsRequest(namespace=f"x{number}")))
    found = await refused(jobs(served).ListJobs(job_pb2.ListJobsRequest(namespace="team")))
    assert found.reason == "RATE_LIMITED"


async def test_whoever_waits_for_a_run_is_not_asked_about_others(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await start("a")
    await trigger(served.node, 2)
    worker = await Worker(served.channel).hello(credits=2)
    await worker.until(lambda: len(worker.leases) == 2)
    first, second = worker.leases
    runs: Anything = run_pb2_grpc.RunServiceStub(served.channel)
    asked = asyncio.ensure_future(runs.WaitRun(run_pb2.WaitRunRequest(run=first.run)))
    await until(lambda: served.server.shares.waits.total)
    reads: list[object] = []
    read = served.node.read

    def note(*arguments: Anything) -> Anything:
        reads.append(arguments)
        return read(*arguments)

    monkeypatch.setattr(served.node, "read", note)
    for number in range(20):
        await trigger(served.node, 1, f"other-{number}")
    await worker.succeed(second)
    await worker.until(lambda: len(worker.acks) == 1)
    assert reads == []
    await worker.succeed(first)
    assert cast(run_pb2.Run, await asked).state == run_pb2.RUN_STATE_SUCCEEDED
    assert len(reads) == 1


async def test_one_caller_computes_one_forecast_at_a_time(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await start("a")
    await trigger(served.node, 1)
    served.node.read_gate.clear()
    asked = job_pb2.ForecastFiringsRequest()
    first = asyncio.ensure_future(jobs(served).ForecastFirings(asked))
    await asyncio.wait_for(served.node.waits.wait(), 60)
    found = await refused(jobs(served).ForecastFirings(asked))
    assert (found.reason, found.values["limit"]) == ("NODE_LIMIT", "costly_reads")
    # One that is kept is counted for all who look.
    asked.max_age.FromSeconds(60)
    kept = asyncio.ensure_future(jobs(served).ForecastFirings(asked))
    served.node.read_gate.set()
    # They may be refused for what they ask, not for a limit.
    await asyncio.wait([first, kept])
    assert "costly_reads" not in f"{first.exception()} {kept.exception()}"
