"""What holds for each call and each refusal, read once from the options in v1/*.proto.

The one table of it for server, clients and tests; `v1/options.proto` says what each option means.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import code_pb2

from .v1 import error_pb2, options_pb2

# The files that have calls.
FILES = (
    "access", "alert", "calendar", "cluster", "dead_letter", "event", "flow", "identity", "job",
    "namespace", "queue", "run", "secret", "worker",
)  # fmt: skip
# What holds where an option says nothing.
REQUEST_BYTES = 256 << 10
LONGEST_S = 150.0

# The status over HTTP of each code, as google.rpc.Code names it; of all others 500.
HTTP_STATUS = {
    "CANCELLED": 499, "INVALID_ARGUMENT": 400, "DEADLINE_EXCEEDED": 504, "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409, "PERMISSION_DENIED": 403, "UNAUTHENTICATED": 401,
    "RESOURCE_EXHAUSTED": 429, "FAILED_PRECONDITION": 400, "ABORTED": 409, "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 501, "UNAVAILABLE": 503,
}  # fmt: skip

Role = options_pb2.Role
Scope = options_pb2.Scope
Named = options_pb2.Named
Repeat = options_pb2.Repeat
Next = options_pb2.Next
# From the role that may do most to the one that may do least.
RANKS = (Role.ROLE_ADMIN, Role.ROLE_EDITOR, Role.ROLE_WORKER, Role.ROLE_VIEWER)


@dataclass(frozen=True, slots=True)
class Method:
    """One call."""

    # "/raftsched.v1.JobService/CreateJob", its service "raftsched.v1.JobService", for people
    # "JobService/CreateJob", and without the service "CreateJob".
    path: str
    service: str
    name: str
    verb: str
    request: type[Message]
    response: type[Message]
    streams_in: bool
    streams_out: bool
    needs: options_pb2.Role.ValueType
    scope: options_pb2.Scope.ValueType
    repeat: options_pb2.Repeat.ValueType
    # It changes nothing, so it may be sent again whatever became of it.
    harmless: bool
    # It may say how fresh the answer must be.
    reads: bool
    request_bytes: int
    local: bool
    slow: bool
    longest_s: float
    heartbeat: bool

    @property
    def streams(self) -> bool:
        return self.streams_in or self.streams_out


@dataclass(frozen=True, slots=True)
class NamingField:
    """Where a request names something: in a field of its own, or of a message that it holds."""

    path: tuple[str, ...]
    names: options_pb2.Named.ValueType


@dataclass(frozen=True, slots=True)
class ReasonRules:
    """What comes with one reason."""

    # The number and the word of the reason, such as "JOB_NOT_FOUND".
    number: error_pb2.ErrorReason.ValueType
    word: str
    # The name of the gRPC code.
    code: str
    next: options_pb2.Next.ValueType
    # 0: no RetryInfo comes along.
    retry_ms: int
    # Over HTTP.
    http_status: int


@cache
def methods() -> tuple[Method, ...]:
    """All calls."""
    return tuple(_methods())


def _methods() -> Iterator[Method]:
    for name in FILES:
        file = import_module(f".v1.{name}_pb2", __package__).DESCRIPTOR
        for service in file.services_by_name.values():
            for method in service.methods:
                yield method_of(GetMessageClass(method.input_type))


def services() -> tuple[str, ...]:
    """The full names of all services."""
    return tuple(dict.fromkeys(method.service for method in methods()))


def method_of(request_type: type[Message]) -> Method:
    """The call that takes this request, of which there is one; TypeError if no call does. Reads the
    options of that call and no others."""
    return _method_of(cast(Hashable, request_type))


@cache
def _method_of(request_type: Any) -> Method:  # noqa: ANN401  # Checkers do not see types hashed.
    wanted = request_type.DESCRIPTOR
    for service in wanted.file.services_by_name.values():
        for method in service.methods:
            if method.input_type.full_name == wanted.full_name:
                return _method(cast(MethodDescriptor, method), request_type)
    raise TypeError(f"{wanted.full_name} is not the request of any call; send a ...Request message")


def _method(found: MethodDescriptor, request: type[Message]) -> Method:
    service, rules = found.containing_service, found.GetOptions().Extensions[options_pb2.call]
    longest_s = float(rules.longest.ToSeconds())
    return Method(
        path=f"/{service.full_name}/{found.name}",
        service=service.full_name,
        name=f"{service.name}/{found.name}",
        verb=found.name,
        request=request,
        response=GetMessageClass(found.output_type),
        streams_in=found.client_streaming,
        streams_out=found.server_streaming,
        needs=rules.needs,
        scope=rules.scope,
        repeat=rules.repeat,
        harmless=rules.repeat == Repeat.REPEAT_HARMLESS,
        reads="read" in found.input_type.fields_by_name,
        request_bytes=rules.request_bytes or REQUEST_BYTES,
        local=rules.local,
        slow=rules.slow,
        longest_s=longest_s or LONGEST_S,
        heartbeat=rules.heartbeat,
    )


def allows(role: options_pb2.Role.ValueType, needs: options_pb2.Role.ValueType) -> bool:
    """Whether who has a role may do what needs one. Who has none, or needs an unknown one, may
    not."""
    return role in RANKS and needs in RANKS and RANKS.index(role) <= RANKS.index(needs)


def named(request: Message, names: options_pb2.Named.ValueType) -> list[str]:
    """What a request names of a kind; "" where it leaves a field empty."""
    found: list[str] = []
    for field in naming_fields(request.DESCRIPTOR):
        if field.names == names:
            found += _values(request, field.path)
    return found


def _values(message: Any, path: tuple[str, ...]) -> Iterable[str]:  # noqa: ANN401
    value, rest = getattr(message, path[0]), path[1:]
    if not rest:
        return (value,) if isinstance(value, str) else (*value,) or ("",)
    if isinstance(value, Message):
        return _values(value, rest)
    return [text for one in value for text in _values(one, rest)]


@cache
def naming_fields(request: Descriptor) -> tuple[NamingField, ...]:
    """The fields of a request that name something, by their options."""
    return tuple(_naming_fields(request, depth=1))


def _naming_fields(message: Descriptor, depth: int) -> Iterator[NamingField]:
    for field in message.fields:
        names = field.GetOptions().Extensions[options_pb2.names]
        if names:
            yield NamingField((field.name,), names)
        elif depth and field.message_type is not None:
            for inner in _naming_fields(field.message_type, depth - 1):
                yield NamingField((field.name, *inner.path), inner.names)


def reasons() -> tuple[ReasonRules, ...]:
    """What comes with each reason."""
    return tuple(_reasons().values())


def reason(word: str) -> ReasonRules | None:
    """What comes with a reason; None for one that these contracts do not know."""
    return _reasons().get(word)


def http_status(code: str) -> int:
    """The status over HTTP of a gRPC code, by its name."""
    return HTTP_STATUS.get(code, 500)


@cache
def _reasons() -> dict[str, ReasonRules]:
    found = {}
    for value in error_pb2.ErrorReason.DESCRIPTOR.values[1:]:
        rules = value.GetOptions().Extensions[options_pb2.refusal]
        word = value.name.removeprefix("ERROR_REASON_")
        found[word] = ReasonRules(
            number=cast(error_pb2.ErrorReason.ValueType, value.number),
            word=word,
            code=code_pb2.Code.Name(rules.code),
            next=rules.next,
            retry_ms=rules.retry.ToMilliseconds(),
            http_status=rules.http_status or http_status(code_pb2.Code.Name(rules.code)),
        )
    return found
