"""A job whose schedules are written anew in another form that names the same instants does what it
would have done: two jobs live through the same story, and one of them is written anew in each third
step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raftsched.proto.v1 import calendar_pb2, job_pb2, run_pb2, schedule_pb2
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.occurrences import next_time

from ..sampled import some
from .driver import HOUR_MS, MINUTE_MS, START_MS, Machine, with_mask
from .test_audit_stories import Misfire, Overlap, Story, audit

Schedule = schedule_pb2.Schedule
EVERY_MS = 10 * MINUTE_MS
FORMS = (
    ["*/10 * * * *"],
    ["*/20 * * * *", "10,30,50 * * * *"],
    [schedule_pb2.Interval(every=duration(EVERY_MS), anchor=timestamp(START_MS))],
)
# A job that had had all its runs let those that were moved run when it was written anew; or had
# the last of them as it was.
FOUND = (65, 83, 109, 388)
# Where it went on where it was, the audit missed all times since then.
FALSE_GAPS = (0, 11)
# A backfill ran times of a stretch that was missed under the schedules of before. Of such a stretch
# only the ends are known to be its times, so it goes on counting those inside, beside their own
# entries (`ledger.take_out`).
OVER_A_FORMER_STRETCH = (325,)


def schedules(number: int) -> list[Schedule]:
    return [
        Schedule(cron=schedule_pb2.Cron(expression=one))
        if isinstance(one, str)
        else Schedule(interval=one)
        for one in FORMS[number]
    ]


class TwinStory(Story):
    """One of two that differ in how the schedules are written."""

    def __init__(self, seed: int, *, is_rewritten: bool) -> None:
        self.begin(seed)
        dice, machine = self.dice, Machine(MemoryStore())
        self.machine, self.is_rewritten = machine, is_rewritten
        rules = [calendar_pb2.CalendarRule(date="2026-01-02")]
        off = calendar_pb2.Calendar(name="off", rules=rules)
        machine.do(calendar_pb2.CreateCalendarRequest(calendar=off))
        timing = schedule_pb2.Timing(
            max_runs=dice.choice((0, 0, 5, 20)), exclude_calendars=dice.choice(((), ("off",)))
        )
        timing.jitter.CopyFrom(duration(dice.choice((0, 0, 0, MINUTE_MS * 5))))
        misfire = Misfire(rule=dice.choice(Misfire.Rule.values()), maximum=dice.choice((1, 5, 100)))
        misfire.grace.CopyFrom(duration(dice.choice((0, MINUTE_MS, HOUR_MS))))
        machine.create(
            "a", cron="*/10 * * * *", timing=timing, misfire=misfire,
            overlap=Overlap(rule=dice.choice(Overlap.Rule.values()), limit=dice.choice((0, 3))),
        )  # fmt: skip

    def steps(self) -> Iterator[int]:
        for step in range(25):
            self.dice.choice((self.wait, self.wait, self.wait, self.work, self.edit, self.edit,
                              self.revert, self.backfill, self.pause, self.resume,
                              self.drop))()  # fmt: skip
            form = schedules(self.dice.randrange(len(FORMS)))
            if self.is_rewritten and step % 3 == 1:
                self.machine.do(with_mask("spec.schedules", name="a", schedules=form))
            self.machine.fire_all()
            yield step

    def seen(self) -> tuple[object, ...]:
        status = self.machine.job("a").status
        live = [
            (run.scheduled_time.ToMilliseconds(), run.state, run.held)
            for run in self.machine.live("a")
        ]
        return self.outcomes(), live, status.next_scheduled_time.seconds, status.state, status.fired

    def outcomes(self) -> dict[int, str]:
        """Stretches spelled out; what is left of one may begin between two times."""
        entries, found = self.machine.ledger("a"), dict[int, str]()
        for first_ms, entry in sorted(entries.items()):
            word = run_pb2.Outcome.Name(entry.outcome)
            if first_ms % EVERY_MS == 0 or not entry.last_at_ms:
                found[first_ms] = word
            behind_ms = first_ms - first_ms % EVERY_MS + EVERY_MS
            for at_ms in range(behind_ms, entry.last_at_ms + 1, EVERY_MS):
                if at_ms not in entries:
                    found[at_ms] = word
        return found


def look_at(seed: int) -> None:
    plain, written = (TwinStory(seed, is_rewritten=is_so) for is_so in (False, True))
    for one, other in zip(plain.steps(), written.steps(), strict=True):
        assert plain.seen() == written.seen(), f"seed {seed}, step {one}"
        assert one == other
    assert not audit(written.machine).wrong, f"seed {seed}: the audit"
    written.machine.check()


@pytest.mark.parametrize(
    "seed", [*FOUND, *FALSE_GAPS, *OVER_A_FORMER_STRETCH, *some(range(1, 60), 3)]
)
def test_a_job_that_is_written_in_another_form_does_the_same(seed: int) -> None:
    look_at(seed)


@pytest.mark.parametrize(
    ("seed", "why"),
    [*((seed, "step") for seed in FOUND), *((seed, "audit") for seed in FALSE_GAPS)],
)
def test_the_old_rule_is_seen(seed: int, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it had all its runs, a job that was written anew had passed by all up to then."""
    monkeypatch.setattr(next_time, "stands_at", lambda job: 0)
    with pytest.raises(AssertionError, match=why):
        look_at(seed)


def test_what_comes_under_other_schedules_is_to_be_decided_on(
    machine: Machine,
) -> None:
    """A job whose max_runs were lowered stands just before its next time, which lies ahead; other
    schedules may name one before that. Seen in a first mend: the audit missed it."""
    machine.create("a", cron="0 * * * *", overlap=Overlap(rule=Overlap.RULE_ALLOW))
    for _ in range(3):
        machine.advance(HOUR_MS)
        machine.fire_all()
    machine.do(with_mask("spec.timing.max_runs", name="a", timing=schedule_pb2.Timing(max_runs=2)))
    forms = [Schedule(cron=schedule_pb2.Cron(expression="*/10 * * * *"))]
    machine.do(with_mask("spec.schedules", name="a", schedules=forms))
    for _ in range(3):
        machine.advance(HOUR_MS)
        machine.fire_all()

    assert machine.job("a").status.fired == 3
    assert audit(machine).sound
    machine.check()


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_a_backfill_takes_its_times_out_of_what_was_missed(
    machine: Machine, is_rewritten: bool
) -> None:
    """Under the schedules of before only the ends of a stretch are known: what is left of it counts
    times that have run by now."""
    misfire = Misfire(rule=Misfire.RULE_SKIP)
    allow = Overlap(rule=Overlap.RULE_ALLOW)
    machine.create("a", cron="*/10 * * * *", misfire=misfire, overlap=allow)
    machine.advance(HOUR_MS + 5 * MINUTE_MS)
    machine.fire_all()
    if is_rewritten:
        machine.do(with_mask("spec.schedules", name="a", schedules=schedules(1)))
    machine.do(job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(START_MS + 1), to_time=timestamp(machine.now_ms),
        runs_per_minute=60_000,
    ))  # fmt: skip
    for _ in range(10):
        machine.advance(MINUTE_MS)
        machine.fire_all()

    entries = machine.ledger("a").values()
    left = sum(entry.count for entry in entries if entry.last_at_ms)

    assert sum(not entry.last_at_ms for entry in entries) == 6 + 1
    assert left == (4 if is_rewritten else 0)
    assert audit(machine).sound
    machine.check()
