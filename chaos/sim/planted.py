"""A rule that raises for one job, for the time of a history: nothing else may suffer from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ...proto.v1 import worker_pb2
from ...statemachine.firing import scheduled_time
from ...statemachine.model import answers, keys
from ...statemachine.model.entities import Job, Run
from ...statemachine.model.view import View
from .options import Options
from .oracle import PLANTED
from .rule_mutants import exchanged

CHOSEN = 2  # The serial number of the job that fails.


@contextmanager
def planted(options: Options) -> Iterator[None]:
    """Let one job of a history fail where it fires, or where a run of it is leased."""
    with ExitStack() as stack:
        if options.planted == "fire":
            stack.enter_context(exchanged(scheduled_time, "fire", _fire))
        elif options.planted == "lease":
            stack.enter_context(exchanged(answers, "lease", _lease))
        yield


def _is_chosen(jid: int) -> bool:
    return jid & ((1 << keys.SERIAL_BITS) - 1) == CHOSEN


def _fire(view: View, job: Job, *others: object, **more: object) -> object:
    if _is_chosen(job.jid):
        raise RuntimeError(PLANTED)
    return fire(view, job, *others, **more)  # type: ignore[arg-type]  # As they came.


def _lease(view: View, run: Run) -> worker_pb2.Lease:
    if _is_chosen(run.jid):
        raise RuntimeError(PLANTED)
    return lease(view, run)


fire, lease = scheduled_time.fire, answers.lease
