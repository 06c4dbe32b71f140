"""Runs that have ended: each stands in the history until its time there is over."""

from __future__ import annotations

from ..model import keys
from ..model.phases import FAILED
from ..model.record import RunRecord, StateRecord, encode
from ..model.view import View
from ..tenants import namespaces


def archive(view: View, jid: int, occurrence: int, run: RunRecord, state: StateRecord) -> None:
    """Put a run that has ended into the history, until it is purged."""
    if run.phase == FAILED:
        view.put_raw(keys.dead(keys.namespace_of(jid), run.ended_at_ms, jid, occurrence))
        namespaces.usage_of(view, jid).dead += 1
    at_ms = run.purge_at_ms = purge_at(view, jid, run, state)
    view.put_timer(keys.purge_timer(at_ms, jid, occurrence))
    view.put_encoded(keys.ended(jid, occurrence), encode(run))


def purge_at(view: View, jid: int, run: RunRecord, state: StateRecord) -> int:
    """When a run that has ended leaves the history, as its job and its namespace say now."""
    kept = view.keeps.get(jid >> keys.SERIAL_BITS) or namespaces.keep_times(view, jid)
    well_ms, failed_ms = kept
    return run.ended_at_ms + (failed_ms if run.phase == FAILED else state.keep_ms or well_ms)


def purge(view: View, jid: int, occurrence: int) -> bool:
    """Its time in the history is over, unless it is to be kept for longer by now."""
    key = keys.ended(jid, occurrence)
    run = view.need(key, RunRecord)
    at_ms = purge_at(view, jid, run, view.need(keys.state(jid), StateRecord))
    if at_ms > view.now_ms:
        run.purge_at_ms = at_ms
        view.put_timer(keys.purge_timer(at_ms, jid, occurrence))
        view.put(key, run)
        return False
    forget(view, jid, occurrence, run)
    return True


def forget(view: View, jid: int, occurrence: int, run: RunRecord) -> None:
    """Take a run that has ended out of the history."""
    view.delete(keys.ended(jid, occurrence))
    view.delete(keys.purge_timer(run.purge_at_ms, jid, occurrence))
    if run.phase == FAILED:
        view.delete(keys.dead(keys.namespace_of(jid), run.ended_at_ms, jid, occurrence))
        namespaces.usage_of(view, jid).dead -= 1
