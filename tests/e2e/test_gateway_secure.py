"""The gateway beside each node of a cluster with certificates and tokens: it serves HTTPS, lets
nobody in, passes on whom the cluster knows, and lives as long as its node."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from raftsched.cluster.local.nodes import NodeProcess, NodeProcesses, free_addresses
from raftsched.cluster.local.ports import LOOPBACK, free_ports
from raftsched.proto.v1 import options_pb2

from ..cluster.api.issuer import Issuer, provider, rule
from .processes import SMALL, crowd
from .test_gateway_beside import is_gone, of
from .test_life import certificates, cluster_with_tls

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("openssl"), reason="makes certificates with openssl"),
]
NAMES = ("n1", "n2", "n3")
JOB = {"cron": "0 0 1 1 *", "callback_url": "https://example.com/hook"}


@dataclass(slots=True)
class Said:
    """An answer."""

    status: int
    headers: dict[str, str]
    body: Any

    @property
    def reason(self) -> str:
        return str(self.body["error"]["details"][0]["reason"])

    @property
    def message(self) -> str:
        return str(self.body["error"]["message"])


def until(reached: Callable[[], object], seconds: float) -> None:
    limit = time.monotonic() + seconds * crowd()
    while not reached():
        assert time.monotonic() < limit, f"not within {seconds * crowd():.0f} s: {reached}"
        time.sleep(0.02)


@dataclass(slots=True)
class Secure:
    """Three nodes, each with its gateway."""

    folder: Path
    nodes: NodeProcesses
    gateways: dict[str, str]
    tls: ssl.SSLContext
    root: str = ""
    issuer: Issuer = field(default_factory=Issuer)

    def ask(
        self, name: str, verb: str, path: str, body: object = None, token: str = "", **headers: str
    ) -> Said:
        data = None if body is None else json.dumps(body).encode()
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        shown |= {} if data is None else {"Content-Type": "application/json"}
        url = f"https://{self.gateways[name]}{path}"
        request = urllib.request.Request(url, data, shown | headers, method=verb)
        try:
            with urllib.request.urlopen(request, timeout=20, context=self.tls) as answer:
                return Said(answer.status, _lower(answer.headers), json.loads(answer.read()))
        except urllib.error.HTTPError as refused:
            return Said(refused.code, _lower(refused.headers), json.loads(refused.read()))

    def serves(self, name: str, token: str = "", wanted: int = 0) -> bool:
        """Whether the gateway answers as it shall, and its node with it."""
        try:
            status = self.ask(name, "GET", "/v1/jobs", token=token).status
        except OSError:
            return False
        return status == (wanted or (200 if token else 401))

    def serial(self, address: str) -> str:
        """The certificate that is shown there."""
        host, _, port = address.rpartition(":")
        return ssl.get_server_certificate((host, int(port)))

    def leader(self) -> str:
        """The name of who leads."""
        said = self.ask("n1", "GET", "/v1/cluster", token=self.root)
        return str(said.body["leader"])


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): text for name, text in headers.items()}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder = tmp_path_factory.mktemp("secure")
    certificates(folder, [*NAMES])
    gateways = {name: f"{LOOPBACK}:{port}" for name, port in zip(NAMES, free_ports(3), strict=True)}
    # Without the last two, which ask callers for certificates.
    flags = {
        name: (*words[:-2], "--tokens", "--gateway-listen", gateways[name])
        for name, words in cluster_with_tls(folder).items()
    }
    nodes = NodeProcesses(folder, free_addresses(3), settings=SMALL, own=flags)
    made = Secure(folder, nodes, gateways, ssl.create_default_context(cafile=folder / "ca.pem"))
    try:
        nodes.spawn()
        for name in NAMES:
            until(partial(made.serves, name), 20)
        yield made
    finally:
        for node in nodes:
            node.kill()


@pytest.fixture
def root(secure: Secure) -> str:
    """The first token, made through HTTP with the secret in a node's folder."""
    if not secure.root:
        said = secure.ask("n2", "GET", "/v1/jobs")
        assert (said.status, said.reason) == (401, "NOT_BOOTSTRAPPED")
        assert "raftsched token bootstrap --secret-file" in said.message
        secret = (secure.folder / "n3" / "bootstrap-secret").read_text().strip()
        asked = {"name": "root", "role": "ROLE_ADMIN"}
        said = secure.ask("n1", "POST", "/v1/accessTokens", asked, secret)
        assert said.status == 201, said
        secure.root = said.body["secret"]
        # A gateway says for a second what it has heard from its node.
        for name in NAMES:
            until(lambda: secure.ask(name, "GET", "/v1/jobs").reason == "UNAUTHENTICATED", 5)  # noqa: B023
    return secure.root


def token_of(secure: Secure, name: str, role: str, namespace: str = "default") -> str:
    asked = {"name": name, "role": f"ROLE_{role}", "namespace": namespace}
    said = secure.ask("n1", "POST", "/v1/accessTokens", asked, secure.root)
    assert said.status == 201, said
    return str(said.body["secret"])


def test_it_speaks_https_and_nothing_else(secure: Secure) -> None:
    for name in NAMES:
        host, _, port = secure.gateways[name].rpartition(":")
        with socket.create_connection((host, int(port)), 10) as plain:
            plain.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert not plain.recv(100).startswith(b"HTTP")
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(f"https://{secure.gateways[name]}/v1/jobs", timeout=10)
        assert secure.ask(name, "GET", "/v1/jobs").status == 401


@pytest.mark.parametrize("name", NAMES)
def test_who_shows_nothing_is_told_what_to_send(secure: Secure, root: str, name: str) -> None:
    asked = (
        ("GET", "/v1/jobs", None), ("POST", "/api/v1/jobs", {"name": "a", **JOB}),
        ("GET", "/api/v1/jobs/a/status", None), ("DELETE", "/v1/jobs/a", None),
        ("GET", "/v1/events:watch", None), ("GET", "/v1/cluster", None),
    )  # fmt: skip
    for verb, path, body in asked:
        said = secure.ask(name, verb, path, body)
        assert (said.status, said.reason) == (401, "UNAUTHENTICATED"), (verb, path)
        assert "authorization: Bearer SECRET" in said.message
        # A word of gRPC, which whoever calls over HTTP has never met.
        assert "metadata" not in said.message
        assert said.headers["www-authenticate"] == 'Bearer realm="raftsched"'
    wrong = secure.ask(name, "GET", "/v1/jobs", token="rs_" + "x" * 43)
    assert (wrong.status, wrong.reason) == (401, "UNAUTHENTICATED")
    assert "ask an admin for a new one" in wrong.message
    assert "xxx" not in json.dumps(wrong.body)


def test_each_gateway_passes_tokens_on(secure: Secure, root: str) -> None:
    editor, viewer = token_of(secure, "ed", "EDITOR"), token_of(secure, "vi", "VIEWER")
    for name in NAMES:
        said = secure.ask(name, "POST", "/api/v1/jobs", {"name": f"by-{name}", **JOB}, editor)
        assert said.status == 201, said
        assert secure.ask(name, "GET", f"/v1/jobs/by-{name}", token=viewer).status == 200
        said = secure.ask(name, "DELETE", f"/v1/jobs/by-{name}", token=viewer)
        assert (said.status, said.reason) == (403, "FORBIDDEN")
        assert "needs EDITOR; ask an admin" in said.message
        who = secure.ask(name, "GET", "/v1/whoami", token=editor)
        assert (who.status, who.body["name"]) == (200, "ed")
    assert secure.ask("n1", "DELETE", "/v1/accessTokens/vi", token=root).status == 200
    for name in NAMES:
        until(partial(secure.serves, name, viewer, 401), 5)


def test_each_gateway_passes_the_tokens_of_a_provider_on(secure: Secure, root: str) -> None:
    rules = [
        rule(options_pb2.ROLE_EDITOR, "sub", "ann", "default"),
        rule(options_pb2.ROLE_VIEWER, "sub", "bob", "default"),
    ]
    corp = MessageToDict(provider(*rules, static_keys=secure.issuer.jwks()))
    said = secure.ask("n3", "PUT", "/v1/identityProviders/corp", corp, root)
    assert said.status == 200, said
    ann, bob = secure.issuer.token(sub="ann"), secure.issuer.token(sub="bob")
    for name in NAMES:
        said = secure.ask(name, "POST", "/api/v1/jobs", {"name": f"of-{name}", **JOB}, ann)
        assert said.status == 201, said
        assert secure.ask(name, "GET", "/v1/jobs", token=bob).status == 200
        said = secure.ask(name, "POST", "/api/v1/jobs", {"name": f"no-{name}", **JOB}, bob)
        assert (said.status, said.reason) == (403, "FORBIDDEN")
        late = secure.issuer.token(sub="ann", now=int(time.time()) - 7_200)
        said = secure.ask(name, "GET", "/v1/jobs", token=late)
        assert said.status == 401
        assert "expired" in said.message
        said = secure.ask(name, "GET", "/v1/jobs", token=Issuer().token(aud="others"))
        assert said.status == 401
        who = secure.ask(name, "GET", "/v1/whoami", token=ann)
        assert who.body["name"] == "https://id.example#ann"


def test_a_new_certificate_is_shown_by_node_and_gateway(secure: Secure, root: str) -> None:
    node, folder = secure.nodes["n2"], secure.folder
    places = (secure.gateways["n2"], node.client)
    before = [secure.serial(place) for place in places]
    certificates(folder, ["n2"])
    [gateway] = of(node.pid)
    until(lambda: all(secure.serial(p) != b for p, b in zip(places, before, strict=True)), 10)
    assert secure.ask("n2", "GET", "/v1/jobs", token=root).status == 200
    assert of(node.pid) == [gateway]


def killed(secure: Secure, node: NodeProcess) -> int:
    [gateway] = of(node.pid)
    os.kill(gateway, signal.SIGKILL)
    until(lambda: is_gone(gateway), 5)
    return gateway


def test_one_that_is_killed_comes_back_and_knows_its_callers(secure: Secure, root: str) -> None:
    node = secure.nodes["n1"]
    first = killed(secure, node)
    until(lambda: secure.serves("n1", root), 10)
    assert of(node.pid) != [first]
    assert secure.ask("n1", "GET", "/v1/jobs").status == 401


def test_the_others_serve_when_the_leader_is_killed_and_its_gateway_ends(
    secure: Secure, root: str
) -> None:
    leader = secure.leader()
    node = secure.nodes[leader]
    [gateway] = of(node.pid)
    node.kill()
    until(lambda: is_gone(gateway), 5)

    def is_made(name: str) -> bool:
        job, key = {"name": f"after-{leader}", **JOB}, {"Idempotency-Key": f"after-{leader}"}
        return secure.ask(name, "POST", "/api/v1/jobs", job, root, **key).status == 201

    for name in (name for name in NAMES if name != leader):
        # Until another one leads a call may be refused; under its key it is done once.
        until(partial(is_made, name), 10)
    node.start()
    until(lambda: secure.serves(leader, root), 20)


def test_it_ends_with_its_node(secure: Secure, root: str) -> None:
    node = secure.nodes["n3"]
    [gateway] = of(node.pid)
    node.signal(signal.SIGTERM)
    until(lambda: not node.alive, 10)
    until(lambda: is_gone(gateway), 2)
    with pytest.raises(urllib.error.URLError, match="refused"):
        secure.ask("n3", "GET", "/v1/jobs", token=root)
    node.start()
    until(lambda: secure.serves("n3", root), 20)
