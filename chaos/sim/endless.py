"""Mistakes with work that has steps: it is done in one go, or what is left over is forgotten."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ...statemachine.flows import waves
from ...statemachine.flows.graph import downstream_from
from ...statemachine.flows.wave import Wave
from ...statemachine.flows.waves import Notice
from ...statemachine.model import keys
from ...statemachine.model.entities import Job
from ...statemachine.model.record import (
    LedgerRecord,
    NoticeRecord,
    RoomRecord,
)
from ...statemachine.model.view import View
from ...statemachine.occurrences import ledger
from ...statemachine.runs import overlap
from .rule_mutants import exchanged


def notifies_chain(view: View, wave: Wave, notices: list[Notice], most: int) -> None:
    """A1: what cannot run notices those behind it before anything else is done."""
    for source, notice in notices:
        for jid in downstream_from(view, source, notice.next_jid):
            if most <= 0:
                notice.next_jid = jid
                waves._keep(view, wave, (source, notice))
                break
            if waves._look(view, wave, jid, source, notice):
                notifies_chain(view, wave, [(jid, NoticeRecord(round=wave.flow.round))], 1)
            most = 0 if view.is_full else most - 1


def notifies_dependents(view: View, wave: Wave, notices: list[Notice], most: int) -> None:
    """A2: all jobs that wait for one are notified of its end in one change."""
    for source, notice in notices:
        for jid in downstream_from(view, source, notice.next_jid):
            if waves._look(view, wave, jid, source, notice):
                waves._keep(view, wave, (jid, NoticeRecord(round=wave.flow.round)))


def keeps_nothing(view: View, wave: Wave, left: Notice) -> None:
    """A1, A2: whoever is not notified in the first step never is."""


def clears(view: View, job: Job, room: RoomRecord) -> bool:
    """A3: all runs give way to one in one change."""
    end = keys.run(job.jid, keys.OCCURRENCE_MAX)
    for key in list(view.scan(keys.run(job.jid, job.state.live_from), end)):
        run = view.run(keys.run_of(key))
        if run.occurrence != room.occurrence:
            overlap._give_way(view, run, room)
    return True


def walks(view: View, jid: int, scheduled_ms: int) -> tuple[int, LedgerRecord] | None:
    """A4: the stretch around a scheduled time is looked for from entry to entry."""
    own = view.get(keys.ledger(jid, scheduled_ms), LedgerRecord)
    if own is not None:
        return scheduled_ms, own
    low, end = keys.ledger(jid, 0), keys.ledger(jid, scheduled_ms)
    for key in view.scan_stored(low, end, backwards=True):
        entry = view.get(key, LedgerRecord)
        if entry is not None and entry.last_at_ms >= scheduled_ms:
            return keys.scheduled_at(key), entry
    return None


# Functions by name, since mutants go to other processes.


def notifies_whole_chains() -> AbstractContextManager[None]:
    return exchanged(waves, "_notify", notifies_chain)


def notifies_all_dependents() -> AbstractContextManager[None]:
    return exchanged(waves, "_notify", notifies_dependents)


def forgets_the_rest() -> AbstractContextManager[None]:
    return exchanged(waves, "_keep", keeps_nothing)


def clears_at_once() -> AbstractContextManager[None]:
    return exchanged(overlap, "_clear", clears)


def walks_over_the_ledger() -> AbstractContextManager[None]:
    return exchanged(ledger, "covering", walks)
