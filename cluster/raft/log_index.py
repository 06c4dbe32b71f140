"""Where the entries of the journal are: on the disk, by term, and the newest in memory."""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from .record import Entry

CACHED = 256  # What an entry costs in memory besides its data.
_LAST = 1 << 62  # Above every term.


@dataclass(slots=True)
class EntryRun:
    """Consecutive entries in one segment: where each starts."""

    number: int
    first: int
    offsets: array[int] = field(default_factory=lambda: array("I"))

    @property
    def last(self) -> int:
        return self.first + len(self.offsets) - 1

    def places(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Index and offset of each entry from `first` to at most `last`."""
        for index in range(first, min(last, self.last) + 1):
            yield index, self.offsets[index - self.first]


class LogIndex:
    """Four bytes for each entry, and a row for each term. It knows those in force only."""

    def __init__(self) -> None:
        self.runs: list[EntryRun] = []
        self.terms: list[tuple[int, int]] = []  # (first index, term), rising

    def clear(self) -> None:
        self.runs, self.terms = [], []

    def term_at(self, index: int) -> int:
        return self.terms[bisect.bisect_right(self.terms, (index, _LAST)) - 1][1]

    def first_of_term(self, index: int) -> int:
        """Return the first known index that has the same term as `index` without a gap."""
        return self.terms[bisect.bisect_right(self.terms, (index, _LAST)) - 1][0]

    def run_of(self, index: int) -> EntryRun:
        return self.runs[bisect.bisect_right(self.runs, index, key=lambda r: r.first) - 1]

    def add(self, index: int, term: int, segment: int, offset: int) -> None:
        run = self.runs[-1] if self.runs else None
        if run is None or run.number != segment or run.last + 1 != index:
            run = EntryRun(segment, index)
            self.runs.append(run)
        run.offsets.append(offset)
        if not self.terms or self.terms[-1][1] != term:
            self.terms.append((index, term))

    def truncate(self, index: int) -> None:
        """Forget the tail from `index` on."""
        while self.runs and self.runs[-1].first >= index:
            self.runs.pop()
        if self.runs:
            run = self.runs[-1]
            del run.offsets[max(index - run.first, 0) :]
        while self.terms and self.terms[-1][0] >= index:
            self.terms.pop()

    def segment_behind(self, index: int) -> int | None:
        """Return the first segment that holds an entry behind `index`."""
        return next((r.number for r in self.runs if r.last > index), None)

    def cut(self, keep: int) -> int | None:
        """Forget what lies in segments before `keep`; return the last index of it."""
        gone = [r for r in self.runs if r.number < keep]
        if not gone:
            return None
        last = gone[-1].last
        self.runs = self.runs[len(gone) :]
        self.terms = self.terms[bisect.bisect_right(self.terms, (last, _LAST)) - 1 :]
        return last

    def last_before(self, index: int, segments: int) -> int:
        """Return the last entry before so many segments and the one of `index`; 0 if none is."""
        at = bisect.bisect_right(self.runs, index, key=lambda r: r.first) - 1
        keep = self.runs[at].number - segments if at >= 0 else 0
        first = bisect.bisect_left(self.runs, keep, key=lambda r: r.number)
        return self.runs[first - 1].last if first else 0


class EntryCache:
    """The newest entries, for followers that are nearly up to date."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.first, self.bytes = 1, 0

    def restart(self, first: int) -> None:
        self.entries, self.first, self.bytes = {}, first, 0

    def put(self, entry: Entry) -> None:
        self.entries[entry.index] = entry
        self.bytes += len(entry.data) + CACHED

    def evict(self, upto: int) -> None:
        while self.first <= upto:
            self._drop(self.first)
            self.first += 1

    def truncate(self, index: int, last: int) -> None:
        """Forget the tail from `index` to `last`."""
        for gone in range(max(index, self.first), last + 1):
            self._drop(gone)
        self.first = min(self.first, index)

    def _drop(self, index: int) -> None:
        entry = self.entries.pop(index, None)
        self.bytes -= len(entry.data) + CACHED if entry else 0
