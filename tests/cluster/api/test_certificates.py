"""Callers that a certificate names, on gRPC."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc
import pytest

from raftsched.cluster.api.certificates import HEADER, opened, sealed
from raftsched.cluster.api.forward import FORWARDED
from raftsched.cluster.api.server import Server
from raftsched.proto.v1 import access_pb2, identity_pb2, job_pb2, options_pb2

from .conftest import Counted, Served
from .fake import FakeNode, World
from .issuer import rule
from .talk import Anything, create, refused
from .test_auth import access as access_of
from .test_auth import bearer, jobs, make
from .test_identities import providers_of

Role = options_pb2.Role
LIST = job_pb2.ListJobsRequest()
LocksStart = Callable[[str], Awaitable[Served]]
pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="makes its certificates with openssl"
)


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def sign(folder: Path, name: str, names: str) -> None:
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    if not (folder / "ca.pem").exists():
        openssl(folder, "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem",
                "-subj", "/CN=ca")  # fmt: skip
    openssl(folder, "req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr",
            "-subj", f"/CN={name}", "-addext", f"subjectAltName={names}")  # fmt: skip
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-days", "1", "-copy_extensions", "copy", "-out", f"{name}.pem")  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    sign(made, "node", "DNS:localhost,IP:127.0.0.1")
    sign(made, "ann", "URI:spiffe://example/ann,DNS:ann.example,email:ann@example.org")
    sign(made, "bare", "DNS:bare.example")
    return made


def credentials(folder: Path, name: str) -> grpc.ChannelCredentials:
    files = (folder / one for one in ("ca.pem", f"{name}.key", f"{name}.pem"))
    return grpc.ssl_channel_credentials(*(file.read_bytes() for file in files))


def channel_of(served: Served, folder: Path, name: str) -> Served:
    """The same node, seen by somebody with this certificate."""
    channel = grpc.aio.secure_channel(served.address, credentials(folder, name))
    return Served(served.node, served.server, served.address, channel, served.counted)


@pytest.fixture
async def start(folder: Path, world: World) -> AsyncIterator[LocksStart]:
    """Start a node that asks for certificates; the first one leads."""
    started: list[Served] = []

    async def begin(name: str) -> Served:
        node, counted = FakeNode(name, world), Counted()
        pair = ((folder / "node.key").read_bytes(), (folder / "node.pem").read_bytes())
        locks = grpc.ssl_server_credentials(
            [pair], (folder / "ca.pem").read_bytes(), require_client_auth=True
        )
        onward = credentials(folder, "node")
        server = Server(node, "localhost:0", locks, onward, metrics=counted)
        node.address = await server.start()
        channel = grpc.aio.secure_channel(node.address, onward)
        started.append(Served(node, server, node.address, channel, counted))
        if world.leader is None:
            world.lead(node)
        return started[-1]

    yield begin
    for served in started:
        await served.channel.close()
        await served.server.drain("the test is over")
        await served.server.stop(0.1)
        served.node.stop()


async def put(served: Served, root: str, *rules: identity_pb2.BindingRule) -> None:
    wanted = identity_pb2.IdentityProvider(
        name="certs", certificates=identity_pb2.ClientCertificates(), rules=rules
    )
    request = identity_pb2.PutIdentityProviderRequest(identity_provider=wanted)
    await providers_of(served).PutIdentityProvider(request, metadata=bearer(root))


async def test_a_certificate_opens_what_its_rule_says(start: LocksStart, folder: Path) -> None:
    served = await start("a")
    ann, bare = channel_of(served, folder, "ann"), channel_of(served, folder, "bare")
    root = await make(served, "root", Role.ROLE_ADMIN)
    assert (await refused(jobs(ann).ListJobs(LIST))).reason == "UNAUTHENTICATED"
    await put(served, root, rule(Role.ROLE_EDITOR, "uri", "spiffe://example/*"))
    await jobs(ann).CreateJob(create("report"))
    me = await access_of(ann).WhoAmI(access_pb2.WhoAmIRequest())
    assert (me.kind, me.name) == (
        access_pb2.Caller.KIND_CERTIFICATE, "certificate:spiffe://example/ann"
    )  # fmt: skip
    found = await refused(jobs(bare).ListJobs(LIST))
    assert found.reason == "FORBIDDEN"
    assert found.message.startswith("certificate:bare.example is known, but no rule")
    for claim, value in (("cn", "ann"), ("dns", "ann.example"), ("email", "ann@example.org")):
        await put(served, root, rule(Role.ROLE_VIEWER, claim, value))
        await jobs(ann).ListJobs(LIST)
        assert (await refused(jobs(ann).CreateJob(create("x")))).reason == "FORBIDDEN"
    for one in (ann, bare):
        await one.channel.close()


async def test_with_a_token_as_well_the_call_is_that_of_the_token(
    start: LocksStart, folder: Path
) -> None:
    served = await start("a")
    ann = channel_of(served, folder, "ann")
    root = await make(served, "root", Role.ROLE_ADMIN)
    await put(served, root, rule(Role.ROLE_ADMIN, "cn", "ann"))
    viewer = await make(served, "look", Role.ROLE_VIEWER, root)
    found = await refused(jobs(ann).CreateJob(create("x"), metadata=bearer(viewer)))
    assert found.message.startswith("look may not do this")
    for wrong in ("rs_wrong", "a.b.c"):
        found = await refused(jobs(ann).CreateJob(create("x"), metadata=bearer(wrong)))
        assert found.reason == "UNAUTHENTICATED"
    await ann.channel.close()


async def test_a_follower_says_whose_certificate_it_was_and_nobody_else_can(
    start: LocksStart, folder: Path
) -> None:
    leads, follows = await start("a"), await start("b")
    ann, bare = channel_of(follows, folder, "ann"), channel_of(leads, folder, "bare")
    root = await make(leads, "root", Role.ROLE_ADMIN)
    await put(leads, root, rule(Role.ROLE_EDITOR, "cn", "ann"))
    made: Anything = await jobs(ann).CreateJob(create("report"))
    assert made.name == "report"
    path = "/raftsched.v1.JobService/CreateJob"
    own = follows.node.forward_keys["b"]
    said = sealed({"cn": "ann"}, path, own)
    for lie in (
        [(HEADER, '{"cn":"ann"}')], [(HEADER, sealed({"cn": "ann"}, path, b"guessed"))],
        [(HEADER, said.replace("ann", "bob")), (FORWARDED, "b")], [(FORWARDED, "b")],
        [(HEADER, sealed({"cn": "ann"}, "/raftsched.v1.JobService/GetJob", own)),
         (FORWARDED, "b")],
        [(HEADER, ""), (FORWARDED, "b")],
    ):  # fmt: skip
        call = jobs(bare).CreateJob(create("x"), metadata=tuple(lie))
        assert (await refused(call)).reason in ("UNAUTHENTICATED", "FORBIDDEN"), lie
    assert opened(said, path, [b"", own]) == {"cn": "ann"}
    for one in (ann, bare):
        await one.channel.close()


async def test_a_certificate_with_many_names_is_known_by_the_first_ones(
    start: LocksStart, folder: Path
) -> None:
    leads, follows = await start("a"), await start("b")
    names = ",".join(f"DNS:{'x' * 60}.{'y' * 60}.{'z' * 60}.n{number}" for number in range(40))
    sign(folder, "many", f"{names},URI:spiffe://example/many")
    many = channel_of(follows, folder, "many")
    root = await make(leads, "root", Role.ROLE_ADMIN)
    await put(leads, root, rule(Role.ROLE_EDITOR, "uri", "spiffe://example/many"))
    made: Anything = await jobs(many).CreateJob(create("report"))
    assert made.name == "report"
    await many.channel.close()
