"""A test of many rows plays each of them, and names those that fail."""

from __future__ import annotations

import inspect

import pytest

from .rows import each


def test_all_rows_are_played_and_those_that_fail_are_named() -> None:
    seen = []

    @each("a, b", [(1, 1), (2, 3), (4, 4), (5, 6)])
    @each("c", "xy")
    def are_equal(a: int, b: int, c: str, d: float) -> None:
        seen.append((a, b, c, d))
        assert a == b
        with pytest.raises(KeyError):
            {"key": 1}["none"]

    assert [*inspect.signature(are_equal).parameters] == ["d"]
    with pytest.raises(AssertionError) as caught:
        are_equal(d=0.5)
    assert len(seen) == 8
    assert seen[:2] == [(1, 1, "x", 0.5), (1, 1, "y", 0.5)]
    inner, outer = caught.value.__notes__
    assert inner.startswith("2 of 2 rows fail")
    assert outer.splitlines() == ["2 of 4 rows fail, this is the first:", "  1: 2, 3", "  3: 5, 6"]


def test_a_row_that_raises_nothing_where_it_should_is_named() -> None:
    @each("key", ["there", "gone"])
    def is_gone(key: str) -> None:
        with pytest.raises(KeyError):
            {"there": 1}[key]

    with pytest.raises(pytest.fail.Exception) as caught:
        is_gone()
    assert "0: 'there'" in caught.value.__notes__[0]


def test_no_rows_and_rows_that_are_slow_are_refused() -> None:
    with pytest.raises(ValueError, match="no rows for a"):
        each("a", [])
    for names in ("a", "a, b"):
        with pytest.raises(ValueError, match="has a mark"):
            each(names, [pytest.param(1, 2, marks=pytest.mark.slow)])
