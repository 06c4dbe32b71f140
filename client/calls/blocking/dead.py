# Made from aio/dead.py by calls/generate.py; write there.
"""Runs that used up their attempts, and wait for a person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from ....proto.v1 import dead_letter_pb2
from ...sdk import values
from ...sdk.options import ReadOptions, Writing
from ...sdk.ranges import made
from ...sdk.values import ListCount
from .run import Run
from .service import Service


class DeadLetters(Service):
    """Runs that used up their attempts, and wait for a person."""

    def get(self, run: str, **options: Unpack[ReadOptions]) -> Run:
        """Show one.

        print(client.dead.get("report.17.1763456400000").message.error)
        """
        request = made(dead_letter_pb2.GetDeadLetterRequest, run=run)
        return self._run(request, options)

    def count(self, filter: str = "", **options: Unpack[ReadOptions]) -> ListCount:
        """How many dead letters there are, all or those that the filter names.

        print(client.dead.count("kind=ValueError").number)
        """
        request = made(dead_letter_pb2.ListDeadLettersRequest, filter=filter)
        return self._count(request, options)

    def list(
        self, filter: str = "", *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> Iterator[Run]:
        """List them, newest first. Filter fields: those of ListRuns.

        for run in client.dead.list("kind=ValueError"):
            print(run.id)
        """
        request = made(dead_letter_pb2.ListDeadLettersRequest, filter=filter)
        return self._runs(request, limit, options)

    def edit(self, run: str, payload: object, **options: Unpack[Writing]) -> Run:
        """Change the payload, so that the next try may succeed.

        client.dead.edit("report.17.1763456400000", {"to": "anna"})
        """
        request = made(
            dead_letter_pb2.EditDeadLetterRequest, run=run, payload=values.payload(payload)
        )
        return self._run(request, options)

    def requeue(self, run: str, **options: Unpack[Writing]) -> Run:
        """Let one run again: it becomes PENDING, with fresh attempts and the same id; attempt
        numbers and tokens go on. It does what its job says now, by the job's present limits,
        retries and timeouts, but in the queue and with the priority that it had, which may be
        those of its trigger. In a flow what depends on it may run after all when it ends; until
        then its earlier end counts. It takes its business key again. Unless it was triggered with
        force it waits for the resume of a paused job, and where the overlap policy or the quota
        allows no more runs under way; it takes the place of none, and while it is held back it
        gives way to none.

        client.dead.requeue("report.17.1763456400000").wait(timeout=60)
        """
        request = made(dead_letter_pb2.RequeueDeadLetterRequest, run=run)
        return self._run(request, options)

    def requeue_all(self, filter: str = "", **options: Unpack[Writing]) -> int:
        """Let all run again that the filter names; how many that were.

        print(client.dead.requeue_all("job=report"))
        """
        request = made(dead_letter_pb2.RequeueDeadLettersRequest, filter=filter)
        return self._sum(request, dead_letter_pb2.RequeueDeadLettersResponse, "requeued", options)

    def purge(self, filter: str = "", **options: Unpack[Writing]) -> int:
        """Forget all that the filter names; how many that were.

        print(client.dead.purge("job=old-report"))
        """
        request = made(dead_letter_pb2.PurgeDeadLettersRequest, filter=filter)
        return self._sum(request, dead_letter_pb2.PurgeDeadLettersResponse, "purged", options)
