"""What the handler of a run returned."""

from __future__ import annotations

from typing import Any

from ...proto.v1 import run_pb2
from .errors import ResultMismatch, RunFailed
from .values import value_of


def result_of(run: run_pb2.Run, kind: Any = None) -> Any:  # noqa: ANN401  # What JSON holds.
    """The result of a run that has ended, as `kind` if one is given; RunFailed if it did not
    succeed."""
    if run.state != run_pb2.RUN_STATE_SUCCEEDED:
        state = run_pb2.RunState.Name(run.state).removeprefix("RUN_STATE_")
        error = run.error
        why = f": {error.kind}: {error.message}" if error.kind or error.message else ""
        raise RunFailed(f"run {run.id} is {state}{why}", run)
    if not run.HasField("result"):
        return None
    try:
        return value_of(run.result, kind)
    except ValueError as wrong:
        asked = "anything that JSON holds" if kind is None else str(kind)
        raise ResultMismatch(
            f"run {run.id} returned what cannot be read as {asked}: {wrong}; ask for another "
            "kind, or look at message.result"
        ) from wrong
