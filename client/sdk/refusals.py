"""From what gRPC says about a failed try to a FailedTry, and from one to an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...proto.contract import Next, reason
from .errors import (
    AlreadyExists,
    CallerError,
    ClusterError,
    Conflict,
    FieldFault,
    Forbidden,
    InvalidArgument,
    LeaseLost,
    NotFound,
    QuotaExceeded,
    RaftschedError,
    RateLimited,
    RevisionGone,
    SessionLost,
    Unauthenticated,
    Unavailable,
)

DOMAIN = "raftsched"
DETAILS = "grpc-status-details-bin"
# How gRPC begins its words about a call that found no connection, so that nothing was sent.
NEVER_SENT = (
    "failed to connect to all addresses",
    "connections to all backends failing",
    "DNS resolution failed",
    "empty address list",
)
# What gRPC says of a node that it does not get on with, and what that means. Nothing was sent, and
# to ask the same node again does not help.
DISTRUST = (
    ("certificate has expired", "the node's certificate has expired"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "the node's certificate was not signed by an authority that is trusted here",
    ),
    ("Hostname Verification", "the node's certificate is made for another name than its address"),
    ("security handshaker", "the client's certificate and key do not belong together"),
    ("WRONG_VERSION_NUMBER", "the node listens without TLS"),
    (
        "Failed parsing HTTP/2",
        "what listens there is not a node's port for clients, but perhaps that for metrics or for "
        "other nodes",
    ),
)
# Another node may do it, which may take milliseconds. Nothing was done.
TRY_ELSEWHERE = frozenset({Next.NEXT_ANY_NODE, Next.NEXT_OTHER_NODE})
TRY_AGAIN = TRY_ELSEWHERE | {Next.NEXT_LATER, Next.NEXT_REPEAT}
# How a server of gRPC turns calls away that it has not looked at.
TURNED_AWAY = "Too many pending requests"
# What gRPC itself says when a connection broke, nobody answered in time, or a server that stops
# gave up its calls.
BROKEN = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"})
# What gRPC or a server's fault says, without a word on what was done.
FAULTY = frozenset({"UNKNOWN", "INTERNAL", "ABORTED", "DATA_LOSS"})

# Reasons and advice that say more than the code does, in this order.
BY_REASON: Mapping[str, type[RaftschedError]] = {
    "QUOTA_EXCEEDED": QuotaExceeded,
    "REVISION_GONE": RevisionGone,
    "RATE_LIMITED": RateLimited,
    "BACKLOG_FULL": RateLimited,
    "NODE_LIMIT": RateLimited,
    "ETAG_MISMATCH": Conflict,
}
BY_NEXT: Mapping[Next.ValueType, type[RaftschedError]] = {
    Next.NEXT_ANY_NODE: Unavailable,
    Next.NEXT_OTHER_NODE: Unavailable,
    Next.NEXT_LATER: Unavailable,
    Next.NEXT_HELLO: SessionLost,
    Next.NEXT_STOP: LeaseLost,
}
BY_CODE: Mapping[str, type[RaftschedError]] = {
    "INVALID_ARGUMENT": InvalidArgument,
    "NOT_FOUND": NotFound,
    "ALREADY_EXISTS": AlreadyExists,
    "FAILED_PRECONDITION": Conflict,
    "OUT_OF_RANGE": CallerError,
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": Forbidden,
    "UNAVAILABLE": Unavailable,
    # gRPC's own word for a message over its limit; the cluster's refusals have a reason.
    "RESOURCE_EXHAUSTED": InvalidArgument,
    "UNIMPLEMENTED": CallerError,
}


@dataclass(frozen=True, slots=True)
class FailedTry:
    """What a try came to that was not answered with success."""

    # The name of the gRPC code.
    code: str
    message: str
    # Empty: the cluster said nothing, so this comes from gRPC.
    reason: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[FieldFault, ...] = ()
    # Seconds. None: nothing was said.
    retry_after: float | None = None
    # The leader's address, as far as the node that answered knows it.
    leader: str = ""

    @property
    def next(self) -> Next.ValueType:
        """What the contracts say to do next; nothing of a reason that they do not know."""
        rules = reason(self.reason)
        return Next.NEXT_UNSPECIFIED if rules is None else rules.next

    @property
    def never_sent(self) -> bool:
        return not self.reason and self.message.startswith(NEVER_SENT)

    @property
    def distrust(self) -> str:
        """Why there will never be a connection to this endpoint as things are; perhaps nothing."""
        if not self.never_sent:
            return ""
        return next((why for word, why in DISTRUST if word in self.message), "")

    @property
    def broken(self) -> bool:
        """The endpoint was not to be reached, fell silent or broke off."""
        if self.reason:
            return False
        return self.code in BROKEN or "RST_STREAM" in self.message

    @property
    def cut_off(self) -> bool:
        """The try ran out of time, which says nothing of why."""
        return not self.reason and self.code == "DEADLINE_EXCEEDED"

    @property
    def turned_away(self) -> bool:
        return not self.reason and self.message.startswith(TURNED_AWAY)

    @property
    def retryable(self) -> bool:
        return self.broken or self.turned_away or self.next in TRY_AGAIN

    @property
    def outcome_known(self) -> bool:
        """It is certain that nothing was done."""
        if self.reason:
            return self.next != Next.NEXT_REPEAT
        return self.never_sent or self.code not in BROKEN | FAULTY

    @property
    def error_kind(self) -> type[RaftschedError]:
        if self.turned_away:
            return RateLimited
        kind = BY_REASON.get(self.reason) or BY_NEXT.get(self.next)
        return kind or BY_CODE.get(self.code, ClusterError)

    def error(self, kind: type[RaftschedError], message: str, request_id: str) -> RaftschedError:
        return kind(
            message,
            reason=self.reason,
            values=self.values,
            faults=self.faults,
            code=self.code,
            retry_after=self.retry_after,
            request_id=request_id,
        )


def failure(code: str, message: str, trailing: Mapping[str, str | bytes]) -> FailedTry:
    """Read the status of a refused call: its code, its words and its trailing metadata."""
    leader = str(trailing.get("raftsched-leader", ""))
    details = trailing.get(DETAILS)
    if not isinstance(details, bytes):
        return FailedTry(code, message, leader=leader)
    return _with_details(code, message, leader, details)


def _with_details(code: str, message: str, leader: str, details: bytes) -> FailedTry:
    from google.rpc import error_details_pb2, status_pb2

    reason, values = "", dict[str, str]()
    faults: list[FieldFault] = []
    retry_after: float | None = None
    for item in status_pb2.Status.FromString(details).details:
        if item.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            info = error_details_pb2.ErrorInfo.FromString(item.value)
            if info.domain == DOMAIN:
                reason, values = info.reason, dict(info.metadata)
        elif item.Is(error_details_pb2.BadRequest.DESCRIPTOR):
            wrong = error_details_pb2.BadRequest.FromString(item.value).field_violations
            faults += [FieldFault(one.field, one.reason, one.description) for one in wrong]
        elif item.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            delay = error_details_pb2.RetryInfo.FromString(item.value).retry_delay
            retry_after = delay.ToMilliseconds() / 1000
    leader = values.get("leader", "") or leader
    return FailedTry(code, message, reason, values, tuple(faults), retry_after, leader)
