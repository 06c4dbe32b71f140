"""What is behind its time keeps no place before what others have to do: all take turns."""

from __future__ import annotations

import random

import pytest

from raftsched.proto.v1 import job_pb2, namespace_pb2, run_pb2
from raftsched.statemachine.core.budget import Steps, unlimited
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.machine import read_meta
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import CatchUpRecord, encode, parse
from raftsched.statemachine.model.request import FireTimers, Offer

from .driver import HOUR_MS, MINUTE_MS, SECOND_MS, START_MS, Machine

Overlap = job_pb2.OverlapPolicy
ALLOW = Overlap(rule=Overlap.RULE_ALLOW)
CROWD = 20
TICK_MS = 20  # Of the clock, from one decision to the next.
BACKFILLED, LATE = "backfilled", "late"


def crowd(what: str, times: int) -> Machine:
    """Some jobs with so many times each to run; and one of another namespace, each second."""
    machine = Machine(MemoryStore())
    other = namespace_pb2.Namespace(name="other")
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=other))
    grace = job_pb2.MisfirePolicy(grace=duration(HOUR_MS))
    if what == BACKFILLED:
        machine.advance(times * MINUTE_MS)
    for number in range(CROWD):
        expression = "* * * * *" if what == BACKFILLED else "* * * * * *"
        machine.create(f"j{number}", cron=expression, overlap=ALLOW, misfire=grace)
    if what == LATE:
        machine.advance(times * SECOND_MS)
    else:
        for number in range(CROWD):
            machine.do(job_pb2.BackfillJobRequest(
                job=f"j{number}", from_time=timestamp(START_MS), runs_per_minute=60_000,
                to_time=timestamp(START_MS + times * MINUTE_MS),
            ))  # fmt: skip
    machine.create("a", every_ms=SECOND_MS, namespace="other", overlap=ALLOW)
    return machine


def waits(machine: Machine, seconds: int) -> int:
    """In how many decisions from the one after it is due on the other job has fired, at most."""
    longest = 0
    for _ in range(seconds):
        due_ms = machine.state("a", "other").next_due_at_ms
        decisions = 0
        while machine.state("a", "other").next_due_at_ms == due_ms:
            decisions += machine.now_ms >= due_ms
            machine.fire_once()
            machine.advance(TICK_MS)
            assert decisions < 1_000, "the other job does not fire"
        longest = max(longest, decisions)
    return longest


@pytest.mark.parametrize("what", [BACKFILLED, LATE])
@pytest.mark.parametrize("steps", [10, 150])
def test_a_backlog_does_not_stand_before_the_runs_of_others(what: str, steps: int) -> None:
    machine = crowd(what, 400)
    machine.new_budget = lambda: Steps(steps)

    # Backlogs have a line of their own.
    most = 1 if what == BACKFILLED else CROWD + 2
    assert waits(machine, 2) <= most

    assert all(len(machine.live(f"j{number}")) > 3 for number in range(CROWD))
    machine.check()


@pytest.mark.slow
def test_however_much_can_wait_what_is_due_is_not_behind_it() -> None:
    """Over a thousand jobs that are being deleted, of which each decision does one step."""
    machine = Machine(MemoryStore())
    machine.create("a", every_ms=SECOND_MS, overlap=ALLOW)
    for number in range(1_200):
        machine.create(f"j{number}")
        machine.do(job_pb2.TriggerJobRequest(job=f"j{number}"))
    for number in range(1_200):
        machine.do(job_pb2.DeleteJobRequest(job=f"j{number}"))
    machine.new_budget = lambda: Steps(1)
    machine.advance(SECOND_MS)

    for fired in range(1, 4):
        machine.fire_once()
        assert machine.state("a").fired == fired
        machine.advance(SECOND_MS)

    machine.new_budget = lambda: unlimited
    for _ in range(3):
        machine.fire_all()
        machine.advance(1)
    machine.check()
    assert len(list(machine.store.scan(keys.JOB, keys.after(keys.JOB)))) == 1


def as_before(machine: Machine, name: str) -> Machine:
    """The same state as it was written before there were two lines of timers."""
    jid, state = machine.jid(name), machine.state(name)
    record = parse(b"", machine.store.get(keys.catch_up(jid)) or b"", CatchUpRecord)
    meta = read_meta(machine.store)
    gone = [keys.catch_up(jid), keys.backlog_timer(record.timer_at_ms, jid)]
    gone.append(keys.job_timer(state.timer_at_ms, jid))
    state.timer_at_ms = keys.instant(record.timer_at_ms)
    timer = keys.job_timer(state.timer_at_ms, jid)
    meta.timers_from, meta.later_from = timer, b""
    machine.store.write(
        [(keys.state(jid), encode(state)), (timer, b""), (keys.META, encode(meta))],
        gone,
    )
    again = Machine(machine.store)
    again.index = machine.index
    again.at(machine.now_ms)
    return again


@pytest.mark.parametrize("rule", [Overlap.RULE_ALLOW, Overlap.RULE_QUEUE])
def test_a_backlog_of_before_goes_on_in_its_own_line(rule: Overlap.Rule.ValueType) -> None:
    """In a state that was written before, the timer of a job fires for its backlog, too."""
    machine = Machine(MemoryStore())
    machine.create("a", cron="0 * * * *", overlap=Overlap(rule=rule))
    machine.advance(4 * HOUR_MS)
    machine.fire()
    for lease in machine.grant():
        machine.succeed(lease)
    request = job_pb2.BackfillJobRequest(job="a", from_time=timestamp(START_MS + HOUR_MS))
    request.to_time.CopyFrom(timestamp(START_MS + 3 * HOUR_MS + 1))
    machine.do(request)
    machine = as_before(machine, "a")
    machine.check()

    for _ in range(6):
        machine.advance(MINUTE_MS)
        machine.fire()
        for lease in machine.grant():
            machine.succeed(lease)
        machine.check()
    assert not machine.state("a").backlog
    assert [run.cause for run in machine.ended("a")].count(run_pb2.CAUSE_BACKFILL) == 3


def test_no_group_of_workers_takes_all_the_time_of_a_grant() -> None:
    """However little that is: a few of each are leased before it is asked for."""
    machine = crowd(BACKFILLED, 400)
    machine.fire_all()
    machine.advance(10 * SECOND_MS)
    machine.fire()
    mine = len(machine.live("a", "other"))
    assert mine >= 10
    machine.new_budget = lambda: Steps(0)
    offers = Offer("w1", 1_000), Offer("w2", 1_000, ("other",))

    first, second = machine.offer(*offers)

    assert len(first) >= 10
    assert len(second) == mine


def test_what_falls_due_behind_many_does_not_wait_for_all_of_them() -> None:
    machine = Machine(MemoryStore())
    other = namespace_pb2.Namespace(name="other")
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=other))
    many = 600
    for number in range(many):
        machine.create(f"j{number}", once=START_MS + SECOND_MS)
    for number in range(1, 6):
        due_ms = START_MS + SECOND_MS + number * TICK_MS
        machine.create(f"a{number}", once=due_ms, namespace="other")
    machine.advance(SECOND_MS)
    machine.do(FireTimers(100))

    for number in range(1, 6):
        machine.advance(TICK_MS)
        machine.do(FireTimers(100))
        assert machine.live(f"a{number}", "other")

    machine.fire_all()
    machine.check()
    assert sum(bool(machine.live(f"j{number}")) for number in range(many)) == many


@pytest.mark.parametrize("steps", [1, 7, 1_000])
@pytest.mark.parametrize("seed", range(6))
def test_each_of_many_rings_whatever_falls_due_behind_it(steps: int, seed: int) -> None:
    chance = random.Random(seed)
    machine = Machine(MemoryStore())
    jobs = 120
    for number in range(jobs):
        machine.create(f"j{number}", once=START_MS + SECOND_MS + chance.randrange(400))
    machine.new_budget = lambda: Steps(steps)
    machine.advance(SECOND_MS)
    for _ in range(400 if steps == 1 else 60):
        machine.advance(chance.randrange(30))
        machine.do(FireTimers(chance.choice((5, 10, 40))))
    machine.new_budget = lambda: unlimited
    machine.fire_all()

    machine.check()
    assert sum(len(machine.live(f"j{number}")) for number in range(jobs)) == jobs, seed
