"""One call as it came in: who calls, what for, and how long they wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any, Protocol

import grpc

from ...proto.contract import Method
from ...proto.v1 import access_pb2
from ...statemachine.core.rejection import Rejection
from .vouched_caller import VouchedCaller

Context = grpc.aio.ServicerContext[Any, Any]
TIMEOUT_S = 30.0  # For callers that do not say how long they wait.
# What is kept of the caller's time to bring the answer back.
MARGIN_S = 0.1
MARGIN_SHARE = 0.1
# What a call that waits keeps of the time that is left, to see what has come of it.
LAST_LOOK_S = 1.0
LAST_LOOK_SHARE = 0.25
# Metadata that belong to one connection.
OWN = frozenset({"user-agent", "te", "content-type", "raftsched-certificate"})
OWN_PREFIXES = ("grpc-", ":")


class SpanOfCall(Protocol):
    """The span of a call on this node."""

    def end(self, code: str) -> None:
        """The call has ended with this code."""


class Call:
    """See the head of this file."""

    __slots__ = (
        "actor",
        "began",
        "caller",
        "context",
        "digest",
        "ended_by",
        "ending",
        "first",
        "hides",
        "identity",
        "is_stranger",
        "margin",
        "metadata",
        "method",
        "namespace",
        "peer",
        "seconds",
        "span",
        "token",
        "until",
        "vouched",
    )

    def __init__(self, method: Method, context: Context, *, stream: bool = False) -> None:
        self.method = method
        self.context = context
        self.began = time.monotonic()
        # The other end of its connection, as gRPC writes it.
        self.peer = context.peer()
        self.metadata = dict(context.invocation_metadata() or ())
        self.actor = ""
        # Whose share of the node it takes; empty as long as nobody knows.
        self.caller = ""
        # Ends it when its time is over, or at once for a reason that is not the caller's time.
        self.ending: asyncio.Timeout | None = None
        self.ended_by: Rejection | None = None
        # Nobody knows who calls before the request is read.
        self.is_stranger = False
        # What the caller has shown; None where nobody needs any.
        self.token: access_pb2.AccessToken | None = None
        # The only one that the caller may work in; empty for any.
        self.namespace = ""
        # Of the secret that the caller has shown; empty as long as nobody needs one.
        self.digest = b""
        # Of whom an identity provider vouches for, and what a follower says of it to the leader.
        self.identity: VouchedCaller | None = None
        self.vouched: tuple[tuple[str, str], ...] = ()
        # The caller may make the first access token, and do nothing else.
        self.first = False
        # The caller may not see payloads.
        self.hides = False
        # Of a caller that is known and traces this call.
        self.span: SpanOfCall | None = None
        left = None if stream else context.time_remaining()
        self.seconds = TIMEOUT_S if left is None else min(left, method.longest_s)
        self.margin = min(MARGIN_S, self.seconds * MARGIN_SHARE)
        self.until = self.began + self.seconds - self.margin

    def end(self, why: Rejection) -> None:
        """Refuse it from outside, whatever it waits for."""
        if self.ended_by is None and self.ending is not None and not self.ending.expired():
            self.ended_by = why
            self.ending.reschedule(asyncio.get_running_loop().time())

    @property
    def address(self) -> str:
        """Where it comes from, without the port."""
        peer = self.peer
        return peer.rpartition(":")[0] if peer.startswith("ipv") else peer

    def timeout(self) -> float:
        """Seconds that are left to do it."""
        return max(self.until - time.monotonic(), 0.001)

    @property
    def over(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self.until

    def wait_max(self) -> float:
        """How long it may wait for something to happen, so that a caller who waits no longer than
        that still gets an answer."""
        left = self.timeout()
        return left - min(LAST_LOOK_S, left * LAST_LOOK_SHARE)

    @property
    def onward(self) -> Iterable[tuple[str, str | bytes]]:
        """What the leader must know of the caller."""
        return [
            (key, value)
            for key, value in self.metadata.items()
            if key not in OWN and not key.startswith(OWN_PREFIXES)
        ] + [*self.vouched]
