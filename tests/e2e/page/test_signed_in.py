"""Signing in: by a token, by an identity provider, until it ends, and for nobody else."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from importlib.util import find_spec

import pytest

from raftsched.client import Client
from raftsched.client.testing import LocalCluster
from raftsched.proto.v1 import identity_pb2, options_pb2

from ...client.gateway.test_process import gateway
from .browser import Browser, Tab, eventually

pytestmark = pytest.mark.slow
CLIENT = "raftsched-page"


@dataclass(frozen=True, slots=True)
class Closed:
    """A cluster with access tokens."""

    cluster: LocalCluster
    url: str
    root: str
    # The identity provider that it knows; empty where there is none to test with.
    issuer: str

    def client(self) -> Client:
        return self.cluster.client(token=self.root)


@contextmanager
def provider() -> Iterator[str]:
    """One that others wrote, where it is installed."""
    if find_spec("oidc_provider_mock") is None:
        yield ""
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = import_module("oidc_provider_mock")
    with made.run_server_in_thread() as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture(scope="module")
def closed(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(1))
        issuer = stack.enter_context(provider())
        with cluster.client() as client:
            root = client.access.create_token("root", "admin", namespace="").secret
        # That one takes any secret, but no client without.
        secret = tmp_path_factory.mktemp("oidc") / "secret"
        secret.write_text("any\n")
        words = ["--oidc-issuer", issuer, "--oidc-client-id", CLIENT]
        words = [*words, "--oidc-secret-file", str(secret)] if issuer else []
        served = stack.enter_context(gateway("--server", ",".join(cluster.endpoints), *words))
        yield Closed(cluster, f"http://{served.address}", root, issuer)


def sign_in(tab: Tab, token: str) -> None:
    """The page begins anew when it was good."""
    tab.until(30, "() => document.querySelector('input[type=password]')")
    tab.page.fill("input[type=password]", token)
    with tab.page.expect_navigation():
        tab.page.click('button:has-text("Sign in")')
    tab.until(30, "() => document.querySelector('main h1')?.innerText === 'Jobs'")


def test_a_token_opens_the_page_until_it_ends(browser: Browser, closed: Closed) -> None:
    with Tab(browser, closed.url) as tab, closed.client() as client:
        made = client.access.create_token(
            "short", "viewer", expires=datetime.now(UTC) + timedelta(seconds=4)
        )
        tab.open("/jobs")
        tab.until(30, "() => document.querySelector('input[type=password]')")
        assert tab.page.evaluate("() => violated") == []
        tab.page.fill("input[type=password]", "rs_wrong")
        tab.page.click('button:has-text("Sign in")')
        tab.until(30, "() => document.querySelector('main [role=alert]')")
        sign_in(tab, made.secret)
        # No script sees it.
        assert made.secret not in tab.page.evaluate("() => document.cookie")
        # Then it is over, and the page asks again.
        eventually(lambda: tab.ask("GET", "/v1/whoami")[0] == 401, 20, "the token ended")
        tab.page.reload(wait_until="domcontentloaded")
        tab.until(30, "() => document.querySelector('input[type=password]')")


def test_whoever_may_see_one_namespace_sees_its_sums_alone(
    browser: Browser, closed: Closed
) -> None:
    with Tab(browser, closed.url) as tab, closed.client() as client:
        client.jobs.create("theirs", handler="hello")
        client.namespaces.create("team")
        made = client.access.create_token("bound", "viewer", namespace="team")
        tab.open("/jobs?ns=team")
        sign_in(tab, made.secret)
        tab.errors.clear()
        for path, says in (("/?ns=team", "Dead letters"), ("/cluster?ns=team", "Jobs in team")):
            tab.open(path)
            tab.until(30, f"() => document.querySelector('main').innerText.includes('{says}')")
            assert "Firing" not in tab.text("main")
        assert tab.wrong() == []
        assert tab.violations() == []


def test_signing_out_is_for_good(browser: Browser, closed: Closed) -> None:
    with Tab(browser, closed.url) as tab:
        tab.open("/jobs")
        sign_in(tab, closed.root)
        made = {"name": "made", "callback_url": "http://a.example"}
        assert tab.ask("POST", "/api/v1/jobs", made)[0] == 201
        assert tab.ask("DELETE", "/session")[0] == 200
        assert tab.ask("GET", "/v1/jobs")[0] == 401


FORGED = """<!doctype html><title>elsewhere</title><script>
const target = "%s/api/v1/jobs";
const body = JSON.stringify({name: "forged", callback_url: "http://a.example"});
const tries = [
  fetch(target, {method: "POST", credentials: "include", body}),
  fetch(target, {method: "POST", credentials: "include", mode: "no-cors", body,
    headers: {"content-type": "text/plain"}}),
  fetch(target, {method: "POST", credentials: "include", body,
    headers: {"content-type": "application/json"}}),
  fetch("%s/v1/jobs", {credentials: "include"}).then((answer) => answer.text()).then((text) => {
    document.title = "read " + text; }),
];
Promise.allSettled(tries).then((all) => { document.body.dataset.done = JSON.stringify(
  all.map((one) => one.status)); });
</script><body></body>"""


@contextmanager
def elsewhere(target: str) -> Iterator[str]:
    """A page of another origin: the same machine, which is the same site, with another port."""
    text = (FORGED % (target, target)).encode()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_page_of_elsewhere_can_neither_write_nor_read(browser: Browser, closed: Closed) -> None:
    with Tab(browser, closed.url) as tab, elsewhere(closed.url) as other:
        tab.open("/jobs")
        sign_in(tab, closed.root)
        assert tab.ask("GET", "/v1/jobs")[0] == 200
        forged = tab.context.new_page()
        forged.goto(other)
        forged.wait_for_function("() => document.body.dataset.done")
        assert forged.title() == "elsewhere"
        done = json.loads(forged.evaluate("() => document.body.dataset.done"))
        # The second is sent without asking, and what comes of it nobody sees.
        assert [done[0], done[2], done[3]] == ["rejected"] * 3
        with closed.client() as client:
            assert "forged" not in {job.name for job in client.jobs.list()}


def known_by_sub(closed: Closed, client: Client) -> None:
    """The provider vouches for anna, and the cluster knows nobody else of it."""
    rule = identity_pb2.BindingRule(
        claims=[identity_pb2.ClaimSelector(claim=["sub"], values=["anna"])],
        role=options_pb2.ROLE_EDITOR,
    )
    made = identity_pb2.IdentityProvider(
        name="test", rules=[rule],
        jwt=identity_pb2.TokenIssuer(issuer=closed.issuer, audiences=[CLIENT]),
    )  # fmt: skip
    client.call(identity_pb2.PutIdentityProviderRequest(identity_provider=made))


# Theirs, of the libraries that it uses.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_identity_provider_vouches_for_people(browser: Browser, closed: Closed) -> None:
    if not closed.issuer:
        pytest.skip("oidc-provider-mock is not installed; it comes with .ci/requirements-page.txt")
    with Tab(browser, closed.url) as tab, closed.client() as client:
        known_by_sub(closed, client)
        tab.open("/jobs?q=name%3Aa")
        tab.page.click('a:has-text("Sign in by localhost")')
        tab.page.fill("input[name=sub]", "anna")
        tab.page.click("button")
        tab.page.wait_for_url("**/jobs?q=name%3Aa")
        tab.until(30, "() => document.querySelector('main h1')?.innerText === 'Jobs'")
        status, caller = tab.ask("GET", "/v1/whoami")
        assert (status, caller["kind"]) == (200, "KIND_JWT")
        assert caller["name"].endswith("#anna")
        assert caller["grants"][0]["role"] == "ROLE_EDITOR"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_whoever_is_not_let_in_reads_why_and_may_try_again(
    browser: Browser, closed: Closed, theme: str
) -> None:
    """Somebody whom the provider knows and the cluster does not; and a way back that is over."""
    if not closed.issuer:
        pytest.skip("oidc-provider-mock is not installed; it comes with .ci/requirements-page.txt")
    with Tab(browser, closed.url, width=380, theme=theme) as tab, closed.client() as client:
        known_by_sub(closed, client)
        tab.open("/jobs")
        tab.page.click('a:has-text("Sign in by localhost")')
        tab.page.fill("input[name=sub]", "eve")
        with tab.page.expect_response("**/session/**") as came:
            tab.page.click("button")
        assert came.value.status == 403
        for back in ("", came.value.url):
            if back:
                tab.open(back.removeprefix(closed.url))
            assert tab.page.title() == "Not signed in · raftsched"
            assert "You are not signed in" in tab.text("h1")
            assert tab.text("main [role=alert]").strip()
            assert tab.violations() == []
            assert tab.page.evaluate("() => document.documentElement.scrollWidth") <= 380
            assert tab.page.evaluate("() => violated") == []
        tab.page.get_by_role("link", name="Sign in again").click()
        tab.until(30, "() => document.querySelector('input[type=password]')")
        assert tab.ask("GET", "/v1/whoami")[0] == 401
