"""Within max_runs what was moved or added takes its place by when it is due, after an outage as
when all is punctual."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product

import pytest

from raftsched.proto.v1 import job_pb2, schedule_pb2
from raftsched.statemachine.core.instants import timestamp
from raftsched.statemachine.core.store import MemoryStore

from ..sampled import some
from .asking import ask
from .driver import HOUR_MS, MINUTE_MS, START_MS, Machine
from .world import ALLOW

Edit = schedule_pb2.OccurrenceEdit
ALL = job_pb2.MisfirePolicy(rule=job_pb2.MisfirePolicy.RULE_ALL)
HOURS = 5
PARTS = 5
# What was added, and what was moved from which hour, by the minute at which it is due.
ADDED = (30, 90, 210)
MOVED = ((1, 150), (2, 30), (4, 200), (4, 400))


def world(most: int, added: tuple[int, ...], moved: tuple[tuple[int, int], ...]) -> Machine:
    machine = Machine(MemoryStore())
    timing = schedule_pb2.Timing(max_runs=most)
    machine.create("a", cron="0 * * * *", overlap=ALLOW, misfire=ALL, timing=timing)
    for minute in added:
        at = timestamp(START_MS + minute * MINUTE_MS)
        edit = Edit(kind=Edit.KIND_ADD, scheduled_time=at)
        machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))
    for hour, minute in moved:
        edit = Edit(
            kind=Edit.KIND_MOVE, scheduled_time=timestamp(START_MS + hour * HOUR_MS),
            moved_to=timestamp(START_MS + minute * MINUTE_MS),
        )  # fmt: skip
        machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))
    return machine


def played(machine: Machine, step_ms: int) -> set[int]:
    """Which minutes have an outcome in the end."""
    until = START_MS + HOURS * HOUR_MS + 2 * HOUR_MS
    while machine.now_ms < until:
        machine.advance(step_ms)
        machine.fire_all()
        for lease in machine.grant():
            machine.succeed(lease)
        machine.fire_all()
    machine.check()
    audit = ask(machine, job_pb2.AuditJobRequest(job="a"), job_pb2.AuditJobResponse)
    assert not audit.wrong, audit
    assert all(not entry.last_at_ms for entry in machine.ledger("a").values())
    return {(at_ms - START_MS) // MINUTE_MS for at_ms in machine.ledger("a")}


def worlds() -> Iterator[tuple[tuple[int, ...], tuple[tuple[int, int], ...]]]:
    for added, moved in product(product((0, 1), repeat=3), range(1 << len(MOVED))):
        chosen = tuple(one for place, one in enumerate(MOVED) if moved >> place & 1)
        if len({hour for hour, _ in chosen}) == len(chosen):
            yield tuple(one for one, wanted in zip(ADDED, added, strict=True) if wanted), chosen


@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize("outage_ms", [7 * HOUR_MS, 3 * HOUR_MS + 20 * MINUTE_MS])
@pytest.mark.parametrize("part", some(range(PARTS), 1))
def test_an_outage_gives_the_places_to_the_same(most: int, outage_ms: int, part: int) -> None:
    """The times of the schedules took them all, and what was added was dropped without an entry."""
    for added, moved in islice(worlds(), part, None, PARTS):
        punctual = played(world(most, added, moved), 10 * MINUTE_MS)
        behind = played(world(most, added, moved), outage_ms)
        assert behind == punctual, (most, added, moved)
