"""The proof that no scheduled time was lost, and that each has the outcome that it should have: the
ledger against the schedules and policies, computed anew.

The comparison begins where the present schedules took force, since nobody knows the old ones any
more, or where the ledger begins that is kept; it ends at the next scheduled time, since what comes
behind was not decided on yet. Times that follow from the end of a run cannot be computed anew, so
in a job with such a schedule no entry is a surprise. What was moved, or waits in a backlog, is not
missing: it gets its outcome when it is due, and what has come is named with what it waits for.

Nothing here asks the rules: what should stand there is computed from schedules (schedule/), the
ledger, the history and the audit log. What these do not say cannot be judged, and is not sound.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter

from ...proto.v1 import job_pb2, run_pb2, schedule_pb2
from ..calls.jobs import find
from ..core import limits
from ..core.instants import ms_or, timestamp, to_ms
from ..core.rejection import Refused
from ..model import validate
from ..model.entities import Job
from ..model.record import JobRecord, StateRecord
from ..model.view import View
from ..model.workers import Workers
from ..occurrences import next_time
from ..schedule.plan import Plan, count_scheduled, scheduled_times
from . import audit_batches, audit_book, audit_requests, audit_waiting
from .audit_book import SHOWN, UNJUDGED, WRONG, Book, Finding, too_many
from .audit_evidence import Evidence, NamespaceEvidence
from .audit_times import Times

Edit = schedule_pb2.OccurrenceEdit
# Each has the range of an audit.
RangeRequest = job_pb2.AuditJobRequest | job_pb2.AuditJobsRequest


def audit(
    view: View, request: job_pb2.AuditJobRequest, workers: Workers
) -> job_pb2.AuditJobResponse:
    job = find(view, request.namespace, request.job)
    return of_job(view, job, request, NamespaceEvidence(view, job))


def of_job(
    view: View, found_job: Job, request: RangeRequest, namespace: NamespaceEvidence
) -> job_pb2.AuditJobResponse:
    """The audit of one job; what is known of its namespace may serve for others too."""
    jid, job, state = found_job.jid, found_job.definition, found_job.state
    plan = next_time.plan_of(view, found_job)
    since_ms = _since(job, state)
    evidence = Evidence(view, found_job, namespace)
    past = _past(job, state, plan, evidence)
    if stands_ms := next_time.stands_at(found_job):
        past = [at for at in past if at <= stands_ms]
    first, end = _range(view, request, min([since_ms, *past]), since_ms)
    book = audit_book.read(view, jid, first, end)
    expected = [at for at in past if first <= at < end]
    expected += _expected(plan, state, max(first, since_ms + 1), end)
    missing = [at for at in expected if book.find(at) is None]
    # What came at that very instant was decided on by the schedules before.
    unexpected = _unexpected(plan, book, expected, max(first, since_ms + 1))
    found = _unexplained(unexpected)
    times = Times(job, state, plan, book, evidence)
    found += times.findings(expected)
    judged_from = max(first, since_ms + 1)
    batches = audit_batches.findings(view, jid, state, plan, book, times.policies, evidence)
    found += (one for one in batches if judged_from <= one.at_ms < end)
    asked_from = ms_or(request, "from_time", job.created_at_ms)
    asked = audit_requests.look(job, state, plan, evidence, asked_from, end)
    low = first if request.HasField("from_time") else 0
    waiting = [
        one
        for one in audit_waiting.look(jid, job, state, plan, evidence)
        if one.count > 0 and low <= one.first < end
    ]
    found += (one.finding() for one in waiting if not one.awaits)
    findings = audit_book.joined(found) + asked.findings
    counts = Counter[int]()
    for one in findings:
        counts[one.verdict] += one.count
    answer = job_pb2.AuditJobResponse(
        sound=not findings, expected=len(expected),
        recorded=len(expected) - len(missing), missing=[timestamp(at) for at in missing[:SHOWN]],
        unexpected=unexpected[:SHOWN], comparable_since=timestamp(since_ms),
        findings=[one.answer() for one in findings[:SHOWN]],
        wrong=counts[WRONG], unjudged=counts[UNJUDGED], requested=asked.asked,
        requested_ended=asked.ended, requested_under_way=asked.under_way,
        waiting=[one.answer() for one in waiting[:SHOWN]],
        waiting_times=sum(one.count for one in waiting),
    )  # fmt: skip
    for outcome, count in sorted(_outcomes(plan, book, first, end).items()):
        answer.outcomes.add(outcome=run_pb2.Outcome.ValueType(outcome), count=count)
    return answer


def _unexplained(unexpected: list[run_pb2.LedgerEntry]) -> list[Finding]:
    found = []
    for entry in unexpected:
        why = "no schedule names it, and nobody added it"
        if entry.HasField("last_scheduled_time"):
            why = f"the schedules name another number of times there than the {entry.count} of it"
        last_ms = to_ms(entry.last_scheduled_time)
        at_ms = to_ms(entry.scheduled_time)
        found.append(Finding(at_ms, why, WRONG, entry.outcome, last_ms=last_ms, count=entry.count))
    return found


def _since(job: JobRecord, state: StateRecord) -> int:
    """From when on a comparison means something."""
    return max(job.schedules_since_ms, state.ledger_purged_ms)


def _past(job: JobRecord, state: StateRecord, plan: Plan, evidence: Evidence) -> list[int]:
    """Single times in the past: they run at once, if the job was created with them. Where there is
    a jitter, at once is so much later."""
    since_ms = job.schedules_since_ms
    if since_ms != job.created_at_ms:
        return []
    found = [one.at_ms for one in plan.onces if state.ledger_purged_ms <= one.at_ms <= since_ms]
    if found and evidence.schedules_ms >= since_ms:
        return []
    return _decided(state, sorted(set(found)))


def _range(view: View, request: RangeRequest, first_ms: int, since_ms: int) -> tuple[int, int]:
    first = ms_or(request, "from_time", first_ms)
    # Schedules that were set by a clock that was ahead may begin later than now.
    end = ms_or(request, "to_time", max(view.now_ms + 1, since_ms))
    if faults := validate.period(request, first, end):
        raise Refused.of(faults)
    return first, end


def _expected(plan: Plan, state: StateRecord, first: int, end: int) -> list[int]:
    """The scheduled times of a range that have an outcome by now."""
    until = min(end, next_time.decided(state) + 1)
    found = scheduled_times(plan, first, until, limits.AUDIT_TIMES)
    if found.cut:
        raise too_many(limits.AUDIT_TIMES, "scheduled times")
    return _decided(state, found.times)


def _decided(state: StateRecord, times: list[int]) -> list[int]:
    """Those of some scheduled times that have an outcome by now."""
    first = state.next_scheduled_at_ms or limits.INSTANT_MAX_MS
    moved = {edit.scheduled_at_ms for edit in state.edits if edit.kind == Edit.KIND_MOVE}
    return [
        at
        for at in times
        if at < first
        and at not in moved
        and not any(part.next_at_ms <= at < part.to_ms for part in state.backlog)
    ]


def _unexpected(
    plan: Plan, book: Book, expected: list[int], first: int
) -> list[run_pb2.LedgerEntry]:
    """Entries that no schedule explains; a stretch that counts another number is one too."""
    if plan.rests:
        return []
    known = set(expected)
    found = []
    for at, entry in book.alone.items():
        if at >= first and at not in known and not entry.added and not _names(plan, at):
            found.append(run_pb2.LedgerEntry(
                scheduled_time=timestamp(at), outcome=entry.outcome, count=1
            ))  # fmt: skip
    alone = sorted(at for at, entry in book.alone.items() if not entry.added)
    for at, entry in zip(book.firsts, book.stretches, strict=True):
        inside = bisect_right(alone, entry.last_at_ms) - bisect_right(alone, at)
        named = count_scheduled(plan, at, entry.last_at_ms + 1, ever=True)
        if at >= first and named.exact and named.number != entry.count + inside:
            found.append(run_pb2.LedgerEntry(
                scheduled_time=timestamp(at), outcome=entry.outcome, count=entry.count,
                last_scheduled_time=timestamp(entry.last_at_ms),
            ))  # fmt: skip
    return found


def _names(plan: Plan, at_ms: int) -> bool:
    """Whether a schedule names an instant: one that is decided before its time, by a move."""
    return bool(scheduled_times(plan, at_ms, at_ms + 1, 1, ever=True).times)


def _outcomes(plan: Plan, book: Book, first: int, end: int) -> Counter[int]:
    counts: Counter[int] = Counter()
    for entry in book.alone.values():
        counts[entry.outcome] += 1
    alone = sorted(at for at, entry in book.alone.items() if not entry.added)
    for at, entry in zip(book.firsts, book.stretches, strict=True):
        inside = entry.count
        if at < first or entry.last_at_ms >= end:
            low, high = max(first, at), min(end, entry.last_at_ms + 1)
            own = bisect_left(alone, high) - bisect_left(alone, low)
            inside = max(0, count_scheduled(plan, low, high, ever=True).number - own)
        counts[entry.outcome] += inside
    return +counts
