"""The description of all calls, and the page that shows it."""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

import pytest

from raftsched.client.gateway import manners, openapi, plain
from raftsched.client.gateway.config import Settings
from raftsched.client.gateway.headers import Headers
from raftsched.client.gateway.problems import GatewayRefusal

from ..stage import Stage
from .served import Served, serving

DOCUMENT: dict[str, Any] = json.loads(openapi.TARGET.read_text())


def test_the_description_is_that_of_the_contracts() -> None:
    assert openapi.main(["--check"]) == 0, "run ./dev proto"


def test_the_description_is_valid() -> None:
    validator = pytest.importorskip(
        "openapi_spec_validator", reason="comes with .ci/requirements-http.txt"
    )
    validator.validate(DOCUMENT)


def test_every_way_of_every_call_is_described() -> None:
    described = {(verb.upper(), re.sub(r"\{\w+\}", "{}", path))
                 for path, verbs in DOCUMENT["paths"].items() for verb in verbs}  # fmt: skip
    served = {(one.verb, re.sub(r"\{[\w.]+\}", "{}", one.template))
              for one in plain.with_contracts()}  # fmt: skip
    assert described == served
    ids = [one["operationId"] for verbs in DOCUMENT["paths"].values() for one in verbs.values()]
    assert len(ids) == len(set(ids))


def test_comments_stand_at_what_they_are_about() -> None:
    job = DOCUMENT["components"]["schemas"]["Job"]
    assert job["description"].startswith("A user's standing order")
    assert job["properties"]["uid"]["readOnly"]
    told = DOCUMENT["components"]["schemas"]["Priority"]["description"]
    assert "`PRIORITY_MEDIUM`: The default." in told
    assert DOCUMENT["paths"]["/v1/jobs/{job}"]["get"]["summary"] == "Show a job"
    silent = [one["operationId"] for verbs in DOCUMENT["paths"].values() for one in verbs.values()
              if not one["summary"]]  # fmt: skip
    assert silent == []


def test_a_header_is_described_where_it_is_taken() -> None:
    wrong = []
    for one in plain.with_contracts():
        described = DOCUMENT["paths"][openapi.SHORT.sub(r"{\1}", one.template)][one.verb.lower()]
        named = {parameter["name"] for parameter in described["parameters"]}
        request = one.call.request()
        try:
            manners.put_etag(request, one, Headers([(b"if-match", b'"v1"')]))
        except GatewayRefusal:
            compares = False
        else:
            # What is created has no version yet.
            compares = not manners.creates(one, request)
        if ("If-Match" in named) != compares or ("Last-Event-ID" in named) != one.call.streams_out:
            wrong.append(one.call.name)
    assert wrong == []


def test_each_reason_has_its_status_and_what_to_do_next() -> None:
    refusals = DOCUMENT["components"]["schemas"]["Reason"]["x-refusals"]
    assert refusals["LEADER_CHANGED"] == {"status": 409, "next": "repeat"}
    assert refusals["QUOTA_EXCEEDED"] == {"status": 429, "next": "change"}
    assert list(refusals) == DOCUMENT["components"]["schemas"]["Reason"]["examples"]


async def raw(gateway: Served, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    async with gateway.session.get(
        gateway.url + path, headers=named, auto_decompress=False
    ) as answer:
        lower = {name.lower(): value for name, value in answer.headers.items()}
        return answer.status, lower, await answer.read()


async def test_pages_are_our_own_alone_and_not_sent_twice(gateway: Served) -> None:
    for path in ("/docs", "/docs/page.js", "/docs/page.css", "/docs/icon.svg", "/openapi.json"):
        status, headers, body = await raw(gateway, path, accept_encoding="gzip")
        assert status == 200
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"
        plain_status, _, whole = await raw(gateway, path, accept_encoding="identity")
        assert plain_status == 200
        assert (gzip.decompress(body) if "content-encoding" in headers else body) == whole
        again, _, nothing = await raw(gateway, path, if_none_match=headers["etag"])
        assert (again, nothing) == (304, b"")
    page = (await raw(gateway, "/docs", accept_encoding="identity"))[2].decode()
    # Nothing of elsewhere, and nothing that the policy forbids.
    assert not re.search(r"https?://|<style|style=|onclick=|<script>", page)
    refused = await gateway.ask("POST", "/docs")
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")


async def test_long_answers_are_packed_for_who_takes_that(gateway: Served) -> None:
    for number in range(5):
        await gateway.ask(
            "POST", "/api/v1/jobs", {"name": f"job-{number}", "callback_url": "https://a.example"}
        )
    status, headers, body = await raw(gateway, "/v1/jobs", accept_encoding="gzip;q=0.5, br")
    assert (status, headers["content-encoding"]) == (200, "gzip")
    assert "accept-encoding" in headers["vary"]
    assert len(json.loads(gzip.decompress(body))["jobs"]) == 5
    for refusing in ("identity", "gzip;q=0", "br"):
        assert (
            "content-encoding" not in (await raw(gateway, "/v1/jobs", accept_encoding=refusing))[1]
        )


async def test_a_path_may_stand_before_all(stage: Stage) -> None:
    async with serving(stage.endpoints, Settings(prefix="/cluster")) as gateway:
        body = {"name": "a", "callback_url": "https://a.example"}
        made = await gateway.ask("POST", "/cluster/api/v1/jobs", body)
        assert (made.status, made.headers["location"]) == (201, "/cluster/v1/jobs/a")
        assert (await gateway.ask("GET", made.headers["location"])).status == 200
        # A proxy may have taken it off already.
        assert (await gateway.ask("GET", "/v1/jobs/a")).status == 200
        described = await gateway.ask("GET", "/cluster/openapi.json")
        assert described.body["servers"] == [{"url": "/cluster"}]
        page = (await raw(gateway, "/cluster/docs", accept_encoding="identity"))[2].decode()
        assert 'src="/cluster/docs/page.js"' in page
        assert (await gateway.ask("GET", "/clusterv1/jobs")).status == 404
