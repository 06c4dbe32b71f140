"""A state goes on although what came after it is lost."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import job_pb2, run_pb2
from raftsched.statemachine import recovery
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.machine import read_meta
from raftsched.statemachine.selfcheck import verify

from .driver import Machine, image

ALLOW = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)


def recovered(machine: Machine) -> Machine:
    """The same state in other hands."""
    after = recovery.recover(machine.store, 0, "origin")
    again = Machine(machine.store)
    again.at(machine.now_ms)
    again.index = after.applied_index
    return again


def test_all_leases_have_lapsed_and_their_tokens_count_no_more(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "LEASES", 20)
    machine.create("a", overlap=ALLOW)
    for _ in range(70):
        machine.trigger("a")
    held = machine.grant("w1", credits=50)
    machine.grant("w2", credits=10)
    last = read_meta(machine.store)

    machine = recovered(machine)

    assert {run.state for run in machine.live("a")} == {run_pb2.RUN_STATE_PENDING}
    assert machine.succeed(held[0]).reason == "LEASE_LOST"
    [lease] = machine.grant("w3", credits=1)
    assert lease.token > last.token + (1 << 39)
    assert read_meta(machine.store).revision > last.revision + (1 << 39)
    assert verify.verify(machine.store) == []


def test_no_run_gets_an_id_that_a_lost_one_may_have_had(machine: Machine) -> None:
    machine.create("a")
    lost = Machine(MemoryStore())
    lost.create("a")
    lost.create("b")
    was = lost.trigger("b").id

    machine = recovered(machine)
    machine.create("b")

    assert machine.trigger("b").id != was


def test_it_stands_where_it_is_told_and_differs_from_what_it_was(machine: Machine) -> None:
    machine.create("a")
    before = read_meta(machine.store)

    after = recovery.recover(machine.store, 5_000, "x")

    assert (after.applied_index, after.now_ms) == (5_000, before.now_ms)
    assert after.fingerprint != before.fingerprint
    assert read_meta(machine.store) == after
    other = Machine(MemoryStore())
    other.create("a")
    assert recovery.recover(other.store, 5_000, "y").fingerprint != after.fingerprint


def test_two_that_do_the_same_come_to_the_same(machine: Machine) -> None:
    other = Machine(MemoryStore())
    for one in (machine, other):
        one.at("2026-01-01T09:00")
        one.create("a")
        one.trigger("a")
        one.grant("w1")
        recovery.recover(one.store, 70, "x")

    assert image(machine.store) == image(other.store)
