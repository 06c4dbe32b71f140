"""When something comes to a run by itself: its due time, a delay, a deadline, a timeout."""

from __future__ import annotations

from ...proto.v1 import run_pb2
from ..core import limits
from ..model import policies, timers
from ..model.phases import LATER, LEASED
from ..model.record import RunRecord
from ..model.specs import Template
from ..model.view import View


def arm(view: View, jid: int, occurrence: int, run: RunRecord, template: Template) -> None:
    """Set a run's timer to the first thing that may happen to it. The caller puts the run."""
    at_ms = run.retry_at_ms
    if run.phase == LATER:
        at_ms = run.due_at_ms
    else:
        if template.has_timeouts:
            at_ms = timers.earliest(at_ms, policies.next_timeout(run, template.spec.timeouts))
        if run.phase == LEASED:
            at_ms = timers.earliest(at_ms, run.deadline_at_ms, run.cancel_at_ms)
        else:
            if template.start_deadline_ms < limits.INSTANT_MAX_MS:
                at_ms = timers.earliest(at_ms, start_deadline(run, template))
            if template.retry_total_ms:
                at_ms = timers.earliest(at_ms, policies.retries_end(run, template))
    if at_ms != run.timer_at_ms:
        timers.set_run(view, jid, occurrence, run, at_ms)


def start_deadline(run: RunRecord, template: Template) -> int:
    """When a run is skipped for not having started; 0 if it has, or somebody wants it however late
    it is."""
    wanted = run.cause == run_pb2.CAUSE_BACKFILL or run.exempt & RunRecord.EXEMPT_DEADLINE
    return 0 if run.started_at_ms or wanted else run.due_at_ms + template.start_deadline_ms
