"""A job that decided on times ahead, by clocks that were wrong, is brought back to the right time.

What has an entry of its own in the ledger keeps its outcome and is passed over when it comes. What
was only part of a stretch has no run, and is decided on again.
"""

from __future__ import annotations

from ..model import keys
from ..model.entities import Job
from ..model.view import View
from ..occurrences import ledger, next_time
from . import backlog


def stands_until(view: View, job: Job) -> int:
    """Until when a job does nothing since it decided on all times before; 0 if it goes on."""
    until_ms = max(job.state.last_scheduled_at_ms, job.definition.schedules_since_ms)
    if (
        until_ms <= view.now_ms
        or not job.definition.schedules
        or 0 < job.state.next_scheduled_at_ms <= until_ms
    ):
        return 0
    wrong_ms = int.from_bytes(view.get_raw(keys.SET_BACK) or b"", "big")
    return until_ms if wrong_ms > view.now_ms else 0


def can_free(view: View, job: Job, table: bytes) -> bool:
    """Whether it is known what has run and what would, and is little enough for one change."""
    return not _why_not(view, job, table)


def _why_not(view: View, job: Job, table: bytes) -> str:
    if job.state.ledger_purged_ms > view.now_ms:
        return "what it has run since then was purged from its ledger"
    if not next_time.is_readable(view, job):
        return "its schedules cannot be read here"
    if not ledger.few_ahead(view, job.jid, view.now_ms, table):
        return f"over {ledger.AHEAD} entries of its ledger lie ahead"
    return ""


def why_not(view: View, job: Job) -> str:
    """Why a job that stands still cannot be brought back; "" if it can."""
    later = job.definition.schedules_since_ms > view.now_ms
    return _why_not(view, job, keys.LEDGER if later else keys.STRETCH)


def free(view: View, job: Job) -> None:
    """Let a job decide on the times from now on. The caller looks ahead."""
    plan = next_time.plan_of(view, job)
    backlog.cut(view, job, plan, view.now_ms)
    ledger.cut(view, job, plan, view.now_ms)


def bring_back(view: View, job: Job) -> None:
    """A job that stands still goes on from now, if it can. The caller reschedules."""
    if not stands_until(view, job) or why_not(view, job):
        return
    later = job.definition.schedules_since_ms > view.now_ms
    free(view, job)
    if later:
        view.change_definition(job).schedules_since_ms = view.now_ms
        ledger.mark_ahead(view, job, next_time.plan_of(view, job), view.now_ms)
    next_time.advance_behind(view, job, view.now_ms)
