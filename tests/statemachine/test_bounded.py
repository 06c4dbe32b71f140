"""A decision does a bounded piece of work, however large the state: the rest comes in the next
ones, and comes to the same."""

from __future__ import annotations

from random import Random

import pytest

from raftsched.proto.v1 import (
    common_pb2,
    dead_letter_pb2,
    job_pb2,
    namespace_pb2,
    run_pb2,
    schedule_pb2,
    worker_pb2,
)
from raftsched.statemachine.calls import jobs
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.budget import Steps
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import LedgerRecord
from raftsched.statemachine.model.request import FireTimers
from raftsched.statemachine.occurrences import ledger, next_time
from raftsched.statemachine.schedule.plan import Grid, scheduled_times

from ..sampled import some
from .driver import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, START_MS, Machine, job_of, with_mask

Overlap = job_pb2.OverlapPolicy
Misfire = job_pb2.MisfirePolicy
Edit = schedule_pb2.OccurrenceEdit
ALLOW = Overlap(rule=Overlap.RULE_ALLOW)
REPLACE = Overlap(rule=Overlap.RULE_REPLACE)
LARGE = common_pb2.Payload(data=b"x" * 60_000)
MANY = 120
# A full change and the record that filled it.
MOST = limits.CHANGE_BYTES + 150_000
NAMES = ("a", "b", "c")
STORIES = 30


def largest(machine: Machine) -> int:
    return max(map(len, machine.log))


def full_of_runs(overlap: Overlap) -> Machine:
    """A job whose policy came when many runs of it were there already; its next time is due."""
    machine = Machine(MemoryStore())
    machine.create("a", cron="0 * * * *", overlap=ALLOW)
    for _ in range(MANY):
        machine.trigger("a", payload=LARGE)
    machine.do(with_mask("spec.overlap", name="a", overlap=overlap))
    machine.at(START_MS + HOUR_MS)
    machine.log.clear()
    return machine


def test_a_run_that_replaces_many_waits_until_they_have_gone() -> None:
    machine = full_of_runs(REPLACE)

    machine.do(FireTimers(1_000))

    [new] = [run for run in machine.live("a") if run.cause == run_pb2.CAUSE_SCHEDULE]
    assert new.held
    assert 1 < len(machine.live("a")) < MANY
    machine.check()
    machine.fire_all()
    [new] = machine.live("a")
    assert (new.cause, new.held) == (run_pb2.CAUSE_SCHEDULE, False)
    assert machine.state("a").held == 0
    assert largest(machine) < MOST
    machine.check()


def test_nothing_is_leased_in_the_place_of_a_run_that_waits_for_room() -> None:
    machine = full_of_runs(REPLACE)
    machine.new_budget = lambda: Steps(1)
    machine.do(FireTimers(1_000))

    machine.new_budget = lambda: Steps(1_000_000)
    machine.fire_all()
    [lease] = machine.grant("w1", MANY)

    assert lease.run == machine.live("a")[0].id
    assert keys.run_key(lease.run) == (machine.jid("a"), machine.now_ms << 16)


def test_a_newer_run_takes_the_place_of_one_that_waits_for_room() -> None:
    machine = full_of_runs(REPLACE)
    machine.do(FireTimers(1_000))

    newer = machine.trigger("a")
    machine.fire_all()

    [left] = machine.live("a")
    assert (left.id, left.held) == (newer.id, False)
    machine.check()


def test_a_run_that_was_forced_while_room_was_made_stays() -> None:
    machine = full_of_runs(REPLACE)
    machine.do(FireTimers(1_000))

    forced = machine.trigger("a", force=True)
    machine.fire_all()

    assert forced.id in [run.id for run in machine.live("a")]
    machine.check()


def test_many_held_runs_give_way_to_the_newest_in_steps() -> None:
    machine = Machine(MemoryStore())
    queue = Overlap(rule=Overlap.RULE_QUEUE, limit=10_000)
    machine.create("a", cron="* * * * *", overlap=queue)
    for _ in range(MANY):
        machine.advance(MINUTE_MS)
        machine.fire_all()
    machine.do(with_mask("spec.overlap", name="a", overlap=Overlap(rule=Overlap.RULE_QUEUE_ONE)))
    machine.advance(MINUTE_MS)
    machine.new_budget = lambda: Steps(10)
    machine.log.clear()

    machine.fire_all()

    assert [run.held for run in machine.live("a")] == [False, True]
    assert machine.live("a")[1].cause == run_pb2.CAUSE_SCHEDULE
    assert largest(machine) < MOST
    machine.check()


def test_a_job_that_makes_room_can_be_deleted() -> None:
    machine = full_of_runs(REPLACE)
    machine.do(FireTimers(1_000))

    machine.do(job_pb2.DeleteJobRequest(job="a"))
    for _ in range(10):
        machine.fire_all()
        machine.advance(1)

    machine.check()
    assert machine.refused(job_pb2.DeleteJobRequest(job="a")).word == "JOB_NOT_FOUND"


def test_missed_times_are_counted_and_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(MemoryStore())
    every = Misfire(rule=Misfire.RULE_ALL, maximum=10_000)
    machine.create("a", every_ms=SECOND_MS, misfire=every, overlap=ALLOW)
    machine.advance(3 * HOUR_MS)
    asked: list[int] = []
    last_before = Grid.last_before

    def counted(grid: Grid, before_ms: int) -> int | None:
        asked.append(before_ms)
        return last_before(grid, before_ms)

    monkeypatch.setattr(Grid, "last_before", counted)
    machine.do(FireTimers(1_000))

    # Those that are late by less than the grace are among them.
    assert machine.state("a").backlog[0].left + machine.state("a").fired == 10_800
    assert len(asked) < 20


def test_schedules_change_only_when_little_of_the_old_ones_is_due() -> None:
    """All that is due and in time runs, however little a decision may do."""
    machine = Machine(MemoryStore())
    grace = Misfire(grace=duration(HOUR_MS))
    machine.create("a", every_ms=SECOND_MS, misfire=grace, overlap=ALLOW)
    machine.advance(150 * SECOND_MS)
    machine.new_budget = lambda: Steps(1)
    hourly = job_of("a", cron="0 * * * *").spec.schedules
    change = with_mask("spec.schedules", name="a", schedules=hourly)

    assert machine.refused(change).word == "BACKLOG_FULL"
    for _ in range(60):
        machine.do(FireTimers(1))
    machine.do(change)

    assert machine.job("a").status.fired == 150
    assert {entry.outcome for entry in machine.ledger("a").values()} == {run_pb2.OUTCOME_RAN}


def test_a_filter_looks_at_a_bounded_number_of_dead_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "LETTERS_LOOKED_AT", 10)
    machine = Machine(MemoryStore())
    queue_ms = job_pb2.Timeouts(queue=duration(SECOND_MS))
    for name, count in (("early", 1), ("often", 12), ("late", 1)):
        machine.create(name, cron="0 0 1 1 *", overlap=ALLOW, timeouts=queue_ms)
        for _ in range(count):
            machine.trigger(name)
        machine.advance(2 * SECOND_MS)
        machine.fire_all()
    purge = dead_letter_pb2.PurgeDeadLettersRequest
    kind = dead_letter_pb2.PurgeDeadLettersResponse

    assert machine.ask(purge(filter="job=late"), kind) == kind(purged=1, more=True)
    assert machine.refused(purge(filter="job=early")).word == "LIMIT_EXCEEDED"
    assert machine.ask(purge(filter="job=often"), kind) == kind(purged=10, more=True)
    assert machine.ask(purge(filter="job=early"), kind) == kind(purged=1, more=False)


class Story:
    """Some hours of some jobs; what happens depends on the seed alone."""

    def __init__(self, seed: int, steps: int) -> None:
        self.machine = Machine(MemoryStore())
        if steps:
            self.machine.new_budget = lambda: Steps(steps)
        self.random = Random(seed)
        self.leases: list[worker_pb2.Lease] = []
        for name in NAMES:
            self.create(name)
        for _ in range(40):
            self.random.choice(
                (self.wait, self.wait, self.wait, self.work, self.work, self.trigger,
                 self.backfill, self.edit, self.pause, self.resume, self.update, self.drop)
            )()  # fmt: skip
            self.machine.fire_all()
        self.machine.advance(DAY_MS)
        self.machine.fire_all()
        self.machine.check()

    def name(self) -> str:
        return self.random.choice(NAMES)

    def create(self, name: str) -> None:
        dice = self.random
        # Under the others it matters in which order what is due comes, and steps may change that.
        rules = (Overlap.RULE_ALLOW, Overlap.RULE_QUEUE, Overlap.RULE_QUEUE_ONE)
        misfire = Misfire(rule=dice.choice(Misfire.Rule.values()), maximum=dice.choice((1, 9, 50)))
        misfire.grace.CopyFrom(duration(dice.choice((0, MINUTE_MS, 10 * MINUTE_MS))))
        self.machine.create(
            name, cron=dice.choice(("* * * * *", "*/7 * * * *", ["*/5 * * * *", "*/3 * * * *"])),
            overlap=Overlap(rule=dice.choice(rules), limit=0),
            misfire=misfire, retry=job_pb2.RetryPolicy(max_attempts=1),
            timing=schedule_pb2.Timing(max_runs=dice.choice((0, 0, 40))),
        )  # fmt: skip

    def wait(self) -> None:
        self.machine.advance(
            self.random.choice((20 * SECOND_MS, MINUTE_MS, 8 * MINUTE_MS, 3 * HOUR_MS))
        )

    def work(self) -> None:
        """Workers take what is ready and end it."""
        while more := self.machine.grant("w1", 100):
            self.leases += more
        for lease in sorted(self.leases, key=lambda lease: lease.run):
            self.machine.succeed(lease)
            self.machine.fire_all()
        self.leases = []

    def trigger(self) -> None:
        name = self.name()
        for _ in range(self.random.choice((1, 9))):
            self.machine.do_all(job_pb2.TriggerJobRequest(job=name))
            self.machine.fire_all()

    def backfill(self) -> None:
        now_ms = self.machine.now_ms
        begin = now_ms - self.random.choice((1, 3)) * HOUR_MS
        end = begin + self.random.choice((10, 60)) * MINUTE_MS
        self.machine.do_all(job_pb2.BackfillJobRequest(
            job=self.name(), from_time=timestamp(begin), to_time=timestamp(end),
            runs_per_minute=60_000,
        ))  # fmt: skip

    def edit(self) -> None:
        minute = self.machine.now_ms // MINUTE_MS + self.random.randrange(1, 30)
        kind = self.random.choice((Edit.KIND_SKIP, Edit.KIND_MOVE, Edit.KIND_ADD))
        moved = self.machine.now_ms + self.random.choice((1, 50)) * MINUTE_MS + 500
        wanted = Edit(scheduled_time=timestamp(minute * MINUTE_MS), kind=kind)
        if kind == Edit.KIND_MOVE:
            wanted.moved_to.CopyFrom(timestamp(moved))
        self.machine.do_all(job_pb2.EditOccurrenceRequest(job=self.name(), edit=wanted))

    def pause(self) -> None:
        self.machine.do_all(job_pb2.PauseJobRequest(job=self.name()))

    def resume(self) -> None:
        self.machine.do_all(job_pb2.ResumeJobRequest(job=self.name()))

    def update(self) -> None:
        rule = self.random.choice((Overlap.RULE_ALLOW, Overlap.RULE_QUEUE, Overlap.RULE_QUEUE_ONE))
        self.machine.do(with_mask("spec.overlap", name=self.name(), overlap=Overlap(rule=rule)))

    def drop(self) -> None:
        self.machine.do_all(job_pb2.DropBacklogRequest(job=self.name()))

    def outcome(self) -> dict[str, object]:
        """What became of everything, less what says in which change it did."""
        found: dict[str, object] = {}
        for name in NAMES:
            for at_ms, entry in self.machine.ledger(name).items():
                found[f"{name} {at_ms}"] = LedgerRecord(
                    outcome=entry.outcome, last_at_ms=entry.last_at_ms, count=entry.count,
                    added=entry.added,
                )  # fmt: skip
            state = self.machine.state(name)
            found[name] = (state.state, state.fired, state.succeeded, state.skipped, state.live,
                           state.held, state.next_scheduled_at_ms)  # fmt: skip
            for run in (*self.machine.live(name), *self.machine.ended(name)):
                found[run.id] = (run.state, run.outcome, run.held, run.error.kind)
        return found


@pytest.mark.parametrize("seed", some(range(STORIES), 10))
def test_however_little_a_decision_may_do_it_comes_to_the_same(seed: int) -> None:
    wanted = Story(seed, 0).outcome()
    for steps in (1, 2, 5):
        found = Story(seed, steps).outcome()
        differing = {
            key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key)
        }
        shown = [(key, wanted.get(key), found.get(key)) for key in sorted(differing)[:5]]
        assert not differing, f"seed {seed}, {steps} steps: {shown}"


@pytest.mark.parametrize("seed", some(range(STORIES), 10))
def test_what_may_be_backfilled_is_what_each_time_alone_says(seed: int) -> None:
    """Also where ledger and history have forgotten some of it, each in its own time."""
    story = Story(seed, 0)
    machine, dice = story.machine, Random(seed)
    kept = namespace_pb2.Namespace(
        name="default", keep_ledger=duration(dice.choice((2, 9)) * HOUR_MS),
        keep_succeeded=duration(dice.choice((1, 48)) * HOUR_MS),
    )  # fmt: skip
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=kept))
    for _ in range(6):
        story.backfill()
        story.wait()
        machine.fire_all()
        story.work()
    for name in NAMES:
        view = machine.view()
        job = jobs.find(view, "", name)
        plan = next_time.plan_of(view, job)
        first = machine.now_ms - dice.choice((1, 24, 60)) * HOUR_MS
        times = scheduled_times(plan, first, machine.now_ms, 10_000, ever=True).times

        found = ledger.backfillable(view, job, times)

        alone = [at for at in times if ledger.may_backfill(view, job, at)]
        assert found == alone, f"seed {seed}, {name}"
