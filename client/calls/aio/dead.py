"""Dead letters and flows: what went wrong, and what depends on what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Unpack

from ....proto.v1 import dead_letter_pb2, flow_pb2, run_pb2
from ...sdk import values
from ...sdk.options import ReadOptions, Writing
from .runs import AsyncRun
from .service import AsyncService


class AsyncDeadLetters(AsyncService):
    """Runs that used up their attempts, and wait for a person."""

    async def get(self, run: str, **options: Unpack[ReadOptions]) -> AsyncRun:
        """Show one.

        print((await client.dead.get("report.17.1763456400000")).message.error)
        """
        return await self._run(dead_letter_pb2.GetDeadLetterRequest(run=run), options)

    async def count(self, filter: str = "", **options: Unpack[ReadOptions]) -> values.ListCount:
        """How many dead letters there are, all or those that the filter names.

        print((await client.dead.count("kind=ValueError")).number)
        """
        return await self._count(dead_letter_pb2.ListDeadLettersRequest(filter=filter), options)

    async def list(
        self, filter: str = "", *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> AsyncIterator[AsyncRun]:
        """The dead letters, newest first.

        async for run in client.dead.list("kind=ValueError"):
            print(run.id)
        """
        request = dead_letter_pb2.ListDeadLettersRequest(filter=filter)
        async for run in self._items(request, "runs", limit, options):
            yield AsyncRun(self._client, run)

    async def edit(self, run: str, payload: object, **options: Unpack[Writing]) -> AsyncRun:
        """Change the payload, so that the next try may succeed.

        await client.dead.edit("report.17.1763456400000", {"to": "anna"})
        """
        request = dead_letter_pb2.EditDeadLetterRequest(run=run, payload=values.payload(payload))
        return await self._run(request, options)

    async def requeue(self, run: str, **options: Unpack[Writing]) -> AsyncRun:
        """Let one run again.

        await (await client.dead.requeue("report.17.1763456400000")).wait(timeout=60)
        """
        return await self._run(dead_letter_pb2.RequeueDeadLetterRequest(run=run), options)

    async def requeue_all(self, filter: str = "", **options: Unpack[Writing]) -> int:
        """Let all run again that the filter names; how many that were.

        print(await client.dead.requeue_all("job=report"))
        """
        request = dead_letter_pb2.RequeueDeadLettersRequest(filter=filter)
        return await self._all(request, "requeued", options)

    async def purge(self, filter: str = "", **options: Unpack[Writing]) -> int:
        """Forget all that the filter names; how many that were.

        print(await client.dead.purge("job=old-report"))
        """
        request = dead_letter_pb2.PurgeDeadLettersRequest(filter=filter)
        return await self._all(request, "purged", options)

    async def _all(self, request: Any, counted: str, options: Writing) -> int:  # noqa: ANN401
        """The cluster does a thousand at a time; on trial it can only speak of the first."""
        request_id, done, steps = options.pop("request_id", ""), 0, 0
        while True:
            if request_id:
                options["request_id"] = f"{request_id}.{steps}"
            answer: Any = await self._send(request, ANSWERS[counted], options)
            done, steps = done + int(getattr(answer, counted)), steps + 1
            if not answer.more or options.get("validate_only"):
                return done

    async def _run(self, request: Any, options: ReadOptions | Writing) -> AsyncRun:  # noqa: ANN401
        return AsyncRun(self._client, await self._send(request, run_pb2.Run, options))


ANSWERS: dict[str, Any] = {
    "requeued": dead_letter_pb2.RequeueDeadLettersResponse,
    "purged": dead_letter_pb2.PurgeDeadLettersResponse,
}


class AsyncFlows(AsyncService):
    """Waves through jobs that depend on each other."""

    async def get(self, flow: str, **options: Unpack[ReadOptions]) -> flow_pb2.Flow:
        """Show a wave.

        for step in (await client.flows.get("extract.4.1763456400000")).steps:
            print(step.job, step.run, step.because)
        """
        return await self._send(flow_pb2.GetFlowRequest(flow=flow), flow_pb2.Flow, options)

    def list(
        self, filter: str = "", *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> AsyncIterator[flow_pb2.Flow]:
        """The waves, newest first.

        async for flow in client.flows.list("state=STUCK"):
            print(flow.id)
        """
        return self._items(flow_pb2.ListFlowsRequest(filter=filter), "flows", limit, options)

    async def graph(self, job: str, **options: Unpack[ReadOptions]) -> flow_pb2.Graph:
        """All jobs that a job depends on, and all that depend on it.

        print((await client.flows.graph("load")).jobs)
        """
        return await self._send(flow_pb2.GetGraphRequest(job=job), flow_pb2.Graph, options)
