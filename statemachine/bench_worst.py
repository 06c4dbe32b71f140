"""The longest decisions: worlds that are hard on one, each played with the budget of a leader.

`python -m raftsched.statemachine.bench --worst` prints, for each world, how long its longest
decision was in milliseconds, how many there were and what all took together. A decision asks for
the end of its time between two pieces of work, so it may be longer than its budget by one piece.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from ..proto.v1 import (
    calendar_pb2,
    common_pb2,
    dead_letter_pb2,
    job_pb2,
    run_pb2,
    schedule_pb2,
    worker_pb2,
)
from .calls import imports
from .core.budget import until
from .core.instants import duration, timestamp
from .core.rocks_store import RocksStore
from .machine import Request, apply, decide, read_meta
from .model import timers
from .model.request import Bulk, FireTimers, Grant, Imported, Letters, Offer, Report
from .model.view import Recall, View

NOW_MS = 1_800_000_000_000
BUDGET_S = 0.030
FIRINGS = 3_000  # Decisions of one world, at most.
SECOND_MS, MINUTE_MS, HOUR_MS = 1_000, 60_000, 3_600_000
Overlap = job_pb2.OverlapPolicy
Misfire = job_pb2.MisfirePolicy
ALLOW = Overlap(rule=Overlap.RULE_ALLOW)
LARGE = common_pb2.Payload(data=b"x" * 60_000)


@dataclass(slots=True)
class MeteredMachine:
    """A state machine on a disk, with a meter on each decision."""

    store: RocksStore
    now_ms: int = NOW_MS
    index: int = 0
    recall: Recall = field(default_factory=Recall)
    # Of each decision since the last `begin`: seconds of processor time.
    took: list[float] = field(default_factory=list)
    largest: int = 0

    def do(self, *bodies: object) -> list[object]:
        began = time.thread_time()
        budget = until(time.thread_time, began + BUDGET_S)
        view = View(self.store, self.now_ms, self.recall, budget)
        decision = decide(view, [Request(body) for body in bodies])
        self.took.append(time.thread_time() - began)
        self.largest = max(self.largest, len(decision.change))
        if decision.change:
            self.index += 1
            apply(self.store, self.index, decision.change)
        self.recall.keep(view)
        return decision.replies

    def fire(self, most: int = FIRINGS) -> None:
        """Do what is due now, and what it leaves over."""
        for _ in range(most):
            meta = read_meta(self.store)
            firsts = (timers.next_due_ms(self.store, meta), timers.next_later_ms(self.store, meta))
            asked = [
                FireTimers(1_000, later=later)
                for later, at_ms in zip((False, True), firsts, strict=True)
                if at_ms is not None and at_ms <= self.now_ms
            ]
            if not asked:
                return
            for request in asked:
                self.do(request)

    def begin(self) -> None:
        gc.collect()
        self.took, self.largest = [], 0

    def create(self, name: str, expression: str, **spec: object) -> None:
        job = job_pb2.Job(name=name)
        job.spec.MergeFrom(job_pb2.JobSpec(**spec))  # type: ignore[arg-type]  # Fields of a spec.
        job.spec.action.handler = "work"
        for part in expression.split(";"):
            job.spec.schedules.add().cron.expression = part
        self.do(job_pb2.CreateJobRequest(job=job))

    def change(self, name: str, path: str, **spec: object) -> None:
        request = job_pb2.UpdateJobRequest(job=job_pb2.Job(name=name))
        request.job.spec.MergeFrom(job_pb2.JobSpec(**spec))  # type: ignore[arg-type]  # As above.
        request.update_mask.paths.append(path)
        self.do(request)

    def backfill(self, count: int) -> None:
        self.do(job_pb2.BackfillJobRequest(
            job="a", from_time=timestamp(NOW_MS), runs_per_minute=60_000,
            to_time=timestamp(NOW_MS + count * MINUTE_MS),
        ))  # fmt: skip
        for _ in range(count // 100 + 20):
            self.now_ms += 100
            self.fire()


def backfill(world: MeteredMachine) -> None:
    """10,000 times before the job was there, at 60,000 a minute."""
    world.now_ms += 10_001 * MINUTE_MS
    world.create("a", "* * * * *", overlap=ALLOW)
    world.begin()
    world.backfill(10_000)


def backfill_inside(world: MeteredMachine) -> None:
    """10,000 times of a stretch that was missed."""
    world.create("a", "* * * * *", overlap=ALLOW)
    world.now_ms += 20_000 * MINUTE_MS
    world.fire()
    world.begin()
    world.backfill(10_000)


def outage(
    world: MeteredMachine,
    expression: str,
    maximum: int = 10_000,
    grace_ms: int = 0,
    jobs: int = 1_000,
) -> None:
    policy = Misfire(rule=Misfire.RULE_ALL, maximum=maximum, grace=duration(grace_ms))
    for number in range(jobs):
        world.create(f"job-{number}", expression, misfire=policy, overlap=ALLOW)
    world.now_ms += 3 * HOUR_MS
    world.begin()
    for _ in range(50):
        world.now_ms += 20
        world.fire(2)


def outage_of_seconds(world: MeteredMachine) -> None:
    """1,000 jobs of each second, misfire ALL, 3 hours down; the first decisions."""
    outage(world, "* * * * * *")


def outage_of_minutes(world: MeteredMachine) -> None:
    """1,000 jobs of each minute, misfire ALL, 3 hours down; the first decisions."""
    outage(world, "* * * * *", 100)


def outage_of_unions(world: MeteredMachine) -> None:
    """100 jobs of two schedules each, misfire ALL, 3 hours down; the first decisions."""
    outage(world, "*/2 * * * * *;*/3 * * * * *", jobs=100)


def in_time(world: MeteredMachine) -> None:
    """1,000 jobs of each second, late by less than an hour's grace."""
    outage(world, "* * * * * *", grace_ms=4 * HOUR_MS)


def replace(world: MeteredMachine) -> None:
    """120 runs with 60 kB each are replaced by one."""
    crowd(world, 120, LARGE)


def replace_many(world: MeteredMachine) -> None:
    """10,000 runs are replaced by one."""
    crowd(world, 10_000, None)


def crowd(world: MeteredMachine, count: int, payload: common_pb2.Payload | None) -> None:
    world.create("a", "0 * * * *", overlap=ALLOW)
    for _ in range(count):
        world.do(job_pb2.TriggerJobRequest(job="a", payload=payload))
    world.change("a", "spec.overlap", overlap=Overlap(rule=Overlap.RULE_REPLACE))
    world.now_ms += HOUR_MS
    world.begin()
    world.fire()


def deletion(world: MeteredMachine) -> None:
    """A job goes, with 30,000 entries in its ledger and as many runs in the history."""
    world.create("a", "* * * * * *", overlap=ALLOW)
    offer = Grant((Offer("w", 1_000),), 1_000)
    for _ in range(300):
        world.now_ms += 100 * SECOND_MS
        for _ in range(3):
            world.fire()
            [granted] = world.do(offer)
            for leases in granted:  # type: ignore[attr-defined]  # The reply of a Grant.
                world.do(Report("w", tuple(success(lease) for lease in leases)))
    world.begin()
    world.do(job_pb2.DeleteJobRequest(job="a"))
    for _ in range(10):
        world.now_ms += 1
        world.fire()


def success(lease: worker_pb2.Lease) -> worker_pb2.Result:
    return worker_pb2.Result(run=lease.run, token=lease.token, success=worker_pb2.Success())


def update(world: MeteredMachine) -> None:
    """A job gets other schedules while an hour of its old ones is due, and in time."""
    world.create("a", "* * * * * *", overlap=ALLOW, misfire=Misfire(grace=duration(HOUR_MS)))
    world.now_ms += HOUR_MS
    world.begin()
    new = job_pb2.JobSpec()
    new.schedules.add().cron.expression = "0 * * * *"
    world.change("a", "spec.schedules", schedules=new.schedules)
    world.fire()


def drop(world: MeteredMachine) -> None:
    """A backlog of 5,000 is dropped."""
    policy = Misfire(rule=Misfire.RULE_ALL, maximum=10_000)
    world.create("a", "* * * * *", overlap=Overlap(rule=Overlap.RULE_QUEUE), misfire=policy)
    world.now_ms += 5_000 * MINUTE_MS
    world.do(job_pb2.TriggerJobRequest(job="a"))
    world.fire()
    world.begin()
    world.do(job_pb2.DropBacklogRequest(job="a"))
    world.fire()


def letters(world: MeteredMachine) -> None:
    """No dead letter of 30,000 fits the filter of a purge; then all are requeued."""
    queue_ms = job_pb2.Timeouts(queue=duration(SECOND_MS))
    world.create("a", "0 * * * *", overlap=ALLOW, timeouts=queue_ms)
    for _ in range(30_000):
        world.do(job_pb2.TriggerJobRequest(job="a"))
    world.now_ms += 2 * SECOND_MS
    world.fire()
    world.begin()
    for text in ("kind=other", "job=other"):
        looked: object = Letters(dead_letter_pb2.PurgeDeadLettersRequest(filter=text))
        while isinstance(looked, Letters):
            [looked] = world.do(looked)
    for _ in range(20):
        world.do(Letters(dead_letter_pb2.RequeueDeadLettersRequest(filter="kind=timeout.queue")))


def backfill_calls(world: MeteredMachine) -> None:
    """50 jobs are to run 9,990 times of before they were there; then those of one that it ran."""
    world.now_ms += 10_001 * MINUTE_MS
    for number in range(50):
        world.create(f"job-{number}", "* * * * *", overlap=ALLOW)
    world.create("a", "* * * * *", overlap=ALLOW)
    world.backfill(9_990)
    world.begin()
    for number in range(50):
        world.do(backfill_of(f"job-{number}", 9_990))
    world.do(backfill_of("a", 9_990))


def backfill_of(job: str, minutes: int) -> job_pb2.BackfillJobRequest:
    return job_pb2.BackfillJobRequest(
        job=job, from_time=timestamp(NOW_MS), runs_per_minute=60_000,
        to_time=timestamp(NOW_MS + minutes * MINUTE_MS),
    )  # fmt: skip


def many_unions(world: MeteredMachine) -> None:
    """20 jobs of 16 schedules each, misfire ALL, 3 hours down; then one is backfilled."""
    expressions = ";".join(f"*/{step} * * * * *" for step in range(1, 17))
    outage(world, expressions, jobs=20)
    world.do(job_pb2.BackfillJobRequest(
        job="job-0", from_time=timestamp(NOW_MS - 9_000_000), to_time=timestamp(NOW_MS),
    ))  # fmt: skip


def moved_ahead(world: MeteredMachine) -> None:
    """Each other one of 10,000 seconds was moved to before its time, and then all are missed."""
    world.create("a", "* * * * * *", overlap=ALLOW)
    kind = schedule_pb2.OccurrenceEdit.KIND_MOVE
    first_ms = NOW_MS + HOUR_MS
    for hundred in range(50):
        for number in range(100):
            request = job_pb2.EditOccurrenceRequest(job="a")
            request.edit.kind = kind
            at_ms = first_ms + (hundred * 100 + number) * 2 * SECOND_MS
            request.edit.scheduled_time.CopyFrom(timestamp(at_ms))
            request.edit.moved_to.CopyFrom(timestamp(world.now_ms + 500))
            world.do(request)
        world.now_ms += SECOND_MS
        world.fire()
    world.do(job_pb2.PauseJobRequest(job="a"))
    world.now_ms = first_ms + 10_000 * SECOND_MS
    world.begin()
    world.do(job_pb2.ResumeJobRequest(job="a"))
    world.fire()


def trial_import(world: MeteredMachine) -> None:
    """A thousand jobs with a schedule and an action each are imported on trial."""
    request = job_pb2.ImportJobsRequest(validate_only=True)
    for number in range(1_000):
        job = request.jobs.add(name=f"job-{number}")
        job.spec.action.handler = f"work-{number}"
        job.spec.timing.zone = "Europe/Berlin"
        job.spec.schedules.add().cron.expression = f"{number % 60} {number // 60} * * 1-5"
    world.begin()
    import_all(world, request)


def import_all(world: MeteredMachine, request: job_pb2.ImportJobsRequest) -> None:
    """Import jobs in as many decisions as it takes."""
    rest = imports.some_of(request)
    while rest.first < len(request.jobs):
        [reply] = world.do(rest)
        assert isinstance(reply, Imported), reply
        rest = imports.rest_of(rest, reply)


def large_calendars(world: MeteredMachine) -> None:
    """1,000 jobs that name 8 of 100 calendars of 1,000 rules each are imported, changed by another
    import, and fired; then one calendar is changed and all are fired again."""
    for number in range(100):
        world.do(calendar_pb2.CreateCalendarRequest(calendar=large_calendar(number)))
    request = job_pb2.ImportJobsRequest(mode=job_pb2.ImportJobsRequest.MODE_UPSERT)
    for number in range(1_000):
        job = request.jobs.add(name=f"job-{number}")
        job.spec.action.handler = "work"
        names = [f"calendar-{(number * 8 + place) % 100}" for place in range(8)]
        job.spec.timing.exclude_calendars.extend(names)
        job.spec.schedules.add()
    world.begin()
    for expression in ("*/5 * * * *", "*/7 * * * *"):
        for job in request.jobs:
            job.spec.schedules[0].cron.expression = expression
        import_all(world, request)
    for number in range(2):
        world.now_ms += 7 * MINUTE_MS
        world.fire()
        update = calendar_pb2.UpdateCalendarRequest(calendar=large_calendar(number))
        update.calendar.rules[0].weekday = 7
        update.update_mask.paths.append("rules")
        world.do(update)


def large_calendar(number: int) -> calendar_pb2.Calendar:
    calendar = calendar_pb2.Calendar(name=f"calendar-{number}")
    for rule in range(1_000):
        day = date.fromordinal(739_000 + 2 * rule + number)
        calendar.rules.add().date = day.isoformat()
    return calendar


def later(world: MeteredMachine) -> None:
    """A job that queues has 20,000 runs for later, when it is triggered and when runs of it end."""
    world.create("a", "0 0 1 1 *", overlap=Overlap(rule=Overlap.RULE_QUEUE))
    for number in range(20_000):
        due = timestamp(NOW_MS + HOUR_MS + number)
        world.do(job_pb2.TriggerJobRequest(job="a", due_time=due))
    world.begin()
    for _ in range(3):
        for _ in range(2):
            world.do(job_pb2.TriggerJobRequest(job="a"))
        for _ in range(2):
            [granted] = world.do(Grant((Offer("w", 1),), 1))
            for leases in granted:  # type: ignore[attr-defined]  # The reply of a Grant.
                world.do(Report("w", tuple(success(lease) for lease in leases)))


def edits(world: MeteredMachine) -> None:
    """A hundred jobs get a hundred edits each, and lose half of them."""
    for number in range(100):
        world.create(f"job-{number}", "* * * * *")
    world.begin()
    for edit in range(100):
        for number in range(100):
            request = job_pb2.EditOccurrenceRequest(job=f"job-{number}")
            request.edit.kind = schedule_pb2.OccurrenceEdit.KIND_SKIP
            request.edit.scheduled_time.CopyFrom(timestamp(NOW_MS + (100 + edit) * MINUTE_MS))
            world.do(request)
    for edit in range(0, 100, 2):
        for number in range(100):
            at = timestamp(NOW_MS + (100 + edit) * MINUTE_MS)
            world.do(job_pb2.RevertOccurrenceRequest(job=f"job-{number}", scheduled_time=at))


def load_knot(world: MeteredMachine, wide: int, layers: int) -> None:
    """Layers of jobs, each after all of the layer before; they begin when they may."""
    for number in range(layers * wide):
        layer, place = divmod(number, wide)
        upstream = job_pb2.Upstream()
        for other in range(wide if layer else 0):
            upstream.jobs.add(job=f"k-{layer - 1}-{other}")
        job = job_pb2.Job(name=f"k-{layer}-{place}")
        job.spec.CopyFrom(job_pb2.JobSpec(overlap=ALLOW, upstream=upstream))
        job.spec.action.handler = "work"
        if not layer:
            job.spec.upstream.jobs.add(job="first")
        world.do(job_pb2.CreateJobRequest(job=job))


def flow_from_the_middle(world: MeteredMachine) -> None:
    """12 layers of 50 jobs, each after all before; a flow begins in the second and runs to its
    end, and five more begin beside it."""
    world.create("first", "0 0 1 1 *")
    load_knot(world, 50, 12)
    world.begin()
    for number in range(6):
        world.do(job_pb2.TriggerJobRequest(job=f"k-{number // 3}-{number}"))
    while True:
        [granted] = world.do(Grant((Offer("w", 1_000),), 1_000))
        assert isinstance(granted, list)
        results = [success(lease) for lease in granted[0]]
        if not results:
            return
        while results:
            [acks] = world.do(Report("w", tuple(results)))
            assert isinstance(acks, list)
            results = results[len(acks) :]
            world.fire()


def ends_in_bulk(world: MeteredMachine) -> None:
    """2,000 runs with 50 jobs behind each of them are ended in one call after the other."""
    world.create("first", "0 0 1 1 *")
    load_knot(world, 50, 3)
    for number in range(2_000):
        world.do(job_pb2.TriggerJobRequest(job=f"k-0-{number % 50}"))
    world.begin()
    request = run_pb2.ChangeRunsRequest(change=run_pb2.ChangeRunsRequest.CHANGE_TERMINATE)
    while True:
        reply: object = Bulk(request)
        while isinstance(reply, Bulk):
            [reply] = world.do(reply)
        assert isinstance(reply, common_pb2.BulkChange), reply
        request.page_token = reply.next_page_token
        if not request.page_token:
            break
    world.fire()


WORLDS: tuple[Callable[[MeteredMachine], None], ...] = (
    backfill, backfill_inside, outage_of_seconds, outage_of_minutes, outage_of_unions, in_time,
    replace, replace_many, deletion, update, drop, letters,
    backfill_calls, many_unions, moved_ahead, trial_import, large_calendars, later,
    edits, flow_from_the_middle, ends_in_bulk,
)  # fmt: skip


def measure(names: list[str]) -> dict[str, dict[str, float]]:
    """Play the worlds with these names, or all."""
    figures = {}
    for play in WORLDS:
        if names and play.__name__ not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            world = MeteredMachine(RocksStore(Path(folder) / "state"))
            play(world)
            world.store.close()
        figures[play.__name__] = {
            "longest_ms": round(max(world.took) * 1000, 1),
            "decisions": len(world.took),
            "together_s": round(sum(world.took), 2),
            "largest_bytes": world.largest,
        }
    return figures
