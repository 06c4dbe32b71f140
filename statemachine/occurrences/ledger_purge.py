"""When old ledger entries go: with the runs that leave the history, a few for each.

A job that nothing wakes any more, since it is finished, paused or has no schedule, gets a timer
for what is left then. The firing of a run pays nothing for this.
"""

from __future__ import annotations

from ..model.record import JobRecord, StateRecord
from ..model.view import View
from . import ledger, next_time


def step(
    view: View, jid: int, job: JobRecord, state: StateRecord, most: int = ledger.PURGE
) -> bool:
    """Drop a few old entries, and plan the rest. True: the caller reschedules and puts the
    state."""
    before = state.ledger_from_ms, state.ledger_purge_at_ms
    at_ms = ledger.purge(view, jid, state, job.namespace, most)
    state.ledger_purge_at_ms = at_ms if idle(state) else 0
    return (state.ledger_from_ms, state.ledger_purge_at_ms) != before


def idle(state: StateRecord) -> bool:
    """Whether no schedule brings the job's next firing."""
    return state.state == next_time.PAUSED or not state.next_scheduled_at_ms
