"""Why a call did not do what was asked, by whose fault it is.

RaftschedError
  CallerError            whoever called has to change something
    InvalidArgument      a field is wrong; `faults` names all of them at once
    NotFound             there is no such thing
    AlreadyExists        there is one already
    Conflict             the state of things does not allow it
      LeaseLost          the lease is not this worker's any more: stop the work
      SessionLost        the worker's session lapsed: say hello again
    QuotaExceeded        the namespace has used up what it may use
    RevisionGone         the events asked for are no longer kept; list anew
    Unauthenticated      nobody said who calls, or the token is not valid
    Forbidden            the caller may not do this
    Closed               the client was closed
    ResultMismatch       a run returned something else than was asked for
  ClusterError           the cluster or the way to it; the same call may succeed later
    Unavailable          it was not done
      RateLimited        too many calls, or a full backlog; see `retry_after`
    OutcomeUnknown       it may have been done; the same `request_id` gets the first answer
  RunFailed              a run that was waited for ended without success; see `run`
  RunNotEnded            a run that was waited for goes on
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...proto.v1 import run_pb2


@dataclass(frozen=True, slots=True)
class FieldFault:
    """One wrong field of a request."""

    field: str
    reason: str
    message: str


class RaftschedError(Exception):
    """Everything this package raises about a call.

    try:
        client.jobs.create("report", handler="build", schedule=cron("61 * * * *"))
    except RaftschedError as error:
        print(error.reason, error.values, error.message)
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        values: Mapping[str, str] | None = None,
        faults: tuple[FieldFault, ...] = (),
        code: str = "",
        retry_after: float | None = None,
        request_id: str = "",
    ) -> None:
        super().__init__(message)
        # For people: what, why with the value, and what to do next.
        self.message = message
        # An ErrorReason of the contracts without its prefix, such as "JOB_NOT_FOUND". Empty when
        # the refusal did not come from the cluster itself.
        self.reason = reason
        # Every value that the message mentions, by name.
        self.values = dict(values or {})
        # The wrong fields, for InvalidArgument.
        self.faults = faults
        # The name of the gRPC code, such as "NOT_FOUND".
        self.code = code
        # After so many seconds another try may succeed. None: nothing was said.
        self.retry_after = retry_after
        # The id of the write that failed. The same id may be sent again.
        self.request_id = request_id


class CallerError(RaftschedError):
    """Whoever called has to change something: the same call will fail again. Nothing was done."""


class InvalidArgument(CallerError):
    """A field is wrong; `faults` names all of them."""


class NotFound(CallerError):
    """There is no such thing."""


class AlreadyExists(CallerError):
    """There is one already."""


class Conflict(CallerError):
    """The state of things does not allow it, or somebody came in between. Read again."""


class LeaseLost(Conflict):
    """The lease is not this worker's any more. Stop the work."""


class SessionLost(Conflict):
    """The worker's session lapsed. Say hello again."""


class QuotaExceeded(CallerError):
    """The namespace has used up what it may use."""


class RevisionGone(CallerError):
    """The events asked for are no longer kept. List what is there, then follow from now on."""


class Unauthenticated(CallerError):
    """Nobody said who calls, or the token is not valid."""


class Forbidden(CallerError):
    """The caller may not do this."""


class Closed(CallerError):
    """The client was closed, perhaps while the call was under way."""


class ClusterError(RaftschedError):
    """The cluster, or the way to it, failed. It is not the caller's fault."""


class Unavailable(ClusterError):
    """No node could do it within the deadline. It was not done."""


class RateLimited(Unavailable):
    """Too many calls at once. Nothing was done; `retry_after` says when to come again."""


class OutcomeUnknown(ClusterError):
    """It may have been done, or not. The same call with the same `request_id` says which."""


class RunFailed(RaftschedError):
    """A run that was waited for ended without success."""

    def __init__(self, message: str, run: run_pb2.Run) -> None:
        super().__init__(message)
        self.run = run

    def __reduce__(self) -> tuple[object, tuple[str, bytes]]:
        # What cannot leave its process breaks a whole process pool; messages cannot by themselves.
        return _run_failed, (self.message, self.run.SerializeToString())


class RunNotEnded(RaftschedError, TimeoutError):
    """A run that was waited for had not ended in the given time. It goes on."""


class ResultMismatch(CallerError):
    """What a run returned is not of the kind that was asked for."""


def _run_failed(message: str, run: bytes) -> RunFailed:
    from ...proto.v1 import run_pb2

    return RunFailed(message, run_pb2.Run.FromString(run))
