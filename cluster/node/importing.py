"""Calls that may be long, on their way through the loop: asked part by part, answered once."""

from __future__ import annotations

from collections.abc import Callable

from ...proto.v1 import dead_letter_pb2, job_pb2, run_pb2
from ...statemachine.calls import imports, triggers
from ...statemachine.core.rejection import Rejection
from ...statemachine.model.request import (
    Bulk,
    Imported,
    ImportSome,
    Letters,
    Triggered,
    TriggerSome,
)
from .pending import PendingRequest

OF_LETTERS = (
    dead_letter_pb2.RequeueDeadLettersRequest, dead_letter_pb2.PurgeDeadLettersRequest,
)  # fmt: skip

OF_BULK = (job_pb2.ChangeJobsRequest, run_pb2.ChangeRunsRequest)
DIVIDED = (
    job_pb2.ImportJobsRequest, job_pb2.TriggerJobsRequest, *OF_LETTERS, *OF_BULK,
)  # fmt: skip


def items_of(body: object) -> int:
    """How much of a change a call may fill, about."""
    if isinstance(body, job_pb2.ImportJobsRequest):
        return len(body.jobs)
    return len(body.triggers) if isinstance(body, job_pb2.TriggerJobsRequest) else 1


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
    elif isinstance(body, job_pb2.TriggerJobsRequest):
        triggering = Triggering(body, last, lost, lambda rest: go_on(part, rest))
        part.body, part.answer = triggering.rest, triggering.answer
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


class Triggering:
    """Gathers what the parts of many triggers answer. `go_on` has the rest of them decided."""

    def __init__(
        self,
        request: job_pb2.TriggerJobsRequest,
        answer: Callable[[object], None],
        unknown: Callable[[], None],
        go_on: Callable[[TriggerSome], None],
    ) -> None:
        self.rest = triggers.some_of(request)
        self._answer, self._unknown, self._go_on = answer, unknown, go_on
        self._parts: list[job_pb2.TriggerJobsResponse] = []

    def answer(self, reply: object) -> None:
        """Take what came of a part."""
        if not isinstance(reply, Triggered):
            if self._parts and isinstance(reply, Rejection):
                # Some of it was done, and a refusal says that nothing was.
                self._unknown()
            else:
                self._answer(reply)
            return
        self._parts.append(reply.answer)
        whole = self.rest
        self.rest = triggers.rest_of(whole, reply)
        if reply.next < len(whole.request.triggers):
            self._go_on(self.rest)
        else:
            self._answer(triggers.joined(self._parts))
