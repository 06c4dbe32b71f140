"""What people ask of a scheduler: one table of moves, and one of what an order says.

A seed draws which moves there are at all, and which parts orders have (a swarm), so that some seeds
go deep where others go wide. A move is a small function that makes the next request out of what its
people know; what it asks for may be refused, since they do not know all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from google.protobuf.message import Message

from ...proto.v1 import (
    calendar_pb2,
    common_pb2,
    dead_letter_pb2,
    job_pb2,
    namespace_pb2,
    queue_pb2,
    run_pb2,
    schedule_pb2,
)
from ...statemachine.core.instants import timestamp
from . import orders
from .orders import PARTS

JOBS_MAX = 5
RUNS_KNOWN = 30
LETTERS_MAX = 5
Edit: TypeAlias = schedule_pb2.OccurrenceEdit
Trigger: TypeAlias = job_pb2.TriggerJobRequest
Done = Callable[[Message], None]


def _nothing(_: Message) -> None:
    """The state says what came of it."""


@dataclass
class Known:
    """A job, as those who made it know it."""

    name: str
    triggers: set[str] = field(default_factory=set)  # Runs that were answered.


@dataclass
class Ask:
    """A request, and what follows from its answer."""

    body: Message
    done: Done = _nothing


@dataclass
class People:
    """Who asks, what they know, and which moves they make."""

    dice: Random
    now_ms: Callable[[], int]
    unit_ms: int  # Of their schedules: ten minutes, where days pass.
    moves: frozenset[str]
    parts: frozenset[str]
    prefix: str = "j"
    jobs: dict[str, Known] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)
    calendars: set[str] = field(default_factory=set)
    count: int = 0

    def next(self) -> tuple[str, Ask]:
        """The name of a move, and what it asks."""
        names = [name for name in MOVES if name in self.moves]
        weights = [MOVES[name][0] for name in names]
        name = self.dice.choices(names, weights)[0] if self.jobs else "create"
        ask = MOVES[name][1](self)
        self.count += 1
        ask.body.request_id = f"{self.prefix}-{self.count}"  # type: ignore[attr-defined]  # Each of these has one.
        return name, ask

    def job(self) -> str:
        return self.dice.choice(sorted(self.jobs))

    def run(self) -> str:
        return self.dice.choice(self.runs) if self.runs else f"{self.job()}.1.1.1"

    def learn(self, run: str) -> None:
        """There is such a run."""
        self.runs.append(run)
        del self.runs[:-RUNS_KNOWN]

    def ahead(self) -> int:
        """A time that a schedule may name."""
        step = self.now_ms() // self.unit_ms + self.dice.randrange(1, 30)
        return step * self.unit_ms


# Jobs.


def create(who: People) -> Ask:
    if len(who.jobs) >= JOBS_MAX:
        return update(who)
    body = job_pb2.CreateJobRequest()
    body.job.name = name = f"{who.prefix}{who.count}"
    body.job.spec.action.handler = "work"
    orders.fill(who, body.job.spec)
    return Ask(body, lambda _: who.jobs.update({name: Known(name)}))


def update(who: People) -> Ask:
    """One part of an order is another, or is the default again."""
    part = who.dice.choice(sorted(who.parts))
    body = job_pb2.UpdateJobRequest()
    body.job.name = who.job()
    if who.dice.random() < 0.8:
        PARTS[part].put(who, body.job.spec)
    body.update_mask.paths.extend(PARTS[part].paths)
    return Ask(body)


def import_jobs(who: People) -> Ask:
    """Some are made and some are written anew."""
    body = job_pb2.ImportJobsRequest(mode=job_pb2.ImportJobsRequest.MODE_UPSERT)
    names = [who.job()] + [f"{who.prefix}{who.count}"] * (len(who.jobs) < JOBS_MAX)
    for name in names:
        job = body.jobs.add(name=name)
        job.spec.action.handler = "work"
        orders.fill(who, job.spec)

    def done(reply: Message) -> None:
        assert isinstance(reply, job_pb2.ImportJobsResponse)
        for result in reply.results:
            if result.verdict == job_pb2.ImportResult.VERDICT_CREATED:
                who.jobs[result.job] = Known(result.job)

    return Ask(body, done)


def pause(who: People) -> Ask:
    body = job_pb2.PauseJobRequest(job=who.job())
    if who.dice.random() < 0.3:
        body.until.CopyFrom(timestamp(who.ahead()))
    return Ask(body)


def resume(who: People) -> Ask:
    return Ask(job_pb2.ResumeJobRequest(job=who.job()))


def delete(who: People) -> Ask:
    if len(who.jobs) < 2:
        return resume(who)
    name = who.job()

    def done(_: Message) -> None:
        who.jobs.pop(name, None)

    return Ask(job_pb2.DeleteJobRequest(job=name), done)


# Runs.


def trigger(who: People) -> Ask:
    body = Trigger(job=who.job(), force=who.dice.random() < 0.2)
    if who.dice.random() < 0.2:
        body.if_running = Trigger.IF_RUNNING_REFUSE
    return _triggered(who, body)


def trigger_later(who: People) -> Ask:
    return _triggered(who, Trigger(job=who.job(), due_time=timestamp(who.ahead())))


def trigger_key(who: People) -> Ask:
    """Under a key of the business, or of a limit."""
    body = Trigger(job=who.job(), payload=common_pb2.Payload(data=b"x"))
    if who.dice.random() < 0.5:
        body.unique.key = who.dice.choice("uv")
    else:
        body.concurrency_key = who.dice.choice("kl")
    return _triggered(who, body)


def _triggered(who: People, body: Trigger) -> Ask:
    def done(reply: Message) -> None:
        assert isinstance(reply, run_pb2.Run)
        if body.job in who.jobs:
            who.jobs[body.job].triggers.add(reply.id)
        who.learn(reply.id)

    return Ask(body, done)


def trigger_many(who: People) -> Ask:
    body = job_pb2.TriggerJobsRequest()
    for _ in range(3):
        body.triggers.add(job=who.job())
    return Ask(body)


def cancel(who: People) -> Ask:
    body = run_pb2.CancelRunRequest(run=who.run())
    if who.dice.random() < 0.3:
        body.grace.seconds = who.dice.choice((0, 1, 600))
    return Ask(body)


def terminate(who: People) -> Ask:
    return Ask(run_pb2.TerminateRunRequest(run=who.run()))


def retry(who: People) -> Ask:
    return Ask(run_pb2.RetryRunRequest(run=who.run()))


def requeue(who: People) -> Ask:
    return Ask(dead_letter_pb2.RequeueDeadLetterRequest(run=who.run()))


# Times.


def skip(who: People) -> Ask:
    return _edit(who, Edit.KIND_SKIP)


def move(who: People) -> Ask:
    return _edit(who, Edit.KIND_MOVE)


def add(who: People) -> Ask:
    return _edit(who, Edit.KIND_ADD)


def _edit(who: People, kind: Edit.Kind.ValueType) -> Ask:
    body = job_pb2.EditOccurrenceRequest(job=who.job())
    at_ms = who.ahead()
    if kind == Edit.KIND_ADD:
        at_ms += who.dice.choice((0, who.unit_ms // 2))
    body.edit.kind = kind
    body.edit.scheduled_time.CopyFrom(timestamp(at_ms))
    if kind == Edit.KIND_MOVE:
        moved_ms = who.now_ms() + who.dice.choice((1, 3, 60, 200)) * who.unit_ms // 10
        body.edit.moved_to.CopyFrom(timestamp(moved_ms))
    return Ask(body)


def revert(who: People) -> Ask:
    """Of one that is ahead; whoever wants to hit one tries some."""
    return Ask(job_pb2.RevertOccurrenceRequest(
        job=who.job(), scheduled_time=timestamp(who.ahead())
    ))  # fmt: skip


def backfill(who: People) -> Ask:
    first_ms = who.now_ms() - who.dice.choice((3, 30)) * 6 * who.unit_ms
    end_ms = min(who.now_ms(), first_ms + who.dice.choice((1, 8)) * 6 * who.unit_ms)
    return Ask(job_pb2.BackfillJobRequest(
        job=who.job(), from_time=timestamp(first_ms), to_time=timestamp(end_ms),
        runs_per_minute=who.dice.choice((1, 60, 60_000)),
    ))  # fmt: skip


def drop_backlog(who: People) -> Ask:
    return Ask(job_pb2.DropBacklogRequest(job=who.job()))


# What is shared.


def quota(who: People) -> Ask:
    body = namespace_pb2.UpdateNamespaceRequest()
    body.namespace.name = "default"
    body.namespace.quota.live_runs = who.dice.choice((0, 1, 2, 4))
    body.namespace.quota.leases = who.dice.choice((0, 0, 1, 3))
    body.update_mask.paths.append("quota")
    return Ask(body)


def calendar(who: People) -> Ask:
    """Those that there are say something else, or are made."""
    wanted = calendar_pb2.Calendar(name=who.dice.choice(orders.CALENDARS))
    wanted.zone = who.dice.choice(("", "", *orders.ZONES))
    for _ in range(who.dice.choice((1, 2))):
        orders.leave_out(who, wanted.rules.add())
    if wanted.name not in who.calendars:
        body = calendar_pb2.CreateCalendarRequest(calendar=wanted)
        return Ask(body, lambda _: who.calendars.add(wanted.name))
    return Ask(calendar_pb2.UpdateCalendarRequest(calendar=wanted))


def queue(who: People) -> Ask:
    name, kind = who.dice.choice(orders.QUEUES), who.dice.random()
    if kind < 0.2:
        return Ask(queue_pb2.PauseQueueRequest(queue=name))
    if kind < 0.5:
        return Ask(queue_pb2.ResumeQueueRequest(queue=name))
    body = queue_pb2.UpdateQueueRequest()
    body.queue.name = name
    body.queue.concurrency = who.dice.choice((0, 1, 2))
    body.queue.rate = who.dice.choice((0, 0, 1))
    body.update_mask.paths.extend(("concurrency", "rate"))
    return Ask(body)


def change_jobs(who: People) -> Ask:
    what = job_pb2.ChangeJobsRequest
    kinds = (what.CHANGE_PAUSE, what.CHANGE_RESUME, what.CHANGE_TRIGGER)
    return Ask(what(change=who.dice.choice(kinds)))


def change_runs(who: People) -> Ask:
    what = run_pb2.ChangeRunsRequest
    kinds = (what.CHANGE_CANCEL, what.CHANGE_TERMINATE, what.CHANGE_RETRY)
    return Ask(what(change=who.dice.choice(kinds)))


def letters(who: People) -> Ask:
    if who.dice.random() < 0.7:
        return Ask(dead_letter_pb2.RequeueDeadLettersRequest())
    return Ask(dead_letter_pb2.PurgeDeadLettersRequest())


MOVES: dict[str, tuple[float, Callable[[People], Ask]]] = {
    "create": (6, create),
    "update": (7, update),
    "import": (1, import_jobs),
    "pause": (3, pause),
    "resume": (4, resume),
    "delete": (1, delete),
    "trigger": (6, trigger),
    "trigger_later": (2, trigger_later),
    "trigger_key": (2, trigger_key),
    "trigger_many": (1, trigger_many),
    "cancel": (2, cancel),
    "terminate": (1, terminate),
    "retry": (1, retry),
    "requeue": (2, requeue),
    "skip": (2, skip),
    "move": (4, move),
    "add": (3, add),
    "revert": (3, revert),
    "backfill": (2, backfill),
    "drop_backlog": (1, drop_backlog),
    "quota": (3, quota),
    "calendar": (3, calendar),
    "queue": (2, queue),
    "change_jobs": (0.5, change_jobs),
    "change_runs": (0.5, change_runs),
    "letters": (0.5, letters),
}
ALWAYS = frozenset({"create", "trigger", "resume"})


def draw(dice: Random, more: frozenset[str] = frozenset()) -> tuple[frozenset[str], frozenset[str]]:
    """Which moves a seed has, and which parts its orders have."""
    share = dice.choice((0.2, 0.5, 0.9))
    moves = {name for name in MOVES if dice.random() < share} | ALWAYS
    parts = {name for name in PARTS if dice.random() < share} | {"schedules"}
    return frozenset(moves | (more & MOVES.keys())), frozenset(parts | (more & PARTS.keys()))
