"""The calls of the contracts, read from their descriptors: what each takes, gives and needs.

Nothing is written down twice. What a call does with the state follows from its request: a request
with a rule is a write, one with a read is a read, and the rest is listed here by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from ...proto.v1 import (
    access_pb2,
    alert_pb2,
    calendar_pb2,
    cluster_pb2,
    dead_letter_pb2,
    event_pb2,
    flow_pb2,
    job_pb2,
    namespace_pb2,
    queue_pb2,
    run_pb2,
    worker_pb2,
)
from ...statemachine.reads.reads import READS
from ...statemachine.rules import RULES

FILES: tuple[FileDescriptor, ...] = tuple(
    module.DESCRIPTOR
    for module in (
        access_pb2, alert_pb2, calendar_pb2, cluster_pb2, dead_letter_pb2, event_pb2, flow_pb2,
        job_pb2, namespace_pb2, queue_pb2, run_pb2, worker_pb2,
    )
)  # fmt: skip

Role = access_pb2.Role
# They speak of the node that is asked, and are answered while it drains.
LOCAL = frozenset(
    {
        "ClusterService/GetClusterStatus",
        "ClusterService/TakeSnapshot",
        "ClusterService/VerifyState",
        "ClusterService/Backup",
        "ClusterService/DrainNode",
        "EventService/WatchEvents",
    }
)
# They change nothing, though no read of the rules answers them.
LOOKING = frozenset(
    {
        "RunService/WaitRun",
        "WorkerService/ListWorkers",
        "ClusterService/GetClusterStatus",
        "EventService/WatchEvents",
        "EventService/ListEvents",
    }
)
# In all other calls an empty namespace means "default"; in these it means the cluster itself, whose
# alerts and webhooks are for admins of all of it to change.
OF_CLUSTER = frozenset(
    {"AlertService/PutAlert", "AlertService/ListAlerts", "AlertService/DeleteAlert"}
)
# Services in which whoever may write must be an admin, or may be a worker.
ADMIN = frozenset({"NamespaceService", "AccessService", "ClusterService"})
WORKER = frozenset({"WorkerService"})
# Words of people in the services above.
EDITOR = frozenset({"WorkerService/DrainWorker"})


@dataclass(frozen=True, slots=True)
class Method:
    """One call."""

    # "/raftsched.v1.JobService/CreateJob", and "JobService/CreateJob" for people.
    path: str
    name: str
    request: type[Message]
    response: type[Message]
    streams_in: bool
    streams_out: bool
    writes: bool
    # It has a read of the rules; it may say how fresh the answer must be.
    reads: bool
    # It changes nothing, so it may be sent again whatever became of it.
    harmless: bool
    local: bool
    needs: access_pb2.Role.ValueType

    @property
    def streams(self) -> bool:
        return self.streams_in or self.streams_out


@cache
def methods() -> tuple[Method, ...]:
    """All calls of the contracts."""
    return tuple(_methods(FILES))


def _methods(files: Iterable[FileDescriptor]) -> Iterable[Method]:
    for file in files:
        for service in file.services_by_name.values():
            for method in service.methods:
                yield _method(method)


def _method(described: MethodDescriptor) -> Method:
    service = described.containing_service
    name = f"{service.name}/{described.name}"
    request = GetMessageClass(described.input_type)
    harmless = request in READS or name in LOOKING
    return Method(
        path=f"/{service.full_name}/{described.name}",
        name=name,
        request=request,
        response=GetMessageClass(described.output_type),
        streams_in=described.client_streaming,
        streams_out=described.server_streaming,
        writes=request in RULES,
        reads=request in READS,
        harmless=harmless,
        local=name in LOCAL,
        needs=_role(name, service.name, harmless=harmless),
    )


def _role(name: str, service: str, *, harmless: bool) -> access_pb2.Role.ValueType:
    if service == "AccessService":
        return Role.ROLE_ADMIN
    if harmless:
        return Role.ROLE_VIEWER
    if name in EDITOR:
        return Role.ROLE_EDITOR
    if service in WORKER:
        return Role.ROLE_WORKER
    return Role.ROLE_ADMIN if service in ADMIN else Role.ROLE_EDITOR


def service_names() -> tuple[str, ...]:
    return tuple(s.full_name for file in FILES for s in file.services_by_name.values())
