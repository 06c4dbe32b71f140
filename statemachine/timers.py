"""Anything that has an end has a timer in the state, so a new leader finds it.

A job has one timer and a run has one timer: for the next thing that may happen to it. The record
says where its timer stands, so that it can be moved. No timer lies before `meta.timers_from`:
rung timers leave tombstones behind, and the scan for due ones must not walk over them.
"""

from __future__ import annotations

from . import keys
from .record import MetaRecord, RunRecord, StateRecord
from .store import Reading
from .view import View


def set_job(view: View, jid: int, state: StateRecord, at_ms: int) -> None:
    """Move a job's timer; 0 takes it away. The caller puts the record."""
    if state.timer_at_ms != at_ms:
        if state.timer_at_ms:
            view.delete_raw(keys.job_timer(state.timer_at_ms, jid))
        if at_ms:
            view.put_timer(keys.job_timer(at_ms, jid))
        state.timer_at_ms = at_ms


def set_run(view: View, jid: int, occasion: int, run: RunRecord, at_ms: int) -> None:
    """Move a run's timer; 0 takes it away. The caller puts the record."""
    if run.timer_at_ms != at_ms:
        if run.timer_at_ms:
            view.delete_raw(keys.run_timer(run.timer_at_ms, jid, occasion))
        if at_ms:
            view.put_timer(keys.run_timer(at_ms, jid, occasion))
        run.timer_at_ms = at_ms


def earliest(*instants_ms: int) -> int:
    """The first of some instants, of which 0 are unset; 0 when all are."""
    first = 0
    for ms in instants_ms:
        if ms and (ms < first or not first):
            first = ms
    return first


def next_ms(stored: Reading, meta: MetaRecord) -> int | None:
    """When the next timer rings; None when there is none."""
    first = meta.timers_from or keys.TIMER
    for key, _ in stored.scan(first, keys.after(keys.TIMER)):
        return keys.timer_at(key)
    return None
