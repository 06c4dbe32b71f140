"""What has come and has no outcome yet: since when it waits, and for what.

What waits for a time has a timer, and what waits for a run stands behind one that is under way. So
where neither is found, nothing will ever let it go on, and that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from ...proto.v1 import job_pb2, run_pb2
from ..core import limits
from ..core.instants import iso_text, timestamp
from ..model import keys
from ..model.phases import WAITING
from ..model.record import BacklogRecord, CatchUpRecord, JobRecord, RoomRecord, StateRecord
from ..occurrences import next_time
from ..schedule.plan import (
    Plan,
    count_scheduled,
    due,
    latest_scheduled_before,
    scheduled_times,
)
from ..tenants import namespaces
from .audit_book import WRONG, Finding
from .audit_evidence import Evidence

BACKFILL = run_pb2.CAUSE_BACKFILL
MADE = "the room that is made for a run of the job"
LEADER = "the leader, whose turn it is"


@dataclass(slots=True)
class Waits:
    """Scheduled times, one behind the other, that wait for one thing; "": for nothing."""

    first: int
    last: int
    count: int
    since_ms: int
    awaits: str

    def answer(self) -> job_pb2.AuditWaiting:
        return job_pb2.AuditWaiting(
            scheduled_time=timestamp(self.first), count=self.count, awaits=self.awaits or "nothing",
            last_scheduled_time=timestamp(self.last) if self.count > 1 else None,
            since_time=timestamp(self.since_ms) if self.since_ms else None,
        )  # fmt: skip

    def finding(self) -> Finding:
        since = f" since {iso_text(self.since_ms)}" if self.since_ms else ""
        why = f"it waits{since} though nothing keeps it, and no timer will let it go on"
        last_ms = self.last if self.count > 1 else 0
        return Finding(self.first, why, WRONG, last_ms=last_ms, count=self.count)


def look(
    jid: int, job: JobRecord, state: StateRecord, plan: Plan, evidence: Evidence
) -> Iterator[Waits]:
    """All that waits, those that were chosen to run first."""
    waiting = _Waiting(jid, job, state, plan, evidence)
    for place, part in enumerate(state.backlog):
        first = part.next_at_ms
        last = max(first, latest_scheduled_before(plan, part.to_ms, ever=True) or first)
        awaits = "those that wait before it" if place else waiting.of_turn(part)
        yield Waits(first, last, part.left, part.decided_at_ms, awaits)
    yield from waiting.undecided()
    for edit in state.edits:
        at_ms, due_ms = edit.scheduled_at_ms, next_time.edit_due(edit)
        if 0 < due_ms <= evidence.view.now_ms:
            yield Waits(at_ms, at_ms, 1, due_ms, waiting.of_decision())


class _Waiting:
    """What one job waits for."""

    def __init__(
        self, jid: int, job: JobRecord, state: StateRecord, plan: Plan, evidence: Evidence
    ) -> None:
        self.jid, self.job, self.state, self.plan = jid, job, state, plan
        self.evidence, self.view = evidence, evidence.view

    def undecided(self) -> Iterator[Waits]:
        """Times that have come: those that are due, and those whose jitter is not over."""
        state, plan, now_ms = self.state, self.plan, self.view.now_ms
        first, due_ms = state.next_scheduled_at_ms, state.next_due_at_ms
        if not 0 < first <= now_ms:
            return
        edge = now_ms - plan.jitter_ms + 1
        if due_ms <= now_ms:
            yield self._times(first, max(edge, first + 1), due_ms, self.of_decision())
            named = scheduled_times(plan, max(edge, first + 1), now_ms + 1, 1).times
            if not named:
                return
            first, due_ms = named[0], due(plan, named[0])
        awaits = self._stands() or f"its jitter, until {iso_text(due_ms)}"
        yield self._times(first, now_ms + 1, first, awaits)

    def _times(self, first: int, end: int, since_ms: int, awaits: str) -> Waits:
        """The times of a range, whose first may follow from the end of a run. What ran before its
        time, or was moved, is none of them."""
        plan, jid = self.plan, self.jid
        last = max(first, latest_scheduled_before(plan, end) or first)
        own = self.view.stored.scan(keys.ledger(jid, first), keys.ledger(jid, last + 1))
        known = sum(1 for _ in islice(own, limits.LOOKED_AT))
        moved = sum(
            edit.kind == next_time.MOVE and first <= edit.scheduled_at_ms <= last
            for edit in self.state.edits
        )
        count = 1 + count_scheduled(plan, first + 1, end).number - known - moved
        return Waits(first, last, count, since_ms, awaits)

    def _stands(self) -> str:
        """Why the job as a whole does nothing."""
        if self.state.state == next_time.PAUSED:
            until_ms = self.state.pause_until_ms
            until = f" at {iso_text(until_ms)}" if until_ms else ""
            return f"the resume of the job{until}"
        if self.state.state == next_time.BROKEN:
            return "the repair of the job, which was set aside"
        return ""

    def of_decision(self) -> str:
        """What keeps the job from deciding on what is due."""
        if stands := self._stands():
            return stands
        if self.view.get(keys.room(self.jid), RoomRecord) is not None:
            return MADE
        is_active = self.state.state == next_time.ACTIVE and self.state.timer_at_ms
        return LEADER if is_active else ""

    def of_turn(self, part: BacklogRecord) -> str:
        """What keeps the first of the backlog."""
        at_ms, now_ms = part.release_at_ms, self.view.now_ms
        if stands := self._stands():
            return stands
        if not at_ms:
            return self._of_end()
        if self.view.get(keys.catch_up(self.jid), CatchUpRecord) is None:
            return ""
        if at_ms <= now_ms:
            return LEADER
        whose = "the pace of the backfill" if part.cause == BACKFILL else "its turn after an outage"
        return f"{whose}, at {iso_text(at_ms)}"

    def _of_end(self) -> str:
        """Of what waits for the end of a run: which that may be."""
        evidence = self.evidence
        mine = sum(not run.ended_at_ms and run.phase not in WAITING for run in evidence.runs)
        most = namespaces.live_runs(self.view, self.job.namespace)
        if most and self.state.quota_wait_since_ms:
            used = sum(
                not run.ended_at_ms and run.phase not in WAITING for run in evidence.namespace.runs
            )
            return (
                f"the quota: {used} runs of the namespace are under way, of {most}" if used else ""
            )
        if mine:
            return "the end of a run of the job" if mine == 1 else f"the end of one of {mine} runs"
        return MADE if self.view.get(keys.room(self.jid), RoomRecord) is not None else ""
