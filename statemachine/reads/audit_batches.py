"""Whether the misfire policy chose the right ones of what was decided on together.

A batch is what a job decided on at one instant: it was late by more than the grace (missed), or in
time. Its entries in the ledger say when that was. The policy lets so many of those that were missed
run, the newest or the earliest; here they are counted anew, from the outcomes alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from ...proto.v1 import job_pb2, run_pb2
from ..core import limits
from ..core.instants import iso_text
from ..model import keys
from ..model.record import LedgerRecord, StateRecord, parse
from ..model.view import View
from ..schedule.plan import (
    Plan,
    count_scheduled,
    excluded,
    latest_scheduled_before,
    scheduled_times,
)
from .audit_book import NO_PROOF, UNJUDGED, WRONG, Book, Finding, Outcome
from .audit_evidence import Evidence
from .audit_times import (
    BY_HAND,
    CALENDAR,
    COALESCED,
    DEADLINE,
    LATE,
    MISSED,
    OVERLAP,
    QUOTA,
    RAN,
    REPLACED,
    Policies,
)

Rule = job_pb2.MisfirePolicy
RULES = {Rule.RULE_SKIP: "SKIP", Rule.RULE_LATEST: "LATEST", Rule.RULE_EARLIEST: "EARLIEST",
         Rule.RULE_ALL: "ALL"}  # fmt: skip
BESIDE = 2 * limits.EDITS + 1  # Entries among those of one decision that are not of it.


@dataclass(slots=True)
class Item:
    """Scheduled times with one outcome, one behind the other; what waits is one as well."""

    first: int
    last: int
    count: int
    # When the first and the last are due.
    due_ms: int
    last_due_ms: int
    outcome: Outcome.ValueType
    # 0: in time, with whatever else was.
    decided_ms: int = 0
    decided_in: int = 0
    # It was to run, and was given up while it waited.
    dropped: bool = False

    @property
    def stands(self) -> bool:
        """Whether it ran, or was to, so that it can stand for others."""
        return self.dropped or self.outcome not in (COALESCED, MISSED, OVERLAP, QUOTA)

    @property
    def order(self) -> tuple[int, int]:
        return self.last_due_ms, self.last

    @property
    def passed(self) -> bool:
        return not self.dropped and self.outcome in (COALESCED, MISSED)


def findings(
    view: View, jid: int, state: StateRecord, plan: Plan, book: Book, policies: Policies,
    evidence: Evidence,
) -> Iterator[Finding]:  # fmt: skip
    """What of the batches of a range is wrong; each is looked at as a whole."""
    proofs = (entry.proof for _, entry in book.entries() if entry.proof is not None)
    mine = {
        (proof.decided_at_ms, proof.decided_in)
        for proof in proofs
        if not policies.unknown(proof.decided_at_ms)
    }
    if not mine:
        return
    around, is_whole = _around(view, jid, book, mine, evidence)
    found = [*_items(plan, around), *_waiting(state, plan)]
    items = [item for item in found if not _had_expired(item, policies)]
    items.sort(key=lambda item: (item.due_ms, item.first))
    by_due = sorted(items, key=lambda item: item.order)
    dues = [item.last_due_ms for item in by_due]
    batches: dict[tuple[int, int], list[Item]] = {}
    for item in items:
        place = item.decided_ms, item.decided_in
        if place in mine:
            batches.setdefault(place, []).append(item)
    for (decided_ms, _), batch in batches.items():
        edge_ms = decided_ms - policies.grace_ms
        late = [_split(plan, one, edge_ms)[0] for one in batch if one.due_ms < edge_ms]
        near = by_due[bisect_left(dues, edge_ms) : bisect_right(dues, decided_ms)]
        in_time = [
            _split(plan, one, edge_ms)[1]
            for one in near
            if not one.decided_ms or one.decided_ms >= decided_ms
        ]
        awaits = max(edge_ms, 1) <= state.next_due_at_ms <= decided_ms
        doubt = "" if is_whole else "what was decided on with it is more than an audit looks at"
        if evidence.calendars_ms >= decided_ms:
            doubt = "a calendar that was changed since may have left another out"
        for finding in AuditBatch(policies, decided_ms, late, in_time, awaits).findings():
            if doubt:
                finding.verdict, finding.reason = UNJUDGED, f"{finding.reason}; but {doubt}"
            yield finding


def _had_expired(item: Item, policies: Policies) -> bool:
    """Whether it was past its start deadline when it was decided on, so none that may run."""
    late_ms = item.decided_ms - item.last_due_ms
    return item.outcome == DEADLINE and late_ms >= policies.deadline_ms


def _around(
    view: View, jid: int, book: Book, mine: set[tuple[int, int]], evidence: Evidence
) -> tuple[list[tuple[int, LedgerRecord]], bool]:
    """The entries of a range, and those beside it that may have been decided on with them; and
    whether these are all."""
    entries = book.entries()
    first, last = entries[0], entries[-1]
    changes = {decided_in for _, decided_in in mine if decided_in}
    before: list[tuple[int, LedgerRecord]] = []
    low, high = keys.ledger(jid, 0), keys.ledger(jid, first[0])
    others = 0
    for key, value in view.stored.scan(low, high, backwards=True):
        entry = parse(key, value, LedgerRecord)
        # What an update of the schedules kept stands among what it gave up.
        others += (entry.proof or NO_PROOF).decided_in not in changes
        if others > BESIDE or len(before) == limits.LOOKED_AT:
            break
        before.append((keys.scheduled_at(key), entry))
    begin, end = last[0] + 1, max(last[0], max(mine)[0]) + 1
    behind = view.stored.scan(keys.ledger(jid, begin), keys.ledger(jid, end))
    after = [
        (keys.scheduled_at(key), parse(key, value, LedgerRecord))
        for key, value in islice(behind, limits.LOOKED_AT)
    ]
    # What was moved or added may lie anywhere.
    edited, is_whole = evidence.edited()
    known = dict([*before, *entries, *after])
    for at_ms in edited:
        entry_ = view.get(keys.ledger(jid, at_ms), LedgerRecord) if at_ms not in known else None
        after += [(at_ms, entry_)] if entry_ is not None else []
    most = max(len(before), len(after))
    return [*before[::-1], *entries, *after], is_whole and most < limits.LOOKED_AT


def _split(plan: Plan, item: Item, edge_ms: int) -> tuple[Item, Item]:
    """What of an item was due before an instant, and the rest; all of it if it is on one side."""
    if item.due_ms >= edge_ms or item.last_due_ms < edge_ms:
        return item, item
    behind = count_scheduled(plan, edge_ms - plan.jitter_ms, item.last + 1).number
    behind = min(behind, item.count - 1)
    return replace(item, count=item.count - behind), replace(item, count=max(behind, 1))


def _items(plan: Plan, entries: list[tuple[int, LedgerRecord]]) -> Iterator[Item]:
    for at_ms, entry in entries:
        proof = entry.proof or NO_PROOF
        outcome = proof.before or entry.outcome
        # Without a proof of its own it began in time.
        in_time = not entry.proof or proof.before
        by_policy = proof.decided_at_ms or (in_time and outcome in (RAN, REPLACED, DEADLINE))
        if outcome in (CALENDAR, BY_HAND) or not by_policy:
            continue
        last = entry.last_at_ms or at_ms
        if plan.calendars and last > at_ms:
            at_ms, last = _ends(plan, at_ms, last)
        due_ms = proof.due_at_ms or at_ms + plan.jitter_ms
        last_due_ms = last + plan.jitter_ms if entry.last_at_ms else due_ms
        yield Item(
            at_ms, last, entry.count or 1, due_ms, last_due_ms, outcome, proof.decided_at_ms,
            proof.decided_in, bool(proof.dropped_at_ms),
        )  # fmt: skip


def _ends(plan: Plan, first: int, last: int) -> tuple[int, int]:
    """The first and the last time of a stretch that no calendar leaves out, if there are any."""
    found: list[int] = []
    at_ms = first
    for _ in range(limits.CALENDAR_DAYS):
        if at_ms > last:
            break
        end = min(calendar.day_end(at_ms, plan.zone) for _, calendar in plan.calendars)
        if excluded(plan, at_ms) is None:
            day = min(end, last + 1)
            named = scheduled_times(plan, at_ms, day, 1).times
            found += [*named, latest_scheduled_before(plan, day) or last] if named else []
        at_ms = end
    return (found[0], found[-1]) if found else (first, last)


def _waiting(state: StateRecord, plan: Plan) -> Iterator[Item]:
    """What was chosen and has not run yet."""
    for part in state.backlog:
        if part.cause == run_pb2.CAUSE_SCHEDULE and part.decided_at_ms:
            first, last = part.next_at_ms, max(part.next_at_ms, part.to_ms - 1)
            due_ms = part.due_at_ms or first + plan.jitter_ms
            last_due_ms = part.due_at_ms or last + plan.jitter_ms
            yield Item(first, last, part.left, due_ms, last_due_ms, LATE, part.decided_at_ms,
                       part.decided_in)  # fmt: skip


@dataclass(slots=True)
class AuditBatch:
    """What was decided on at one instant."""

    policies: Policies
    decided_ms: int
    # In the order in which they were due.
    late: list[Item]
    in_time: list[Item]
    # One that was in time then is still to be decided on.
    awaits: bool

    def findings(self) -> Iterator[Finding]:
        yield from self._in_time()
        if not self.late:
            return
        rule = self.policies.misfire
        chosen = [item for item in self.late if not item.passed]
        wanted, should = self._wanted(len(chosen))
        passed = [item for item in self.late if item.passed]
        for item in passed:
            if item.outcome != should:
                yield self._wrong(item, f"it is one of those that {RULES[rule]} leaves out", should)
        surplus = sum(item.count for item in chosen) - wanted
        in_order = self.late if rule == Rule.RULE_EARLIEST else self.late[::-1]
        if surplus > 0:
            for item in islice((one for one in in_order[::-1] if not one.passed), surplus):
                why = f"{RULES[rule]} lets {wanted} of the missed run, and this is one more"
                yield self._wrong(item, why, should)
        elif surplus < 0 and passed:
            item = next(item for item in in_order if item.passed)
            yield self._wrong(item, self._nothing(wanted), LATE, newest=rule != Rule.RULE_EARLIEST)
        elif chosen and passed:
            yield from self._order(in_order, should)
        if rule == Rule.RULE_LATEST and not wanted and passed and not self._has_stand_in():
            yield self._wrong(passed[-1], self._nothing(1), LATE, newest=True)

    def _wanted(self, chosen: int) -> tuple[int, Outcome.ValueType]:
        """How many of those that were missed may run, and what becomes of the others."""
        rule = self.policies.misfire
        if rule == Rule.RULE_SKIP:
            return 0, MISSED
        if rule == Rule.RULE_ALL:
            beside = sum(item.count for item in self.in_time)
            most = min(self.policies.maximum + beside, limits.MISFIRE_RUNS) - beside
            return most, MISSED
        if rule == Rule.RULE_LATEST and (self.in_time or self.awaits):
            # What was decided on later need not have been there then: the job may have had no more
            # runs to make.
            is_sure = any(item.decided_in == self.late[0].decided_in for item in self.in_time)
            return 0 if is_sure else min(1, chosen), COALESCED
        return 1, COALESCED

    def _nothing(self, wanted: int) -> str:
        rule, at = RULES[self.policies.misfire], iso_text(self.decided_ms)
        few = "one" if wanted == 1 else f"{wanted}"
        end = "earliest" if rule == "EARLIEST" else "latest"
        return (
            f"of what was missed until {at} {rule} lets {few} run, the {end} of those that may; "
            "nothing stands for this one"
        )

    def _has_stand_in(self) -> bool:
        """Whether one that was in time runs, or was left to a later decision."""
        return self.awaits or any(
            item.stands or item.decided_ms > self.decided_ms for item in self.in_time
        )

    def _order(self, in_order: list[Item], should: Outcome.ValueType) -> Iterator[Finding]:
        """Those that were chosen stand before all others in the order of the policy."""
        is_passed = [item.passed for item in in_order]
        first = is_passed.index(True)
        if not all(is_passed[first:]):
            rule, item = RULES[self.policies.misfire], in_order[first]
            why = f"another of the missed ran in its place, which {rule} would not choose"
            yield self._wrong(item, why, LATE, newest=rule != "EARLIEST")

    def _in_time(self) -> Iterator[Finding]:
        """Of several that are in time the newest run, if the overlap policy has a limit."""
        mine = [item for item in self.in_time if item.decided_ms in (0, self.decided_ms)]
        passed = [item for item in mine if item.passed and item.outcome == COALESCED]
        if not passed or self.awaits or not self.policies.chooses:
            return
        others = [
            item for item in self.in_time if not item.passed or item.decided_ms > self.decided_ms
        ]
        newest = max(item.order for item in passed)
        if not any(item.order > newest for item in others):
            why = "of those in time together the latest runs, and nothing stands for this one"
            yield self._wrong(passed[-1], why, run_pb2.OUTCOME_RAN, newest=True)

    def _wrong(
        self, item: Item, reason: str, should: Outcome.ValueType, *, newest: bool = False
    ) -> Finding:
        """Of a stretch only its newest is the one that is wrong, or its first."""
        stands = MISSED if item.dropped else item.outcome
        if item.count == 1 or should == LATE:
            at_ms = item.last if newest else item.first
            return Finding(at_ms, reason, WRONG, stands, should)
        return Finding(item.first, reason, WRONG, stands, should, item.last, item.count)
