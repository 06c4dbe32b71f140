"""A paused job begins no run: what comes to it meanwhile waits for the resume."""

from __future__ import annotations

from collections import Counter

import pytest

from raftsched.proto.v1 import job_pb2, run_pb2
from raftsched.statemachine.core.budget import Steps
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.reads import explain

from .driver import HOUR_MS, MINUTE_MS, Machine

Misfire = job_pb2.MisfirePolicy
Overlap = job_pb2.OverlapPolicy
GRACE = duration(MINUTE_MS)


def pause(machine: Machine, name: str = "a", **fields: object) -> None:
    machine.do(job_pb2.PauseJobRequest(job=name, **fields))  # type: ignore[arg-type]


def resume(machine: Machine, name: str = "a") -> None:
    machine.do(job_pb2.ResumeJobRequest(job=name))
    machine.fire_all()
    machine.check()


def work_off(machine: Machine) -> list[str]:
    leases = machine.grant()
    for lease in leases:
        machine.succeed(lease)
    machine.fire_all()
    return [lease.job for lease in leases]


def wave(machine: Machine) -> None:
    """A run of the root, and what becomes of it."""
    machine.trigger("root")
    assert work_off(machine) == ["root"]


def outcomes(machine: Machine, name: str = "a") -> Counter[str]:
    ended = machine.ended(name)
    return Counter(run_pb2.Outcome.Name(run.outcome)[8:] for run in ended)


def late_and_in_time(machine: Machine, rule: Misfire.Rule.ValueType, late: int, now: int) -> None:
    misfire = Misfire(rule=rule, maximum=2, grace=GRACE)
    machine.create("root")
    machine.create("a", after=["root"], misfire=misfire)
    machine.create("b", after=["a"])
    pause(machine)
    for _ in range(late):
        wave(machine)
        machine.advance(1_000)
    machine.advance(HOUR_MS)
    for _ in range(now):
        wave(machine)
        machine.advance(1_000)
    machine.check()


@pytest.mark.parametrize("steps", [1, 1_000])
@pytest.mark.parametrize(
    ("rule", "ran", "of_late", "other"),
    [
        (Misfire.RULE_UNSPECIFIED, (1, 3), "COALESCED", 4),
        (Misfire.RULE_LATEST, (1, 3), "COALESCED", 4),
        (Misfire.RULE_EARLIEST, (1, 3), "COALESCED", 4),
        (Misfire.RULE_SKIP, (0, 3), "MISSED", 4),
        (Misfire.RULE_ALL, (2, 3), "MISSED", 4),
    ],
)
@pytest.mark.parametrize("now", [0, 3])
def test_at_the_resume_the_misfire_policy_chooses(
    machine: Machine, rule: Misfire.Rule.ValueType, ran: tuple[int, int], of_late: str,
    other: int, now: int, steps: int,
) -> None:  # fmt: skip
    late_and_in_time(machine, rule, 5, now)
    assert machine.grant() == []
    machine.new_budget = lambda: Steps(steps)

    resume(machine)

    latest = rule in (Misfire.RULE_UNSPECIFIED, Misfire.RULE_LATEST)
    of_them = 0 if latest and now else ran[0]
    assert work_off(machine) == ["a"] * (of_them + now)
    assert outcomes(machine)[of_late] == 5 - of_them
    assert (outcomes(machine)["LATE"], outcomes(machine)["RAN"]) == (of_them, now)
    assert work_off(machine) == ["b"] * (of_them + now)
    machine.check()


def test_the_latest_is_the_newest_and_the_earliest_the_oldest(machine: Machine) -> None:
    for rule, place in ((Misfire.RULE_LATEST, -1), (Misfire.RULE_EARLIEST, 0)):
        name = f"a-{place}".replace("-1", "new")
        machine.create(f"root-{name}")
        machine.create(name, after=[f"root-{name}"], misfire=Misfire(rule=rule, grace=GRACE))
        pause(machine, name)
        for _ in range(4):
            machine.trigger(f"root-{name}")
            work_off(machine)
            machine.advance(1_000)
        machine.advance(HOUR_MS)
        held = [run.id for run in machine.live(name)]
        resume(machine, name)
        assert [lease.run for lease in machine.grant()] == [held[place]]


def test_a_short_pause_drops_nothing(machine: Machine) -> None:
    late_and_in_time(machine, Misfire.RULE_LATEST, 0, 3)
    [held, *_] = machine.live("a")
    said = explain.explain_run(machine.view(), run_pb2.ExplainRunRequest(run=held.id), ())

    assert [item.kind for item in said.obstacles] == [run_pb2.Obstacle.KIND_JOB_PAUSED]
    resume(machine)

    assert work_off(machine) == ["a"] * 3


def test_a_pause_that_ends_by_itself_is_a_resume(machine: Machine) -> None:
    machine.create("root")
    machine.create("a", after=["root"])
    pause(machine, until=timestamp(machine.now_ms + HOUR_MS))
    wave(machine)
    assert machine.grant() == []
    machine.advance(HOUR_MS)
    machine.fire_all()
    machine.check()

    assert work_off(machine) == ["a"]


def test_a_run_for_later_waits_for_the_resume_unless_it_is_forced(machine: Machine) -> None:
    machine.create("a", misfire=Misfire(rule=Misfire.RULE_SKIP, grace=GRACE))
    due = timestamp(machine.now_ms + MINUTE_MS)
    for _ in range(2):
        machine.trigger("a", due_time=due)
    forced = machine.trigger("a", due_time=due, force=True).id
    pause(machine)
    machine.advance(MINUTE_MS)
    machine.fire_all()
    machine.check()

    assert [lease.run for lease in machine.grant()] == [forced]
    machine.advance(HOUR_MS)
    resume(machine)
    assert work_off(machine) == ["a", "a"]
    machine.check()


def test_what_is_held_for_a_resume_obeys_the_overlap_policy_then(machine: Machine) -> None:
    machine.create("root")
    overlap = Overlap(rule=Overlap.RULE_SKIP)
    misfire = Misfire(rule=Misfire.RULE_ALL)
    machine.create("a", after=["root"], overlap=overlap, misfire=misfire)
    pause(machine)
    for _ in range(3):
        wave(machine)
    resume(machine)

    assert [work_off(machine) for _ in range(4)] == [["a"], ["a"], ["a"], []]


def test_a_job_that_is_paused_again_keeps_what_is_left(machine: Machine) -> None:
    late_and_in_time(machine, Misfire.RULE_LATEST, 0, 5)
    machine.do(job_pb2.ResumeJobRequest(job="a"))
    pause(machine)
    machine.fire_all()
    machine.check()
    assert machine.grant() == []
    resume(machine)

    assert work_off(machine) == ["a"] * 5


def test_a_job_that_goes_on_can_be_deleted(machine: Machine) -> None:
    machine.create("root")
    machine.create("a", after=["root"])
    pause(machine)
    wave(machine)
    machine.do(job_pb2.ResumeJobRequest(job="a"))
    machine.do(job_pb2.DeleteJobRequest(job="a"))
    for _ in range(5):
        machine.fire_all()
        machine.advance(1)
    machine.check()
