"""Every call by every role, for its own namespace, another one, none, and with tokens for all; and
by nobody. What comes of it is what the options of the call say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import cast

import pytest
from google.protobuf.message import Message

from raftsched.cluster.api.worker_names import sessions_of
from raftsched.cluster.api.worker_unary import Poll
from raftsched.proto.contract import Method, Role, Scope, allows, methods
from raftsched.proto.v1 import (
    alert_pb2,
    alert_pb2_grpc,
    identity_pb2,
    job_pb2,
    namespace_pb2,
    namespace_pb2_grpc,
    worker_pb2,
)
from raftsched.statemachine.core.rejection import Refused

from .conftest import Served, Start
from .issuer import Issuer, provider, rule
from .talk import Anything, handler_job, refused
from .test_auth import bearer, jobs, make
from .test_identities import Time, put, trust

ROLES = (Role.ROLE_ADMIN, Role.ROLE_EDITOR, Role.ROLE_WORKER, Role.ROLE_VIEWER)
PLACES = ("", "default", "team")


def may(method: Method, role: Role.ValueType, bound: str, namespace: str) -> bool:
    """What the options say: whether a token of this role, for the namespace `bound` or for all,
    opens a call about a namespace, or about none."""
    of_cluster = method.scope == Scope.SCOPE_CLUSTER and not namespace
    needs = Role.ROLE_ADMIN if of_cluster and not method.harmless else method.needs
    if not allows(role, needs):
        return False
    own = {
        Scope.SCOPE_DEFAULT: (namespace or "default") == bound,
        Scope.SCOPE_OF_WORK: (namespace or "default") == bound,
        Scope.SCOPE_CLUSTER: namespace == bound,
        Scope.SCOPE_VISIBLE: namespace in ("", bound),
        Scope.SCOPE_ALL: False,
        Scope.SCOPE_NONE: True,
    }
    return not bound or own[method.scope]


def verdicts(method: Method, role: Role.ValueType, bound: str, namespace: str) -> tuple[str, ...]:
    """What may come of it: work of another namespace is answered as what is not there."""
    if may(method, role, bound, namespace):
        return ("",)
    if method.scope != Scope.SCOPE_OF_WORK or not allows(role, method.needs):
        return ("FORBIDDEN",)
    if method.name == "WorkerService/DrainWorker":
        return ("WORKER_NOT_FOUND",)
    return ("SESSION_LOST" if method.heartbeat else "RUN_NOT_FOUND",)


class Asking:
    """Requests about a namespace, as far as each call can name one."""

    def __init__(self, served: Served, runs: dict[str, str]) -> None:
        self.served, self.runs = served, runs

    def about(self, method: Method, namespace: str) -> Message:
        made: Anything = method.request()
        if method.scope == Scope.SCOPE_OF_WORK:
            self._name_work(made, namespace or "default")
        elif method.scope not in (Scope.SCOPE_ALL, Scope.SCOPE_NONE):
            named = [_name(made, field, namespace) for field in method.request.DESCRIPTOR.fields]
            assert any(named), f"{method.name} names no namespace; write another scope in its file"
        return cast(Message, made)

    def _name_work(self, made: Anything, namespace: str) -> None:
        fields = made.DESCRIPTOR.fields_by_name
        if "run" in fields:
            made.run = self.runs[namespace]
            return
        # Of its session, of which there is one now: the next call may be a long time away.
        made.worker = f"of-{namespace}"
        hello = worker_pb2.WorkerHello(worker=made.worker, namespaces=[namespace])
        self.served.node.sessions.open(hello, Poll(), stream=False)


def _name(made: Anything, field: Anything, namespace: str) -> bool:
    """Write a namespace into a field that is one, or that has one."""
    inner = field.message_type
    if field.name == "hello":
        made.hello.worker = "nobody"
        made.hello.namespaces.extend([namespace] if namespace else [])
    elif inner is None and field.name == "namespace":
        made.namespace = namespace
    elif inner is not None and "namespace" in inner.fields_by_name:
        value = getattr(made, field.name)
        (value.add() if field.is_repeated else value).namespace = namespace
    else:
        return False
    return True


async def two_namespaces(served: Served, root: Anything) -> dict[str, str]:
    """Make the second one, and a run in each."""
    names: Anything = namespace_pb2_grpc.NamespaceServiceStub(served.channel)
    team = namespace_pb2.CreateNamespaceRequest(namespace=namespace_pb2.Namespace(name="team"))
    await names.CreateNamespace(team, metadata=root)
    runs = {}
    for namespace in ("default", "team"):
        job = handler_job("report")
        job.namespace = namespace
        await jobs(served).CreateJob(job_pb2.CreateJobRequest(job=job), metadata=root)
        trigger = job_pb2.TriggerJobRequest(namespace=namespace, job="report")
        runs[namespace] = (await jobs(served).TriggerJob(trigger, metadata=root)).id
    return runs


Shown = Callable[[Role.ValueType, str], tuple[str, str]]


async def by_token(served: Served, root: str) -> Shown:
    """What somebody with a role in a namespace shows: here an access token."""
    secrets = {
        (role, bound): await make(served, f"t{role}-{bound or 'all'}", role, root, namespace=bound)
        for role, bound in product(ROLES, PLACES)
    }
    return lambda role, bound: (f"Bearer {secrets[role, bound]}", "")


async def by_jwt(served: Served, root: str) -> Shown:
    issuer = Issuer()
    trust(served, issuer, Time())
    rules = [rule(role, "sub", f"{role}-{bound}", bound) for role, bound in product(ROLES, PLACES)]
    await put(served, root, provider(*rules))
    return lambda role, bound: (f"Bearer {issuer.token(sub=f'{role}-{bound}')}", "")


async def by_certificate(served: Served, root: str) -> Shown:
    rules = [rule(role, "cn", f"{role}-{bound}", bound) for role, bound in product(ROLES, PLACES)]
    certificates = identity_pb2.ClientCertificates()
    wanted = identity_pb2.IdentityProvider(name="certs", certificates=certificates, rules=rules)
    await put(served, root, wanted)
    return lambda role, bound: ("", f"{role}-{bound}")


@pytest.mark.parametrize("shows", [by_token, by_jwt, by_certificate])
async def test_each_call_by_each_role_in_each_place(
    start: Start, shows: Callable[[Served, str], Awaitable[Shown]]
) -> None:
    served = await start("a", failures=100_000)
    root = await make(served, "root", Role.ROLE_ADMIN)
    asking = Asking(served, await two_namespaces(served, bearer(root)))
    shown = await shows(served, root)
    wrong = []
    for method, namespace in product(methods(), PLACES):
        for role, bound in product(ROLES, PLACES):
            request = asking.about(method, namespace)
            verdict = await admitted(served, method, request, *shown(role, bound))
            if verdict not in verdicts(method, role, bound, namespace):
                wrong.append((method.name, Role.Name(role), bound, namespace, verdict))
        for nobody in ("", "Bearer wrong", "Basic abc"):
            verdict = await admitted(served, method, asking.about(method, namespace), nobody)
            if verdict != "UNAUTHENTICATED":
                wrong.append((method.name, nobody, "", namespace, verdict))
    assert wrong == []


async def test_a_call_without_options_is_open_to_nobody(start: Start) -> None:
    served = await start("a")
    root = await make(served, "root", Role.ROLE_ADMIN)
    boss = await make(served, "boss", Role.ROLE_ADMIN, root, namespace="default")
    [get] = [method for method in methods() if method.name == "JobService/GetJob"]
    for nothing in (replace(get, needs=Role.ROLE_UNSPECIFIED),
                    replace(get, scope=Scope.SCOPE_UNSPECIFIED)):  # fmt: skip
        verdict = await admitted(served, nothing, job_pb2.GetJobRequest(), f"Bearer {boss}")
        assert verdict == "FORBIDDEN"


async def admitted(
    served: Served, method: Method, request: Message, authorization: str, certificate: str = ""
) -> str:
    """With what a call is refused by who asks and where; empty if it is let in."""
    metadata = {"authorization": authorization} if authorization else {}
    names = {"x509_common_name": [certificate.encode()]} if certificate else {}
    call: Anything = SimpleNamespace(
        context=SimpleNamespace(auth_context=lambda: names), identity=None,
        method=method, metadata=metadata, digest=b"", actor="",
        namespace="", hides=False, caller="", token=None, address="ipv4:127.0.0.1",
    )  # fmt: skip
    try:
        if (waits := served.server._access.identify(call)) is not None:
            await waits
        served.server._access.admit(call, request)
    except Refused as refusal:
        return refusal.rejection.word
    return missed(served, call, request)


def missed(served: Served, call: Anything, request: Anything) -> str:
    """With what a call about a worker is answered that finds none. (Results are taken all the same,
    by their tokens, and no worker is heard by it.)"""
    if isinstance(request, worker_pb2.DrainWorkerRequest):
        found = sessions_of(served.node, call, request.worker)
        return "" if found else "WORKER_NOT_FOUND"
    if isinstance(request, worker_pb2.ResolveSecretsRequest):
        return ""  # It is about the run; whose lease that is the rules look.
    worker = getattr(request, "worker", None)
    known = served.node.sessions.by_worker
    return "" if worker is None or worker in known else "SESSION_LOST"


@pytest.mark.parametrize("role", [Role.ROLE_EDITOR, Role.ROLE_ADMIN])
async def test_the_alerts_of_the_cluster_are_not_those_of_the_default_namespace(
    start: Start, role: Role.ValueType
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
