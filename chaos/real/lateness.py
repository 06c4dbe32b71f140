"""How late first attempts began, and what excuses it: faults, and a machine that was busy."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .history import Bounds, FaultSpan, Lease, Observations

# A fault may show so long before it is written down, and after it is over.
BEFORE_S, AFTER_S = 0.2, 1.0
# What a busy machine left undone takes so long to catch up.
BACKLOG_S = 0.5
# So soon others have taken over from one node that died or hung.
TAKEOVER_S = 1.5


@dataclass(frozen=True, slots=True)
class First:
    """A first attempt of a job whose lateness is checked."""

    lease: Lease
    late_ms: float
    # When it was due, by the clock of the harness.
    due_at: float


class TimeSpans:
    """Stretches of time; what overlaps is one."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        self.begins: list[float] = []
        self.ends: list[float] = []
        for began, ended in sorted(spans):
            if self.ends and began <= self.ends[-1]:
                self.ends[-1] = max(self.ends[-1], ended)
            else:
                self.begins.append(began)
                self.ends.append(ended)

    def within(self, began: float, ended: float) -> float:
        """Seconds of a stretch that lie in one of them."""
        first, last = bisect_left(self.ends, began), bisect_right(self.begins, ended)
        return sum(
            max(0.0, min(ended, self.ends[at]) - max(began, self.begins[at]))
            for at in range(first, last)
        )

    def touch(self, began: float, ended: float) -> bool:
        return bisect_left(self.ends, began) < bisect_right(self.begins, ended)


def firsts(seen: Observations) -> Iterator[First]:
    prompt = {plan.job: plan.from_ms for plan in seen.plans if plan.prompt}
    begun: dict[str, int] = {}
    for lease in seen.leases:
        begun[lease.run] = min(lease.token, begun.get(lease.run, lease.token))
    for lease in seen.leases:
        # A worker that forgot its lease gives it back uncounted: the next is attempt 1 as well.
        if (
            lease.attempt == 1
            and lease.token == begun[lease.run]
            and lease.due_ms >= prompt.get(lease.job, lease.due_ms + 1)
        ):
            late_ms = float(lease.wall_ms - lease.due_ms)
            yield First(lease, late_ms, lease.at - max(0.0, late_ms) / 1000)


def quiet_firsts(seen: Observations) -> list[First]:
    """Those that had neither a fault nor a busy machine near."""
    faults = TimeSpans((fault.began - BEFORE_S, fault.ended + AFTER_S) for fault in over(seen))
    machine = busy(seen)
    return [
        first
        for first in firsts(seen)
        if not faults.touch(first.due_at - BEFORE_S, first.lease.at)
        and not machine.touch(first.due_at - BACKLOG_S, first.lease.at)
    ]


def busy(seen: Observations) -> TimeSpans:
    """When the machine kept somebody waiting, the harness included."""
    lags = [(lag.began, lag.ended) for lag in seen.lags]
    return TimeSpans(lags + [(span.began, span.ended) for span in seen.contentions])


def overdue(seen: Observations, bounds: Bounds) -> list[First]:
    """Those that were late by more than the bound, whatever was done to the cluster."""
    faults = over(seen)
    excuses = [(fault.began, excused_until(fault, faults, bounds)) for fault in faults]
    machine = busy(seen)
    found = []
    for first in firsts(seen):
        if first.late_ms <= bounds.late_ms:
            continue
        at, excused = first.lease.at, first.due_at
        for began, until in excuses:
            if began <= at and until >= first.due_at:
                excused = max(excused, min(at, until))
        if 1000 * (at - excused - machine.within(excused, at)) > bounds.late_ms:
            found.append(first)
    return found


def over(seen: Observations) -> list[FaultSpan]:
    return [fault for fault in seen.faults if fault.ended]


def excused_until(fault: FaultSpan, faults: Sequence[FaultSpan], bounds: Bounds) -> float:
    """The death of one node alone is an excuse until another may have taken over, not longer."""
    if fault.what == "kill" and "," not in fault.target and not with_others(fault, faults):
        return fault.began + TAKEOVER_S
    return fault.ended + bounds.recover_s


def with_others(kill: FaultSpan, faults: Sequence[FaultSpan]) -> bool:
    """Other faults held as well: then there may have been no majority to fail over to."""
    return any(
        fault.began - 0.05 <= kill.began < fault.ended
        and not (fault.what == "kill" and fault.target == kill.target)
        for fault in faults
        if fault.what != "leader-kill" and not fault.what.endswith("-workers")
    )
