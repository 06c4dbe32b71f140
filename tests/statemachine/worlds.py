"""Every small world: a job at nine each day, to whose times something happened, an outage or a
pause in which they came due, and all that may stand in their way.

The tests play a part of them. `python -m tests.statemachine.worlds --all` plays each of them: every
world of three times under every setting through all of the rules, and the choice alone in every
world of six. It takes long, so its result stands in tests/DESIGN.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import lru_cache
from itertools import product

from google.protobuf.field_mask_pb2 import FieldMask

from raftsched.proto.v1 import (
    calendar_pb2,
    job_pb2,
    namespace_pb2,
    run_pb2,
    schedule_pb2,
    worker_pb2,
)
from raftsched.statemachine.calls import jobs
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.machine import apply, decide
from raftsched.statemachine.model.record import EditRecord
from raftsched.statemachine.model.request import Report
from raftsched.statemachine.model.view import View
from raftsched.statemachine.occurrences import misfire, next_time, timeline
from raftsched.statemachine.occurrences.timeline import Stretch
from raftsched.statemachine.schedule.plan import Grid, Plan, due, scheduled_times
from raftsched.statemachine.schedule.zones import LATEST_MS, find_zone

from .asking import ask
from .driver import DAY_MS, HOUR_MS, START_MS, Machine
from .missed_model import Time, fates

Edit = schedule_pb2.OccurrenceEdit
Misfire = job_pb2.MisfirePolicy
Overlap = job_pb2.OverlapPolicy
How = tuple[str, ...]
# What may have happened to a time of the schedule: nothing; a day off; skipped; moved to somewhat
# later, to now, to before all, to behind now; or there is one more, that was added behind it.
HOW = ("none", "off", "skip", "later", "now", "early", "ahead", "more")
POLICIES = (("SKIP", 0), ("LATEST", 0), ("EARLIEST", 0), ("ALL", 1), ("ALL", 2), ("ALL", 100))
LAST_MS = 18 * HOUR_MS  # From the last time of the schedule to the end of the outage.
# Which reach back over none of the times, over what was added behind the last one, over what was
# moved from it as well, over the last one, and over all.
GRACES = (0, 12 * HOUR_MS, 14 * HOUR_MS, 30 * HOUR_MS, 90 * DAY_MS)
DEADLINES = (0, 18 * HOUR_MS, 30 * HOUR_MS)
ROOMS = (None, 0, 1, 2)
# How many more runs each overlap policy lets begin, or holds back.
BUSY = {"ALLOW": None, "SKIP": 1, "SKIP, busy": 0, "QUEUE": 101, "QUEUE, short": 2,
        "QUEUE_ONE": 2, "QUEUE_ONE, busy": 1, "REPLACE": 1,
        "ALLOW, limited": 2, "ALLOW, limited, busy": 1}  # fmt: skip
LIMITS = {"QUEUE": 100, "QUEUE, short": 1, "ALLOW, limited": 2, "ALLOW, limited, busy": 2}
# Whether another job has used up the quota of runs; whether the job was paused, or nobody led.
QUOTAS, DOWN = ("", "quota"), ("outage", "pause")
Setting = tuple[tuple[str, int], int, str, str, str, int]
SETTINGS: list[Setting] = list(product(POLICIES, GRACES, BUSY, QUOTAS, DOWN, DEADLINES))
OUTCOMES = {"run": "RAN", "coalesce": "COALESCED", "miss": "MISSED",
            "expire": "SKIPPED_DEADLINE",
            "excluded": "SKIPPED_CALENDAR", "skipped": "SKIPPED_MANUALLY"}  # fmt: skip
FATES = {"excluded": "exclude", "skipped": "skip"}
EARLY_MS = START_MS + HOUR_MS
ROUNDS = 20  # In each of which all runs that are ready are taken and end well.


def scheduled(number: int) -> int:
    return START_MS + number * DAY_MS + 9 * HOUR_MS


def worlds(most: int) -> Iterator[How]:
    for size in range(1, most + 1):
        yield from product(HOW, repeat=size)


class QuickMachine(Machine):
    """Makes each decision once; that it depends on nothing else is for other tests to see."""

    def do_all(self, *bodies: object, actor: str = "") -> list[object]:
        view = View(self.store, self.now_ms, self._recall)
        decision = decide(view, self._requests(bodies, actor))
        if decision.change:
            self.index += 1
            apply(self.store, self.index, decision.change)
        self._recall.keep(view)
        if decision.failures:
            raise decision.failures[0].error
        return decision.replies

    def finish(self, leases: Iterable[worker_pb2.Lease]) -> None:
        """All of them end well."""
        good = worker_pb2.Success()
        found = (worker_pb2.Result(run=one.run, token=one.token, success=good) for one in leases)
        self.do(Report("w1", tuple(found)))


class World:
    """A job at nine each day, to some of whose times something happened; and the end of an outage
    in which they came due."""

    def __init__(self, how: How, max_runs: int = 0) -> None:
        self.how = how
        self.now_ms = scheduled(len(how) - 1) + LAST_MS
        self.machine = machine = QuickMachine(MemoryStore())
        dates = ["2025-12-31"]
        for number, what in enumerate(how):
            if what == "off":
                dates.append(f"2026-01-0{number + 1}")
        rules = [calendar_pb2.CalendarRule(date=date) for date in dates]
        calendar = calendar_pb2.Calendar(name="off", rules=rules)
        machine.do(calendar_pb2.CreateCalendarRequest(calendar=calendar))
        timing = schedule_pb2.Timing(exclude_calendars=["off"], max_runs=max_runs)
        overlap = Overlap(rule=Overlap.RULE_ALLOW)
        machine.create("a", cron="0 9 * * *", timing=timing, overlap=overlap)
        machine.create("b")
        for number, what in enumerate(how):
            self.edit(what, scheduled(number))
        machine.at(EARLY_MS)
        machine.fire()
        machine.finish(machine.grant())

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

    def copy(self) -> QuickMachine:
        """The same world once more."""
        known = self.machine
        other = QuickMachine(MemoryStore(known.store.items))  # type: ignore[attr-defined]  # In memory.
        other.now_ms, other.index = known.now_ms, known.index
        return other

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


@lru_cache(maxsize=4)
def known_world(how: How, max_runs: int = 0) -> World:
    """A world up to its outage, of which copies are played."""
    return World(how, max_runs)


# The timeline.


def listed(found: Iterable[Stretch], plan: Plan) -> Iterator[tuple[Stretch, int]]:
    """The times of stretches one by one."""
    for one in found:
        times = scheduled_times(plan, one.first + 1, one.last + 1, 100).times
        assert one.count == 1 + len(times), one
        yield from ((one, at_ms) for at_ms in (one.first, *times))


def check_timeline(how: How) -> None:
    """What a job has to decide on is what a reader of its orders would list."""
    world = known_world(how)
    machine = world.copy()
    machine.at(world.now_ms)
    view = machine.view()
    job = jobs.find(view, "", "a")
    plan = next_time.plan_of(view, job)
    found, _ = timeline.undecided(view, job, plan, view.now_ms - due(plan, 0))
    told = [
        Time(one.due_ms + at_ms - one.first, at_ms, one.kind.name.lower())
        for one, at_ms in listed(found, plan)
    ]
    assert sorted(told) == sorted(world.times()), how
    assert [one.due_ms for one in found] == sorted(one.due_ms for one in found), how


# The choice by itself: it knows of a time only whether it may run and when it is due.

KINDS = (timeline.OPEN, timeline.EXCLUDED, timeline.SKIPPED, "moved")
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
            found[-1] = replace(before, last=at_ms, count=before.count + 1)
        else:
            assert isinstance(kind, timeline.Kind)
            found.append(Stretch(at_ms, at_ms, 1, at_ms, kind))
    return sorted(found, key=lambda one: (one.due_ms, one.first))


def choices(size: int) -> Iterator[tuple[tuple[str, int], int, int | None, bool, bool, int]]:
    """All that a choice may depend on; the grace reaches back over any number of the times."""
    for policy, days, room in product(POLICIES, range(size + 1), ROOMS):
        grace_ms = LAST_MS + days * DAY_MS - DAY_MS // 2
        for is_full, is_behind, deadline_ms in product((False, True), (False, True), DEADLINES):
            yield policy, grace_ms, room, is_full, is_behind, deadline_ms


def check_choices(kinds: tuple[object, ...], each: int = 1, start: int = 0) -> int:
    """The choice is that of the model under all settings, or one of so many; how many those are."""
    now_ms = scheduled(len(kinds) - 1) + LAST_MS
    found = stretches(kinds, now_ms)
    times = [
        Time(one.due_ms + at_ms - one.first, at_ms, one.kind.name.lower())
        for one, at_ms in listed(found, PURE_PLAN)
    ]
    played = 0
    for number, setting in enumerate(choices(len(kinds))):
        if number % each != start % each:
            continue
        (rule, maximum), grace_ms, room, is_full, is_behind, deadline_ms = setting
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
        told = {at_ms: fate.value for one, fate in chosen for _, at_ms in listed([one], PURE_PLAN)}
        right = {at_ms: FATES.get(fate, fate) for at_ms, fate in wanted.items()}
        assert told == right, (kinds, setting)
        played += 1
    return played


# All of the rules, and the ledger.


def check_outcomes(how: How, setting: Setting, *, is_checked: bool = True) -> None:
    """What stands in the ledger is what the model says; and an audit finds nothing wrong."""
    (rule, maximum), grace_ms, overlap, quota, down, deadline_ms = setting
    world = known_world(how)
    machine = world.copy()
    machine.do(_policies(rule, maximum, grace_ms, overlap, deadline_ms))
    if overlap.endswith("busy"):
        machine.trigger("a")
    if quota:
        machine.trigger("b")
    running = machine.grant() if quota or overlap.endswith("busy") else []
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
    if running:
        machine.finish(running)
    work_off(machine)
    told = read_ledger(machine, model)
    lateness = {time.scheduled_ms: world.now_ms - time.due_ms for time in world.times()}
    case = f"{how}, {setting}"
    for at_ms, fate in model.items():
        right = OUTCOMES.get(fate, "LATE" if lateness[at_ms] > grace_ms else "RAN")
        if fate == "run" and (quota or room == 0):
            right = "SKIPPED_QUOTA" if quota else "SKIPPED_OVERLAP"
        assert told.get(at_ms) == right, f"{case}: {fate} of {at_ms} is {told.get(at_ms)}"
    if is_checked:
        machine.check()
    answer = audit(machine)
    assert not answer.wrong, f"{case}: {answer}"


def _policies(
    rule: str, maximum: int, grace_ms: int, overlap: str, deadline_ms: int
) -> job_pb2.UpdateJobRequest:
    request = job_pb2.UpdateJobRequest(job=job_pb2.Job(name="a"))
    spec = request.job.spec
    spec.misfire.rule, spec.misfire.maximum = Misfire.Rule.Value(f"RULE_{rule}"), maximum
    spec.misfire.grace.CopyFrom(duration(grace_ms))
    if deadline_ms:
        spec.misfire.start_deadline.CopyFrom(duration(deadline_ms))
    spec.overlap.rule = Overlap.Rule.Value(f"RULE_{overlap.split(',', maxsplit=1)[0]}")
    spec.overlap.limit = LIMITS.get(overlap, 0)
    request.update_mask.paths.extend(["spec.misfire", "spec.overlap"])
    return request


def work_off(machine: QuickMachine) -> None:
    """Workers take what is ready until nothing comes."""
    for _ in range(ROUNDS):
        fired = machine.fire()
        leases = machine.grant()
        if leases:
            machine.finish(leases)
        elif not fired:
            return
    raise AssertionError(f"after {ROUNDS} rounds there is still something to do")


def read_ledger(machine: Machine, times: Iterable[int]) -> dict[int, str]:
    """What became of some times."""
    told: dict[int, str] = {}
    for first_ms, entry in sorted(machine.ledger("a").items()):
        inside = (at for at in times if first_ms <= at <= max(first_ms, entry.last_at_ms))
        told |= dict.fromkeys(inside, run_pb2.Outcome.Name(entry.outcome)[8:])
    return told


def limit_runs(machine: Machine, runs: int) -> None:
    settings = namespace_pb2.Namespace(name="default", quota=namespace_pb2.Quota(live_runs=runs))
    mask = FieldMask(paths=["quota"])
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=settings, update_mask=mask))


def audit(machine: Machine) -> job_pb2.AuditJobResponse:
    return ask(machine, job_pb2.AuditJobRequest(job="a"), job_pb2.AuditJobResponse)


# A job that may run a number of times only.

MAX_RUNS = (1, 2, 3)


def check_places(how: How, max_runs: int, grace_ms: int) -> None:
    """Each time takes a place in its turn: what was moved to later keeps that which its own time
    had, and what was moved to before or added has one among those due then."""
    world = known_world(how, max_runs)
    machine = world.copy()
    machine.do(_policies("ALL", 100, grace_ms, "ALLOW", 0))
    times = [(min(time.due_ms, time.scheduled_ms), time.scheduled_ms) for time in world.times()]
    for number, what in enumerate(how):
        if what == "early":
            times.append((EARLY_MS, scheduled(number)))
        elif what == "ahead":
            times.append((scheduled(number), scheduled(number)))
    placed = {at_ms for _, at_ms in sorted(times)[:max_runs]}
    # What comes behind the worlds' days, if there is a place left, is not looked at.
    for at_ms in (world.now_ms, world.now_ms + HOUR_MS):
        machine.at(at_ms)
        work_off(machine)
    told = read_ledger(machine, [at_ms for _, at_ms in times])
    assert set(told) == placed, f"{how}, {max_runs}, {grace_ms}: {told}, not {placed}"
    machine.check()
    answer = audit(machine)
    assert not answer.wrong, f"{how}, {max_runs}, {grace_ms}: {answer}"


# Every world.


def _timelines(how: How) -> int:
    check_timeline(how)
    return 1


def _outcomes(how: How) -> int:
    for setting in SETTINGS:
        check_outcomes(how, setting)
    return len(SETTINGS)


def _places(how: How) -> int:
    for max_runs, grace_ms in product(MAX_RUNS, GRACES):
        check_places(how, max_runs, grace_ms)
    return len(MAX_RUNS) * len(GRACES)


def all_choices(most: int) -> Iterator[tuple[object, ...]]:
    for size in range(1, most + 1):
        yield from product(KINDS, repeat=size)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--all", action="store_true", help="play them, which takes long")
    parser.add_argument("--size", type=int, default=3, help="times of a world (3)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--only", choices=("timeline", "choice", "places", "ledger"))
    chosen = parser.parse_args(arguments)
    if not chosen.all:
        parser.print_help()
        return
    most = chosen.size
    parts: list[tuple[str, Callable[..., int], Iterator[tuple[object, ...]]]] = [
        ("timeline", _timelines, worlds(most + 1)),
        ("choice", check_choices, all_choices(MOST)),
        ("places", _places, worlds(most)),
        ("ledger", _outcomes, worlds(most)),
    ]
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for name, check, found in parts:
            if chosen.only in (None, name):
                begun, each = time.monotonic(), list(found)
                played = sum(pool.map(check, each, chunksize=4))
                took = time.monotonic() - begun
                print(f"{name}: {len(each)} worlds, {played} cases, {took:.0f} s", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
