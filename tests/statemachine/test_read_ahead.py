"""Records that lie close together are read in one scan, and are what single reads would give."""

from __future__ import annotations

from raftsched.proto.v1 import job_pb2
from raftsched.statemachine.core.store import MemoryStore, Store
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import StateRecord, encode
from raftsched.statemachine.model.request import FireTimers
from raftsched.statemachine.model.view import DENSE, STRETCH, View

from ..rows import each
from .driver import MINUTE_MS, START_MS, Machine


class Counted(MemoryStore):
    """A store that tells which keys were read one by one, and which many at once."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[bytes] = []
        self.read_at_once = 0

    def get(self, key: bytes) -> bytes | None:
        self.read.append(key)
        return super().get(key)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        self.read_at_once += len(keys)
        return [self.items.get(key) for key in keys]


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


@each(
    ("jids", "at_once"),
    [
        (list(range(1, 100)), 0),
        (list(range(1, 300, DENSE - 1)), 0),
        (list(range(1, 3_000, 2 * DENSE)), len(range(1, 3_000, 2 * DENSE))),
        ([*range(1, 1 + STRETCH), 900, 1_800, *range(2_000, 2_000 + STRETCH)], STRETCH + 2),
        ([1, 2, 3], 3),
        ([7], 1),
        ([7, 5_000], 2),
        ([], 0),
    ],
)
def test_what_lies_close_together_is_scanned_and_all_is_there(
    jids: list[int], at_once: int
) -> None:
    store = filled(range(1, 3_000))
    view = View(store, START_MS)

    view.read_ahead([keys.state(jid) for jid in jids], StateRecord)

    assert store.read_at_once == at_once
    assert read_singly(view, store, [jid for jid in jids if jid < 3_000]) == 0
    assert view.get(keys.state(5_000), StateRecord) is None


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


def test_many_reads_at_once_are_single_reads(store: Store) -> None:
    store.write([(b"%04d" % number, b"%d" % number) for number in range(0, 200, 2)], [b"0006"])
    wanted = [b"0004", b"0199", b"0002", b"0006", b"0004"]

    for reading in (store, store.snapshot()):
        assert reading.get_many(wanted) == [b"4", None, b"2", None, b"4"]
        assert reading.get_many([]) == []


def test_jobs_that_ring_together_do_what_was_asked_before_in_the_same_change(
    machine: Machine,
) -> None:
    for number in range(20):
        machine.create(f"job-{number}", every_ms=MINUTE_MS)
    machine.advance(MINUTE_MS)

    machine.do_all(
        job_pb2.PauseJobRequest(job="job-3"), job_pb2.DeleteJobRequest(job="job-4"), FireTimers(100)
    )

    fired = [number for number in range(20) if number != 4 and machine.state(f"job-{number}").fired]
    assert fired == [number for number in range(20) if number not in (3, 4)]
