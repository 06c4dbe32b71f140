"""The state's time is set back, and nothing is decided twice or wrong by it."""

from __future__ import annotations

import random

import pytest

from raftsched.proto.v1 import (
    cluster_pb2,
    job_pb2,
    namespace_pb2,
    queue_pb2,
    run_pb2,
    schedule_pb2,
)
from raftsched.statemachine.core.budget import Steps, unlimited
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.core.rejection import Rejection
from raftsched.statemachine.firing.set_time import consequences
from raftsched.statemachine.machine import Request, apply, decide, read_meta
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import StateRecord
from raftsched.statemachine.model.request import FireTimers, SetTime, TimeSet
from raftsched.statemachine.model.view import View
from raftsched.statemachine.occurrences import ledger
from raftsched.statemachine.occurrences.ledger import WITH_RUN
from raftsched.statemachine.reads.reads import read

from ..sampled import some
from .asking import ask
from .driver import HOUR_MS, MINUTE_MS, START_MS, Machine, job_of, with_mask
from .test_audit import audit

BODY = cluster_pb2.SetStateTimeRequest()
RETRY = job_pb2.RetryPolicy(max_attempts=3, first=duration(60_000))


def ahead(machine: Machine, ms: int = HOUR_MS) -> int:
    """The clocks are ahead, the state goes with them, and then they are right again."""
    right = machine.now_ms
    machine.advance(ms)
    machine.fire()
    machine.at(right)
    return read_meta(machine.store).now_ms


def set_back(machine: Machine) -> int:
    """In as many changes as it takes; how many."""
    from_ms = read_meta(machine.store).now_ms
    to_ms, after = machine.now_ms, b""
    for count in range(1, 100):
        after = machine.ask(SetTime(BODY, from_ms, to_ms, after), TimeSet).after
        if not after:
            return count
    raise AssertionError("it does not end")


def sound(machine: Machine) -> None:
    machine.check()


def test_a_backlog_and_a_deletion_go_on(machine: Machine) -> None:
    allow = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
    machine.advance(3 * HOUR_MS)
    for name in ("a", "gone"):
        machine.create(name, cron="0 0 1 1 *", overlap=allow)
    machine.do(
        with_mask(
            "spec.schedules", name="a", schedules=job_of("a", cron="* * * * *").spec.schedules
        )
    )
    for _ in range(30):
        machine.trigger("gone")
    right_ms = machine.now_ms
    machine.advance(HOUR_MS + MINUTE_MS // 2)
    machine.do(job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(START_MS), to_time=timestamp(START_MS + 2 * HOUR_MS),
        runs_per_minute=60_000,
    ))  # fmt: skip
    machine.do(job_pb2.DeleteJobRequest(job="gone"))
    machine.new_budget = lambda: Steps(1)
    for _ in range(4):
        machine.do(FireTimers(1_000))
    machine.at(right_ms)
    set_back(machine)
    sound(machine)

    machine.new_budget = lambda: unlimited
    machine.fire_all()
    machine.advance(2 * 120)
    machine.fire_all()

    assert machine.job("a").status.backlog == 0
    assert not [
        key
        for key, _ in machine.store.scan(keys.RUN, keys.after(keys.RUN))
        if keys.run_of(key)[0] != machine.jid("a")
    ]
    sound(machine)


def test_a_job_that_is_made_afterwards_fires_in_time(machine: Machine) -> None:
    machine.create("often", cron="* * * * *")
    from_ms = ahead(machine)
    assert from_ms == START_MS + HOUR_MS
    found = consequences(machine.store, from_ms, machine.now_ms)
    assert (found.jobs, found.scheduled_times) == (1, len(machine.ledger("often")))
    set_back(machine)
    assert read_meta(machine.store).now_ms == START_MS
    machine.create("new", cron="* * * * *")
    machine.advance(MINUTE_MS)
    machine.fire()
    assert [run.scheduled_time.ToMilliseconds() for run in machine.live("new")] == [
        START_MS + MINUTE_MS
    ]
    sound(machine)


def test_a_clock_that_is_not_ahead_is_not_set(machine: Machine) -> None:
    machine.create("a", cron="* * * * *")
    machine.refused(SetTime(BODY, machine.now_ms, machine.now_ms))


def test_only_this_change_may_go_back(machine: Machine) -> None:
    machine.create("a", cron="* * * * *")
    machine.advance(HOUR_MS)
    view = View(machine.store, machine.now_ms)
    decision = decide(view, [Request(FireTimers(1))])
    ahead(machine, 2 * HOUR_MS)
    view = View(machine.store, machine.now_ms)
    view.set_back(START_MS)
    decision = decide(view, [Request(job_pb2.PauseJobRequest(job="a"))])
    with pytest.raises(AssertionError, match="backwards"):
        apply(machine.store, machine.index + 1, decision.change)


def test_what_was_planned_by_the_wrong_time_moves_back(machine: Machine) -> None:
    timeouts = job_pb2.Timeouts(attempt=duration(5 * MINUTE_MS))
    machine.create("leased", timeouts=timeouts)
    machine.create("failed", retry=RETRY)
    machine.create("old", timeouts=job_pb2.Timeouts(attempt=duration(24 * HOUR_MS)))
    machine.create("later")
    machine.trigger("old")
    [before] = machine.grant("w0")
    later = machine.trigger("later", due_time={"seconds": (START_MS + 3 * HOUR_MS) // 1000})
    right = machine.now_ms
    machine.advance(HOUR_MS)
    leased, failed = machine.trigger("leased"), machine.trigger("failed")
    taken = {lease.run: lease for lease in machine.grant("w1")}
    machine.fail(taken[failed.id])
    machine.at(right)
    old = machine.record(before.run)
    kept = (old.deadline_at_ms, old.leased_at_ms)

    set_back(machine)

    one = machine.record(leased.id)
    assert one.deadline_at_ms == right + 5 * MINUTE_MS
    again = machine.record(failed.id)
    assert right < again.retry_at_ms <= right + 2 * MINUTE_MS
    old = machine.record(before.run)
    assert (old.deadline_at_ms, old.leased_at_ms) == kept
    assert machine.record(later.id).due_at_ms == START_MS + 3 * HOUR_MS
    sound(machine)
    machine.advance(5 * MINUTE_MS)
    machine.fire()
    assert machine.run(leased.id).state != run_pb2.RUN_STATE_RUNNING
    sound(machine)


def test_it_takes_as_many_changes_as_it_needs(machine: Machine) -> None:
    allow = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
    timeouts = job_pb2.Timeouts(attempt=duration(MINUTE_MS))
    machine.create("a", timeouts=timeouts, overlap=allow)
    right = machine.now_ms
    machine.advance(HOUR_MS)
    for _ in range(1_200):
        machine.trigger("a")
    taken = machine.grant("w1") + machine.grant("w2")
    machine.at(right)
    assert len(taken) == 1_200
    assert set_back(machine) >= 3
    ends = {machine.record(lease.run).deadline_at_ms for lease in taken}
    assert ends == {right + MINUTE_MS}
    sound(machine)


def test_a_queue_with_a_rate_goes_on_at_once(machine: Machine) -> None:
    machine.create("a", overlap=job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW))
    queue = queue_pb2.Queue(name="default", rate=10)
    machine.do(queue_pb2.UpdateQueueRequest(queue=queue))
    right = machine.now_ms
    machine.advance(HOUR_MS)
    for _ in range(30):
        machine.trigger("a")
    assert len(machine.grant("w1")) == 10
    machine.at(right)
    set_back(machine)
    machine.advance(1_000)
    assert len(machine.grant("w1")) == 10


@pytest.mark.parametrize("seed", some(range(40), 10))
def test_no_scheduled_time_fires_twice(machine: Machine, seed: int) -> None:
    """Whatever is done to jobs after the time was set back: no time has two runs. Seeds fixed."""
    chance = random.Random(seed)
    crons = ["* * * * *", "*/7 * * * *", "*/15 * * * *"]
    allow = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
    misfires = [job_pb2.MisfirePolicy.RULE_LATEST, job_pb2.MisfirePolicy.RULE_ALL]
    for number in range(4):
        misfire = job_pb2.MisfirePolicy(rule=chance.choice(misfires))
        machine.create(f"j{number}", cron=chance.choice(crons), overlap=allow, misfire=misfire)
    seen: dict[tuple[str, int | str], str] = {}
    for _ in range(6):
        for _ in range(chance.randrange(6)):
            machine.advance(chance.randrange(20) * MINUTE_MS)
            act(machine, chance, crons)
            note(machine, seen)
        if chance.random() < 0.7:
            ahead(machine, chance.randrange(1, 120) * MINUTE_MS)
            note(machine, seen)
            if chance.random() < 0.7 and read_meta(machine.store).now_ms > machine.now_ms + 1_000:
                set_back(machine)
        sound(machine)
    machine.advance(3 * HOUR_MS)
    machine.fire()
    note(machine, seen)
    for number in range(4):
        answer = audit(machine, f"j{number}")
        assert not answer.wrong, (seed, answer)


def act(machine: Machine, chance: random.Random, crons: list[str]) -> None:
    name = f"j{chance.randrange(4)}"
    kind = chance.randrange(5)
    if kind == 0:
        machine.do(job_pb2.PauseJobRequest(job=name))
    elif kind == 1:
        machine.do(job_pb2.ResumeJobRequest(job=name))
    elif kind == 2:
        job = machine.job(name)
        job.spec.schedules[0].cron.expression = chance.choice(crons)
        machine.do(job_pb2.UpdateJobRequest(job=job))
    elif kind == 3:
        job = machine.job(name)
        job.spec.timing.jitter.FromMilliseconds(chance.randrange(1, 30_000))
        machine.do(job_pb2.UpdateJobRequest(job=job))
    machine.fire()


def note(machine: Machine, seen: dict[tuple[str, int | str], str]) -> None:
    """Every scheduled time has one run at most; one that has an entry of its own keeps it."""
    for number in range(4):
        name = f"j{number}"
        for at_ms, entry in machine.ledger(name).items():
            if entry.outcome in WITH_RUN:
                said = f"{entry.outcome}"
                assert seen.setdefault((name, at_ms), said) == said, (name, at_ms)
        for lease in machine.grant("w1"):
            assert ("run", lease.run) not in seen, lease.run
            seen["run", lease.run] = ""
            machine.succeed(lease)


def test_an_audit_without_a_range_is_answered_while_schedules_begin_later(
    machine: Machine,
) -> None:
    machine.create("often", cron="* * * * *")
    ahead(machine)
    set_back(machine)
    job = machine.job("often")
    job.spec.schedules[0].cron.expression = "*/7 * * * *"
    machine.do(job_pb2.UpdateJobRequest(job=job))

    assert not audit(machine, "often").wrong

    late = timestamp(machine.now_ms + 2 * HOUR_MS)
    answer = read(machine.view(), job_pb2.AuditJobRequest(job="often", from_time=late))
    assert isinstance(answer, Rejection)
    assert [fault.field for fault in answer.faults] == ["from_time"]


DAY_MS = 24 * HOUR_MS


@pytest.mark.parametrize("how", ["resume", "pause and resume", "update"])
def test_a_job_that_decided_ahead_says_so_and_is_brought_back(machine: Machine, how: str) -> None:
    machine.create("often", cron="* * * * *")
    ahead(machine, DAY_MS)
    set_back(machine)
    request = job_pb2.ExplainJobRequest(job="often")
    said = ask(machine, request, run_pb2.Explanation).summary
    assert "stands still until 2026-01-02" in said
    assert "'raftsched job resume often' brings it back" in said

    if how == "update":
        job = machine.job("often")
        job.spec.schedules[0].cron.expression = "*/2 * * * *"
        machine.do(job_pb2.UpdateJobRequest(job=job))
    elif how == "pause and resume":
        machine.do(job_pb2.PauseJobRequest(job="often"))
    machine.do(job_pb2.ResumeJobRequest(job="often"))
    [before] = machine.grant("w1")
    machine.succeed(before)
    machine.advance(2 * MINUTE_MS)
    machine.fire()

    assert len(machine.live("often")) == 1
    assert "stands still" not in ask(machine, request, run_pb2.Explanation).summary
    assert not audit(machine, "often").wrong
    sound(machine)
    machine.advance(DAY_MS)
    machine.fire()
    assert not audit(machine, "often").wrong
    sound(machine)


@pytest.mark.parametrize("how", ["resume", "update"])
def test_what_waited_is_not_missed(machine: Machine, how: str) -> None:
    """What waits ahead for its turn has no outcome yet, so it is decided on again."""
    slow = namespace_pb2.Namespace(name="default", backlog_rate=1)
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=slow))
    allow = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
    # Nothing is in time, so the latest waits for its turn.
    misfire = job_pb2.MisfirePolicy(grace=duration(0))
    for name in ("a", "b", "c", "d", "often"):
        machine.create(name, cron="* * * * *", overlap=allow, misfire=misfire)
    ahead(machine, HOUR_MS + MINUTE_MS // 2)
    set_back(machine)
    assert machine.job("often").status.backlog

    if how == "update":
        job = machine.job("often")
        job.spec.schedules[0].cron.expression = "*/2 * * * *"
        machine.do(job_pb2.UpdateJobRequest(job=job))
    machine.do(job_pb2.ResumeJobRequest(job="often"))

    for _ in range(80):
        machine.advance(MINUTE_MS)
        machine.fire_all()
    answer = audit(machine, "often")
    assert not answer.wrong
    assert {outcome.outcome for outcome in answer.outcomes} <= WITH_RUN


@pytest.mark.parametrize("why", ["purged", "long"])
def test_a_job_that_cannot_be_brought_back_is_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    machine.create("often", cron="* * * * *")
    ahead(machine, DAY_MS)
    set_back(machine)
    if why == "purged":
        view = machine.view()
        state = view.edit(keys.state(machine.jid("often")), StateRecord)
        state.ledger_purged_ms = machine.now_ms + 1
        machine.index += 1
        apply(machine.store, machine.index, view.seal())
        words = "was purged from its ledger"
    else:
        monkeypatch.setattr(ledger, "AHEAD", -1)
        words = "entries of its ledger lie ahead"

    refusal = machine.refused(job_pb2.ResumeJobRequest(job="often"))

    assert refusal.word == "LIMIT_EXCEEDED"
    assert words in refusal.message
    assert "delete it and create it anew" in refusal.message
    request = job_pb2.ExplainJobRequest(job="often")
    assert words in ask(machine, request, run_pb2.Explanation).summary


@pytest.mark.parametrize("under_way", [False, True])
def test_a_job_that_goes_on_from_ends_is_brought_back(machine: Machine, under_way: bool) -> None:
    schedule = schedule_pb2.Schedule(after_end=schedule_pb2.AfterEnd(delay=duration(MINUTE_MS)))
    machine.create("rests", schedules=[schedule])
    right_ms = machine.now_ms
    machine.advance(DAY_MS)
    assert rest(machine) >= 4
    if under_way:
        [lease] = machine.grant("w1")
    machine.at(right_ms)
    set_back(machine)
    if under_way:
        machine.succeed(lease)
    else:
        machine.do(job_pb2.ResumeJobRequest(job="rests"))
    assert rest(machine) >= 4
    sound(machine)


def rest(machine: Machine) -> int:
    """How many runs of six minutes succeed; what was fired last is not taken yet."""
    runs = 0
    for _ in range(6):
        for lease in machine.grant("w1"):
            runs += 1
            machine.succeed(lease)
        machine.advance(MINUTE_MS)
        machine.fire()
    return runs
