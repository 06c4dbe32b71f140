"""The self-check finds every derived entry that is wrong, and mends it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from raftsched.statemachine.core.budget import Steps
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.difference import Difference
from raftsched.statemachine.model.record import (
    JobRecord,
    MetaRecord,
    Record,
    StateRecord,
    encode,
    parse,
)
from raftsched.statemachine.model.request import Repair, Repaired
from raftsched.statemachine.selfcheck.counters import COUNTED, FACTS
from raftsched.statemachine.selfcheck.entries import OWNERS
from raftsched.statemachine.selfcheck.invariants import check
from raftsched.statemachine.selfcheck.verify import verify

from ..sampled import some
from .driver import Machine, image
from .world import build

ROUNDS = 5
# Where queues begin, which may be unknown: then it is looked for.
MARKS = {keys.FIRST_WAITING, keys.FIRST_QUOTA_WAIT}
DERIVED = [table for table in (*OWNERS, keys.IDEMPOTENCY_BY_AGE) if table not in MARKS]
# Fields that are counted anew, by table.
FIELDS = {
    keys.STATE: (
        "live", "running", "held", "parked", "has_downstream", "after_end", "once", "may_finish",
        "timer_at_ms", "former",
    ),
    keys.LANE: ("ready",),
    keys.USAGE: ("jobs", "live", "leased", "dead", "payload_bytes", "backlog"),
    keys.QUEUE: ("leased",),
    keys.SESSION: ("leased", "cancels"),
    keys.LIMIT_KEY: ("running", "parked"),
    keys.CALENDAR: ("jobs",),
    keys.FLOW: ("live", "waiting", "cannot_run"),
    keys.FORMER: ("live",),
}  # fmt: skip


@pytest.fixture(scope="module")
def world() -> dict[bytes, bytes]:
    """The image of a world, built once."""
    machine = Machine(MemoryStore())
    build(machine)
    machine.check()
    return image(machine.store)


class CountingStore(MemoryStore):
    """Counts what is read of it."""

    reads = 0

    def get(self, key: bytes) -> bytes | None:
        self.reads += 1
        return super().get(key)

    def scan(
        self, first: bytes, end: bytes, *, backwards: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        for entry in super().scan(first, end, backwards=backwards):
            self.reads += 1
            yield entry


def resting(items: dict[bytes, bytes]) -> Machine:
    machine = Machine(MemoryStore(items))
    meta = parse(keys.META, items[keys.META], MetaRecord)
    machine.now_ms, machine.index = meta.now_ms, meta.applied_index
    return machine


def without_meta(items: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Nor marks, of which those that are lost are set when somebody asks."""
    rest = {key: value for key, value in items.items() if key != keys.META}
    return {key: value for key, value in rest.items() if key[:1] not in MARKS}


def mended(items: dict[bytes, bytes]) -> dict[bytes, bytes]:
    machine = resting(items)
    for _ in range(ROUNDS):
        found = verify(machine.store)
        if not found:
            return image(machine.store)
        machine.do(Repair(tuple(found)))
    raise AssertionError(f"it is not mended after {ROUNDS} rounds")


def of_table(items: dict[bytes, bytes], table: bytes) -> list[bytes]:
    return [key for key in items if key[:1] == table]


def test_the_world_holds_every_table_and_is_sound(machine: Machine) -> None:
    build(machine)

    tables = Counter(key[:1] for key in image(machine.store))

    assert verify(machine.store) == []
    assert check(machine.store) == []
    assert not (set(OWNERS) | set(COUNTED) | {keys.IDEMPOTENCY_BY_AGE}) - set(tables)


@pytest.mark.parametrize("table", DERIVED)
def test_a_derived_entry_that_is_missing_is_found_and_put_again(
    world: dict[bytes, bytes], table: bytes
) -> None:
    for key in of_table(world, table):
        items = dict(world)
        del items[key]

        found = verify(MemoryStore(items))

        assert key in [difference.key for difference in found], key
        assert without_meta(mended(items)) == without_meta(world)


@pytest.mark.parametrize("table", DERIVED)
def test_a_derived_entry_that_nothing_wants_is_found_and_deleted(
    world: dict[bytes, bytes], table: bytes
) -> None:
    for key in of_table(world, table)[:5]:
        stray = key[:-1] + bytes([key[-1] ^ 0x55])
        if stray in world:
            continue
        items = {**world, stray: world[key]}

        [difference] = verify(MemoryStore(items))

        assert (difference.key, difference.wanted) == (stray, None)
        assert without_meta(mended(items)) == without_meta(world)


@pytest.mark.parametrize(
    "table", [keys.NAME, keys.LEASE, keys.LANE_OF, keys.READY, keys.TIMER, keys.EDGE]
)
def test_a_derived_entry_with_a_wrong_value_is_found_and_put_right(
    world: dict[bytes, bytes], table: bytes
) -> None:
    for key in of_table(world, table)[:5]:
        value = world[key]
        items = {**world, key: value[:-1] + bytes([value[-1] ^ 1]) if value else b"x"}

        found = verify(MemoryStore(items))

        assert key in [difference.key for difference in found]
        assert without_meta(mended(items)) == without_meta(world)


def wrong_counts(world: dict[bytes, bytes], table: bytes) -> Iterator[tuple[bytes, str, Record]]:
    for key in of_table(world, table)[:8]:
        for name in FIELDS[table]:
            record = parse(key, world[key], COUNTED[table])
            value = getattr(record, name)
            setattr(record, name, not value if isinstance(value, bool) else value + 1)
            yield key, name, record


@pytest.mark.parametrize("table", list(FIELDS))
def test_a_wrong_counter_is_named_and_counted_anew(world: dict[bytes, bytes], table: bytes) -> None:
    for key, name, record in wrong_counts(world, table):
        items = {**world, key: encode(record)}

        found = verify(MemoryStore(items))

        of_key = [difference for difference in found if difference.key == key]
        assert [name in difference.message for difference in of_key] == [True], (key, name)
        assert mended(items)[key] == world[key]


@pytest.mark.parametrize(
    ("table", "name"),
    [
        (keys.STATE, "live_from"),
        (keys.STATE, "ledger_from_ms"),
        (keys.LANE, "ready_from"),
        (keys.SESSION, "token_from"),
    ],
)
def test_a_mark_behind_what_it_marks_is_found_and_moved_back(
    world: dict[bytes, bytes], table: bytes, name: str
) -> None:
    tried = 0
    for key in of_table(world, table):
        record = parse(key, world[key], COUNTED[table])
        if not getattr(record, name):
            continue
        setattr(record, name, b"\xff" * 24 if name == "ready_from" else (1 << 63) - 1)
        items = {**world, key: encode(record)}
        found = verify(MemoryStore(items))
        if not found:
            continue  # There is nothing that it marks.

        [difference] = found
        tried += 1

        assert difference.key == key
        assert name in difference.message
        assert verify(MemoryStore(mended(items))) == []
    assert tried


def test_a_mark_of_timers_behind_a_timer_is_found_and_moved_back(
    world: dict[bytes, bytes],
) -> None:
    meta = parse(keys.META, world[keys.META], MetaRecord)
    meta.timers_from = keys.timers_from(1 << 60)
    meta.later_from = keys.timers_from(keys.LATER | 1 << 60)
    items = {**world, keys.META: encode(meta)}

    found = verify(MemoryStore(items))

    assert {difference.key for difference in found} == set(of_table(world, keys.TIMER))
    assert without_meta(mended(items)) == without_meta(world)


@pytest.mark.parametrize("table", sorted(MARKS))
def test_a_mark_behind_what_waits_in_a_queue_is_found_and_moved_back(
    world: dict[bytes, bytes], table: bytes
) -> None:
    [key, *_] = of_table(world, table)
    items = {**world, key: world[key][:-8] + b"\xff" * 8}

    [difference] = verify(MemoryStore(items))

    assert (difference.key, difference.wanted) == (key, world[key])
    assert mended(items)[key] == world[key]


@pytest.mark.parametrize("table", sorted(MARKS))
def test_a_mark_of_a_queue_that_is_not_there_is_found_and_deleted(
    world: dict[bytes, bytes], table: bytes
) -> None:
    key = of_table(world, table)[0]
    stray = key[:4] + b"\x55" + key[5:]

    [difference] = verify(MemoryStore({**world, stray: world[key]}))

    assert (difference.key, difference.wanted) == (stray, None)


def test_what_is_found_is_bounded_and_mended_in_steps(world: dict[bytes, bytes]) -> None:
    items = {key: value for key, value in world.items() if key[:1] != keys.TIMER}
    timers = len(world) - len(items)
    machine = resting(items)

    rest, steps = tuple(verify(machine.store)), []
    while rest:
        machine.new_budget = lambda: Steps(9)
        said = machine.ask(Repair(rest), Repaired)
        steps.append(said.done)
        assert said.mended == said.done
        rest = rest[said.done :]

    assert len(verify(MemoryStore(items), 7)) == 7
    assert steps == [10] * (timers // 10) + [timers % 10] * bool(timers % 10)
    assert without_meta(image(machine.store)) == without_meta(world)


@pytest.mark.parametrize("table", some([*DERIVED, *sorted(MARKS)], 6))
def test_what_is_sound_by_now_is_left_as_it_is(world: dict[bytes, bytes], table: bytes) -> None:
    """What a check has found may have gone since then, with the run that it was about."""
    present = of_table(world, table)
    missing = [
        Difference(key[:-1] + bytes([key[-1] ^ 0x55]), None, world[key], "") for key in present
    ]
    stray = [Difference(key, world[key], None, "") for key in present]
    if table == keys.IDEMPOTENCY_BY_AGE:
        stray = [Difference(key, b"another", None, "") for key in present]
    machine = resting(world)

    decision = machine.decide(Repair((*missing, *stray)))

    assert decision.change == b""


def test_a_leader_that_holds_a_wrong_counter_in_memory_forgets_it_when_it_is_mended(
    world: dict[bytes, bytes],
) -> None:
    machine = resting(world)
    key = keys.state(machine.jid("minutely"))
    state = parse(key, world[key], StateRecord)
    state.parked += 1
    machine.store.write([(key, encode(state))], [])
    machine.memory_may_differ = True
    machine.advance(60_000)
    machine.fire()

    machine.do(Repair(tuple(verify(machine.store))))
    machine.advance(60_000)
    machine.fire()

    machine.check()


def all_wrong(world: dict[bytes, bytes], table: bytes, name: str) -> dict[bytes, bytes]:
    """All records of a table count one too many."""
    wrong = dict(world)
    for key in of_table(world, table):
        record = parse(key, world[key], COUNTED[table])
        setattr(record, name, getattr(record, name) + 1)
        wrong[key] = encode(record)
    return wrong


@pytest.mark.parametrize(
    ("table", "name"),
    [
        (table, name)
        for table, names in FIELDS.items()
        for name in names
        if name not in FACTS and table != keys.FLOW
    ],
)
def test_what_was_counted_since_the_check_stays(
    world: dict[bytes, bytes], table: bytes, name: str
) -> None:
    """A check takes its time, and the state goes on meanwhile. Seen when what it had found was put
    as it was then: the next check finds what was counted since."""
    machine = resting(all_wrong(world, table, name))
    machine.memory_may_differ = True
    found = verify(machine.store)
    assert found
    for _ in range(3):
        machine.advance(60_000)
        machine.fire_all()
        for number, lease in enumerate(machine.grant(queues=("default", "batch"))):
            (machine.succeed if number % 2 else machine.fail)(lease)
    machine.create("after-the-check", cron="* * * * *")
    machine.trigger("after-the-check")

    machine.do(Repair(tuple(found)))
    assert [one for one in verify(machine.store) if one.key[:1] == table] == []
    for _ in range(ROUNDS):
        machine.do(Repair(tuple(verify(machine.store))))
    assert verify(machine.store) == []


def test_mending_a_counter_costs_the_same_however_much_it_counts() -> None:
    """Seen before: one decision looked at all of the state, which took it 6 s at 200,000 jobs."""
    reads = [reads_of_mending(jobs) for jobs in (20, 400)]

    assert reads[0] == reads[1]


def reads_of_mending(jobs: int) -> int:
    machine = Machine(MemoryStore())
    for number in range(jobs):
        machine.create(f"job-{number}", cron="0 0 1 1 *")
    items = image(machine.store)
    for key in (keys.usage(0), *of_table(items, keys.STATE)[:10]):
        record = parse(key, items[key], COUNTED[key[:1]])
        record.live += 1  # type: ignore[attr-defined]
        items[key] = encode(record)
    store, machine = CountingStore(items), resting(items)
    machine.store = store
    found = tuple(verify(store))
    assert len(found) == 11
    store.reads = 0
    assert machine.ask(Repair(found), Repaired).mended == 11
    return store.reads


@pytest.mark.slow
def test_mending_a_large_state_takes_decisions_of_some_steps() -> None:
    """200,000 jobs, of which 3,000 are counted wrong, and a change that has time for 100 questions.
    Seen before: the first decision looked at all 800,000 records, as did each one behind it."""
    machine = Machine(MemoryStore())
    machine.create("one", cron="0 0 1 1 *")
    items = image(machine.store)
    [(key, job)] = [(key, parse(key, items[key], JobRecord)) for key in of_table(items, keys.JOB)]
    jid, state = int.from_bytes(key[1:], "big"), items[keys.state(int.from_bytes(key[1:], "big"))]
    timer_ms = parse(keys.state(jid), state, StateRecord).timer_at_ms
    for other in range(jid + 1, jid + 200_000):
        job.name = f"job-{other}"
        items[keys.job(other)], items[keys.state(other)] = encode(job), state
        items[keys.job_name(0, job.name)] = other.to_bytes(8, "big")
        items[keys.job_timer(timer_ms, other)] = b""
    for other in range(jid + 1, jid + 200_000, 67):
        wrong = parse(keys.state(other), state, StateRecord)
        wrong.live = 3
        items[keys.state(other)] = encode(wrong)
    store, machine = CountingStore(items), resting(items)
    machine.store = store
    rest = tuple(verify(store, 10_000))
    # The jobs of the namespace, too.
    assert len(rest) == len(range(1, 200_000, 67)) + 1
    most = steps = 0
    while rest:
        store.reads, machine.new_budget = 0, lambda: Steps(100)
        said = machine.ask(Repair(rest[:1_000]), Repaired)
        rest, steps, most = rest[said.done :], steps + 1, max(most, store.reads)

    # Each is decided twice here.
    assert most <= 2 * 100 * 20
    assert steps <= 31
    assert verify(store) == []
