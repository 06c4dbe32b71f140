"""Every path of the contracts leads to its call, and brings each field of the request there."""

from __future__ import annotations

import json
import warnings
from typing import Any
from urllib.parse import urlencode

import pytest
from google.api import annotations_pb2
from google.protobuf import json_format
from google.protobuf.message import Message
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from raftsched.client.gateway.problems import GatewayRefusal
from raftsched.client.gateway.routes import Binding, Routes, bindings_of, bindings_of_contracts
from raftsched.client.gateway.transcode import parse_body, parse_query, request_of
from raftsched.proto.contract import Method, method_of, methods
from raftsched.proto.v1 import job_pb2, secret_pb2

from ...rows import each
from .made import NAME, messages

with warnings.catch_warnings():
    # It warns of versions of Python that it will leave.
    warnings.simplefilter("ignore")
    from google.api_core import path_template, rest_helpers

# They carry no types.
transcode: Any = path_template.transcode
flatten_query_params: Any = rest_helpers.flatten_query_params

BINDINGS = list(bindings_of_contracts())
ROUTES = Routes(BINDINGS)
# Calls that are no request with an answer, or an answer in pieces, over HTTP; and what no HTTP
# client is to have.
NOT_SERVED = {
    "WorkerService/Work", "ClusterService/Backup", "WorkerService/ResolveSecrets",
}  # fmt: skip


def test_every_call_but_those_of_streams_both_ways_has_a_path() -> None:
    assert {method.name for method in methods()} - {one.call.name for one in BINDINGS} == NOT_SERVED


def test_every_binding_of_every_call_is_in_the_table() -> None:
    made = sum(len(list(bindings_of(method))) for method in methods())
    assert len(BINDINGS) == made == len({(one.verb, one.template) for one in BINDINGS})


@each("binding", BINDINGS, ids=lambda one: f"{one.verb} {one.template}")
def test_a_path_leads_to_its_call(binding: Binding) -> None:
    path = binding.template
    for number, name in enumerate(binding.variables):
        path = path.replace(f"{{{name}}}", f"v%3A%2f{number}")
    found = ROUTES.find(path)
    assert found is not None
    route, values = found
    assert route.bindings[binding.verb] is binding
    assert values == [f"v:/{number}" for number in range(len(binding.variables))]
    assert ROUTES.find(path + "/") is None
    assert ROUTES.find(path + ":nothing") is None


@each(
    "path", ["", "/", "/v1", "/v1/", "/v1/x", "/v1/jobs/", "/v2/jobs", "*", "v1/jobs", "/v1/jobs:"]
)
def test_other_paths_lead_nowhere(path: str) -> None:
    found = ROUTES.find(path)
    # A colon with nothing behind it is the path without it.
    assert (found is None) == (path != "/v1/jobs:")


def test_two_calls_with_one_path_are_refused_at_the_start() -> None:
    one = next(iter(bindings_of(method_of(job_pb2.GetJobRequest))))
    with pytest.raises(ValueError, match=r"two calls are GET /v1/jobs/{job}"):
        Routes([one, one])


@pytest.mark.parametrize("template", ["/v1/{name=jobs/*}", "/v1/x{job}"])
def test_a_template_that_is_not_understood_is_refused_at_the_start(template: str) -> None:
    call = method_of(job_pb2.GetJobRequest)
    with pytest.raises(ValueError, match="is no template for this"):
        Routes([Binding(call, "GET", template, "")])


def http_options(method: Method) -> list[dict[str, str]]:
    """As generated clients of googleapis hold them."""
    service = method.request.DESCRIPTOR.file.services_by_name[method.service.split(".")[-1]]
    rule = service.methods_by_name[method.verb].GetOptions().Extensions[annotations_pb2.http]
    found = []
    for one in (rule, *rule.additional_bindings):
        verb = one.WhichOneof("pattern")
        assert verb is not None
        found.append(
            {"method": verb, "uri": getattr(one, verb)} | ({"body": one.body} if one.body else {})
        )
    return found  # fmt: skip


def lists_of_messages(kind: Any, prefix: str = "") -> list[str]:
    """What no query can say."""
    found = []
    for field in kind.fields:
        if field.message_type is None or field.message_type.file.package != kind.file.package:
            continue
        if field.is_repeated:
            found.append(f"{prefix}{field.name}")
        else:
            found += lists_of_messages(field.message_type, f"{prefix}{field.name}.")
    return found


def left_out(binding: Binding) -> frozenset[str]:
    """Fields that this binding cannot say: lists of messages in a query, and what the path sets."""
    kind = binding.call.request.DESCRIPTOR
    lists = [] if binding.body == "*" else lists_of_messages(kind)
    return frozenset(
        [path for path in lists if not binding.body or path.split(".")[0] != binding.body]
        + [*binding.variables]
    )


@pytest.mark.parametrize("binding", BINDINGS, ids=lambda one: f"{one.verb} {one.template}")
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_a_client_of_googleapis_sends_arrives_as_it_was(
    binding: Binding, data: st.DataObject
) -> None:
    sent = data.draw(messages(binding.call.request.DESCRIPTOR, left_out(binding)))
    for name in binding.variables:
        held: Any = sent
        *outer, last = name.split(".")
        for part in outer:
            held = getattr(held, part)
        setattr(held, last, data.draw(NAME.filter(lambda text: text not in (".", ".."))))
    assume(spoken(sent))
    options = [one for one in http_options(binding.call) if one["uri"] == binding.template]
    made: Any = transcode(options, sent)
    query = urlencode(flatten_query_params(as_json(made["query_params"]), strict=True))
    body = json.dumps(as_json(made["body"])).encode() if "body" in made else b""
    found = ROUTES.find(made["uri"])
    assert found is not None
    route, values = found
    there = route.bindings[made["method"].upper()]
    arrived = request_of(there, values, parse_query(query), parse_body(body))
    assert arrived == with_body(sent, binding.body)


def spoken(message: Message) -> bool:
    """Whether a query says all of it: an empty message, or an empty mask, has no text there."""
    return parsed(message) == message


def parsed(message: Message) -> Message:
    made = type(message)()
    json_format.ParseDict(as_json(message), made)
    return made


def as_json(message: Message) -> Any:
    return json_format.MessageToDict(message)


def with_body(sent: Message, body: str) -> Message:
    """What was sent, less the empty messages that a query cannot say."""
    made: Any = type(sent)()
    made.CopyFrom(sent)
    for field in made.DESCRIPTOR.fields:
        if body == "*" or field.is_repeated or field.message_type is None:
            continue
        if field.name == body:
            getattr(made, body).SetInParent()
        else:
            without_empty(made, field.name)
    assert isinstance(made, Message)
    return made


def without_empty(message: Any, name: str) -> None:
    inner = getattr(message, name)
    for field in inner.DESCRIPTOR.fields:
        if field.message_type is not None and not field.is_repeated and inner.HasField(field.name):
            without_empty(inner, field.name)
    if not inner.ListFields() and not inner.DESCRIPTOR.full_name.startswith("google."):
        message.ClearField(name)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_json_is_read_as_protobuf_reads_it(data: st.DataObject) -> None:
    sent = data.draw(messages(job_pb2.ImportJobsRequest.DESCRIPTOR))
    [binding] = bindings_of(method_of(job_pb2.ImportJobsRequest))
    for as_written, numbers in ((False, False), (True, False), (False, True)):
        text = json_format.MessageToJson(
            sent, preserving_proto_field_name=as_written, use_integers_for_enums=numbers
        ).encode()
        assert request_of(binding, [], {}, parse_body(text)) == sent


def create(body: object, query: str = "") -> Message:
    [binding] = bindings_of(method_of(job_pb2.CreateJobRequest))
    return request_of(binding, [], parse_query(query), body)


# What is wrong, where, and words of what it says.
WRONG: list[tuple[Any, str, str]] = [
    ({"nmae": "a"}, "nmae", "did you mean name?"),
    ({"spec": {"prioritty": 1}}, "spec.prioritty", "did you mean priority?"),
    ({"spec": {"priority": "HIGH"}}, "spec.priority", "did you mean PRIORITY_HIGH?"),
    ({"spec": {"priority": 77}}, "spec.priority", "77 is not known"),
    ({"spec": {"priority": True}}, "spec.priority", "true is not known"),
    ({"spec": {"retry": {"maxAttempts": 1.5}}}, "spec.retry.max_attempts", "no whole number"),
    ({"spec": {"retry": {"maxAttempts": True}}}, "spec.retry.max_attempts", "no whole number"),
    ({"spec": {"retry": {"maxAttempts": 1 << 31}}}, "spec.retry.max_attempts", "2147483647"),
    ({"spec": {"payload": {"data": "a*b"}}}, "spec.payload.data", "no base64"),
    ({"spec": {"payload": {"data": "YWJj*"}}}, "spec.payload.data", "no base64"),
    ({"spec": {"keepHistory": "5m"}}, "spec.keep_history", "such as '90s'"),
    ({"spec": {"keepHistory": 5}}, "spec.keep_history", "5 is not a length of time"),
    ({"spec": {"timing": {"startTime": "tomorrow"}}}, "spec.timing.start_time", "an instant"),
    ({"spec": {"labels": {"a": 1}}}, "spec.labels.a", "1 is no text"),
    ({"spec": {"labels": ["a"]}}, "spec.labels", "no object"),
    ({"spec": {"schedules": {}}}, "spec.schedules", "no list"),
    ({"spec": {"schedules": [{"cron": "x"}]}}, "spec.schedules[0].cron", "no object"),
    ({"spec": {"schedules": [None]}}, "spec.schedules[0]", "null is no object"),
    ({"spec": {"action": {"handler": "a", "http": {}}}}, "spec.action.http", "handler is set"),
    ({"spec": {"useShell": 1}}, "spec.useShell", "JobSpec has labels"),
    ({"spec": {"action": {"shell": {"useShell": 1}}}}, "spec.action.shell.use_shell", "true or"),
    ({"spec": {"keep_history": "1s", "keepHistory": "1s"}}, "spec.keep_history", "given twice"),
    ({"name": "\ud800"}, "name", "half of a character"),
    ([], "", "[] is no object"),
    ("x", "", '"x" is no object'),
]


@each(("body", "field", "words"), WRONG, ids=lambda one: str(one)[:40])
def test_a_wrong_field_is_named_with_what_to_write(body: object, field: str, words: str) -> None:
    with pytest.raises(GatewayRefusal) as refused:
        create(body)
    [fault] = refused.value.faults
    assert (fault.field, fault.reason, refused.value.status) == (field, "FIELD_INVALID", 400)
    assert words in fault.message


def test_all_wrong_fields_are_named_at_once() -> None:
    with pytest.raises(GatewayRefusal) as refused:
        create({"a": 1, "spec": {"b": 1, "priority": "x"}}, "c=1&job.name=x&validateOnly=yes")
    assert [fault.field for fault in refused.value.faults] == [
        "a", "spec.b", "spec.priority", "c", "job.name", "validate_only",
    ]  # fmt: skip
    assert "(and 5 more)" in refused.value.message


@each("body", [b"{", b'{"a": 1, "a": 2}', b"\xff", b"[" * 100_000, b"NaN", b"9" * 5_000, b"'"])
def test_what_is_no_json_is_refused_with_the_place(body: bytes) -> None:
    with pytest.raises(GatewayRefusal) as refused:
        create(parse_body(body))
    assert refused.value.status == 400
    if body != b"9" * 5_000:
        assert refused.value.word == "REQUEST_MALFORMED"


@pytest.mark.parametrize("query", ["a=%ff", "&".join(["a=1"] * 300)])
def test_a_query_that_is_none_is_refused(query: str) -> None:
    with pytest.raises(GatewayRefusal, match="over 200 fields or is no UTF-8"):
        parse_query(query)


def read(path: str, query: str, body: object = None) -> Message:
    found = ROUTES.find(path)
    assert found is not None
    [binding] = found[0].bindings.values()
    return request_of(binding, found[1], parse_query(query), body)


def test_a_query_says_fields_of_fields() -> None:
    query = "read.minRevision.change=7&read.consistency=2&from_time=2027-01-01T00:00:00Z"
    sent = read("/v1/jobs/report/ledger", query)
    assert isinstance(sent, job_pb2.ListJobLedgerRequest)
    assert (sent.job, sent.read.min_revision.change, sent.read.consistency) == ("report", 7, 2)
    assert sent.from_time.seconds == 1_798_761_600


@each(
    ("query", "words"),
    [
        ("job=other", "it stands in the path"),
        ("pageSize=1&pageSize=2", "given 2 times"),
        ("read=1", "holds no message"),
        ("read.x=1", "there is no field"),
        ("pageToken.x=1", "there is no field"),
        ("page_size=ten", "no whole number"),
    ],
)
def test_a_wrong_query_is_named(query: str, words: str) -> None:
    with pytest.raises(GatewayRefusal, match=words):
        read("/v1/jobs/report/ledger", query)


def test_a_call_whose_body_holds_everything_takes_a_query_too() -> None:
    sent = read("/v1/jobs/report:trigger", "namespace=shop&force=true", {"queue": "fast"})
    assert sent == job_pb2.TriggerJobRequest(
        namespace="shop", job="report", force=True, queue="fast"
    )
    with pytest.raises(GatewayRefusal, match="in the body and in the query"):
        read("/v1/jobs/report:trigger", "queue=slow", {"queue": "fast"})


def test_a_query_says_whose_a_resource_in_the_body_is() -> None:
    found = ROUTES.find("/v1/queues/mail")
    assert found is not None
    binding, query = found[0].bindings["PATCH"], parse_query("namespace=shop")
    for body in ({"rate": 5}, {"rate": 5, "namespace": "shop"}):
        sent: Any = request_of(binding, found[1], query, body)
        assert (sent.queue.namespace, sent.queue.name, sent.queue.rate) == ("shop", "mail", 5)
    with pytest.raises(GatewayRefusal, match="it is 'other' in the body"):
        request_of(binding, found[1], query, {"namespace": "other"})
    with pytest.raises(GatewayRefusal, match="given 2 times"):
        request_of(binding, found[1], parse_query("namespace=shop&namespace=b"), {})


def test_a_name_in_body_and_path_must_be_one() -> None:
    found = ROUTES.find("/v1/jobs/report")
    assert found is not None
    binding = found[0].bindings["PATCH"]
    sent = request_of(binding, found[1], {}, {"name": "report"})
    assert sent == job_pb2.UpdateJobRequest(job=job_pb2.Job(name="report"))
    with pytest.raises(GatewayRefusal, match="'other' in the body and 'report' in the path"):
        request_of(binding, found[1], {}, {"name": "other"})


def test_a_body_for_a_call_that_takes_none_is_refused() -> None:
    with pytest.raises(GatewayRefusal, match="takes no body"):
        read("/v1/jobs/report/ledger", "", {})


def test_a_secret_is_taken_from_the_body_alone_and_never_repeated() -> None:
    found = ROUTES.find("/v1/secrets/api-key")
    assert found is not None
    route, values = found
    put = route.bindings["PUT"]
    arrived = request_of(put, values, {}, {"value": "XplainX", "secret": {"labels": {"a": "b"}}})
    secret = secret_pb2.Secret(name="api-key", labels={"a": "b"})
    assert arrived == secret_pb2.PutSecretRequest(secret=secret, value="XplainX")
    for query, body in (
        ({"value": ["XplainX"]}, {"secret": {}}), ({"value": ["XplainX"]}, None),
        ({}, {"secret": "XplainX"}), ({}, {"secret": {"labels": "XplainX"}}), ({}, "XplainX"),
        ({}, {"secret": {"labels": {"a": ["XplainX"]}}}),
        ({}, {"secret": {"createTime": "XplainX"}}),
        ({}, {"value": ["XplainX"]}), ({}, {"value": {"XplainX": "XplainX"}}),
        ({}, {"secret": {"value": "XplainX"}}), ({}, {"value": "XplainX", "Value": "XplainX"}),
    ):  # fmt: skip
        with pytest.raises(GatewayRefusal) as refused:
            request_of(put, values, query, body)
        assert "XplainX" not in str(vars(refused.value)) + str(refused.value)
