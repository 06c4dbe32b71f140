"""When something comes to a run by itself: its due time, a delay, a deadline, a timeout."""

from __future__ import annotations

from itertools import islice

from ...proto.v1 import run_pb2
from ..core import limits
from ..model import keys, policies, timers
from ..model.entities import Job, Run
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


def limits_changed(view: View, job: Job) -> None:
    """A job has other limits of time: those of its runs under way count by them, in steps."""
    if job.state.live:
        at_ms = keys.LATER | view.now_ms
        view.put_later(keys.limits_timer(at_ms, job.jid, job.state.live_from))


def arm_some(view: View, jid: int, first: int) -> None:
    """Set the timers of some more runs of a job anew."""
    job = view.find_job(jid)
    if job is None:
        return
    scanned = view.scan(keys.run(jid, first), keys.run(jid, keys.OCCURRENCE_MAX))
    for done, key in enumerate(list(islice(scanned, limits.STEP + 1))):
        if done and (done == limits.STEP or view.is_full):
            at_ms = keys.LATER | view.now_ms
            view.put_later(keys.limits_timer(at_ms, *keys.run_of(key)))
            return
        run = view.run(keys.run_of(key))
        if run.record.phase == LEASED and job.definition.template.has_timeouts:
            # Nobody noted before when it was heard.
            view.change_run(run).heard_at_ms = view.now_ms
        arm(view, run)


def start_deadline(run: Run) -> int:
    """When a run is skipped for not having started; 0 if it has, or somebody wants it however late
    it is."""
    record = run.record
    wanted = record.cause == run_pb2.CAUSE_BACKFILL or record.exempt & RunRecord.EXEMPT_DEADLINE
    if record.started_at_ms or wanted:
        return 0
    return record.due_at_ms + run.job.definition.template.start_deadline_ms
