"""Refusals on the wire."""

from __future__ import annotations

import re
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from raftsched.cluster.services.status import CODES, details_of, words_of
from raftsched.proto.v1 import error_pb2
from raftsched.statemachine.core.rejection import Fault, Reason, Rejection

CONTRACT = Path(__file__).parents[3] / "proto/v1/error.proto"


def promised() -> dict[str, str]:
    """Reason -> gRPC code, as the comments of the contract say."""
    found = {}
    comment: list[str] = []
    for line in CONTRACT.read_text().splitlines():
        text = line.strip()
        if text.startswith("//"):
            comment.append(text.removeprefix("//").strip())
            continue
        value = re.match(r"(ERROR_REASON_\w+) = (\d+);", text)
        if value and value[2] != "0":
            codes = [
                c.name for c in grpc.StatusCode if re.search(rf"\b{c.name}\b", " ".join(comment))
            ]
            [found[value[1]]] = codes
        comment = []
    return found


def test_every_reason_has_the_code_that_the_contract_says() -> None:
    contract = promised()
    assert len(contract) == len(error_pb2.ErrorReason.keys()) - 1
    assert {Reason.Name(reason): code.name for reason, code in CODES.items()} == contract


def test_what_the_contract_promises_with_retry_info_has_one() -> None:
    text = CONTRACT.read_text()
    for found in re.finditer(r"with RetryInfo[^=]*?(ERROR_REASON_\w+) = ", text):
        rejection = Rejection(Reason.Value(found[1]), "later")
        status = status_pb2.Status.FromString(details_of(rejection))
        kinds = [item.TypeName() for item in status.details]
        assert "google.rpc.RetryInfo" in kinds, found[1]


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
