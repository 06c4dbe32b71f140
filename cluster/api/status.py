"""From a refusal to what goes over the wire: a gRPC code, words, and details a program can read."""

from __future__ import annotations

from collections.abc import Mapping

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from ...proto.contract import reasons
from ...statemachine.core.rejection import Reason, Rejection

DOMAIN = "raftsched"
DETAILS = "grpc-status-details-bin"
# Clients take 8 KiB of metadata, and gRPC writes binary ones in base64. What is over would hide
# the refusal behind gRPC's own complaint, so details are cut before that.
MESSAGE_CHARS = 1_024
VALUE_CHARS = 256
DETAIL_BYTES = 4_096

RULES = {rules.number: rules for rules in reasons()}
CODES = {number: grpc.StatusCode[rules.code] for number, rules in RULES.items()}


def code_of(rejection: Rejection) -> grpc.StatusCode:
    return CODES[rejection.reason]


def words_of(rejection: Rejection) -> str:
    return clipped(rejection.message, MESSAGE_CHARS)


def details_of(rejection: Rejection) -> bytes:
    """The google.rpc.Status that goes into the trailing metadata."""
    status = status_pb2.Status(code=code_of(rejection).value[0], message=words_of(rejection))
    values = {key: clipped(value, VALUE_CHARS) for key, value in rejection.values.items()}
    _add(status, error_details_pb2.ErrorInfo(reason=rejection.word, domain=DOMAIN, metadata=values))
    retry_ms = rejection.retry_after_ms or RULES[rejection.reason].retry_ms
    if retry_ms:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(retry_ms)
        _add(status, retry)
    if rejection.reason == Reason.ERROR_REASON_QUOTA_EXCEEDED:
        quota = error_details_pb2.QuotaFailure()
        quota.violations.add(subject=values.get("quota", ""), description=words_of(rejection))
        _add(status, quota)
    if rejection.faults:
        _add(status, _bad_request(rejection, DETAIL_BYTES - status.ByteSize()))
    data: bytes = status.SerializeToString()
    return data


def _bad_request(rejection: Rejection, room: int) -> error_details_pb2.BadRequest:
    """All wrong fields, as far as there is room."""
    request = error_details_pb2.BadRequest()
    for fault in rejection.faults:
        word = Reason.Name(fault.reason).removeprefix("ERROR_REASON_")
        request.field_violations.add(
            field=clipped(fault.field, VALUE_CHARS),
            description=clipped(fault.message, VALUE_CHARS),
            reason=word,
        )
        if request.ByteSize() > room and len(request.field_violations) > 1:
            del request.field_violations[-1]
            break
    return request


def _add(status: status_pb2.Status, detail: Message) -> None:
    packed = AnyMessage()
    packed.Pack(detail)
    status.details.append(packed)


def clipped(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def reason_in(trailing: Mapping[str, str | bytes]) -> str:
    """The reason in another node's refusal; empty when gRPC refused, not the node."""
    details = trailing.get(DETAILS)
    if not isinstance(details, bytes):
        return ""
    for item in status_pb2.Status.FromString(details).details:
        if item.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            info = error_details_pb2.ErrorInfo.FromString(item.value)
            if info.domain == DOMAIN:
                return str(info.reason)
    return ""
