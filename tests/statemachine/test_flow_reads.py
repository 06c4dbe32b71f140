"""Waves and graphs, as readers see them."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import flow_pb2, job_pb2, namespace_pb2, run_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.rejection import Reason, Rejection
from raftsched.statemachine.reads.reads import read

from .asking import ask, pages, refuse
from .driver import DAY_MS, SECOND_MS, Machine, cut_off, job_of

Flow = flow_pb2.Flow
Step = flow_pb2.FlowStep
NO_RETRY = job_pb2.RetryPolicy(max_attempts=1)


def diamond(machine: Machine) -> str:
    """root, then left and right, then join, which was made before them; the wave's id."""
    machine.create("join", retry=NO_RETRY)
    for name in ("root", "left", "right"):
        machine.create(name, retry=NO_RETRY)
    for name, upstream in (("left", ["root"]), ("right", ["root"]), ("join", ["left", "right"])):
        changed = job_of(name, after=upstream, retry=NO_RETRY)
        machine.do(job_pb2.UpdateJobRequest(job=changed))
    return machine.trigger("root").flow


def step(machine: Machine, name: str, *, well: bool = True) -> None:
    """Let the run of one job end."""
    [lease] = [lease for lease in machine.grant() if lease.job == name]
    if well:
        machine.succeed(lease)
    else:
        machine.fail(lease)


def flow(machine: Machine, name: str) -> Flow:
    return ask(machine, flow_pb2.GetFlowRequest(flow=name), Flow)


def steps(found: Flow) -> list[tuple[str, str]]:
    return [(step.job, Step.State.Name(step.state).removeprefix("STATE_")) for step in found.steps]


def listed(machine: Machine, text: str = "") -> list[str]:
    request = flow_pb2.ListFlowsRequest(filter=text, page_size=1)
    found = pages(machine, request, flow_pb2.ListFlowsResponse)
    return [item.id for page in found for item in page.flows]


def test_waves_are_listed_by_their_times(machine: Machine) -> None:
    first = diamond(machine)
    step(machine, "root", well=False)
    machine.advance(3_600_000)
    second = machine.trigger("root").flow
    at = flow(machine, second).create_time.ToJsonString()

    assert listed(machine, f"create_time>={at}") == [second]
    assert listed(machine, f"create_time<{at}") == [first]
    assert listed(machine, f"end_time<{at}") == [first]
    assert listed(machine, 'end_time=""') == [second]


def test_a_wave_shows_its_steps_upstream_first(machine: Machine) -> None:
    name = diamond(machine)
    step(machine, "root")

    begun = flow(machine, name)
    [left, right] = machine.grant()
    machine.succeed(left)
    half = flow(machine, name)
    machine.succeed(right)
    step(machine, "join")
    over = flow(machine, name)

    assert begun.state == Flow.STATE_LIVE
    assert steps(begun) == [("root", "FIRED"), ("left", "FIRED"), ("right", "FIRED")]
    assert steps(half)[3:] == [("join", "WAITING")]
    assert list(half.steps[3].because) == ["right"]
    assert over.state == Flow.STATE_SUCCEEDED
    assert [item.run_state for item in over.steps] == [run_pb2.RUN_STATE_SUCCEEDED] * 4
    assert over.HasField("end_time")
    assert [item.job for item in over.steps] == ["root", "left", "right", "join"]


def test_results_upstream_beyond_a_mebibyte_are_left_out_and_said_to_be(machine: Machine) -> None:
    """A lease must fit into a frame: one that does not is granted again and again."""
    names = [f"part-{number:02}" for number in range(20)]
    machine.create("root")
    for name in names:
        machine.create(name, after=["root"])
    machine.create("join", after=names)
    machine.trigger("root")
    step(machine, "root")
    for lease in machine.grant():
        machine.succeed(lease, bytes(limits.PAYLOAD_BYTES))

    [joined] = machine.grant()
    seen = ask(machine, run_pb2.GetRunRequest(run=joined.run), run_pb2.Run)

    assert joined.job == "join"
    assert joined.ByteSize() < 1_100_000
    for upstream in (joined.upstream, seen.upstream):
        assert [one.job for one in upstream] == names
        assert [one.result_omitted for one in upstream] == [False] * 16 + [True] * 4
        assert {len(one.result.data) for one in upstream[:16]} == {limits.PAYLOAD_BYTES}
        assert not any(one.HasField("result") for one in upstream[16:])
    whole = ask(machine, run_pb2.GetRunRequest(run=joined.upstream[19].run), run_pb2.Run)
    assert len(whole.result.data) == limits.PAYLOAD_BYTES


def test_a_failure_upstream_is_named_by_what_cannot_run(machine: Machine) -> None:
    name = diamond(machine)
    step(machine, "root")
    [left, right] = machine.grant()

    machine.fail(left)
    machine.succeed(right)

    found = flow(machine, name)
    assert found.state == Flow.STATE_FAILED
    assert steps(found)[3:] == [("join", "CANNOT_RUN")]
    assert list(found.steps[3].because) == ["left"]


def test_a_failure_at_the_end_of_a_wave_fails_it(machine: Machine) -> None:
    machine.create("a")
    machine.create("b", after=["a"], retry=NO_RETRY)
    name = machine.trigger("a").flow
    step(machine, "a")

    step(machine, "b", well=False)

    assert flow(machine, name).state == Flow.STATE_FAILED


def test_who_waits_for_a_failure_in_vain_does_not_fail_the_wave(machine: Machine) -> None:
    """A handler of errors, what it would have set off, and a good wave beside them."""
    machine.create("a")
    handler = job_of("sorry")
    handler.spec.upstream.jobs.add(job="a", condition=job_pb2.Dependency.CONDITION_FAILURE)
    machine.do(job_pb2.CreateJobRequest(job=handler))
    machine.create("page", after=["sorry"])
    machine.create("b", after=["a"], retry=NO_RETRY)
    good, bad = machine.trigger("a").flow, ""

    step(machine, "a")
    step(machine, "b")

    found = flow(machine, good)
    assert found.state == Flow.STATE_SUCCEEDED
    assert ("sorry", "CANNOT_RUN") in steps(found)
    assert ("page", "CANNOT_RUN") in steps(found)
    assert listed(machine, "state=SUCCEEDED") == [good]

    machine.create("both", after=["b", "sorry"])
    bad = machine.trigger("a").flow
    step(machine, "a")
    step(machine, "b", well=False)
    assert ("both", "CANNOT_RUN") in steps(flow(machine, bad))
    assert flow(machine, bad).state == Flow.STATE_FAILED


def test_a_failure_that_a_job_waits_for_does_not_fail_the_wave(machine: Machine) -> None:
    machine.create("a", retry=NO_RETRY)
    on_failure = job_of("b")
    on_failure.spec.upstream.jobs.add(job="a", condition=job_pb2.Dependency.CONDITION_FAILURE)
    machine.do(job_pb2.CreateJobRequest(job=on_failure))
    name = machine.trigger("a").flow
    step(machine, "a", well=False)

    step(machine, "b")

    assert flow(machine, name).state == Flow.STATE_SUCCEEDED


def test_a_wave_that_waits_for_ever_is_stuck_and_says_for_what(machine: Machine) -> None:
    machine.create("a")
    machine.create("never", after=["a"])
    machine.create("b", after=["a", "never"])
    machine.do(cut_off("never"))
    name = machine.trigger("a").flow
    step(machine, "a")

    machine.advance(DAY_MS)
    machine.fire()

    found = flow(machine, name)
    assert found.state == Flow.STATE_STUCK
    assert [list(item.because) for item in found.steps] == [[], ["never"]]


@pytest.mark.parametrize("well", [True, False])
def test_a_wave_that_begins_in_the_middle_waits_for_nothing_beside_it(
    machine: Machine, well: bool
) -> None:
    """Its join waited for ever for a sibling that nobody begins."""
    diamond(machine)
    machine.create("last", after=["join", "right"], retry=NO_RETRY)
    machine.create("any", after=["left", "right"], retry=NO_RETRY)
    either = job_of("any", after=["left", "right"], retry=NO_RETRY)
    either.spec.upstream.join = job_pb2.Upstream.JOIN_ANY
    machine.do(job_pb2.UpdateJobRequest(job=either))
    name = machine.trigger("left").flow
    step(machine, "left", well=well)

    begun = flow(machine, name)
    while leases := machine.grant():
        for lease in leases:
            machine.succeed(lease)
    over = flow(machine, name)

    if well:
        assert dict(steps(begun)) == dict.fromkeys(("left", "join", "any"), "FIRED")
        assert over.state == Flow.STATE_SUCCEEDED
    else:
        cannot = dict.fromkeys(("join", "any", "last"), "CANNOT_RUN")
        assert dict(steps(over)) == {"left": "FIRED"} | cannot
        assert over.state == Flow.STATE_FAILED
    assert over.HasField("end_time")
    machine.check()


def test_a_join_waits_for_what_its_wave_leads_to(machine: Machine) -> None:
    """A wave that begins in the middle may fork and join itself."""
    machine.create("top")
    machine.create("root", after=["top"])
    for name in ("left", "right"):
        machine.create(name, after=["root"])
    machine.create("beside", after=["top"])
    machine.create("join", after=["left", "right", "beside"])
    name = machine.trigger("root").flow
    step(machine, "root")
    [left, right] = machine.grant()
    machine.succeed(left)

    half = flow(machine, name)
    machine.succeed(right)

    assert steps(half)[-1] == ("join", "WAITING")
    assert list(half.steps[-1].because) == ["right"]
    assert steps(flow(machine, name))[-1] == ("join", "FIRED")


def test_waves_are_listed_newest_first_and_filtered(machine: Machine) -> None:
    machine.create("a")
    machine.create("b", after=["a"])
    machine.create("x")
    machine.create("y", after=["x"])
    first = machine.trigger("a").flow
    machine.advance(SECOND_MS)
    second = machine.trigger("x").flow
    step(machine, "x")
    step(machine, "y")

    assert listed(machine) == [second, first]
    assert listed(machine, "state=SUCCEEDED") == [second]
    assert listed(machine, "job=a") == [first]
    assert listed(machine, "job!=a") == [second]
    assert listed(machine, "job=y AND state=LIVE") == []


def test_the_runs_of_a_wave_are_listed(machine: Machine) -> None:
    name = diamond(machine)
    machine.trigger("join")
    step(machine, "root")

    request = run_pb2.ListRunsRequest(filter=f"flow={name}")
    found = ask(machine, request, run_pb2.ListRunsResponse)

    assert {run.job for run in found.runs} == {"left", "right"}


def test_a_flow_of_another_namespace_is_not_there(machine: Machine) -> None:
    other = namespace_pb2.Namespace(name="other")
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=other))
    name = diamond(machine)

    request = flow_pb2.GetFlowRequest(namespace="other", flow=name)

    assert refuse(machine, request) == Reason.ERROR_REASON_FLOW_NOT_FOUND


def test_the_graph_of_a_job_has_all_before_and_behind_it(machine: Machine) -> None:
    diamond(machine)
    machine.create("aside", after=["root"])
    machine.create("last", after=["join"])

    around = ask(machine, flow_pb2.GetGraphRequest(job="left"), flow_pb2.Graph)
    whole = ask(machine, flow_pb2.GetGraphRequest(job="root"), flow_pb2.Graph)

    assert list(around.jobs) == ["root", "left", "join", "last"]
    assert [(edge.upstream, edge.downstream) for edge in around.edges] == [
        ("root", "left"), ("left", "join"), ("join", "last")
    ]  # fmt: skip
    assert {edge.condition for edge in around.edges} == {job_pb2.Dependency.CONDITION_SUCCESS}
    assert set(whole.jobs) == {"root", "left", "right", "join", "aside", "last"}
    places = {name: place for place, name in enumerate(whole.jobs)}
    assert all(places[edge.upstream] < places[edge.downstream] for edge in whole.edges)


def test_a_graph_that_is_too_large_is_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    diamond(machine)
    monkeypatch.setattr(limits, "GRAPH_JOBS", 3)

    request = flow_pb2.GetGraphRequest(job="root")

    assert refuse(machine, request) == Reason.ERROR_REASON_LIMIT_EXCEEDED


def test_a_graph_of_too_many_links_is_refused_before_it_is_gathered(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    diamond(machine)  # Four jobs and four links.
    request = flow_pb2.GetGraphRequest(job="left")
    monkeypatch.setattr(limits, "GRAPH_LINKS", 3)
    assert list(ask(machine, request, flow_pb2.Graph).jobs) == ["root", "left", "join"]
    monkeypatch.setattr(limits, "GRAPH_LINKS", 2)

    refusal = read(machine.view(), request)

    assert isinstance(refusal, Rejection)
    assert refusal.reason == Reason.ERROR_REASON_LIMIT_EXCEEDED
    assert refusal.values == {"limit": "graph_links", "maximum": "2", "actual": "3"}
    assert "over 2 links lie around 'left'" in refusal.message
    assert "GetJob" in refusal.message
