"""What a random history may do to the rules and to a slow model of them, and what is compared.

After each step everything users can see is compared, and every derived table is checked against
the records. Set RAFTSCHED_EXAMPLES to run another number of histories than the usual ones, and
RAFTSCHED_SEED to run those of a seed again; a run that fails prints its own.
"""

from __future__ import annotations

import os
from collections import Counter
from random import randrange

from google.protobuf.field_mask_pb2 import FieldMask
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from raftsched.proto.v1 import (
    common_pb2,
    event_pb2,
    job_pb2,
    namespace_pb2,
    run_pb2,
    schedule_pb2,
    worker_pb2,
)
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.core.rejection import Rejection
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.request import Report
from raftsched.statemachine.reads.events import ENDS, events

from .driver import START_MS, Machine
from .model import LIVE, Job, Model, Run, Spec

EXAMPLES = os.environ.get("RAFTSCHED_EXAMPLES", "")
# In CI they are always the same; whoever wants more of them gets others.
SEED = int(os.environ.get("RAFTSCHED_SEED", randrange(1, 1 << 32) if EXAMPLES else 1))
Overlap = job_pb2.OverlapPolicy
Misfire = job_pb2.MisfirePolicy
Delivery = job_pb2.Delivery
Trigger = job_pb2.TriggerJobRequest

specs = st.builds(
    Spec,
    every_ms=st.sampled_from([0, 0, 10_000, 30_000]),
    priority=st.sampled_from(["HIGH", "MEDIUM", "MEDIUM", "LOW"]),
    overlap=st.sampled_from(["ALLOW", "SKIP", "QUEUE_ONE", "QUEUE", "REPLACE"]),
    overlap_limit=st.integers(0, 3),
    misfire=st.sampled_from(["LATEST", "EARLIEST", "SKIP", "ALL"]),
    misfire_maximum=st.integers(1, 4),
    grace_ms=st.sampled_from([0, 1_000, 20_000, 60_000]),
    start_deadline_ms=st.sampled_from([0, 0, 0, 25_000]),
    max_runs=st.sampled_from([0, 0, 0, 3]),
    max_attempts=st.integers(1, 3),
    wait_ms=st.sampled_from([0, 1_000, 7_000]),
    at_most_once=st.booleans(),
    job_limit=st.sampled_from([0, 0, 1, 2]),
    key=st.sampled_from(["", "", "k"]),
    attempt_timeout_ms=st.sampled_from([0, 0, 9_000]),
    queue_timeout_ms=st.sampled_from([0, 0, 40_000]),
    run_timeout_ms=st.sampled_from([0, 0, 90_000]),
)


def order(name: str, spec: Spec) -> job_pb2.CreateJobRequest:
    """A spec of the model as a user would send it."""
    wanted = job_pb2.Job(name=name)
    sent = wanted.spec
    sent.action.handler = "work"
    sent.priority = common_pb2.Priority.Value(f"PRIORITY_{spec.priority}")
    if spec.every_ms:
        sent.schedules.add().interval.every.CopyFrom(duration(spec.every_ms))
    if spec.once_ms:
        sent.schedules.add().once.time.CopyFrom(timestamp(spec.once_ms))
    sent.overlap.rule = Overlap.Rule.Value(f"RULE_{spec.overlap}")
    sent.overlap.limit = spec.overlap_limit
    sent.misfire.rule = Misfire.Rule.Value(f"RULE_{spec.misfire}")
    sent.misfire.maximum = spec.misfire_maximum
    sent.misfire.grace.CopyFrom(duration(spec.grace_ms))
    if spec.start_deadline_ms:
        sent.misfire.start_deadline.CopyFrom(duration(spec.start_deadline_ms))
    sent.timing.max_runs = spec.max_runs
    sent.retry.max_attempts = spec.max_attempts
    sent.retry.first.CopyFrom(duration(spec.wait_ms))
    sent.retry.factor_percent = 100
    sent.retry.jitter_percent = 0
    if spec.at_most_once:
        sent.delivery = job_pb2.DELIVERY_AT_MOST_ONCE
    sent.concurrency.job = spec.job_limit
    if spec.key:
        sent.concurrency.key = spec.key
        sent.concurrency.key_limit = 2
    for field in ("attempt", "queue", "run"):
        ms = getattr(spec, f"{field}_timeout_ms")
        if ms:
            getattr(sent.timeouts, field).CopyFrom(duration(ms))
    return job_pb2.CreateJobRequest(job=wanted)


def play(kind: type[RuleBasedStateMachine], examples: int) -> None:
    """Play that many histories, or as many as somebody wants."""
    number = int(EXAMPLES or examples)
    # Shown where the test fails.
    print(f"RAFTSCHED_SEED={SEED} RAFTSCHED_EXAMPLES={number}")  # noqa: T201
    run_state_machine_as_test(
        seed(SEED)(kind),
        settings=settings(
            max_examples=number,
            stateful_step_count=40,
            deadline=None,
            print_blob=True,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
        ),
    )


def run_id(run: Run) -> str:
    return keys.run_id(run.job.name, run.job.uid, run.scheduled_ms << 16 | run.serial)


class CommonHistory(RuleBasedStateMachine):
    """Each rule does the same to the rules and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine(MemoryStore())
        self.model = self.new_model()
        self.model.now_ms = START_MS
        self.old_leases: list[tuple[Run, int]] = []
        # Leases whose attempt is recorded as failed.
        self.failed: set[int] = set()

    @staticmethod
    def new_model() -> Model:
        return Model()

    def runs(self, *states: str) -> list[Run]:
        return [r for job in self.model.jobs.values() for r in job.runs if r.state in states]

    def pick(self, data: st.DataObject, *states: str) -> Run:
        return data.draw(st.sampled_from(sorted(self.runs(*states), key=lambda run: run.place)))

    @rule(ms=st.sampled_from([1, 40, 1_000, 4_999, 5_000, 10_000, 31_000, 61_000, 300_000]))
    def wait(self, ms: int) -> None:
        self.machine.advance(ms)
        self.model.now_ms += ms

    @rule()
    def fire(self) -> None:
        self.machine.fire()
        while self.model.fire():
            pass

    @rule(ms=st.sampled_from([10_000, 30_000]))
    def wait_and_ring(self, ms: int) -> None:
        self.wait(ms)
        self.fire()

    @rule(ms=st.sampled_from([125_000, 3_600_000, 10_000_000]))
    def outage(self, ms: int) -> None:
        """Nobody leads for a while, and who does then remembers nothing."""
        self.wait(ms)
        self.machine.forget()
        self.fire()

    @rule(quota=st.sampled_from([0, 0, 1, 2, 4]))
    def limit(self, quota: int) -> None:
        settings = namespace_pb2.Namespace(name="default")
        settings.quota.live_runs = quota
        mask = FieldMask(paths=["quota"])
        self.machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=settings, update_mask=mask))
        self.model.limit(quota)

    def editable(self) -> list[str]:
        """Where what is moved or added meets max_runs the audit's stories look."""
        return sorted(name for name, job in self.model.jobs.items() if not job.spec.max_runs)

    @precondition(lambda self: self.editable())
    @rule(
        data=st.data(), kind=st.sampled_from(["SKIP", "MOVE", "MOVE", "ADD"]),
        steps=st.integers(0, 5), off=st.sampled_from([0, 0, 0, 3_000]),
        by=st.sampled_from([-25_000, -1, 1, 30_000, 47_000, 400_000]),
    )  # fmt: skip
    def edit(self, data: st.DataObject, kind: str, steps: int, off: int, by: int) -> None:
        name = data.draw(st.sampled_from(self.editable()))
        job = self.model.jobs[name]
        at_ms: int = max(job.next_ms or 0, self.model.now_ms + 1)
        at_ms += steps * (job.spec.every_ms or 10_000) + (off or 5_000 * (kind == "ADD"))
        edit = schedule_pb2.OccurrenceEdit(
            kind=schedule_pb2.OccurrenceEdit.Kind.Value(f"KIND_{kind}"),
            scheduled_time=timestamp(at_ms),
        )
        if kind == "MOVE":
            edit.moved_to.CopyFrom(timestamp(at_ms + by))
        [reply] = self.machine.do_all(job_pb2.EditOccurrenceRequest(job=name, edit=edit))
        done = self.model.edit(name, kind, at_ms, at_ms + by)
        assert isinstance(reply, Rejection) != done, reply

    @precondition(lambda self: any(job.edits for job in self.model.jobs.values()))
    @rule(data=st.data())
    def revert(self, data: st.DataObject) -> None:
        edits = [(name, at) for name, job in self.model.jobs.items() for at in job.edits]
        name, at_ms = data.draw(st.sampled_from(sorted(edits)))
        self.machine.do(job_pb2.RevertOccurrenceRequest(job=name, scheduled_time=timestamp(at_ms)))
        self.model.revert(name, at_ms)

    @precondition(lambda self: self.model.jobs)
    @rule(
        data=st.data(), back=st.sampled_from([35_000, 120_000, 700_000]),
        length=st.sampled_from([30_000, 100_000]), pace=st.sampled_from([6, 60, 60_000]),
    )  # fmt: skip
    def backfill(self, data: st.DataObject, back: int, length: int, pace: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.jobs)))
        job = self.model.jobs[name]
        from_ms = max(self.model.now_ms - back, job.created_ms + 1)
        to_ms = min(self.model.now_ms, from_ms + length)
        if from_ms >= to_ms or len(job.backlog) >= limits.SCHEDULES:
            return
        request = job_pb2.BackfillJobRequest(
            job=name, from_time=timestamp(from_ms), to_time=timestamp(to_ms), runs_per_minute=pace
        )
        answer = self.machine.ask(request, job_pb2.BackfillJobResponse)
        assert answer.planned == self.model.backfill(name, from_ms, to_ms, pace)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), force=st.booleans(), refuse=st.booleans())
    def trigger(self, data: st.DataObject, force: bool, refuse: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.jobs)))
        kind = Trigger.IF_RUNNING_REFUSE if refuse else Trigger.IF_RUNNING_UNSPECIFIED
        [reply] = self.machine.do_all(Trigger(job=name, force=force, if_running=kind))
        expected = self.model.trigger(name, force, refuse)
        if isinstance(expected, str):
            assert isinstance(reply, Rejection)
            assert reply.word == expected
        else:
            assert isinstance(reply, run_pb2.Run), reply
            assert reply.id == run_id(expected)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), until=st.sampled_from([0, 0, 45_000]))
    def pause(self, data: st.DataObject, until: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.jobs)))
        until_ms = self.model.now_ms + until if until else 0
        request = job_pb2.PauseJobRequest(job=name)
        if until_ms:
            request.until.CopyFrom(timestamp(until_ms))
        self.machine.do(request)
        self.model.pause(name, until_ms)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.jobs)))
        self.machine.do(job_pb2.ResumeJobRequest(job=name))
        self.model.resume(name)

    @rule(worker=st.sampled_from(["w1", "w2"]), most=st.integers(1, 5))
    def grant(self, worker: str, most: int) -> None:
        leases = self.machine.grant(worker, most)
        given = self.model.grant(worker, most)
        assert [(x.run, x.token, x.attempt) for x in leases] == [
            (run_id(run), run.token, run.attempt) for run in given
        ]
        self.old_leases += [(run, run.token) for run in given]

    def report(self, run: Run, token: int, **end: object) -> worker_pb2.ResultAck:
        result = worker_pb2.Result(run=run_id(run), token=token, **end)  # type: ignore[arg-type]
        [ack] = self.machine.ask(Report("w1", (result,)), list)
        assert isinstance(ack, worker_pb2.ResultAck)
        return ack

    @precondition(lambda self: self.runs("RUNNING"))
    @rule(data=st.data(), how=st.sampled_from(["success", "failure", "fatal", "given_back"]))
    def end_an_attempt(self, data: st.DataObject, how: str) -> None:
        run = self.pick(data, "RUNNING")
        if how == "success":
            ack = self.report(run, run.token, success=worker_pb2.Success())
            self.model.succeed(run)
        elif how == "given_back":
            ack = self.report(run, run.token, given_back=worker_pb2.GivenBack())
            self.model.release(run)
        else:
            failure = worker_pb2.Failure(fatal=how == "fatal")
            if not run.cancel_ms:
                self.failed.add(run.token)
            ack = self.report(run, run.token, failure=failure)
            self.model.fail(run, how == "fatal")
        assert not ack.reason, ack

    @precondition(lambda self: self.old_leases)
    @rule(data=st.data())
    def report_late(self, data: st.DataObject) -> None:
        run, token = data.draw(st.sampled_from(self.old_leases))
        if run.state == "RUNNING" and run.token == token:
            return
        ack = self.report(run, token, success=worker_pb2.Success())
        word = "ALREADY_REPORTED" if token in self.failed else "LEASE_LOST"
        is_recorded = run.state == "SUCCEEDED" and run.token == token
        assert ack.reason == ("" if is_recorded else word)

    @rule(worker=st.sampled_from(["w1", "w2"]))
    def lapse(self, worker: str) -> None:
        self.machine.lapse(worker)
        self.model.lapse(worker)

    @precondition(lambda self: self.runs(*LIVE))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        run = self.pick(data, *LIVE)
        self.machine.do(run_pb2.CancelRunRequest(run=run_id(run)))
        self.model.cancel(run)

    @precondition(lambda self: self.runs(*LIVE))
    @rule(data=st.data())
    def terminate(self, data: st.DataObject) -> None:
        run = self.pick(data, *LIVE)
        self.machine.do(run_pb2.TerminateRunRequest(run=run_id(run)))
        self.model.terminate(run)

    @invariant()
    def users_see_the_same(self) -> None:
        self.model.settle()
        for name, job in self.model.jobs.items():
            self.compare(name, job)

    @rule()
    def everything_derived_is_right(self) -> None:
        self.machine.check()

    def teardown(self) -> None:
        self.machine.check()
        fired, ended = self.told()
        again = self.may_end_twice()
        runs = [run for job in self.model.jobs.values() for run in job.runs]
        once = [count for counts in (fired, ended) for run, count in counts.items()
                if run not in again]  # fmt: skip
        assert max(once, default=1) == 1
        assert {run_id(run) for run in runs} <= set(fired)
        assert {run_id(run) for run in runs if run.state not in LIVE} <= set(ended)
        assert not {run_id(run) for run in runs if run.state in LIVE} & (set(ended) - again)

    def may_end_twice(self) -> set[str]:
        """What a policy skipped before it began, and a backfill ran."""
        return {run_id(run) for job in self.model.jobs.values() for run in job.again}

    def told(self) -> tuple[Counter[str], Counter[str]]:
        """How often watchers were told that a run has begun, and that it has ended."""
        fired, ended = Counter[str](), Counter[str]()
        for place, change in enumerate(self.machine.log):
            for event in events(change, place + 1, self.machine.store):
                fired[event.run.id] += event.kind == event_pb2.EVENT_KIND_RUN_FIRED
                ended[event.run.id] += event.kind in ENDS.values()
        return +fired, +ended

    def compare(self, name: str, job: Job) -> None:
        seen = self.machine.job(name).status
        live = job.live()
        assert job_pb2.JobStatus.State.Name(seen.state) == f"STATE_{job.state}"
        assert seen.next_scheduled_time.ToMilliseconds() == (job.next_ms or 0)
        assert (seen.fired, seen.live) == (job.fired, len(live))
        waiting = sum(len(part.times) for part in job.backlog)
        # What a backfill planned, and what ran by itself meanwhile, counts until its part is over.
        backfilling = any(part.pace_ms for part in job.backlog)
        assert seen.backlog == waiting or (backfilling and seen.backlog > waiting)
        assert seen.held == sum(run.held for run in live)
        assert seen.running == sum(run.state == "RUNNING" for run in live)
        for state in ("SUCCEEDED", "FAILED"):
            ended = sum(run.state == state for run in job.runs)
            assert getattr(seen, state.lower()) == ended, state
        assert [self.shown(run) for run in self.machine.live(name)] == [
            (run_id(r), r.state, r.held, r.attempt, r.token, r.worker) for r in live
        ]
        assert self.outcomes(name, job) == job.ledger
        Kind = schedule_pb2.OccurrenceEdit.Kind
        assert {
            edit.scheduled_time.ToMilliseconds(): Kind.Name(edit.kind).removeprefix("KIND_")
            for edit in seen.edits
            if edit.kind != Kind.KIND_SKIP
            or edit.scheduled_time.ToMilliseconds() > self.model.now_ms
        } == {
            at: edit.kind for at, edit in job.edits.items() if edit.due_ms or at > self.model.now_ms
        }

    @staticmethod
    def shown(run: run_pb2.Run) -> tuple[str, str, bool, int, int, str]:
        state = run_pb2.RunState.Name(run.state).removeprefix("RUN_STATE_")
        return (run.id, state, run.held, run.attempt, run.token, run.worker)

    def outcomes(self, name: str, job: Job) -> dict[int, str]:
        """The ledger, stretches spelled out."""
        found: dict[int, str] = {}
        for first_ms, entry in sorted(self.machine.ledger(name).items()):
            word = run_pb2.Outcome.Name(entry.outcome).removeprefix("OUTCOME_")
            at: int | None = first_ms
            while at is not None and at <= max(first_ms, entry.last_at_ms):
                found[at] = word
                at = job.after(at)
        return found
