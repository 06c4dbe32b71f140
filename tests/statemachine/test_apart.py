"""A job after all of some jobs that are never in one flow is refused: it would never run."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from raftsched.proto.v1 import job_pb2
from raftsched.statemachine.core import limits

from .driver import Machine, cut_off, job_of, with_mask

ANY = job_pb2.Upstream.JOIN_ANY


def after(name: str, *names: str, join: int = 0) -> job_pb2.CreateJobRequest:
    job = job_of(name, after=names)
    job.spec.upstream.join = job_pb2.Upstream.Join.ValueType(join)
    return job_pb2.CreateJobRequest(job=job)


def warnings(machine: Machine, name: str) -> list[str]:
    update = with_mask("spec.owner", name=name, owner="somebody")
    return list(machine.ask(update, job_pb2.Job).status.warnings)


def test_two_roots_never_meet_also_at_the_same_times(machine: Machine) -> None:
    for name in ("a", "b"):
        machine.create(name, cron="0 * * * *")

    refusal = machine.refused(after("d", "a", "b"))

    [fault] = refusal.faults
    assert (refusal.word, fault.field) == ("FIELD_INVALID", "spec.upstream.jobs")
    assert "no job comes before both b and a" in fault.message
    assert "both after a third that has the schedule" in fault.message
    machine.do(after("any", "a", "b", join=ANY))
    machine.do(after("one", "a"))


def test_what_comes_from_one_root_meets(machine: Machine) -> None:
    machine.create("root")
    machine.create("left", after=["root"])
    machine.create("right", after=["root"])
    machine.create("far", after=["right"])
    machine.create("alone")

    machine.do(after("join", "left", "far"))
    machine.do(after("with-root", "root", "left"))
    refusal = machine.refused(after("never", "left", "right", "alone"))
    assert "both alone and all of left, right" in refusal.message


def test_an_update_is_refused_as_well(machine: Machine) -> None:
    for name in ("a", "b"):
        machine.create(name)
    machine.do(after("d", "a"))
    both = job_of("x", after=["a", "b"]).spec.upstream

    assert (
        "no job comes before both"
        in machine.refused(with_mask("spec.upstream", name="d", upstream=both)).message
    )
    both.join = ANY
    machine.do(with_mask("spec.upstream", name="d", upstream=both))
    refusal = machine.refused(with_mask("spec.upstream.join", name="d", upstream={"join": 1}))
    assert "no job comes before both" in refusal.message


def test_what_is_taken_away_above_gives_a_warning(machine: Machine) -> None:
    """Such a job is there already, and takes other updates."""
    machine.create("a")
    machine.create("b", after=["a"])
    machine.create("d", after=["a", "b"])
    assert not warnings(machine, "d")

    machine.do(cut_off("b"))

    update = with_mask("spec.description", name="d", description="it waits")
    [warning] = machine.ask(update, job_pb2.Job).status.warnings
    assert "no job comes before both b and a" in warning


def test_an_import_refuses_it_alone(machine: Machine) -> None:
    request = job_pb2.ImportJobsRequest(
        jobs=[job_of("d", after=["a", "b"]), job_of("a"), job_of("b", cron="0 * * * *")]
    )

    answer = machine.ask(request, job_pb2.ImportJobsResponse)

    assert [result.reason for result in answer.results] == ["FIELD_INVALID", "", ""]


def test_very_many_are_not_looked_at(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMMON_LINKS", 3)
    machine.create("alone")
    machine.create("j0")
    for number in range(6):
        machine.create(f"j{number + 1}", after=[f"j{number}"])

    machine.refused(after("e", "j1", "alone"))
    machine.do(after("d", "j6", "alone"))


# Every graph of four jobs, each after some of those before it.
NAMES = ("a", "b", "c", "d")
BEFORE = [
    [names for size in range(place + 1) for names in combinations(NAMES[:place], size)]
    for place in range(4)
]


@pytest.mark.parametrize("edges", list(product(*BEFORE)), ids=str)
def test_a_job_is_taken_if_some_trigger_makes_it_run(
    machine: Machine, edges: tuple[tuple[str, ...], ...]
) -> None:
    """Each root is triggered and all that comes of it succeeds: what was taken runs in one of these
    flows, and what was refused would run in none."""
    upstream = dict(zip(NAMES, edges, strict=True))
    taken = dict[str, tuple[str, ...]]()
    for name in NAMES:
        if any(above not in taken for above in upstream[name]):
            return  # The smaller graph is a case of its own.
        wanted = after(name, *upstream[name])
        if not meets(taken, upstream[name]):
            machine.refused(wanted)
            return
        machine.do(wanted)
        taken[name] = upstream[name]
    ran = set[str]()
    for root in (name for name in NAMES if not upstream[name]):
        machine.trigger(root)
        while leases := machine.grant():
            for lease in leases:
                ran.add(lease.job)
                machine.succeed(lease)

    assert ran == set(NAMES)


def meets(graph: dict[str, tuple[str, ...]], wanted: tuple[str, ...]) -> bool:
    """Whether one flow has runs of all: played from each root, by what the contract says."""
    if not wanted:
        return True
    for root in (name for name, above in graph.items() if not above):
        ran = {root}
        for name, above in graph.items():
            if above and ran.issuperset(above):
                ran.add(name)
        if ran.issuperset(wanted):
            return True
    return False
