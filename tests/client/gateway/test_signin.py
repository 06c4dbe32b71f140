"""Who is signed in by a cookie, and what that cookie opens to whom."""

from __future__ import annotations

from typing import Any

import pytest

from raftsched.client.gateway.config import Settings
from raftsched.client.gateway.headers import Headers
from raftsched.client.gateway.signin import PART_CHARS, name_of, place_of
from raftsched.client.gateway.wire import networks

from ..stage import Stage
from .served import Served, serving

SECRET = "rs_" + "a" * 43
OWN = {"sec_fetch_site": "same-origin"}
JOB = {"name": "report", "spec": {"action": {"handler": "build"}}}


@pytest.fixture(autouse=True)
def closed(stage: Stage) -> None:
    stage.token = SECRET


async def cookies(gateway: Served, token: str = SECRET, **headers: str) -> list[str]:
    """What the browser is to keep after it has signed in."""
    sent = {"Sec-Fetch-Site": "same-origin", **headers}
    url = f"{gateway.url}/session"
    async with gateway.session.post(url, json={"token": token}, headers=sent) as answer:
        assert answer.status == 200, await answer.text()
        return answer.headers.getall("set-cookie")


def kept(made: list[str]) -> str:
    """What it sends from then on."""
    return "; ".join(one.partition(";")[0] for one in made)


async def test_a_token_becomes_a_cookie_that_no_script_and_no_other_site_has(
    gateway: Served,
) -> None:
    made = await cookies(gateway)
    assert made[0].startswith(f"raftsched-{gateway.port}-0={SECRET}; ")
    for one in made:
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(one.split("; "))
        assert "Secure" not in one
    assert (await gateway.ask("GET", "/v1/jobs")).status == 401
    assert (await gateway.ask("GET", "/v1/jobs", cookie=kept(made))).status == 200
    assert (await gateway.ask("GET", "/session", cookie=kept(made))).body == {"signedIn": True}
    assert (await gateway.ask("GET", "/session")).body == {"signedIn": False}


async def test_what_changes_something_comes_from_our_own_page(
    gateway: Served, stage: Stage
) -> None:
    cookie = kept(await cookies(gateway))
    for site in ("cross-site", "same-site", "none", ""):
        named = {"sec_fetch_site": site} if site else {}
        refused = await gateway.ask("POST", "/v1/jobs", JOB, cookie=cookie, **named)
        assert (refused.status, refused.reason) == (403, "FORBIDDEN")
    foreign = await gateway.ask(
        "POST", "/v1/jobs", JOB, cookie=cookie, origin="https://evil.example", **OWN
    )
    assert foreign.status == 403
    assert not [one for one in stage.nodes[0].heard if "Create" in type(one).__name__]
    own = await gateway.ask("POST", "/v1/jobs", JOB, cookie=cookie, origin=gateway.url, **OWN)
    assert own.status == 201
    for verb in ("DELETE", "POST"):
        assert (await gateway.ask(verb, "/session", {"token": SECRET})).status == 403


async def test_reads_for_other_sites_are_those_of_a_stranger(gateway: Served) -> None:
    cookie = kept(await cookies(gateway))
    for site, status in (("none", 200), ("same-origin", 200), ("same-site", 401),
                         ("cross-site", 401)):  # fmt: skip
        got = await gateway.ask("GET", "/v1/jobs", cookie=cookie, sec_fetch_site=site)
        assert got.status == status, site


async def test_a_cookie_never_stands_for_a_token_that_is_shown(gateway: Served) -> None:
    cookie = kept(await cookies(gateway))
    for shown in ("Bearer rs_other", "Basic abc"):
        got = await gateway.ask("GET", "/v1/jobs", cookie=cookie, authorization=shown)
        assert got.status == 401, shown
    # Whoever shows a token needs no page.
    bearer = f"Bearer {SECRET}"
    made = await gateway.ask("POST", "/v1/jobs", JOB, cookie="x=y", authorization=bearer)
    assert made.status == 201


async def test_who_is_not_known_gets_no_cookie(gateway: Served) -> None:
    for token, status in (("rs_wrong", 401), ("a b", 400), ("", 400), ("x" * 7_001, 400)):
        got = await gateway.ask("POST", "/session", {"token": token}, **OWN)
        assert got.status == status, token[:10]
        assert "set-cookie" not in got.headers
    bodies: tuple[Any, ...] = (None, [], "text")
    for body in bodies:
        got = await gateway.ask("POST", "/session", body, content_type="application/json", **OWN)
        assert got.status == 400
    wrong = await gateway.ask("PUT", "/session", {}, **OWN)
    assert (wrong.status, wrong.headers["allow"]) == (405, "DELETE, GET, HEAD, POST")
    assert (await gateway.ask("GET", "/session/else")).status == 404


async def test_signing_out_ends_the_cookie(gateway: Served) -> None:
    async with gateway.session.delete(
        f"{gateway.url}/session", headers={"Sec-Fetch-Site": "same-origin"}
    ) as answer:
        made = answer.headers.getall("set-cookie")
    assert len(made) == 2
    assert all("=; " in one and "Expires=Thu, 01 Jan 1970" in one for one in made)


async def test_a_form_leads_to_the_page_it_names(gateway: Served) -> None:
    for to, place in (("/jobs?q=a", "/jobs?q=a"), ("//evil.example", "/"), ("", "/")):
        async with gateway.session.post(
            f"{gateway.url}/session", data={"token": SECRET, "to": to},
            headers={"Sec-Fetch-Site": "same-origin"}, allow_redirects=False,
        ) as answer:  # fmt: skip
            assert (answer.status, answer.headers["location"]) == (303, place)
            assert SECRET in answer.headers.getall("set-cookie")[0]
    assert place_of("/a\\b") == "/"
    assert place_of("https://evil.example") == "/"


async def test_a_long_token_is_kept_in_parts(gateway: Served, stage: Stage) -> None:
    long = "h." + "p" * PART_CHARS + ".s"
    stage.token = long
    made = await cookies(gateway, long)
    assert [len(one) < 4_096 for one in made] == [True, True]
    assert (await gateway.ask("GET", "/v1/jobs", cookie=kept(made))).status == 200
    # Two of one name: somebody else has set one of them.
    twice = f"{kept(made)}; {kept(made)}"
    assert (await gateway.ask("GET", "/v1/jobs", cookie=twice)).status == 401


async def test_behind_a_proxy_that_speaks_tls_the_cookie_is_secure(stage: Stage) -> None:
    settings = Settings(proxies=networks(["127.0.0.1"]))
    async with serving(stage.endpoints, settings) as gateway:
        made = await cookies(gateway, **{"X-Forwarded-Proto": "https"})
        name = f"__Host-raftsched-{gateway.port}"
        assert made[0].startswith(f"{name}-0=")
        assert made[0].endswith("; Secure")
        forwarded = {"cookie": kept(made), "forwarded": "for=10.0.0.1;proto=https"}
        assert (await gateway.ask("GET", "/v1/jobs", **forwarded)).status == 200
        # Without TLS it is another cookie, which nobody has set.
        assert (await gateway.ask("GET", "/v1/jobs", cookie=kept(made))).status == 401


def test_a_cookie_is_named_by_the_port() -> None:
    for host, name in (("a.example", "raftsched"), ("a.example:7480", "raftsched-7480"),
                       ("[::1]:7480", "raftsched-7480"), ("[::1]", "raftsched")):  # fmt: skip
        assert name_of(Headers([(b"host", host.encode())]), is_secure=False, prefix="") == name
    named = name_of(Headers([(b"host", b"a.example")]), is_secure=True, prefix="/a")
    assert named == "raftsched"
