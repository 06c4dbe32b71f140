"""The ledger of a range as an audit reads it, and what it finds there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from ...proto.v1 import job_pb2, run_pb2
from ..core import limits
from ..core.instants import timestamp
from ..core.rejection import Reason, Refused
from ..model import keys
from ..model.record import LedgerRecord, ProofRecord, parse
from ..model.view import View
from ..occurrences import ledger

Verdict = job_pb2.AuditFinding
WRONG, UNJUDGED = Verdict.VERDICT_WRONG, Verdict.VERDICT_UNJUDGED
Outcome = run_pb2.Outcome
NO_PROOF = ProofRecord()
SHOWN = 1_000  # Findings, missing and unexpected outcomes that one answer names.


@dataclass(slots=True)
class Finding:
    """Scheduled times, one behind the other, that are wrong or cannot be judged for one reason."""

    at_ms: int
    reason: str
    verdict: job_pb2.AuditFinding.Verdict.ValueType
    stands: Outcome.ValueType = run_pb2.OUTCOME_UNSPECIFIED
    should: Outcome.ValueType = run_pb2.OUTCOME_UNSPECIFIED
    last_ms: int = 0
    count: int = 1

    def takes(self, other: Finding) -> bool:
        """Whether another one, of a later time, says the same."""
        mine = (self.reason, self.verdict, self.stands, self.should)
        return mine == (other.reason, other.verdict, other.stands, other.should)

    def answer(self) -> job_pb2.AuditFinding:
        return job_pb2.AuditFinding(
            scheduled_time=timestamp(self.at_ms), count=self.count, outcome=self.stands,
            should=self.should, reason=self.reason, verdict=self.verdict,
            last_scheduled_time=timestamp(self.last_ms) if self.last_ms else None,
        )  # fmt: skip


def joined(findings: Iterable[Finding]) -> list[Finding]:
    """Findings in order of time; those alike that follow each other as one."""
    found: list[Finding] = []
    for one in sorted(findings, key=lambda one: one.at_ms):
        if found and found[-1].takes(one):
            found[-1].last_ms = max(one.at_ms, one.last_ms)
            found[-1].count += one.count
        else:
            found.append(one)
    return found


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

    def find(self, at_ms: int) -> tuple[int, LedgerRecord] | None:
        """The entry that speaks of a scheduled time, and where it begins."""
        own = self.alone.get(at_ms)
        if own is not None:
            return at_ms, own
        place = bisect_right(self.firsts, at_ms) - 1
        if place >= 0 and at_ms <= self.stretches[place].last_at_ms:
            return self.firsts[place], self.stretches[place]
        return None

    def entries(self) -> list[tuple[int, LedgerRecord]]:
        found = [*self.alone.items(), *zip(self.firsts, self.stretches, strict=True)]
        return sorted(found, key=lambda item: item[0])


def read(view: View, jid: int, first: int, end: int) -> Book:
    """The entries that speak of a range; refused if they are too many."""
    book = Book()
    before = ledger.reaching(view, jid, first)
    if before is not None:
        book.add(*before)
    entries = view.stored.scan(keys.ledger(jid, first), keys.ledger(jid, end))
    for looked, (key, value) in enumerate(islice(entries, limits.LOOKED_AT + 1)):
        if looked == limits.LOOKED_AT:
            raise too_many(limits.LOOKED_AT, "ledger entries")
        book.add(keys.scheduled_at(key), parse(key, value, LedgerRecord))
    return book


def too_many(most: int, what: str) -> Refused:
    return Refused.because(
        Reason.ERROR_REASON_LIMIT_EXCEEDED,
        f"the range has over {most} {what}; take a shorter range",
        limit="audit_times", maximum=most, actual=most + 1,
    )  # fmt: skip
