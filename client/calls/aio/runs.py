# Made from the contracts and catalog.toml by generate.py; write there.
"""Look at runs, and end them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, Unpack

from ....proto.v1 import common_pb2, run_pb2
from ...sdk.options import ReadOptions, Writing
from ...sdk.ranges import made
from ...sdk.values import Length, ListCount, choice, duration
from .run import AsyncRun
from .runs_by_hand import AsyncRunsByHand


class AsyncRuns(AsyncRunsByHand):
    """Look at runs, and end them."""

    async def get(self, run: str, **options: Unpack[ReadOptions]) -> AsyncRun:
        """Show a run.

        run = await client.runs.get("report.17.1763456400000")
        """
        request = made(run_pb2.GetRunRequest, run=run)
        return await self._run(request, options)

    async def count(self, filter: str = "", **options: Unpack[ReadOptions]) -> ListCount:
        """How many runs are under way, or fit the filter.

        print((await client.runs.count("state=FAILED AND kind=ValueError")).number)
        """
        request = made(run_pb2.ListRunsRequest, filter=filter)
        return await self._count(request, options)

    def list(
        self,
        filter: str = "",
        *,
        order_by: str = "",
        limit: int | None = None,
        **options: Unpack[ReadOptions],
    ) -> AsyncIterator[AsyncRun]:
        """List the runs of a namespace: those under way, or, where the filter speaks of `state`,
        all that fit it; in the order of `order_by`. Without that, newest first are those under
        way, dead letters, and the runs of one job (`job=report`); where a filter lets both pass,
        those under way come before those that have ended, and others that have ended lie together
        by job. Filter fields: `state`, `job`, `labels.…` (its own, else of its job), `handler`,
        `queue`, `priority`, `worker` (that has it), `last_worker` (that has it or had it last),
        `flow`, `unique_key`, `concurrency_key`, `kind` and `error` (kind and message of the
        error), `warning` (`warning!=""`: any), `outcome`, `cause`, `attempt`, `scheduled_time`,
        `due_time`, `start_time`, `end_time`. Cheap are one job with a range of scheduled times,
        and dead letters with a range of end times.

        async for run in client.runs.list("state=FAILED AND job=report", limit=10):
            print(run.id)
        """
        request = made(run_pb2.ListRunsRequest, filter=filter, order_by=order_by)
        return self._runs(request, limit, options)

    async def cancel(
        self, run: str, reason: str = "", *, grace: Length | None = None, **options: Unpack[Writing]
    ) -> AsyncRun:
        """End a run: one that waits at once, a running one through its worker, which is notified
        and has the given time.

        await client.runs.cancel("report.17.1763456400000", "wrong day")
        """
        request = made(run_pb2.CancelRunRequest, run=run, reason=reason, grace=duration(grace))
        return await self._run(request, options)

    async def change_all(
        self,
        change: Literal["cancel", "terminate", "retry"],
        filter: str,
        reason: str = "",
        *,
        grace: Length | None = None,
        **options: Unpack[Writing],
    ) -> common_pb2.BulkChange:
        """Do the same to all runs under way that fit a filter (an empty one: all), each alone.
        The answer counts them, and names some; with `validate_only` it counts what fits.

        done = await client.runs.change_all("cancel", "job=report AND state=PENDING")
        print(done.changed)
        """
        request = made(
            run_pb2.ChangeRunsRequest,
            change=choice(run_pb2.ChangeRunsRequest.Change, "CHANGE_", change),
            filter=filter,
            reason=reason,
            grace=duration(grace),
        )
        return await self._change_all(request, options)

    async def terminate(self, run: str, reason: str = "", **options: Unpack[Writing]) -> AsyncRun:
        """End a run now, without asking its worker: the lease ends with it.

        await client.runs.terminate("report.17.1763456400000")
        """
        request = made(run_pb2.TerminateRunRequest, run=run, reason=reason)
        return await self._run(request, options)

    async def retry(self, run: str, **options: Unpack[Writing]) -> AsyncRun:
        """Begin the next attempt of a RETRYING run now instead of later.

        await client.runs.retry("report.17.1763456400000")
        """
        request = made(run_pb2.RetryRunRequest, run=run)
        return await self._run(request, options)

    async def explain(self, run: str, **options: Unpack[ReadOptions]) -> run_pb2.Explanation:
        """Why a run has not started or does not go on.

        print((await client.runs.explain("report.17.1763456400000")).summary)
        """
        request = made(run_pb2.ExplainRunRequest, run=run)
        return await self._send(request, run_pb2.Explanation, options)
