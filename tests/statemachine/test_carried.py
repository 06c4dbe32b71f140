"""What a run carries for others: its place in a trace, and labels."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import dead_letter_pb2, job_pb2, run_pb2, worker_pb2
from raftsched.statemachine.core.rejection import Reason
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.request import Report
from raftsched.statemachine.selfcheck import invariants

from .driver import DAY_MS, Machine
from .world import ALLOW

TRACE = run_pb2.TraceContext(
    traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    tracestate="rojo=00f067aa0ba902b7, congo=t61rcWkgMzE",
)
NO_RETRY = job_pb2.RetryPolicy(max_attempts=1)
AT_ONCE = job_pb2.RetryPolicy(max_attempts=3)
Result = worker_pb2.Result


def carried(machine: Machine) -> list[bytes]:
    return [key for key, _ in machine.store.scan(keys.CARRIED, keys.after(keys.CARRIED))]


def report(machine: Machine, lease: worker_pb2.Lease, **end: object) -> worker_pb2.ResultAck:
    result = Result(run=lease.run, token=lease.token, **end)  # type: ignore[arg-type]
    [ack] = machine.ask(Report("w1", (result,)), list)
    machine.check()
    assert isinstance(ack, worker_pb2.ResultAck)
    return ack


def test_a_run_carries_what_its_trigger_says_to_each_attempt(machine: Machine) -> None:
    machine.create("a", retry=AT_ONCE)
    run = machine.trigger("a", trace_context=TRACE, labels={"team": "x"})
    assert (run.trace_context, dict(run.labels)) == (TRACE, {"team": "x"})

    [first] = machine.grant()
    machine.fail(first)
    machine.advance(DAY_MS // 24)
    machine.fire()
    [second] = machine.grant()

    for lease in (first, second):
        assert (lease.trace_context, dict(lease.labels)) == (TRACE, {"team": "x"})
    machine.succeed(second)
    assert machine.run(run.id).trace_context == TRACE
    machine.check()


def test_runs_without_it_leave_nothing(machine: Machine) -> None:
    machine.create("a")
    machine.trigger("a")
    [lease] = machine.grant()
    machine.succeed(lease)

    assert not carried(machine)
    assert not lease.HasField("trace_context")


def test_runs_downstream_are_in_the_same_trace_without_the_labels(machine: Machine) -> None:
    machine.create("a")
    machine.create("b", after=["a"])
    machine.create("c", after=["b"])
    machine.trigger("a", trace_context=TRACE, labels={"team": "x"})

    for job in "abc":
        [lease] = machine.grant()
        assert (lease.job, lease.trace_context) == (job, TRACE)
        assert dict(lease.labels) == ({"team": "x"} if job == "a" else {})
        machine.succeed(lease)
    machine.check()


def test_a_handler_writes_labels_over_those_of_the_trigger(machine: Machine) -> None:
    machine.create("a", retry=AT_ONCE)
    run = machine.trigger("a", trace_context=TRACE, labels={"team": "x", "rows": "0"})
    [lease] = machine.grant()
    notes = worker_pb2.RunNotes(labels={"rows": "5"})
    assert not report(machine, lease, failure=worker_pb2.Failure(), notes=notes).reason
    machine.advance(DAY_MS // 24)
    machine.fire()
    [lease] = machine.grant()
    assert dict(lease.labels) == {"team": "x", "rows": "5"}

    success = worker_pb2.Success()
    notes.labels["rows"] = "17"
    assert not report(machine, lease, success=success, notes=notes).reason

    shown = machine.run(run.id)
    assert dict(shown.labels) == {"team": "x", "rows": "17"}
    assert (shown.trace_context, shown.state) == (TRACE, run_pb2.RUN_STATE_SUCCEEDED)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ({"Rows": "5"}, "FIELD_INVALID"),
        ({"": "5"}, "FIELD_INVALID"),
        ({"rows": "5\n"}, "FIELD_INVALID"),
        ({"rows": "5" * 257}, "LIMIT_EXCEEDED"),
        ({f"l{number}": "" for number in range(32)}, "LIMIT_EXCEEDED"),
    ],
)
def test_wrong_labels_leave_the_lease_standing(
    machine: Machine, labels: dict[str, str], reason: str
) -> None:
    machine.create("a")
    run = machine.trigger("a", labels={"team": "x"})
    [lease] = machine.grant()

    for end in ({"success": worker_pb2.Success()}, {"failure": worker_pb2.Failure()}):
        assert report(machine, lease, notes={"labels": labels}, **end).reason == reason
    assert dict(machine.run(run.id).labels) == {"team": "x"}

    assert not report(machine, lease, success=worker_pb2.Success()).reason


@pytest.mark.parametrize(
    ("parent", "state", "field"),
    [
        ("", "", "traceparent"),
        ("", "a=b", "traceparent"),
        (TRACE.traceparent.upper(), "", "traceparent"),
        (TRACE.traceparent + "-00", "", "traceparent"),
        ("ff" + TRACE.traceparent[2:], "", "traceparent"),
        ("00-" + "0" * 32 + TRACE.traceparent[35:], "", "traceparent"),
        (TRACE.traceparent[:36] + "0" * 16 + "-01", "", "traceparent"),
        (TRACE.traceparent + "\n", "", "traceparent"),
        (TRACE.traceparent, "ab", "tracestate"),
        (TRACE.traceparent, "a=b\nc=d", "tracestate"),
        (TRACE.traceparent, ",".join(f"a{number}=b" for number in range(33)), "tracestate"),
        (TRACE.traceparent, "a=" + "b" * 500, "tracestate"),
        (TRACE.traceparent, "a=ü", "tracestate"),
    ],
)
def test_a_trace_context_is_checked(machine: Machine, parent: str, state: str, field: str) -> None:
    machine.create("a")
    trace = run_pb2.TraceContext(traceparent=parent, tracestate=state)

    refused = machine.refused(job_pb2.TriggerJobRequest(job="a", trace_context=trace))

    assert refused.values["field"] == f"trace_context.{field}"


@pytest.mark.parametrize("parent", [TRACE.traceparent, "01" + TRACE.traceparent[2:] + "-more.1"])
@pytest.mark.parametrize("state", ["", "a=b", "a=b,,c@d=e f", "a=" + "b" * 200])
def test_a_trace_context_of_w3c_is_taken(machine: Machine, parent: str, state: str) -> None:
    machine.create("a")
    trace = run_pb2.TraceContext(traceparent=parent, tracestate=state)
    assert machine.trigger("a", trace_context=trace).trace_context == trace


def test_labels_of_a_trigger_are_checked(machine: Machine) -> None:
    machine.create("a")
    refused = machine.refused(job_pb2.TriggerJobRequest(job="a", labels={"A": "b"}))
    assert (refused.reason, refused.values["field"]) == (
        Reason.ERROR_REASON_FIELD_INVALID, "labels[A]",
    )  # fmt: skip


def test_it_goes_with_the_run_and_outlives_a_requeue(machine: Machine) -> None:
    machine.create("a", retry=NO_RETRY)
    run = machine.trigger("a", trace_context=TRACE)
    machine.fail(machine.grant()[0])
    machine.do(dead_letter_pb2.RequeueDeadLetterRequest(run=run.id))
    [lease] = machine.grant()
    assert lease.trace_context == TRACE
    machine.succeed(lease)
    assert carried(machine)

    machine.advance(400 * DAY_MS)
    machine.fire_all()
    assert not carried(machine)
    machine.check()


@pytest.mark.parametrize("way", ["purged", "deleted"])
def test_it_goes_with_a_dead_letter_and_with_its_job(machine: Machine, way: str) -> None:
    machine.create("a", retry=NO_RETRY, overlap=ALLOW)
    for _ in range(2):
        machine.trigger("a", trace_context=TRACE, labels={"team": "x"})
    machine.fail(machine.grant()[0])
    if way == "purged":
        machine.do(dead_letter_pb2.PurgeDeadLettersRequest())
        assert len(carried(machine)) == 1
    machine.do(job_pb2.DeleteJobRequest(job="a"))
    for _ in range(5):
        machine.advance(1)
        machine.fire_all()

    assert not carried(machine)
    machine.check()


def test_what_an_older_version_left_goes_with_the_job(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW)
    machine.trigger("a", labels={"team": "x"})
    [(key, value)] = machine.store.scan(keys.CARRIED, keys.after(keys.CARRIED))
    left = [(keys.carried(machine.jid("a"), place), value) for place in range(150)]
    machine.store.write(left, ())
    machine.do(job_pb2.DeleteJobRequest(job="a"))
    for _ in range(10):
        machine.advance(1)
        machine.fire_all()

    assert not carried(machine)
    assert key not in dict(left)


def test_the_self_check_misses_what_is_not_there(machine: Machine) -> None:
    machine.create("a")
    machine.trigger("a", labels={"team": "x"})
    assert not invariants.check(machine.store)

    kept = [(key, machine.store.get(key) or b"") for key in carried(machine)]
    machine.store.write((), [key for key, _ in kept])
    [breach] = invariants.check(machine.store)
    machine.store.write(kept, ())

    assert "carries" in str(breach)
