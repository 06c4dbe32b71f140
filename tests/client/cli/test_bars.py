"""A forecast for people: nothing of it is lost when minutes are put together."""

from __future__ import annotations

from raftsched.client.cli import messages as m
from raftsched.client.cli.render.bars import BAR_WIDTH, LINES_MAX, bar, spans

from ...rows import each

MINUTE_MS = 60_000
START_MS = 1_795_166_280_000  # 09:18


def minutes(count: int) -> list[m.job_pb2.ForecastMinute]:
    found = []
    for number in range(count):
        minute = m.job_pb2.ForecastMinute(firings=number % 7, peak=number)
        minute.start_time.FromMilliseconds(START_MS + number * MINUTE_MS)
        found.append(minute)
    return found


@each("count", [1, 2, 23, 24, 25, 60, 180, 1440])
def test_each_minute_is_in_one_span(count: int) -> None:
    given = minutes(count)

    step, found = spans(given)

    assert sum(span.firings for span in found) == sum(minute.firings for minute in given)
    assert max(span.peak for span in found) == count - 1
    assert len(found) <= LINES_MAX
    assert {span.start_ms % (step * MINUTE_MS) for span in found} == {0}


def test_a_minute_without_a_firing_is_a_line_too() -> None:
    first, *_, last = minutes(9)

    _, found = spans([first, last])

    assert len(found) == 9
    assert spans([]) == (1, [])


def test_a_bar_is_as_long_as_its_share_and_never_hides_one() -> None:
    assert bar(100, 100) == "█" * BAR_WIDTH
    assert bar(50, 100) == "█" * (BAR_WIDTH // 2)
    assert bar(1, 1_000_000) == "▏"
    assert bar(0, 5) == ""
