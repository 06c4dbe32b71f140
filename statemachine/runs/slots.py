"""The slots of a job and a key, and how long leases last."""

from __future__ import annotations

from ..core import limits
from ..model import concurrency_key, keys
from ..model.entities import Run
from ..model.record import (
    KeyRecord,
    RunRecord,
    UsageRecord,
)
from ..model.view import View


def full(view: View, run: Run) -> int:
    """Whose limit keeps a run from being leased, if any."""
    limit = run.job.definition.template.spec.concurrency
    if limit.job and run.job.state.running >= limit.job:
        return RunRecord.PARKING_JOB
    name = view.change_run(run).limit_key = concurrency_key.of(view, run)
    if name and limit.key_limit:
        key = keys.limit_key(run.job.namespace, name)
        record = view.get(key, KeyRecord)
        if record is not None and record.running >= limit.key_limit:
            return RunRecord.PARKING_KEY
    return RunRecord.PARKING_UNSPECIFIED


def begin_hour(usage: UsageRecord, now_ms: int) -> None:
    begin_ms = now_ms - now_ms % limits.HOUR_MS
    recent = begin_ms - usage.hour_at_ms == limits.HOUR_MS
    usage.before_ended = usage.leases_ended if recent else 0
    usage.before_took_ms = usage.leases_took_ms if recent else 0
    usage.hour_at_ms, usage.leases_ended, usage.leases_took_ms = begin_ms, 0, 0


def mean_times(usage: UsageRecord, now_ms: int) -> tuple[int, int]:
    """How many leases ended in this clock hour and the one before, and how long they lasted."""
    hours = now_ms // limits.HOUR_MS - usage.hour_at_ms // limits.HOUR_MS
    if hours == 0:
        ended = usage.leases_ended + usage.before_ended
        return ended, usage.leases_took_ms + usage.before_took_ms
    return (usage.leases_ended, usage.leases_took_ms) if hours == 1 else (0, 0)
