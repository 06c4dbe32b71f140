"""What both clients give to gRPC: options, credentials, metadata; and what they read from it."""

from __future__ import annotations

import math
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Generic, TypedDict, TypeVar, cast

import grpc
from google.protobuf.message import Message

from ...proto.contract import Method, Repeat, method_of
from ...proto.v1 import common_pb2
from . import endpoints as nodes
from . import readable
from .course import Course
from .endpoints import Endpoints
from .errors import Closed, InvalidArgument
from .refusals import FailedTry, failure
from .values import revision

MESSAGE_MAX = 4 * 1024 * 1024
TIMEOUT_MAX_S = 24 * 3600.0
# A server sends something on a stream at least every 10 s; after this silence it is given up.
SILENCE_S = 15.0
# So many connections are kept to nodes that are neither configured nor learned as leaders.
SPARE_MAX = 16
Metadata = tuple[tuple[str, str], ...]

OPTIONS: tuple[tuple[str, int], ...] = (
    # A dead connection is noticed within half a minute; servers allow a ping every 10 s.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # How long a connection may take to stand, and how long a failed one rests.
    ("grpc.min_reconnect_backoff_ms", 1_500),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.max_send_message_length", MESSAGE_MAX),
    ("grpc.max_receive_message_length", MESSAGE_MAX),
    # The waits between tries are this package's; another client's bad connection is its own.
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.use_local_subchannel_pool", 1),
)

T_co = TypeVar("T_co", covariant=True)


class Exposed(ValueError):
    """An access token would go over the network in plain text."""


@dataclass(frozen=True, slots=True)
class Tls:
    """How to encrypt: file names, or None for what gRPC brings along.

    Client("node-1:7400", tls=Tls(ca="ca.pem", certificate="me.pem", key="me.key"))
    """

    ca: str | Path | None = None
    # Both or none: the client's own certificate, for mutual TLS.
    certificate: str | Path | None = None
    key: str | Path | None = None
    # The name that the servers' certificates show, if it is not their address.
    server_name: str = ""

    def credentials(self) -> grpc.ChannelCredentials:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("tls needs both certificate and key, or none of them")
        return grpc.ssl_channel_credentials(
            _read(self.ca), _read(self.key), _read(self.certificate)
        )


def _read(name: str | Path | None) -> bytes | None:
    return None if name is None else Path(name).read_bytes()


@dataclass(frozen=True, slots=True)
class Answer(Generic[T_co]):
    """What a call was answered, and what the answer's metadata say about it."""

    message: T_co
    # The node that answered, and the leader it named.
    endpoint: str
    leader: str
    term: int
    # What the answer is true at, "change.position"; empty when the node did not say.
    revision: str
    # Whose leader, term and revision these are; empty when the node did not say.
    cluster: str
    # For stale reads: how old the answer may be.
    age_ms: int | None


class CallOptions(TypedDict, total=False):
    """What may be said about a single call."""

    # Seconds until the call has to end; without it the client's own.
    timeout: float | None
    # For reads: any node may answer from what it has; see Answer.age_ms.
    stale: bool
    # For reads: answer only from a state at or after this "change.position".
    min_revision: str
    # Ask this node and no other.
    endpoint: str
    # False: a follower must not pass the call on.
    forward: bool
    # False: there is one try.
    retry: bool
    # Seconds after which it ends if no node knows a leader; without it only at its timeout.
    leaderless: float
    # The secret of an access token to show, instead of the client's own; "" shows none.
    token: str


class ClientLinks:
    """What a client is made of, whichever way it does its I/O."""

    def __init__(
        self,
        endpoints: str | Iterable[str],
        *,
        namespace: str,
        timeout: float,
        token: str | None,
        tls: Tls | None,
        insecure: bool = False,
    ) -> None:
        words = endpoints if isinstance(endpoints, str) else tuple(endpoints)
        # Whoever listens on the way could take a token and be whoever it stands for.
        self._plain = tls is None and not insecure
        self._exposes = bool(token) and self._plain
        parsed = nodes.parse(words)
        # Then a node on this machine asks the others, which may want encryption.
        self._stays = self._plain and all(one.startswith(nodes.SOCKET) for one in parsed)
        self.endpoints = Endpoints(parsed, self._may_ask)
        for address in self.endpoints.configured:
            self._check_exposed(address)
        self.namespace = namespace
        self.timeout = checked_timeout(timeout)
        self.closed = False
        self.authorization = bearer(token or "")
        self._tls = tls
        # Read now, so that a missing file is reported where it was named.
        self.credentials = tls.credentials() if tls is not None else None

    def begin(self, request: Message, options: CallOptions) -> Course:
        self.check_open()
        self._guard(options.get("token", ""))
        method = method_of(type(request))
        readable.mark(method.response)
        request = completed(method, request, options)
        size = request.ByteSize()
        if size > MESSAGE_MAX:
            raise _too_large(method, size)
        pinned, timeout = options.get("endpoint", ""), options.get("timeout")
        if pinned:
            self._check_exposed(nodes.parse(pinned)[0])
        return Course(
            method,
            request,
            self.endpoints,
            started=monotonic(),
            timeout=self.timeout if timeout is None else checked_timeout(timeout),
            pinned=pinned and nodes.parse(pinned)[0],
            any_node=options.get("stale", False),
            retry=options.get("retry", True),
            leaderless=options.get("leaderless", math.inf),
        )

    def _guard(self, token: str) -> None:
        """From the first call with a token of its own on, none goes where it could be taken."""
        if token and self._plain and not self._exposes:
            self._exposes = True
            for address in self.endpoints.configured:
                self._check_exposed(address)
            if not self._may_ask(self.endpoints.leader):
                self.endpoints.forget_leader(self.endpoints.leader)

    def _may_ask(self, address: str) -> bool:
        if self._stays:
            return address.startswith(nodes.SOCKET)
        return not self._exposes or nodes.is_loopback(address)

    def _check_exposed(self, address: str) -> None:
        if not self._may_ask(address):
            raise Exposed(
                f"the access token would be sent to {address} without encryption, where whoever "
                "listens could take it; give tls=Tls(ca='ca.pem'), or, in a network that is "
                "trusted, insecure=True"
            )

    def check_open(self) -> None:
        if self.closed:
            raise Closed("the client is closed; make a new one")

    def metadata(self, options: CallOptions) -> Metadata:
        token = options.get("token")
        shown = self.authorization if token is None else bearer(token)
        return shown if options.get("forward", True) else (*shown, NO_FORWARD)

    def superfluous(self, addresses: Collection[str]) -> list[str]:
        """Of the addresses with a connection, the oldest ones that need none any more."""
        known = self.endpoints.known
        spare = [address for address in addresses if address not in known]
        return spare[: max(0, len(spare) + 1 - SPARE_MAX)]

    def options(self, address: str) -> list[tuple[str, int | str]]:
        options: list[tuple[str, int | str]] = [*OPTIONS]
        if nodes.is_loopback(address):
            # gRPC takes the proxy of the environment even to this machine, where it leads nowhere.
            options.append(("grpc.enable_http_proxy", 0))
        if self._tls is not None and self._tls.server_name:
            options.append(("grpc.ssl_target_name_override", self._tls.server_name))
        return options


NO_FORWARD = ("raftsched-no-forward", "1")


def bearer(token: str) -> Metadata:
    """What shows an access token; nothing for none."""
    return (("authorization", f"Bearer {checked_token(token)}"),) if token else ()


def checked_token(token: str) -> str:
    if not (token.isascii() and token.isprintable()):
        # The token itself is a secret, so the message does not show it.
        raise ValueError("token holds a line's end or a character beyond ASCII; strip it")
    return token


def checked_timeout(seconds: float) -> float:
    if not 0 < seconds <= TIMEOUT_MAX_S:
        raise ValueError(
            f"timeout is {seconds!r}; it must be over 0 and at most {TIMEOUT_MAX_S:g} s"
        )
    return float(seconds)


def completed(method: Method, request: Message, options: CallOptions) -> Message:
    """The request itself, or a copy with a request_id and what the options ask of a read."""
    needs_id = method.repeat == Repeat.REPEAT_BY_REQUEST_ID and not getattr(request, "request_id")  # noqa: B009
    stale, at_least = options.get("stale", False), options.get("min_revision", "")
    if not needs_id and not stale and not at_least:
        return request
    copy: Any = type(request)()
    copy.CopyFrom(request)
    if needs_id:
        copy.request_id = uuid.uuid4().hex
    if stale or at_least:
        if not method.reads:
            raise ValueError(f"{method.verb} takes neither stale nor min_revision")
        if stale:
            copy.read.consistency = common_pb2.CONSISTENCY_STALE
        if at_least:
            copy.read.min_revision.CopyFrom(revision(at_least))
    return cast(Message, copy)


def _too_large(method: Method, size: int) -> InvalidArgument:
    values = {"limit": "message", "maximum": str(MESSAGE_MAX), "actual": str(size)}
    return InvalidArgument(
        f"{method.verb}: the request has {size:,} bytes, at most {MESSAGE_MAX:,} can be sent; "
        "send less at once, or keep large payloads elsewhere and send their address",
        reason="LIMIT_EXCEEDED",
        values=values,
        code="INVALID_ARGUMENT",
    )


def trailing(metadata: Any) -> dict[str, str | bytes]:  # noqa: ANN401  # Two stacks, two types.
    return {str(key): value for key, value in metadata or ()}


def failure_of(error: Any) -> FailedTry:  # noqa: ANN401  # RpcError and AioRpcError share no type.
    """Read what either stack of gRPC raises."""
    return failure(error.code().name, error.details() or "", trailing(error.trailing_metadata()))


def answer_of(message: Message, endpoint: str, metadata: Mapping[str, str | bytes]) -> Answer[Any]:
    age = metadata.get("raftsched-age-ms")
    return Answer(
        message=message,
        endpoint=endpoint,
        leader=cast(str, metadata.get("raftsched-leader", "")),
        term=int(metadata.get("raftsched-term", 0) or 0),
        revision=cast(str, metadata.get("raftsched-revision", "")),
        cluster=cast(str, metadata.get("raftsched-cluster", "")),
        age_ms=None if age is None else int(age),
    )
