"""Messages are written as protobuf's own writer writes them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given

from raftsched.client.gateway.as_json import as_json
from raftsched.proto.contract import methods
from raftsched.proto.v1 import cluster_pb2, job_pb2

from ...rows import each
from ...sampled import examples, play
from .made import messages

ANSWERS = {method.response.DESCRIPTOR.full_name: method.response for method in methods()}


@examples(fast=15, slow=100)
@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_every_answer_is_written_as_protobuf_does(name: str, many: int) -> None:
    @given(messages(ANSWERS[name].DESCRIPTOR))
    def is_written_as_protobuf_does(message: Message) -> None:
        assert as_json(message) == MessageToDict(message)
        assert list(_keys(as_json(message))) == list(_keys(MessageToDict(message)))

    play(many, is_written_as_protobuf_does)


def _keys(found: Any) -> Any:
    if isinstance(found, dict):
        for key, value in found.items():
            yield key
            yield from _keys(value)


def test_every_field_of_every_answer_has_a_way_to_be_written() -> None:
    seen = set[str]()
    left: list[Any] = [answer.DESCRIPTOR for answer in ANSWERS.values()]
    while left:
        kind = left.pop()
        if kind.full_name in seen:
            continue
        seen.add(kind.full_name)
        made: Any = GetMessageClass(kind)()
        for field in kind.fields:
            if field.message_type is not None:
                left.append(field.message_type)
                if not field.is_repeated and kind.file.package != "google.protobuf":
                    getattr(made, field.name).SetInParent()
        assert as_json(made) == MessageToDict(made)
    assert len(seen) > len(ANSWERS)


@each("nanos", [0, 1, 999, 1_000, 120_000, 1_000_000, 50_000_000, 999_999_999])
@each("seconds", [0, -1, -62_135_596_800, 253_402_300_799, 1_800_000_000])
def test_instants_are_written_as_protobuf_does(seconds: int, nanos: int) -> None:
    assert as_json(Timestamp(seconds=seconds, nanos=nanos)) == MessageToDict(
        Timestamp(seconds=seconds, nanos=nanos)
    )


def test_what_no_instant_is_fails_as_with_protobuf() -> None:
    for wrong in (Timestamp(seconds=1 << 50), Timestamp(nanos=-1), Timestamp(nanos=1 << 30)):
        with pytest.raises(ValueError, match="imestamp"):
            MessageToDict(wrong)
        with pytest.raises(ValueError, match="imestamp"):
            as_json(wrong)


def test_a_value_of_a_later_version_is_written_as_its_number() -> None:
    job = job_pb2.Job()
    job.spec.priority = 77  # type: ignore[assignment]
    assert as_json(job) == MessageToDict(job) == {"spec": {"priority": 77}}


@each("fired", [0.0, -0.0, 1.5, 2.0, 1e300, math.inf, -math.inf, math.nan])
def test_numbers_are_written_as_protobuf_does(fired: float) -> None:
    figures = cluster_pb2.Figures(fired=fired)
    assert repr(as_json(figures)) == repr(MessageToDict(figures))
