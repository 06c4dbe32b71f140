"""A job fires again: what came to it while it was paused goes on, as its misfire policy says.

Runs for later, and those that were requeued, go on in any case, since somebody asked for them.
Steps of waves are like scheduled times that were missed: what is late by no more than the grace
goes on, and of the others those that the policy chooses. They may be many, so they are looked at in
steps.
"""

from __future__ import annotations

from itertools import islice

from ...proto.v1 import job_pb2, run_pb2
from ..core import limits
from ..model import keys
from ..model.entities import Job, Run
from ..model.phases import HALTED, HELD
from ..model.record import JobRecord, ResumeRecord, RunRecord
from ..model.view import View
from ..runs import overlap, runs
from ..runs.move import move

Misfire = job_pb2.MisfirePolicy
COALESCED = run_pb2.OUTCOME_COALESCED
MISSED = run_pb2.OUTCOME_MISSED


def begin(view: View, job: Job) -> None:
    """Let what was held for this go on."""
    forget(view, job.jid)
    if job.state.held > job.state.later:
        at_ms = keys.LATER | view.now_ms
        view.put(keys.resume(job.jid), ResumeRecord(at_ms=view.now_ms, timer_at_ms=at_ms))
        view.put_later(keys.resume_timer(at_ms, job.jid))


def forget(view: View, jid: int) -> None:
    """It is paused again, or goes: what is still held stays so."""
    record = view.get(keys.resume(jid), ResumeRecord)
    if record is not None:
        view.delete_raw(keys.resume_timer(record.timer_at_ms, jid))
        view.delete(keys.resume(jid))


def wake(view: View, jid: int) -> None:
    """Decide on some more of what is held."""
    record = view.need(keys.resume(jid), ResumeRecord)
    job = view.job(jid)
    rule = job.definition.template.spec.misfire.rule or Misfire.RULE_LATEST
    forwards = rule == Misfire.RULE_EARLIEST
    first, end = keys.run(jid, job.state.live_from), keys.run(jid, keys.OCCURRENCE_MAX)
    if record.next_occurrence:
        at = keys.run(jid, record.next_occurrence)
        first, end = (at, end) if forwards else (first, at + b"\0")
    found = list(islice(view.scan(first, end, backwards=not forwards), limits.STEP + 1))
    for done, key in enumerate(found):
        place = keys.run_of(key)
        if done and (done == limits.STEP or view.is_full):
            record.next_occurrence = place[1]
            record.timer_at_ms = keys.LATER | view.now_ms
            view.put(keys.resume(jid), record)
            view.put_later(keys.resume_timer(record.timer_at_ms, jid))
            break
        run = view.run(place)
        if run.record.phase == HALTED:
            _decide(view, run, record, rule)
    else:
        view.delete(keys.resume(jid))
        runs.look_at_held(view, job)
    view.change_state(job)


def _decide(
    view: View, run: Run,
    record: ResumeRecord, rule: job_pb2.MisfirePolicy.Rule.ValueType,
) -> None:  # fmt: skip
    is_requeued = run.record.exempt & RunRecord.EXEMPT_DEADLINE
    if run.record.cause == run_pb2.CAUSE_UPSTREAM and not is_requeued:
        is_late = run.record.due_at_ms + run.job.definition.template.grace_ms < record.at_ms
        if is_late and record.chosen >= _most(run.job.definition, rule):
            outcome = COALESCED if rule in (Misfire.RULE_LATEST, Misfire.RULE_EARLIEST) else MISSED
            message = "it came while the job was paused, and its misfire policy chose no or others"
            overlap.drop(view, run, outcome, "misfire", message)
            return
        # Under LATEST one in time stands for those that were missed before it.
        record.chosen += is_late or rule == Misfire.RULE_LATEST
        if is_late:
            view.change_run(run).outcome = run_pb2.OUTCOME_LATE
    move(view, run, HELD)


def _most(job: JobRecord, rule: job_pb2.MisfirePolicy.Rule.ValueType) -> int:
    """How many of those that were missed go on."""
    if rule == Misfire.RULE_ALL:
        return job.template.spec.misfire.maximum or limits.MISFIRE_DEFAULT
    return 0 if rule == Misfire.RULE_SKIP else 1
