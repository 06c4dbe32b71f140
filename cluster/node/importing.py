"""Calls that may be long, on their way through the loop: asked part by part, answered once."""

from __future__ import annotations

from collections.abc import Callable

from ...proto.v1 import dead_letter_pb2, job_pb2, run_pb2
from ...statemachine.calls import imports
from ...statemachine.core.rejection import Rejection
from ...statemachine.model.request import Bulk, Imported, ImportSome, Letters
from .pending import PendingRequest

OF_LETTERS = (
    dead_letter_pb2.RequeueDeadLettersRequest, dead_letter_pb2.PurgeDeadLettersRequest,
)  # fmt: skip

OF_BULK = (job_pb2.ChangeJobsRequest, run_pb2.ChangeRunsRequest)
DIVIDED = (job_pb2.ImportJobsRequest, *OF_LETTERS, *OF_BULK)


def divide(part: PendingRequest, go_on: Callable[[PendingRequest, object], None]) -> None:
    """Have a call that may be long decided part by part; `go_on` has the rest of it decided."""
    body, answer, unknown = part.body, part.answer, part.unknown

    # What goes on with a part holds it, and the part holds that: in the end it must let go, else
    # the request stays until the collector looks.
    def last(reply: object) -> None:
        part.answer = answer
        answer(reply)

    def lost() -> None:
        part.answer = answer
        unknown()

    if isinstance(body, job_pb2.ImportJobsRequest):
        importing = Importing(body, last, lost, lambda rest: go_on(part, rest))
        part.body, part.answer = importing.rest, importing.answer
    else:

        def look_on(reply: object) -> None:
            if isinstance(reply, Letters | Bulk):
                go_on(part, reply)
            else:
                last(reply)

        if isinstance(body, OF_LETTERS):
            part.body = Letters(body)
        elif isinstance(body, OF_BULK):
            part.body = Bulk(body)
        part.answer = look_on


class Importing:
    """Gathers what the parts of an import answer. `go_on` has the rest of it decided."""

    def __init__(
        self,
        request: job_pb2.ImportJobsRequest,
        answer: Callable[[object], None],
        unknown: Callable[[], None],
        go_on: Callable[[ImportSome], None],
    ) -> None:
        self.rest = imports.some_of(request)
        self._answer, self._unknown, self._go_on = answer, unknown, go_on
        self._parts: list[job_pb2.ImportJobsResponse] = []

    def answer(self, reply: object) -> None:
        """Take what came of a part."""
        if not isinstance(reply, Imported):
            if self._parts and isinstance(reply, Rejection):
                # Some of it was done, and a refusal says that nothing was.
                self._unknown()
            else:
                self._answer(reply)
            return
        self._parts.append(reply.answer)
        whole = self.rest
        self.rest = imports.rest_of(whole, reply)
        if reply.next < len(whole.order):
            self._go_on(self.rest)
        else:
            self._answer(imports.joined(whole, self._parts))
