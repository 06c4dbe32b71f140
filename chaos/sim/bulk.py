"""One who asks for much at once: a flow, a crowd of runs that is replaced, a backfill.

Each is more than one decision may do when its time is counted, so it has to go on in steps; the
oracle sees how much of it one change does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from google.protobuf.message import Message

from ...proto.v1 import job_pb2, run_pb2
from ...statemachine.core.instants import duration, timestamp
from .options import BACKFILL_TIMES
from .user import ANCHOR_MS, Done, Owned, User

if TYPE_CHECKING:
    from .rules import SchedulerCluster

CHAIN = 20  # Jobs that wait one for the other, behind the root.
FAN = 40  # Jobs that wait for the root.
CROWD = 24  # Runs that give way to one.
MINUTE_MS = 60_000
NOBODY = "nobody"  # A handler that no worker has: its runs stay ready.
Dependency, Overlap = job_pb2.Dependency, job_pb2.OverlapPolicy


class BulkUser(User):
    """Asks for one thing, call by call, and then for nothing more."""

    PAUSE = 0.01
    # An import is many decisions, and whoever asks again begins with the first of them.
    RETRY_AFTER = (2.0, 3.0, 4.0)

    def __init__(self, number: int, cluster: SchedulerCluster) -> None:
        super().__init__(number, cluster)
        self.run = ""
        scripts = {"flow": self.flow, "replace": self.replace, "backfill": self.backfill}
        self.script = scripts[cluster.options.bulk]()
        self.following = next(self.script, None)

    def go(self) -> None:
        if self.busy or self.following is not None:
            super().go()

    def choose(self) -> Done:
        ask, self.following = self.following, None
        assert ask is not None
        done = ask()

        def then(reply: Message) -> None:
            done(reply)
            self.following = next(self.script, None)

        return then

    # What it asks for.

    def flow(self) -> Iterator[Callable[[], Done]]:
        """A root with a chain and a fan behind it; it ends as it will, or is cancelled."""
        cancelled = self.world.dice.random() < 0.5
        root = Owned(f"root-{self.number}", b"")
        yield lambda: self.import_flow(root, NOBODY if cancelled else "work")
        yield lambda: self.trigger_once(root)
        if cancelled:
            yield self.cancel

    def replace(self) -> Iterator[Callable[[], Done]]:
        """Many runs wait, all under way or all but one held back; then only one may."""
        held = self.world.dice.random() < 0.3
        before = Overlap.RULE_QUEUE if held else Overlap.RULE_ALLOW
        after = Overlap.RULE_QUEUE_ONE if held else Overlap.RULE_REPLACE
        crowd = Owned(f"crowd-{self.number}", b"x" * 200)
        yield lambda: self.create_crowd(crowd, before)
        for _ in range(CROWD):
            yield lambda: self.trigger_once(crowd)
        yield lambda: self.change_overlap(crowd, after)
        yield lambda: self.trigger_once(crowd)

    def backfill(self) -> Iterator[Callable[[], Done]]:
        """Times of a day before the job was there."""
        past = Owned(f"past-{self.number}", b"")
        yield lambda: self.create_past(past)
        yield lambda: self.fill(past)

    # Its calls.

    def import_flow(self, root: Owned, handler: str) -> Done:
        body = job_pb2.ImportJobsRequest(request_id=self.request_id)
        body.mode = job_pb2.ImportJobsRequest.MODE_UPSERT
        body.jobs.add(name=root.name).spec.action.handler = handler
        before = root.name
        for place in range(CHAIN):
            before = _add(body, f"chain-{place}", before, Dependency.CONDITION_SUCCESS)
        for place in range(FAN):
            _add(body, f"fan-{place}", root.name, Dependency.CONDITION_ANY_END)
        self.body = body
        return lambda _: self.jobs.append(root)

    def create_crowd(self, job: Owned, rule: job_pb2.OverlapPolicy.Rule.ValueType) -> Done:
        body = job_pb2.CreateJobRequest(request_id=self.request_id)
        body.job.name = job.name
        body.job.spec.action.handler = NOBODY
        body.job.spec.payload.data = job.payload
        body.job.spec.overlap.rule = rule
        body.job.spec.overlap.limit = 2 * CROWD
        self.body = body
        return lambda _: self.jobs.append(job)

    def change_overlap(self, job: Owned, rule: job_pb2.OverlapPolicy.Rule.ValueType) -> Done:
        body = job_pb2.UpdateJobRequest(request_id=self.request_id)
        body.job.name = job.name
        body.job.spec.overlap.rule = rule
        body.update_mask.paths.append("spec.overlap")
        self.body = body
        return _nothing

    def create_past(self, job: Owned) -> Done:
        body = job_pb2.CreateJobRequest(request_id=self.request_id)
        body.job.name = job.name
        spec = body.job.spec
        spec.action.handler = "work"
        spec.overlap.rule = Overlap.RULE_ALLOW
        interval = spec.schedules.add().interval
        interval.every.CopyFrom(duration(MINUTE_MS))
        interval.anchor.CopyFrom(timestamp(ANCHOR_MS))
        self.body = body
        return lambda _: self.jobs.append(job)

    def fill(self, job: Owned) -> Done:
        end_ms = ANCHOR_MS + BACKFILL_TIMES * MINUTE_MS
        self.body = job_pb2.BackfillJobRequest(
            job=job.name, runs_per_minute=60_000, request_id=self.request_id,
            from_time=timestamp(ANCHOR_MS), to_time=timestamp(end_ms),
        )  # fmt: skip
        return _nothing

    def trigger_once(self, job: Owned) -> Done:
        done = self.trigger(job)
        self.body.ClearField("force")

        def then(reply: Message) -> None:
            done(reply)
            assert isinstance(reply, run_pb2.Run)
            self.run = reply.id

        return then

    def cancel(self) -> Done:
        self.body = run_pb2.CancelRunRequest(run=self.run, request_id=self.request_id)
        return _nothing


def _add(
    body: job_pb2.ImportJobsRequest,
    name: str,
    before: str,
    when: job_pb2.Dependency.Condition.ValueType,
) -> str:
    job = body.jobs.add(name=name)
    job.spec.action.handler = "work"
    job.spec.upstream.jobs.add(job=before, condition=when)
    return name


def _nothing(_: Message) -> None:
    """The state says what came of it."""
