"""Whether each scheduled time has the outcome that it should have, looked at one by one.

What can be seen of a time alone: that it was late by more than the grace when it was missed, that
its day is left out by a calendar, that somebody skipped it, that a run stood in its way. Which of
several the misfire policy should have chosen is seen in audit_batches.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...proto.v1 import job_pb2, run_pb2
from ..core import limits
from ..core.instants import iso_text
from ..model import keys
from ..model.record import JobRecord, LedgerRecord, StateRecord
from ..schedule.plan import Plan, due, excluded
from ..tenants import namespaces
from .audit_book import NO_PROOF, UNJUDGED, WRONG, Book, Finding, Outcome
from .audit_evidence import Evidence

RAN, LATE = run_pb2.OUTCOME_RAN, run_pb2.OUTCOME_LATE
COALESCED, MISSED = run_pb2.OUTCOME_COALESCED, run_pb2.OUTCOME_MISSED
CALENDAR, BY_HAND = run_pb2.OUTCOME_SKIPPED_CALENDAR, run_pb2.OUTCOME_SKIPPED_MANUALLY
OVERLAP, QUOTA = run_pb2.OUTCOME_SKIPPED_OVERLAP, run_pb2.OUTCOME_SKIPPED_QUOTA
DEADLINE, REPLACED = run_pb2.OUTCOME_SKIPPED_DEADLINE, run_pb2.OUTCOME_REPLACED
Overlap = job_pb2.OverlapPolicy
# What a run stands for, of which the history has a record as long as it is kept.
BEGAN = (RAN, LATE, REPLACED)


class Policies:
    """What a job says of its scheduled times, and since when."""

    def __init__(self, job: JobRecord, state: StateRecord, plan: Plan, evidence: Evidence) -> None:
        spec, template = job.template.spec, job.template
        self.misfire = spec.misfire.rule or job_pb2.MisfirePolicy.RULE_LATEST
        self.maximum = spec.misfire.maximum or limits.MISFIRE_DEFAULT
        self.grace_ms = template.grace_ms
        self.deadline_ms = template.start_deadline_ms
        self.overlap = spec.overlap.rule
        if self.overlap == Overlap.RULE_UNSPECIFIED:
            self.overlap = Overlap.RULE_SKIP if job.schedules else Overlap.RULE_ALLOW
        self.limit = spec.overlap.limit
        since_ms = job.schedules_since_ms
        is_first = since_ms == job.created_at_ms
        self.since_ms = max(job.policies_since_ms, 0 if is_first else since_ms)
        self.set_back_ms = evidence.set_back_ms

    @property
    def skips(self) -> bool:
        """Whether its overlap policy says no to what is too much."""
        if self.overlap == Overlap.RULE_ALLOW:
            return self.limit > 0
        return self.overlap in (Overlap.RULE_SKIP, Overlap.RULE_QUEUE)

    @property
    def chooses(self) -> bool:
        """Whether several that are in time are one choice, since it has room for so many only."""
        return self.overlap != Overlap.RULE_ALLOW or self.limit > 0

    def unknown(self, decided_ms: int) -> str:
        """Why nobody knows by which policies something was decided; "" if they are these."""
        if not decided_ms:
            return "the ledger does not say when it was decided on"
        if decided_ms <= self.since_ms:
            at = iso_text(self.since_ms)
            return f"the timing or policies of the job were changed at {at}, after it was decided"
        if decided_ms <= self.set_back_ms:
            return "it was decided by a clock that was ahead, and the time was set back since"
        return ""


class Times:
    """The outcomes of a job's scheduled times, one by one."""

    def __init__(
        self, job: JobRecord, state: StateRecord, plan: Plan, book: Book, evidence: Evidence
    ) -> None:
        self.job = job
        self.plan = plan
        self.book = book
        self.evidence = evidence
        self.policies = Policies(job, state, plan, evidence)

    def findings(self, times: list[int]) -> Iterator[Finding]:
        began = self.evidence.occurrences(times[0], times[-1] + 1) if times else frozenset()
        for at_ms in times:
            found = self.book.find(at_ms)
            if found is None:
                yield Finding(at_ms, "it has no outcome", WRONG)
                continue
            first, entry = found
            if entry.added:
                continue
            due_ms = due(self.plan, at_ms)
            proof = entry.proof or NO_PROOF
            if proof.due_at_ms and first == at_ms:
                due_ms = proof.due_at_ms
            finding = self._judge(at_ms, entry, due_ms)
            if (
                finding is None
                and entry.outcome in BEGAN
                and keys.occurrence_of(at_ms) not in began
            ):
                finding = self._without_run(at_ms, entry, due_ms)
            if finding is not None:
                finding.stands = entry.outcome
                yield finding

    def _judge(self, at_ms: int, entry: LedgerRecord, due_ms: int) -> Finding | None:
        proof, outcome = entry.proof or NO_PROOF, entry.outcome
        if self.plan.calendars or outcome == CALENDAR:
            # What was moved has an instant of its own.
            is_moved = due_ms != due(self.plan, at_ms) or proof.dropped_at_ms
            is_moved = is_moved or at_ms in self.evidence.edits
            found = None if is_moved else self._calendar(at_ms, outcome, entry, due_ms)
            if found is not None or outcome == CALENDAR:
                return found
        if outcome == BY_HAND:
            return self._by_hand(at_ms, proof.decided_at_ms)
        if outcome in (COALESCED, MISSED):
            return self._passed(at_ms, entry, due_ms)
        if outcome in (OVERLAP, QUOTA):
            return self._no_room(at_ms, entry, due_ms)
        needs = {
            DEADLINE: self.policies.deadline_ms < limits.INSTANT_MAX_MS,
            REPLACED: self.policies.overlap in (Overlap.RULE_QUEUE_ONE, Overlap.RULE_REPLACE),
        }
        if not needs.get(outcome, True) and due_ms > self.policies.since_ms:
            why = (
                "the job has no start deadline"
                if outcome == DEADLINE
                else ("its overlap policy lets no run take the place of another")
            )
            return Finding(at_ms, why, WRONG, should=RAN)
        return None

    def _calendar(
        self, at_ms: int, outcome: Outcome.ValueType, entry: LedgerRecord, due_ms: int
    ) -> Finding | None:
        name = excluded(self.plan, at_ms)
        if (name is not None) == (outcome == CALENDAR) or outcome == BY_HAND:
            return None
        proof = entry.proof or NO_PROOF
        decided_ms = due_ms if proof.before else proof.decided_at_ms or due_ms
        changed_ms = max(self.evidence.calendars_ms, self.policies.since_ms)
        if decided_ms <= changed_ms:
            why = f"a calendar of the job, or which it has, was changed at {iso_text(changed_ms)}"
            return Finding(at_ms, f"{why}, after it was due", UNJUDGED)
        if name is not None:
            return Finding(at_ms, f"the calendar {name} leaves it out", WRONG, should=CALENDAR)
        return Finding(at_ms, "no calendar of the job leaves it out", WRONG, should=RAN)

    def _by_hand(self, at_ms: int, decided_ms: int) -> Finding | None:
        # Notes of an earlier version do not say of which one.
        if not self.evidence.edit_notes.isdisjoint(("", f"skip {iso_text(at_ms)}")):
            return None
        since_ms = self.evidence.notes.since_ms
        if since_ms > self.job.created_at_ms:
            why = "the audit log does not say who skipped it, and begins only at"
            return Finding(at_ms, f"{why} {iso_text(since_ms)}", UNJUDGED)
        return Finding(at_ms, "nobody skipped it, as the audit log says", WRONG, should=RAN)

    def _passed(self, at_ms: int, entry: LedgerRecord, due_ms: int) -> Finding | None:
        """Another stands for it, or it was missed."""
        proof = entry.proof or NO_PROOF
        if proof.dropped_at_ms:
            return self._dropped(at_ms, proof.dropped_at_ms)
        policies, decided_ms = self.policies, proof.decided_at_ms
        if why := policies.unknown(decided_ms):
            return Finding(at_ms, why, UNJUDGED)
        late_ms = decided_ms - due_ms
        if entry.outcome == COALESCED and late_ms >= policies.deadline_ms:
            why = f"it was past its start deadline of {policies.deadline_ms} ms then"
            return Finding(at_ms, why, WRONG, should=DEADLINE)
        if late_ms > policies.grace_ms or (entry.outcome == COALESCED and policies.chooses):
            return None
        why = f"it was decided on {late_ms} ms after it was due, within the grace of "
        return Finding(at_ms, f"{why}{policies.grace_ms} ms, so it runs", WRONG, should=RAN)

    def _dropped(self, at_ms: int, dropped_ms: int) -> Finding | None:
        if dropped_ms in self.evidence.gave_up_ms:
            return None
        since_ms, why = self.evidence.notes.since_ms, f"who gave it up at {iso_text(dropped_ms)}"
        if since_ms >= dropped_ms:
            since = f"begins only at {iso_text(since_ms)}"
            return Finding(at_ms, f"the audit log does not say {why}, and {since}", UNJUDGED)
        return Finding(at_ms, f"the audit log does not say {why}", WRONG, should=LATE)

    def _no_room(self, at_ms: int, entry: LedgerRecord, due_ms: int) -> Finding | None:
        """It was skipped for its overlap policy, or for a quota."""
        policies, decided_ms = self.policies, (entry.proof or NO_PROOF).decided_at_ms
        if why := policies.unknown(decided_ms):
            return Finding(at_ms, why, UNJUDGED)
        is_quota = entry.outcome == QUOTA
        if decided_ms - due_ms > policies.grace_ms:
            why = "the quota" if is_quota else "its overlap policy"
            why = f"it was late by more than the grace, and what is late waits for {why}"
            return Finding(at_ms, why, WRONG, should=LATE)
        return (self._quota if is_quota else self._overlap)(at_ms, decided_ms)

    def _overlap(self, at_ms: int, decided_ms: int) -> Finding | None:
        policies, evidence = self.policies, self.evidence
        if not policies.skips:
            return Finding(at_ms, "its overlap policy skips nothing", WRONG, should=RAN)
        most, seen = policies.limit or 1, evidence.beside.at(decided_ms)
        if most < limits.STEP:
            # Of more the rules look at the oldest only.
            seen -= evidence.expired[decided_ms]
        if seen >= most:
            return None
        if not evidence.has_all_runs or decided_ms <= evidence.history_ms:
            why = "the history does not reach back to the runs that were under way then"
            return Finding(at_ms, why, UNJUDGED)
        why = f"of the {most} runs that it takes {seen} were under way at {iso_text(decided_ms)}"
        return Finding(at_ms, why, WRONG, should=RAN)

    def _quota(self, at_ms: int, decided_ms: int) -> Finding | None:
        evidence = self.evidence
        most = namespaces.live_runs(evidence.view, self.job.namespace)
        seen = evidence.namespace.counted.at(decided_ms)
        if 0 < most <= seen:
            return None
        since_ms = evidence.namespace_ms if most else evidence.quota_ms
        if since_ms is None or decided_ms <= since_ms:
            why = "it is not known how many runs of the namespace were under way then"
            return Finding(at_ms, why, UNJUDGED)
        why = f"{seen} runs were under way at {iso_text(decided_ms)}, of {most or 'any number'}"
        return Finding(at_ms, f"{why} that the quota allows", WRONG, should=RAN)

    def _without_run(self, at_ms: int, entry: LedgerRecord, due_ms: int) -> Finding | None:
        """The history need not have it any more."""
        if due_ms <= self.evidence.history_ms:
            return None
        return Finding(at_ms, "there is no run of it, under way or in the history", WRONG,
                       should=entry.outcome)  # fmt: skip
