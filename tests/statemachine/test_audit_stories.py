"""An audit finds nothing wrong with what the rules did, whatever somebody changed by hand, ran
again or limited meanwhile; and it finds each outcome that is taken away in the end.

`python -m tests.statemachine.test_audit_stories FIRST END` plays other stories of both kinds.
"""

from __future__ import annotations

import sys
from random import Random

import pytest

from raftsched.proto.v1 import (
    calendar_pb2,
    dead_letter_pb2,
    job_pb2,
    namespace_pb2,
    run_pb2,
    schedule_pb2,
    worker_pb2,
)
from raftsched.statemachine.calls import jobs
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model import keys
from raftsched.statemachine.occurrences import next_time
from raftsched.statemachine.schedule.plan import names

from .asking import ask
from .driver import DAY_MS, HOUR_MS, MINUTE_MS, Machine, job_of, with_mask

Edit = schedule_pb2.OccurrenceEdit
Misfire = job_pb2.MisfirePolicy
Overlap = job_pb2.OverlapPolicy
CRONS = ("*/10 * * * *", "*/30 * * * *", ["*/20 * * * *", "*/30 * * * *"], "0 * * * *")
STORIES = 60
MANY = 2_000


def audit(machine: Machine) -> job_pb2.AuditJobResponse:
    return ask(machine, job_pb2.AuditJobRequest(job="a"), job_pb2.AuditJobResponse)


class Story:
    """Some days of a job; what happens depends on the seed alone."""

    def __init__(self, seed: int) -> None:
        self.begin(seed)
        dice = self.dice
        self.machine = machine = Machine(MemoryStore())
        rules = [calendar_pb2.CalendarRule(date="2026-01-02")]
        off = calendar_pb2.Calendar(name="off", rules=rules)
        machine.do(calendar_pb2.CreateCalendarRequest(calendar=off))
        timing = schedule_pb2.Timing(
            max_runs=dice.choice((0, 5, 20)), exclude_calendars=dice.choice(((), ("off",)))
        )
        misfire = Misfire(rule=dice.choice(Misfire.Rule.values()), maximum=dice.choice((1, 5, 100)))
        misfire.grace.CopyFrom(duration(dice.choice((0, MINUTE_MS, HOUR_MS))))
        machine.create(
            "a", cron=dice.choice(CRONS), timing=timing, misfire=misfire,
            overlap=Overlap(rule=dice.choice(Overlap.Rule.values()), limit=dice.choice((0, 3))),
        )  # fmt: skip
        for step in range(25):
            dice.choice((self.wait, self.wait, self.wait, self.work, self.edit, self.edit,
                         self.revert, self.backfill, self.pause, self.resume, self.drop,
                         self.update))()  # fmt: skip
            machine.fire_all()
            found = audit(machine)
            assert not found.wrong, f"seed {seed}, step {step}: {found}"

    def begin(self, seed: int) -> None:
        self.seed, self.dice = seed, Random(seed)

    def end(self) -> int:
        """Its end is sound; and without one of the outcomes it is not. How many were tried."""
        self.machine.check()
        return self.take_one_away()

    def take_one_away(self) -> int:
        machine, view = self.machine, self.machine.view()
        since_ms = audit(machine).comparable_since.ToMilliseconds()
        job = jobs.find(view, "", "a")
        plan = next_time.plan_of(view, job)
        mine = [
            at_ms
            for at_ms, entry in machine.ledger("a").items()
            if since_ms < at_ms <= next_time.decided(job.state)
            and not (entry.added or entry.last_at_ms)
            and names(plan, at_ms)
            and all(edit.scheduled_at_ms != at_ms for edit in job.state.edits)
            and all(not part.next_at_ms <= at_ms < part.to_ms for part in job.state.backlog)
        ]
        if not mine:
            return 0
        at_ms = self.dice.choice(sorted(mine))
        machine.store.write([], [keys.ledger(job.jid, at_ms)])
        machine.forget()
        found = audit(machine)
        assert found.wrong, f"seed {self.seed}: the outcome of {at_ms} is gone, and none misses it"
        return 1

    def wait(self) -> None:
        self.machine.advance(
            self.dice.choice((5 * MINUTE_MS, HOUR_MS, 7 * HOUR_MS, DAY_MS)) + self.dice.randrange(9)
        )

    def work(self) -> None:
        for lease in self.machine.grant("w1", self.dice.choice((1, 100))):
            self.machine.succeed(lease)

    def edit(self) -> None:
        kind = self.dice.choice((Edit.KIND_SKIP, Edit.KIND_MOVE, Edit.KIND_ADD))
        at_ms = (
            (self.machine.now_ms // (10 * MINUTE_MS) + self.dice.randrange(1, 40)) * 10 * MINUTE_MS
        )
        wanted = Edit(kind=kind, scheduled_time=timestamp(at_ms))
        if kind == Edit.KIND_MOVE:
            moved_ms = self.machine.now_ms + self.dice.choice((1, 30, 600, 2_000)) * MINUTE_MS
            wanted.moved_to.CopyFrom(timestamp(moved_ms))
        self.machine.do_all(job_pb2.EditOccurrenceRequest(job="a", edit=wanted))

    def revert(self) -> None:
        edits = self.machine.job("a").status.edits
        if edits:
            scheduled = self.dice.choice(list(edits)).scheduled_time
            self.machine.do(job_pb2.RevertOccurrenceRequest(job="a", scheduled_time=scheduled))

    def backfill(self) -> None:
        first_ms = self.machine.now_ms - self.dice.choice((3, 30)) * HOUR_MS
        end_ms = min(self.machine.now_ms, first_ms + self.dice.choice((1, 8)) * HOUR_MS)
        self.machine.do_all(job_pb2.BackfillJobRequest(
            job="a", from_time=timestamp(first_ms), to_time=timestamp(end_ms),
            runs_per_minute=self.dice.choice((1, 60_000)),
        ))  # fmt: skip

    def pause(self) -> None:
        self.machine.do(job_pb2.PauseJobRequest(job="a"))

    def resume(self) -> None:
        self.machine.do(job_pb2.ResumeJobRequest(job="a"))

    def drop(self) -> None:
        self.machine.do(job_pb2.DropBacklogRequest(job="a"))

    def update(self) -> None:
        what = self.dice.choice(("timing", "schedules"))
        if what == "timing":
            timing = schedule_pb2.Timing(max_runs=self.dice.choice((0, 10, 30)))
            self.machine.do_all(with_mask("spec.timing.max_runs", name="a", timing=timing))
        else:
            schedules = job_of("a", cron=self.dice.choice(CRONS)).spec.schedules
            self.machine.do_all(with_mask("spec.schedules", name="a", schedules=schedules))


class LongStory(Story):
    """One in which more happens: quotas, runs that stay, triggers, failures, other policies."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = Random(seed)
        self.machine = machine = Machine(MemoryStore())
        self.seed = seed
        for name in ("off", "other"):
            self.calendar(name)
        quota = namespace_pb2.Quota(live_runs=dice.choice((0, 0, 1, 3)))
        self.namespace = namespace_pb2.Namespace(name="default", quota=quota)
        machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=self.namespace))
        timing = schedule_pb2.Timing(
            max_runs=dice.choice((0, 0, 5, 20)),
            exclude_calendars=dice.choice(((), ("off",), ("off", "other"))),
        )
        timing.jitter.CopyFrom(duration(dice.choice((0, 0, 5 * MINUTE_MS))))
        machine.create(
            "a", cron=dice.choice(CRONS), timing=timing, misfire=self.misfire(),
            overlap=self.overlap(), retry=job_pb2.RetryPolicy(max_attempts=1),
        )  # fmt: skip
        machine.create("b")
        self.leases: list[worker_pb2.Lease] = []
        actions = (
            self.wait, self.wait, self.wait, self.wait, self.take, self.take, self.finish,
            self.finish, self.edit, self.revert, self.backfill, self.pause, self.resume, self.drop,
            self.update, self.trigger, self.trigger, self.requeue, self.policies, self.days,
            self.beside, self.limit,
        )  # fmt: skip
        rare = (self.policies, self.days, self.limit, self.update)
        self.machine.limits_may_be_exceeded = True
        self.unjudged = 0
        for step in range(40):
            action = dice.choice(actions)
            if action in rare and dice.random() < 0.7:
                action = self.wait
            action()
            machine.fire_all()
            if step % 5 == 4:
                self.check(step)

    def check(self, step: int) -> None:
        found = audit(self.machine)
        assert not found.wrong, f"seed {self.seed}, step {step}: {found}"
        assert found.requested == found.requested_ended + found.requested_under_way
        self.unjudged = found.unjudged

    def misfire(self) -> Misfire:
        dice = self.dice
        misfire = Misfire(rule=dice.choice(Misfire.Rule.values()), maximum=dice.choice((1, 5, 100)))
        misfire.grace.CopyFrom(duration(dice.choice((0, MINUTE_MS, HOUR_MS))))
        if dice.random() < 0.2:
            misfire.start_deadline.CopyFrom(duration(8 * HOUR_MS))
        return misfire

    def overlap(self) -> Overlap:
        return Overlap(
            rule=self.dice.choice(Overlap.Rule.values()), limit=self.dice.choice((0, 1, 3))
        )

    def calendar(self, name: str) -> None:
        days = (2, 3, 4, 5, 6)
        date = f"2026-01-0{self.dice.choice(days)}"
        off = calendar_pb2.Calendar(name=name, rules=[calendar_pb2.CalendarRule(date=date)])
        self.machine.do(calendar_pb2.CreateCalendarRequest(calendar=off))

    def take(self) -> None:
        self.leases += self.machine.grant("w1", self.dice.choice((1, 3, 100)))

    def finish(self) -> None:
        self.dice.shuffle(self.leases)
        for _ in range(self.dice.choice((1, 2, 100))):
            if self.leases:
                lease = self.leases.pop()
                end = self.machine.fail if self.dice.random() < 0.3 else self.machine.succeed
                end(lease)

    def trigger(self) -> None:
        request = job_pb2.TriggerJobRequest(job=self.dice.choice("ab"))
        if self.dice.random() < 0.4:
            due_ms = self.machine.now_ms + self.dice.choice((1, 200, 3_000)) * MINUTE_MS
            request.due_time.CopyFrom(timestamp(due_ms))
        request.force = self.dice.random() < 0.2
        self.machine.do_all(request)

    def beside(self) -> None:
        """Another job uses up the quota."""
        self.machine.do_all(*(job_pb2.TriggerJobRequest(job="b") for _ in range(3)))

    def requeue(self) -> None:
        for run in self.machine.ended("a"):
            if run.state == run_pb2.RUN_STATE_FAILED:
                self.machine.do(dead_letter_pb2.RequeueDeadLetterRequest(run=run.id))
                return

    def policies(self) -> None:
        what = self.dice.choice(("misfire", "overlap"))
        fields = {what: getattr(self, what)()}
        self.machine.do_all(with_mask(f"spec.{what}", name="a", **fields))

    def days(self) -> None:
        rules = [calendar_pb2.CalendarRule(date=f"2026-01-0{self.dice.randrange(2, 9)}")]
        off = calendar_pb2.Calendar(name="off", rules=rules)
        self.machine.do_all(calendar_pb2.UpdateCalendarRequest(calendar=off))

    def limit(self) -> None:
        self.namespace.quota.live_runs = self.dice.choice((0, 1, 3))
        self.machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=self.namespace))


@pytest.mark.parametrize("seed", range(STORIES))
def test_an_audit_finds_nothing_wrong_in_a_long_story(seed: int) -> None:
    LongStory(seed).end()


@pytest.mark.parametrize(
    "seed", [*range(STORIES), 278, 303, 773, 1349, 2108, 3940, 4151, 5977, 5989, 8311, 9368]
)
def test_an_audit_finds_nothing_wrong_in_a_story(seed: int) -> None:
    Story(seed).end()


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("kind", [Story, LongStory])
def test_an_audit_finds_nothing_wrong_in_many_stories(kind: type[Story]) -> None:
    for seed in range(STORIES, MANY):
        kind(seed).end()


def main(arguments: list[str]) -> None:
    first, end = map(int, arguments)
    tried = 0
    for seed in range(first, end):
        tried += Story(seed).end() + LongStory(seed).end()
    print(f"{end - first} stories of both kinds are sound, {tried} outcomes were missed")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
