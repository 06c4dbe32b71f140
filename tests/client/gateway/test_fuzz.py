"""Whatever comes: an answer of HTTP that says why, and no fault of the server but 503."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from raftsched.client.gateway import plain
from raftsched.client.gateway.routes import bindings_of_contracts

from ..stage import Stage
from .served import Served, serving

TEMPLATES = [one.template for one in (*bindings_of_contracts(), *plain.BINDINGS)]
VERBS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "x"]
VISIBLE = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=20)
LATIN = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"))
KNOWN_HEADERS = [
    "Accept", "Authorization", "Content-Type", "Content-Encoding", "Content-Length", "Expect",
    "Idempotency-Key", "If-Match", "Last-Event-ID", "Origin", "Host", "Transfer-Encoding",
    "Access-Control-Request-Method", "Connection", "Upgrade", "Cookie",
]  # fmt: skip
VALUES = [
    "application/json", "text/event-stream", "*/*", "Bearer x", "chunked", "1", "-1", "9" * 30,
    '"', '""', '"a"', "*", "100-continue", "close", "websocket", "http://127.0.0.1", "null", "1.1",
]  # fmt: skip
SCALARS: list[Any] = [None, True, 0, -1, 1 << 70, 1.5, "", "a", "5m", "\x00", "é", "2027-01-01"]
VALUES_IN_PATHS = st.sampled_from(["a", "%00", "%ff", "a%2Fb", ""])
FIELDS = st.sampled_from(["namespace", "pageSize", "read.consistency", "filter", "job", "x.y"])
NAMES = [
    "name", "spec", "job", "namespace", "cron", "target", "callback_url", "every", "payload",
    "action", "handler", "schedules", "labels", "retry", "queue", "jobs", "edit", "kind",
    "scheduledTime", "timing", "calendar", "alert", "requestId", "read", "updateMask",
]  # fmt: skip
JSON = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=12,
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request that begins like HTTP, at least."""
    path = draw(st.sampled_from(TEMPLATES) | VISIBLE.map(lambda text: "/" + text))
    while "{" in path and "}" in path:
        before, _, rest = path.partition("{")
        path = before + draw(VALUES_IN_PATHS) + rest.partition("}")[2]
    if draw(st.booleans()):
        path += "?" + "&".join(f"{draw(FIELDS)}={draw(VISIBLE)}" for _ in range(2))
    headers = {"Host": "127.0.0.1", "Content-Type": "application/json"}
    texts = st.sampled_from(VALUES) | LATIN.map(str.strip)
    headers |= draw(st.dictionaries(st.sampled_from(KNOWN_HEADERS), texts, max_size=3))
    body = draw(JSON.map(lambda one: json.dumps(one).encode()) | st.binary(max_size=40))
    if body:
        headers.setdefault("Content-Length", str(len(body)))
    lines = [f"{draw(st.sampled_from(VERBS))} {path} HTTP/1.1"]
    lines += [f"{name}: {text}" for name, text in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace") + body


@pytest.fixture
def apart(stage: Stage, caplog: pytest.LogCaptureFixture) -> Iterator[Served]:
    """A gateway on a thread, for examples that are made one by one."""
    caplog.set_level(logging.ERROR)
    made: list[Served] = []
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with serving(stage.endpoints) as served:
            made.append(served)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait(30)
    yield made[0]
    over.set()
    thread.join(30)


def ask(served: Served, data: bytes) -> bytes:
    """The first answer; of one without a length, as a stream has it, the head."""
    with socket.create_connection((served.host, served.port), timeout=20) as line:
        line.sendall(data)
        answer, missing = b"", 1
        while missing > 0:
            piece = line.recv(1 << 16)
            answer += piece
            head, end, body = answer.partition(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            missing = (int(length[1]) - len(body) if length else 0) if end else 1
            if not piece:
                break
        return answer


@settings(
    max_examples=250,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=requests())
@example(data=b"GET /v1/jobs?%00=%00 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
@example(data=b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
         b"Content-Length: 9\r\nIdempotency-Key: \xe9\r\n\r\n" + b'{"a": 1} ')  # fmt: skip
@example(data=b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n"
         b"Content-Type: application/json\r\nIdempotency-Key: \xff\r\n\r\n{}")  # fmt: skip
def test_no_request_is_the_fault_of_the_server(data: bytes, apart: Served) -> None:
    whole = data + b"\r\n\r\n"
    answer = ask(apart, whole)
    if answer.startswith(b"HTTP/1.1 100"):
        answer = answer.partition(b"\r\n\r\n")[2] or b"HTTP/1.1 200 "
    status = int(answer.split(b" ", 2)[1])
    assert status < 500 or status == 503, (data, answer)
    assert b"Traceback" not in answer
    head, _, body = answer.partition(b"\r\n\r\n")
    if status >= 400 and body.startswith(b"{"):
        told = json.loads(body.splitlines()[0])
        assert told["error"]["details"][0]["reason"] if "error" in told else told["reason"]
    assert b"content-type" in head.lower() or status == 200
