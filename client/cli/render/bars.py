"""What comes, drawn for people: a line for some minutes, and a bar for how much is due in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .. import messages as m

LINES_MAX = 24
STEPS_MIN = (1, 2, 5, 10, 15, 30, 60, 120)
BAR_WIDTH = 30
EIGHTHS = " ▏▎▍▌▋▊▉█"
MINUTE_MS = 60_000


@dataclass
class Span:
    """Some minutes of a forecast."""

    start_ms: int
    firings: int = 0
    peak: int = 0


def spans(minutes: Sequence[m.job_pb2.ForecastMinute]) -> tuple[int, list[Span]]:
    """Minutes of a span, and the spans that fit a screen, those without a firing too."""
    starts = [minute.start_time.ToMilliseconds() // MINUTE_MS for minute in minutes]
    if not starts:
        return STEPS_MIN[0], []
    first, last = min(starts), max(starts)
    enough = (step for step in STEPS_MIN if last // step - first // step < LINES_MAX)
    step = next(enough, STEPS_MIN[-1])
    found = [Span(number * step * MINUTE_MS) for number in range(first // step, last // step + 1)]
    for start, minute in zip(starts, minutes, strict=True):
        span = found[start // step - first // step]
        span.firings += minute.firings
        span.peak = max(span.peak, minute.peak)
    return step, found


def bar(value: int, largest: int, width: int = BAR_WIDTH) -> str:
    """As long as its share; what is not nothing can be seen."""
    eighths = max(round(value * width * 8 / largest), 1) if value else 0
    return EIGHTHS[8] * (eighths // 8) + EIGHTHS[eighths % 8].strip()
