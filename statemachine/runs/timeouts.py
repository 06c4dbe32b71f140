"""When something comes to a run by itself: its due time, a delay, a deadline, a timeout."""

from __future__ import annotations

from ...proto.v1 import run_pb2
from ..core import limits
from ..model import policies, timers
from ..model.entities import Run
from ..model.phases import LATER, LEASED
from ..model.record import RunRecord
from ..model.view import View


def arm(view: View, run: Run) -> None:
    """Set a run's timer to the first thing that may happen to it."""
    record, template = run.record, run.job.definition.template
    at_ms = record.retry_at_ms
    if record.phase == LATER:
        at_ms = record.due_at_ms
    else:
        if template.has_timeouts:
            at_ms = timers.earliest(at_ms, policies.next_timeout(record, template.spec.timeouts))
        if record.phase == LEASED:
            at_ms = timers.earliest(at_ms, record.deadline_at_ms, record.cancel_at_ms)
        else:
            if template.start_deadline_ms < limits.INSTANT_MAX_MS:
                at_ms = timers.earliest(at_ms, start_deadline(run))
            if template.retry_total_ms:
                at_ms = timers.earliest(at_ms, policies.retries_end(record, template))
    if at_ms != record.timer_at_ms:
        timers.set_run(view, run, at_ms)


def start_deadline(run: Run) -> int:
    """When a run is skipped for not having started; 0 if it has, or somebody wants it however late
    it is."""
    record = run.record
    wanted = record.cause == run_pb2.CAUSE_BACKFILL or record.exempt & RunRecord.EXEMPT_DEADLINE
    if record.started_at_ms or wanted:
        return 0
    return record.due_at_ms + run.job.definition.template.start_deadline_ms
