"""Which call of the contracts a request belongs to.

Request types are unique to their call, so the type of a request says everything else. A file's
calls are read from its descriptor when the first of its requests is sent.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

# Calls that change nothing begin with one of these.
READING = ("Get", "List", "Wait", "Preview", "Audit", "Explain", "Forecast", "Watch", "Backup")
# A word about a lease can be said twice: its token makes that harmless.
SAFE_BY_TOKEN = "raftsched.v1.WorkerService"
# Snapshots, changes of membership and the self-check take as long as they take.
SLOW = "raftsched.v1.ClusterService"
# The fields by which a request asks the server to take its time.
WAITING = ("timeout", "wait")


@dataclass(frozen=True, slots=True)
class Method:
    """One call of the contracts."""

    service: str
    name: str
    request: type[Message]
    response: type[Message]
    requests_stream: bool
    responses_stream: bool
    # It has a request_id, so the server does it once however often it is sent.
    has_request_id: bool
    # It changes nothing.
    reads: bool
    # Sending it again after its answer was lost does no harm.
    repeatable: bool
    # It may rightly take as long as the caller is ready to wait.
    slow: bool

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"


def method_of(request_type: type[Message]) -> Method:
    """The call that takes this request; TypeError if no call does."""
    return _method(cast(Hashable, request_type))


@cache
def _method(request_type: Any) -> Method:  # noqa: ANN401  # Checkers do not see types hashed.
    wanted = request_type.DESCRIPTOR
    for service in wanted.file.services_by_name.values():
        for method in service.methods:
            if method.input_type is wanted or method.input_type.full_name == wanted.full_name:
                return _described(service.full_name, cast(MethodDescriptor, method), request_type)
    raise TypeError(f"{wanted.full_name} is not the request of any call; send a ...Request message")


def _described(service: str, method: MethodDescriptor, request_type: type[Message]) -> Method:
    has_request_id = "request_id" in method.input_type.fields_by_name
    reads = not has_request_id and method.name.startswith(READING)
    return Method(
        service=service,
        name=method.name,
        request=request_type,
        response=GetMessageClass(method.output_type),
        requests_stream=method.client_streaming,
        responses_stream=method.server_streaming,
        has_request_id=has_request_id,
        reads=reads,
        repeatable=has_request_id or reads or service == SAFE_BY_TOKEN,
        slow=has_request_id and service == SLOW,
    )


def asked_wait(request: Any) -> float:  # noqa: ANN401  # Any request of the contracts.
    """For how many seconds the request asks the server to hold its answer back."""
    fields = request.DESCRIPTOR.fields_by_name
    for name in WAITING:
        if name in fields and fields[name].message_type is not None:
            if request.HasField(name):
                return float(min(getattr(request, name).ToMilliseconds() / 1000, 60.0))
            return 30.0 if name == "timeout" else 0.0
    return 0.0
