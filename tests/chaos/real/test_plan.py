"""The plan of faults: the same for the same seed, within its time, and of every kind it names."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from raftsched.chaos.real.deeds import DEEDS
from raftsched.chaos.real.faults import (
    BY_COMMAND,
    LEADER,
    NEW,
    OLD,
    SCENARIOS,
    SHAPES,
    UPGRADE,
    plan,
    split,
)

from ...rows import each

CLIENTS = "clients"


@each("scenario", SCENARIOS)
def test_a_seed_replays_its_plan_and_another_has_another(scenario: str) -> None:
    assert plan(scenario, 300, 7) == plan(scenario, 300, 7)
    if scenario not in ("rolling", "herd-failover", BY_COMMAND):
        assert plan(scenario, 300, 7) != plan(scenario, 300, 8)


@each(("scenario", "seed"), [*product(SCENARIOS, range(5))])
def test_faults_come_in_order_and_end_in_time(scenario: str, seed: int) -> None:
    faults = plan(scenario, 200, seed)
    assert faults
    assert [f.at for f in faults] == sorted(f.at for f in faults)
    assert all(f.at >= 0 and f.at + f.seconds <= 200 for f in faults)
    if scenario != "mixed":
        assert all(a.at + a.seconds < b.at for a, b in pairwise(faults))


def test_every_fault_that_is_planned_can_be_done() -> None:
    planned = {
        f.what for name, seed in product(SCENARIOS, range(20)) for f in plan(name, 300, seed)
    }
    assert planned - {"herd"} == set(DEEDS)


@pytest.mark.parametrize("nodes", [3, 5])
def test_an_upgrade_goes_up_back_and_up_again_with_leaders_that_die(nodes: int) -> None:
    up, back, dies = ("upgrade", OLD), ("rollback", NEW), ("kill", LEADER)
    once = [up, dies] + [up] * (nodes - 1) + [back] * nodes
    for seconds, wanted in ((10, once), (30, once + [up, dies] * nodes)):
        steps = plan(UPGRADE, seconds, 1, nodes)
        assert [(step.what, step.target) for step in steps] == wanted


def test_two_minutes_of_leader_kills_are_at_least_twenty() -> None:
    assert all(len(plan("kill-leader", 120, seed)) >= 20 for seed in range(50))


@each(("shape", "count"), [*product(SHAPES, (3, 5))])
def test_each_shape_cuts_something_and_never_everything(shape: str, count: int) -> None:
    names = [f"n{number}" for number in range(1, count + 1)]
    for target in names:
        pairs = split(shape, target, names, CLIENTS)
        assert pairs
        assert len(set(pairs)) == len(pairs)
        assert all(a != b for a, b in pairs)
        between = {pair for pair in pairs if CLIENTS not in pair}
        assert len(between) < count * (count - 1)


def test_shapes_are_what_their_names_say() -> None:
    names = ["n1", "n2", "n3", "n4", "n5"]
    assert split("one-way-in", "n1", ["n1", "n2", "n3"], CLIENTS) == [("n2", "n1"), ("n3", "n1")]
    assert split("one-way-out", "n1", ["n1", "n2", "n3"], CLIENTS) == [("n1", "n2"), ("n1", "n3")]
    assert not any("n3" in pair for pair in split("bridge", "n3", names, CLIENTS))
    halves = {frozenset(pair) for pair in split("halves", "n5", names, CLIENTS)}
    assert halves == {frozenset((a, b)) for a in ("n5", "n1") for b in ("n2", "n3", "n4")}
    ring = {frozenset(pair) for pair in split("ring", "n1", names, CLIENTS)}
    assert len(ring) == 5
    assert frozenset(("n1", "n2")) not in ring
    assert split("from-clients", "n1", names, CLIENTS) == [("n1", CLIENTS), (CLIENTS, "n1")]
