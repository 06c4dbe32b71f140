"""The zone data is the package's, whole, and cut at the right places."""

from __future__ import annotations

import struct
import zoneinfo
from importlib import resources
from itertools import pairwise

import pytest
import tzdata  # type: ignore[import-untyped]  # It has no types.

from raftsched.statemachine.schedule import zones
from raftsched.statemachine.schedule.zones import Zone, find_zone, near_names, zone_names

from ...rows import each


def file_transitions(name: str) -> list[int]:
    """Read the instants of change from a TZif file, version 2 or later (RFC 9636)."""
    raw = raw_of(name)
    assert raw[:4] == b"TZif"
    assert raw[4:5] >= b"2"
    utc, std, leap, times, types, chars = struct.unpack(">6l", raw[20:44])
    second = 44 + times * 5 + types * 6 + chars + leap * 8 + std + utc
    _, _, _, times, types, _ = struct.unpack(">6l", raw[second + 20 : second + 44])
    body = second + 44
    instants = struct.unpack(f">{times}q", raw[body : body + 8 * times])
    kinds = raw[body + 8 * times : body + 9 * times]
    table = raw[body + 9 * times : body + 9 * times + 6 * types]
    offsets = [struct.unpack(">l", table[6 * kind : 6 * kind + 4])[0] for kind in range(types)]
    changes = []
    for at, moment in enumerate(instants):
        before = offsets[kinds[at - 1]] if at else offsets[0]
        if offsets[kinds[at]] != before:
            changes.append(moment)
    return changes


def found_transitions(zone: Zone, first: int, last: int) -> list[int]:
    return [
        segment.begin
        for year in range(first, last + 1)
        for segment in zone.segments_of(year)
        if segment.offset != segment.offset_before
    ]


def named(name: str) -> Zone:
    zone = find_zone(name)
    assert zone is not None
    return zone


def raw_of(name: str) -> bytes:
    return resources.files(tzdata).joinpath("zoneinfo", *name.split("/")).read_bytes()


def distinct_zones() -> list[str]:
    """Return one name for each of the files that differ; the others are aliases."""
    return list({raw_of(name): name for name in zone_names()}.values())


def missed(name: str, first: int, last: int) -> set[int]:
    low, high = zones.year_begin(first), zones.year_begin(last + 1)
    wanted = {moment for moment in file_transitions(name) if low <= moment < high}
    return wanted - set(found_transitions(named(name), first, last))


def test_no_change_of_offset_in_2026_is_missed() -> None:
    assert [name for name in distinct_zones() if missed(name, 2026, 2026)] == []


@pytest.mark.slow
def test_no_change_of_offset_since_1970_is_missed() -> None:
    assert len(zone_names()) > 590

    assert {
        name: missed(name, 1970, 2037) for name in zone_names() if missed(name, 1970, 2037)
    } == {}


def test_segments_meet_without_gaps_and_agree_on_their_offsets() -> None:
    for name in ("Europe/Berlin", "Africa/Casablanca", "Pacific/Apia", "Australia/Lord_Howe"):
        segments = [s for year in range(1990, 2030) for s in named(name).segments_of(year)]

        for earlier, later in pairwise(segments):
            assert earlier.begin < earlier.end == later.begin
            assert earlier.offset_after == later.offset
            assert later.offset_before == earlier.offset


def test_a_segment_is_found_by_any_instant_in_it() -> None:
    zone = named("Europe/Berlin")
    for segment in zone.segments_of(2026):
        for instant in (segment.end - 1, segment.begin, (segment.begin + segment.end) // 2):
            assert zone.segment_at(instant) == segment


def test_names_that_are_none_keep_nothing_and_push_nothing_out() -> None:
    berlin = named("Europe/Berlin")
    before = zones.in_use()
    for number in range(2_000):
        assert zones.find_zone(f"Europe/Berln{number}") is None
    assert zones.cold(f"Europe/Berln{number}" for number in range(10)) == []

    assert zones.in_use() == before
    assert named("Europe/Berlin") is berlin
    assert len(before) <= len(zones.zone_names())


def test_the_host_and_the_process_wide_search_path_do_not_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath(())
    try:
        monkeypatch.setattr(zones, "_ZONES", {})
        assert named("Asia/Tokyo").local_text(0) == "1970-01-01T09:00:00+09:00"
        assert zoneinfo.TZPATH == ()
    finally:
        zoneinfo.reset_tzpath(before)


def test_the_edition_is_that_of_the_package() -> None:
    assert zones.edition() == tzdata.IANA_VERSION
    assert zones.edition()[:2] == "20"


def test_an_empty_name_is_utc() -> None:
    assert named("") is named("")
    assert named("").name == "UTC"


@each("name", ["europe/berlin", "Berlin", "../zones", "/etc/localtime", "Europe", "EST5EDT4", "\0"])
def test_only_the_exact_name_of_a_zone_is_a_zone(name: str) -> None:
    assert find_zone(name) is None


@each(
    ("wrong", "meant"),
    [
        ("Berlin", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("Europe/Berln", "Europe/Berlin"),
        ("New York", "America/New_York"),
        ("Asia/Calcuta", "Asia/Calcutta"),
        ("PST", "America/Los_Angeles"),
    ],
)
def test_the_name_that_was_meant_comes_first(wrong: str, meant: str) -> None:
    assert near_names(wrong)[0] == meant


@pytest.mark.parametrize("wrong", ["Mars/Phobos", "", "x" * 100_000])
def test_a_name_like_no_other_has_no_hint(wrong: str) -> None:
    assert near_names(wrong) == []
