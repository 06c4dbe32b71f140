"""Many jobs that wait for many: what one decision looks at stays bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from raftsched.proto.v1 import job_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.rejection import Reason
from raftsched.statemachine.flows import graph

from .driver import Machine, job_of

WIDE = 12
Update = job_pb2.UpdateJobRequest


class Looked:
    """Counts the jobs of which the graph asks whom they wait for, or who waits for them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for name in ("_upstream_names", "_links_down"):
            patch.setattr(graph, name, self._counting(getattr(graph, name)))

    def _counting(self, what: Callable[..., object]) -> Callable[..., object]:
        def call(*all: object) -> object:
            self.count += 1
            return what(*all)

        return call


def load(machine: Machine, jobs: Iterable[job_pb2.Job]) -> None:
    machine.ask(job_pb2.ImportJobsRequest(jobs=jobs), job_pb2.ImportJobsResponse)


def chain(length: int, name: str = "link") -> list[job_pb2.Job]:
    return [job_of(f"{name}-{n}", after=[f"{name}-{n - 1}"] if n else []) for n in range(length)]


def knot(layers: int) -> list[job_pb2.Job]:
    """Layers of jobs, each after all of the layer before."""
    jobs = [job_of("first")]
    for layer in range(layers):
        after = [f"k-{layer - 1}-{n}" for n in range(WIDE)] if layer else ["first"]
        jobs += [job_of(f"k-{layer}-{n}", after=after) for n in range(WIDE)]
    return jobs


def test_who_has_few_behind_it_may_wait_for_the_end_of_a_long_chain(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(machine, [*chain(300), job_of("x"), job_of("y", after=["x"])])
    looked = Looked(monkeypatch)

    machine.do(Update(job=job_of("x", after=["link-299"])))

    assert looked.count <= 4
    refusal = machine.refused(Update(job=job_of("link-298", after=["link-297", "y"])))
    assert refusal.values["path"] == "link-298 -> y -> x -> link-299 -> link-298"


def test_a_first_of_many_may_wait_for_one_with_few_before_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(machine, [*chain(30), job_of("x"), job_of("y", after=["x"])])
    monkeypatch.setattr(limits, "CIRCLE_JOBS", 10)

    machine.do(Update(job=job_of("link-0", after=["y"])))

    refusal = machine.refused(Update(job=job_of("link-1", after=["link-0", "link-4"])))
    assert refusal.values["path"] == "link-1 -> link-4 -> link-3 -> link-2 -> link-1"


@pytest.mark.parametrize("limit", ["CIRCLE_JOBS", "CIRCLE_LINKS"])
def test_where_many_are_on_both_sides_nothing_is_looked_through_for_long(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    load(machine, [*chain(30), *chain(30, "other")])
    monkeypatch.setattr(limits, limit, 10)

    refusal = machine.refused(Update(job=job_of("link-0", after=["other-29"])))

    assert refusal.reason == Reason.ERROR_REASON_LIMIT_EXCEEDED
    assert refusal.values["limit"] == "circle_jobs"
    assert machine.job("link-0").spec.upstream == job_pb2.Upstream()


def test_a_wave_from_the_middle_of_a_knot_walks_once_for_all_its_steps(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(machine, knot(8))
    machine.trigger("k-3-0")
    [lease] = machine.grant()
    looked = Looked(monkeypatch)

    machine.succeed(lease)

    # Those of the layers behind it, and not those of all layers before for each of its steps. The
    # machine decides all twice.
    assert looked.count <= 2 * 5 * WIDE
    assert all(len(machine.live(f"k-4-{n}")) == 1 for n in range(WIDE))


def test_flows_of_one_middle_share_a_walk_until_the_graph_changes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(machine, [*knot(8), job_of("aside")])

    def walked() -> int:
        machine.trigger("k-3-0")
        lease = next(one for one in machine.grant() if one.job == "k-3-0")
        looked = Looked(monkeypatch)
        machine.succeed(lease)
        monkeypatch.undo()
        return looked.count

    first, second = walked(), walked()
    machine.do(Update(job=job_of("aside", after=["k-7-0"])))
    after = walked()

    # The machine decides all a second time, which remembers nothing.
    assert (second, after) == (first // 2, first + 2)
