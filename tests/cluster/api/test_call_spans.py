"""What a cluster does for a call is in the trace of its caller: follower, leader, and the steps of
the change."""

from __future__ import annotations

import logging
from pathlib import Path

from opentelemetry import trace

from raftsched.cluster.ops.figures import SpanFigures
from raftsched.cluster.ops.log import LogContext
from raftsched.proto.v1 import job_pb2, job_pb2_grpc

from ...traced import PARENT, SPAN_ID, TRACE_ID, attributes_of, ids, parent_of, recording
from .conftest import Start
from .real import cluster, followers_of, leader_of, until
from .talk import create, refused

JOBS = job_pb2_grpc.JobServiceStub
METHOD = "raftsched.v1.JobService/CreateJob"
ALONG = (("traceparent", PARENT), ("tracestate", "a=b"))
SECRET = "hunter2-payload"


async def test_a_write_is_seen_from_the_follower_to_the_majority(tmp_path: Path) -> None:
    with recording() as spans:
        async with cluster(tmp_path, 3) as nodes:
            follower = followers_of(nodes)[0]
            wanted = create("report")
            wanted.job.spec.payload.data = SECRET.encode()
            await follower.stub(JOBS).CreateJob(wanted, metadata=ALONG)
            # Nobody traces this one.
            await follower.stub(JOBS).CreateJob(create("other"))
            await until(lambda: len(spans.all) >= 5)
            leader = leader_of(nodes).name
        at_leader, at_follower = [one for one in spans.all if one.name == METHOD]
        steps = {one.name: one for one in spans.all if one.name != METHOD}
    assert (ids(at_follower)[0], parent_of(at_follower)) == (TRACE_ID, SPAN_ID)
    assert parent_of(at_leader) == ids(at_follower)[1]
    assert at_leader.kind is trace.SpanKind.SERVER
    assert attributes_of(at_leader) == {
        "rpc.system.name": "grpc", "rpc.method": METHOD, "raftsched.node": leader,
        "rpc.response.status_code": "OK",
    }  # fmt: skip
    assert list(steps) == ["wait for a change", "decide", "commit"]
    assert {parent_of(one) for one in steps.values()} == {ids(at_leader)[1]}
    ends = [(one.start_time or 0, one.end_time or 0) for one in steps.values()]
    assert ends[0][1] == ends[1][0]
    assert ends[1][1] == ends[2][0]
    assert all(start <= end for start, end in ends)
    assert SECRET not in spans.text()


async def test_refusals_have_a_code_and_are_no_errors_of_the_node(start: Start) -> None:
    with recording() as spans:
        stub = JOBS((await start("a")).channel)
        await refused(stub.GetJob(job_pb2.GetJobRequest(job="report"), metadata=ALONG))
        await refused(
            stub.GetJob(job_pb2.GetJobRequest(job="report"), metadata=(("traceparent", "no"),))
        )
    [span] = spans.all
    assert attributes_of(span)["rpc.response.status_code"] == "NOT_FOUND"
    assert span.status.status_code is trace.StatusCode.UNSET


def test_a_line_of_the_log_names_its_span_and_metrics_count_what_was_lost() -> None:
    context = LogContext("n1")
    with recording() as spans:
        with spans.tracer.start_as_current_span("x"):
            line = context(logging, "info", {"event": "e"})
        outside = context(logging, "info", {"event": "e"})
    assert (line["trace_id"], line["span_id"]) == ids(spans.named("x"))
    assert outside == {"event": "e", "node": "n1"}

    class Queue:
        exported, lost = 3, 4

    found = {one.name: one.samples[0].value for one in SpanFigures(Queue()).collect()}
    assert found == {"raftsched_spans_exported": 3, "raftsched_spans_lost": 4}
