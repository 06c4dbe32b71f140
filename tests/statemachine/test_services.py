"""Every call of the contracts is answered by a rule, a read, or a named part of the server."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass

from raftsched.proto.v1 import (
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
from raftsched.statemachine.model import request
from raftsched.statemachine.reads.reads import READS
from raftsched.statemachine.rules import RULES

FILES = (
    access_pb2, alert_pb2, calendar_pb2, cluster_pb2, dead_letter_pb2, event_pb2, flow_pb2,
    job_pb2, namespace_pb2, queue_pb2, run_pb2, worker_pb2,
)  # fmt: skip
# Calls that the server brings to a rule under another name, since they say less or more.
AS_RULES = {
    "CreateAccessToken": request.CreateToken,
    "Lease": request.Grant,
    "Heartbeat": request.Note,
    "ReportResults": request.Report,
    "Work": request.Resume,
}
# Calls about what is no part of the state: nodes, sessions, streams, what comes.
SERVER = {
    "GetClusterStatus": "members", "AddNode": "members", "RemoveNode": "members",
    "MoveNode": "members", "DrainNode": "node", "TransferLeadership": "consensus",
    "TakeSnapshot": "snapshots", "VerifyState": "the self-check",
    "SetStateTime": "a rule with clocks",
    "Backup": "snapshots",
    "WatchEvents": "events", "ListEvents": "events",
    "WaitRun": "GetRun and events", "ListWorkers": "sessions", "DrainWorker": "sessions",
}  # fmt: skip


def methods() -> dict[str, MethodDescriptor]:
    found: dict[str, MethodDescriptor] = {}
    for file in FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                assert method.name not in found, f"two calls are named {method.name}"
                found[method.name] = method
    return found


def test_every_call_is_answered_by_exactly_one() -> None:
    for name, method in methods().items():
        kind = GetMessageClass(method.input_type)
        ways = [
            way
            for way, answers in {
                "rule": kind in RULES,
                "read": kind in READS,
                "as another rule": name in AS_RULES,
                "server": name in SERVER,
            }.items()
            if answers
        ]
        assert len(ways) == 1, f"{name} is answered by {ways or 'nobody'}"


def test_every_rule_and_read_is_for_a_call_or_for_the_leader() -> None:
    asked = {GetMessageClass(method.input_type) for method in methods().values()}
    own = {kind for kind in RULES if kind.__module__ == request.__name__}

    assert set(RULES) - own <= asked
    assert set(READS) <= asked
    assert set(AS_RULES.values()) <= own
    assert not (set(AS_RULES) | set(SERVER)) - set(methods())


def test_every_file_with_a_service_is_looked_at() -> None:
    known = {file.DESCRIPTOR.name for file in FILES}
    folder = Path(job_pb2.__file__).parent

    for path in folder.glob("*.proto"):
        name = f"raftsched/v1/{path.name}"
        assert bool(Default().FindFileByName(name).services_by_name) == (name in known), name
