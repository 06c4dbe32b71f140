"""Both stores scan a range, the whole range, and nothing but the range."""

from __future__ import annotations

import pytest

from raftsched.statemachine.core.store import Store

NAMES = [b"A1", b"L1", b"L2", b"L3", b"M", b"M1", b"a"]


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(
    ("first", "end", "found"),
    [
        (b"L", b"M", [b"L1", b"L2", b"L3"]),
        (b"L1", b"L3", [b"L1", b"L2"]),
        (b"L", b"L0", []),
        (b"B", b"C", []),
        (b"L2", b"M0", [b"L2", b"L3", b"M"]),
        (b"\0", b"\xff", NAMES),
    ],
)
def test_a_scan_stays_within_its_range(
    store: Store, first: bytes, end: bytes, found: list[bytes], backwards: bool
) -> None:
    store.write([(name, name * 2) for name in NAMES], [])

    seen = list(store.scan(first, end, backwards=backwards))
    frozen = list(store.snapshot().scan(first, end, backwards=backwards))

    wanted = [(name, name * 2) for name in found]
    assert seen == (wanted[::-1] if backwards else wanted)
    assert frozen == seen


@pytest.mark.parametrize("backwards", [False, True])
def test_a_snapshot_does_not_see_later_writes(store: Store, backwards: bool) -> None:
    before = [(b"%04d" % number, b"old") for number in range(300)]
    store.write(before, [])
    frozen = store.snapshot()
    store.write([(b"%04d" % (2 * number), b"new") for number in range(200)], [b"0007"])

    seen = list(frozen.scan(b"0", b"1", backwards=backwards))

    assert seen == (before[::-1] if backwards else before)
    assert frozen.get(b"0002") == b"old"
    assert frozen.get(b"0007") == b"old"
    assert frozen.get(b"0302") is None


def test_scans_of_a_snapshot_do_not_disturb_each_other(store: Store) -> None:
    entries = [(b"%04d" % number, b"") for number in range(200)]
    store.write(entries, [])
    frozen = store.snapshot()

    both = list(zip(frozen.scan(b"0", b"1"), frozen.scan(b"0", b"1", backwards=True), strict=True))

    assert [there for there, _ in both] == entries
    assert [back for _, back in both] == entries[::-1]
