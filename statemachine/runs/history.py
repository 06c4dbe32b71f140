"""Runs that have ended: each stands in the history until its time there is over."""

from __future__ import annotations

from ..model import keys
from ..model.entities import Run, run_with
from ..model.phases import FAILED
from ..model.record import RunRecord, encode
from ..model.view import View
from ..tenants import namespaces


def archive(view: View, run: Run) -> None:
    """Put a run that has ended into the history, until it is purged. Its timer stands among what
    can wait: no firing stands behind ten thousand of them."""
    record, jid, occurrence = run.record, run.jid, run.occurrence
    if record.phase == FAILED:
        view.put_raw(keys.dead(run.job.namespace, record.ended_at_ms, jid, occurrence))
        namespaces.usage_of(view, jid).dead += 1
    view.put_later(keys.purge_timer(record.purge_at_ms, jid, occurrence))
    view.put_encoded(keys.ended(jid, occurrence), encode(record))


def purge_at(view: View, run: Run) -> int:
    """When a run that has ended leaves the history, as its job and its namespace say now."""
    job, record = run.job, run.record
    well_ms, failed_ms = view.keeps.get(job.namespace) or namespaces.keep_times(view, job.jid)
    failed = record.phase == FAILED
    return record.ended_at_ms + (failed_ms if failed else job.state.keep_ms or well_ms)


def purge(view: View, jid: int, occurrence: int) -> bool:
    """Its time in the history is over, unless it is to be kept for longer by now."""
    key = keys.ended(jid, occurrence)
    record = view.need(key, RunRecord)
    run = run_with(view.job(jid), occurrence, record)
    at_ms = purge_at(view, run)
    if at_ms > view.now_ms:
        record.purge_at_ms = keys.LATER | at_ms
        view.put_later(keys.purge_timer(record.purge_at_ms, jid, occurrence))
        view.put(key, record)
        return False
    drop(view, run)
    return True


def drop(view: View, run: Run) -> None:
    """A run that has ended is gone, with what it carried."""
    if run.record.exempt & RunRecord.CARRIES:
        view.delete(keys.carried(run.jid, run.occurrence))
    forget(view, run)


def forget(view: View, run: Run) -> None:
    """Take a run that has ended out of the history."""
    record, jid, occurrence = run.record, run.jid, run.occurrence
    view.delete(keys.ended(jid, occurrence))
    view.delete(keys.purge_timer(record.purge_at_ms, jid, occurrence))
    if record.phase == FAILED:
        view.delete(keys.dead(run.job.namespace, record.ended_at_ms, jid, occurrence))
        namespaces.usage_of(view, jid).dead -= 1
