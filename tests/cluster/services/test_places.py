"""Every call by every role, for its own namespace, another one, none, and with tokens for all."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from google.protobuf.message import Message

from raftsched.cluster.services.methods import OF_CLUSTER, Method, methods
from raftsched.proto.v1 import (
    access_pb2,
    alert_pb2,
    alert_pb2_grpc,
    namespace_pb2,
    namespace_pb2_grpc,
)
from raftsched.statemachine.core.rejection import Reason, Refused

from .conftest import Served, Start
from .talk import Anything, refused
from .test_access import Role, bearer, make

ROLES = (Role.ROLE_ADMIN, Role.ROLE_EDITOR, Role.ROLE_WORKER, Role.ROLE_VIEWER)
# An empty namespace is what the token may see.
SEEN = {
    "AccessService/ListAuditRecords", "EventService/WatchEvents", "EventService/ListEvents",
    "WorkerService/ListWorkers",
}  # fmt: skip
# What they are about is found out by the run or the worker that they name; here there is none.
BY_SESSION = {
    "WorkerService/Heartbeat", "WorkerService/ReportResults", "WorkerService/Complete",
    "WorkerService/Fail", "WorkerService/Release", "WorkerService/Extend",
    "WorkerService/DrainWorker",
}  # fmt: skip
HELLO = {"WorkerService/Work", "WorkerService/Lease"}
ABOUT_ALL = {"NamespaceService/ListNamespaces"}
FOR_ALL = {"ClusterService/GetClusterStatus"}


def request_for(method: Method, namespace: str) -> Message | None:
    """A request about a namespace; None if it cannot name one."""
    made: Anything = method.request()
    fields = method.request.DESCRIPTOR.fields_by_name
    if method.name in HELLO:
        made.hello.worker = "nobody"
        made.hello.namespaces.extend([namespace] if namespace else [])
        return cast(Message, made)
    for field in fields.values():
        inner = field.message_type
        if field.name == "namespace" and inner is None:
            made.namespace = namespace
            return cast(Message, made)
        if inner is not None and "namespace" in inner.fields_by_name:
            value = getattr(made, field.name)
            (value.add() if field.is_repeated else value).namespace = namespace
            return cast(Message, made)
    return None


def may(method: Method, role: int, bound: str, namespace: str) -> bool:
    """What the contracts say, in other words than the services."""
    needs = method.needs
    if method.name in OF_CLUSTER and not namespace:
        return not bound and (method.harmless or role == Role.ROLE_ADMIN)
    if role > needs:
        return False
    if not bound or method.name in FOR_ALL | BY_SESSION:
        return True
    if needs == Role.ROLE_ADMIN and method.name not in SEEN:
        return False
    if method.name in SEEN and not namespace:
        return True
    return method.name not in ABOUT_ALL and (namespace or "default") == bound


async def test_each_call_by_each_role_in_each_place(start: Start) -> None:
    served = await start("a")
    root = await make(served, "root", Role.ROLE_ADMIN)
    names: Anything = namespace_pb2_grpc.NamespaceServiceStub(served.channel)
    team = namespace_pb2.CreateNamespaceRequest(namespace=namespace_pb2.Namespace(name="team"))
    await names.CreateNamespace(team, metadata=bearer(root))
    secrets = {
        (role, bound): await make(served, f"t{role}-{bound or 'all'}", role, root, namespace=bound)
        for role, bound in product(ROLES, ("", "default", "team"))
    }
    wrong = []
    for method, ((role, bound), secret) in product(methods(), secrets.items()):
        for namespace in ("", "default", "team"):
            request = request_for(method, namespace)
            if request is None:
                assert method.name in BY_SESSION | ABOUT_ALL | FOR_ALL or (
                    method.needs == Role.ROLE_ADMIN
                ), f"{method.name} names no namespace; say here who may call it"
                request = method.request()
            let_in = await admitted(served, method, request, secret)
            if let_in != may(method, role, bound, namespace):
                wrong.append((method.name, Role.Name(role), bound, namespace))
    assert wrong == []


async def admitted(served: Served, method: Method, request: Message, secret: str) -> bool:
    call: Anything = SimpleNamespace(
        method=method, metadata={"authorization": f"Bearer {secret}"}, digest=b"", actor="",
        namespace="", hides=False, caller="", token=None, address="ipv4:127.0.0.1",
    )  # fmt: skip
    try:
        await served.server._access.identify(call)
        served.server._access.admit(call, request)
    except Refused as refusal:
        if refusal.rejection.reason != Reason.ERROR_REASON_FORBIDDEN:
            raise
        return False
    return True


def comments(files: Iterable[Path]) -> set[str]:
    """Requests and messages whose namespace is said to mean the cluster when it is empty."""
    found, message, comment = set(), "", ""
    for file in files:
        for line in file.read_text().splitlines():
            if line.startswith("message "):
                message = line.split()[1]
            elif line.strip().startswith("//"):
                comment = line
            elif "string namespace =" in line and "the cluster's" in comment:
                found.add(message)
    return found


def test_the_contracts_say_the_same_of_an_empty_namespace() -> None:
    folder = Path(access_pb2.__file__).parent
    said = comments(folder.glob("*.proto")) - {"Event"}
    listed = {
        name
        for method in methods()
        if method.name in OF_CLUSTER
        for name in (
            method.request.DESCRIPTOR.name,
            *(f.message_type.name for f in method.request.DESCRIPTOR.fields if f.message_type),
        )
    }
    assert said <= listed
    assert {"Alert", "ListAlertsRequest", "DeleteAlertRequest"} == said


@pytest.mark.parametrize("role", [Role.ROLE_EDITOR, Role.ROLE_ADMIN])
async def test_the_alerts_of_the_cluster_are_not_those_of_the_default_namespace(
    start: Start, role: access_pb2.Role.ValueType
) -> None:
    served = await start("a")
    root = await make(served, "root", Role.ROLE_ADMIN)
    alerts: Anything = alert_pb2_grpc.AlertServiceStub(served.channel)
    condition = alert_pb2.AlertCondition(no_margin=True)
    alert = alert_pb2.Alert(name="fragile", condition=condition, webhook="http://h.example/x")
    put = alert_pb2.PutAlertRequest(alert=alert)
    await alerts.PutAlert(put, metadata=bearer(root))
    editor = bearer(await make(served, "ed", role, root, namespace="default"))
    for call in (
        alerts.PutAlert(put, metadata=editor),
        alerts.DeleteAlert(alert_pb2.DeleteAlertRequest(alert="fragile"), metadata=editor),
        alerts.ListAlerts(alert_pb2.ListAlertsRequest(), metadata=editor),
    ):
        found = await refused(call)
        assert found.reason == "FORBIDDEN"
        assert "the cluster" in found.message
    everywhere = bearer(await make(served, "ed2", Role.ROLE_EDITOR, root))
    found = await refused(alerts.PutAlert(put, metadata=everywhere))
    assert (found.reason, found.values["needs"]) == ("FORBIDDEN", "ADMIN")
    mine = alert_pb2.Alert(
        namespace="default", name="dead",
        condition=alert_pb2.AlertCondition(dead_letters_above=1),
    )  # fmt: skip
    await alerts.PutAlert(alert_pb2.PutAlertRequest(alert=mine), metadata=editor)
