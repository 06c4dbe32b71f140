"""Random flows, played by the rules and by a slow model written from the contract (job.proto's
Upstream and Dependency, flow.proto), come out the same.

The model knows nothing of tables, counters or steps in time: it looks at all jobs of a flow until
nothing changes. Set RAFTSCHED_EXAMPLES to play more than the usual number.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from raftsched.proto.v1 import dead_letter_pb2, flow_pb2, job_pb2, run_pb2, worker_pb2
from raftsched.statemachine.core.rejection import Rejection
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model.request import Report

from .asking import ask
from .driver import Machine, job_of
from .world import ALLOW

EXAMPLES = int(os.environ.get("RAFTSCHED_EXAMPLES", "40"))
NAMES = ("a", "b", "c", "d", "e", "f")
ONCE = job_pb2.RetryPolicy(max_attempts=1)
CONDITIONS = ("SUCCESS", "FAILURE", "ANY_END")
MET = {
    "SUCCESS": {"SUCCEEDED"},
    "FAILURE": {"FAILED"},
    "ANY_END": {"SUCCEEDED", "FAILED", "CANCELLED"},
}
ENDS = {"SUCCEEDED", "FAILED", "CANCELLED"}


@dataclass
class Order:
    """A job: what it waits for, and whether one of these is enough."""

    upstream: dict[str, str] = field(default_factory=dict)
    is_any: bool = False


@dataclass
class Flow:
    """The runs of one flow by job: PENDING, or how they ended."""

    orders: dict[str, Order]
    root: str
    runs: dict[str, str] = field(default_factory=dict)
    # How they ended last: one that was requeued counts as before until it ends anew.
    ends: dict[str, str] = field(default_factory=dict)
    cannot: set[str] = field(default_factory=set)
    # Those of whose upstream one was over at some time: before, nobody has looked at them.
    told: set[str] = field(default_factory=set)

    def reached(self) -> set[str]:
        """The jobs that the root's run leads to, itself included."""
        found = {self.root}
        for name, order in self.orders.items():  # Upstream stands before downstream.
            if found & set(order.upstream):
                found.add(name)
        return found

    def settle(self) -> None:
        """Begin what may begin, and note what can no longer, until nothing changes."""
        before = -1
        while before != len(self.runs) + len(self.cannot):
            before = len(self.runs) + len(self.cannot)
            for name in sorted(self.reached() - {self.root} - set(self.runs) - self.cannot):
                self._look_at(name)
            over = self.cannot | set(self.ends)
            self.told |= {name for name in self.reached() if over & set(self.orders[name].upstream)}

    def _look_at(self, name: str) -> None:
        order = self.orders[name]
        waits_for = order.upstream
        if self.orders[self.root].upstream:
            # It began in the middle, so what lies beside it is not waited for.
            inside = self.reached()
            waits_for = {job: how for job, how in waits_for.items() if job in inside}
        seen = [self._condition(*item) for item in waits_for.items()]
        if (any if order.is_any else all)(one is True for one in seen):
            self.runs[name] = "PENDING"
        elif (all if order.is_any else any)(one is False for one in seen):
            self.cannot.add(name)

    def _condition(self, upstream: str, wanted: str) -> bool | None:
        """Whether an upstream's end is as wanted; None while nobody knows."""
        if upstream in self.ends:
            return self.ends[upstream] in MET[wanted]
        # Of a job that is not in this flow no run will come, but nothing says so.
        return False if upstream in self.cannot else None

    def ended(self, name: str, state: str) -> None:
        if name in self.ends:
            # What could not run, and did not, is decided anew.
            self.cannot -= Flow(self.orders, name).reached()
        self.runs[name] = self.ends[name] = state
        self.settle()

    def requeued(self, name: str) -> None:
        self.runs[name] = "PENDING"

    def shown(self) -> dict[str, str]:
        found = dict.fromkeys(self.told, "WAITING")
        return found | dict.fromkeys(self.cannot, "CANNOT_RUN") | self.runs


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
def test_flows_come_out_as_their_model_says() -> None:
    run_state_machine_as_test(
        Flows,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=40, deadline=None, print_blob=True,
            derandomize="RAFTSCHED_EXAMPLES" not in os.environ,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
