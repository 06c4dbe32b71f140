"""What holds of a whole state: its own checks, the audit of each job, and times counted by hand."""

from __future__ import annotations

from bisect import bisect_right

from ...proto.v1 import job_pb2, run_pb2
from ...statemachine.core.rejection import Reason, Refused
from ...statemachine.core.store import Reading
from ...statemachine.model import keys, phases
from ...statemachine.model.phases import HALTED, LEASED, PARKED, READY
from ...statemachine.model.record import LedgerRecord, StateRecord
from ...statemachine.model.view import View
from ...statemachine.reads import audit
from ...statemachine.schedule.plan import COUNT_MAX
from ...statemachine.selfcheck import invariants, verify
from . import reckoning
from .lives import FIRED, PAUSED, Lives, SeenJob
from .world import SimViolation

Status, Finding = job_pb2.JobStatus, job_pb2.AuditFinding
STUCK = frozenset({READY, PARKED, LEASED})
FINISHED, ACTIVE = Status.STATE_FINISHED, Status.STATE_ACTIVE


def check_all(
    store: Reading, now_ms: int, lives: Lives, *, late_ms: int = 0, at_rest: bool = False
) -> None:
    """`late_ms`: how long ago what is due was done. `at_rest`: workers have done all there was, and
    nothing is in the way of anything."""
    found = [*map(str, verify.verify(store)), *map(str, invariants.check(store))]
    if found:
        raise SimViolation(f"S5 {len(found)} things do not hold: {found[:2]}")
    for jid, job in sorted(lives.seen.jobs.items()):
        state = lives.seen.states[jid]
        if state.state == Status.STATE_DELETING:
            continue
        check_audit(store, now_ms, job, lives)
        check_book(jid, job, state, lives)
        check_times(jid, job, state, now_ms, lives, late_ms)
        if at_rest:
            check_rest(jid, lives)


def check_audit(store: Reading, now_ms: int, job: SeenJob, lives: Lives) -> None:
    """The rules' own proof."""
    try:
        found = audit.audit(View(store, now_ms), job_pb2.AuditJobRequest(job=job.record.name), ())
    except Refused as refused:
        # Of a job of seconds that nobody has looked at for days.
        if refused.rejection.reason != Reason.ERROR_REASON_LIMIT_EXCEEDED:
            raise
        lives.counts["too large for an audit"] += 1
        return
    lives.counts["times audited"] += found.expected
    lives.counts["times unjudged"] += found.unjudged
    if found.wrong:
        wrong = [one for one in found.findings if one.verdict == Finding.VERDICT_WRONG]
        raise SimViolation(f"S2 {job.record.name}: {wrong[0].reason}, in {found}")
    if found.requested != found.requested_ended + found.requested_under_way:
        raise SimViolation(f"S2 {job.record.name}: what was asked for is lost, in {found}")


def check_book(jid: int, job: SeenJob, state: StateRecord, lives: Lives) -> None:
    """L2: what ran has a run. L7: there are not more times than `max_runs`."""
    book = lives.seen.books.get(jid, {})
    for at_ms, entry in book.items():
        if entry.outcome in FIRED and (jid, keys.occurrence_of(at_ms)) not in lives.fired:
            name = run_pb2.Outcome.Name(entry.outcome)
            raise SimViolation(f"L2 {job.record.name} at {at_ms} is {name}, and no run was there")
    # What was moved, and did not run, may be named MISSED beyond that.
    many = sum(
        max(1, entry.count)
        for at_ms, entry in book.items()
        if at_ms not in job.edits or entry.outcome in FIRED
    )
    waiting = sum(part.left for part in state.backlog if part.cause != run_pb2.CAUSE_BACKFILL)
    if 0 < job.most_ever < many + waiting and not job.was_backfilled:
        raise SimViolation(f"L7 {job.record.name} has {many + waiting} times of {job.most_ever}")


def check_rest(jid: int, lives: Lives) -> None:
    """S8. A run that workers would take, or that waits for nothing."""
    for (of, occurrence), run in sorted(lives.seen.runs.items()):
        state = lives.seen.states[jid].state
        if of != jid or (run.phase == HALTED and state == PAUSED):
            continue
        if run.phase in STUCK or run.phase == HALTED:
            name = phases.name(run.phase)
            raise SimViolation(f"S8 {lives.say((of, occurrence))} is {name} for ever")


def check_times(
    jid: int, job: SeenJob, state: StateRecord, now_ms: int, lives: Lives, late_ms: int = 0
) -> None:
    """S2, by hand: each time that has come so long ago has one outcome, and no other has one."""
    spec = job.spec
    is_over = state.state in (Status.STATE_DELETING, Status.STATE_BROKEN)
    if is_over or not reckoning.can_count(spec.schedules):
        return
    book = lives.seen.books.get(jid, {})
    end_ms = now_ms - spec.timing.jitter.ToMilliseconds() - late_ms
    if state.state == PAUSED:
        end_ms = min(end_ms, state.next_scheduled_at_ms - 1)
    created_ms = job.record.created_at_ms
    named = sorted(reckoning.times(
        spec.schedules, spec.timing, created_ms, job.since_ms + 1, now_ms + 1
    ))  # fmt: skip
    stretches = sorted((at, entry.last_at_ms) for at, entry in book.items() if entry.last_at_ms)
    known = set(named)
    for at_ms in named:
        if at_ms > end_ms or at_ms in job.edits or spec.timing.max_runs:
            continue
        waits = any(part.next_at_ms <= at_ms < part.to_ms for part in state.backlog)
        before = bisect_right(stretches, (at_ms, now_ms)) - 1
        inside = before >= 0 and at_ms <= stretches[before][1]
        if not (waits or inside or at_ms in book):
            raise SimViolation(f"S2 {job.record.name} has no outcome for {at_ms}")
    lives.counts["times counted"] += len(named)
    for at_ms, entry in book.items():
        if at_ms <= job.since_ms:
            continue
        if entry.last_at_ms:
            check_stretch(job, at_ms, entry, named, book)
        elif at_ms not in known and at_ms <= now_ms and at_ms not in job.edits:
            raise SimViolation(f"S2 {job.record.name} has an outcome for {at_ms}, which none names")
        check_day(job, at_ms, entry, lives)


def check_stretch(
    job: SeenJob, at_ms: int, entry: LedgerRecord, named: list[int], book: dict[int, LedgerRecord]
) -> None:
    """It speaks of as many times as there are in it, less those with an outcome of their own."""
    inside = bisect_right(named, entry.last_at_ms) - bisect_right(named, at_ms - 1)
    known = set(named)
    own = sum(at_ms < at <= entry.last_at_ms and at in known for at in book)
    # Of several schedules so many are counted, and more are "at least".
    is_least = len(job.spec.schedules) > 1 and inside > COUNT_MAX
    if entry.count > inside - own or (entry.count < inside - own and not is_least):
        raise SimViolation(
            f"S2 {job.record.name} has one outcome for {entry.count} times from {at_ms} on; there "
            f"are {inside - own}"
        )


def check_day(job: SeenJob, at_ms: int, entry: LedgerRecord, lives: Lives) -> None:
    """L6. What a calendar left out is one of its days, if that says the same since then."""
    if at_ms <= job.days_ms or at_ms in job.edits:
        return
    is_left_out = lives.is_left_out(job, at_ms)
    if entry.outcome == run_pb2.OUTCOME_SKIPPED_CALENDAR and not is_left_out:
        raise SimViolation(f"L6 {job.record.name} at {at_ms} is left out by no calendar")
