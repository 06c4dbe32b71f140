"""Whether what somebody asked for has a run or an outcome: triggers, backfills, requeued letters.

The audit log says what was acknowledged, and in which change. A trigger makes a run in that same
change, and a run says in which one it was made; so none needs a counter of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from ...proto.v1 import run_pb2
from ..core import limits
from ..core.instants import instant_of, iso_text
from ..model import keys
from ..model.record import AuditEntryRecord, JobRecord, LedgerRecord, RunRecord, StateRecord
from ..schedule.plan import Plan, excluded, scheduled_times
from . import audit_book
from .audit_book import NO_PROOF, UNJUDGED, WRONG, Book, Finding
from .audit_evidence import Evidence

# As calls/occurrences.py notes it.
PLANNED = re.compile(r"(\d+) scheduled times from (\S+) to (\S+)")
# As calls/triggers.py notes it: many runs with one note.
MADE = re.compile(r"(\d+) runs? triggered")
TRIGGERS = frozenset({"TriggerJob", "TriggerJobs"})
BACKFILL, SCHEDULE = run_pb2.CAUSE_BACKFILL, run_pb2.CAUSE_SCHEDULE
# After which a backfill runs a time, whatever else came meanwhile.
PASSED = frozenset({
    run_pb2.OUTCOME_MISSED, run_pb2.OUTCOME_COALESCED, run_pb2.OUTCOME_SKIPPED_OVERLAP,
    run_pb2.OUTCOME_SKIPPED_QUOTA,
})  # fmt: skip


@dataclass(slots=True)
class Requests:
    """What somebody asked for in a range of time."""

    asked: int = 0
    ended: int = 0
    under_way: int = 0
    findings: list[Finding] = field(default_factory=list)

    def has(self, run: RunRecord) -> None:
        if run.ended_at_ms:
            self.ended += 1
        else:
            self.under_way += 1

    def lost(self, at_ms: int, reason: str, count: int = 1) -> None:
        self.findings.append(Finding(at_ms, reason, WRONG, count=count))


def look(
    job: JobRecord, state: StateRecord, plan: Plan, evidence: Evidence, first: int, end: int
) -> Requests:
    """What was asked for in a range, as far back as what came of it is kept."""
    asked = Requests()
    notes = evidence.notes
    mine = [
        note for note in evidence.about_job(*TRIGGERS, "BackfillJob") if first <= note.at_ms < end
    ]
    triggers = [note for note in mine if note.method in TRIGGERS]
    backfills = [note for note in mine if note.method == "BackfillJob"]
    letters = [
        note for note in notes.about_runs(job.name, evidence.jid)
        if note.method == "RequeueDeadLetter" and first <= note.at_ms < end
    ]  # fmt: skip
    by_filter = any(first <= note.at_ms < end for _, note in notes.of("RequeueDeadLetters"))
    if triggers and not evidence.has_all_runs:
        why = f"it has over {limits.AUDIT_TIMES} runs, so what was triggered is not looked for"
        count = sum(map(_number, triggers))
        asked.findings.append(Finding(triggers[0].at_ms, why, UNJUDGED, count=count))
    elif triggers:
        _triggers(asked, triggers, evidence)
    _letters(asked, letters, evidence)
    if by_filter:
        _by_filter(asked, letters, evidence)
    _backfills(asked, backfills, job, state, plan, evidence)
    return asked


def _triggers(asked: Requests, notes: list[AuditEntryRecord], evidence: Evidence) -> None:
    """So many runs as the notes say, made in the same change."""
    made: dict[int, list[RunRecord]] = {}
    for run in evidence.runs:
        if run.cause == run_pb2.CAUSE_TRIGGER:
            made.setdefault(run.made_in, []).append(run)
    at_ms = {note.revision: note.at_ms for note in notes}
    numbers = Counter[int]()
    for note in notes:
        numbers[note.revision] += _number(note)
    for revision, number in numbers.items():
        found = made.get(revision, [])
        missing = number - len(found)
        if missing > 0 and at_ms[revision] <= evidence.history_ms:
            # They may have left the history.
            missing = 0
        asked.asked += missing + len(found)
        for run in found:
            asked.has(run)
        if missing:
            why = f"it was triggered at {iso_text(at_ms[revision])}, and there is no run of that"
            asked.lost(at_ms[revision], why, missing)


def _number(note: AuditEntryRecord) -> int:
    many = MADE.fullmatch(note.change)
    return 1 if many is None else int(many[1])


def _letters(asked: Requests, notes: list[AuditEntryRecord], evidence: Evidence) -> None:
    """A dead letter that was requeued is under way, or has ended once more."""
    view = evidence.view
    for note in notes:
        place = keys.run_key(note.subject.removeprefix("run/"))
        run = None
        if place is not None:
            run = view.get(keys.run(*place), RunRecord) or view.get(keys.ended(*place), RunRecord)
        if run is not None and not 0 < run.ended_at_ms < note.at_ms:
            asked.asked += 1
            asked.has(run)
        elif run is not None or note.at_ms > evidence.history_ms:
            asked.asked += 1
            why = f"{note.subject} was requeued at {iso_text(note.at_ms)}, and did not begin again"
            asked.lost(note.at_ms, why)


def _by_filter(asked: Requests, notes: list[AuditEntryRecord], evidence: Evidence) -> None:
    """A call for all that fit a filter does not note which ones these were; but a run says that it
    was requeued. Each that has no note of its own counts once."""
    places = (keys.run_key(note.subject.removeprefix("run/")) for note in notes)
    own = {place[1] for place in places if place is not None}
    for occurrence, run in evidence.requeued.items():
        if occurrence not in own:
            asked.asked += 1
            asked.has(run)


def _backfills(
    asked: Requests, notes: list[AuditEntryRecord], job: JobRecord, state: StateRecord,
    plan: Plan, evidence: Evidence,
) -> None:  # fmt: skip
    """Each time that was planned waits, runs, or has an outcome."""
    looked = 0
    seen: set[int] = set()
    schedules_ms = max(job.schedules_since_ms, evidence.schedules_ms)
    changed_ms = max(schedules_ms, evidence.calendars_ms, evidence.set_back_ms)
    for note in notes:
        planned = PLANNED.fullmatch(note.change)
        if planned is None:
            continue
        number, first, last = int(planned[1]), instant_of(planned[2]), instant_of(planned[3])
        if first is None or last is None:
            continue
        if note.at_ms <= changed_ms:
            _of_before(asked, number, first, last, state, evidence, seen)
            continue
        found = scheduled_times(plan, first, last + 1, limits.AUDIT_TIMES - looked, ever=True)
        looked += len(found.times)
        if found.cut:
            why = f"over {limits.AUDIT_TIMES} times were backfilled; not all were looked for"
            asked.findings.append(Finding(note.at_ms, why, UNJUDGED, count=number))
            return
        if not found.times:
            why = f"{number} times were backfilled that the schedules do not name now"
            asked.findings.append(Finding(note.at_ms, why, UNJUDGED, count=number))
            continue
        _backfill(asked, note, number, found.times, state, plan, evidence)


def _backfill(
    asked: Requests, note: AuditEntryRecord, number: int, times: list[int], state: StateRecord,
    plan: Plan, evidence: Evidence,
) -> None:  # fmt: skip
    view, jid = evidence.view, evidence.jid
    book = audit_book.read(view, jid, times[0], times[-1] + 1)
    runs = evidence.occurrences(times[0], times[-1] + 1)
    parts, missed = _waiting(state, BACKFILL), _waiting(state, SCHEDULE)
    edited = {edit.scheduled_at_ms for edit in state.edits}
    given_up = any(one.at_ms >= note.at_ms for one in evidence.about_job("DropBacklog"))
    waiting = lost = passed = 0
    for at_ms in times:
        waits = any(first <= at_ms < end for first, end in parts)
        entry = book.alone.get(at_ms)
        is_run = keys.occurrence_of(at_ms) in runs
        has_run = entry is not None and entry.proof is not None and entry.proof.before
        is_live = view.stored.get(keys.run(jid, keys.occurrence_of(at_ms))) is not None
        if is_live or (waits and not has_run and not is_run):
            waiting += 1
        elif at_ms in edited or any(first <= at_ms < end for first, end in missed):
            # The backfill left it alone.
            continue
        elif book.find(at_ms) is None and not is_run and not given_up:
            lost += at_ms >= state.ledger_purged_ms and excluded(plan, at_ms) is None
        elif not is_run and not given_up and excluded(plan, at_ms) is None:
            passed += _still_passed(note, at_ms, book)
    waiting = min(waiting, number)
    asked.asked += number
    asked.under_way += waiting
    asked.ended += max(0, number - waiting - lost - passed)
    planned = f"the backfill of {iso_text(note.at_ms)} planned it"
    if lost:
        asked.lost(note.at_ms, f"{planned}, and it has neither run nor outcome", lost)
    if passed:
        asked.lost(note.at_ms, f"{planned}, and it still has the outcome of before", passed)


def _of_before(
    asked: Requests, number: int, first: int, last: int, state: StateRecord, evidence: Evidence,
    seen: set[int],
) -> None:  # fmt: skip
    """It was planned by schedules or calendars that nobody knows any more: what has a run or waits
    is counted, and what is missing cannot be named."""
    for occurrence, run in evidence.backfilled(first, last + 1):
        if number and occurrence not in seen:
            number -= 1
            seen.add(occurrence)
            asked.asked += 1
            asked.has(run)
    inside = (one for one in state.backlog if first <= one.next_at_ms <= last)
    waiting = min(number, sum(part.left for part in inside if part.cause == BACKFILL))
    asked.asked += waiting
    asked.under_way += waiting


def _waiting(state: StateRecord, cause: run_pb2.Cause.ValueType) -> list[tuple[int, int]]:
    """Where what waits in the backlog begins and ends."""
    return [(part.next_at_ms, part.to_ms) for part in state.backlog if part.cause == cause]


def _still_passed(note: AuditEntryRecord, at_ms: int, book: Book) -> bool:
    """Whether a time has an outcome without a run, which it had when a backfill was to run it. What
    came in the instant of the backfill may have come behind it."""
    _, entry = book.find(at_ms) or (0, LedgerRecord())
    proof = entry.proof or NO_PROOF
    decided_ms = max(proof.decided_at_ms, proof.dropped_at_ms)
    return entry.outcome in PASSED and 0 < decided_ms < note.at_ms
