"""A payload that calls itself JSON is JSON, or its fault is named with line and column."""

from __future__ import annotations

import pytest

from raftsched.proto.json_text import fault, is_json
from raftsched.proto.v1 import common_pb2, job_pb2

from ..rows import each
from .driver import Machine, job_of, with_mask


def payload(data: bytes, kind: str = "application/json") -> common_pb2.Payload:
    return common_pb2.Payload(data=data, content_type=kind)


@each(
    ("data", "why"),
    [
        (b'{"a": 1', "line 1, column 8: it ends too soon"),
        (b'{"a":\n "b"\n c}', "line 3, column 2: expected ',' or '}'"),
        ('{"ä":\n "ü" x'.encode(), "line 2, column 6: expected ',' or '}'"),
        (b'"\xff"', "line 1, column 2: it is not UTF-8"),
        (b"[" * 60_000, "line 1, column 60001: it is nested too deep"),
        (b"", "line 1, column 1: it ends too soon"),
        (rb'{"a": "\ud800"}', "line 1, column 8: it has half of a surrogate pair"),
        (rb'{"a": "x\\\ud83dx"}', "line 1, column 11: it has half of a surrogate pair"),
        (rb'{"a": "\udc00"}', "line 1, column 14: it has half of a surrogate pair"),
        (rb'{"a": "\ud83d', "line 1, column 14: it ends too soon"),
        (rb'{"a": "\ud83d\u', "line 1, column 16: it ends too soon"),
        (rb'{"a": "\ud83d\ude00', "line 1, column 20: it ends too soon"),
        (rb'{"a": "\\ud800"}', ""),
        (rb'{"a": "\ud83d\ude00"}', ""),
        (b'{"a": [1, "\xc3\xa4", null]}', ""),
    ],
)
def test_the_place_of_a_fault_is_named(data: bytes, why: str) -> None:
    assert fault(data) == why


@each(
    ("kind", "said"),
    [
        ("application/json", True), ("Application/JSON; charset=utf-8", True),
        ("application/ld+json", True), ("text/plain", False), ("", False),
        ("application/jsonl", False),
    ],
)  # fmt: skip
def test_what_calls_itself_json(kind: str, said: bool) -> None:
    assert is_json(kind) is said


@pytest.mark.parametrize("kind", ["application/json", "application/ld+json; charset=utf-8"])
def test_malformed_json_is_refused_wherever_a_payload_is_given(machine: Machine, kind: str) -> None:
    wrong = payload(b'{"a": 1', kind)
    machine.create("a")
    requests = (
        job_pb2.CreateJobRequest(job=job_of("b", payload=wrong)),
        with_mask("spec.payload", name="a", payload=wrong),
        job_pb2.TriggerJobRequest(job="a", payload=wrong),
    )
    for request in requests:
        refusal = machine.refused(request)
        [found] = refusal.faults
        assert found.field in ("payload.data", "spec.payload.data")
        assert found.message == (
            "it is not valid JSON (line 1, column 8: it ends too soon); mend it, or say what it is "
            "by another content_type"
        )


def test_what_does_not_call_itself_json_is_not_looked_at(machine: Machine) -> None:
    machine.create("a", payload=payload(b'{"a": 1', "text/plain"))
    machine.create("b", payload=payload(b'{"a": 1', ""))
