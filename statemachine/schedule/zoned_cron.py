"""A cron expression in a time zone: what daylight saving does to it.

The instants of an expression in a zone are a set, and `next_after`, `last_before` and `count` are
questions about that set; so a step can neither repeat nor go back. The set is made segment by
segment (zones.py). Within one, every named wall time is an instant. At the edges:

* Gap (the offset grows, wall times are left out). If the gap rule is NEXT and at least one named
  wall time is left out, the edge itself, the first instant after the gap, is in the set: once,
  however many times were left out, and also once if it is named on its own account.
* Fold (the offset shrinks, wall times come twice). FIRST leaves the repeated ones out of the later
  segment, SECOND out of the earlier one, BOTH keeps them.

Which rules apply depends on how the hour field is written, since that shows what was meant:

* All 24 hours (`*`, `*/1`, `0-23`): every real hour, so neither rule applies. A left-out wall hour
  is no real hour, and a repeated one is two.
* A rate (`*/n`, `H/n` that name more than one hour): both repeated times count, whatever the fold
  rule says, and the gap rule applies; so such a job never rests longer than n real hours.
* A time of day (numbers, lists, ranges, `*/24`): both rules apply. With the defaults a daily job
  runs exactly once on every day. Where a whole day is left out (Pacific/Apia, 2011-12-30), its
  times too happen at the first instant after it: a job for the 30th of a month is late, not lost.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ...proto.v1 import schedule_pb2
from .cron_fields import CronFields, HourKind
from .zones import DAY_S, EARLIEST_S, LATEST_S, Segment, Zone

# More than 230 years can have, at five or six segments a year (Morocco).
SEGMENTS_SEARCHED: Final = 2000
CRONS_KEPT: Final = 8192
# When no wall time is named for long, whole segments are jumped over. Not those that begin or end
# within two days of where the search stands, or of what it found: a fold shows wall times again
# that the search has passed already, and local time is up to 26 hours from itself elsewhere.
FAR_S: Final = 2 * DAY_S

Span = tuple[int, int, int | None]
EMPTY_SPAN: Final[Span] = (0, 0, None)


class ZonedCron:
    """One expression in one zone under one pair of rules. Shared by all jobs that have the same."""

    __slots__ = (
        "_counted", "_fields", "_first_only", "_gap_next", "_second_only", "_span", "_spans_back",
        "zone",
    )  # fmt: skip

    def __init__(
        self,
        fields: CronFields,
        zone: Zone,
        gap_rule: schedule_pb2.GapRule.ValueType,
        fold_rule: schedule_pb2.FoldRule.ValueType,
    ) -> None:
        fixed = fields.hour_kind is HourKind.FIXED
        self._fields = fields
        self.zone = zone
        self._gap_next = (
            gap_rule != schedule_pb2.GAP_RULE_SKIP and fields.hour_kind is not HourKind.EVERY
        )
        self._second_only = fixed and fold_rule == schedule_pb2.FOLD_RULE_SECOND
        self._first_only = (
            fixed and not self._second_only and fold_rule != schedule_pb2.FOLD_RULE_BOTH
        )
        # The last answer of next_after, as (from, to, answer): true for every question within, so
        # many jobs with one expression cost one search, and so does asking in mid-air. It
        # is replaced as a whole, which a reader on another thread cannot see by halves.
        self._span = EMPTY_SPAN
        # The last two of last_before, each true above its first and up to its second; a job that
        # catches up asks for the last time and for the one before. And the last of count.
        self._spans_back = (EMPTY_SPAN, EMPTY_SPAN)
        self._counted = (0, 0, 0)

    @property
    def meaning(self) -> tuple[object, ...]:
        """Equal for those that name the same instants, as far as their fields show."""
        fields = (getattr(self._fields, name) for name in CronFields.__slots__)
        rules = (self._gap_next, self._first_only, self._second_only)
        return (self.zone, *rules, *fields)

    def next_after(self, after_ms: int) -> int | None:
        """Return the first instant after this one."""
        low, high, answer = self._span
        if low <= after_ms < high:
            return answer
        answer = self.find_next(after_ms)
        if answer is not None:
            self._span = (after_ms, answer, answer)
        return answer

    def find_next(self, after_ms: int) -> int | None:
        """Search without looking at, or touching, the last answer."""
        at = max(after_ms // 1000 + 1, EARLIEST_S)
        for _ in range(SEGMENTS_SEARCHED):
            if at >= LATEST_S:
                return None
            segment = self.zone.segment_at(at)
            if at == segment.begin and self._gap_runs(segment):
                return at * 1000
            low, high = self._wall_range(segment)
            wall = self._fields.at_or_after(max(at + segment.offset, low))
            if wall is not None and wall < high:
                return (wall - segment.offset) * 1000
            if segment.end - at < FAR_S:
                at = segment.end
            elif wall is None:
                return None
            else:
                at = max(segment.end, wall - FAR_S)
        return None

    def last_before(self, before_ms: int) -> int | None:
        """Return the last instant before this one."""
        spans = self._spans_back
        for low, high, answer in spans:
            if low < before_ms <= high:
                return answer
        answer = self._find_last(before_ms)
        if answer is not None:
            self._spans_back = ((answer, before_ms, answer), spans[0])
        return answer

    def _find_last(self, before_ms: int) -> int | None:
        at = min((before_ms - 1) // 1000, LATEST_S - 1)
        for _ in range(SEGMENTS_SEARCHED):
            if at < EARLIEST_S:
                return None
            segment = self.zone.segment_at(at)
            low, high = self._wall_range(segment)
            wall = self._fields.at_or_before(min(at + segment.offset, high - 1))
            if wall is not None and wall >= low:
                return (wall - segment.offset) * 1000
            if self._gap_runs(segment):
                return segment.begin * 1000
            if at - segment.begin < FAR_S:
                at = segment.begin - 1
            elif wall is None:
                return None
            else:
                at = min(segment.begin - 1, wall + FAR_S)
        return None

    def count(self, from_ms: int, to_ms: int) -> int:
        """Return how many instants there are from one on and before another, without a walk."""
        known_from, known_to, total = self._counted
        if from_ms != known_from or to_ms != known_to:
            total = self._count(from_ms, to_ms)
            self._counted = (from_ms, to_ms, total)
        return total

    def _count(self, from_ms: int, to_ms: int) -> int:
        at = max(-(-from_ms // 1000), EARLIEST_S)
        to = min(-(-to_ms // 1000), LATEST_S)
        total = 0
        for _ in range(SEGMENTS_SEARCHED):
            if at >= to:
                break
            segment = self.zone.segment_at(at)
            low, high = self._wall_range(segment)
            low = max(at + segment.offset, low)
            total += self._fields.count(low, min(to + segment.offset, high))
            # An edge that is named on its own account is in the set already.
            if at == segment.begin and self._gap_runs(segment):
                total += self._fields.at_or_after(low) != low
            at = segment.end
        return total

    def times(self, from_ms: int, to_ms: int, most: int) -> list[int]:
        """Return the first instants from one on and before another, at most so many."""
        found: list[int] = []
        at = max(-(-from_ms // 1000), EARLIEST_S)
        to = min(-(-to_ms // 1000), LATEST_S)
        for _ in range(SEGMENTS_SEARCHED):
            if at >= to or len(found) >= most:
                break
            segment = self.zone.segment_at(at)
            low, high = self._wall_range(segment)
            low, high = max(at + segment.offset, low), min(to + segment.offset, high)
            walls = self._fields.between(low, high, most - len(found)) if low < high else []
            # An edge that is named on its own account is in the list already.
            if at == segment.begin and self._gap_runs(segment) and walls[:1] != [low]:
                found.append(at * 1000)
            found += [(wall - segment.offset) * 1000 for wall in walls]
            at = segment.end
        return found[:most]

    def gap_wall(self, instant_ms: int) -> int | None:
        """Return the wall time whose absence made this instant one of the set, if that is why."""
        segment = self.zone.segment_at(instant_ms // 1000)
        if instant_ms != segment.begin * 1000 or not self._gap_runs(segment):
            return None
        named = self._fields.at_or_after(segment.begin + segment.offset)
        if named == segment.begin + segment.offset:
            return None
        return self._fields.at_or_after(segment.begin + segment.offset_before)

    def _gap_runs(self, segment: Segment) -> bool:
        """Whether the segment begins with a gap in which something was named."""
        if not self._gap_next or segment.offset <= segment.offset_before:
            return False
        wall = self._fields.at_or_after(segment.begin + segment.offset_before)
        return wall is not None and wall < segment.begin + segment.offset

    def _wall_range(self, segment: Segment) -> tuple[int, int]:
        """Return the wall times of a segment that the fold rule leaves, the second not included."""
        begin, end, offset, offset_before, offset_after = segment
        low, high = begin + offset, end + offset
        if self._first_only and offset < offset_before:
            low = begin + offset_before
        if self._second_only and offset_after < offset:
            high = end + offset_after
        return low, high


@lru_cache(maxsize=CRONS_KEPT)
def zoned_cron(
    fields: CronFields,
    zone: Zone,
    gap_rule: schedule_pb2.GapRule.ValueType,
    fold_rule: schedule_pb2.FoldRule.ValueType,
) -> ZonedCron:
    """Return the one object for these arguments, so that its last answer is shared."""
    return ZonedCron(fields, zone, gap_rule, fold_rule)
