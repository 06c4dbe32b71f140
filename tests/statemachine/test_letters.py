"""All dead letters that fit a filter: looked for in as many decisions as it takes."""

from __future__ import annotations

from itertools import groupby
from random import Random

import pytest

from raftsched.proto.v1 import dead_letter_pb2, job_pb2, run_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.budget import Steps, unlimited
from raftsched.statemachine.core.instants import duration
from raftsched.statemachine.core.rejection import Rejection
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model.request import Letters

from .driver import SECOND_MS, Machine, image

Purge = dead_letter_pb2.PurgeDeadLettersRequest
Purged = dead_letter_pb2.PurgeDeadLettersResponse
Requeue = dead_letter_pb2.RequeueDeadLettersRequest
Requeued = dead_letter_pb2.RequeueDeadLettersResponse
Unique = run_pb2.UniqueKey
ALLOW = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
QUEUE_MS = job_pb2.Timeouts(queue=duration(SECOND_MS))


def dead(*names: str) -> Machine:
    """A dead letter of a job for each of its names, the last one the newest."""
    machine = Machine(MemoryStore())
    for name in sorted(set(names)):
        machine.create(name, cron="0 0 1 1 *", overlap=ALLOW, timeouts=QUEUE_MS)
    for name, run in groupby(names):
        machine.do_all(*(job_pb2.TriggerJobRequest(job=name) for _ in run))
        machine.advance(2 * SECOND_MS)
        machine.fire_all()
    return machine


def ask(machine: Machine, request: Purge | Requeue) -> tuple[object, int]:
    """What comes of a call, and in how many decisions."""
    body: object = Letters(request)
    for decisions in range(1, 1_000):
        [body] = machine.do_all(body)
        if not isinstance(body, Letters):
            return body, decisions
    raise AssertionError("it looks for ever")


def test_the_oldest_of_many_is_found_step_by_step() -> None:
    machine = dead("rare", *["often"] * 200)
    machine.new_budget = lambda: Steps(2)

    answer, decisions = ask(machine, Purge(filter="job=rare"))

    assert answer == Purged(purged=1)
    assert decisions > 4
    assert ask(machine, Purge(filter="job=rare")) == (Purged(), decisions)
    machine.check()


def test_a_step_that_finds_none_changes_nothing() -> None:
    machine = dead(*["often"] * 100)
    machine.new_budget = lambda: Steps(1)
    before = image(machine.store)

    [rest] = machine.do_all(Letters(Purge(filter="job=rare", request_id="once")))

    assert isinstance(rest, Letters)
    assert 0 < rest.looked < 100
    assert image(machine.store) == before


def test_a_call_looks_at_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LETTERS_LOOKED_AT", 50)
    machine = dead("rare", *["often"] * 60)
    machine.new_budget = lambda: Steps(1)

    refusal, _ = ask(machine, Purge(filter="job=rare"))

    assert isinstance(refusal, Rejection)
    assert (refusal.word, refusal.values["actual"]) == ("LIMIT_EXCEEDED", "51")


def test_a_call_that_is_repeated_with_its_id_is_answered_the_same() -> None:
    machine = dead(*["rare"] * 3, *["often"] * 40)
    machine.new_budget = lambda: Steps(1)
    request = Requeue(filter="job=rare", request_id="once")

    answer, _ = ask(machine, request)
    before = image(machine.store)

    assert answer == Requeued(requeued=2, more=True)
    assert ask(machine, request) == (answer, 1)
    assert image(machine.store) == before


def test_on_trial_nothing_is_changed() -> None:
    machine = dead("rare", *["often"] * 40)
    machine.new_budget = lambda: Steps(1)
    before = image(machine.store)

    answer, _ = ask(machine, Purge(filter="job=rare", validate_only=True))

    assert answer == Purged(purged=1)
    assert image(machine.store) == before


@pytest.mark.parametrize("seed", range(10))
def test_it_comes_to_the_same_as_in_one_decision(seed: int) -> None:
    random = Random(seed)
    names = random.choices(("rare", "often", "other"), (1, 20, 3), k=60)
    kind = random.choice((Purge, Requeue))
    request = kind(filter=f"job={random.choice(names)}")
    at_once, in_steps = dead(*names), dead(*names)
    steps = random.randrange(1, 4)
    in_steps.new_budget = lambda: Steps(steps)

    [answer] = at_once.do_all(request)
    more = True
    while more:
        found, _ = ask(in_steps, request)
        more = bool(getattr(found, "more", False))

    assert not getattr(answer, "more", True), f"seed {seed}"
    in_steps.new_budget = lambda: unlimited
    states = [[m.state(name).live for name in sorted(set(names))] for m in (at_once, in_steps)]
    left = [m.do_all(Purge(filter="kind=timeout.queue")) for m in (at_once, in_steps)]
    assert (states[0], left[0]) == (states[1], left[1]), f"seed {seed}"
    in_steps.check()


def test_a_call_says_how_many_it_leaves_out() -> None:
    """Their business key belongs to another run by now."""
    machine = dead("a", "a")
    key = Unique(key="order-1")
    machine.do(job_pb2.TriggerJobRequest(job="a", unique=key))
    machine.advance(2 * SECOND_MS)
    machine.fire_all()
    holder = machine.trigger("a", unique=key)
    machine.new_budget = lambda: Steps(1)

    answer, _ = ask(machine, Requeue(filter="job=a"))

    assert answer == Requeued(requeued=2, left_out=1)
    assert ask(machine, Requeue())[0] == Requeued(left_out=1)
    assert machine.run(holder.id).state == run_pb2.RUN_STATE_PENDING
    machine.check()
