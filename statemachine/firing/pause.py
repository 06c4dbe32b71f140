"""A job is paused: by somebody, or since so many of its runs in a row have failed."""

from __future__ import annotations

from ...proto.v1 import job_pb2
from ..core import limits
from ..model import keys
from ..model.entities import Job, Run
from ..model.phases import FAILED, SUCCEEDED
from ..model.record import StreakRecord
from ..model.view import View
from ..occurrences import ledger_purge, next_time
from ..tenants import audit_log
from . import resume

# Who pauses what nobody has paused.
ACTOR = "raftsched"


def pause(view: View, job: Job, request: job_pb2.PauseJobRequest, until_ms: int, who: str) -> None:
    """It does not fire until it is resumed, or that instant."""
    state, definition = view.change_state(job), view.change_definition(job)
    state.state = next_time.PAUSED
    state.pause_reason = request.reason
    state.pause_until_ms = until_ms
    resume.forget(view, job.jid)
    ledger_purge.step(view, job)
    definition.version += 1
    definition.updated_at_ms = view.now_ms
    next_time.reschedule(view, job)
    namespace, subject = definition.namespace, f"job/{definition.name}"
    audit_log.add(view, who, "PauseJob", namespace, subject, request, request.reason)


def run_ended(view: View, run: Run) -> None:
    """Count a run that failed, of a job that is paused for some in a row."""
    job, phase = run.job, run.record.phase
    most = job.definition.template.pause_on_failure
    if phase == SUCCEEDED:
        forget(view, job.jid)
    if not most or phase != FAILED or job.state.state != next_time.ACTIVE:
        return
    key = keys.streak(job.jid)
    before = view.get(key, StreakRecord)
    failed = 1 if before is None else before.failed + 1
    if failed < most:
        view.put(key, StreakRecord(failed=failed))
        return
    forget(view, job.jid)
    kind = run.record.error.kind if run.record.error is not None else ""
    runs = "1 run" if failed == 1 else f"{failed} runs in a row"
    last = f", the last one with {kind}" if kind else ""
    reason = f"{runs} failed{last} (pause_on_failure)"[: limits.REASON_CHARS]
    pause(view, job, job_pb2.PauseJobRequest(job=job.definition.name, reason=reason), 0, ACTOR)


def forget(view: View, jid: int) -> None:
    """The row has ended."""
    key = keys.streak(jid)
    if view.get(key, StreakRecord) is not None:
        view.delete(key)
