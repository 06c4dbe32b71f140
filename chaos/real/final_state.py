"""What the cluster shows when all faults are over: its records, runs, ledgers and copies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable

from ...client import AsyncClient, RaftschedError
from ...cluster.local.nodes import NodeProcesses
from ...cluster.local.process import ProcessFailed
from ...proto.v1 import cluster_pb2, job_pb2, namespace_pb2, run_pb2
from .history import Copy, FinalJob, FinalOutcome, FinalRun, Verified

PAGE = 1_000
QUIET_S = 120.0  # For what is under way to end: workers may have stalled past their leases.
LEVEL_S = 60.0
VERIFY_S = 600.0  # A herd leaves some million records, and the machine may be busy.
CALL_S = 30.0
# Without a state, only what is under way is listed.
ENDED = ("", "SUCCEEDED", "FAILED", "CANCELLED", "SKIPPED")
State = run_pb2.RunState
END = run_pb2.Attempt.End


async def until_quiet(client: AsyncClient) -> None:
    """Return when no run is under way, or when they have not become fewer for long."""
    limit, fewest = time.monotonic() + QUIET_S, 1 << 62
    while True:
        namespace = await client.call(
            namespace_pb2.GetNamespaceRequest(namespace="default"), timeout=CALL_S
        )
        if not namespace.usage.live_runs:
            return
        if namespace.usage.live_runs < fewest:
            limit, fewest = time.monotonic() + QUIET_S, namespace.usage.live_runs
        if time.monotonic() > limit:
            # It is checked, not hidden: the check of ended runs will name them.
            return
        await asyncio.sleep(0.1)


async def until_fired(client: AsyncClient, names: Iterable[str], until_ms: int) -> None:
    """Return when nothing that was due by then waits to be fired, or after long."""
    limit = time.monotonic() + QUIET_S
    for name in names:
        while time.monotonic() < limit:
            job = await client.call(job_pb2.GetJobRequest(job=name), timeout=CALL_S)
            if job.status.next_scheduled_time.ToMilliseconds() > until_ms:
                break
            await asyncio.sleep(0.1)


async def jobs(client: AsyncClient) -> AsyncIterator[FinalJob]:
    token = ""
    while True:
        page = await client.call(
            job_pb2.ListJobsRequest(page_size=PAGE, page_token=token), timeout=CALL_S
        )
        for job in page.jobs:
            if job.status.state == job_pb2.JobStatus.STATE_DELETING:
                # It goes in steps, behind what else can wait; no call finds it any more.
                continue
            yield FinalJob(job.name, job.spec.payload.data.decode())
        token = page.next_page_token
        if not token:
            return


async def runs(client: AsyncClient, job: str) -> AsyncIterator[FinalRun]:
    token = ""
    while True:
        request = job_pb2.ListJobHistoryRequest(job=job, page_size=PAGE, page_token=token)
        page = await client.call(request, timeout=CALL_S)
        for run in page.runs:
            yield seen(run)
        token = page.next_page_token
        if not token:
            return


async def herd_runs(client: AsyncClient, name: str) -> AsyncIterator[FinalRun | FinalOutcome]:
    """The runs of many jobs with a name in common, and what each says became of its time."""
    for state in ENDED:
        token = ""
        while True:
            wanted = f"job={name}-*" + (f" AND state={state}" if state else "")
            request = run_pb2.ListRunsRequest(filter=wanted, page_size=PAGE, page_token=token)
            page = await client.call(request, timeout=CALL_S)
            for run in page.runs:
                found = seen(run)
                yield found
                word = run_pb2.Outcome.Name(run.outcome).removeprefix("OUTCOME_")
                yield FinalOutcome(run.job, found.scheduled_ms, found.scheduled_ms, word)
            token = page.next_page_token
            if not token:
                break


def seen(run: run_pb2.Run) -> FinalRun:
    attempts = tuple((a.token, END.Name(a.end).removeprefix("END_")) for a in run.attempts)
    return FinalRun(
        run.id, run.job, State.Name(run.state).removeprefix("RUN_STATE_"),
        run.scheduled_time.ToMilliseconds(), run.due_time.ToMilliseconds(), run.attempt,
        attempts, scheduled=run.cause != run_pb2.CAUSE_TRIGGER,
    )  # fmt: skip


async def outcomes(client: AsyncClient, job: str) -> AsyncIterator[FinalOutcome]:
    token = ""
    while True:
        request = job_pb2.ListJobLedgerRequest(job=job, page_size=PAGE, page_token=token)
        page = await client.call(request, timeout=CALL_S)
        for entry in page.entries:
            first = entry.scheduled_time.ToMilliseconds()
            last = (
                entry.last_scheduled_time.ToMilliseconds()
                if entry.HasField("last_scheduled_time")
                else first
            )
            word = run_pb2.Outcome.Name(entry.outcome).removeprefix("OUTCOME_")
            yield FinalOutcome(job, first, last, word)
        token = page.next_page_token
        if not token:
            return


async def copies(nodes: NodeProcesses, token: str | None = None) -> list[Copy]:
    """The state of each node, once all have the same revision."""
    limit = time.monotonic() + LEVEL_S
    while True:
        found = [copy async for copy in _copies(nodes, token)]
        level = len({copy.revision for copy in found}) == 1 and len(found) == len(nodes)
        if level:
            return found
        if time.monotonic() > limit:
            raise ProcessFailed(f"the nodes did not come level within {LEVEL_S:.0f} s: {found}")
        await asyncio.sleep(0.1)


async def _copies(nodes: NodeProcesses, token: str | None) -> AsyncIterator[Copy]:
    for node in nodes:
        async with AsyncClient(node.client, timeout=5.0, token=token) as client:
            try:
                status = await client.call(cluster_pb2.GetClusterStatusRequest())
            except RaftschedError:
                continue
        yield Copy(node.name, status.revision, status.fingerprint)


async def verified(nodes: NodeProcesses, token: str | None = None) -> list[Verified]:
    """What each node finds in its own state."""
    found = []
    for node in nodes:
        async with AsyncClient(node.client, timeout=VERIFY_S, token=token) as client:
            answer = await client.call(cluster_pb2.VerifyStateRequest())
        found.append(Verified(node.name, answer.records, tuple(answer.differences)))
    return found


async def pause(client: AsyncClient, names: Iterable[str]) -> None:
    for name in names:
        await client.call(job_pb2.PauseJobRequest(job=name, reason="the end"), timeout=CALL_S)
