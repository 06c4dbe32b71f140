"""Random flows, played by the rules and by a slow model of the contract, come out the same.

First flows alone: what their conditions, ends and dead letters come to. Then flows among all that
may happen to jobs: schedules, quotas, pauses, edits, backfills, outages. Set RAFTSCHED_EXAMPLES to
play more than the usual number, and RAFTSCHED_SEED to play those of a seed again.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raftsched.proto.v1 import dead_letter_pb2, flow_pb2, job_pb2, run_pb2, worker_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.rejection import Rejection
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model.request import Report

from ..sampled import some
from .asking import ask
from .driver import Machine, job_of
from .flow_model import Flow, FlowModel, Order
from .histories import CommonHistory, order, play, run_id, specs
from .model import LIVE, Model, Run, Spec
from .world import ALLOW

NAMES = ("a", "b", "c", "d", "e", "f")
ONCE = job_pb2.RetryPolicy(max_attempts=1)
CONDITIONS = ("SUCCESS", "FAILURE", "ANY_END")
ENDS = {"SUCCEEDED", "FAILED", "CANCELLED", "SKIPPED"}


orders = st.lists(
    st.tuples(
        st.lists(st.sampled_from(NAMES), max_size=3, unique=True),
        st.lists(st.sampled_from(CONDITIONS), min_size=3, max_size=3),
        st.booleans(),
    ),
    min_size=len(NAMES), max_size=len(NAMES),
)  # fmt: skip


class Flows(RuleBasedStateMachine):
    """Each rule does the same to the rules and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine(MemoryStore())
        self.orders: dict[str, Order] = {}
        self.flows: dict[str, Flow] = {}
        self.leases: dict[str, worker_pb2.Lease] = {}

    @initialize(wanted=orders)
    def create(self, wanted: list[tuple[list[str], list[str], bool]]) -> None:
        for name, (above, conditions, is_any) in zip(NAMES, wanted, strict=True):
            upstream = {
                job: condition
                for job, condition in zip(above, conditions, strict=False)
                if job in self.orders and job != name
            }
            job = job_of(name, overlap=ALLOW, retry=ONCE)
            for other, condition in upstream.items():
                number = job_pb2.Dependency.Condition.Value(f"CONDITION_{condition}")
                job.spec.upstream.jobs.add(job=other, condition=number)
            if is_any:
                job.spec.upstream.join = job_pb2.Upstream.JOIN_ANY
            [reply] = self.machine.do_all(job_pb2.CreateJobRequest(job=job))
            if not isinstance(reply, Rejection):
                self.orders[name] = Order(upstream, is_any)

    def has_downstream(self, name: str) -> bool:
        return any(name in order.upstream for order in self.orders.values())

    @rule(data=st.data())
    def trigger(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.orders)))
        run = self.machine.trigger(name)
        assert bool(run.flow) == self.has_downstream(name)
        if run.flow:
            self.flows[run.flow] = Flow(self.orders, name, {name: "PENDING"})

    @rule(most=st.integers(1, 4))
    def grant(self, most: int) -> None:
        for lease in self.machine.grant("w1", most):
            self.leases[lease.run] = lease

    def noted(self, lease: worker_pb2.Lease, state: str) -> None:
        del self.leases[lease.run]
        if lease.flow:
            self.flows[lease.flow].ended(lease.job, state)
        self.machine.fire_all()

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), well=st.booleans())
    def end(self, data: st.DataObject, well: bool) -> None:
        lease = self.leases[data.draw(st.sampled_from(sorted(self.leases)))]
        result = worker_pb2.Result(run=lease.run, token=lease.token)
        if well:
            result.success.SetInParent()
        else:
            result.failure.SetInParent()
        [ack] = self.machine.ask(Report("w1", (result,)), list)
        assert not ack.reason, ack
        self.noted(lease, "SUCCEEDED" if well else "FAILED")

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def terminate(self, data: st.DataObject) -> None:
        lease = self.leases[data.draw(st.sampled_from(sorted(self.leases)))]
        self.machine.do(run_pb2.TerminateRunRequest(run=lease.run))
        self.noted(lease, "CANCELLED")

    def failed(self) -> list[tuple[str, str]]:
        return [
            (flow, name)
            for flow, found in sorted(self.flows.items())
            for name, state in sorted(found.runs.items())
            if state == "FAILED"
        ]

    @precondition(lambda self: self.failed())
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        flow, name = data.draw(st.sampled_from(self.failed()))
        steps = ask(self.machine, flow_pb2.GetFlowRequest(flow=flow), flow_pb2.Flow).steps
        [run] = [step.run for step in steps if step.job == name]
        self.machine.do(dead_letter_pb2.RequeueDeadLetterRequest(run=run))
        self.flows[flow].requeued(name)
        self.machine.fire_all()

    @invariant()
    def users_see_the_same(self) -> None:
        for name, flow in self.flows.items():
            found = ask(self.machine, flow_pb2.GetFlowRequest(flow=name), flow_pb2.Flow)
            assert {step.job: shown(step) for step in found.steps} == flow.shown(), name

    def teardown(self) -> None:
        self.machine.check()


def shown(step: flow_pb2.FlowStep) -> str:
    if step.state != flow_pb2.FlowStep.STATE_FIRED:
        return flow_pb2.FlowStep.State.Name(step.state).removeprefix("STATE_")
    word = run_pb2.RunState.Name(step.run_state).removeprefix("RUN_STATE_")
    return word if word in ENDS else "PENDING"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("many", some([15, 40], 1))
@pytest.mark.parametrize("walks", ["in memory", "in steps"])
def test_flows_come_out_as_their_model_says(
    walks: str, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if walks == "in steps":
        monkeypatch.setattr(limits, "LED_JOBS", 0)
    play(Flows, many)


wishes = st.lists(
    st.tuples(
        specs,
        st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
        st.lists(st.sampled_from(CONDITIONS), min_size=2, max_size=2),
        st.booleans(),
    ),
    min_size=len(NAMES), max_size=len(NAMES),
)  # fmt: skip


class FlowHistories(CommonHistory):
    """Jobs of which some wait for others, whatever else happens to them."""

    model: FlowModel

    @staticmethod
    def new_model() -> Model:
        return FlowModel()

    @initialize(wanted=wishes)
    def create(self, wanted: list[tuple[Spec, list[str], list[str], bool]]) -> None:
        for name, (spec, above, conditions, is_any) in zip(NAMES, wanted, strict=True):
            known = self.model.orders
            upstream = dict(
                item for item in zip(above, conditions, strict=False) if item[0] in known
            )
            spec = replace(spec, key_limit=2 if spec.key else 0)
            if upstream:
                spec = replace(spec, every_ms=0)
            request = order(name, spec)
            wants = request.job.spec.upstream
            for other, condition in upstream.items():
                number = job_pb2.Dependency.Condition.Value(f"CONDITION_{condition}")
                wants.jobs.add(job=other, condition=number)
            if is_any and upstream:
                wants.join = job_pb2.Upstream.JOIN_ANY
            [reply] = self.machine.do_all(request)
            if not isinstance(reply, Rejection):
                self.model.add(name, spec, Order(upstream, is_any))

    def requeueable(self) -> list[Run]:
        return [run for run in self.runs("FAILED") if self.model.flow_of.get(run.place)]

    @precondition(lambda self: self.requeueable())
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        found = sorted(self.requeueable(), key=lambda run: run.place)
        run = data.draw(st.sampled_from(found))
        self.machine.do(dead_letter_pb2.RequeueDeadLetterRequest(run=run_id(run)))
        self.model.requeue(run)

    def may_end_twice(self) -> set[str]:
        again = {run_id(run) for run in self.runs(*LIVE, *ENDS) if run.place in self.model.requeued}
        return again | super().may_end_twice()

    @invariant()
    def flows_are_the_same(self) -> None:
        self.model.settle()
        for place, flow in self.model.flows.items():
            members = self.model.members[place]
            request = flow_pb2.GetFlowRequest(flow=run_id(members[flow.root]))
            found = ask(self.machine, request, flow_pb2.Flow)
            assert {step.job: shown(step) for step in found.steps} == flow.shown(), place
            runs = {step.job: step.run for step in found.steps if step.run}
            assert runs == {name: run_id(run) for name, run in members.items()}, place


@pytest.mark.timeout(900)
@pytest.mark.parametrize("many", some([20, 200], 1))
def test_flows_among_all_else_come_out_as_their_model_says(many: int) -> None:
    play(FlowHistories, many)
