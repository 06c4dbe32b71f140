"""The failure of a run triggers another job."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raftsched.proto.v1 import (
    dead_letter_pb2,
    event_pb2,
    flow_pb2,
    job_pb2,
    namespace_pb2,
    run_pb2,
    worker_pb2,
)
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.instants import duration
from raftsched.statemachine.core.rejection import Reason
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import CarriedRecord
from raftsched.statemachine.model.request import Report
from raftsched.statemachine.reads import events

from .asking import ask
from .driver import DAY_MS, Machine, job_of, with_mask
from .test_carried import TRACE
from .world import ALLOW

NO_RETRY = job_pb2.RetryPolicy(max_attempts=1)
FAILED = run_pb2.RUN_STATE_FAILED
SUCCEEDED = run_pb2.RUN_STATE_SUCCEEDED
Create = job_pb2.CreateJobRequest


def make(machine: Machine, name: str, on_failure: str = "", **spec: Any) -> job_pb2.Job:  # noqa: ANN401
    """A job whose runs fail at once, or never."""
    named = job_pb2.OnFailure(job=on_failure) if on_failure else None
    return machine.create(name, on_failure=named, retry=NO_RETRY, overlap=ALLOW, **spec)


def fail(machine: Machine, name: str = "a", **fields: object) -> run_pb2.Run:
    """A run of a job that has failed."""
    run = machine.trigger(name, **fields)
    fail_ready(machine, name)
    return machine.run(run.id)


def fail_ready(machine: Machine, *names: str) -> None:
    for lease in machine.grant():
        assert lease.job in names
        machine.fail(lease, "Broken", message="it broke")
    machine.check()


@pytest.fixture
def pair(machine: Machine) -> Machine:
    """Of two jobs the failures of "a" trigger "b"."""
    make(machine, "b")
    make(machine, "a", "b")
    return machine


def test_a_failure_triggers_the_job_with_what_is_known_of_it(pair: Machine) -> None:
    failed = fail(pair, trace_context=TRACE, labels={"team": "x"})

    [run] = pair.live("b")
    assert (run.cause, run.outcome) == (run_pb2.CAUSE_FAILURE, run_pb2.OUTCOME_TRIGGERED)
    assert run.state == run_pb2.RUN_STATE_PENDING
    assert [(one.job, one.run, one.state) for one in run.upstream] == [("a", failed.id, FAILED)]
    assert (run.trace_context, dict(run.labels), run.flow) == (TRACE, {}, "")
    assert json.loads(run.payload.data) == {
        "namespace": "default", "job": "a", "run": failed.id,
        "scheduled_time": "2026-01-01T00:00:00Z", "attempts": 1,
        "error": {"kind": "Broken", "message": "it broke"},
    }  # fmt: skip
    [lease] = pair.grant()
    assert [(one.job, one.run, one.state) for one in lease.upstream] == [("a", failed.id, FAILED)]
    assert lease.payload.content_type == "application/json"
    assert (failed.on_failure.job, failed.on_failure.run, failed.on_failure.why_not) == (
        "b", run.id, "",
    )  # fmt: skip
    pair.succeed(lease)
    pair.check()


def test_only_a_failure_for_good_does(machine: Machine) -> None:
    make(machine, "b")
    retry = job_pb2.RetryPolicy(max_attempts=2)
    machine.create("a", on_failure=job_pb2.OnFailure(job="b"), retry=retry, overlap=ALLOW)
    run = machine.trigger("a")
    cancelled = machine.trigger("a")
    machine.do(run_pb2.CancelRunRequest(run=cancelled.id))
    good = machine.trigger("a")
    for lease in machine.grant():
        machine.succeed(lease) if lease.run == good.id else machine.fail(lease)
    assert not machine.live("b")
    assert not machine.run(run.id).HasField("on_failure")

    machine.advance(DAY_MS)
    machine.fire()
    fail_ready(machine, "a")
    assert len(machine.live("b")) == 1


def test_each_failure_of_many_in_one_change_does(pair: Machine) -> None:
    for _ in range(30):
        pair.trigger("a")
    results = tuple(
        worker_pb2.Result(run=lease.run, token=lease.token, failure=worker_pb2.Failure())
        for lease in pair.grant()
    )
    pair.do(Report("w1", results))
    pair.check()

    assert len(pair.live("b")) == 30
    assert len({run.payload.data for run in pair.live("b")}) == 30


def test_timeouts_of_runs_that_never_began_do_as_well(machine: Machine) -> None:
    make(machine, "b")
    make(machine, "a", "b", timeouts=job_pb2.Timeouts(queue=duration(5_000)))
    failed = machine.trigger("a")
    machine.advance(DAY_MS)
    machine.fire()

    [run] = machine.live("b")
    assert machine.run(failed.id).on_failure.run == run.id
    assert json.loads(run.payload.data)["error"]["kind"] == "timeout.queue"
    machine.check()


def test_a_requeued_run_does_so_again_when_the_first_has_ended(pair: Machine) -> None:
    failed = fail(pair)
    [first] = pair.live("b")
    pair.do(dead_letter_pb2.RequeueDeadLetterRequest(run=failed.id))
    [other, again] = sorted(pair.grant(), key=lambda lease: lease.job, reverse=True)
    assert (other.job, again.job) == ("b", "a")
    pair.fail(again)
    assert len(pair.live("b")) == 1
    assert pair.run(failed.id).on_failure.run == first.id

    pair.succeed(other)
    pair.do(dead_letter_pb2.RequeueDeadLetterRequest(run=failed.id))
    fail_ready(pair, "a")
    [second] = pair.live("b")
    assert second.id != first.id
    assert pair.run(failed.id).on_failure.run == second.id
    pair.check()


def test_a_job_that_is_gone_is_said_and_nothing_else_stops(pair: Machine) -> None:
    pair.create("c", after=["a"])
    pair.do(job_pb2.DeleteJobRequest(job="b"))
    pair.fire_all()
    why = "there is no job 'b'; create it, or name another one"
    failed = fail(pair)

    assert (failed.on_failure.job, failed.on_failure.run, failed.on_failure.why_not) == (
        "b", "", why,
    )  # fmt: skip
    explained = ask(pair, run_pb2.ExplainRunRequest(run=failed.id), run_pb2.Explanation)
    assert "it ended as FAILED" in explained.summary
    assert f"; on_failure triggered nothing: {why}" in explained.summary
    [event] = [
        event
        for event in events.events(pair.log[-1], pair.index, pair.store)
        if event.kind == event_pb2.EVENT_KIND_RUN_FAILED
    ]
    assert event.message == f"on_failure triggered nothing: {why}"
    status = ask(pair, job_pb2.GetJobStatusRequest(job="a"), job_pb2.JobStatus)
    assert any("on_failure names the job 'b', which is not there" in one for one in status.warnings)
    assert status.failed == 1
    pair.check()


def test_a_job_may_name_one_that_comes_later(machine: Machine) -> None:
    made = make(machine, "a", "b")
    assert any("which is not there" in warning for warning in made.status.warnings)
    make(machine, "b")
    failed = fail(machine)
    explained = ask(machine, run_pb2.ExplainRunRequest(run=failed.id), run_pb2.Explanation)

    [run] = machine.live("b")
    assert f"on_failure triggered 'b': {run.id}" in explained.summary


@pytest.mark.parametrize(
    ("path", "edges"),
    [
        ("a -> a", []),
        ("a -> b -> a", [("b", "a")]),
        ("a -> c -> b -> a", [("b", "a"), ("c", "b")]),
    ],
)
def test_a_circle_is_refused(machine: Machine, path: str, edges: list[tuple[str, str]]) -> None:
    for name, other in edges:
        make(machine, name, other)
    wanted = job_of("a", on_failure=job_pb2.OnFailure(job=path.split(" -> ")[1]))

    refused = machine.refused(Create(job=wanted))
    assert (refused.reason, refused.values["path"]) == (Reason.ERROR_REASON_CYCLE, path)

    # As one that is there, it is refused likewise.
    machine.create("a")
    request = with_mask("spec.on_failure", name="a", on_failure=wanted.spec.on_failure)
    assert machine.refused(request).reason == Reason.ERROR_REASON_CYCLE


def test_of_jobs_made_alike_the_one_that_names_itself_is_refused(machine: Machine) -> None:
    wanted = [job_of(name, on_failure=job_pb2.OnFailure(job="c")) for name in "abc"]
    answer = machine.ask(job_pb2.ImportJobsRequest(jobs=wanted), job_pb2.ImportJobsResponse)
    assert [one.reason for one in answer.results] == ["", "", "CYCLE"]


def test_too_many_one_behind_the_other_are_refused(machine: Machine) -> None:
    most = limits.ON_FAILURE_DEPTH
    for number in range(most - 1, 0, -1):
        make(machine, f"j{number}", f"j{number + 1}" if number < most - 1 else "")
    make(machine, "first", "j1")

    wanted = job_of("one-more", on_failure=job_pb2.OnFailure(job="first"))
    refused = machine.refused(Create(job=wanted))
    assert refused.reason == Reason.ERROR_REASON_LIMIT_EXCEEDED
    assert refused.values["limit"] == "on_failure_depth"


def test_a_circle_through_jobs_that_wait_comes_to_an_end(machine: Machine) -> None:
    """ "b" waits for "a", and is triggered by the failures of "a": no name closes a circle, but
    "a" waits for "b" again by a handler of its own, or, as here, by a flow."""
    make(machine, "b")
    make(machine, "a", "b", after=["b"])
    machine.trigger("b")
    for _ in range(3 * limits.ON_FAILURE_DEPTH):
        for lease in machine.grant():
            if lease.job == "b":
                machine.succeed(lease)
            else:
                machine.fail(lease)
        machine.advance(1)
        machine.check()

    assert not machine.live("a")
    assert not machine.live("b")
    assert len(machine.ended("b")) == limits.ON_FAILURE_DEPTH + 1
    last = machine.ended("a")[0]
    assert "it came of 16 failures one behind the other" in last.on_failure.why_not


def test_it_waits_where_it_may_not_begin(machine: Machine) -> None:
    machine.create("b")
    make(machine, "a", "b")
    machine.do(job_pb2.PauseJobRequest(job="b"))
    fail(machine)
    [held] = machine.live("b")
    assert held.held

    machine.do(job_pb2.ResumeJobRequest(job="b"))
    machine.advance(30 * DAY_MS)
    machine.fire_all()
    assert [lease.job for lease in machine.grant()] == ["b"]
    machine.check()


def test_the_overlap_policy_and_the_quota_hold_it_back(machine: Machine) -> None:
    quota = namespace_pb2.Namespace(name="n", quota=namespace_pb2.Quota(live_runs=2))
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=quota))
    skip = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_SKIP)
    machine.create("b", namespace="n", overlap=skip)
    machine.create(
        "a", namespace="n", on_failure=job_pb2.OnFailure(job="b"), retry=NO_RETRY, overlap=ALLOW
    )
    for _ in range(2):
        machine.trigger("a", namespace="n")
    for lease in machine.grant(namespaces=("n",)):
        machine.fail(lease)
    assert [run.held for run in machine.live("b", "n")] == [False, True]
    machine.check()


@pytest.mark.parametrize("paused", [False, True])
def test_where_too_much_is_under_way_or_waits_no_more_comes(
    pair: Machine, monkeypatch: pytest.MonkeyPatch, paused: bool
) -> None:
    monkeypatch.setattr(limits, "ON_FAILURE_LIVE", 2)
    if paused:
        pair.do(job_pb2.PauseJobRequest(job="b"))
    runs = [pair.trigger("a") for _ in range(3)]
    fail_ready(pair, "a")
    found = [pair.run(run.id) for run in runs]

    assert [bool(run.on_failure.run) for run in found] == [True, True, False]
    assert "2 runs of 'b' are under way or wait already" in found[2].on_failure.why_not


def fan_back(machine: Machine, width: int) -> None:
    """So many jobs wait for the failure of one, and the failure of each of them triggers it."""
    soon = job_pb2.Timeouts(queue=duration(1_000))
    make(machine, "root", timeouts=soon)
    for number in range(width):
        job = job_of(
            f"j{number}", on_failure=job_pb2.OnFailure(job="root"), retry=NO_RETRY, overlap=ALLOW
        )
        job.spec.timeouts.CopyFrom(soon)
        job.spec.upstream.jobs.add(job="root", condition=job_pb2.Dependency.CONDITION_FAILURE)
        machine.do(Create(job=job))


def test_what_comes_back_does_not_multiply(machine: Machine) -> None:
    """Seen before: each round was as many times the one before as jobs wait, up to 10,000 runs of
    the job at a time: 122,000 runs in 30 s."""
    fan_back(machine, 5)
    machine.trigger("root")
    most = 0
    for _ in range(3 * limits.ON_FAILURE_DEPTH):
        machine.advance(1_500)
        machine.fire()
        most = max(most, len(machine.live("root")))

    assert most == 1
    assert len(machine.ended("root")) == limits.ON_FAILURE_DEPTH + 1
    brought = {run.on_failure.run for run in machine.ended("j1") if run.on_failure.run}
    assert brought == {run.on_failure.run for run in machine.ended("j2") if run.on_failure.run}
    machine.check()
    # The key that they share goes after a day.
    machine.advance(limits.ON_FAILURE_SHARED_MS)
    machine.fire_all()
    assert not list(machine.store.scan(keys.UNIQUE, keys.after(keys.UNIQUE)))


def test_a_flow_that_came_of_a_failure_triggers_each_job_once(machine: Machine) -> None:
    """Through jobs that are in none of its flows: "fix" begins a flow of its own."""
    make(machine, "fix")
    for number in range(3):
        make(machine, f"part-{number}", "alert", after=["fix"])
    make(machine, "alert")
    make(machine, "first", "fix")
    for runs in ("first", "first"):
        machine.trigger(runs)
    for lease in machine.grant():
        machine.fail(lease)
    for lease in machine.grant():
        assert lease.job == "fix"
        machine.succeed(lease)
    for lease in machine.grant():
        assert lease.job.startswith("part-")
        machine.fail(lease)

    # Two flows came of failures; of one that did not, each failure counts.
    assert len(machine.live("alert")) == 2
    machine.trigger("fix")
    [lease] = [lease for lease in machine.grant() if lease.job == "fix"]
    machine.succeed(lease)
    for lease in machine.grant():
        machine.fail(lease)
    assert len(machine.live("alert")) == 2 + 3
    machine.check()


def test_a_job_whose_failure_begins_its_flow_anew_is_warned_of(machine: Machine) -> None:
    fan_back(machine, 2)
    make(machine, "behind", "root", after=["j1"])
    make(machine, "aside", "j1", after=["root"])

    warned = []
    for name in ("j1", "behind", "aside", "root"):
        request = job_pb2.GetJobStatusRequest(job=name)
        status = ask(machine, request, job_pb2.JobStatus)
        warned.append("begins the flow anew" in " ".join(status.warnings))
    assert warned == [True, True, False, False]


def test_what_waits_for_the_job_goes_on_from_it(pair: Machine) -> None:
    pair.create("c", after=["b"])
    fail(pair)
    [lease] = pair.grant()
    assert lease.flow == lease.run
    pair.succeed(lease)

    assert [lease.job for lease in pair.grant()] == ["c"]
    pair.check()


def test_the_graph_and_a_filter_show_it(pair: Machine) -> None:
    pair.create("c", after=["a"])
    found = ask(pair, flow_pb2.GetGraphRequest(job="c"), flow_pb2.Graph)
    assert sorted(found.jobs) == ["a", "b", "c"]
    assert [(edge.upstream, edge.downstream, edge.triggers) for edge in found.edges] == [
        ("a", "c", False), ("a", "b", True),
    ]  # fmt: skip
    request = job_pb2.ListJobsRequest(filter="on_failure=b")
    listed = ask(pair, request, job_pb2.ListJobsResponse)
    assert [job.name for job in listed.jobs] == ["a"]


def test_an_audit_calls_it_sound(pair: Machine) -> None:
    fail(pair)
    for name in "ab":
        answer = ask(pair, job_pb2.AuditJobRequest(job=name), job_pb2.AuditJobResponse)
        assert answer.sound, answer


def test_what_it_leaves_goes_with_the_runs(pair: Machine) -> None:
    fail(pair)
    [lease] = pair.grant()
    pair.succeed(lease)
    carried = [key for key, _ in pair.store.scan(keys.CARRIED, keys.after(keys.CARRIED))]
    assert len(carried) == 2
    assert pair.view().need(carried[1], CarriedRecord)

    pair.advance(400 * DAY_MS)
    pair.fire_all()
    for table in (keys.CARRIED, keys.UNIQUE):
        assert not list(pair.store.scan(table, keys.after(table)))
    pair.check()
