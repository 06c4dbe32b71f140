"""What a run and a job cost, in counts that no busy machine can blur.

The bounds are a little above what is needed today. Who adds a call, a read or a write to every run
finds it here, and decides whether it is worth it; `statemachine/bench.py` tells the time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import FrameType

from raftsched.proto.v1 import job_pb2
from raftsched.statemachine import bench
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.machine import Decision, Request, apply, decide
from raftsched.statemachine.model.request import FireTimers, Grant, Offer, Report
from raftsched.statemachine.model.view import Recall, View

from .driver import HOUR_MS, job_of

JOBS = 400


class Counted(MemoryStore):
    """A store that counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.gets = self.steps = self.writes = 0

    def scan(
        self, first: bytes, end: bytes, *, backwards: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        for entry in super().scan(first, end, backwards=backwards):
            self.steps += 1
            yield entry

    def get(self, key: bytes) -> bytes | None:
        self.gets += 1
        return super().get(key)

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        puts, deletes = list(puts), list(deletes)
        self.writes += len(puts) + len(deletes)
        super().write(puts, deletes)


@dataclass(slots=True)
class Cost:
    """What one job or run costs."""

    # Calls of functions in Python while it is decided.
    calls: float = 0
    gets: float = 0
    # Entries of scans.
    steps: float = 0
    writes: float = 0
    bytes: float = 0


class Leader:
    """Decides and applies as a leader does, with a meter on it."""

    def __init__(self) -> None:
        self.store = Counted()
        self.recall = Recall()
        self.index = self.calls = self.bytes = 0

    def do(self, now_ms: int, bodies: list[object]) -> list[object]:
        view = View(self.store, now_ms, self.recall)
        decision = self._counted(lambda: decide(view, [Request(body) for body in bodies]))
        self.index += 1
        apply(self.store, self.index, decision.change)
        self.recall.keep(view)
        self.bytes += len(decision.change)
        return decision.replies

    def _counted(self, work: Callable[[], Decision]) -> Decision:
        def count(frame: FrameType, event: str, argument: object) -> None:
            self.calls += event == "call"

        sys.setprofile(count)
        try:
            return work()
        finally:
            sys.setprofile(None)

    def cost(self, of: int) -> Cost:
        """What was counted since the last time, for each of so many."""
        store = self.store
        counts = (self.calls, store.gets, store.steps, store.writes, self.bytes)
        self.calls = self.bytes = store.gets = store.steps = store.writes = 0
        return Cost(*[count / of for count in counts])


def created(recurring: bool = False) -> Leader:
    leader = Leader()
    for request in bench.jobs(JOBS, recurring):
        leader.do(bench.NOW_MS, [request])
    return leader


def drained(leader: Leader) -> Cost:
    """Fire, lease and complete all jobs, in changes of a quarter of them."""
    leader.cost(1)
    now_ms, batch, done = bench.DUE_MS + 5, JOBS // 4, 0
    reports: list[object] = []
    while done < JOBS or reports:
        now_ms += 1
        granting = [FireTimers(batch), Grant((Offer("w", batch),), batch)]
        *_, granted = leader.do(now_ms, [*reports, *granting])
        assert isinstance(granted, list)
        [leases] = granted
        reports = [Report("w", tuple(map(bench.success, leases)))] if leases else []
        done += len(leases)
    return leader.cost(JOBS)


def test_what_a_job_costs_to_create() -> None:
    leader = created()

    cost = leader.cost(JOBS)

    assert cost.calls < 27, cost
    assert cost.gets < 1.1, cost
    # Its definition, its state, its name and its timer.
    assert 4 <= cost.writes < 4.1, cost
    assert cost.bytes < 285, cost


def test_what_a_run_costs() -> None:
    cost = drained(created())

    assert cost.calls < 75, cost
    assert cost.gets < 0.1, cost
    # The timer; the job and its state, once for three steps.
    assert cost.steps < 3.2, cost
    # Fired and leased: timer, state, run, ledger, lease. Ended: lease, run, history, purge, state.
    assert 10 <= cost.writes < 10.2, cost
    assert cost.bytes < 545, cost


def test_a_recurring_job_costs_little_more() -> None:
    cost = drained(created(recurring=True))

    assert cost.calls < 83, cost
    assert cost.gets < 0.1, cost
    assert cost.steps < 3.2, cost
    assert 11 <= cost.writes < 11.2, cost
    assert cost.bytes < 615, cost


def caught_up(rule: job_pb2.MisfirePolicy.Rule.ValueType) -> Cost:
    """What a job costs that missed three hours of its minutes."""
    leader = Leader()
    request = job_pb2.ImportJobsRequest()
    for number in range(JOBS):
        job = job_of(f"job-{number}", cron="* * * * *", misfire=job_pb2.MisfirePolicy(rule=rule))
        request.jobs.append(job)
    leader.do(bench.NOW_MS, [request])
    leader.cost(1)
    for step in range(4):
        leader.do(bench.NOW_MS + 3 * HOUR_MS + step, [FireTimers(JOBS // 4)])
    return leader.cost(JOBS)


def test_what_a_job_costs_that_missed_its_times() -> None:
    latest = caught_up(job_pb2.MisfirePolicy.RULE_LATEST)
    none = caught_up(job_pb2.MisfirePolicy.RULE_SKIP)

    assert latest.calls < 170, latest
    assert none.calls < 170, none


def test_what_every_decision_needs_has_a_slot() -> None:
    """CPython shares up to 29 names of attributes of a class; above, each access is slower."""
    assert not vars(View(MemoryStore(), 1))
