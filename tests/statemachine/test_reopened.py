"""A run of a wave that is requeued takes part in it again, and so does what depends on it."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import dead_letter_pb2, flow_pb2, job_pb2, run_pb2
from raftsched.statemachine.flows import waves
from raftsched.statemachine.flows.wave import find_wave
from raftsched.statemachine.model.entities import run_with

from .asking import ask
from .driver import Machine, job_of, with_mask

Step = flow_pb2.FlowStep
Flow = flow_pb2.Flow
ONCE = job_pb2.RetryPolicy(max_attempts=1)


def work_off(machine: Machine, *failing: str) -> list[str]:
    """What runs, until nothing is left."""
    ran: list[str] = []
    while leases := machine.grant():
        for lease in leases:
            (machine.fail if lease.job in failing else machine.succeed)(lease)
            ran.append(lease.job)
        machine.fire_all()
    return ran


def requeue(machine: Machine) -> None:
    request = dead_letter_pb2.RequeueDeadLettersRequest(filter="")
    machine.do(request)


def shown(machine: Machine, flow: str) -> flow_pb2.Flow:
    return ask(machine, flow_pb2.GetFlowRequest(flow=flow), flow_pb2.Flow)


def chain(machine: Machine) -> str:
    machine.create("root", retry=ONCE)
    machine.create("left", after=["root"], retry=ONCE)
    machine.create("right", after=["root"], retry=ONCE)
    machine.create("join", after=["left", "right"])
    machine.create("last", after=["join"])
    return machine.trigger("root").id


@pytest.mark.parametrize("failing", ["root", "left", "right"])
def test_what_depends_on_a_step_that_was_requeued_runs_when_that_succeeds(
    machine: Machine, failing: str
) -> None:
    flow = chain(machine)
    work_off(machine, failing)
    assert shown(machine, flow).state == Flow.STATE_FAILED
    machine.check()

    requeue(machine)
    machine.check()
    assert shown(machine, flow).state == Flow.STATE_LIVE
    again = work_off(machine)
    machine.check()

    assert again[0] == failing
    assert again[-2:] == ["join", "last"]
    assert len(again) == len(set(again))
    found = shown(machine, flow)
    assert {step.state for step in found.steps} == {Step.STATE_FIRED}
    assert found.state == Flow.STATE_SUCCEEDED


def test_a_step_that_fails_once_more_may_be_requeued_once_more(machine: Machine) -> None:
    flow = chain(machine)
    work_off(machine, "left")
    for _ in range(3):
        requeue(machine)
        assert work_off(machine, "left") == ["left"]
        machine.check()
    requeue(machine)

    assert work_off(machine) == ["left", "join", "last"]
    assert shown(machine, flow).state == Flow.STATE_SUCCEEDED


def test_two_that_failed_are_both_needed(machine: Machine) -> None:
    chain(machine)
    work_off(machine, "left", "right")
    requeue(machine)
    [one, other] = machine.grant()
    machine.succeed(one)
    machine.check()
    assert machine.grant() == []
    machine.succeed(other)
    machine.check()

    assert work_off(machine) == ["join", "last"]


def test_who_ran_because_of_the_failure_does_not_run_again(machine: Machine) -> None:
    machine.create("root", retry=ONCE)
    job = job_of("mend", after=["root"])
    job.spec.upstream.jobs[0].condition = job_pb2.Dependency.CONDITION_FAILURE
    machine.do(job_pb2.CreateJobRequest(job=job))
    machine.trigger("root")
    assert work_off(machine, "root") == ["root", "mend"]
    requeue(machine)

    assert work_off(machine, "root") == ["root"]
    machine.check()


def test_a_run_whose_wave_is_gone_is_in_none(machine: Machine) -> None:
    run = chain(machine)
    work_off(machine, "root")
    jid = machine.jid("root")
    view = machine.view()
    assert find_wave(view, jid, machine.record(run).flow_occurrence) is not None
    record = machine.record(run)
    record.flow_occurrence += 1
    waves.reopen(view, run_with(view.job(jid), 0, record))

    assert (record.flow_jid, record.flow_occurrence) == (0, 0)


def test_what_is_behind_a_step_that_fires_anew_waits_for_it(machine: Machine) -> None:
    above = ""
    for name in ("c", "x", "y", "z"):
        machine.create(name, after=[above] if above else [], retry=ONCE)
        above = name
    flow = machine.trigger("c").id
    machine.fail(machine.grant()[0])
    machine.fire_all()
    machine.do(dead_letter_pb2.RequeueDeadLetterRequest(run=flow))
    machine.succeed(machine.grant()[0])
    machine.fire_all()

    steps = {step.job: step for step in shown(machine, flow).steps}

    assert [steps[name].state for name in "xyz"] == [
        Step.STATE_FIRED, Step.STATE_WAITING, Step.STATE_WAITING,
    ]  # fmt: skip
    assert [list(steps[name].because) for name in "yz"] == [["x"], ["y"]]


def changed(machine: Machine, *after: str) -> None:
    """The last of the chain waits for other jobs than before."""
    update = with_mask(
        "spec.upstream", name="join", upstream=job_of("join", after=after).spec.upstream
    )
    machine.do(update)
    machine.fire_all()
    machine.check()


def waits(machine: Machine) -> str:
    """A wave in which `join` waits for `right`, which is given to nobody."""
    flow = chain(machine)
    for wanted in ("root", "left"):
        for lease in machine.grant():
            if lease.job == wanted:
                machine.succeed(lease)
    return flow


@pytest.mark.parametrize("waves", [1, 250])
def test_a_step_goes_on_when_what_it_waits_for_is_taken_out(machine: Machine, waves: int) -> None:
    waits(machine)
    for _ in range(waves - 1):
        machine.trigger("root")
        for wanted in ("root", "left"):
            for lease in machine.grant(credits=1):
                assert lease.job == wanted
                machine.succeed(lease)

    changed(machine, "left")

    joined = [run for run in machine.live("join") if run.state == run_pb2.RUN_STATE_PENDING]
    assert len(joined) == waves


def test_a_step_that_is_to_wait_for_what_is_not_in_its_wave_cannot_run(machine: Machine) -> None:
    flow = waits(machine)
    machine.create("elsewhere")

    changed(machine, "elsewhere")

    states = {step.job: step.state for step in shown(machine, flow).steps}
    assert states["join"] == states["last"] == Step.STATE_CANNOT_RUN


def test_a_step_whose_job_waits_for_none_any_more_cannot_run(machine: Machine) -> None:
    flow = waits(machine)

    changed(machine)

    states = {step.job: step.state for step in shown(machine, flow).steps}
    assert Step.STATE_WAITING not in states.values()
    assert not machine.live("join")


def test_a_step_that_waits_for_another_of_its_wave_goes_on_waiting(machine: Machine) -> None:
    waits(machine)
    machine.create("slow", after=["root"])

    changed(machine, "left", "right")

    assert not machine.live("join")


def test_what_depends_on_a_step_that_runs_again_is_shown_as_waiting(machine: Machine) -> None:
    flow = chain(machine)
    work_off(machine, "root")
    assert {step.state for step in shown(machine, flow).steps[1:]} == {Step.STATE_CANNOT_RUN}
    requeue(machine)

    found = shown(machine, flow)
    assert {step.state for step in found.steps[1:]} == {Step.STATE_WAITING}
    assert list(found.steps[1].because) == ["root"]
    why = ask(machine, job_pb2.ExplainJobRequest(job="left"), run_pb2.Explanation)
    assert "waits for root" in why.summary
    work_off(machine)
    assert shown(machine, flow).state == Flow.STATE_SUCCEEDED


def upstream(join: int, **conditions: int) -> job_pb2.Upstream:
    found = job_pb2.Upstream(join=job_pb2.Upstream.Join.ValueType(join))
    for name, condition in conditions.items():
        found.jobs.add(job=name, condition=job_pb2.Dependency.Condition.ValueType(condition))
    return found


SUCCESS, FAILURE = job_pb2.Dependency.CONDITION_SUCCESS, job_pb2.Dependency.CONDITION_FAILURE
ALL, ANY = job_pb2.Upstream.JOIN_ALL, job_pb2.Upstream.JOIN_ANY


@pytest.mark.parametrize(
    ("waits", "state"),
    [
        (upstream(ANY, a=SUCCESS, b=SUCCESS), Flow.STATE_FAILED),
        (upstream(ALL, a=FAILURE, b=FAILURE), Flow.STATE_FAILED),
        (upstream(ALL, a=SUCCESS, b=FAILURE), Flow.STATE_SUCCEEDED),
        (upstream(ANY, b=FAILURE), Flow.STATE_SUCCEEDED),
    ],
)
def test_a_failure_for_which_no_job_ran_fails_the_flow(
    machine: Machine, waits: job_pb2.Upstream, state: int
) -> None:
    machine.create("a", retry=ONCE)
    machine.create("b", after=["a"], retry=ONCE)
    machine.create("d", upstream=waits)
    flow = machine.trigger("a").id
    work_off(machine, "b")

    assert shown(machine, flow).state == state
    machine.check()


def test_a_job_that_is_added_too_late_for_a_flow_is_not_waited_for(machine: Machine) -> None:
    machine.create("a")
    machine.create("b", after=["a"])
    machine.create("c", after=["a"])
    machine.create("d", after=["b", "c"])
    flow = machine.trigger("a").id
    machine.succeed(machine.grant()[0])
    machine.fire_all()
    leases = machine.grant()
    machine.succeed(leases[0])
    machine.create("y", after=["a"])
    waits = upstream(ALL, b=SUCCESS, c=SUCCESS, y=SUCCESS)
    machine.do(with_mask("spec.upstream", name="d", upstream=waits))
    machine.succeed(leases[1])
    machine.fire_all()
    machine.check()

    found = shown(machine, flow)
    assert found.state == Flow.STATE_FAILED
    assert (found.steps[-1].state, list(found.steps[-1].because)) == (Step.STATE_CANNOT_RUN, ["y"])
