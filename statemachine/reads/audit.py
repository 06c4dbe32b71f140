"""The proof that no scheduled time was lost: the ledger against the schedules, computed anew.

The comparison begins where the present schedules took force, since nobody knows the old ones any
more, or where the ledger begins that is kept; it ends at the next scheduled time, since what comes
behind was not decided on yet. Times that follow from the end of a run cannot be computed anew, so
in a job with such a schedule no entry is a surprise. What was moved, or waits in a backlog, is not
missing: it gets its outcome when it is due.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice

from ...proto.v1 import job_pb2, run_pb2, schedule_pb2
from ..calls.jobs import find
from ..core import limits
from ..core.instants import ms_or, timestamp
from ..core.rejection import Reason, Refused
from ..model import keys, validate
from ..model.record import JobRecord, LedgerRecord, StateRecord, parse
from ..model.view import View
from ..model.workers import Workers
from ..occurrences import ledger, next_time
from ..schedule.plan import Plan, count_scheduled, scheduled_times

Edit = schedule_pb2.OccurrenceEdit
SHOWN = 1_000  # Gaps and surprises that one answer names.


@dataclass(slots=True)
class Book:
    """The ledger of a range: entries alone, and stretches in order."""

    alone: dict[int, LedgerRecord] = field(default_factory=dict)
    firsts: list[int] = field(default_factory=list)
    stretches: list[LedgerRecord] = field(default_factory=list)

    def add(self, at_ms: int, entry: LedgerRecord) -> None:
        if entry.last_at_ms:
            self.firsts.append(at_ms)
            self.stretches.append(entry)
        else:
            self.alone[at_ms] = entry

    def knows(self, at_ms: int) -> bool:
        if at_ms in self.alone:
            return True
        place = bisect_right(self.firsts, at_ms) - 1
        return place >= 0 and at_ms <= self.stretches[place].last_at_ms


def audit(
    view: View, request: job_pb2.AuditJobRequest, workers: Workers
) -> job_pb2.AuditJobResponse:
    jid, job, state = find(view, request.namespace, request.job)
    plan = next_time.plan_of(view, jid, job)
    since_ms = _since(job, state)
    first, end = _range(view, request, since_ms)
    book = _book(view, jid, first, end)
    expected = _expected(plan, job, state, max(first, since_ms), end)
    gaps = [at for at in expected if not book.knows(at)]
    # What came at that very instant was decided on by the schedules before.
    surprises = _surprises(plan, book, expected, max(first, since_ms + 1))
    answer = job_pb2.AuditJobResponse(
        sound=not gaps and not surprises, expected=len(expected),
        recorded=len(expected) - len(gaps), gaps=[timestamp(at) for at in gaps[:SHOWN]],
        surprises=surprises[:SHOWN], comparable_since=timestamp(since_ms),
    )  # fmt: skip
    for outcome, count in sorted(_outcomes(plan, book, first, end).items()):
        answer.outcomes.add(outcome=run_pb2.Outcome.ValueType(outcome), count=count)
    return answer


def _since(job: JobRecord, state: StateRecord) -> int:
    """From when on a comparison means something."""
    since_ms = job.schedules_since_ms
    if since_ms == job.created_at_ms:
        # A single time in the past runs at once, and belongs to the schedules it was created with.
        since_ms = min(since_ms, state.ledger_from_ms or since_ms)
    return max(since_ms, state.ledger_purged_ms)


def _range(view: View, request: job_pb2.AuditJobRequest, since_ms: int) -> tuple[int, int]:
    first = ms_or(request, "from_time", since_ms)
    # Schedules that were set by a clock that was ahead may begin later than now.
    end = ms_or(request, "to_time", max(view.now_ms + 1, since_ms))
    if faults := validate.period(request, first, end):
        raise Refused.of(faults)
    return first, end


def _book(view: View, jid: int, first: int, end: int) -> Book:
    book = Book()
    before = ledger.covering(view, jid, first)
    if before is not None and before[0] < first:
        book.add(*before)
    entries = view.stored.scan(keys.ledger(jid, first), keys.ledger(jid, end))
    for looked, (key, value) in enumerate(islice(entries, limits.LOOKED_AT + 1)):
        if looked == limits.LOOKED_AT:
            raise _too_many(limits.LOOKED_AT, "ledger entries")
        book.add(keys.scheduled_at(key), parse(key, value, LedgerRecord))
    return book


def _too_many(most: int, what: str) -> Refused:
    return Refused.because(
        Reason.ERROR_REASON_LIMIT_EXCEEDED,
        f"the range has over {most} {what}; take a shorter range",
        limit="audit_times", maximum=most, actual=most + 1,
    )  # fmt: skip


def _expected(plan: Plan, job: JobRecord, state: StateRecord, first: int, end: int) -> list[int]:
    """The scheduled times of a range that have an outcome by now."""
    decided = next_time.decided(state)
    found = scheduled_times(plan, first, min(end, decided + 1), limits.AUDIT_TIMES)
    if found.cut:
        raise _too_many(limits.AUDIT_TIMES, "scheduled times")
    waiting = {edit.scheduled_at_ms for edit in state.edits if edit.kind == Edit.KIND_MOVE}
    since_ms = job.schedules_since_ms
    onces = {once.at_ms for once in plan.onces} if since_ms == job.created_at_ms else set()
    return [
        at
        for at in found.times
        if at not in waiting
        and (at > since_ms or at in onces)
        and not any(part.next_at_ms <= at < part.to_ms for part in state.backlog)
    ]


def _surprises(
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
    for at, entry in zip(book.firsts, book.stretches, strict=True):
        if first <= at and entry.last_at_ms < end:
            counts[entry.outcome] += entry.count
        else:
            inside = count_scheduled(
                plan, max(first, at), min(end, entry.last_at_ms + 1), ever=True
            )
            counts[entry.outcome] += inside.number
    return counts
