"""Runs that succeed with a warning: all but people take them for a success like any other."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import event_pb2, job_pb2, run_pb2, worker_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.rejection import Reason
from raftsched.statemachine.model import hiding, keys
from raftsched.statemachine.model.record import CarriedRecord, LabelRecord, encode, parse
from raftsched.statemachine.reads import events

from .asking import ask, refuse
from .driver import DAY_MS, Machine, warn_all
from .world import ALLOW

NO_RETRY = job_pb2.RetryPolicy(max_attempts=1)
SUCCEEDED = run_pb2.RUN_STATE_SUCCEEDED


def status(machine: Machine) -> job_pb2.JobStatus:
    return ask(machine, job_pb2.GetJobStatusRequest(job="a"), job_pb2.JobStatus)


def listed(machine: Machine, text: str) -> list[str]:
    request = run_pb2.ListRunsRequest(filter=text)
    return [run.id for run in ask(machine, request, run_pb2.ListRunsResponse).runs]


def test_a_run_says_what_its_handler_warned_of(machine: Machine) -> None:
    machine.create("a")
    run = machine.trigger("a")
    warn_all(machine, "3 rows had no address")

    shown = machine.run(run.id)
    assert (shown.state, shown.warning) == (SUCCEEDED, "3 rows had no address")
    assert not shown.HasField("error")
    [event] = [
        event
        for event in events.events(machine.log[-1], machine.index, machine.store)
        if event.kind == event_pb2.EVENT_KIND_RUN_SUCCEEDED
    ]
    assert event.run.warning == "3 rows had no address"
    machine.check()


def test_it_counts_as_a_success_and_apart(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW)
    for warning in ("one", "", "two"):
        machine.trigger("a")
        warn_all(machine, warning)
        machine.advance(1)

    assert (status(machine).succeeded, status(machine).warned) == (3, 2)
    assert (status(machine).last_state, status(machine).last_warning) == (SUCCEEDED, "two")
    machine.trigger("a")
    warn_all(machine, "")
    assert (status(machine).warned, status(machine).last_warning) == (2, "")
    machine.check()


def test_runs_downstream_go_on_as_after_any_success(machine: Machine) -> None:
    machine.create("a")
    machine.create("b", after=["a"])
    machine.trigger("a")
    warn_all(machine, "look")

    [lease] = machine.grant()
    assert lease.job == "b"
    assert lease.upstream[0].state == SUCCEEDED


def test_an_attempt_that_ends_otherwise_leaves_none(machine: Machine) -> None:
    machine.create("a", retry=NO_RETRY)
    run = machine.trigger("a")
    [lease] = machine.grant()
    notes = worker_pb2.RunNotes(warning="look", labels={"rows": "1"})
    failure = worker_pb2.Failure(error=run_pb2.RunError(kind="Oh"))
    machine._report(lease, failure=failure, notes=notes)

    shown = machine.run(run.id)
    assert (shown.state, shown.warning, dict(shown.labels)) == (
        run_pb2.RUN_STATE_FAILED, "", {"rows": "1"},
    )  # fmt: skip
    assert not status(machine).warned
    machine.check()


def test_the_call_of_one_attempt_takes_it_too(machine: Machine) -> None:
    machine.create("a", retry=NO_RETRY, overlap=ALLOW)
    first, second = machine.trigger("a"), machine.trigger("a")
    leases = {lease.run: lease for lease in machine.grant()}
    notes = worker_pb2.RunNotes(warning="look", labels={"rows": "1"})
    token = leases[first.id].token
    machine.do(worker_pb2.CompleteRequest(run=first.id, token=token, notes=notes))
    token = leases[second.id].token
    machine.do(worker_pb2.FailRequest(run=second.id, token=token, notes=notes))

    assert (machine.run(first.id).warning, machine.run(second.id).warning) == ("look", "")
    assert dict(machine.run(second.id).labels) == {"rows": "1"}


def test_of_a_long_one_the_rest_is_cut_off(machine: Machine) -> None:
    machine.create("a")
    run = machine.trigger("a", labels={"team": "x"})
    warn_all(machine, "x" * (limits.WARNING_CHARS + 1))

    shown = machine.run(run.id)
    assert (shown.warning, dict(shown.labels)) == ("x" * limits.WARNING_CHARS, {"team": "x"})


def test_a_filter_finds_it(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW)
    warned = machine.trigger("a")
    warn_all(machine, "3 rows had no Address")
    plain = machine.trigger("a")
    warn_all(machine, "")

    assert listed(machine, 'state=SUCCEEDED AND warning!=""') == [warned.id]
    assert listed(machine, 'state=SUCCEEDED AND warning=""') == [plain.id]
    assert listed(machine, "job=a AND state=SUCCEEDED AND warning:address") == [warned.id]
    history = job_pb2.ListJobHistoryRequest(job="a", filter="warning:rows")
    answer = ask(machine, history, job_pb2.ListJobHistoryResponse)
    assert [run.id for run in answer.runs] == [warned.id]
    request = run_pb2.ListRunsRequest(filter="warning>3")
    assert refuse(machine, request) == Reason.ERROR_REASON_FILTER_INVALID


def test_a_viewer_that_may_not_see_payloads_sees_that_there_is_one(machine: Machine) -> None:
    machine.create("a")
    run = machine.trigger("a")
    warn_all(machine, "secret")

    shown = hiding.hidden(machine.run(run.id))
    assert isinstance(shown, run_pb2.Run)
    assert shown.warning == hiding.HIDDEN
    seen = hiding.hidden(status(machine))
    assert isinstance(seen, job_pb2.JobStatus)
    assert (seen.warned, seen.last_warning) == (1, hiding.HIDDEN)


@pytest.mark.parametrize("way", ["purged", "deleted"])
def test_nothing_of_it_is_left(machine: Machine, way: str) -> None:
    machine.create("a")
    machine.trigger("a")
    warn_all(machine, "look")
    if way == "purged":
        machine.advance(400 * DAY_MS)
        machine.fire_all()
        assert (status(machine).warned, status(machine).last_warning) == (1, "")
    machine.do(job_pb2.DeleteJobRequest(job="a"))
    for _ in range(3):
        machine.advance(1)
        machine.fire_all()

    for table in (keys.WARNED, keys.CARRIED):
        assert not list(machine.store.scan(table, keys.after(table)))
    machine.check()


def test_what_a_run_carried_before_there_were_warnings_is_read() -> None:
    former = CarriedRecord(format=1, labels=(LabelRecord(name="team", value="x"),))
    bare = encode(former)
    # An array of one field less.
    data = bytes([bare[0] - 1]) + bare[1:-1]

    read = parse(b"h", data, CarriedRecord)

    assert (read.format, read.labels, read.warning) == (2, former.labels, "")
