"""Where all places for workers are taken, one without leases gives its own to another tenant."""

from __future__ import annotations

import pytest

from raftsched.cluster.node.tenant_room import TenantRoom
from raftsched.statemachine.core.rejection import Reason, Refused
from raftsched.statemachine.model import keys

from .ear import Ear
from .test_leader_loop import START_MS, Bench, due

FULL = Reason.ERROR_REASON_BACKLOG_FULL


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.leader.gained()
    bench.sessions.room = TenantRoom(8)
    return bench


def come(bench: Bench, *workers: str, credits: int = 0) -> list[Ear]:
    ears = [bench.worker(keys.worker_of(*name.split("/")), credits)[1] for name in workers]
    bench.run()
    return ears


def gone(ears: list[Ear]) -> list[int]:
    """Those that were ended, and how."""
    assert all(refusal.reason == FULL for ear in ears for refusal in ear.gone)
    return [place for place, ear in enumerate(ears) if ear.gone]


def test_an_idle_worker_gives_its_place_to_the_first_of_another_tenant(bench: Bench) -> None:
    """Seen before: whoever came last was refused as long as the others stood idle."""
    many = come(bench, "/w1", "/w2", "/w3", "/w4", "/w5", "red/w1", "green/w1", "white/w1")
    assert gone(many) == []

    [first] = come(bench, "blue/w1")
    assert first.gone == []
    # Of who has most, that which was silent for longest.
    assert gone(many) == [0]
    assert len(bench.sessions.by_worker) == bench.sessions.room.taken == 8
    with pytest.raises(Refused):
        come(bench, "blue/w2")
    with pytest.raises(Refused):
        come(bench, "/w6")
    come(bench, "black/w1", "grey/w1")
    assert gone(many) == [0, 1, 2]


def test_one_with_leases_stays(bench: Bench) -> None:
    for number in range(2):
        bench.ask(due(f"j{number}", START_MS - 1))
    busy = come(bench, "/w1", "/w2", credits=1)
    assert [len(ear.got) for ear in busy] == [1, 1]
    idle = come(bench, *(f"/w{number}" for number in range(3, 9)))

    come(bench, "blue/w1", "green/w1")

    assert (gone(busy), gone(idle)) == ([], [0, 1])


def test_it_takes_nothing_of_what_is_ready_meanwhile(bench: Bench) -> None:
    [first, *_] = come(bench, *(f"/w{number}" for number in range(8)), credits=1)
    bench.worker(keys.worker_of("blue", "w1"), 0)
    bench.ask(due("a", START_MS - 1))
    bench.run()

    assert (gone([first]), first.got) == ([0], [])


def test_who_has_one_alone_keeps_it(bench: Bench) -> None:
    come(bench, *(f"t{number}/w1" for number in range(8)))

    with pytest.raises(Refused) as refused:
        come(bench, "blue/w1")
    assert refused.value.rejection.reason == FULL
