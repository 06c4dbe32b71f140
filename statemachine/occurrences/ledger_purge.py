"""When old ledger entries go: with the runs that leave the history, a few for each.

A job that nothing wakes any more, since it is finished, paused or has no schedule, gets a timer
for what is left then. The firing of a run pays nothing for this.
"""

from __future__ import annotations

from ..model.entities import Job
from ..model.record import StateRecord
from ..model.view import View
from . import ledger, next_time


def step(view: View, job: Job, most: int = ledger.PURGE) -> bool:
    """Drop a few old entries, and plan the rest. True: the caller reschedules."""
    state = job.state
    before = state.ledger_from_ms, state.ledger_purge_at_ms
    at_ms = ledger.purge(view, job, most)
    planned_ms = at_ms if idle(state) else 0
    if state.ledger_purge_at_ms != planned_ms:
        view.change_state(job).ledger_purge_at_ms = planned_ms
    return (state.ledger_from_ms, state.ledger_purge_at_ms) != before


def idle(state: StateRecord) -> bool:
    """Whether no schedule brings the job's next firing."""
    return state.state == next_time.PAUSED or not state.next_scheduled_at_ms
