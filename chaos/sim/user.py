"""People and programs who create, change, trigger and delete jobs, and try again when in doubt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from google.protobuf.message import Message

from ...proto.v1 import job_pb2, run_pb2
from ...statemachine.core.instants import duration, timestamp
from ...statemachine.core.rejection import Reason, Refused, Rejection
from .client import SimCall, overdue
from .scheduler import SchedulerNode
from .world import SimViolation

if TYPE_CHECKING:
    from .rules import SchedulerCluster

ANCHOR_MS = 1_767_225_600_000 - 86_400_000
JOBS_MAX = 4
Done = Callable[[Message], None]  # What follows from an answer.
AGAIN = frozenset(
    {
        Reason.ERROR_REASON_NOT_LEADER,
        Reason.ERROR_REASON_NO_QUORUM,
        Reason.ERROR_REASON_LEADER_CHANGED,
        Reason.ERROR_REASON_BACKLOG_FULL,
    }
)


@dataclass
class Owned:
    """A job as its owner knows it; nobody else touches it."""

    name: str
    payload: bytes
    deleted: bool = False
    triggers: set[str] = field(default_factory=set)


class User:
    """One request at a time. Who gets no answer asks elsewhere with the same request id."""

    PAUSE = 0.1  # Seconds between an answer and the next request.
    RETRY_AFTER = (0.1, 0.3, 1.0)  # Seconds until it asks again.

    def __init__(self, number: int, cluster: SchedulerCluster) -> None:
        self.number, self.cluster, self.world = number, cluster, cluster.world
        self.count = 0
        self.calls: list[SimCall] = []
        self.current: SimCall | None = None
        self.stopped = False
        self.busy = False  # A request is not answered yet; it is asked until it is.
        self.jobs: list[Owned] = []

    # Requests.

    def go(self) -> None:
        self.current = None
        if self.busy:
            self.send()
        elif not self.stopped:
            self.busy = True
            self.count += 1
            self.done = self.choose()
            self.send()

    def choose(self) -> Done:
        """Make the next request; return what follows from its answer."""
        dice = self.world.dice
        alive = [job for job in self.jobs if not job.deleted]
        what = dice.choice(("create", "update", "trigger", "trigger", "delete"))
        if not alive or (what == "create" and len(alive) < JOBS_MAX):
            return self.create()
        job = dice.choice(alive)
        if what == "delete" and len(alive) > 1:
            self.body: Message = job_pb2.DeleteJobRequest(job=job.name, request_id=self.request_id)
            return lambda _: setattr(job, "deleted", True)
        return self.trigger(job) if what == "trigger" else self.update(job)

    @property
    def request_id(self) -> str:
        return f"user-{self.number}-{self.count}"

    def create(self) -> Done:
        dice = self.world.dice
        job = Owned(f"u{self.number}-{self.count}", b"0")
        body = job_pb2.CreateJobRequest(request_id=self.request_id)
        body.job.name = job.name
        spec = body.job.spec
        spec.action.handler = "work"
        spec.payload.data = job.payload
        interval = spec.schedules.add().interval
        interval.every.CopyFrom(duration(dice.choice((1_000, 1_000, 1_500, 3_000))))
        interval.anchor.CopyFrom(timestamp(ANCHOR_MS))
        spec.retry.first.CopyFrom(duration(dice.choice((100, 500))))
        if dice.random() < 0.5:
            spec.misfire.grace.CopyFrom(duration(dice.choice((0, 1_000, 2_500))))
            spec.misfire.rule = dice.choice(
                (
                    job_pb2.MisfirePolicy.RULE_LATEST,
                    job_pb2.MisfirePolicy.RULE_SKIP,
                    job_pb2.MisfirePolicy.RULE_ALL,
                )
            )
        if dice.random() < 0.3:
            spec.timeouts.attempt.CopyFrom(duration(dice.choice((300, 1_000))))
        self.body = body
        return lambda _: self.jobs.append(job)

    def update(self, job: Owned) -> Done:
        body = job_pb2.UpdateJobRequest(request_id=self.request_id)
        body.job.name = job.name
        body.job.spec.payload.data = b"%d" % self.count
        body.update_mask.paths.append("spec.payload")
        self.body = body
        return lambda _: setattr(job, "payload", body.job.spec.payload.data)

    def trigger(self, job: Owned) -> Done:
        """Each second one waits for the run that is under way."""
        self.body = job_pb2.TriggerJobRequest(
            job=job.name, force=self.count % 2 == 0, request_id=self.request_id
        )

        def done(reply: Message) -> None:
            assert isinstance(reply, run_pb2.Run)
            if reply.id in job.triggers:
                raise SimViolation(f"S1 two requests of {job.name} were answered with {reply.id}")
            job.triggers.add(reply.id)

        return done

    # Calls.

    def send(self) -> None:
        """Ask whoever seems to lead."""
        node = self.cluster.guess_leader()
        assert isinstance(node, SchedulerNode)
        call = self.current = SimCall(node, node.life, self.world.now, self.request_id)

        def answer(reply: object) -> None:
            self.take_answer(call)
            if call is self.current:
                self.took(reply)

        def unknown() -> None:
            self.take_answer(call)
            if call is self.current:
                self.later(0.02, self.go)

        if node.core is None or node.paused:
            self.later(0.03, self.go)
            return
        call.term = node.core.term
        try:
            node.leader.ask(self.body, "", answer, unknown)
        except Refused:
            self.later(0.03, self.go)
            return
        self.calls.append(call)
        delay = self.world.dice.choice(self.RETRY_AFTER)
        self.world.after(delay, lambda: self.go() if call is self.current else None)

    def took(self, reply: object) -> None:
        if isinstance(reply, Rejection):
            if reply.reason == Reason.ERROR_REASON_JOB_BROKEN:
                self.busy = False
            elif reply.reason not in AGAIN:
                raise SimViolation(f"S1 {self.body!r} was refused: {reply.word}: {reply.message}")
            self.later(0.03, self.go)
            return
        assert isinstance(reply, Message), reply
        self.done(reply)
        self.busy = False
        self.cluster.oracle.counts["answers"] += 1
        self.later(self.PAUSE, self.go)

    def later(self, delay: float, what: Callable[[], None]) -> None:
        waiting = self.current
        pause = delay * (0.5 + self.world.dice.random())
        self.world.after(pause, lambda: what() if waiting is self.current else None)

    def take_answer(self, call: SimCall) -> None:
        if call.answered:
            raise SimViolation(f"H1 {call.what} was answered twice by {call.node.name}")
        call.answered = True

    def check(self) -> None:
        self.calls = overdue(self.calls, self.world.now)
