"""A grant costs what is ready for its workers, however many lanes there are."""

from __future__ import annotations

import random

import pytest

from raftsched.proto.v1 import job_pb2, queue_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.machine import Request, decide
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import LabelRecord, LaneRecord, QueueRecord, encode
from raftsched.statemachine.model.request import Grant, Offer
from raftsched.statemachine.model.view import View
from raftsched.statemachine.runs import grants, lanes

from ..rows import each
from .driver import SECOND_MS, START_MS, Machine, job_of
from .test_flat_cost import Cluster

NAMES = ("arch", "host", "zone")


def steps_of_a_grant(cluster: Cluster, offer: Offer) -> int:
    before = cluster.store.steps
    cluster.do(Grant((offer,), 10))
    return cluster.store.steps - before


def lane(cluster: Cluster, number: int, ready: int, **fields: object) -> None:
    """Put a lane that has so many ready runs, as far as a grant can tell before it looks."""
    record = LaneRecord(number=number, handler="work", queue="default", ready=ready, **fields)  # type: ignore[arg-type]
    puts = [(keys.lane(number), encode(record)), (keys.queue(0, "default"), encode(QueueRecord()))]
    if ready:
        puts.append((lanes.busy_key(record), b""))
    cluster.store.write(puts, [])


def test_lanes_without_work_and_lanes_of_others_cost_nothing() -> None:
    cluster = Cluster()
    cluster.do(job_pb2.CreateJobRequest(job=job_of("mine", worker_labels={"host": "mine"})))
    offer = Offer("w", 10, labels={"host": "mine", "arch": "x86"})
    alone = steps_of_a_grant(cluster, offer)
    for number in range(100, 50_100):
        label = LabelRecord(name="host", value=f"host-{number}")
        lane(cluster, number, number % 2, labels=(label,))

    cluster.do(job_pb2.TriggerJobRequest(job="mine"))
    with_work = steps_of_a_grant(cluster, offer)

    # So many are looked at to find that they are not few.
    alone += grants.FEW_LANES + 1
    assert steps_of_a_grant(cluster, offer) <= alone + 6
    assert with_work <= alone + 12


def test_of_very_many_lanes_that_fit_some_are_looked_at_and_none_starves(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LANES", 5)
    names = [f"job-{number:02}" for number in range(23)]
    for name in names:
        machine.create(name, handler=name)
        machine.trigger(name)

    taken: list[str] = []
    for _ in range(23):
        # The one before is ready again at once.
        [lease] = machine.grant(credits=1)
        taken.append(lease.job)
        machine.succeed(lease)
        machine.trigger(lease.job)
        machine.advance(1)
    machine.check()

    assert len(set(taken)) >= 15
    for _ in range(23):
        [lease] = machine.grant(credits=1)
        taken.append(lease.job)
        machine.succeed(lease)
    assert set(taken) == set(names)


@each("seed", range(20))
def test_the_lanes_that_are_found_are_those_that_fit(seed: int) -> None:
    dice = random.Random(f"lanes {seed}")
    store = MemoryStore()
    records = []
    for number in range(1, 60):
        chosen = sorted(dice.sample(NAMES, dice.randrange(4)))
        labels = tuple(LabelRecord(name=name, value=dice.choice("ab")) for name in chosen)
        handler = dice.choice(("x", "y", "yy", "http"))
        record = LaneRecord(number=number, handler=handler, labels=labels, queue="q", ready=1)
        records.append(record)
        store.write([(lanes.busy_key(record), b"")], [])
    for _ in range(50):
        own = {name: dice.choice("ab") for name in dice.sample(NAMES, dice.randrange(4))}
        handlers = frozenset(dice.sample(("x", "y", "yy", "http", "z"), dice.randrange(4)))

        found = list(lanes.busy_for(View(store, 0), 0, "q", handlers, own))

        wanted = {one.number for one in records if lanes.fits(one, handlers, own)}
        assert sorted(map(keys.lane_in, found)) == sorted(wanted), (seed, own, handlers)


def test_labels_whose_texts_run_together_have_lanes_of_their_own(machine: Machine) -> None:
    machine.create("two", worker_labels={"a": "1", "b": "2"})
    machine.create("one", worker_labels={"a": "1b2"})
    machine.trigger("two")
    machine.trigger("one")

    assert [lease.job for lease in machine.grant(labels={"a": "1b2"})] == ["one"]
    assert [lease.job for lease in machine.grant(labels={"a": "1", "b": "2"})] == ["two"]


def test_a_state_from_before_finds_its_ready_runs(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing said yet which lanes have ready runs."""
    monkeypatch.setattr(limits, "CHANGE_ITEMS", 2)
    for number in range(7):
        machine.create(f"job-{number}", handler=f"work-{number}")
        machine.trigger(f"job-{number}")
    busy = [key for key, _ in machine.store.scan(keys.BUSY, keys.after(keys.BUSY))]
    machine.store.write([], [*busy, keys.LANES_INDEXED])
    machine.check()

    found = [lease.job for _ in range(8) for lease in machine.grant()]

    assert sorted(found) == [f"job-{number}" for number in range(7)]
    machine.create("new", handler="other")
    machine.trigger("new")
    assert [lease.job for lease in machine.grant()] == ["new"]
    machine.check()


def test_a_grant_says_when_a_queue_with_a_rate_gives_again(machine: Machine) -> None:
    for number in range(3):
        machine.create(f"job-{number}")
        machine.trigger(f"job-{number}")
    queue = queue_pb2.Queue(name="default", rate=2, burst=1)
    machine.do(queue_pb2.UpdateQueueRequest(queue=queue))
    offer = Grant((Offer("w", 10),), 10)

    first = decide(machine.view(), [Request(offer)]).allowance_ms
    assert len(machine.grant()) == 1
    again = decide(machine.view(), [Request(offer)])
    elsewhere = decide(machine.view(), [Request(Grant((Offer("v", 1, queues=("x",)),), 1))])

    assert first == again.allowance_ms == START_MS + SECOND_MS // 2
    assert not again.change
    assert elsewhere.allowance_ms == 0


def test_many_queues_with_ready_runs_are_not_looked_through(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BUSY_PLACES", 3)
    for number in range(6):
        machine.create(f"job-{number}", queue=f"q-{number}")
        machine.trigger(f"job-{number}")

    assert [lease.job for lease in machine.grant(queues=("q-4",))] == ["job-4"]
    assert machine.grant(queues=("q-4", "none")) == []


def test_a_label_with_a_control_character_is_refused(machine: Machine) -> None:
    """Two labels in one text would share the lane of two labels."""
    job = job_of("a", worker_labels={"a": "x\0b=y"})

    refusal = machine.refused(job_pb2.CreateJobRequest(job=job))

    assert refusal.word == "FIELD_INVALID"
    assert "control character" in refusal.message
