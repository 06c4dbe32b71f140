"""A job fires again: what came to it while it was paused goes on, as its misfire policy says.

Runs for later go on in any case, since somebody asked for them. Steps of waves are like scheduled
times that were missed: what is late by no more than the grace goes on, and of the others those that
the policy chooses. They may be many, so they are looked at in steps.
"""

from __future__ import annotations

from itertools import islice

from ...proto.v1 import job_pb2, run_pb2
from ..core import limits
from ..model import keys
from ..model.phases import HALTED, HELD
from ..model.record import JobRecord, ResumeRecord, RunRecord, StateRecord
from ..model.view import View
from ..runs import overlap, runs
from ..runs.move import move

Misfire = job_pb2.MisfirePolicy
COALESCED = run_pb2.OUTCOME_COALESCED
MISSED = run_pb2.OUTCOME_MISSED


def begin(view: View, jid: int, state: StateRecord) -> None:
    """Let what was held for this go on. The caller puts the state."""
    forget(view, jid)
    if state.held > state.later:
        at_ms = keys.LATER | view.now_ms
        view.put(keys.resume(jid), ResumeRecord(at_ms=view.now_ms, timer_at_ms=at_ms))
        view.put_later(keys.resume_timer(at_ms, jid))


def forget(view: View, jid: int) -> None:
    """It is paused again, or goes: what is still held stays so."""
    record = view.get(keys.resume(jid), ResumeRecord)
    if record is not None:
        view.delete_raw(keys.resume_timer(record.timer_at_ms, jid))
        view.delete(keys.resume(jid))


def wake(view: View, jid: int) -> None:
    """Decide on some more of what is held."""
    record = view.need(keys.resume(jid), ResumeRecord)
    job, state = view.need(keys.job(jid), JobRecord), view.need(keys.state(jid), StateRecord)
    rule = job.template.spec.misfire.rule or Misfire.RULE_LATEST
    forwards = rule == Misfire.RULE_EARLIEST
    first, end = keys.run(jid, state.live_from), keys.run(jid, keys.OCCURRENCE_MAX)
    if record.next_occurrence:
        at = keys.run(jid, record.next_occurrence)
        first, end = (at, end) if forwards else (first, at + b"\0")
    found = list(islice(view.scan(first, end, backwards=not forwards), limits.STEP + 1))
    for done, key in enumerate(found):
        occurrence = keys.run_of(key)[1]
        if done and (done == limits.STEP or view.is_full):
            record.next_occurrence = occurrence
            record.timer_at_ms = keys.LATER | view.now_ms
            view.put(keys.resume(jid), record)
            view.put_later(keys.resume_timer(record.timer_at_ms, jid))
            break
        run = view.need(key, RunRecord)
        if run.phase == HALTED:
            _decide(view, jid, occurrence, run, job, state, record, rule)
    else:
        view.delete(keys.resume(jid))
        runs.look_at_held(view, jid, state)
    view.put(keys.state(jid), state)


def _decide(
    view: View, jid: int, occurrence: int, run: RunRecord, job: JobRecord, state: StateRecord,
    record: ResumeRecord, rule: job_pb2.MisfirePolicy.Rule.ValueType,
) -> None:  # fmt: skip
    if run.cause == run_pb2.CAUSE_UPSTREAM:
        is_late = run.due_at_ms + job.template.grace_ms < record.at_ms
        if is_late and record.chosen >= _most(job, rule):
            outcome = COALESCED if rule in (Misfire.RULE_LATEST, Misfire.RULE_EARLIEST) else MISSED
            message = "it came while the job was paused, and its misfire policy chose no or others"
            overlap.drop(view, jid, occurrence, run, outcome, "misfire", message)
            return
        # Under LATEST one in time stands for those that were missed before it.
        record.chosen += is_late or rule == Misfire.RULE_LATEST
    move(view, jid, occurrence, run, HELD, state, job.template)


def _most(job: JobRecord, rule: job_pb2.MisfirePolicy.Rule.ValueType) -> int:
    """How many of those that were missed go on."""
    if rule == Misfire.RULE_ALL:
        return job.template.spec.misfire.maximum or limits.MISFIRE_DEFAULT
    return 0 if rule == Misfire.RULE_SKIP else 1
