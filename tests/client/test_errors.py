"""Errors: one tree, and each survives the way out of a process pool."""

from __future__ import annotations

import pickle

from raftsched.client import errors
from raftsched.client.errors import FieldFault, RaftschedError, RunFailed
from raftsched.proto.v1 import run_pb2

from ..rows import each

TREE = [kind for kind in vars(errors).values() if isinstance(kind, type)]
KINDS = [kind for kind in TREE if issubclass(kind, RaftschedError) and kind is not RunFailed]


@each("kind", KINDS)
def test_an_error_comes_out_of_another_process_as_it_was(kind: type[RaftschedError]) -> None:
    faults = (FieldFault("name", "FIELD_INVALID", "'A' is no name"),)
    error = kind("no", reason="X", values={"a": "b"}, faults=faults, retry_after=1.5)

    other = pickle.loads(pickle.dumps(error))

    assert type(other) is kind
    assert str(other) == other.message == "no"
    assert vars(other) == vars(error)


def test_a_failed_run_comes_out_of_another_process_as_it_was() -> None:
    run = run_pb2.Run(id="a.1.2", state=run_pb2.RUN_STATE_FAILED)

    other = pickle.loads(pickle.dumps(RunFailed("it failed", run)))

    assert (other.message, other.run) == ("it failed", run)


def test_each_error_is_named_in_the_tree_that_is_shown() -> None:
    shown = errors.__doc__ or ""

    assert [kind.__name__ for kind in [*KINDS, RunFailed] if kind.__name__ not in shown] == []
    assert issubclass(errors.RunNotEnded, TimeoutError)
