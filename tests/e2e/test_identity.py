"""Identity on a cluster of processes: tokens of a provider at each node and through the gateway,
and the way back when every admin's secret is lost."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import product

import pytest

from raftsched.client import Client, errors
from raftsched.client.sdk.resources import RoleWord
from raftsched.client.testing import LocalCluster
from raftsched.cluster.node import admin_recovery
from raftsched.proto.v1 import namespace_pb2, options_pb2

from ..client.gateway.test_process import gateway
from ..cluster.api.issuer import Issuer, provider, rule

ROLES: dict[RoleWord, options_pb2.Role.ValueType] = {
    "admin": options_pb2.ROLE_ADMIN, "editor": options_pb2.ROLE_EDITOR,
    "worker": options_pb2.ROLE_WORKER, "viewer": options_pb2.ROLE_VIEWER,
}  # fmt: skip
pytestmark = pytest.mark.slow
PLACES = ("", "default", "team")
# A route of each kind: what it needs, and whether it is about a namespace, all, or none.
ROUTES = (
    ("GET", "/v1/jobs?namespace={}", "viewer", "namespace"),
    ("POST", "/v1/jobs", "editor", "namespace"),
    ("POST", "/api/v1/jobs", "editor", "namespace"),
    ("GET", "/v1/accessTokens", "admin", "all"),
    ("GET", "/v1/identityProviders", "admin", "all"),
    ("GET", "/v1/whoami", "viewer", "none"),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(3) as made:
        yield made


@pytest.fixture(scope="module")
def root(cluster: LocalCluster) -> str:
    with cluster.client() as client:
        return client.access.create_token("root", "admin", namespace="").secret


@pytest.fixture(scope="module")
def issuer(cluster: LocalCluster, root: str) -> Issuer:
    """An issuer whose keys an admin has written down, with a role in a place for each subject."""
    made = Issuer()
    rules = [
        rule(role, "sub", f"{name}-{place}", place)
        for (name, role), place in product(ROLES.items(), PLACES)
    ]
    with cluster.client(token=root) as client:
        client.call(namespace_pb2.CreateNamespaceRequest(
            namespace=namespace_pb2.Namespace(name="team")
        ))  # fmt: skip
        client.identity.put(provider(*rules, static_keys=made.jwks()))
        assert [one.name for one in client.identity.list()] == ["corp"]
    return made


def test_each_node_takes_the_token_of_a_provider(cluster: LocalCluster, issuer: Issuer) -> None:
    for name in cluster.names:
        token = issuer.token(sub="viewer-default")
        with Client(cluster.address(name), token=token) as client:
            assert client.access.whoami().name == "https://id.example#viewer-default"
            assert list(client.jobs.list()) == []


def status_of(url: str, method: str, token: str, namespace: str = "") -> int:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    about = {"name": "report", "namespace": namespace}
    if "/api/" in url:
        about |= {"cron": "0 9 * * *", "callback_url": "https://h.example/x"}
    body = json.dumps(about).encode() if method == "POST" else None
    request = urllib.request.Request(url, body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            json.loads(answer.read())
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_gateway_opens_what_the_same_caller_may_do(
    cluster: LocalCluster, issuer: Issuer, root: str
) -> None:
    secrets = {}
    with cluster.client(token=root) as client:
        for name, place in product(ROLES, PLACES):
            made = client.access.create_token(f"t-{name}-{place or 'all'}", name, namespace=place)
            secrets[name, place] = (made.secret, issuer.token(sub=f"{name}-{place}"))
    ranks: list[str] = list(ROLES)
    wrong: list[tuple[object, ...]] = []
    with gateway("--server", ",".join(cluster.endpoints)) as one:
        for (method, path, needs, about), (name, place) in product(ROUTES, secrets):
            for asked, token in product(("", "default", "team"), secrets[name, place]):
                if about != "namespace" and asked:
                    continue
                allowed = ranks.index(name) <= ranks.index(needs)
                if about == "namespace":
                    allowed = allowed and place in ("", asked or "default")
                allowed = allowed and not (about == "all" and place)
                status = status_of(
                    f"http://{one.address}{path.format(asked)}", method, token, asked
                )
                if (status == 403) == allowed or status >= 500 or status == 401:
                    wrong.append((method, path, name, place, asked, status))
        for method, path, _, _ in ROUTES:
            for nobody in ("rs_wrong", "a.b.c", Issuer().token(iss="https://other.example")):
                status = status_of(f"http://{one.address}{path.format('default')}", method, nobody)
                if status != 401:
                    wrong.append((method, path, "nobody", "", "", status))
    assert wrong == []


def test_a_majority_of_folders_lets_an_admin_in_and_one_does_not(
    cluster: LocalCluster, root: str
) -> None:
    secret = admin_recovery.new_secret()
    first, second, _ = cluster.names
    admin_recovery.write(cluster.folder / first, secret)
    deadline, said = time.monotonic() + 60, ""
    with cluster.client(token=secret) as client:
        while "1 of 3 voters" not in said:
            assert time.monotonic() < deadline, said
            with pytest.raises(errors.RaftschedError) as found:
                client.access.create_token("again", "admin", namespace="")
            said = str(found.value)
            time.sleep(0.05)
        admin_recovery.write(cluster.folder / second, secret)
        while True:
            assert time.monotonic() < deadline
            try:
                made = client.access.create_token("again", "admin", namespace="")
                break
            except errors.RaftschedError:
                time.sleep(0.05)
    with cluster.client(token=made.secret) as client:
        assert {"root", "again"} <= {one.name for one in client.access.list_tokens()}
        records = client.access.records("subject=accessToken/again", namespace="")
        assert [one.actor for one in records] == ["recover-admin"]
