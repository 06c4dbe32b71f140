"""What every unary call keeps to."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import pytest

from raftsched.cluster.api import call, rates
from raftsched.proto.contract import methods
from raftsched.proto.v1 import (
    common_pb2,
    error_pb2,
    event_pb2,
    event_pb2_grpc,
    job_pb2,
    job_pb2_grpc,
    namespace_pb2,
    namespace_pb2_grpc,
)
from raftsched.statemachine.core.rejection import Refused
from raftsched.statemachine.reads.reads import READS
from raftsched.statemachine.rules import RULES

from .conftest import Served, Start
from .fake import Answer, World
from .talk import Anything, Refusal, create, handler_job, refused, trailing_of, until

STALE = common_pb2.ReadOptions(consistency=common_pb2.CONSISTENCY_STALE)


def jobs(served: Served) -> Anything:
    return job_pb2_grpc.JobServiceStub(served.channel)


def test_every_rule_and_read_that_has_a_call_is_served_by_it() -> None:
    by_request = {method.request: method for method in methods()}
    for request in [*READS, *(rule for rule in RULES if hasattr(rule, "DESCRIPTOR"))]:
        method = by_request[request]
        assert (request in READS) == method.harmless == method.reads, method.name


async def test_a_job_is_created_and_read(start: Start) -> None:
    served = await start("a")
    made = await jobs(served).CreateJob(create("report"))
    assert made.name == "report"
    assert await jobs(served).GetJob(job_pb2.GetJobRequest(job="report")) == made
    assert served.counted.calls == [("JobService/CreateJob", "OK"), ("JobService/GetJob", "OK")]


async def test_each_answer_says_who_leads_and_what_it_is_true_at(start: Start) -> None:
    served = await start("a")
    call = jobs(served).CreateJob(create("report"))
    await call
    assert await trailing_of(call) == {
        "raftsched-leader": served.address,
        "raftsched-term": "1",
        "raftsched-revision": "1.2147483647",
        "raftsched-cluster": "c-1",
    }
    call = jobs(served).GetJob(job_pb2.GetJobRequest(job="report", read=STALE))
    await call
    assert (await trailing_of(call))["raftsched-age-ms"] == "7"


async def test_a_refusal_says_why_in_words_and_in_details(start: Start) -> None:
    served = await start("a")
    found = await refused(jobs(served).GetJob(job_pb2.GetJobRequest(job="nope")))
    assert found.code == grpc.StatusCode.NOT_FOUND
    assert found.reason == "JOB_NOT_FOUND"
    assert found.values["job"] == "nope"
    assert found.trailing["raftsched-leader"] == served.address
    assert served.counted.calls == [("JobService/GetJob", "NOT_FOUND")]


async def test_all_wrong_fields_are_named_at_once(start: Start) -> None:
    served = await start("a")
    job = handler_job("Not A Name", queue="No Queue")
    found = await refused(jobs(served).CreateJob(job_pb2.CreateJobRequest(job=job)))
    assert found.code == grpc.StatusCode.INVALID_ARGUMENT
    assert found.reason == "FIELD_INVALID"
    assert {field for field, _, _ in found.faults} == {"name", "spec.queue"}


async def test_a_quota_comes_with_its_failure(start: Start) -> None:
    served = await start("a")
    small = namespace_pb2.Namespace(name="small", quota=namespace_pb2.Quota(jobs=1))
    namespaces: Any = namespace_pb2_grpc.NamespaceServiceStub(served.channel)
    await namespaces.CreateNamespace(namespace_pb2.CreateNamespaceRequest(namespace=small))
    found = None
    for name in ("one", "two"):
        job = handler_job(name)
        job.namespace = "small"
        call = jobs(served).CreateJob(job_pb2.CreateJobRequest(job=job))
        if name == "two":
            found = await refused(call)
        else:
            await call
    assert found is not None
    assert (found.code, found.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
    assert found.quota == found.values["quota"] == "jobs"


async def test_the_same_request_id_gets_the_first_answer(start: Start) -> None:
    served = await start("a")
    first = await jobs(served).CreateJob(create("report", request_id="r1"))
    again = await jobs(served).CreateJob(create("report", request_id="r1"))
    assert again == first
    found = await refused(jobs(served).CreateJob(create("other", request_id="r1")))
    assert found.reason == "REQUEST_ID_REUSED"


async def test_validate_only_stores_nothing(start: Start) -> None:
    served = await start("a")
    await jobs(served).CreateJob(create("report", validate_only=True))
    found = await refused(jobs(served).GetJob(job_pb2.GetJobRequest(job="report")))
    assert found.reason == "JOB_NOT_FOUND"


async def test_bytes_that_are_no_request_are_refused(start: Start) -> None:
    served = await start("a")
    call: Any = served.channel.unary_unary("/raftsched.v1.JobService/CreateJob")
    found = await refused(call(b"\xff\xff\xff"))
    assert (found.code, found.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


async def test_every_call_of_the_contracts_is_served_and_no_other(start: Start) -> None:
    served = await start("a")
    for method in methods():
        ways = (
            served.channel.unary_unary, served.channel.unary_stream,
            served.channel.stream_unary, served.channel.stream_stream,
        )  # fmt: skip
        way: Any = ways[2 * method.streams_in + method.streams_out]
        call = way(method.path)([b""] if method.streams_in else b"", timeout=1)
        assert await call.code() != grpc.StatusCode.UNIMPLEMENTED, method.path
    undo: Any = served.channel.unary_unary("/raftsched.v1.ClusterService/Undo")
    assert (await refused(undo(b""))).code == grpc.StatusCode.UNIMPLEMENTED


async def test_a_message_over_4_mib_is_refused_with_its_size(start: Start) -> None:
    served = await start("a")
    call: Any = served.channel.unary_unary("/raftsched.v1.JobService/CreateJob")
    found = await refused(call(b"x" * 5_000_000))
    assert found.code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "5000000 vs. 4194304" in found.message


async def test_an_answer_over_4_mib_is_our_own_refusal_with_what_to_do(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leader, follower = await start("a"), await start("b")

    async def large(*_: object) -> Answer:
        return Answer(job_pb2.Job(name="x" * 5_000_000), 1, 0)

    monkeypatch.setattr(leader.node, "read", large)
    for served in (leader, follower):
        found = await refused(jobs(served).GetJob(job_pb2.GetJobRequest(job="report")))
        assert (found.code, found.reason) == (
            grpc.StatusCode.INVALID_ARGUMENT, "LIMIT_EXCEEDED"
        )  # fmt: skip
        assert found.values == {"limit": "answer", "maximum": "4194304", "actual": "5000005"}
        assert found.message == (
            "JobService/GetJob: the answer has 5000005 bytes, and a message has 4194304 at most; "
            "ask for less: a smaller page, a narrower filter, or one item"
        )
    assert "Traceback" not in caplog.text


async def test_a_write_whose_answer_is_over_4_mib_says_that_it_was_done(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await start("a")

    async def large(*_: object) -> job_pb2.Job:
        return job_pb2.Job(name="x" * 5_000_000)

    monkeypatch.setattr(served.node, "write", large)
    found = await refused(jobs(served).CreateJob(create("report")))
    assert found.reason == "LIMIT_EXCEEDED"
    assert "this was done" in found.message


async def test_a_call_whose_write_is_not_confirmed_ends_with_a_name_in_time(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever calls waits for much longer than the node does, so that the name comes in any case.
    monkeypatch.setattr(call, "MARGIN_S", 59.9)
    monkeypatch.setattr(call, "MARGIN_SHARE", 1.0)
    served = await start("a")
    served.node.gate.clear()
    found = await refused(jobs(served).CreateJob(create("report"), timeout=60.0))
    assert (found.code, found.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "COMMIT_TIMEOUT")


async def test_a_fault_of_ours_is_internal_and_logged(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    served = await start("a")

    async def broken(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(served.node, "write", broken)
    found = await refused(jobs(served).CreateJob(create("report")))
    assert found.code == grpc.StatusCode.INTERNAL
    assert "JobService/CreateJob" in found.message
    assert "planted" not in found.message
    assert "ZeroDivisionError: planted" in caplog.text
    assert served.counted.calls == [("JobService/CreateJob", "INTERNAL")]


async def test_a_freshness_that_nobody_knows_is_refused(start: Start) -> None:
    await start("a")
    follower = await start("b")
    read = common_pb2.ReadOptions(consistency=9)  # type: ignore[arg-type]
    found = await refused(jobs(follower).GetJob(job_pb2.GetJobRequest(job="x", read=read)))
    assert (found.reason, found.values) == ("FIELD_INVALID", {"field": "read.consistency"})
    assert "CONSISTENCY_STALE" in found.message


async def test_a_draining_node_refuses_and_names_the_leader(start: Start, world: World) -> None:
    leader, other = await start("a"), await start("b")
    other.node.drain()
    found = await refused(jobs(other).GetJob(job_pb2.GetJobRequest(job="x", read=STALE)))
    assert (found.code, found.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
    assert found.values["leader"] == leader.address


async def test_a_refusal_of_the_node_itself_is_passed_to_the_caller(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await start("a")

    async def full(*_: object) -> None:
        reason = error_pb2.ErrorReason.ERROR_REASON_BACKLOG_FULL
        raise Refused.because(reason, "too much", waiting=3)

    monkeypatch.setattr(served.node, "write", full)
    found = await refused(jobs(served).CreateJob(create("report")))
    assert (found.code, found.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "BACKLOG_FULL")
    assert found.retry_ms > 0


async def overrun(served: Served, asked: Anything) -> Refusal:
    """A call that this node still waits for as its time is over, which no test waits for."""
    call = asyncio.ensure_future(refused(asked))
    await until(lambda: served.node.waits.is_set())
    [under_way] = served.admitted
    assert under_way.ending is not None
    ends_at = under_way.ending.when()
    assert ends_at is not None
    # As long as the answer needs to come back.
    assert time.monotonic() < ends_at < under_way.began + under_way.seconds
    under_way.ending.reschedule(0)
    return await call


async def test_a_read_whose_time_is_over_says_so_and_not_that_nobody_leads(start: Start) -> None:
    served = await start("a")
    served.node.read_gate.clear()

    request = job_pb2.GetJobRequest(job="report")
    found = await overrun(served, jobs(served).GetJob(request, timeout=60.0))

    assert (found.code, found.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_PASSED")
    assert "s were over before a could answer" in found.message
    # gRPC sends times of 10 to 100 s in tenths of a second, rounded up.
    assert 0 < float(found.values["seconds"]) <= 60.1


async def test_a_caller_that_leaves_ends_its_call(start: Start) -> None:
    served = await start("a")
    served.node.gate.clear()
    call = jobs(served).CreateJob(create("report"))
    await asyncio.wait_for(served.node.waits.wait(), 60)
    call.cancel()
    async with asyncio.timeout(60):
        while not served.counted.calls:
            await asyncio.sleep(0)
    assert served.counted.calls == [("JobService/CreateJob", "CANCELLED")]


async def test_a_namespace_makes_no_more_calls_than_it_may(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(rates.CallRates.__init__, "__defaults__", (lambda: now[0],))
    await start("a")
    served = await start("b")
    quota = namespace_pb2.Quota(calls_per_second=2)
    names: Any = namespace_pb2_grpc.NamespaceServiceStub(served.channel)
    team = namespace_pb2.Namespace(name="team", quota=quota)
    await names.CreateNamespace(namespace_pb2.CreateNamespaceRequest(namespace=team))
    asked = job_pb2.ListJobsRequest(namespace="team")
    job = handler_job("report")
    job.namespace = "team"
    await jobs(served).CreateJob(job_pb2.CreateJobRequest(job=job))
    await jobs(served).ListJobs(asked)
    for _ in range(2):
        found = await refused(jobs(served).ListJobs(asked))
        assert (found.code, found.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "RATE_LIMITED")
        assert found.values == {"namespace": "team", "maximum": "2"}
        assert 0 < found.retry_ms <= 501
    await jobs(served).ListJobs(job_pb2.ListJobsRequest())
    now[0] += 0.5
    await jobs(served).ListJobs(asked)
    assert (await refused(jobs(served).ListJobs(asked))).reason == "RATE_LIMITED"
    # A quota that is raised counts within a second.
    update = namespace_pb2.UpdateNamespaceRequest(namespace=team)
    update.namespace.quota.calls_per_second = 100
    await names.UpdateNamespace(update)
    now[0] += 1.0
    for _ in range(50):
        await jobs(served).ListJobs(asked)


async def test_streams_and_imports_count_in_each_namespace(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates.CallRates.__init__, "__defaults__", (lambda: 100.0,))
    served = await start("a")
    names: Any = namespace_pb2_grpc.NamespaceServiceStub(served.channel)
    for name in ("team", "other"):
        team = namespace_pb2.Namespace(name=name, quota=namespace_pb2.Quota(calls_per_second=2))
        await names.CreateNamespace(namespace_pb2.CreateNamespaceRequest(namespace=team))
    events: Any = event_pb2_grpc.EventServiceStub(served.channel)

    async def watch() -> str:
        stream = events.WatchEvents(event_pb2.WatchEventsRequest(namespace="team"))
        await stream.read()
        stream.cancel()
        return "it stands"

    await watch()
    wanted = [handler_job("free"), handler_job("a"), handler_job("b"), handler_job("c")]
    for job, namespace in zip(wanted, ("default", "team", "team", "other"), strict=True):
        job.namespace = namespace
    await jobs(served).ImportJobs(job_pb2.ImportJobsRequest(jobs=wanted))
    for asked in (watch(), jobs(served).ImportJobs(job_pb2.ImportJobsRequest(jobs=wanted))):
        found = await refused(asked)
        assert (found.reason, found.values) == (
            "RATE_LIMITED", {"namespace": "team", "maximum": "2"},
        )  # fmt: skip
        assert "the namespace team may make 2 calls a second; try again in" in found.message
    await jobs(served).ListJobs(job_pb2.ListJobsRequest(namespace="other"))


async def test_a_server_without_its_clock_ends_the_node(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await start("a")

    def broken(now: float) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(served.server.work, "look", broken)
    async with asyncio.timeout(60):
        while served.node.failed is None:
            await asyncio.sleep(0)
    assert isinstance(served.node.failed, ZeroDivisionError)


async def test_a_handler_that_forgets_its_time_is_ended_in_time(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await start("a")

    async def forgets(*_: object) -> None:
        served.node.waits.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(served.node, "write", forgets)
    found = await overrun(served, jobs(served).CreateJob(create("report"), timeout=60.0))
    assert (found.code, found.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "COMMIT_TIMEOUT")
