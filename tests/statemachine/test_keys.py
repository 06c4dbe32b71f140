"""Each table has a byte of its own."""

from __future__ import annotations

from collections import Counter

from raftsched.statemachine.model import keys

# These stand inside keys, or behind a table.
INSIDE = ("WAKE_", "LAST", "LEDGER_END")


def test_no_two_tables_share_a_byte() -> None:
    tables = {
        name: value
        for name, value in vars(keys).items()
        if isinstance(value, bytes) and len(value) == 1 and not name.startswith(INSIDE)
    }
    counts = Counter(tables.values())

    assert len(tables) > 40
    assert {name for name, value in tables.items() if counts[value] > 1} == set()
