"""Proxies, a path in front, and the trace of a request."""

from __future__ import annotations

import logging

import pytest

from raftsched.client.gateway.config import Limits, Settings
from raftsched.client.gateway.headers import Headers
from raftsched.client.gateway.wire import (
    caller_of,
    networks,
    packed,
    prefix_of,
    takes_gzip,
    trace_of,
    without,
)

from ...rows import each
from ..stage import Stage
from .served import Served, serving

TRUSTED = networks(["10.0.0.0/8", "::1"])


def headed(given: dict[str, str]) -> Headers:
    return Headers((name.encode(), text.encode("latin-1")) for name, text in given.items())


def test_headers_that_come_twice_are_known() -> None:
    headers = Headers([(b"a", b"1"), (b"b", b""), (b"a", b"2"), (b"b", b"")])
    assert (headers.get("a"), headers.all("a"), headers.get("c", "x")) == ("1", ["1", "2"], "x")
    assert headers.twice == {"a", "b"}
    assert "b" in headers
    assert "c" not in headers


@each(
    ("peer", "headers", "caller"),
    [
        ("192.0.2.1", {"x-forwarded-for": "203.0.113.5"}, "192.0.2.1"),
        ("10.0.0.1", {"x-forwarded-for": "203.0.113.5"}, "203.0.113.5"),
        # What the caller wrote itself stands on the left, and is not believed.
        ("10.0.0.1", {"x-forwarded-for": "198.51.100.9, 203.0.113.5, 10.0.0.2"}, "203.0.113.5"),
        ("10.0.0.1", {"x-forwarded-for": "203.0.113.5:4711"}, "203.0.113.5"),
        ("10.0.0.1", {"x-forwarded-for": "unknown"}, "10.0.0.1"),
        ("10.0.0.1", {"x-forwarded-for": "10.0.0.9"}, "10.0.0.9"),
        ("10.0.0.1", {}, "10.0.0.1"),
        ("::1", {"forwarded": 'for="[2001:db8::7]:4711";proto=https'}, "2001:db8::7"),
        ("10.0.0.1", {"forwarded": "for=203.0.113.5, for=10.1.1.1"}, "203.0.113.5"),
        ("10.0.0.1", {"forwarded": "for=203.0.113.5", "x-forwarded-for": "192.0.2.9"},
         "203.0.113.5"),
        ("", {"x-forwarded-for": "203.0.113.5"}, ""),
    ],
)  # fmt: skip
def test_only_trusted_proxies_say_who_asks(peer: str, headers: dict[str, str], caller: str) -> None:
    assert caller_of(peer, headed(headers), TRUSTED) == caller


@pytest.mark.parametrize(("proxies", "status"), [(["127.0.0.1"], b"200"), ([], b"429")])
async def test_a_proxy_has_the_connections_of_all(
    proxies: list[str], status: bytes, stage: Stage
) -> None:
    made = Settings(Limits(connections_by_address=1), proxies=networks(proxies))
    async with serving(stage.endpoints, made) as gateway:
        # This connection stays.
        assert (await gateway.ask("GET", "/v1/jobs")).status == 200
        head = b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        assert (await gateway.raw(head)).split()[1] == status


@pytest.mark.parametrize(("given", "prefix"), [("", ""), ("/", ""), ("a", "/a"), ("/a/b/", "/a/b")])
def test_a_prefix_is_a_path(given: str, prefix: str) -> None:
    assert prefix_of(given) == prefix


@each("given", ["/a b", "/..", "/a?b", '/a"', "//a//b"])
def test_what_is_no_path_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="is no path"):
        prefix_of(given)


def test_the_prefix_is_taken_off_once() -> None:
    assert without("/a", "/a/a/b") == "/a/b"
    assert without("/a", "/ab") == "/ab"
    assert without("", "/ab") == "/ab"


def test_gzip_is_taken_by_who_says_so() -> None:
    assert takes_gzip(headed({"accept-encoding": "deflate, gzip;q=1.0"}))
    assert takes_gzip(headed({"accept-encoding": "*"}))
    assert not takes_gzip(headed({"accept-encoding": "gzip;q=0.0"}))
    assert not takes_gzip(headed({}))
    assert packed(b"a" * 5_000)[:2] == b"\x1f\x8b"


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def test_a_trace_is_taken_given_and_logged(
    gateway: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "raftsched.gateway.access")
    got = await gateway.ask("GET", "/v1/jobs", traceparent=TRACE)
    assert got.headers["traceparent"] == TRACE
    assert caplog.records[-1].__dict__["trace"] == TRACE[3:35]
    got = await gateway.ask("GET", "/v1/jobs", traceparent=TRACE + "x")
    assert "traceparent" not in got.headers


async def test_a_trace_goes_on_with_the_run_it_triggers(gateway: Served) -> None:
    await gateway.ask("POST", "/api/v1/jobs", {"name": "a", "callback_url": "https://a.example"})

    async def context(**headers: str) -> object:
        made = await gateway.ask("POST", "/v1/jobs/a:trigger", {}, **headers)
        assert made.status == 200, made.body
        return made.body.get("traceContext")

    state = "vendor=value"
    found = await context(traceparent=TRACE, tracestate=state)
    assert found == {"traceparent": TRACE, "tracestate": state}
    # Longer than a run can have: the trace goes on without it.
    assert await context(traceparent=TRACE, tracestate="a=" + "x" * 600) == {"traceparent": TRACE}
    assert await context(tracestate=state) is None


@pytest.mark.parametrize(
    "given", ["", "00-" + "0" * 32 + "-00f067aa0ba902b7-01", TRACE.upper(), "ff" + TRACE[2:]]
)
def test_what_is_no_trace_is_left_out(given: str) -> None:
    assert trace_of(headed({"traceparent": given})) == ""
