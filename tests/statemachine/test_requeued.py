"""A dead letter that is requeued stands under the rules that a trigger stands under."""

from __future__ import annotations

from raftsched.proto.v1 import dead_letter_pb2, job_pb2, run_pb2

from .driver import Machine

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
