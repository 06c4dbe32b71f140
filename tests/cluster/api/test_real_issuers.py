"""Tokens of providers that others wrote: oidc-provider-mock of PyPI and oidc-provider of npm, which
is certified. They are fetched for the test, which is skipped where that cannot be."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from raftsched.cluster.local.ports import free_ports
from raftsched.proto.v1 import identity_pb2, job_pb2, options_pb2

from .conftest import Served, Start
from .issuer import rule
from .talk import create, refused
from .test_auth import bearer, jobs, make
from .test_identities import put

pytestmark = pytest.mark.slow
Role = options_pb2.Role
LIST = job_pb2.ListJobsRequest()
INSTALL_S, START_S = 100.0, 30.0
# An issuer with one key that the environment names, whose clients get JWTs for themselves.
CERTIFIED = """
import { generateKeyPairSync } from 'node:crypto';
import Provider from 'oidc-provider';

const { PORT, ALG, KID, AUDIENCE } = process.env;
const kinds = {
  RS256: () => generateKeyPairSync('rsa', { modulusLength: 2048 }),
  PS256: () => generateKeyPairSync('rsa', { modulusLength: 2048 }),
  ES256: () => generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  EdDSA: () => generateKeyPairSync('ed25519'),
};
const jwk = kinds[ALG]().privateKey.export({ format: 'jwk' });
const keys = [{ ...jwk, kid: KID, use: 'sig', alg: ALG }];
const provider = new Provider(`http://127.0.0.1:${PORT}`, {
  jwks: { keys },
  clients: [{
    client_id: 'ci', client_secret: 'a-secret-of-the-test', redirect_uris: [],
    grant_types: ['client_credentials'], response_types: [],
    id_token_signed_response_alg: ALG,
  }],
  features: {
    devInteractions: { enabled: false },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => 'urn:raftsched',
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({
        scope: 'jobs', audience: AUDIENCE, accessTokenFormat: 'jwt', jwt: { sign: { alg: ALG } },
      }),
    },
  },
});
provider.listen(Number(PORT), '127.0.0.1');
"""
Run = Callable[..., Awaitable[None]]


def fetched(url: str, form: dict[str, str] | None = None, **headers: str) -> tuple[int, str, str]:
    """Status, text, and where a redirect leads."""
    body = urllib.parse.urlencode(form).encode() if form is not None else None
    request = urllib.request.Request(url, body, headers)

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    try:
        with urllib.request.build_opener(Stay).open(request, timeout=10) as answer:
            return answer.status, answer.read().decode(), ""
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers.get("Location", "")


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Run]:
    """Run an issuer until the test is over, or another one is run."""
    running: list[subprocess.Popen[bytes]] = []

    def end() -> None:
        while running:
            process = running.pop()
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    async def begin(words: list[str], issuer: str, **environment: str) -> None:
        end()
        with (tmp_path / "issuer.log").open("ab") as said:
            running.append(subprocess.Popen(
                words, cwd=tmp_path, env={**os.environ, **environment}, stdout=said, stderr=said,
                start_new_session=True,
            ))  # fmt: skip
        async with asyncio.timeout(START_S):
            while True:
                assert running[0].poll() is None, (tmp_path / "issuer.log").read_text()
                try:
                    url = f"{issuer}/.well-known/openid-configuration"
                    await asyncio.to_thread(fetched, url)
                    return
                except urllib.error.URLError:
                    await asyncio.sleep(0.05)

    yield begin
    end()


def install(words: list[str], folder: Path) -> None:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False,
                          timeout=INSTALL_S)  # fmt: skip
    if done.returncode:
        pytest.skip(f"{words[0]} cannot install it here: {done.stderr.strip()[-200:]}")


async def trusting(start: Start, issuer: str, *algorithms: str) -> Served:
    """A node that trusts this issuer, as its admin has written it down."""
    served = await start("a", failures=100_000)
    root = await make(served, "root", Role.ROLE_ADMIN)
    made = identity_pb2.TokenIssuer(issuer=issuer, audiences=["raftsched"], algorithms=algorithms)
    rules = [rule(Role.ROLE_EDITOR, "sub", "ann"), rule(Role.ROLE_VIEWER, "sub", "ci")]
    await put(served, root, identity_pb2.IdentityProvider(name="real", jwt=made, rules=rules))
    return served


def id_token(issuer: str, client: str, subject: str) -> str:
    """What the browser of somebody who signs in ends with."""
    there = "http://localhost/back"
    asked = urllib.parse.urlencode({
        "client_id": client, "redirect_uri": there, "response_type": "code", "scope": "openid",
    })  # fmt: skip
    _, text, where = fetched(f"{issuer}/oauth2/authorize?{asked}", {"sub": subject})
    [code] = re.findall(r"code=([^&]+)", where) or [text]
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": there}
    basic = b64encode(f"{client}:any".encode()).decode()
    status, text, _ = fetched(f"{issuer}/oauth2/token", form, Authorization=f"Basic {basic}")
    assert status == 200, text
    return str(json.loads(text)["id_token"])


async def test_who_signs_in_at_a_provider_in_python(start: Start, run: Run, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pip", "install", "-q", "--target", str(tmp_path / "lib"),
             "oidc-provider-mock"]  # fmt: skip
    await asyncio.to_thread(install, words, tmp_path)
    [port] = free_ports(1)
    issuer = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port)]
    path = {"PYTHONPATH": str(tmp_path / "lib")}
    await run(command, issuer, **path)
    served = await trusting(start, issuer)
    ann = await asyncio.to_thread(id_token, issuer, "raftsched", "ann")
    await jobs(served).CreateJob(create("report"), metadata=bearer(ann))
    eve = await asyncio.to_thread(id_token, issuer, "raftsched", "eve")
    assert (await refused(jobs(served).ListJobs(LIST, metadata=bearer(eve)))).reason == "FORBIDDEN"
    other = await asyncio.to_thread(id_token, issuer, "other", "ann")
    found = await refused(jobs(served).ListJobs(LIST, metadata=bearer(other)))
    assert "for the audience other, and raftsched is wanted" in found.message
    # It comes back with other keys, as it keeps none.
    await run(command, issuer, **path)
    new = await asyncio.to_thread(id_token, issuer, "raftsched", "ann")
    sets = served.server._access.identities.sets
    later = sets.clock() + 31
    sets.clock = lambda: later
    await jobs(served).ListJobs(LIST, metadata=bearer(new))
    assert (await refused(jobs(served).ListJobs(LIST, metadata=bearer(ann)))).reason == (
        "UNAUTHENTICATED"
    )


def machine_token(issuer: str) -> str:
    """What a machine gets for its own name."""
    form = {"grant_type": "client_credentials", "scope": "jobs"}
    basic = b64encode(b"ci:a-secret-of-the-test").decode()
    status, text, _ = fetched(f"{issuer}/token", form, Authorization=f"Basic {basic}")
    assert status == 200, text
    return str(json.loads(text)["access_token"])


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
async def test_what_a_certified_provider_issues(start: Start, run: Run, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "issuer.js").write_text(CERTIFIED)
    words = ["npm", "install", "--no-audit", "--no-fund", "oidc-provider@9"]
    await asyncio.to_thread(install, words, tmp_path)
    [port] = free_ports(1)
    issuer, command = f"http://127.0.0.1:{port}", ["node", "issuer.js"]
    common = {"PORT": str(port), "AUDIENCE": "raftsched"}
    algorithms = ("RS256", "PS256", "ES256", "EdDSA")
    await run(command, issuer, **common, ALG="RS256", KID="first")
    served = await trusting(start, issuer, *algorithms)
    sets = served.server._access.identities.sets
    clock, later_s = sets.clock, 0
    sets.clock = lambda: clock() + later_s
    former = ""
    for number, algorithm in enumerate(algorithms):
        await run(command, issuer, **common, ALG=algorithm, KID=f"k{number}")
        later_s += 31
        token = await asyncio.to_thread(machine_token, issuer)
        await jobs(served).ListJobs(LIST, metadata=bearer(token))
        found = await refused(jobs(served).CreateJob(create("x"), metadata=bearer(token)))
        assert found.message.startswith(f"{issuer}#ci may not do this"), algorithm
        if former:
            found = await refused(jobs(served).ListJobs(LIST, metadata=bearer(former)))
            assert found.reason == "UNAUTHENTICATED"
        former = token
    await run(command, issuer, **{**common, "AUDIENCE": "other"}, ALG="ES256", KID="other")
    later_s += 31
    token = await asyncio.to_thread(machine_token, issuer)
    found = await refused(jobs(served).ListJobs(LIST, metadata=bearer(token)))
    assert "for the audience other, and raftsched is wanted" in found.message
