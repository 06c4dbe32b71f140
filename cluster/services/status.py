"""From a refusal to what goes over the wire: a gRPC code, words, and details a program can read."""

from __future__ import annotations

from collections.abc import Mapping

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from ...proto.v1 import error_pb2
from ...statemachine.core.rejection import Reason, Rejection

DOMAIN = "raftsched"
DETAILS = "grpc-status-details-bin"
# Clients take 8 KiB of metadata, and gRPC writes binary ones in base64. What is over would hide
# the refusal behind gRPC's own complaint, so details are cut before that.
MESSAGE_CHARS = 1_024
VALUE_CHARS = 256
DETAIL_BYTES = 4_096

Code = grpc.StatusCode
CODES: Mapping[error_pb2.ErrorReason.ValueType, grpc.StatusCode] = {
    Reason.ERROR_REASON_FIELD_INVALID: Code.INVALID_ARGUMENT,
    Reason.ERROR_REASON_FIELD_REQUIRED: Code.INVALID_ARGUMENT,
    Reason.ERROR_REASON_LIMIT_EXCEEDED: Code.INVALID_ARGUMENT,
    Reason.ERROR_REASON_PAYLOAD_TOO_LARGE: Code.INVALID_ARGUMENT,
    Reason.ERROR_REASON_CRON_INVALID: Code.INVALID_ARGUMENT,
    Reason.ERROR_REASON_SCHEDULE_NEVER_FIRES: Code.INVALID_ARGUMENT,
    Reason.ERROR_REASON_ZONE_UNKNOWN: Code.INVALID_ARGUMENT,
    Reason.ERROR_REASON_FILTER_INVALID: Code.INVALID_ARGUMENT,
    Reason.ERROR_REASON_PAGE_TOKEN_INVALID: Code.INVALID_ARGUMENT,
    Reason.ERROR_REASON_MASK_INVALID: Code.INVALID_ARGUMENT,
    Reason.ERROR_REASON_NAMESPACE_NOT_FOUND: Code.NOT_FOUND,
    Reason.ERROR_REASON_JOB_NOT_FOUND: Code.NOT_FOUND,
    Reason.ERROR_REASON_RUN_NOT_FOUND: Code.NOT_FOUND,
    Reason.ERROR_REASON_QUEUE_NOT_FOUND: Code.NOT_FOUND,
    Reason.ERROR_REASON_CALENDAR_NOT_FOUND: Code.NOT_FOUND,
    Reason.ERROR_REASON_WORKER_NOT_FOUND: Code.NOT_FOUND,
    Reason.ERROR_REASON_FLOW_NOT_FOUND: Code.NOT_FOUND,
    Reason.ERROR_REASON_DEAD_LETTER_NOT_FOUND: Code.NOT_FOUND,
    Reason.ERROR_REASON_ALERT_NOT_FOUND: Code.NOT_FOUND,
    Reason.ERROR_REASON_ACCESS_TOKEN_NOT_FOUND: Code.NOT_FOUND,
    Reason.ERROR_REASON_NODE_NOT_FOUND: Code.NOT_FOUND,
    Reason.ERROR_REASON_OCCURRENCE_NOT_FOUND: Code.NOT_FOUND,
    Reason.ERROR_REASON_JOB_EXISTS: Code.ALREADY_EXISTS,
    Reason.ERROR_REASON_NAME_EXISTS: Code.ALREADY_EXISTS,
    Reason.ERROR_REASON_UNIQUE_KEY_TAKEN: Code.ALREADY_EXISTS,
    Reason.ERROR_REASON_REQUEST_ID_REUSED: Code.ALREADY_EXISTS,
    Reason.ERROR_REASON_ETAG_MISMATCH: Code.ABORTED,
    Reason.ERROR_REASON_JOB_PAUSED: Code.FAILED_PRECONDITION,
    Reason.ERROR_REASON_OVERLAP_REFUSED: Code.FAILED_PRECONDITION,
    Reason.ERROR_REASON_RUN_ENDED: Code.FAILED_PRECONDITION,
    Reason.ERROR_REASON_LEASE_LOST: Code.FAILED_PRECONDITION,
    Reason.ERROR_REASON_CYCLE: Code.FAILED_PRECONDITION,
    Reason.ERROR_REASON_HAS_DEPENDENTS: Code.FAILED_PRECONDITION,
    Reason.ERROR_REASON_IN_USE: Code.FAILED_PRECONDITION,
    Reason.ERROR_REASON_SESSION_LOST: Code.FAILED_PRECONDITION,
    Reason.ERROR_REASON_MEMBERSHIP_REFUSED: Code.FAILED_PRECONDITION,
    Reason.ERROR_REASON_TRANSFER_REFUSED: Code.FAILED_PRECONDITION,
    Reason.ERROR_REASON_NOT_RETRYING: Code.FAILED_PRECONDITION,
    Reason.ERROR_REASON_QUOTA_EXCEEDED: Code.RESOURCE_EXHAUSTED,
    Reason.ERROR_REASON_RATE_LIMITED: Code.RESOURCE_EXHAUSTED,
    Reason.ERROR_REASON_BACKLOG_FULL: Code.RESOURCE_EXHAUSTED,
    Reason.ERROR_REASON_DISK_FULL: Code.RESOURCE_EXHAUSTED,
    Reason.ERROR_REASON_NO_QUORUM: Code.UNAVAILABLE,
    Reason.ERROR_REASON_NOT_LEADER: Code.UNAVAILABLE,
    Reason.ERROR_REASON_DRAINING: Code.UNAVAILABLE,
    Reason.ERROR_REASON_DEADLINE_PASSED: Code.DEADLINE_EXCEEDED,
    Reason.ERROR_REASON_LEADER_CHANGED: Code.ABORTED,
    Reason.ERROR_REASON_COMMIT_TIMEOUT: Code.DEADLINE_EXCEEDED,
    Reason.ERROR_REASON_CLOCK_SKEW: Code.UNAVAILABLE,
    Reason.ERROR_REASON_REVISION_GONE: Code.OUT_OF_RANGE,
    Reason.ERROR_REASON_UNAUTHENTICATED: Code.UNAUTHENTICATED,
    Reason.ERROR_REASON_FORBIDDEN: Code.PERMISSION_DENIED,
    Reason.ERROR_REASON_STATE_DIVERGED: Code.INTERNAL,
    Reason.ERROR_REASON_JOB_BROKEN: Code.FAILED_PRECONDITION,
    Reason.ERROR_REASON_MEMBER_LACKS: Code.FAILED_PRECONDITION,
    Reason.ERROR_REASON_NODE_LIMIT: Code.RESOURCE_EXHAUSTED,
    Reason.ERROR_REASON_NOT_BOOTSTRAPPED: Code.UNAUTHENTICATED,
    Reason.ERROR_REASON_RULE_FAILED: Code.INTERNAL,
}
# Where trying again helps, when to do so if the refusal does not say.
RETRY_MS = {
    Reason.ERROR_REASON_RATE_LIMITED: 200,
    Reason.ERROR_REASON_BACKLOG_FULL: 200,
    Reason.ERROR_REASON_DISK_FULL: 2_000,
    Reason.ERROR_REASON_NODE_LIMIT: 1_000,
    Reason.ERROR_REASON_NO_QUORUM: 200,
}


def code_of(rejection: Rejection) -> grpc.StatusCode:
    return CODES[rejection.reason]


def words_of(rejection: Rejection) -> str:
    return clipped(rejection.message, MESSAGE_CHARS)


def details_of(rejection: Rejection) -> bytes:
    """The google.rpc.Status that goes into the trailing metadata."""
    status = status_pb2.Status(code=code_of(rejection).value[0], message=words_of(rejection))
    values = {key: clipped(value, VALUE_CHARS) for key, value in rejection.values.items()}
    _add(status, error_details_pb2.ErrorInfo(reason=rejection.word, domain=DOMAIN, metadata=values))
    retry_ms = rejection.retry_after_ms or RETRY_MS.get(rejection.reason, 0)
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
