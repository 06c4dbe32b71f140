"""What must hold in every state is asked of every state: each breach is seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from raftsched.proto.v1 import flow_pb2, job_pb2, namespace_pb2, queue_pb2, run_pb2
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model import keys, phases
from raftsched.statemachine.model.record import (
    FlowRecord,
    KeyRecord,
    LedgerRecord,
    Record,
    RunRecord,
    StateRecord,
    StepRecord,
    UniqueRecord,
    encode,
    parse,
)
from raftsched.statemachine.runs import lanes
from raftsched.statemachine.selfcheck.invariants import check, check_limits

from .driver import Machine, image
from .world import ALLOW, build

Wanted = TypeVar("Wanted", bound=Record)
Image = dict[bytes, bytes]


@pytest.fixture(scope="module")
def world() -> Image:
    machine = Machine(MemoryStore())
    build(machine)
    assert check(machine.store) == []
    return image(machine.store)


def first(
    items: Image, table: bytes, kind: type[Wanted], fits: Callable[[Wanted], object]
) -> tuple[bytes, Wanted]:
    """The first record of a table that fits."""
    for key, value in items.items():
        if key[:1] == table:
            record = parse(key, value, kind)
            if fits(record):
                return key, record
    raise AssertionError(f"the world has no such record in {table!r}")


def broken(
    items: Image,
    table: bytes,
    kind: type[Wanted],
    fits: Callable[[Wanted], object],
    **fields: object,
) -> list[str]:
    """What is said when some fields of a record are changed."""
    key, record = first(items, table, kind, fits)
    for name, value in fields.items():
        setattr(record, name, value)
    found = check(MemoryStore({**items, key: encode(record)}))
    assert key in {breach.key for breach in found}, [str(breach) for breach in found]
    return [breach.message for breach in found if breach.key == key]


def running(run: RunRecord) -> bool:
    return run.phase == phases.LEASED


def in_line(run: RunRecord) -> bool:
    return run.phase == phases.READY


def held(run: RunRecord) -> bool:
    return run.phase == phases.HELD


def finite(state: StateRecord) -> bool:
    return state.may_finish and state.state == 1 and not (state.edits or state.backlog)


@pytest.mark.parametrize(
    ("fits", "fields", "said"),
    [
        (running, {"token": 1 << 40}, "not given out"),
        (running, {"token": 0}, "another live lease, or 0"),
        (running, {"session": 99}, "not of the present session"),
        (running, {"rank_ms": 5}, "it is LEASED, but has rank_ms 5"),
        (running, {"deadline_at_ms": 5}, "nothing fires at 5"),
        (in_line, {"rank_ms": 0}, "it is READY without rank_ms"),
        (in_line, {"retry_at_ms": 7}, "nothing fires at 7"),
        (in_line, {"phase": phases.SUCCEEDED}, "it has ended"),
        (in_line, {"unique_key": "nobody's"}, "does not hold its key"),
        (held, {"phase": phases.DELAYED}, "it is DELAYED without retry_at_ms"),
        (held, {"phase": 1}, "it is in phase 1, in which no run stands"),
        (lambda run: run.parking, {"rank_ms": 0}, "it is PARKED without rank_ms"),
        (
            lambda run: run.outcome == run_pb2.OUTCOME_RAN and not run.made_in,
            {"outcome": run_pb2.OUTCOME_LATE},
            "the ledger says OUTCOME_RAN",
        ),
    ],
)
def test_a_run_that_is_wrong_or_stuck_is_seen(
    world: Image, fits: Callable[[RunRecord], object], fields: dict[str, object], said: str
) -> None:
    messages = broken(world, keys.RUN, RunRecord, fits, **fields)

    assert any(said in message for message in messages), messages


def test_two_runs_with_one_token_are_seen(world: Image) -> None:
    _, one = first(world, keys.RUN, RunRecord, running)

    messages = broken(
        world, keys.RUN, RunRecord, lambda run: running(run) and run.token != one.token,
        token=one.token,
    )  # fmt: skip

    assert any("another live lease" in message for message in messages)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"ended_at_ms": 0}, "has not ended"),
        ({"phase": phases.READY}, "has not ended"),
        ({"rank_ms": 5}, "but has rank_ms 5"),
        ({"purge_at_ms": 1}, "leaves the history before"),
    ],
)
def test_an_ended_run_that_is_wrong_is_seen(
    world: Image, fields: dict[str, object], said: str
) -> None:
    messages = broken(world, keys.ENDED, RunRecord, lambda run: True, **fields)

    assert any(said in message for message in messages), messages


def test_a_run_that_is_under_way_and_ended_is_seen(world: Image) -> None:
    key, run = first(world, keys.RUN, RunRecord, running)
    twin = keys.ended(*keys.run_of(key))

    found = check(MemoryStore({**world, twin: encode(run)}))

    assert "under way and in the history" in " ".join(map(str, found))


@pytest.mark.parametrize(
    ("fits", "fields", "said"),
    [
        (finite, {"next_scheduled_at_ms": 0, "live": 0}, "nothing lies ahead"),
        (lambda state: state.next_scheduled_at_ms, {"state": 3}, "FINISHED, but something"),
        (lambda state: state.after_end, {"next_scheduled_at_ms": 0, "live": 0}, "but no next one"),
        (lambda state: True, {"state": 4, "timer_at_ms": 0}, "nothing goes on with it"),
        (lambda state: state.parked, {"running": 0}, "wait for a slot"),
        (lambda state: state.held, {"live": 0}, "held back, but there is room"),
    ],
)  # fmt: skip
def test_a_job_that_is_wrong_or_silent_is_seen(
    world: Image, fits: Callable[[StateRecord], object], fields: dict[str, object], said: str
) -> None:
    key, state = first(world, keys.STATE, StateRecord, fits)
    for name, value in fields.items():
        setattr(state, name, value)
    items = {**world, key: encode(state)}
    if "running" in fields:
        # Nothing of it may be on its way either.
        jid = key[1:9]
        for run_key in [k for k in items if k[:9] == keys.RUN + jid]:
            if not parse(run_key, items[run_key], RunRecord).parking:
                del items[run_key]

    found = [str(breach) for breach in check(MemoryStore(items))]

    assert any(said in message for message in found), found


def test_runs_that_wait_for_a_free_key_in_a_lane_of_their_own_are_seen(machine: Machine) -> None:
    limit = job_pb2.ConcurrencyLimit(key="k", key_limit=1)
    machine.create("a", overlap=ALLOW, concurrency=limit)
    for queue in ("default", "default", "batch"):
        machine.trigger("a", queue=queue)
    machine.grant(queues=("default", "batch"))
    sound = check(machine.store)
    key = keys.limit_key(0, "k")
    items = {**image(machine.store), key: encode(KeyRecord(running=0, parked=2))}

    # One of them is on its way, in another lane.
    run_key, run = first(items, keys.RUN, RunRecord, lambda run: run.parking)
    jid, occurrence = keys.run_of(run_key)
    del items[keys.parked(lanes.wait_queue_of(jid, run), run.rank_ms, jid, occurrence)]
    run.phase, run.parking = phases.READY, RunRecord.PARKING_UNSPECIFIED
    items[run_key] = encode(run)
    found = [str(breach) for breach in check(MemoryStore(items))]

    assert sound == []
    assert sum("wait for a slot that nobody has or wants" in breach for breach in found) == 1


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (keys.JOB, "is not there"),
        (keys.STATE, "has no state"),
        (keys.LEDGER, "does not know that it was fired"),
        (keys.FLOW, "the wave of this step is not there"),
        (keys.LANE, "its lane"),
        (keys.FORMER, "what it does, as of version"),
    ],
)
def test_a_record_that_is_missing_is_missed(world: Image, table: bytes, said: str) -> None:
    keys_of = [key for key in world if key[:1] == table]
    gone = keys_of[-1] if table == keys.LEDGER else keys_of[0]
    items = {key: value for key, value in world.items() if key != gone}

    found = [str(breach) for breach in check(MemoryStore(items))]

    assert any(said in message for message in found), found


def test_stretches_that_overlap_are_seen(world: Image) -> None:
    key, entry = first(world, keys.LEDGER, LedgerRecord, lambda entry: entry.last_at_ms)
    later = keys.ledger(int.from_bytes(key[1:9], "big"), keys.scheduled_at(key) + 1)

    found = check(MemoryStore({**world, later: encode(entry)}))
    without_outcome = broken(world, keys.LEDGER, LedgerRecord, lambda entry: True, outcome=0)

    assert any("overlaps" in str(breach) for breach in found)
    assert "it has no outcome" in without_outcome


@pytest.mark.parametrize(
    ("fits", "fields", "said"),
    [
        (lambda flow: flow.live, {"live": 0, "waiting": 0}, "it has not ended"),
        (lambda flow: flow.ended_at_ms, {"timer_at_ms": 0}, "nothing will forget it"),
        (lambda flow: flow.waiting, {"timer_at_ms": 0}, "nothing will call it stuck"),
    ],
)
def test_a_wave_that_never_ends_is_seen(
    world: Image, fits: Callable[[FlowRecord], object], fields: dict[str, object],
    said: str,
) -> None:  # fmt: skip
    messages = broken(world, keys.FLOW, FlowRecord, fits, **fields)

    assert any(said in message for message in messages)


def test_a_step_with_a_run_it_should_not_have_is_seen(world: Image) -> None:
    kind = StepRecord
    fired = flow_pb2.FlowStep.STATE_FIRED

    messages = broken(world, keys.STEP, kind, lambda step: step.state == fired, occurrence=0)

    assert "a step has a run if and only if it has fired" in messages


def test_a_key_held_by_nobody_is_seen(world: Image) -> None:
    kind = UniqueRecord

    messages = broken(world, keys.UNIQUE, kind, lambda key: not key.until_ms, occurrence=5)

    assert "the run that holds this key is not under way" in messages


def test_a_lowered_limit_shows_as_exceeded_and_is_no_breach(machine: Machine) -> None:
    overlap = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
    limit = job_pb2.ConcurrencyLimit(job=2, key="k", key_limit=2)
    machine.create("a", overlap=overlap, concurrency=limit)
    machine.trigger("a")
    machine.trigger("a")
    machine.grant()
    before = check_limits(machine.store)
    lower = job_pb2.Job(name="a")
    lower.spec.concurrency.CopyFrom(job_pb2.ConcurrencyLimit(job=1, key="k", key_limit=1))

    machine.do(job_pb2.UpdateJobRequest(job=lower))
    machine.do(queue_pb2.UpdateQueueRequest(queue=queue_pb2.Queue(name="default", concurrency=1)))
    quota = namespace_pb2.Namespace(name="default", quota=namespace_pb2.Quota(leases=1))
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=quota))

    machine.limits_may_be_exceeded = True
    assert before == []
    assert len(check_limits(machine.store)) == 4
    assert check(machine.store) == []
