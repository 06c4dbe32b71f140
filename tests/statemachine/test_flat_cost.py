"""What was, does not make what comes more expensive.

Queues in an ordered store collect tombstones at their heads. The rules keep low-water marks, so a
scan begins behind them. The cost is counted in keys that the store hands out or walks over, not in
time: a store in memory that keeps its tombstones, as the one on disk does until it compacts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from raftsched.proto.v1 import common_pb2, job_pb2, namespace_pb2, schedule_pb2, worker_pb2
from raftsched.statemachine.core.instants import timestamp
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.machine import Request, apply, decide
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.request import FireTimers, Grant, Lapse, Offer, Report
from raftsched.statemachine.model.view import View

from .driver import MINUTE_MS, SECOND_MS, START_MS, Machine, due_requests, job_of

BATCH = 500
ROUNDS = 12
ALLOW = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
Edit = schedule_pb2.OccurrenceEdit


class Walked(MemoryStore):
    """Deleted keys stay as tombstones, and every step of a scan over one is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.tombstones = MemoryStore()
        self.steps = 0

    def scan(
        self, first: bytes, end: bytes, *, backwards: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        dead = self.tombstones.scan(first, end, backwards=backwards)
        buried = next(dead, None)
        for key, value in super().scan(first, end, backwards=backwards):
            while buried is not None and (buried[0] > key if backwards else buried[0] < key):
                self.steps += 1
                buried = next(dead, None)
            self.steps += 1
            yield key, value
        self.steps += sum(1 for _ in dead) + (buried is not None)

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        puts, deletes = list(puts), list(deletes)
        super().write(puts, deletes)
        self.tombstones.write([(key, b"") for key in deletes], [key for key, _ in puts])


class Cluster:
    """A leader with one worker, and a meter on its store."""

    def __init__(self) -> None:
        self.store = Walked()
        self.now_ms = START_MS
        self.index = 0

    def do(self, body: object) -> object:
        decision = decide(View(self.store, self.now_ms), [Request(body)])
        if decision.change:
            self.index += 1
            apply(self.store, self.index, decision.change)
        return decision.replies[0]

    def fire(self, most: int = 1_000) -> None:
        """What is due in the next change."""
        for request in due_requests(self.store, self.now_ms, most):
            self.do(request)

    def work(self) -> int:
        """FireTimers, grant and complete until nothing is left; steps for each run."""
        before, done = self.store.steps, 0
        while True:
            self.now_ms += 1
            self.fire(100)
            granted = self.do(Grant((Offer("w", 100),), 100))
            assert isinstance(granted, list)
            [leases] = granted
            if not leases:
                return (self.store.steps - before) // max(1, done)
            done += len(leases)
            results = tuple(
                worker_pb2.Result(run=lease.run, token=lease.token, success=worker_pb2.Success())
                for lease in leases
            )
            self.do(Report("w", results))


def test_the_next_run_costs_the_same_after_many_runs() -> None:
    cluster = Cluster()
    for number in range(BATCH):
        cluster.do(job_pb2.CreateJobRequest(job=job_of(f"job-{number}", cron="* * * * *")))

    costs = []
    for _ in range(ROUNDS):
        cluster.now_ms += 60_000
        costs.append(cluster.work())

    assert max(costs[1:]) <= max(costs[0], 4), costs


def test_a_lapse_does_not_walk_over_the_leases_that_have_ended() -> None:
    cluster = Cluster()
    for number in range(BATCH):
        cluster.do(job_pb2.CreateJobRequest(job=job_of(f"job-{number}", every_ms=60_000)))
    for _ in range(ROUNDS):
        cluster.now_ms += 60_000
        cluster.work()
    cluster.now_ms += 60_000
    cluster.do(FireTimers(5))
    cluster.do(Grant((Offer("w", 5),), 5))

    before = cluster.store.steps
    cluster.do(Lapse("w", 100))

    assert cluster.store.steps - before <= 40


def test_a_parked_run_is_walked_over_once() -> None:
    cluster = Cluster()
    limit = job_pb2.ConcurrencyLimit(job=1)
    allow = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
    cluster.do(job_pb2.CreateJobRequest(job=job_of("narrow", concurrency=limit, overlap=allow)))
    for _ in range(BATCH):
        cluster.do(job_pb2.TriggerJobRequest(job="narrow"))
    cluster.do(Grant((Offer("w", 100),), 100))

    before = cluster.store.steps
    for _ in range(20):
        cluster.now_ms += 1
        cluster.do(Grant((Offer("w", 100),), 100))

    assert cluster.store.steps - before <= 20 * 3


BACKFILLED = 500
Backfill = job_pb2.BackfillJobRequest


def backfilled(cluster: Cluster, name: str, count: int, from_ms: int = START_MS) -> None:
    """Run so many minutes of a job again, a hundred at a time."""
    cluster.do(
        Backfill(
            job=name, from_time=timestamp(from_ms), runs_per_minute=60_000,
            to_time=timestamp(from_ms + count * MINUTE_MS),
        )
    )  # fmt: skip
    done = False
    while not done:
        cluster.now_ms += SECOND_MS
        before = cluster.index
        cluster.fire()
        done = cluster.index == before


def test_a_backfill_costs_each_run_the_same() -> None:
    """A time that is run again looks for the stretch around it, not at all that ran before it."""
    costs = []
    for count in (BACKFILLED // 4, BACKFILLED):
        cluster = Cluster()
        cluster.now_ms = START_MS + BACKFILLED * MINUTE_MS
        cluster.do(job_pb2.CreateJobRequest(job=job_of("a", cron="* * * * *", overlap=ALLOW)))

        before = cluster.store.steps
        backfilled(cluster, "a", count)

        costs.append((cluster.store.steps - before) / count)
    assert costs[1] <= costs[0] + 1, costs


def test_a_backfill_inside_a_stretch_costs_each_run_the_same() -> None:
    costs = []
    for count in (BACKFILLED // 4, BACKFILLED):
        cluster = Cluster()
        cluster.do(job_pb2.CreateJobRequest(job=job_of("a", cron="* * * * *", overlap=ALLOW)))
        cluster.now_ms = START_MS + 4 * BACKFILLED * MINUTE_MS
        cluster.fire()

        before = cluster.store.steps
        backfilled(cluster, "a", count, START_MS + BACKFILLED * MINUTE_MS)

        costs.append((cluster.store.steps - before) / count)
    assert costs[1] <= costs[0] + 1, costs


def test_behind_a_time_that_ran_early_a_run_costs_the_same() -> None:
    """Until its scheduled time has come, the others are not the newest in the ledger."""
    cluster = Cluster()
    cluster.do(job_pb2.CreateJobRequest(job=job_of("a", cron="* * * * *", overlap=ALLOW)))
    late = timestamp(START_MS + 2 * BACKFILLED * MINUTE_MS)
    early = timestamp(START_MS + MINUTE_MS)
    moved = Edit(scheduled_time=late, kind=Edit.KIND_MOVE, moved_to=early)
    cluster.do(job_pb2.EditOccurrenceRequest(job="a", edit=moved))
    for _ in range(BACKFILLED):
        cluster.now_ms += MINUTE_MS
        cluster.work()

    cluster.now_ms += MINUTE_MS
    before = cluster.store.steps
    cluster.do(FireTimers(1_000))

    assert cluster.store.steps - before <= 20


WAITING = 600


def ended_one_by_one(cluster: Cluster, runs: int) -> list[int]:
    """Steps for each run, where one is leased at a time and its end lets the next one have its
    slot or its place in the quota."""
    costs = []
    for _ in range(runs):
        before = cluster.store.steps
        cluster.now_ms += 1
        granted = cluster.do(Grant((Offer("w", 3),), 3))
        assert isinstance(granted, list)
        [[lease]] = granted
        success = worker_pb2.Success()
        result = worker_pb2.Result(run=lease.run, token=lease.token, success=success)
        cluster.do(Report("w", (result,)))
        cluster.fire(100)
        costs.append(cluster.store.steps - before)
    return costs


@pytest.mark.parametrize("limit", [{"job": 1}, {"key": "k", "key_limit": 1}], ids=str)
def test_a_slot_that_many_wait_for_costs_each_of_them_the_same(limit: dict[str, Any]) -> None:
    cluster = Cluster()
    slot = job_pb2.ConcurrencyLimit(**limit)
    cluster.do(job_pb2.CreateJobRequest(job=job_of("narrow", concurrency=slot, overlap=ALLOW)))
    for place in range(WAITING):
        priority = (common_pb2.PRIORITY_LOW, common_pb2.PRIORITY_HIGH)[place % 3 == 0]
        cluster.do(job_pb2.TriggerJobRequest(job="narrow", priority=priority))
        cluster.now_ms += 1
    # All but the first find the slot taken.
    granted = cluster.do(Grant((Offer("w", WAITING),), WAITING))
    assert isinstance(granted, list)
    [[first]] = granted
    success = worker_pb2.Success()
    done = worker_pb2.Result(run=first.run, token=first.token, success=success)
    cluster.do(Report("w", (done,)))

    costs = ended_one_by_one(cluster, WAITING - 1)

    assert max(costs[-50:]) <= max(costs[:50]) + 2, (costs[:5], costs[-5:])
    left = [key for table in (keys.PARKED, keys.FIRST_WAITING) for key, _ in
            cluster.store.scan(table, keys.after(table))]  # fmt: skip
    assert left == []


@pytest.mark.parametrize("limit", [{"job": 1}, {"key": "k", "key_limit": 1}], ids=str)
def test_of_a_state_that_does_not_say_where_queues_begin_no_run_is_forgotten(
    limit: dict[str, Any],
) -> None:
    machine = Machine(MemoryStore())
    slot = job_pb2.ConcurrencyLimit(**limit)
    machine.create("narrow", concurrency=slot, overlap=ALLOW)
    queues = ("one", "two", "three")

    def grant_to_all() -> list[worker_pb2.Lease]:
        for place in range(9):
            machine.trigger("narrow", queue=queues[place % 3])
        return machine.grant("w1", 100, queues=queues)

    leases = grant_to_all()
    marks = [key for key, _ in machine.store.scan(keys.FIRST_WAITING, b"x")]
    assert len(marks) == 3
    machine.store.write([], marks)
    machine.forget()
    machine.check()

    leases += grant_to_all()
    while leases:
        machine.succeed(leases.pop())
        machine.check()
        leases += machine.grant("w1", 100, queues=queues)

    assert machine.job("narrow").status.succeeded == 18


def test_a_quota_that_many_wait_for_costs_each_of_them_the_same() -> None:
    cluster = Cluster()
    quota = namespace_pb2.Quota(live_runs=1)
    narrow = namespace_pb2.Namespace(name="default", quota=quota)
    cluster.do(namespace_pb2.UpdateNamespaceRequest(namespace=narrow))
    jobs = WAITING // 4
    for number in range(jobs):
        cluster.do(job_pb2.CreateJobRequest(job=job_of(f"job-{number}")))
        for _ in range(4):
            due = timestamp(START_MS + MINUTE_MS)
            cluster.do(job_pb2.TriggerJobRequest(job=f"job-{number}", due_time=due))
    cluster.now_ms = START_MS + MINUTE_MS
    for _ in range(20):
        cluster.fire()

    costs = ended_one_by_one(cluster, WAITING)

    assert max(costs[-50:]) <= max(costs[:50]) + 2, (costs[:5], costs[-5:])
    assert list(cluster.store.scan(keys.QUOTA_WAIT, keys.after(keys.QUOTA_WAIT))) == []
    assert list(cluster.store.scan(keys.FIRST_WAITING, keys.after(keys.FIRST_WAITING))) == []
