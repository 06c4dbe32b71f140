"""Both stores scan a range, the whole range, and nothing but the range."""

from __future__ import annotations

import pytest

from raftsched.statemachine.store import Store

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
