"""A dead letter that is requeued stands under the rules that a trigger stands under."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import dead_letter_pb2, job_pb2, run_pb2
from raftsched.statemachine.model.phases import HALTED, HELD

from .asking import ask
from .driver import HOUR_MS, MINUTE_MS, Machine

Unique = run_pb2.UniqueKey
Requeue = dead_letter_pb2.RequeueDeadLetterRequest
ONCE = job_pb2.RetryPolicy(max_attempts=1)
KEY = Unique(key="order-7", policy=Unique.POLICY_REJECT)


def dead(machine: Machine) -> str:
    run = machine.trigger("a", unique=KEY).id
    machine.fail(machine.grant()[0])
    return run


def test_a_requeued_run_takes_its_business_key_again(machine: Machine) -> None:
    machine.create("a", retry=ONCE)
    run = dead(machine)
    machine.do(Requeue(run=run))
    machine.check()

    refusal = machine.refused(job_pb2.TriggerJobRequest(job="a", unique=KEY))
    assert (refusal.word, refusal.values["run"]) == ("UNIQUE_KEY_TAKEN", run)
    machine.succeed(machine.grant()[0])
    machine.trigger("a", unique=KEY)
    machine.check()


def test_a_requeue_is_refused_while_another_run_has_the_key(machine: Machine) -> None:
    machine.create("a", retry=ONCE)
    run = dead(machine)
    other = machine.trigger("a", unique=KEY).id

    refusal = machine.refused(Requeue(run=run))
    assert (refusal.word, refusal.values["run"]) == ("UNIQUE_KEY_TAKEN", other)
    assert [lease.run for lease in machine.grant()] == [other]
    machine.check()


def test_of_many_those_whose_key_is_taken_are_left_out(machine: Machine) -> None:
    machine.create("a", retry=ONCE)
    first = dead(machine)
    machine.advance(1000)
    second = dead(machine)
    machine.trigger("a")
    machine.fail(machine.grant()[0])

    answer = machine.ask(
        dead_letter_pb2.RequeueDeadLettersRequest(), dead_letter_pb2.RequeueDeadLettersResponse
    )
    assert (answer.requeued, answer.more) == (2, False)
    assert machine.run(first).state == run_pb2.RUN_STATE_FAILED
    assert machine.run(second).state == run_pb2.RUN_STATE_PENDING
    machine.check()


def test_a_key_that_is_replaced_has_one_run_at_every_instant(machine: Machine) -> None:
    machine.create("a")
    unique = Unique(key="k", policy=Unique.POLICY_REPLACE)
    first = machine.trigger("a", unique=unique).id
    machine.grant()
    second = machine.trigger("a", unique=unique).id

    assert machine.run(first).state == run_pb2.RUN_STATE_CANCELLED
    assert [lease.run for lease in machine.grant()] == [second]
    machine.check()


def hourly(machine: Machine, rule: int) -> str:
    """A job whose first run failed, and whose second is under way."""
    overlap = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.Rule.ValueType(rule))
    machine.create("a", cron="0 * * * *", retry=ONCE, overlap=overlap)
    machine.advance(HOUR_MS)
    machine.fire()
    [first] = machine.grant()
    machine.fail(first)
    return first.run


BESIDE = [
    job_pb2.OverlapPolicy.RULE_SKIP,
    job_pb2.OverlapPolicy.RULE_QUEUE_ONE,
    job_pb2.OverlapPolicy.RULE_QUEUE,
    job_pb2.OverlapPolicy.RULE_REPLACE,
]


@pytest.mark.parametrize("rule", BESIDE)
def test_a_requeued_run_waits_for_those_under_way(machine: Machine, rule: int) -> None:
    first = hourly(machine, rule)
    machine.advance(HOUR_MS)
    machine.fire()
    [second] = machine.grant()
    machine.do(Requeue(run=first))
    machine.check()

    assert machine.record(first).phase == HELD
    assert machine.grant() == []
    machine.succeed(second)
    assert [lease.run for lease in machine.grant()] == [first]
    machine.check()


@pytest.mark.parametrize("rule", BESIDE)
def test_a_requeued_run_that_waits_gives_way_to_none(machine: Machine, rule: int) -> None:
    first = hourly(machine, rule)
    machine.advance(HOUR_MS)
    machine.fire()
    machine.grant()
    machine.do(Requeue(run=first))
    machine.advance(HOUR_MS)
    machine.fire_all()
    ran = []
    for _ in range(6):
        machine.advance(5 * MINUTE_MS)
        machine.fire_all()
        for run in machine.live("a"):
            if run.state == run_pb2.RUN_STATE_RUNNING:
                record = machine.record(run.id)
                machine.succeed(machine.taken(run.id, record.token))
        ran += [lease.run for lease in machine.grant()]
        machine.check()

    assert first in ran
    audit = ask(machine, job_pb2.AuditJobRequest(job="a"), job_pb2.AuditJobResponse)
    assert audit.sound


def test_a_requeued_run_waits_for_the_resume_of_its_job(machine: Machine) -> None:
    first = hourly(machine, job_pb2.OverlapPolicy.RULE_SKIP)
    machine.do(job_pb2.PauseJobRequest(job="a"))
    machine.do(Requeue(run=first))

    assert machine.record(first).phase == HALTED
    assert machine.grant() == []
    machine.advance(MINUTE_MS)
    machine.do(job_pb2.ResumeJobRequest(job="a"))
    machine.fire_all()
    assert [lease.run for lease in machine.grant()] == [first]
    machine.check()


def test_a_step_that_was_requeued_in_a_pause_runs_however_long_that_lasts(machine: Machine) -> None:
    machine.create("root")
    misfire = job_pb2.MisfirePolicy(rule=job_pb2.MisfirePolicy.RULE_SKIP)
    machine.create("a", after=["root"], retry=ONCE, misfire=misfire)
    machine.trigger("root")
    machine.succeed(machine.grant()[0])
    machine.fire_all()
    [step] = machine.grant()
    machine.fail(step)
    machine.do(job_pb2.PauseJobRequest(job="a"))
    machine.do(Requeue(run=step.run))
    machine.advance(4 * HOUR_MS)
    machine.do(job_pb2.ResumeJobRequest(job="a"))
    machine.fire_all()

    assert [lease.run for lease in machine.grant()] == [step.run]
    machine.check()
