"""Records that lie close together are read in one scan, and are what single reads would give."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import job_pb2
from raftsched.statemachine import keys
from raftsched.statemachine.record import StateRecord, encode
from raftsched.statemachine.request import Ring
from raftsched.statemachine.store import MemoryStore
from raftsched.statemachine.view import DENSE, STRETCH, View

from .driver import MINUTE_MS, START_MS, Machine


class Counted(MemoryStore):
    """A store that tells which keys were read one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[bytes] = []

    def get(self, key: bytes) -> bytes | None:
        self.read.append(key)
        return super().get(key)


def filled(jids: range) -> Counted:
    store = Counted()
    store.write([(keys.state(jid), encode(StateRecord(fired=jid))) for jid in jids], [])
    return store


def read_singly(view: View, store: Counted, jids: list[int]) -> int:
    """Read the states of jobs, which must be right; how many were not there yet."""
    store.read.clear()
    for jid in jids:
        assert view.need(keys.state(jid), StateRecord).fired == jid
    return len(store.read)


@pytest.mark.parametrize(
    ("jids", "singly"),
    [
        (list(range(1, 100)), 0),
        (list(range(1, 300, DENSE - 1)), 0),
        (list(range(1, 3_000, 2 * DENSE)), len(range(1, 3_000, 2 * DENSE))),
        ([*range(1, 1 + STRETCH), 900, 1_800, *range(2_000, 2_000 + STRETCH)], STRETCH + 2),
        ([1, 2, 3], 3),
        ([7], 1),
        ([], 0),
    ],
)
def test_what_lies_close_together_needs_no_reads(jids: list[int], singly: int) -> None:
    store = filled(range(1, 3_000))
    view = View(store, START_MS)

    view.read_ahead([keys.state(jid) for jid in jids], StateRecord)

    assert read_singly(view, store, jids) == singly


def test_nothing_else_is_kept() -> None:
    store = filled(range(1, 300))
    view = View(store, START_MS)

    view.read_ahead([keys.state(jid) for jid in range(2, 200, 2)], StateRecord)

    assert len(view.records) == 99
    assert read_singly(view, store, [3, 5, 201]) == 3


def test_what_a_decision_has_written_is_not_read_again() -> None:
    store = filled(range(1, 20))
    view = View(store, START_MS)
    mine = StateRecord(fired=77)
    view.put(keys.state(3), mine)
    view.put_once(keys.state(4), mine)
    view.delete(keys.state(5))

    view.read_ahead([keys.state(jid) for jid in range(1, 20)], StateRecord)

    assert view.need(keys.state(3), StateRecord) is mine
    assert view.need(keys.state(4), StateRecord).fired == 77
    assert view.get(keys.state(5), StateRecord) is None


def test_jobs_that_ring_together_do_what_was_asked_before_in_the_same_change(
    machine: Machine,
) -> None:
    for number in range(20):
        machine.create(f"job-{number}", every_ms=MINUTE_MS)
    machine.advance(MINUTE_MS)

    machine.do_all(
        job_pb2.PauseJobRequest(job="job-3"), job_pb2.DeleteJobRequest(job="job-4"), Ring(100)
    )

    fired = [number for number in range(20) if number != 4 and machine.state(f"job-{number}").fired]
    assert fired == [number for number in range(20) if number not in (3, 4)]
