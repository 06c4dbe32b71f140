"""Of times that were missed the policy chooses among those that may run: in every small world it
comes to what a model says that looks at one time after the other."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import cycle, islice, product
from random import Random
from typing import TypeVar

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from raftsched.proto.v1 import calendar_pb2, job_pb2, namespace_pb2, run_pb2, schedule_pb2
from raftsched.statemachine.calls import jobs
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model.record import EditRecord
from raftsched.statemachine.occurrences import misfire, next_time, timeline
from raftsched.statemachine.occurrences.timeline import Stretch
from raftsched.statemachine.schedule.plan import Grid, Plan, due, scheduled_times
from raftsched.statemachine.schedule.zones import LATEST_MS, find_zone

from ..sampled import some as sampled
from .asking import ask
from .driver import DAY_MS, HOUR_MS, START_MS, Machine, job_of, with_mask
from .missed_model import Time, fates

Edit = schedule_pb2.OccurrenceEdit
Misfire = job_pb2.MisfirePolicy
Overlap = job_pb2.OverlapPolicy
# What may have happened to a time of the schedule: nothing; a day off; skipped; moved to somewhat
# later, to now, to before all, to behind now; or there is one more, that was added behind it.
HOW = ("none", "off", "skip", "later", "now", "early", "ahead", "more")
POLICIES = (("SKIP", 0), ("LATEST", 0), ("EARLIEST", 0), ("ALL", 1), ("ALL", 2), ("ALL", 100))
DEADLINES = (0, 18 * HOUR_MS, 30 * HOUR_MS)
GRACES = (0, 6 * HOUR_MS, 30 * HOUR_MS, 90 * DAY_MS)
ROOMS = (None, 0, 1, 2)
EARLY_MS = START_MS + HOUR_MS
LAST_MS = 18 * HOUR_MS  # From the last time of the schedule to the end of the outage.
EACH = 17
PARTS = 7
T = TypeVar("T")
FATES = {"excluded": "exclude", "skipped": "skip"}


def scheduled(number: int) -> int:
    return START_MS + number * DAY_MS + 9 * HOUR_MS


class World:
    """A job at nine each day, to some of whose times something happened; and the end of an outage
    in which they came due."""

    def __init__(
        self, how: tuple[str, ...], misfire: Misfire | None = None, overlap: Overlap | None = None
    ) -> None:
        self.how = how
        self.now_ms = scheduled(len(how) - 1) + LAST_MS
        self.machine = machine = Machine(MemoryStore())
        dates = ["2025-12-31"]
        for number, what in enumerate(how):
            if what == "off":
                dates.append(f"2026-01-0{number + 1}")
        rules = [calendar_pb2.CalendarRule(date=date) for date in dates]
        calendar = calendar_pb2.Calendar(name="off", rules=rules)
        machine.do(calendar_pb2.CreateCalendarRequest(calendar=calendar))
        timing = schedule_pb2.Timing(exclude_calendars=["off"])
        machine.create("a", cron="0 9 * * *", timing=timing, misfire=misfire, overlap=overlap)
        for number, what in enumerate(how):
            self.edit(what, scheduled(number))
        machine.at(EARLY_MS)
        machine.fire()
        for lease in machine.grant():
            machine.succeed(lease)

    def edit(self, what: str, at_ms: int) -> None:
        moves = {"later": at_ms + 5 * HOUR_MS, "now": self.now_ms, "early": EARLY_MS,
                 "ahead": self.now_ms + HOUR_MS}  # fmt: skip
        edit = Edit(scheduled_time=timestamp(at_ms))
        if what == "skip":
            edit.kind = Edit.KIND_SKIP
        elif what in moves:
            edit.kind = Edit.KIND_MOVE
            edit.moved_to.CopyFrom(timestamp(moves[what]))
        elif what == "more":
            edit.kind = Edit.KIND_ADD
            edit.scheduled_time.CopyFrom(timestamp(at_ms + 7 * HOUR_MS))
        else:
            return
        self.machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))

    def times(self) -> list[Time]:
        """All that is to be decided on, as somebody would list it who reads the orders."""
        found = []
        for number, what in enumerate(self.how):
            at_ms = scheduled(number)
            if what in ("none", "more"):
                found.append(Time(at_ms, at_ms, "open"))
            if what == "more":
                found.append(Time(at_ms + 7 * HOUR_MS, at_ms + 7 * HOUR_MS, "open"))
            elif what == "off":
                found.append(Time(at_ms, at_ms, "excluded"))
            elif what == "skip":
                found.append(Time(at_ms, at_ms, "skipped"))
            elif what == "later":
                found.append(Time(at_ms + 5 * HOUR_MS, at_ms, "open"))
            elif what == "now":
                found.append(Time(self.now_ms, at_ms, "open"))
        return found


def worlds(most: int) -> Iterator[tuple[str, ...]]:
    for size in range(1, most + 1):
        yield from product(HOW, repeat=size)


def listed(found: Iterable[Stretch], plan: Plan) -> Iterator[tuple[Stretch, int]]:
    """The times of stretches one by one."""
    for one in found:
        times = scheduled_times(plan, one.first + 1, one.last + 1, 100).times
        assert one.count == 1 + len(times), one
        yield from ((one, at_ms) for at_ms in (one.first, *times))


@pytest.mark.parametrize("first", HOW)
def test_the_timeline_of_every_world_of_three_is_what_a_reader_would_list(first: str) -> None:
    for how in worlds(3):
        if how[0] != first:
            continue
        world = World(how, overlap=Overlap(rule=Overlap.RULE_ALLOW))
        world.machine.at(world.now_ms)
        view = world.machine.view()
        job = jobs.find(view, "", "a")
        plan = next_time.plan_of(view, job)
        until_ms = view.now_ms - due(plan, 0)
        found, _ = timeline.undecided(view, job, plan, until_ms)
        told = [
            Time(one.due_ms + at_ms - one.first, at_ms, one.kind.name.lower())
            for one, at_ms in listed(found, plan)
        ]
        assert sorted(told) == sorted(world.times()), how
        assert [one.due_ms for one in found] == sorted(one.due_ms for one in found), how


# The choice by itself: it knows of a time only whether it may run and when it is due.

KINDS = (timeline.OPEN, timeline.EXCLUDED, "moved")
UTC = find_zone("UTC")
assert UTC is not None
PURE_PLAN = Plan((), (Grid(DAY_MS, scheduled(0)),), (), UTC, 0, LATEST_MS, 0, 0, (), ())
MOST = 6


def stretches(kinds: tuple[object, ...], now_ms: int) -> list[Stretch]:
    """Neighbours of one kind are one stretch, but what was moved to now stands alone."""
    found: list[Stretch] = []
    for number, kind in enumerate(kinds):
        at_ms = scheduled(number)
        if kind == "moved":
            edit = EditRecord(at_ms, Edit.KIND_MOVE, now_ms)
            found.append(Stretch(at_ms, at_ms, 1, now_ms, edit=edit))
        elif number and kinds[number - 1] is kind:
            before = found[-1]
            found[-1] = Stretch(before.first, at_ms, before.count + 1, before.due_ms, before.kind)
        else:
            assert isinstance(kind, timeline.Kind)
            found.append(Stretch(at_ms, at_ms, 1, at_ms, kind))
    return sorted(found, key=lambda one: (one.due_ms, one.first))


def settings(size: int) -> Iterator[tuple[str, int, int, int | None, bool, bool]]:
    """All that a choice may depend on, but a full quota where the policy does not ask for it; the
    grace reaches back over any number of the times."""
    for (rule, maximum), days, room in product(POLICIES, range(size + 1), ROOMS):
        grace_ms = LAST_MS + days * DAY_MS - DAY_MS // 2
        for is_full in (False, True)[: 1 + (rule == "LATEST" or maximum == 2)]:
            yield rule, maximum, grace_ms, room, is_full, False
        # Older ones wait, and go first.
        yield rule, maximum, grace_ms, room, False, True


@pytest.mark.parametrize("size", sampled(range(1, MOST + 1), MOST - 1))
def test_the_choice_in_every_world_of_six_is_that_of_the_model(size: int) -> None:
    """What somebody skipped is as what a calendar leaves out: half of these are."""
    now_ms = scheduled(size - 1) + LAST_MS
    for place, kinds in enumerate(product(KINDS, repeat=size)):
        found = stretches(kinds, now_ms)
        if place % 2:
            skipped = {timeline.EXCLUDED: timeline.SKIPPED}
            found = [replace(one, kind=skipped.get(one.kind, one.kind)) for one in found]
        times = [
            Time(one.due_ms + at_ms - one.first, at_ms, one.kind.name.lower())
            for one, at_ms in listed(found, PURE_PLAN)
        ]
        for number, setting in enumerate(settings(size)):
            rule, maximum, grace_ms, room, is_full, is_behind = setting
            deadline_ms = DEADLINES[(place + number) % len(DEADLINES)]
            wanted = fates(
                times, rule, maximum, now_ms, grace_ms, room,
                is_full=is_full, is_behind=is_behind, deadline_ms=deadline_ms,
            )  # fmt: skip
            policy = Misfire(rule=Misfire.Rule.Value(f"RULE_{rule}"), maximum=maximum)
            limit_ms = deadline_ms or limits.INSTANT_MAX_MS
            chosen = misfire.choose(
                policy, found, PURE_PLAN, now_ms, grace_ms, limit_ms, room,
                is_full=is_full, is_behind=is_behind,
            )  # fmt: skip
            told = {
                at_ms: fate.value for one, fate in chosen for _, at_ms in listed([one], PURE_PLAN)
            }
            right = {at_ms: FATES.get(fate, fate) for at_ms, fate in wanted.items()}
            case = (kinds, setting, deadline_ms)
            assert told == right, case


OUTCOMES = {"run": "RAN", "coalesce": "COALESCED", "miss": "MISSED",
            "expire": "SKIPPED_DEADLINE",
            "excluded": "SKIPPED_CALENDAR", "skipped": "SKIPPED_BY_HAND"}  # fmt: skip
# How many more runs each overlap policy lets begin, or holds back.
BUSY = {"ALLOW": None, "SKIP": 1, "SKIP, busy": 0, "QUEUE": 101, "QUEUE, short": 2,
        "QUEUE_ONE": 2, "QUEUE_ONE, busy": 1, "REPLACE": 1,
        "ALLOW, limited": 2, "ALLOW, limited, busy": 1}  # fmt: skip
LIMITS = {"QUEUE": 100, "QUEUE, short": 1, "ALLOW, limited": 2, "ALLOW, limited, busy": 2}


# Whether another job has used up the quota of runs; whether the job was paused, or nobody led.
QUOTAS, DOWN = ("", "quota"), ("outage", "pause")
Setting = tuple[tuple[str, int], int, str, str, str]
SETTINGS: list[Setting] = list(product(POLICIES, GRACES, BUSY, QUOTAS, DOWN))


def check_outcomes(how: tuple[str, ...], setting: Setting, deadline_ms: int = 0) -> None:
    """The same through all of the rules, and the ledger."""
    (rule, maximum), grace_ms, overlap, quota, down = setting
    policy = Misfire(
        rule=Misfire.Rule.Value(f"RULE_{rule}"), maximum=maximum, grace=duration(grace_ms)
    )
    if deadline_ms:
        policy.start_deadline.CopyFrom(duration(deadline_ms))
    kind = overlap.split(",", maxsplit=1)[0]
    world = World(how, misfire=policy)
    machine = world.machine
    wanted = Overlap(rule=Overlap.Rule.Value(f"RULE_{kind}"), limit=LIMITS.get(overlap, 0))
    machine.do(with_mask("spec.overlap", name="a", overlap=wanted))
    if overlap.endswith("busy"):
        machine.trigger("a")
    if quota:
        machine.create("b")
        machine.trigger("b")
    running = machine.grant()
    if quota:
        limit_runs(machine, len(running))
    if down == "pause":
        machine.do(job_pb2.PauseJobRequest(job="a"))
        machine.at(world.now_ms)
        machine.fire_all()
        machine.do(job_pb2.ResumeJobRequest(job="a"))
    machine.at(world.now_ms)
    room = BUSY[overlap]
    model = fates(
        world.times(), rule, maximum, world.now_ms, grace_ms, room,
        is_full=bool(quota), deadline_ms=deadline_ms,
    )  # fmt: skip
    machine.fire_all()
    for lease in running:
        machine.succeed(lease)
    for _ in range(20):
        machine.fire_all()
        for lease in machine.grant():
            machine.succeed(lease)
    told: dict[int, str] = {}
    for first_ms, entry in sorted(machine.ledger("a").items()):
        inside = (at for at in model if first_ms <= at <= max(first_ms, entry.last_at_ms))
        told |= dict.fromkeys(inside, run_pb2.Outcome.Name(entry.outcome)[8:])
    lateness = {time.scheduled_ms: world.now_ms - time.due_ms for time in world.times()}
    for at_ms, fate in model.items():
        right = OUTCOMES.get(fate, "LATE" if lateness[at_ms] > grace_ms else "RAN")
        if fate == "run" and (quota or room == 0):
            right = "SKIPPED_QUOTA" if quota else "SKIPPED_OVERLAP"
        assert told.get(at_ms) == right, f"{how}, {setting}, {deadline_ms}: {fate} of {at_ms}"
    machine.check()
    answer = audit(machine)
    assert not answer.wrong, f"{how}, {setting}, {deadline_ms}: {answer}"


def limit_runs(machine: Machine, runs: int) -> None:
    settings = namespace_pb2.Namespace(name="default", quota=namespace_pb2.Quota(live_runs=runs))
    mask = FieldMask(paths=["quota"])
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=settings, update_mask=mask))


def audit(machine: Machine) -> job_pb2.AuditJobResponse:
    return ask(machine, job_pb2.AuditJobRequest(job="a"), job_pb2.AuditJobResponse)


@pytest.mark.parametrize("seed", sampled(range(200), 60))
def test_the_ledger_of_some_worlds_of_six_is_that_of_the_model(seed: int) -> None:
    dice = Random(seed)
    how = tuple(dice.choices(HOW, k=dice.randrange(4, MOST + 1)))
    check_outcomes(how, dice.choice(SETTINGS), dice.choice(DEADLINES))


@pytest.mark.parametrize("part", sampled(range(PARTS), 1))
def test_the_ledger_of_every_world_of_three_is_that_of_the_model(part: int) -> None:
    """Each world under two of the settings, so that each of these is met."""
    around = Random(7).sample(SETTINGS, len(SETTINGS))
    for place, how in islice(enumerate(worlds(3)), part, None, PARTS):
        for number in (2 * place, 2 * place + 1):
            check_outcomes(how, around[number % len(around)])


def some(worlds: Iterable[T]) -> Iterator[T]:
    """One of EACH; RAFTSCHED_ALL_WORLDS=1 plays all of them, in some minutes."""
    return islice(worlds, 0, None, 1 if "RAFTSCHED_ALL_WORLDS" in os.environ else EACH)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_the_ledger_of_every_world_of_two_is_that_of_the_model_under_all_settings() -> None:
    for how, setting, deadline_ms in some(product(worlds(2), SETTINGS, DEADLINES[:2])):
        check_outcomes(how, setting, deadline_ms)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_the_ledger_of_every_world_of_three_is_that_of_the_model_under_all_policies() -> None:
    """What stands beside the policies by turns, one with each of them."""
    beside = cycle(Random(11).sample(list(product(QUOTAS, DOWN, DEADLINES)), 12))
    for how, policy, grace_ms, overlap in some(product(worlds(3), POLICIES, GRACES, BUSY)):
        quota, down, deadline_ms = next(beside)
        check_outcomes(how, (policy, grace_ms, overlap, quota, down), deadline_ms)


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
