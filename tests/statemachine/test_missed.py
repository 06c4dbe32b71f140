"""Of times that were missed the policy chooses among those that may run: in every small world it
comes to what a model says that looks at one time after the other.

The fast tests play a part of these worlds, the slow ones more; `python -m
tests.statemachine.worlds --all` plays each.
"""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from raftsched.proto.v1 import job_pb2, run_pb2, schedule_pb2
from raftsched.statemachine.core.instants import duration, timestamp

from ..sampled import some as sampled
from .driver import HOUR_MS, START_MS, Machine, job_of
from .worlds import (
    DEADLINES,
    GRACES,
    HOW,
    KINDS,
    MAX_RUNS,
    MOST,
    SETTINGS,
    audit,
    check_choices,
    check_outcomes,
    check_places,
    check_timeline,
    worlds,
)

Misfire = job_pb2.MisfirePolicy
Overlap = job_pb2.OverlapPolicy
PARTS = 7
EACH = 37  # Of the settings of a choice, which are 2,016 in a world of six.


@pytest.mark.parametrize("first", HOW)
def test_the_timeline_of_every_world_of_three_is_what_a_reader_would_list(first: str) -> None:
    for how in worlds(3):
        if how[0] == first:
            check_timeline(how)


@pytest.mark.parametrize("size", sampled(range(1, MOST + 1), MOST - 2))
def test_the_choice_in_every_world_of_six_is_that_of_the_model(size: int) -> None:
    """Each setting is met, one of EACH in each world."""
    for place, kinds in enumerate(product(KINDS, repeat=size)):
        check_choices(kinds, EACH if size > 2 else 1, place)


@pytest.mark.parametrize("seed", sampled(range(200), 20))
def test_the_ledger_of_some_worlds_of_six_is_that_of_the_model(seed: int) -> None:
    dice = Random(seed)
    how = tuple(dice.choices(HOW, k=dice.randrange(4, MOST + 1)))
    check_outcomes(how, dice.choice(SETTINGS))


@pytest.mark.parametrize("part", sampled(range(PARTS), 1))
def test_the_ledger_of_every_world_of_three_is_that_of_the_model(part: int) -> None:
    """Each world under some of the settings, so that each of these is met."""
    around = Random(7).sample(SETTINGS, len(SETTINGS))
    each = len(SETTINGS) // len(list(worlds(3))) + 1
    for place, how in enumerate(worlds(3)):
        if place % PARTS == part:
            for number in range(each * place, each * (place + 1)):
                check_outcomes(how, around[number % len(around)])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_ledger_of_every_world_of_two_is_that_of_the_model_under_all_settings() -> None:
    """A third, and of the start deadlines one by turns; the command plays each with each."""
    turn = 0
    for place, how in enumerate(worlds(2)):
        for number, setting in enumerate(SETTINGS):
            beside, deadline = divmod(number, len(DEADLINES))
            if beside % len(DEADLINES) == turn and deadline == (beside + place) % len(DEADLINES):
                check_outcomes(how, setting)


@pytest.mark.parametrize("first", sampled(HOW, 2))
def test_places_within_max_runs_are_taken_in_their_turn(first: str) -> None:
    for place, how in enumerate(worlds(3)):
        if how[0] == first:
            for max_runs in MAX_RUNS:
                check_places(how, max_runs, GRACES[(place + max_runs) % len(GRACES)])


@pytest.mark.parametrize("hours", [3, 5])
@pytest.mark.parametrize("rule", ["SKIP", "ALLOW", "QUEUE_ONE", "QUEUE", "REPLACE"])
def test_under_all_each_runs_however_long_the_outage_was(
    machine: Machine, rule: str, hours: int
) -> None:
    """After an outage within the grace one of three ran, and after a longer one all of five."""
    overlap = Overlap(rule=Overlap.Rule.Value(f"RULE_{rule}"), limit=0 if "_" in rule else 1)
    policy = Misfire(rule=Misfire.RULE_ALL, grace=duration(4 * HOUR_MS))
    machine.create("a", cron="0 * * * *", overlap=overlap, misfire=policy)
    machine.at(START_MS + hours * HOUR_MS + HOUR_MS // 2)
    for _ in range(hours):
        machine.fire_all()
        [lease] = machine.grant()
        machine.succeed(lease)

    assert [run.state for run in machine.ended("a")] == [run_pb2.RUN_STATE_SUCCEEDED] * hours
    assert not audit(machine).wrong
    machine.check()


@pytest.mark.parametrize("rule", ["SKIP", "ALLOW", "QUEUE_ONE", "QUEUE", "REPLACE"])
@pytest.mark.parametrize("busy", [False, True])
def test_of_several_in_time_the_latest_go_under_each_overlap_policy(
    machine: Machine, rule: str, busy: bool
) -> None:
    """QUEUE kept the oldest and skipped the newest; QUEUE_ONE and REPLACE made runs that gave way
    in the same change."""
    overlap = Overlap(rule=Overlap.Rule.Value(f"RULE_{rule}"), limit=0 if "_" in rule else 1)
    machine.create("a", cron="* * * * *", overlap=overlap, misfire=Misfire(grace=duration(HOUR_MS)))
    if busy:
        machine.trigger("a")
        machine.grant()
    machine.advance(4 * HOUR_MS // 60)
    machine.fire_all()

    found = [
        run_pb2.Outcome.Name(one.outcome)[8:] for _, one in sorted(machine.ledger("a").items())
    ]
    stand = [item for item in found if item != "COALESCED"]
    room = {"SKIP": 1, "ALLOW": 1, "QUEUE_ONE": 2, "QUEUE": 2, "REPLACE": 1}[rule]
    if rule in ("SKIP", "ALLOW"):
        wanted = ["SKIPPED_OVERLAP"] * 4 if busy else ["RAN"]
    else:
        wanted = ["RAN"] * (room - (busy and rule != "REPLACE"))
    assert stand == wanted
    assert found[-1] == wanted[-1]
    assert not audit(machine).wrong
    machine.check()


def test_two_schedules_that_come_within_a_second_are_one_choice(machine: Machine) -> None:
    """The older ran, and the newer was skipped for it."""
    every = schedule_pb2.Interval(every=duration(HOUR_MS), anchor=timestamp(START_MS + 500))
    job = job_of("a", cron="0 * * * *")
    job.spec.schedules.add().interval.CopyFrom(every)
    machine.do(job_pb2.CreateJobRequest(job=job))
    machine.at(START_MS + HOUR_MS + 600)
    machine.fire_all()

    found = {at: run_pb2.Outcome.Name(one.outcome)[8:] for at, one in machine.ledger("a").items()}
    late = START_MS + HOUR_MS + 500
    assert (found.pop(late), *found.values()) == ("RAN", "COALESCED")
