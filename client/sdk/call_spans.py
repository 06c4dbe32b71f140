"""The span of a call: what a client asks for, and the trace that a run is deferred into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from google.protobuf.message import Message

from ...proto import otel_spans, tracing
from ...proto.v1 import job_pb2
from .course import Course
from .errors import RaftschedError
from .links import Answer, Metadata

if TYPE_CHECKING:
    from ...proto.otel_spans import Span, Spans

# Calls by which work comes into being, and the kind of operation that each is.
PRODUCERS = {
    "TriggerJob": ("trigger", "send"),
    "TriggerJobs": ("trigger", "send"),
    "CreateJob": ("create", "create"),
    "ImportJobs": ("create", "create"),
}


class CallSpan:
    """The span of a call that is under way."""

    def __init__(self, span: Span, course: Course) -> None:
        self._span = span
        carrier = otel_spans.carrier_of(span)
        # What the node is sent, to go on below this span.
        self.metadata: Metadata = tuple(carrier.items())
        course.request = traced(course.request, carrier)

    def answered(self, answer: Answer[Any]) -> None:
        span = self._span
        host, _, port = answer.endpoint.rpartition(":")
        span.set_attribute("server.address", host or answer.endpoint)
        if port.isdecimal():
            span.set_attribute("server.port", int(port))
        span.set_attribute("rpc.response.status_code", "OK")
        if answer.message.DESCRIPTOR.name == "Run":
            span.set_attribute("messaging.message.id", answer.message.id)


@contextmanager
def calling(spans: Spans, course: Course) -> Iterator[CallSpan]:
    """A span around a call, in which the call's runs are deferred."""
    method = course.method
    name, kind, attributes = described(method.verb, course.request)
    # Of the path "/raftsched.v1.JobService/TriggerJob", as the conventions have it.
    attributes |= {"rpc.system.name": "grpc", "rpc.method": method.path[1:]}
    with spans.around(name or method.path[1:], kind, attributes) as span:
        try:
            yield CallSpan(span, course)
        except RaftschedError as error:
            if error.code:
                span.set_attribute("rpc.response.status_code", error.code)
            otel_spans.fail(span, error.reason or error.code or type(error).__name__)
            raise
        except BaseException as error:
            otel_spans.fail(span, type(error).__name__)
            raise


def described(verb: str, request: Any) -> tuple[str, str, dict[str, str | int | float | bool]]:  # noqa: ANN401
    """Name ("": that of the method), kind and attributes, by what kind of call it is."""
    found: dict[str, str | int | float | bool] = {}
    namespace = getattr(request, "namespace", "")
    if namespace:
        found["raftsched.namespace"] = namespace
    if verb not in PRODUCERS:
        return "", "client", found
    operation, kind = PRODUCERS[verb]
    found |= {
        "messaging.system": "raftsched",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
    }
    job = _job_of(request)
    if job:
        found |= {"messaging.destination.name": job, "raftsched.job": job}
    if verb == "TriggerJobs":
        found["messaging.batch.message_count"] = len(request.triggers)
    # A job that is created may be one of millions, and names of spans are to be few.
    named = f"{operation} {job}" if job and verb != "CreateJob" else operation
    return named, "producer", found


def _job_of(request: Any) -> str:  # noqa: ANN401  # Any request.
    """The one job that a call is about; empty where it is about several."""
    match request:
        case job_pb2.TriggerJobRequest():
            return request.job
        case job_pb2.CreateJobRequest():
            return request.job.name
        case job_pb2.TriggerJobsRequest():
            names = {one.job for one in request.triggers}
            return names.pop() if len(names) == 1 else ""
    return ""


def traced(request: Message, carrier: Mapping[str, str]) -> Message:
    """The request, or a copy whose runs belong to this trace, unless they name another one."""
    one: Any = request
    if isinstance(request, job_pb2.TriggerJobsRequest):
        if all(trigger.HasField("trace_context") for trigger in request.triggers):
            return request
        one = _copy(request)
        for trigger in one.triggers:
            _put(trigger, carrier)
        return cast(Message, one)
    if "trace_context" not in request.DESCRIPTOR.fields_by_name or one.HasField("trace_context"):
        return request
    one = _copy(request)
    _put(one, carrier)
    return cast(Message, one)


def _put(trigger: Any, carrier: Mapping[str, str]) -> None:  # noqa: ANN401  # Either kind.
    if not trigger.HasField("trace_context"):
        found = tracing.marked(carrier, at_once=not trigger.HasField("due_time"))
        trigger.trace_context.traceparent = found["traceparent"]
        trigger.trace_context.tracestate = found.get("tracestate", "")


def _copy(request: Message) -> Any:  # noqa: ANN401  # Of the same type.
    copy = type(request)()
    copy.CopyFrom(request)
    return copy
