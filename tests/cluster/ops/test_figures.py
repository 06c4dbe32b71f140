"""What the state says of itself to a scraper."""

from __future__ import annotations

import pytest
from prometheus_client.core import Metric

from raftsched.cluster.node.figure_history import Figure
from raftsched.cluster.ops import figures
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import LaneRecord, NamespaceRecord, UsageRecord, encode


def rows(*families: Metric) -> dict[str, float]:
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    made.write(
        [
            (keys.namespace("shop"), encode(NamespaceRecord(number=3))),
            (keys.lane(1), encode(LaneRecord(number=1, queue="mail", ready=2))),
            (keys.lane(2), encode(LaneRecord(number=2, queue="mail", ready=5))),
            (keys.lane(3), encode(LaneRecord(number=3, namespace=3, queue="mail", ready=7))),
            (keys.usage(3), encode(UsageRecord(jobs=9, live=8, leased=4, dead=1))),
        ],
        [],
    )
    return made


def test_a_queue_is_the_sum_of_its_lanes(store: MemoryStore) -> None:
    assert rows(*figures.queues(store)) == {
        "raftsched_queue_ready default mail": 7,
        "raftsched_queue_ready shop mail": 7,
    }


def test_namespaces_tell_what_they_hold(store: MemoryStore) -> None:
    found = rows(*figures.namespaces(store))

    assert found["raftsched_jobs shop"] == 9
    assert found["raftsched_live_runs shop"] == 8
    assert found["raftsched_leases shop"] == 4
    assert found["raftsched_dead_letters_kept shop"] == 1
    assert found["raftsched_jobs default"] == 0


def test_the_last_second_tells_how_busy_workers_are_and_how_long_runs_wait() -> None:
    figure = Figure(1, "n1", 1.0, oldest_ms=2_500, slots=8, busy=3)

    assert rows(*figures.latest((figure,))) == {
        "raftsched_worker_slots": 8,
        "raftsched_worker_slots_busy": 3,
        "raftsched_oldest_ready_seconds": 2.5,
    }
    assert rows(*figures.latest(())) == {}


def test_users_cannot_make_rows_without_end(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "ROWS_MAX", 1)
    monkeypatch.setattr(figures, "LANES_MAX", 2)

    assert rows(*figures.queues(store)) == {"raftsched_queue_ready default mail": 7}
    assert len(rows(*figures.namespaces(store))) == 4
