"""Waves of any length and width go on in bounded steps, and lose nothing between them."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import flow_pb2, job_pb2, run_pb2, worker_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.budget import Steps
from raftsched.statemachine.core.rejection import Reason
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.machine import Request, apply, decide
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import FlowRecord, StepRecord, encode, parse
from raftsched.statemachine.model.request import FireTimers, Grant, Offer, Report
from raftsched.statemachine.model.view import View

from .asking import ask
from .driver import DAY_MS, HOUR_MS, START_MS, Machine, cut_off, due_requests, job_of
from .world import ALLOW

Step = flow_pb2.FlowStep
NO_RETRY = job_pb2.RetryPolicy(max_attempts=1)
ENDS_MAX = 200_000


class Leader:
    """Decides with a budget, each decision on what the one before left in the store."""

    def __init__(self, steps: int = 1_000_000) -> None:
        self.store = MemoryStore()
        self.now_ms = START_MS
        self.index = 0
        self.steps = steps
        self.sizes: list[int] = []
        self.budgets: list[Steps] = []

    def do(self, body: object) -> object:
        budget = Steps(self.steps)
        self.budgets.append(budget)
        decision = decide(View(self.store, self.now_ms, is_spent=budget), [Request(body)])
        if decision.change:
            self.index += 1
            apply(self.store, self.index, decision.change)
        self.sizes.append(len(decision.change))
        return decision.replies[0]

    def create(self, *jobs: job_pb2.Job) -> None:
        for start in range(0, len(jobs), 500):
            self.do(job_pb2.ImportJobsRequest(jobs=jobs[start : start + 500]))

    def lease(self) -> worker_pb2.Lease:
        granted = self.do(Grant((Offer("w", 1),), 1))
        assert isinstance(granted, list)
        [[lease]] = granted
        assert isinstance(lease, worker_pb2.Lease)
        return lease

    def end(self, lease: worker_pb2.Lease, *, well: bool) -> worker_pb2.ResultAck:
        end = worker_pb2.Result(run=lease.run, token=lease.token)
        if well:
            end.success.SetInParent()
        else:
            end.failure.fatal = True
        acks = self.do(Report("w", (end,)))
        assert isinstance(acks, list)
        [ack] = acks
        assert isinstance(ack, worker_pb2.ResultAck)
        return ack

    def fire(self, most: int = ENDS_MAX) -> int:
        """FireTimers until nothing is due; how many changes that took."""
        for changes in range(most):
            asked = due_requests(self.store, self.now_ms)
            if not asked:
                return changes
            for request in asked:
                self.do(request)
        raise AssertionError(f"after {most} changes timers are still due")

    def flow(self) -> FlowRecord:
        [(key, value)] = list(self.store.scan(keys.FLOW, keys.after(keys.FLOW)))
        return parse(key, value, FlowRecord)

    def states(self) -> list[Step.State.ValueType]:
        found = self.store.scan(keys.STEP, keys.after(keys.STEP))
        return [parse(key, value, StepRecord).state for key, value in found]

    def check(self) -> None:
        machine = Machine(self.store)
        machine.at(self.now_ms)
        machine.check()


def chain(length: int) -> list[job_pb2.Job]:
    jobs = [job_of("job-0", retry=NO_RETRY)]
    return jobs + [job_of(f"job-{n}", after=[f"job-{n - 1}"]) for n in range(1, length)]


def fan(width: int) -> list[job_pb2.Job]:
    return [job_of("root"), *(job_of(f"job-{n}", after=["root"]) for n in range(width))]


@pytest.mark.parametrize(("length", "steps"), [(1_100, 1_000_000), (1_100, 50), (60, 5), (60, 1)])
def test_a_chain_whose_root_fails_is_settled(length: int, steps: int) -> None:
    leader = Leader()
    leader.create(*chain(length))
    leader.do(job_pb2.TriggerJobRequest(job="job-0"))
    lease = leader.lease()
    leader.steps = steps

    ack = leader.end(lease, well=False)
    leader.check()
    leader.fire()

    assert not ack.reason
    assert leader.states() == [Step.STATE_CANNOT_RUN] * (length - 1)
    assert leader.flow().ended_at_ms
    leader.check()


@pytest.mark.parametrize("well", [True, False])
@pytest.mark.parametrize(("width", "steps"), [(3_000, 1_000_000), (300, 20), (30, 1)])
def test_what_many_jobs_wait_for_is_told_in_bounded_changes(
    well: bool, width: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHANGE_BYTES", 200_000)
    leader = Leader()
    leader.create(*fan(width))
    leader.do(job_pb2.TriggerJobRequest(job="root"))
    lease = leader.lease()
    leader.steps = steps
    leader.sizes.clear()
    leader.budgets.clear()

    ack = leader.end(lease, well=well)
    leader.check()
    leader.fire()

    assert not ack.reason
    wanted = Step.STATE_FIRED if well else Step.STATE_CANNOT_RUN
    assert leader.states() == [wanted] * width
    assert leader.flow().live == (width if well else 0)
    assert max(leader.sizes) < 250_000
    # Nothing goes on for long after its budget is spent.
    assert min(budget.left for budget in leader.budgets) >= -3
    leader.check()


def test_an_end_costs_the_same_however_many_steps_its_wave_has() -> None:
    leader = Leader()
    leader.create(*fan(1_000))
    leader.do(job_pb2.TriggerJobRequest(job="root"))
    leader.end(leader.lease(), well=True)
    leader.fire()
    leases = [leader.lease() for _ in range(20)]
    leader.sizes.clear()

    for lease in leases:
        leader.end(lease, well=True)

    assert max(leader.sizes) < 1_000


def test_who_is_still_to_be_told_stands_in_the_state_and_is_told_after_a_crash() -> None:
    leader = Leader()
    leader.create(*fan(500))
    leader.do(job_pb2.TriggerJobRequest(job="root"))
    lease = leader.lease()
    leader.steps = 10
    leader.end(lease, well=True)
    told = len(leader.states())
    other = Leader(10)
    other.store, other.index = leader.store, leader.index

    other.fire()

    assert told < 500
    assert leader.flow().notices == 0
    assert other.states() == [Step.STATE_FIRED] * 500


def test_a_wave_does_not_end_while_some_are_still_to_be_told() -> None:
    leader = Leader(steps=1)
    leader.create(*chain(5))
    leader.do(job_pb2.TriggerJobRequest(job="job-0"))

    leader.end(leader.lease(), well=False)

    assert not leader.flow().ended_at_ms
    leader.fire()
    assert leader.flow().ended_at_ms


@pytest.mark.parametrize("steps", [1, 5, 1_000_000])
def test_a_wave_that_has_had_its_time_goes_in_steps(steps: int) -> None:
    leader = Leader()
    leader.create(*fan(50))
    leader.do(job_pb2.TriggerJobRequest(job="root"))
    leader.end(leader.lease(), well=False)
    leader.fire()
    leader.now_ms += 31 * DAY_MS
    leader.steps = steps

    leader.fire()

    for table in (keys.FLOW, keys.STEP, keys.NOTICE, keys.FLOW_BY_AGE):
        assert next(leader.store.scan(table, keys.after(table)), None) is None
    leader.check()


@pytest.mark.parametrize("steps", [1, 7, 1_000_000])
def test_stuck_steps_are_looked_for_in_steps(steps: int) -> None:
    leader = Leader()
    joins = [job_of(f"join-{n:02}", after=["root", "never"]) for n in range(40)]
    leader.create(job_of("root"), job_of("never", after=["root"]), *joins)
    leader.do(cut_off("never"))
    leader.do(job_pb2.TriggerJobRequest(job="root"))
    leader.end(leader.lease(), well=True)
    leader.fire()
    leader.now_ms += DAY_MS
    leader.steps = steps

    leader.fire()

    assert leader.flow().stuck
    assert leader.flow().waiting == 40
    leader.check()
    # It goes at last, as a failure does.
    leader.now_ms += 31 * DAY_MS
    leader.fire()
    assert not leader.states()


def test_a_step_that_comes_while_others_are_looked_at_is_found_stuck_in_its_time() -> None:
    leader = Leader()
    soon = job_pb2.Upstream(stuck_after={"seconds": 3600})  # type: ignore[arg-type]
    late = job_of("a-late", after=["slow", "never"], upstream=soon)
    joins = [job_of(f"join-{n:02}", after=["root", "never"]) for n in range(10)]
    slow, never = job_of("slow", after=["root"]), job_of("never", after=["root"])
    leader.create(job_of("root"), never, slow, late, *joins)
    leader.do(cut_off("never"))
    leader.do(job_pb2.TriggerJobRequest(job="root"))
    leader.end(leader.lease(), well=True)
    leader.fire()
    lease = leader.lease()
    leader.now_ms += DAY_MS - HOUR_MS // 2
    leader.steps = 3
    leader.now_ms += HOUR_MS // 2
    leader.do(FireTimers(10))
    leader.do(FireTimers(10, later=True))

    leader.end(lease, well=True)
    leader.fire()
    assert leader.flow().stuck_since_ms == 0
    leader.now_ms += HOUR_MS + 2_000
    leader.fire()

    assert leader.flow().stuck_since_ms
    leader.check()


def test_a_wave_from_before_goes_on() -> None:
    """A record without the newer fields, with its jobs in it, as an earlier version wrote it."""
    leader = Leader()
    never = job_of("never", after=["job-0"])
    leader.create(*chain(4), never, job_of("join", after=["job-1", "never"]))
    leader.do(cut_off("never"))
    leader.do(job_pb2.TriggerJobRequest(job="job-0"))
    leader.end(leader.lease(), well=True)
    lease = leader.lease()
    [(key, value)] = list(leader.store.scan(keys.FLOW, keys.after(keys.FLOW)))
    flow = parse(key, value, FlowRecord)
    flow.ahead_ms, flow.jids = 0, (1, 2)
    leader.store.write([(key, encode(flow))], [])

    leader.end(lease, well=True)
    leader.fire()
    leader.check()
    assert leader.flow().ahead_ms > leader.now_ms
    leader.now_ms += DAY_MS
    leader.fire()

    assert leader.flow().stuck
    leader.check()


def test_a_run_that_is_made_anew_begins_its_wave_anew_however_wide_it_was() -> None:
    leader = Leader()
    late = job_pb2.MisfirePolicy(start_deadline={"seconds": 60})  # type: ignore[arg-type]
    root = job_of("root", cron="0 * * * *", misfire=late)
    leader.create(root, *fan(30)[1:])
    leader.now_ms += HOUR_MS
    leader.fire()
    leader.now_ms += 10 * 60_000
    leader.fire()
    assert leader.states() == [Step.STATE_CANNOT_RUN] * 30
    leader.steps = 5
    backfill = job_pb2.BackfillJobRequest(job="root")
    backfill.from_time.FromMilliseconds(START_MS + HOUR_MS)
    backfill.to_time.FromMilliseconds(START_MS + HOUR_MS + 1)

    reply = leader.do(backfill)
    assert isinstance(reply, job_pb2.BackfillJobResponse), reply
    leader.fire()
    leader.check()
    leader.end(leader.lease(), well=True)
    leader.fire()

    assert leader.states() == [Step.STATE_FIRED] * 30
    assert leader.flow().live == 30
    leader.check()


def test_waves_that_end_each_others_runs_do_not_go_deeper_and_deeper() -> None:
    """Each run of a job replaces the one before it, whose end lets the next job begin, and so on:
    with many waves under way that was a call in a call for each job."""
    leader = Leader()
    replace = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_REPLACE)
    jobs = [job_of("job-0", overlap=job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW))]
    for number in range(1, 60):
        job = job_of(f"job-{number}", overlap=replace)
        job.spec.upstream.jobs.add(
            job=f"job-{number - 1}", condition=job_pb2.Dependency.CONDITION_ANY_END
        )
        jobs.append(job)
    leader.create(*jobs)
    for _ in range(60):
        leader.do(job_pb2.TriggerJobRequest(job="job-0"))
        leader.end(leader.lease(), well=True)
        leader.fire()

    leader.check()


def test_a_wave_of_more_steps_than_an_answer_holds_says_so(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FLOW_STEPS", 10)
    for job in fan(12):
        machine.do(job_pb2.CreateJobRequest(job=job))
    run = machine.trigger("root")
    [lease] = machine.grant()
    machine.fail(lease, fatal=True)

    found = ask(machine, flow_pb2.GetFlowRequest(flow=run.flow), flow_pb2.Flow)

    assert found.more_steps
    assert len(found.steps) == 10
    assert found.state == flow_pb2.Flow.STATE_FAILED


def test_too_many_dependents_and_too_long_a_chain_are_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DEPENDENTS", 2)
    monkeypatch.setattr(limits, "FLOW_DEPTH", 3)
    machine.create("root")
    machine.create("a", after=["root"])
    machine.create("b", after=["root"])
    machine.create("aa", after=["a"])

    wide = machine.refused(job_pb2.CreateJobRequest(job=job_of("c", after=["root"])))
    long = machine.refused(job_pb2.CreateJobRequest(job=job_of("aaa", after=["aa"])))

    assert wide.reason == long.reason == Reason.ERROR_REASON_LIMIT_EXCEEDED
    assert wide.values == {"limit": "dependents", "maximum": "2", "actual": "3"}
    assert long.values == {"limit": "flow_depth", "maximum": "3", "actual": "4"}
    # Those that wait already may be changed, and one that goes makes room.
    machine.do(job_pb2.UpdateJobRequest(job=job_of("b", after=["root"], owner="me")))
    machine.do(job_pb2.DeleteJobRequest(job="b"))
    machine.create("c", after=["root"])
    assert machine.run(machine.trigger("root").id).state == run_pb2.RUN_STATE_PENDING


@pytest.mark.parametrize(("waves", "width"), [(20, 2_000), (1_300, 120)])
def test_many_waves_that_go_on_leave_others_their_turn(waves: int, width: int) -> None:
    """Seen before: each took all the time that a change has for what can wait, so a job that was
    deleted behind a thousand of them was listed for a minute; and then, behind more of them than
    one change looks at, for as long as a round of all."""
    leader = Leader()
    leader.create(*fan(width), job_of("other", overlap=ALLOW))
    leader.do(job_pb2.TriggerJobRequest(job="other"))
    leader.do(job_pb2.TriggerJobRequest(job="other"))
    for _ in range(waves):
        leader.do(job_pb2.TriggerJobRequest(job="root"))
        leader.now_ms += 1
    leader.do(run_pb2.ChangeRunsRequest(change=run_pb2.ChangeRunsRequest.CHANGE_TERMINATE))
    leader.do(job_pb2.DeleteJobRequest(job="other"))
    leader.now_ms += 1

    name = keys.job_name(0, "other")
    assert leader.store.get(name) is not None
    # Each decision has time for a tenth of what the waves are to look at.
    leader.steps = 4_000
    changes = 0
    while leader.store.get(name) is not None and changes < 100:
        leader.now_ms += 1
        leader.do(FireTimers(1_000, later=True))
        changes += 1

    assert changes <= 6
    assert len(leader.states()) < waves * width
