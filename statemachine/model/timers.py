"""Anything that has an end has a timer in the state, so a new leader finds it.

A job has one timer and a run has one timer: for the next thing that may happen to it. The record
says where its timer stands, so that it can be moved. No timer lies before `meta.timers_from`:
fired timers leave tombstones behind, and the scan for due ones must not walk over them.

What can wait has a range of its own, so that nothing punctual stands behind it, however much of it
there is: backlogs, the rest of long waves, of deletions and of other work in steps.

A job with a backlog has a second timer for it (table `c`), derived from the backlog. What is left
over of a job gets a timer behind all that is due: it stands at the time of the change, however far
the job is behind, so all jobs take turns.
"""

from __future__ import annotations

from ..core.store import Reading
from . import keys
from .entities import Job, Run
from .record import CatchUpRecord, MetaRecord
from .view import View


def set_job(view: View, job: Job, at_ms: int) -> None:
    """Move a job's timer; 0 takes it away."""
    if job.state.timer_at_ms != at_ms:
        state = view.change_state(job)
        if state.timer_at_ms:
            view.delete_raw(keys.job_timer(state.timer_at_ms, job.jid))
        if at_ms & keys.LATER:
            view.put_later(keys.job_timer(at_ms, job.jid))
        elif at_ms:
            view.put_timer(keys.job_timer(at_ms, job.jid))
        state.timer_at_ms = at_ms


def set_backlog(view: View, job: Job) -> None:
    """See that the backlog of a job goes on when its turn comes."""
    at_ms = job.state.backlog[0].release_at_ms
    if not at_ms:
        return  # The end of a run lets it go on.
    key = keys.catch_up(job.jid)
    place = keys.LATER | max(at_ms, view.now_ms)
    record = view.get(key, CatchUpRecord)
    if record is not None:
        if record.timer_at_ms <= place:
            return
        view.delete_raw(keys.backlog_timer(record.timer_at_ms, job.jid))
    view.put(key, CatchUpRecord(timer_at_ms=place))
    view.put_later(keys.backlog_timer(place, job.jid))


def set_run(view: View, run: Run, at_ms: int) -> None:
    """Move a run's timer; 0 takes it away."""
    if run.record.timer_at_ms != at_ms:
        record = view.change_run(run)
        if record.timer_at_ms:
            view.delete_raw(keys.run_timer(record.timer_at_ms, run.jid, run.occurrence))
        if at_ms:
            view.put_timer(keys.run_timer(at_ms, run.jid, run.occurrence))
        record.timer_at_ms = at_ms


def earliest(*instants_ms: int) -> int:
    """The first of some instants, of which 0 are unset; 0 when all are."""
    first = 0
    for ms in instants_ms:
        if ms and (ms < first or not first):
            first = ms
    return first


def next_ms(stored: Reading, meta: MetaRecord) -> int | None:
    """When the next timer fires; None when there is none."""
    due_ms, later_ms = next_due_ms(stored, meta), next_later_ms(stored, meta)
    return min((ms for ms in (due_ms, later_ms) if ms is not None), default=None)


def next_due_ms(stored: Reading, meta: MetaRecord, first: bytes = b"") -> int | None:
    """When the next timer fires of what is not to wait, from a timer on; None without one."""
    first = max(first, meta.timers_from or keys.TIMER)
    for key, _ in stored.scan(first, keys.timers_from(keys.LATER)):
        return keys.timer_at(key)
    return None


def next_later_ms(stored: Reading, meta: MetaRecord) -> int | None:
    """When the next timer fires of what can wait; None when there is none."""
    first = meta.later_from or keys.timers_from(keys.LATER)
    for key, _ in stored.scan(first, keys.after(keys.TIMER)):
        return keys.instant(keys.timer_at(key))
    return None
