"""Refusals on the wire."""

from __future__ import annotations

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from raftsched.cluster.api.status import code_of, details_of, words_of
from raftsched.proto.contract import ReasonRules, reasons
from raftsched.statemachine.core.rejection import Fault, Reason, Rejection

from ...rows import each


@each("rules", reasons(), ids=lambda rules: rules.word)
def test_a_refusal_comes_as_the_contract_says(rules: ReasonRules) -> None:
    rejection = Rejection(rules.number, "no")
    status = status_pb2.Status.FromString(details_of(rejection))
    assert grpc.StatusCode[rules.code] is code_of(rejection)
    assert status.code == code_of(rejection).value[0]
    retry = [item for item in status.details if item.Is(error_details_pb2.RetryInfo.DESCRIPTOR)]
    assert bool(retry) == bool(rules.retry_ms)


@pytest.mark.parametrize("faults", [1, 5, 500])
def test_a_refusal_stays_within_the_metadata_that_clients_take(faults: int) -> None:
    reason = Reason.ERROR_REASON_FIELD_INVALID
    wrong = tuple(Fault(f"jobs[{n}].name", reason, "ä" * 300) for n in range(faults))
    rejection = Rejection(reason, "ü" * 10_000, {"field": "x" * 5_000}, wrong)
    details = details_of(rejection)
    # Words are written in percent signs, three bytes for each of UTF-8, and details in base64.
    assert len(details) * 4 / 3 + 6 * len(words_of(rejection)) < 15_000
    status = status_pb2.Status.FromString(details)
    shown = error_details_pb2.BadRequest.FromString(status.details[-1].value).field_violations
    assert shown[0].field == "jobs[0].name"
    assert len(shown) == faults or len(shown) >= 1
