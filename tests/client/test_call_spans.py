"""The spans of calls, by both clients, by an app and by a gateway: against the real rules."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import ReadableSpan

from raftsched.client import App, start_tracing, trigger_of
from raftsched.client.errors import NotFound
from raftsched.client.sdk import imports
from raftsched.client.sdk.tracing import InSpan, TraceFields
from raftsched.client.sdk.triggers import trigger_requests
from raftsched.client.testing import Attempt
from raftsched.client.worker.context import entered
from raftsched.proto.v1 import run_pb2

from ..traced import PARENT, SPAN_ID, TRACE_ID, Recorded, attributes_of, ids, parent_of, recording
from .gateway.served import serving
from .stage import Stage
from .test_services import Both, both

# What pytest is to find in this module.
__all__ = ["both"]
LATER = datetime(2030, 1, 1, tzinfo=UTC)
PRODUCER = trace.SpanKind.PRODUCER


@pytest.fixture
def spans(both: Both) -> Iterator[Recorded]:
    with recording() as recorded:
        yield recorded


def seen(run: str, client: Any) -> Any:  # noqa: ANN401  # Either client, and its run.
    return client.runs.get(run)


def carried(run: run_pb2.Run) -> tuple[str, str]:
    """The span that a run is given, without flags, and the state."""
    return run.trace_context.traceparent[:52], run.trace_context.tracestate


def named(span: ReadableSpan) -> str:
    """As a run is given it."""
    return "00-{}-{}".format(*ids(span))


def test_a_run_belongs_to_the_span_that_deferred_it(
    both: Both, stage: Stage, spans: Recorded
) -> None:
    stage.act(lambda machine: machine.create("a"))
    # Baggage may hold anything, and is nobody's business here.
    token = attach(baggage.set_baggage("customer", "hunter2"))
    with spans.tracer.start_as_current_span("web request") as outer:
        run = both(lambda client: client.jobs.trigger("a", payload={"password": "hunter2"}))
        later = both(lambda client: client.jobs.trigger("a", due=LATER))
    detach(token)
    now, then, _ = spans.all
    assert (now.name, now.kind) == ("trigger a", PRODUCER)
    assert parent_of(now) == f"{outer.get_span_context().span_id:016x}"
    assert carried(run.message) == (named(now), "raftsched=now")
    assert carried(later.message) == (named(then), "")
    assert ids(now)[0] == ids(then)[0]
    endpoint = stage.nodes[0].address.rpartition(":")
    found = dict(attributes_of(now))
    assert found.pop("server.port") in [int(one.address.split(":")[1]) for one in stage.nodes]
    assert found == {
        "messaging.system": "raftsched", "messaging.operation.name": "trigger",
        "messaging.operation.type": "send", "messaging.destination.name": "a",
        "messaging.message.id": run.id, "raftsched.job": "a", "raftsched.namespace": "default",
        "rpc.system.name": "grpc", "rpc.method": "raftsched.v1.JobService/TriggerJob",
        "rpc.response.status_code": "OK", "server.address": endpoint[0],
    }  # fmt: skip
    assert "hunter2" not in spans.text()


def test_many_at_once_have_one_span_and_what_is_named_stays(
    both: Both, stage: Stage, spans: Recorded
) -> None:
    stage.act(lambda machine: machine.create("a"))
    triggers = [trigger_of("a"), trigger_of("a", trace_context={"traceparent": PARENT}),
                trigger_of("a", due=LATER)]  # fmt: skip
    made = both(lambda client: client.jobs.trigger_many(triggers))
    span = spans.named("trigger a")
    place = named(span)
    spans.take()
    runs = [both(partial(seen, one.run)) for one in made]
    assert [carried(run.message) for run in runs] == [
        (place, "raftsched=now"), (PARENT[:52], ""), (place, ""),
    ]  # fmt: skip
    assert attributes_of(span)["messaging.batch.message_count"] == 3
    # The caller's own are as they were.
    assert not triggers[0].HasField("trace_context")
    assert {one.name for one in spans.all} == {"raftsched.v1.RunService/GetRun"}
    assert {one.kind for one in spans.all} == {trace.SpanKind.CLIENT}


def test_a_request_has_room_for_what_is_added_to_it(both: Both, spans: Recorded) -> None:
    large = [trigger_of("a", payload=b"x" * 5_000) for _ in range(900)]
    for request in trigger_requests(large, "shop"):
        for one in request.triggers:
            one.trace_context.traceparent, one.trace_context.tracestate = PARENT, "a=" + "b" * 450
        assert request.ByteSize() <= imports.BYTES_MAX + 1_000


def test_a_call_that_is_refused_says_so_without_the_words(both: Both, spans: Recorded) -> None:
    with pytest.raises(NotFound):
        both(lambda client: client.jobs.trigger("hunter2"))
    span = spans.named("trigger hunter2")
    found = attributes_of(span)
    assert (found["error.type"], found["rpc.response.status_code"]) == (
        "JOB_NOT_FOUND", "NOT_FOUND",
    )  # fmt: skip
    assert span.status.status_code is trace.StatusCode.ERROR
    assert (span.status.description, span.events) == (None, ())


def test_a_job_that_is_created_is_one_of_many(both: Both, stage: Stage, spans: Recorded) -> None:
    both(lambda client: client.jobs.create("once-4711", handler="x"))
    span = spans.named("create")
    assert (span.kind, attributes_of(span)["raftsched.job"]) == (PRODUCER, "once-4711")


def test_what_a_handler_defers_is_below_its_own_span(
    both: Both, stage: Stage, spans: Recorded
) -> None:
    stage.act(lambda machine: machine.create("a"))
    attempt = Attempt(trace_context={"traceparent": PARENT})
    with entered(attempt.context), spans.tracer.start_as_current_span("attempt") as outer:
        run = both(lambda client: client.jobs.trigger("a"))
    assert parent_of(spans.named("trigger a")) == f"{outer.get_span_context().span_id:016x}"
    assert carried(run.message)[0] != PARENT[:52]


def test_lines_of_a_log_name_their_span() -> None:
    record = logging.makeLogRecord({"msg": "at work", "levelname": "INFO"})
    plain = InSpan("%(levelname)s %(message)s").format(record)
    with recording() as spans:
        outside = InSpan("%(message)s").format(record)
        with spans.tracer.start_as_current_span("x"):
            TraceFields().filter(record)
            inside = InSpan("%(message)s").format(record)
    trace_id, span_id = ids(spans.named("x"))
    assert (plain, outside) == ("INFO at work", "at work")
    assert inside == f"at work trace_id={trace_id} span_id={span_id}"
    assert (vars(record)["trace_id"], vars(record)["span_id"]) == (trace_id, span_id)


def test_an_app_defers_into_a_trace(stage: Stage) -> None:
    stage.act(lambda machine: machine.create("remind"))
    app = App(stage.endpoints)

    @app.task
    def remind() -> None: ...

    with recording() as spans:
        run = remind.defer_sync()
        assert start_tracing()
    app.connections.close()
    span = spans.named("trigger remind")
    assert carried(run.run.message)[0] == named(span)


async def test_a_gateway_goes_on_below_its_caller(stage: Stage) -> None:
    stage.act(lambda machine: machine.create("a"))
    with recording() as spans:
        async with serving(stage.endpoints) as gateway:
            got = await gateway.ask("POST", "/v1/jobs/a:trigger", {}, traceparent=PARENT)
            lost = await gateway.ask("GET", "/v1/jobs/nobody")
            await gateway.ask("GET", "/openapi.json")
        [served] = [one for one in spans.all if one.name.startswith("POST ")]
        producer = spans.named("trigger a")
    assert served.name == "POST /v1/jobs/{job}:trigger"
    assert (ids(served)[0], parent_of(served)) == (TRACE_ID, SPAN_ID)
    assert parent_of(producer) == ids(served)[1]
    assert got.body["traceContext"]["traceparent"][:52] == named(producer)
    assert got.body["traceContext"]["tracestate"] == "raftsched=now"
    assert got.headers["traceparent"][:52] == named(served)
    [other] = [one for one in spans.all if one.name.startswith("GET ")]
    assert parent_of(other) == ""
    assert ids(other)[0] == lost.headers["traceparent"][3:35]
    found = attributes_of(other)
    assert (found["http.response.status_code"], found["raftsched.reason"]) == (404, "JOB_NOT_FOUND")
    # What a caller did wrong is no error of the gateway.
    assert other.status.status_code is trace.StatusCode.UNSET
