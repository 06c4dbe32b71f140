"""The life of a run: every move of the table has a story, and nothing else moves one."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import pytest

from raftsched.proto.v1 import dead_letter_pb2, job_pb2, run_pb2
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.machine import read_meta
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.entities import Run, job_with, run_with
from raftsched.statemachine.model.phases import (
    ASIDE,
    CANCELLED,
    DELAYED,
    ENDS,
    FAILED,
    HALTED,
    HELD,
    LATER,
    LEASED,
    MOVES,
    NEW,
    PARKED,
    READY,
    SKIPPED,
    SUCCEEDED,
    TABLE,
    name,
)
from raftsched.statemachine.model.record import JobRecord, RunRecord, StateRecord, parse
from raftsched.statemachine.model.request import SetAside
from raftsched.statemachine.model.view import View
from raftsched.statemachine.runs.move import NoSuchMove, end, lease, move

from ..rows import each
from ..sampled import some
from .driver import HOUR_MS, MINUTE_MS, Machine, with_mask
from .old_runs import as_format_1

Spec = Mapping[str, Any]
NOTHING: Spec = MappingProxyType({})
Rule = job_pb2.OverlapPolicy
QUEUE = job_pb2.OverlapPolicy(rule=Rule.RULE_QUEUE, limit=5)
ALLOW = job_pb2.OverlapPolicy(rule=Rule.RULE_ALLOW)
ONE = job_pb2.ConcurrencyLimit(job=1)
SLOW = job_pb2.RetryPolicy(
    max_attempts=3, first=duration(4 * HOUR_MS), cap=duration(4 * HOUR_MS), jitter_percent=0
)
PAIRS = [(was, to) for was, moves in MOVES.items() for to in moves]
OTHERS = [(was, to) for was in MOVES for to in TABLE if to not in MOVES[was]]


def phases_in(machine: Machine) -> dict[tuple[int, int], int]:
    """Where each run stands."""
    found = {}
    for table, place in ((keys.RUN, keys.run_of), (keys.ENDED, keys.ended_of)):
        for key, value in machine.store.scan(table, keys.after(table)):
            found[place(key)] = parse(key, value, RunRecord).phase
    return found


def of(machine: Machine, run_id: str) -> int:
    place = keys.run_key(run_id)
    assert place is not None
    return phases_in(machine)[place]


# Stories that bring a run to a phase, and the run.


def later(machine: Machine, spec: Spec = NOTHING) -> str:
    machine.create("a", overlap=QUEUE, **spec)
    due = timestamp(machine.now_ms + 10 * MINUTE_MS)
    return machine.trigger("a", due_time=due).id


def held(machine: Machine, spec: Spec = NOTHING) -> str:
    machine.create("a", overlap=QUEUE, **spec)
    machine.trigger("a")
    return machine.trigger("a").id


def halted(machine: Machine, spec: Spec = NOTHING) -> str:
    machine.create("up")
    machine.create("a", after=["up"], **spec)
    machine.do(job_pb2.PauseJobRequest(job="a"))
    machine.trigger("up")
    [taken] = machine.grant()
    machine.succeed(taken)
    [run] = machine.live("a")
    return run.id


def ready(machine: Machine, spec: Spec = NOTHING) -> str:
    machine.create("a", **{"overlap": ALLOW, **spec})
    return machine.trigger("a").id


def parked(machine: Machine, spec: Spec = NOTHING) -> str:
    ready(machine, {"concurrency": ONE, **spec})
    second = machine.trigger("a").id
    machine.grant()
    return second


def aside(machine: Machine, spec: Spec = NOTHING) -> str:
    run = ready(machine, spec)
    machine.do(SetAside(machine.jid("a"), "planted"))
    machine.grant()
    return run


def leased(machine: Machine, spec: Spec = NOTHING) -> str:
    run = ready(machine, {"retry": SLOW, **spec})
    machine.grant()
    return run


def delayed(machine: Machine, spec: Spec = NOTHING) -> str:
    run = ready(machine, {"retry": SLOW, **spec})
    [taken] = machine.grant()
    machine.fail(taken)
    return run


def failed(machine: Machine, spec: Spec = NOTHING) -> str:
    run = ready(machine, {"retry": job_pb2.RetryPolicy(max_attempts=1), **spec})
    [taken] = machine.grant()
    machine.fail(taken)
    return run


TO: dict[int, Callable[..., str]] = {
    LATER: later, HELD: held, HALTED: halted, READY: ready, PARKED: parked, ASIDE: aside,
    LEASED: leased, DELAYED: delayed, FAILED: failed,
}  # fmt: skip


# What brings it on from there.


def is_over(machine: Machine, run: str) -> None:
    machine.advance(3 * HOUR_MS)
    machine.fire_all()


def is_due(machine: Machine, run: str) -> None:
    machine.advance(10 * MINUTE_MS)
    machine.fire()


def is_due_beside(machine: Machine, run: str) -> None:
    machine.trigger("a")
    is_due(machine, run)


def is_due_in_pause(machine: Machine, run: str) -> None:
    machine.do(job_pb2.PauseJobRequest(job="a"))
    is_due(machine, run)


def is_resumed(machine: Machine, run: str) -> None:
    """An earlier step still runs, so there is no room beside it."""
    machine.do(job_pb2.ResumeJobRequest(job="a"))
    machine.trigger("a", force=True)
    machine.fire_all()


def the_first_ends(machine: Machine, run: str) -> None:
    [first] = [other.id for other in machine.live("a") if other.id != run]
    terminated(machine, first)


def terminated(machine: Machine, run: str) -> None:
    machine.do(run_pb2.TerminateRunRequest(run=run))


def granted(machine: Machine, run: str) -> None:
    machine.grant()


def granted_beside(machine: Machine, run: str) -> None:
    machine.grant("w1", 1)
    machine.trigger("a")
    machine.grant()


def set_aside(machine: Machine, run: str) -> None:
    machine.do(SetAside(machine.jid("a"), "planted"))
    machine.grant()


def repaired(machine: Machine, run: str) -> None:
    machine.do(job_pb2.RepairJobRequest(job="a"))
    machine.fire_all()


def requeued(machine: Machine, run: str) -> None:
    machine.do(dead_letter_pb2.RequeueDeadLetterRequest(run=run))


def requeued_beside(machine: Machine, run: str) -> None:
    overlap = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_SKIP)
    machine.do(with_mask("spec.overlap", name="a", overlap=overlap))
    machine.trigger("a")
    requeued(machine, run)


def requeued_in_pause(machine: Machine, run: str) -> None:
    machine.do(job_pb2.PauseJobRequest(job="a"))
    requeued(machine, run)


def retried(machine: Machine, run: str) -> None:
    machine.do(run_pb2.RetryRunRequest(run=run))


def reported(how: str) -> Callable[[Machine, str], None]:
    def report(machine: Machine, run: str) -> None:
        record = machine.record(run)
        taken = machine.taken(run, record.token)
        if how == "success":
            machine.succeed(taken)
        elif how == "back":
            machine.release(taken)
        else:
            machine.fail(taken, fatal=how == "fatal")

    return report


LIMITED: dict[str, Any] = {"misfire": job_pb2.MisfirePolicy(start_deadline=duration(HOUR_MS))}
TIMED: dict[str, Any] = {"timeouts": job_pb2.Timeouts(run=duration(2 * HOUR_MS))}
Story = Callable[[Machine, str], None]
STORIES: dict[tuple[int, int], Story] = {
    (LATER, HELD): is_due_beside,
    (LATER, HALTED): is_due_in_pause,
    (LATER, READY): is_due,
    (HELD, READY): the_first_ends,
    (HALTED, HELD): is_resumed,
    (READY, LEASED): granted,
    (READY, ASIDE): set_aside,
    (PARKED, READY): the_first_ends,
    (ASIDE, READY): repaired,
    (LEASED, READY): reported("back"),
    (LEASED, DELAYED): reported("failure"),
    (LEASED, SUCCEEDED): reported("success"),
    (LEASED, FAILED): reported("fatal"),
    (DELAYED, READY): retried,
    (FAILED, HELD): requeued_beside,
    (FAILED, HALTED): requeued_in_pause,
    (FAILED, READY): requeued,
}


def story_of(was: int, to: int) -> tuple[dict[str, Any], Story]:
    """What the job must say for it, and what happens."""
    if to == CANCELLED:
        return {}, terminated
    if to == SKIPPED:
        return dict(LIMITED), is_over
    if to == FAILED and was != LEASED:
        return dict(TIMED), is_over
    return {}, STORIES[was, to]


class Watched(Machine):
    """Notes how runs moved from change to change."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.moves: list[tuple[int, int]] = []

    def do_all(self, *bodies: object, actor: str = "") -> list[object]:
        before = phases_in(self)
        replies = super().do_all(*bodies, actor=actor)
        after = phases_in(self)
        self.moves += [
            (before.get(place, NEW), to) for place, to in after.items() if before.get(place) != to
        ]
        return replies


@each(("was", "to"), PAIRS, ids=lambda at: name(at))
def test_every_move_of_the_table_has_a_story(was: int, to: int) -> None:
    machine = Watched()
    if was == NEW or (was, to) == (READY, PARKED):
        # On its way to where it stands, the run makes this move.
        TO[to](machine)
    else:
        spec, story = story_of(was, to)
        run = TO[was](machine, spec)
        assert of(machine, run) == was
        machine.check()
        story(machine, run)

    assert (was, to) in machine.moves
    machine.check()


def test_a_requeued_run_gets_what_a_new_one_has() -> None:
    machine = Watched()
    run = failed(machine)
    requeued(machine, run)

    [taken] = machine.grant()

    assert (taken.run, taken.attempt) == (run, 2)
    machine.check()


@each(("was", "to"), OTHERS, ids=lambda at: name(at))
def test_a_move_that_is_not_in_the_table_is_refused_before_anything_is_written(
    was: int, to: int
) -> None:
    view = View(MemoryStore(), 1)
    run = run_in(was)

    def go() -> None:
        if to in ENDS:
            end(view, run, run.record, to)
        else:
            move(view, run, to)

    with pytest.raises(NoSuchMove, match=f"cannot go from {name(was)} to {name(to)}"):
        go()

    assert run.record == RunRecord(phase=was)
    assert (run.job.state, view.writes) == (StateRecord(), 0)


def run_in(phase: int) -> Run:
    return run_with(job_with(1, JobRecord(), StateRecord()), 2, RunRecord(phase=phase))


@pytest.mark.parametrize("was", [was for was in MOVES if was != READY], ids=name)
def test_only_a_ready_run_is_leased(was: int) -> None:
    with pytest.raises(NoSuchMove, match=f"cannot go from {name(was)} to LEASED"):
        lease(None, run_in(was), "w", None)  # type: ignore[arg-type]


def test_each_phase_is_in_both_tables_and_can_be_reached() -> None:
    assert set(MOVES) == set(TABLE)
    assert {to for moves in MOVES.values() for to in moves} == set(TABLE) - {NEW}
    assert all(MOVES[at] for at in TABLE if at not in ENDS)


# Nothing else writes where a run stands.

SOURCES = Path(__file__).parent.parent.parent / "statemachine"
OF_RUNS = {"phase", "rank_ms", "parking", "retry_at_ms", "uncounted"}
COUNTERS = {"live", "held", "later", "parked", "running"}
# The mover; and the record, which reads what a format of before said.
MAY_WRITE = {"runs/move.py", "model/record.py", "runs/lanes.py"}


def writes(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            for part in ast.walk(target):
                match part:
                    case ast.Attribute(value=ast.Name(id=owner), attr=field):
                        if field in OF_RUNS or (owner in {"state", "usage"} and field in COUNTERS):
                            yield target.lineno, f"{owner}.{field}"


def test_only_the_mover_writes_where_a_run_stands() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{line}: {what}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path.relative_to(SOURCES).as_posix() not in MAY_WRITE
        for line, what in writes(ast.parse(path.read_text()))
    ]

    assert found == []
    assert list(writes(ast.parse("run.phase = 1\nstate.held -= 1\nrun.a, run.parking = 1, 2")))


# What each run holds is what its phase says, whatever happens.


class Wanderer:
    """Does anything to a few jobs."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.machine = Watched()
        create = self.machine.create
        create("queue", overlap=QUEUE, cron="*/5 * * * *", **LIMITED)
        create("slot", overlap=ALLOW, concurrency=ONE, retry=SLOW)
        for job in ("key-1", "key-2"):
            limit = job_pb2.ConcurrencyLimit(key="k", key_limit=1)
            create(job, overlap=ALLOW, concurrency=limit, **TIMED)
        create("replace", overlap=Rule(rule=Rule.RULE_REPLACE), cron="*/7 * * * *")
        create("step", after=["queue"], overlap=Rule(rule=Rule.RULE_QUEUE_ONE))
        self.jobs = ("queue", "slot", "key-1", "key-2", "replace", "step")
        self.leases: list[tuple[str, int]] = []

    def act(self) -> None:
        machine, dice = self.machine, self.dice
        job, live = dice.choice(self.jobs), self.live()
        match dice.randrange(12):
            case 0 | 1:
                machine.advance(dice.choice((1, MINUTE_MS, 6 * MINUTE_MS, HOUR_MS)))
                machine.fire_all()
            case 2 | 3:
                due = timestamp(machine.now_ms + dice.choice((0, 0, 10 * MINUTE_MS)))
                force = dice.random() < 0.2
                machine.do_all(job_pb2.TriggerJobRequest(job=job, due_time=due, force=force))
            case 4 | 5:
                machine.grant(dice.choice(("w1", "w2")), dice.randrange(1, 4))
            case 6 | 7:
                taken = [run for run in live if run.state == run_pb2.RUN_STATE_RUNNING]
                if taken:
                    run = dice.choice(taken)
                    end = dice.choice(("success", "back", "failure", "fatal"))
                    reported(end)(machine, run.id)
            case 8:
                machine.lapse(dice.choice(("w1", "w2")))
            case 9:
                if live:
                    machine.do(run_pb2.CancelRunRequest(run=dice.choice(live).id))
            case 10:
                change = dice.choice((job_pb2.PauseJobRequest, job_pb2.ResumeJobRequest))
                machine.do_all(change(job=job))
            case 11:
                broken = SetAside(machine.jid(job), "planted")
                machine.do_all(dice.choice((broken, job_pb2.RepairJobRequest(job=job))))

    def live(self) -> list[run_pb2.Run]:
        return [run for job in self.jobs for run in self.machine.live(job)]


@pytest.mark.parametrize("seed", some(range(20), 5))
def test_what_each_run_holds_is_what_its_phase_says(seed: int) -> None:
    wanderer = Wanderer(seed)

    for step in range(120):
        wanderer.act()
        try:
            wanderer.machine.check()
        except AssertionError as wrong:
            raise AssertionError(f"seed {seed}, step {step}: {wrong}") from wrong


# Runs of format 1.


def test_a_run_of_format_1_is_read_as_what_it_was() -> None:
    for at, bring in TO.items():
        machine = Watched()
        run_id = bring(machine)
        place = keys.run_key(run_id)
        assert place is not None
        run = machine.record(run_id)

        again = parse(b"", as_format_1(run), RunRecord)

        assert (again, again.phase) == (run, at), name(at)


def test_a_state_with_runs_of_format_1_goes_on(machine: Machine) -> None:
    """It was written by the version of before: two runs of each job are under way."""
    text = (Path(__file__).parent / "states" / "runs_of_format_1.txt").read_text()
    lines = [line.partition(" ") for line in text.splitlines()]
    machine.store.write([(bytes.fromhex(key), bytes.fromhex(value)) for key, _, value in lines], [])
    machine.index = read_meta(machine.store).applied_index
    machine.check()
    found = {
        job: sorted(name(of(machine, run.id)) for run in machine.live(job))
        for job in ("later", "held", "slot", "key", "tries", "ready")
    }
    machine.advance(HOUR_MS)
    machine.fire_all()
    machine.lapse("w1")
    done = 0
    while leases := machine.grant():
        for taken in leases:
            machine.succeed(taken)
            done += 1

    assert found == {
        "later": ["LATER"], "held": ["HELD", "LEASED"], "slot": ["LEASED", "PARKED"],
        "key": ["LEASED", "PARKED"], "tries": ["DELAYED", "DELAYED"], "ready": ["READY"],
    }  # fmt: skip
    assert done == 10
    assert set(phases_in(machine).values()) == {SUCCEEDED, FAILED}
    assert (machine.state("held").held, machine.state("later").later) == (0, 0)
