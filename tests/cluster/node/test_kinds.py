"""Very many kinds of workers are asked in turns, so that no change costs all of them."""

from __future__ import annotations

import pytest

from raftsched.cluster.node import offer_queue
from raftsched.proto.v1 import worker_pb2
from raftsched.statemachine.model.request import Grant

from .ear import Ear
from .test_leader_loop import START_MS, Bench, due


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(offer_queue, "KINDS", 4)
    bench = Bench()
    bench.leader.gained()
    return bench


def crowd(bench: Bench, count: int) -> list[Ear]:
    ears = []
    for number in range(count):
        ear = Ear()
        hello = worker_pb2.WorkerHello(worker=f"w{number}", labels={"host": f"h{number}"})
        bench.sessions.open(hello, ear, stream=True).credit(5)
        ears.append(ear)
    bench.run()
    return ears


def test_one_grant_asks_some_kinds_of_workers_and_the_next_one_others(bench: Bench) -> None:
    crowd(bench, 10)
    asked: list[set[str]] = []

    for _ in range(5):
        part = bench.sessions.grant(1_000)
        assert part is not None
        assert isinstance(part.body, Grant)
        asked.append({offer.worker for offer in part.body.offers})
        part.answer([[] for _ in part.body.offers])

    assert {len(some) for some in asked} == {4}
    assert set.union(*asked[:3]) == {f"w{number}" for number in range(10)}


@pytest.mark.parametrize("host", [0, 5, 9])
def test_the_one_worker_that_fits_is_found_among_many(bench: Bench, host: int) -> None:
    ears = crowd(bench, 10)
    request = due("a", START_MS)
    request.job.spec.worker_labels["host"] = f"h{host}"
    bench.ask(request)

    bench.run()

    assert [len(ear.got) for ear in ears] == [int(number == host) for number in range(10)]


def test_when_all_were_asked_nobody_is_asked_again(bench: Bench) -> None:
    crowd(bench, 10)

    assert not bench.sessions.fresh
    assert bench.leader._next.gather(bench.now_ms, fires=True) == []


def test_an_allowance_that_nobody_would_take_wakes_no_one(bench: Bench) -> None:
    bench.leader._due.allowance_ms = START_MS - 1

    assert bench.leader._next.gather(bench.now_ms, fires=True) == []
    assert bench.leader.next_due_ms() is None
