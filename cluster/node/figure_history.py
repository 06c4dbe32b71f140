"""How the cluster has done of late, as its leaders counted it: kept in memory by every node.

The leader takes a figure each second and sends it to the others beside what nodes say of themselves
(gossip.py), and what came before to those that have just started, so whoever leads next has the
past. It is no part of the state. It is kept by seconds, by tens of seconds and by minutes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import msgspec

# Bounds of the bands in which leases are counted by how late they are, in seconds.
LATENESS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600)
# By the seconds of a figure: how many of them are kept. 15 min, 3 h, 24 h.
KEPT = {1: 900, 10: 1_080, 60: 1_440}
# A clock that was set back by more begins anew where it is; by less its figures are left out.
SET_BACK_S = 60
MEMBERS_MAX = 20


class LeaderCounts(NamedTuple):
    """What a node has counted since it started."""

    fired: int
    started: int
    ended: int
    failed: int
    # Leases by bands of lateness, the last one without a bound.
    late: Sequence[int]


class Figure(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a leader counted in a stretch of time. Fields are only ever appended."""

    # Where it begins, in seconds since 1970; and who counted.
    second: int
    leader: str
    # How long it counted.
    seconds: float
    # In that time: outcomes of scheduled times, leases, ends of runs, failures among these.
    fired: int = 0
    started: int = 0
    ended: int = 0
    failed: int = 0
    late: tuple[int, ...] = ()
    # The most of these within the stretch: ready runs by priority, how long the oldest waited,
    # and the entries that members were behind.
    high: int = 0
    medium: int = 0
    low: int = 0
    oldest_ms: int = 0
    behind: dict[str, int] = {}
    # At its end: workers, their slots, and the slots that were taken.
    workers: int = 0
    slots: int = 0
    busy: int = 0


class Past(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Figures that come right before a second."""

    second: int
    figures: tuple[Figure, ...]


class FigureHistory:
    """See the head of this file."""

    def __init__(self) -> None:
        self._kept = {step: deque[Figure](maxlen=kept) for step, kept in KEPT.items()}

    @property
    def last_second(self) -> int:
        """Of the newest figure; 0 before there is one."""
        newest = self._kept[1]
        return newest[-1].second if newest else 0

    def add(self, figure: Figure) -> bool:
        """Take a figure of one second; whether it was new."""
        last = self.last_second
        if figure.second <= last:
            if last - figure.second <= SET_BACK_S:
                return False
            for row in self._kept.values():
                while row and row[-1].second >= figure.second:
                    row.pop()
        for step, row in self._kept.items():
            begins = figure.second // step * step
            if row and row[-1].second == begins:
                row[-1] = merged(row[-1], figure)
            else:
                row.append(msgspec.structs.replace(figure, second=begins))
        return True

    def begins(self) -> tuple[int, ...]:
        """The oldest second of each row; 0 where there is none."""
        return tuple(row[0].second if row else 0 for row in self._kept.values())

    def before(self, begins: Sequence[int], count: int) -> tuple[Past, ...]:
        """Of each row so many that come before these seconds; none before 0."""
        return tuple(
            Past(second, tuple([one for one in row if one.second < second][-count:]))
            for row, second in zip(self._kept.values(), begins, strict=False)
        )

    def fill(self, past: Sequence[Past]) -> None:
        """Take figures from before what is here, unless others would be missing in between."""
        for row, part in zip(self._kept.values(), past, strict=False):
            if row and row[0].second <= part.second:
                for figure in reversed(part.figures):
                    if figure.second < row[0].second and len(row) < (row.maxlen or 0):
                        row.appendleft(figure)

    def newest(self, count: int) -> tuple[Figure, ...]:
        """The last seconds, the oldest first."""
        row = self._kept[1]
        return tuple(row[at] for at in range(max(0, len(row) - count), len(row)))

    def since(self, step: int, second: int) -> list[Figure]:
        """Those that begin at this second or later, the oldest first."""
        found = list[Figure]()
        for figure in reversed(self._kept[step]):
            if figure.second < second:
                break
            found.append(figure)
        return found[::-1]


def merged(one: Figure, next_one: Figure) -> Figure:
    """Two stretches, one behind the other, as one."""
    pairs = zip_longest(one.late, next_one.late, fillvalue=0)
    return Figure(
        one.second, next_one.leader, one.seconds + next_one.seconds,
        one.fired + next_one.fired, one.started + next_one.started, one.ended + next_one.ended,
        one.failed + next_one.failed, tuple(a + b for a, b in pairs),
        max(one.high, next_one.high), max(one.medium, next_one.medium), max(one.low, next_one.low),
        max(one.oldest_ms, next_one.oldest_ms), most(one.behind, next_one.behind),
        next_one.workers, next_one.slots, next_one.busy,
    )  # fmt: skip


def most(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """By name, the larger number."""
    return {name: max(one.get(name, 0), behind) for name, behind in other.items()}


def grown(before: Iterable[int], now: Iterable[int]) -> tuple[int, ...]:
    """What was added, without the zeros at the end."""
    added = [after - was for was, after in zip(before, now, strict=True)]
    while added and not added[-1]:
        added.pop()
    return tuple(added)


def percentile(late: Sequence[int], share: float) -> float | None:
    """The lateness in seconds that so large a share of leases is within, even within its band; None
    without leases."""
    wanted = share * sum(late)
    if not wanted:
        return None
    least = 0.0
    for bound, count in zip(LATENESS, late, strict=False):
        if count and wanted <= count:
            return least + (bound - least) * wanted / count
        wanted -= count
        least = bound
    return least
