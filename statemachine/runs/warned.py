"""Runs that succeeded with a warning, counted by job for whoever looks at it: no rule asks."""

from __future__ import annotations

from ...proto.v1 import job_pb2
from ..model import carried, keys
from ..model.entities import Job, Run, run_with
from ..model.record import RunRecord, WarnedRecord
from ..model.view import View


def count(view: View, run: Run) -> None:
    """A run is about to succeed with a warning."""
    key = keys.warned(run.jid)
    before = view.get(key, WarnedRecord) or WarnedRecord()
    view.put(key, WarnedRecord(count=before.count + 1, last_occurrence=run.occurrence))


def show(view: View, job: Job, status: job_pb2.JobStatus) -> None:
    """Say how many there were, and what the last run warns of if it was one of them."""
    record = view.get(keys.warned(job.jid), WarnedRecord)
    if record is None:
        return
    status.warned = record.count
    if record.last_occurrence == job.state.last_occurrence:
        last = view.get(keys.ended(job.jid, record.last_occurrence), RunRecord)
        if last is not None:
            run = run_with(job, record.last_occurrence, last)
            status.last_warning = carried.warning_of(view, run)


def forget(view: View, jid: int) -> None:
    """The job goes."""
    key = keys.warned(jid)
    if view.get(key, WarnedRecord) is not None:
        view.delete(key)
