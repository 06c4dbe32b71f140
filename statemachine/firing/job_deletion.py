"""A job goes: its runs end, then its history, its ledger and its keys, and its name at last.

All of that may be much, so it goes in steps, each of which sets the job's timer for the next one.
"""

from __future__ import annotations

from itertools import islice

from ...proto import secret_text
from ...proto.v1 import run_pb2, worker_pb2
from ..core import limits
from ..flows import graph
from ..model import carried, keys, timers
from ..model.entities import Job, run_with
from ..model.phases import CANCELLED
from ..model.record import RunRecord, UniqueRecord
from ..model.view import View
from ..occurrences import ledger, next_time
from ..runs import history, overlap, runs, warned
from ..tenants import namespaces, quota, target_secrets
from . import backlog, pause, resume

LOST = worker_pb2.Stop.KIND_LOST


def begin(view: View, job: Job) -> None:
    """From now on nothing finds the job; it goes in steps."""
    namespace = keys.namespace_of(job.jid)
    # Unchanged: with its state it shows watchers that the job was deleted.
    view.change_definition(job)
    usage = namespaces.usage_of(view, job.jid)
    usage.jobs -= 1
    usage.payload_bytes -= len(job.definition.full_spec().payload.data)
    graph.unlink(view, job)
    template = job.definition.template
    namespaces.use_calendars(view, namespace, template.calendars, -1)
    target_secrets.unuse(view, job.jid, secret_text.names_in(template.spec.action))
    state = view.change_state(job)
    state.state = next_time.DELETING
    backlog.clear(view, job)
    overlap.forget(view, job.jid)
    resume.forget(view, job.jid)
    quota.leave(view, job, usage)
    state.edits = ()
    state.next_scheduled_at_ms = state.next_due_at_ms = state.delete_at_ms = 0
    state.has_downstream = state.after_end = False


def step(view: View, job: Job) -> None:
    """Cancel some runs, then purge some history, then some of the ledger; at last the job."""
    # What ended in this very change is not stored yet, and is found in the next step only.
    next_ms = view.now_ms + (1 if job.state.last_end_at_ms == view.now_ms else 0)
    live = runs.live_of(view, job, limits.STEP)
    for run in live:
        message = f"the job {job.definition.name} was deleted"
        view.change_run(run).error = run_pb2.RunError(kind="cancelled", message=message)
        runs.stop(view, run, LOST)
        runs.end(view, run, CANCELLED)
        if view.is_full:
            break
    if not live:
        prefix = keys.of_job(keys.ENDED, job.jid)
        past = list(islice(view.scan_stored(prefix, keys.after(prefix)), limits.STEP))
        for done, key in enumerate(past):
            if done and view.is_full:
                break
            history.drop(view, run_with(job, keys.ended_of(key)[1], view.need(key, RunRecord)))
        gone = not past and next_ms == view.now_ms
        lines = ledger.oldest(view, job, limits.STEP) if gone else []
        for key in lines:
            ledger.drop(view, key)
        left = _free_all_unique(view, job.jid) or carried.remove_all(view, job.jid) if gone else 0
        if gone and not lines and not left:
            timers.set_job(view, job, 0)
            pause.forget(view, job.jid)
            warned.forget(view, job.jid)
            view.delete(keys.job_name(keys.namespace_of(job.jid), job.definition.name))
            view.delete(keys.job(job.jid))
            view.delete(keys.state(job.jid))
            return
    timers.set_job(view, job, keys.LATER | next_ms)


def _free_all_unique(view: View, jid: int) -> int:
    prefix = keys.of_job(keys.UNIQUE, jid)
    found = list(islice(view.scan(prefix, keys.after(prefix)), limits.STEP))
    for key in found:
        until_ms = view.need(key, UniqueRecord).until_ms
        if until_ms:
            view.delete(keys.unique_timer(until_ms, jid, key[9:].decode()))
        view.delete(key)
    return len(found)
