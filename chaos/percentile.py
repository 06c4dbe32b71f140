"""Percentiles of what was measured."""

from __future__ import annotations

from collections.abc import Iterable


def percentile(values: Iterable[float], share: float, none: float = float("nan")) -> float:
    """The value below which this share of them lies; `none` where there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else none
