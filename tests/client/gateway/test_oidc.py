"""Signing in by an identity provider, before one that may lie, fail or be late."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import web

from raftsched.client.gateway import fetch
from raftsched.client.gateway.config import Provider, Settings
from raftsched.client.gateway.fetch import NotFetched, is_address

from ...rows import each
from ..stage import Stage
from .served import Served, serving

CLIENT = "raftsched-page"
OWN = {"sec_fetch_site": "same-origin"}


def word(data: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


@dataclass
class Issuer:
    """An identity provider that knows one person."""

    url: str = ""
    described: dict[str, Any] = field(default_factory=dict)
    # What it does with the next exchange: an answer of its own, and what it heard.
    answer: dict[str, Any] | None = None
    nonce: str = ""
    heard: list[dict[str, str]] = field(default_factory=list)
    basic: list[str] = field(default_factory=list)
    token: str = ""

    async def describe(self, request: web.Request) -> web.Response:
        made = {"issuer": self.url, "authorization_endpoint": f"{self.url}/login",
                "token_endpoint": f"{self.url}/token"}  # fmt: skip
        return web.json_response(made | self.described)

    async def exchange(self, request: web.Request) -> web.Response:
        given = await request.post()
        self.heard.append({key: str(value) for key, value in given.items()})
        self.basic.append(request.headers.get("authorization", ""))
        if self.answer is not None:
            return web.json_response(self.answer)
        return web.json_response({"id_token": self.token, "access_token": "of no use here"})

    def sign(self, nonce: str) -> str:
        self.token = f"{word({'alg': 'none'})}.{word({'nonce': nonce})}.c2lnbmVk"
        return self.token


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    made = Issuer()
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", made.describe)
    app.router.add_post("/token", made.exchange)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@asynccontextmanager
async def page(stage: Stage, issuer: Issuer, secret: str = "") -> AsyncIterator[Served]:
    settings = Settings(provider=Provider(issuer.url, CLIENT, secret))
    async with serving(stage.endpoints, settings) as gateway:
        yield gateway


async def begin(gateway: Served, to: str = "/jobs") -> tuple[dict[str, str], str]:
    """What the provider is asked, and the cookie until the browser is back."""
    url = f"{gateway.url}/session/oidc?to={to}"
    async with gateway.session.get(url, allow_redirects=False) as answer:
        assert answer.status == 302, await answer.text()
        place = urlsplit(answer.headers["location"])
        asked = {key: one[0] for key, one in parse_qs(place.query).items()}
        [cookie] = answer.headers.getall("set-cookie")
        assert {"HttpOnly", "SameSite=Lax", "Max-Age=600"} <= set(cookie.split("; "))
        return asked | {"place": place.path}, cookie.partition(";")[0]


async def back(
    gateway: Served, cookie: str, accept: str = "*/*", **query: str
) -> tuple[int, dict[str, str], list[str], str]:
    url = f"{gateway.url}/session/callback"
    # The browser comes from the provider's site.
    headers = {"cookie": cookie, "sec-fetch-site": "cross-site", "accept": accept}
    async with gateway.session.get(
        url, params=query, headers=headers, allow_redirects=False
    ) as answer:
        lower = {name.lower(): value for name, value in answer.headers.items()}
        text = await answer.text()
        return answer.status, lower, answer.headers.getall("set-cookie", []), text


async def test_a_code_becomes_the_cookie_of_its_person(stage: Stage, issuer: Issuer) -> None:
    async with page(stage, issuer) as gateway:
        shown = (await gateway.ask("GET", "/session")).body
        name = urlsplit(issuer.url).netloc
        assert shown == {"signedIn": False, "provider": {"name": name, "path": "/session/oidc"}}
        asked, cookie = await begin(gateway)
        assert (asked["place"], asked["response_type"]) == ("/login", "code")
        assert (asked["client_id"], asked["scope"]) == (CLIENT, "openid profile email")
        assert asked["redirect_uri"] == f"{gateway.url}/session/callback"
        stage.token = issuer.sign(asked["nonce"])
        status, headers, cookies, text = await back(
            gateway, cookie, code="c-1", state=asked["state"]
        )
        assert (status, headers["location"]) == (303, "/jobs"), text
        [heard] = issuer.heard
        challenge = hashlib.sha256(heard["code_verifier"].encode()).digest()
        sent = base64.urlsafe_b64encode(challenge).decode().rstrip("=")
        assert (heard["code"], asked["code_challenge"]) == ("c-1", sent)
        assert asked["code_challenge_method"] == "S256"
        assert issuer.basic == [""]
        assert "SameSite=Strict" in cookies[0]
        assert cookies[-1].endswith("Expires=Thu, 01 Jan 1970 00:00:00 GMT")
        kept = "; ".join(one.partition(";")[0] for one in cookies)
        assert (await gateway.ask("GET", "/v1/jobs", cookie=kept)).status == 200


async def test_a_client_with_a_secret_shows_it_there_alone(stage: Stage, issuer: Issuer) -> None:
    async with page(stage, issuer, "se cret") as gateway:
        asked, cookie = await begin(gateway)
        stage.token = issuer.sign(asked["nonce"])
        assert "se cret" not in json.dumps(asked) + cookie
        assert (await back(gateway, cookie, code="c", state=asked["state"]))[0] == 303
        assert base64.b64decode(issuer.basic[0].removeprefix("Basic ")).decode() == (
            f"{CLIENT}:se%20cret"
        )


async def test_what_belongs_to_another_attempt_is_refused(stage: Stage, issuer: Issuer) -> None:
    async with page(stage, issuer) as gateway:
        asked, cookie = await begin(gateway)
        other, other_cookie = await begin(gateway)
        stage.token = issuer.sign(asked["nonce"])
        state = asked["state"]
        for kept, query in (
            (cookie, {"code": "c", "state": other["state"]}),
            (cookie, {"code": "c"}),
            ("", {"code": "c", "state": state}),
            (f"{cookie}; {other_cookie}", {"code": "c", "state": state}),
            (cookie.replace("=", "=x"), {"code": "c", "state": state}),
            (cookie, {"error": "access_denied", "state": state}),
            # Its token was made for another browser.
            (other_cookie, {"code": "c", "state": other["state"]}),
        ):
            status, _, cookies, text = await back(gateway, kept, **query)
            assert (status, cookies) == (401, []), (query, text)
            assert "sign in again" in text


async def test_a_browser_that_is_refused_gets_a_page(stage: Stage, issuer: Issuer) -> None:
    async with page(stage, issuer) as gateway:
        asked, cookie = await begin(gateway)
        query = {"error": "no", "error_description": "<b>not</b> you", "state": asked["state"]}
        status, headers, cookies, text = await back(gateway, cookie, "text/html,*/*;q=0.8", **query)
        assert (status, cookies) == (401, [])
        assert headers["content-type"].startswith("text/html")
        assert headers["content-security-policy"].startswith("default-src 'self'; ")
        assert headers["cache-control"] == "no-store"
        assert "&lt;b&gt;not&lt;/b&gt; you" in text
        assert "<b>" not in text
        assert 'href="/">Sign in again' in text
        issuer.described = {"issuer": "https://evil.example"}
    async with (
        page(stage, issuer) as gateway,
        gateway.session.get(f"{gateway.url}/session/oidc", headers={"accept": "text/html"}) as one,
    ):
        assert (one.status, "correct --oidc-issuer" in await one.text()) == (503, True)


async def test_a_provider_that_fails_is_said(
    stage: Stage, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with page(stage, issuer) as gateway:
        issuer.described = {"issuer": "https://evil.example"}
        assert (await gateway.ask("GET", "/session/oidc")).status == 503
        issuer.described = {"token_endpoint": "http://169.254.1.1/token"}
        asked, cookie = await begin(gateway)
        status, _, _, text = await back(gateway, cookie, code="c", state=asked["state"])
        assert (status, "no https address" in text) == (503, True)
    issuer.described = {}
    for answer in ({}, {"id_token": 7}, {"id_token": "x" * 70_000}):
        issuer.answer = answer
        async with page(stage, issuer) as gateway:
            asked, cookie = await begin(gateway)
            status, _, cookies, _ = await back(gateway, cookie, code="c", state=asked["state"])
            assert (status, cookies) == (503, [])
    # The cluster does not know the token.
    issuer.answer, stage.token = None, "other"
    async with page(stage, issuer) as gateway:
        asked, cookie = await begin(gateway)
        issuer.sign(asked["nonce"])
        assert (await back(gateway, cookie, code="c", state=asked["state"]))[0] == 401


async def test_without_a_provider_there_is_no_such_way(gateway: Served) -> None:
    for path in ("/session/oidc", "/session/callback"):
        assert (await gateway.ask("GET", path)).status == 404


@each(
    ("url", "taken"),
    [
        ("https://id.example/realm", True), ("http://127.0.0.1:8080", True),
        ("http://localhost", True), ("http://id.example", False), ("https://", False),
        ("https://a@id.example", False), ("file:///etc/passwd", False), ("https://a:x", False),
        ("https://a b", False),
    ],
)  # fmt: skip
def test_who_may_be_asked(url: str, taken: bool) -> None:
    assert is_address(url) == taken


async def test_nobody_is_waited_for_for_ever(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "FETCH_S", 0.0)
    with pytest.raises(NotFetched, match="did not answer"):
        await fetch.fetch(f"{issuer.url}/.well-known/openid-configuration")
