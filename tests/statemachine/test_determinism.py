"""The same requests give the same bytes, on every machine and in every process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from raftsched.proto.v1 import job_pb2
from raftsched.statemachine import machine as rules
from raftsched.statemachine.core.store import MemoryStore, Store
from raftsched.statemachine.machine import WrongBase, apply, read_meta
from raftsched.statemachine.model.record import UnknownFormat

from .driver import Machine, image
from .world import build

ROOT = Path(__file__).parent.parent.parent
PROGRAM = "from tests.statemachine.test_determinism import history; print(history())"


def history() -> str:
    """A hash over the changes of two busy hours."""
    machine = Machine(MemoryStore())
    build(machine)
    return hashlib.sha256(b"".join(machine.log)).hexdigest()


def history_with_hash_seed(seed: str) -> str:
    path = os.pathsep.join([str(ROOT / ".src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.mark.slow
def test_two_interpreters_with_different_hash_seeds_give_the_same_changes() -> None:
    assert history_with_hash_seed("1") == history_with_hash_seed("2") == history()


def test_a_replica_that_applies_the_changes_holds_the_same_bytes(store: Store) -> None:
    machine = Machine(MemoryStore())
    build(machine)

    for index, change in enumerate(machine.log, start=1):
        apply(store, index, change)

    assert image(store) == image(machine.store)


def test_an_index_that_was_applied_does_nothing_again(store: Store) -> None:
    machine = Machine(MemoryStore())
    build(machine)
    for index, change in enumerate(machine.log, start=1):
        apply(store, index, change)
    before = image(store)

    for index, change in enumerate(machine.log, start=1):
        apply(store, index, change)

    assert image(store) == before


def test_a_change_decided_on_another_state_is_refused(store: Store) -> None:
    machine = Machine(store)
    stale = machine.decide(_create("a")).change
    machine.do(_create("b"))
    before = image(store)

    with pytest.raises(WrongBase, match="index 9 was decided on 0, state is at 1"):
        apply(store, 9, stale)

    assert image(store) == before


def test_a_change_of_a_newer_format_stops_the_node(store: Store) -> None:
    machine = Machine(store)
    change = machine.decide(_create("a")).change

    with pytest.raises(UnknownFormat, match="format 2; this version knows 1"):
        apply(store, 1, change[:1] + b"\x02" + change[2:])


def test_an_entry_without_a_change_moves_only_the_index(store: Store) -> None:
    machine = Machine(store)
    machine.do(_create("a"))
    before = read_meta(store)

    after = rules.skip(store, 7)

    assert after.applied_index == 7
    assert after.revision == before.revision
    assert after.fingerprint == before.fingerprint


def _create(name: str) -> object:
    job = job_pb2.Job(name=name)
    job.spec.action.handler = "work"
    return job_pb2.CreateJobRequest(job=job)
