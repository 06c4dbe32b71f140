"""A job that waits for all of some jobs that never are in one flow is warned of."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import job_pb2
from raftsched.statemachine.core import limits

from .driver import Machine, job_of, with_mask


def warned(machine: Machine, name: str, *after: str, join: int = 0) -> list[str]:
    job = job_of(name, after=after)
    job.spec.upstream.join = job_pb2.Upstream.Join.ValueType(join)
    made = machine.ask(job_pb2.CreateJobRequest(job=job), job_pb2.Job)
    return list(made.status.warnings)


def test_two_roots_never_meet(machine: Machine) -> None:
    for name in ("a", "b"):
        machine.create(name, cron="0 * * * *")

    [warning] = warned(machine, "d", "a", "b")

    assert "no job comes before both b and a" in warning
    assert not warned(machine, "any", "a", "b", join=job_pb2.Upstream.JOIN_ANY)
    assert not warned(machine, "one", "a")


def test_what_comes_from_one_root_meets(machine: Machine) -> None:
    machine.create("root")
    machine.create("left", after=["root"])
    machine.create("right", after=["root"])
    machine.create("far", after=["right"])
    machine.create("alone")

    assert not warned(machine, "join", "left", "far")
    assert not warned(machine, "with-root", "root", "left")
    [warning] = warned(machine, "never", "left", "right", "alone")
    assert "both alone and all of left, right" in warning
    update = with_mask("spec.upstream", name="never",
                       upstream=job_of("x", after=["left", "far"]).spec.upstream)  # fmt: skip
    assert not machine.ask(update, job_pb2.Job).status.warnings


def test_very_many_are_not_looked_at(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMMON_JOBS", 3)
    machine.create("alone")
    machine.create("j0")
    for number in range(6):
        machine.create(f"j{number + 1}", after=[f"j{number}"])

    assert not warned(machine, "d", "j6", "alone")
    assert warned(machine, "e", "j1", "alone")
