"""A straight line through what was measured, and how sure its slope is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class StraightLine:
    """What there is without any, what each one costs, and the slopes when one point is left out."""

    base: float
    slope: float
    low: float
    high: float
    points: int

    @property
    def dear(self) -> float:
        """The slope to reckon with: the dearest that was seen, and never a gain."""
        return max(self.high, self.slope, 0.0)

    @property
    def sure(self) -> bool:
        """Whether anything was seen at all: with each point left out it still costs something."""
        return self.low > 0

    def at(self, count: float) -> float:
        return max(self.base, 0.0) + self.dear * count


def fitted(points: Sequence[Point]) -> StraightLine | None:
    """By least squares; None where there are not two sizes."""
    if (found := _least_squares(points)) is None:
        return None
    rest = [_least_squares([*points[:n], *points[n + 1 :]]) for n in range(len(points))]
    slopes = [found[1], *(one[1] for one in rest if one is not None)]
    return StraightLine(*found, min(slopes), max(slopes), len(points))


def _least_squares(points: Sequence[Point]) -> tuple[float, float] | None:
    if len({x for x, _ in points}) < 2:
        return None
    middle = sum(x for x, _ in points) / len(points)
    height = sum(y for _, y in points) / len(points)
    wide = sum((x - middle) ** 2 for x, _ in points)
    slope = sum((x - middle) * (y - height) for x, y in points) / wide
    return height - slope * middle, slope
