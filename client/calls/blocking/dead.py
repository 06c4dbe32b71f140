# Made from aio/dead.py by generate.py; write there.
"""Dead letters and flows: what went wrong, and what depends on what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Unpack

from ....proto.v1 import dead_letter_pb2, flow_pb2, run_pb2
from ...sdk import values
from ...sdk.options import ReadOptions, Writing
from .runs import Run
from .service import Service


class DeadLetters(Service):
    """Runs that used up their attempts, and wait for a person."""

    def get(self, run: str, **options: Unpack[ReadOptions]) -> Run:
        """Show one.

        print(client.dead.get("report.17.1763456400000").message.error)
        """
        return self._run(dead_letter_pb2.GetDeadLetterRequest(run=run), options)

    def count(self, filter: str = "", **options: Unpack[ReadOptions]) -> values.ListCount:
        """How many dead letters there are, all or those that the filter names.

        print(client.dead.count("kind=ValueError").number)
        """
        return self._count(dead_letter_pb2.ListDeadLettersRequest(filter=filter), options)

    def list(
        self, filter: str = "", *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> Iterator[Run]:
        """The dead letters, newest first.

        for run in client.dead.list("kind=ValueError"):
            print(run.id)
        """
        request = dead_letter_pb2.ListDeadLettersRequest(filter=filter)
        for run in self._items(request, "runs", limit, options):
            yield Run(self._client, run)

    def edit(self, run: str, payload: object, **options: Unpack[Writing]) -> Run:
        """Change the payload, so that the next try may succeed.

        client.dead.edit("report.17.1763456400000", {"to": "anna"})
        """
        request = dead_letter_pb2.EditDeadLetterRequest(run=run, payload=values.payload(payload))
        return self._run(request, options)

    def requeue(self, run: str, **options: Unpack[Writing]) -> Run:
        """Let one run again.

        client.dead.requeue("report.17.1763456400000").wait(timeout=60)
        """
        return self._run(dead_letter_pb2.RequeueDeadLetterRequest(run=run), options)

    def requeue_all(self, filter: str = "", **options: Unpack[Writing]) -> int:
        """Let all run again that the filter names; how many that were.

        print(client.dead.requeue_all("job=report"))
        """
        request = dead_letter_pb2.RequeueDeadLettersRequest(filter=filter)
        return self._all(request, "requeued", options)

    def purge(self, filter: str = "", **options: Unpack[Writing]) -> int:
        """Forget all that the filter names; how many that were.

        print(client.dead.purge("job=old-report"))
        """
        request = dead_letter_pb2.PurgeDeadLettersRequest(filter=filter)
        return self._all(request, "purged", options)

    def _all(self, request: Any, counted: str, options: Writing) -> int:  # noqa: ANN401
        """The cluster does a thousand at a time; on trial it can only speak of the first."""
        request_id, done, steps = options.pop("request_id", ""), 0, 0
        while True:
            if request_id:
                options["request_id"] = f"{request_id}.{steps}"
            answer: Any = self._send(request, ANSWERS[counted], options)
            done, steps = done + int(getattr(answer, counted)), steps + 1
            if not answer.more or options.get("validate_only"):
                return done

    def _run(self, request: Any, options: ReadOptions | Writing) -> Run:  # noqa: ANN401
        return Run(self._client, self._send(request, run_pb2.Run, options))


ANSWERS: dict[str, Any] = {
    "requeued": dead_letter_pb2.RequeueDeadLettersResponse,
    "purged": dead_letter_pb2.PurgeDeadLettersResponse,
}


class Flows(Service):
    """Waves through jobs that depend on each other."""

    def get(self, flow: str, **options: Unpack[ReadOptions]) -> flow_pb2.Flow:
        """Show a wave.

        for step in client.flows.get("extract.4.1763456400000").steps:
            print(step.job, step.run, step.because)
        """
        return self._send(flow_pb2.GetFlowRequest(flow=flow), flow_pb2.Flow, options)

    def list(
        self, filter: str = "", *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> Iterator[flow_pb2.Flow]:
        """The waves, newest first.

        for flow in client.flows.list("state=STUCK"):
            print(flow.id)
        """
        return self._items(flow_pb2.ListFlowsRequest(filter=filter), "flows", limit, options)

    def graph(self, job: str, **options: Unpack[ReadOptions]) -> flow_pb2.Graph:
        """All jobs that a job depends on, and all that depend on it.

        print(client.flows.graph("load").jobs)
        """
        return self._send(flow_pb2.GetGraphRequest(job=job), flow_pb2.Graph, options)
