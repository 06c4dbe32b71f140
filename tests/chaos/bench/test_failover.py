"""What is made of instants at which runs began around a kill."""

from __future__ import annotations

from math import isnan

import pytest

from raftsched.chaos.bench.failover import figures
from raftsched.chaos.percentile import percentile
from raftsched.cluster.local.process import ProcessFailed


def every(step: float, first: float, last: float) -> list[float]:
    return [first + step * number for number in range(int((last - first) / step))]


def test_the_gap_is_from_the_kill_to_the_end_of_the_widest_pause() -> None:
    # 500 a second; leases granted before run on for 4 ms, then nothing for 60 ms, then all again.
    begun = every(0.002, 0, 10.004) + every(0.002, 10.064, 14)

    found = figures([10.0], begun, rate=500)

    assert found["next_lease_p50_ms"] == pytest.approx(64, abs=2.1)
    assert found["full_rate_max_ms"] == pytest.approx(164, abs=3)


def test_a_rate_that_comes_back_slowly_is_shown() -> None:
    begun = every(0.002, 0, 10) + every(0.02, 10.05, 10.5) + every(0.002, 10.5, 14)
    found = figures([10.0], begun, rate=500)
    assert found["next_lease_p50_ms"] == pytest.approx(50, abs=2)
    assert 550 < found["full_rate_p50_ms"] <= 610


def test_a_pause_while_the_killed_node_comes_back_is_not_the_failover() -> None:
    begun = every(0.002, 0, 10.004) + every(0.002, 10.04, 12.6) + every(0.002, 12.72, 14)
    found = figures([10.0], begun, rate=500)
    assert found["next_lease_max_ms"] == pytest.approx(40, abs=2.1)


def test_silence_is_a_failure() -> None:
    with pytest.raises(ProcessFailed, match="nothing ran"):
        figures([10.0], every(0.01, 0, 10), rate=100)


def test_percentiles_of_few_numbers() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 3.0
    assert percentile([1.0], 0.99) == 1.0
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert isnan(percentile([], 0.5))
    assert percentile([], 0.5, 0.0) == 0.0
