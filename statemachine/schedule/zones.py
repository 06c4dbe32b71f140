"""Time zones from the packaged tz database, cut into stretches of one offset.

Hosts differ in the zone data they carry, so a node reads the `tzdata` package file by file and
leaves the process-wide search path of zoneinfo alone. `edition()` names the data.

A zone is given as segments: stretches of real time in which local time is UTC plus one constant.
Within a segment local and real time are the same clock, so every question about daylight saving
is a question about the edge between two segments. zoneinfo does not show its transitions. They
are found by asking for the offset every twelve hours and halving the step where it changed (a
test reads the files themselves and finds none missed since 1970), one calendar year at a time,
and kept: at most 230 years a zone.
"""

from __future__ import annotations

import difflib
import heapq
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from importlib import resources
from itertools import pairwise
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import tzdata  # type: ignore[import-untyped]  # It has no types, and one string is read.

# Schedules live between these years; what is asked beyond them has no answer.
YEAR_MIN: Final = 1970
YEAR_MAX: Final = 2199
EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
DAY_S: Final = 86_400
PROBE_S: Final = DAY_S // 2
HINTS_MAX: Final = 3
LIKELY: Final = 16  # Names that are compared letter by letter with one that is wrong.

# What people write for a zone that is an abbreviation, and what they mean as a rule.
ABBREVIATIONS: Final = {
    "AEST": "Australia/Sydney",
    "BST": "Europe/London",
    "CEST": "Europe/Berlin",
    "CST": "America/Chicago",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MDT": "America/Denver",
    "PDT": "America/Los_Angeles",
    "PST": "America/Los_Angeles",
    "EDT": "America/New_York",
    "CDT": "America/Chicago",
}


class Segment(NamedTuple):
    """A stretch of real time with one offset. All in seconds; `begin` is in, `end` is not.

    Segments also end where a UTC year ends; there the offsets on both sides are equal.
    """

    begin: int
    end: int
    offset: int
    offset_before: int
    offset_after: int


class Zone:
    """One IANA time zone."""

    __slots__ = ("_info", "_last", "_years", "name")

    def __init__(self, name: str, info: ZoneInfo) -> None:
        self.name = name
        self._info = info
        self._years: dict[int, tuple[Segment, ...]] = {}
        self._last = self.segments_of(YEAR_MIN)[0]

    def segment_at(self, instant_s: int) -> Segment:
        """Return the segment that holds the instant; callers keep within the years."""
        last = self._last
        if not last.begin <= instant_s < last.end:
            for last in self.segments_of(year_of(instant_s)):
                if instant_s < last.end:
                    break
            self._last = last
        return last

    def segments_of(self, year: int) -> tuple[Segment, ...]:
        """Return the segments of a UTC year, in order and without a gap."""
        known = self._years.get(year)
        if known is None:
            known = self._years[year] = self._find_segments(year)
        return known

    def local(self, instant_ms: int) -> datetime:
        """Return the wall-clock reading at an instant."""
        return (_EPOCH + timedelta(milliseconds=instant_ms)).astimezone(self._info)

    def local_text(self, instant_ms: int) -> str:
        """Return the wall-clock reading as "2026-03-29T03:00:00+02:00"."""
        finest = "milliseconds" if instant_ms % 1000 else "seconds"
        return self.local(instant_ms).isoformat(timespec=finest)

    def local_day(self, instant_ms: int) -> int:
        """Return the day on the wall calendar, as a proleptic ordinal."""
        instant_s = instant_ms // 1000
        return (instant_s + self.segment_at(instant_s).offset) // DAY_S + EPOCH_ORDINAL

    def day_end(self, instant_ms: int) -> int:
        """Return until when it is the same day on the wall calendar, without a change of offset."""
        segment = self.segment_at(instant_ms // 1000)
        wall = instant_ms // 1000 + segment.offset
        return min(wall - wall % DAY_S + DAY_S - segment.offset, segment.end) * 1000

    def _find_segments(self, year: int) -> tuple[Segment, ...]:
        begin, end = year_begin(year), year_begin(year + 1)
        edges, offsets = [begin], [self._offset(begin)]
        for probe in range(begin + PROBE_S, end + 1, PROBE_S):
            at = min(probe, end - 1)
            if self._offset(at) != offsets[-1]:
                edges.append(self._edge(max(at - PROBE_S, edges[-1]), at))
                offsets.append(self._offset(at))
        before = [self._offset(begin - 1), *offsets[:-1]]
        after = [*offsets[1:], self._offset(end)]
        # An edge that is exactly the turn of the year keeps its change of offset this way.
        return tuple(map(Segment, edges, [*edges[1:], end], offsets, before, after))

    def _edge(self, low: int, high: int) -> int:
        """Return the first second with the new offset, between an old and a new one."""
        old = self._offset(low)
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset(middle) == old:
                low = middle
            else:
                high = middle
        return high

    def _offset(self, instant_s: int) -> int:
        offset = datetime.fromtimestamp(instant_s, self._info).utcoffset()
        assert offset is not None
        return offset.days * DAY_S + offset.seconds


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def year_of(instant_s: int) -> int:
    """Return the UTC year of an instant."""
    return date.fromordinal(instant_s // DAY_S + EPOCH_ORDINAL).year


def year_begin(year: int) -> int:
    """Return the first second of a UTC year."""
    return (date(year, 1, 1).toordinal() - EPOCH_ORDINAL) * DAY_S


EARLIEST_S: Final = year_begin(YEAR_MIN)
LATEST_S: Final = year_begin(YEAR_MAX + 1)
LATEST_MS: Final = LATEST_S * 1000


def edition() -> str:
    """Return the edition of the zone data, such as "2026f"."""
    return str(tzdata.IANA_VERSION)


@lru_cache(maxsize=1)
def zone_names() -> tuple[str, ...]:
    """Return every zone of the package, sorted."""
    listed = resources.files(tzdata).joinpath("zones").read_text(encoding="ascii")
    return tuple(sorted(listed.split()))


# No more than there are in the package: names that are none leave nothing here.
_ZONES: Final[dict[str, Zone]] = {}
_WARM: Final[dict[str, None]] = {}


def find_zone(name: str) -> Zone | None:
    """Return the zone of that exact name; empty means UTC, unknown gives None."""
    name = name or "UTC"
    zone = _ZONES.get(name)
    if zone is None and name in _known():
        with resources.files(tzdata).joinpath("zoneinfo", *name.split("/")).open("rb") as file:
            # Another thread may have read it meanwhile; all go on with the same one.
            zone = _ZONES.setdefault(name, Zone(name, ZoneInfo.from_file(file, key=name)))
    return zone


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    return frozenset(zone_names())


def in_use() -> list[str]:
    """The zones that were asked for since this process began."""
    return sorted(_ZONES)


def cold(names: Iterable[str]) -> list[str]:
    """Those zones that were not looked at yet, each of which takes some milliseconds once."""
    return [name for name in dict.fromkeys(names) if name not in _WARM and name in _known()]


def warm(names: Iterable[str], instant_s: int) -> None:
    """Look at zones ahead of time, for the years around an instant: on a thread, so that whoever
    asks them next need not wait."""
    for name in names:
        zone = find_zone(name)
        if zone is not None:
            for year in range(year_of(instant_s) - 1, year_of(instant_s) + 3):
                if YEAR_MIN <= year <= YEAR_MAX:
                    zone.segments_of(year)
            _WARM[name] = None


def near_names(wrong: str) -> list[str]:
    """Return a few names the author of an unknown one may have meant, likeliest first."""
    if wrong.upper() in ABBREVIATIONS:
        return [ABBREVIATIONS[wrong.upper()]]
    plain = wrong.strip().lower().replace(" ", "_").replace("\\", "/")
    wholes, cities = _wholes(), _cities()
    found = list(cities.of.get(plain, ()))
    for name in wholes.near(plain[:64], 0.7):
        found += wholes.of[name]
    for city in cities.near(plain.split("/")[-1][:64], 0.8):
        found += cities.of[city][-1:]
    return list(dict.fromkeys(found))[:HINTS_MAX]


class Near:
    """Finds texts that are near another one."""

    def __init__(self, of: dict[str, list[str]]) -> None:
        # Zones by the text that is compared; and the texts by the pairs of letters in them.
        self.of = of
        self._by_pair: dict[str, list[str]] = {}
        for text in of:
            for pair in _pairs(text):
                self._by_pair.setdefault(pair, []).append(text)

    def near(self, wrong: str, cutoff: float) -> list[str]:
        """Those that share most pairs of letters with it are compared letter by letter: to do so
        with all of them takes milliseconds, and an import may name a thousand."""
        shared: Counter[str] = Counter()
        for pair in _pairs(wrong):
            shared.update(self._by_pair.get(pair, ()))

        def likeness(text: str) -> float:
            return shared[text] / (len(text) + len(wrong))

        likely = heapq.nlargest(LIKELY, shared, key=likeness)
        return difflib.get_close_matches(wrong, likely, n=HINTS_MAX, cutoff=cutoff)


def _pairs(text: str) -> set[str]:
    return set(map("".join, pairwise(f" {text} ")))


@lru_cache(maxsize=1)
def _wholes() -> Near:
    return Near({name.lower(): [name] for name in zone_names()})


@lru_cache(maxsize=1)
def _cities() -> Near:
    found: dict[str, list[str]] = {}
    for name in zone_names():
        found.setdefault(name.lower().split("/")[-1], []).append(name)
    return Near(found)
