"""Waves that begin in the middle of a graph: what lies beside them is not waited for, whatever the
size of the graph."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from raftsched.proto.v1 import flow_pb2, job_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import SurveyRecord, parse
from raftsched.statemachine.model.request import FireTimers

from .asking import ask
from .driver import DAY_MS, SECOND_MS, Machine, cut_off, job_of, with_mask
from .test_long_flows import Leader

Graph = dict[str, list[str]]  # By job, those it waits for.
Step = flow_pb2.FlowStep
NAMES = "abcde"
LINKS = [(up, down) for place, down in enumerate(NAMES) for up in NAMES[:place]]


def graphs() -> Iterator[Graph]:
    """Every graph of five jobs without a circle, up to their names."""
    for chosen in product((False, True), repeat=len(LINKS)):
        graph: Graph = {name: [] for name in NAMES}
        for (up, down), is_link in zip(LINKS, chosen, strict=True):
            if is_link:
                graph[down].append(up)
        yield graph


def reached(graph: Graph, root: str) -> set[str]:
    found = {root}
    for name in graph:  # Upstream stands before downstream.
        if found & set(graph[name]):
            found.add(name)
    return found


def is_middle(graph: Graph, root: str) -> bool:
    return bool(graph[root]) and len(reached(graph, root)) > 1


def begun(graph: Graph, root: str, ended: set[str]) -> set[str]:
    """The naive answer: those that have a run once some have ended well."""
    inside = reached(graph, root)
    return {root} | {
        name for name in inside - {root} if ended and set(graph[name]) & inside <= ended
    }


def play(leader: Leader, graph: Graph, root: str) -> None:
    leader.do(job_pb2.TriggerJobRequest(job=root))
    ended: set[str] = set()
    inside = reached(graph, root)
    while ended != inside:
        lease = leader.lease()
        assert lease.job in begun(graph, root, ended) - ended, (graph, root, lease.job)
        leader.end(lease, well=True)
        leader.fire()
        ended.add(lease.job)
    assert leader.flow().ended_at_ms, (graph, root)
    assert not leader.flow().waiting


def played(graph: Graph, root: str, steps: int) -> bool:
    """Whether there can be such a graph: a job of which no flow has all that it waits for is
    refused."""
    leader = Leader()
    jobs = [job_of(name, after=graph[name]) for name in graph]
    reply = leader.do(job_pb2.ImportJobsRequest(jobs=jobs))
    assert isinstance(reply, job_pb2.ImportJobsResponse), reply
    if any(result.reason for result in reply.results):
        return False
    leader.steps = steps
    play(leader, graph, root)
    leader.check()
    return True


@pytest.fixture(params=["in memory", "in steps", "in single steps"])
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How a wave finds out what is in it, as how many questions for the time a decision has."""
    if request.param != "in memory":
        monkeypatch.setattr(limits, "LED_JOBS", 0)
        monkeypatch.setattr(limits, "SURVEY_LOOK", 1)
    return 1 if request.param == "in single steps" else 1_000_000


def test_every_small_graph_runs_from_each_of_its_jobs_as_the_naive_answer_says(steps: int) -> None:
    count = 0
    for graph in graphs():
        if graph["e"]:
            # A job less: those of five are played below.
            continue
        count += sum(played(graph, root, steps) for root in "bc" if is_middle(graph, root))
    assert count > 30


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_graph_of_five_jobs_runs_from_each_of_them(steps: int) -> None:
    count = sum(
        played(graph, root, steps)
        for graph in graphs() for root in "bcd" if is_middle(graph, root)
    )  # fmt: skip
    assert count > 500


WIDE = 12


def knot(layers: int) -> list[job_pb2.Job]:
    """Layers of jobs, each after all of the layer before."""
    jobs = [job_of("first")]
    for layer in range(layers):
        after = [f"k-{layer - 1}-{n}" for n in range(WIDE)] if layer else ["first"]
        jobs += [job_of(f"k-{layer}-{n}", after=after) for n in range(WIDE)]
    return jobs


def surveys(leader: Leader) -> list[SurveyRecord]:
    found = leader.store.scan(keys.SURVEY, keys.after(keys.SURVEY))
    return [parse(key, value, SurveyRecord) for key, value in found]


def run_through(leader: Leader, runs: int) -> None:
    for _ in range(runs):
        leader.end(leader.lease(), well=True)
        leader.fire()


def test_a_flow_from_the_middle_of_many_links_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen before: with more links than a walk may look at, below the first job and above each
    step, a step waited for jobs that never came in its flow."""
    monkeypatch.setattr(limits, "LED_LINKS", 100)
    monkeypatch.setattr(limits, "SURVEY_LINKS", 50)
    leader = Leader()
    leader.create(*knot(6))
    leader.do(job_pb2.TriggerJobRequest(job="k-2-3"))

    run_through(leader, 1 + 3 * WIDE)

    assert leader.states() == [Step.STATE_FIRED] * 3 * WIDE
    assert leader.flow().ended_at_ms
    [survey] = surveys(leader)
    assert (survey.number, survey.found) == (1, 1 + 3 * WIDE)
    leader.check()


def test_a_wave_looks_around_in_bounded_steps_and_goes_on_after_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "LED_LINKS", 100)
    monkeypatch.setattr(limits, "SURVEY_LOOK", 1)
    leader = Leader()
    leader.create(*knot(6))
    leader.do(job_pb2.TriggerJobRequest(job="k-2-3"))
    leader.steps = 20
    leader.budgets.clear()
    leader.end(leader.lease(), well=True)
    for _ in range(5):
        leader.do(FireTimers(10, later=True))
    [survey] = surveys(leader)
    other = Leader(20)
    other.store, other.index = leader.store, leader.index

    assert 0 < survey.looked < survey.found < 1 + 3 * WIDE
    assert not leader.states()
    other.fire()

    assert min(budget.left for budget in leader.budgets + other.budgets) >= -3
    assert other.states() == [Step.STATE_FIRED] * WIDE
    other.check()


def test_what_a_wave_has_found_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LED_LINKS", 100)
    leader = Leader()
    leader.create(*knot(5))
    leader.do(job_pb2.TriggerJobRequest(job="k-2-3"))
    run_through(leader, 1 + 2 * WIDE)
    leader.now_ms += 31 * DAY_MS
    leader.steps = 5

    leader.fire()

    for table in (keys.FLOW, keys.STEP, keys.SURVEY, keys.SURVEYED, keys.IN_SURVEY):
        assert next(leader.store.scan(table, keys.after(table)), None) is None
    leader.check()


def lines(machine: Machine) -> None:
    """Four jobs one after the other, of which two wait for one beside as well."""
    for name, after in (
        ("a", []), ("x", ["a"]), ("b", ["a"]), ("c", ["a", "b", "x"]), ("d", ["c", "x"])
    ):  # fmt: skip
        machine.create(name, after=after)


def end_next(machine: Machine, name: str) -> None:
    [lease] = [lease for lease in machine.grant() if lease.job == name]
    machine.succeed(lease)
    machine.fire_all()


def test_a_job_that_came_between_since_the_wave_looked_around_is_waited_for(
    machine: Machine, steps: int
) -> None:
    lines(machine)
    machine.trigger("b")
    end_next(machine, "b")
    machine.advance(SECOND_MS)
    machine.create("n", after=["c"])
    upstream = job_of("d", after=["c", "x", "n"]).spec.upstream
    machine.do(with_mask("spec.upstream", name="d", upstream=upstream))
    machine.fire_all()
    machine.advance(SECOND_MS)

    end_next(machine, "c")

    assert [len(machine.live(name)) for name in ("n", "d")] == [1, 0]
    end_next(machine, "n")
    assert len(machine.live("d")) == 1
    assert steps


def test_a_step_that_waits_and_is_changed_is_decided_once_the_wave_has_looked_around(
    machine: Machine, steps: int
) -> None:
    lines(machine)
    machine.do(cut_off("x"))
    run = machine.trigger("a")
    end_next(machine, "a")
    end_next(machine, "b")
    assert not machine.live("c")
    machine.advance(SECOND_MS)

    upstream = job_of("c", after=["b", "x"]).spec.upstream
    machine.do(with_mask("spec.upstream", name="c", upstream=upstream))
    machine.fire_all()
    machine.advance(SECOND_MS)
    machine.fire_all()

    found = ask(machine, flow_pb2.GetFlowRequest(flow=run.flow), flow_pb2.Flow)
    states = {step.job: step.state for step in found.steps}
    assert states["c"] == Step.STATE_CANNOT_RUN, steps
    assert found.state == flow_pb2.Flow.STATE_FAILED


def test_readers_see_what_a_step_from_the_middle_waits_for(machine: Machine, steps: int) -> None:
    lines(machine)
    machine.create("n", after=["b"])
    upstream = job_of("d", after=["b", "c", "x", "n"]).spec.upstream
    machine.do(with_mask("spec.upstream", name="d", upstream=upstream))
    run = machine.trigger("b")
    end_next(machine, "b")

    found = ask(machine, flow_pb2.GetFlowRequest(flow=run.flow), flow_pb2.Flow)
    [step] = [step for step in found.steps if step.job == "d"]
    assert (step.state, sorted(step.because)) == (Step.STATE_WAITING, ["c", "n"]), steps
