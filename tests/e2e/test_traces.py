"""A trace from `defer` through a failed attempt and a retry to a run downstream, as a collector
sees it: three nodes, a gateway, a worker and a program, each a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from raftsched.client.testing import LocalCluster, wait_until
from raftsched.cluster.local.process import environment

from ..client.gateway.test_process import gateway
from ..traced import PARENT, SPAN_ID, TRACE_ID
from .collector import Collector, Seen, collecting

pytestmark = pytest.mark.slow

SHOP = """
import sys
from opentelemetry import trace
from raftsched.client import GIVEN, App, Context, Retry, start_tracing, stop_tracing

app = App(name="shop")
tracer = trace.get_tracer("shop")


class Declined(Exception):
    pass


@app.task(retry=Retry(3, first=0.05))
async def pay(card: str, context: Context = GIVEN) -> str:
    with tracer.start_as_current_span("ask the bank"):
        taken = context.attempt > 1
    if not taken:
        raise Declined(f"card {card} was declined")
    return card


@app.job(after=pay)
def ship(context: Context = GIVEN) -> None:
    with tracer.start_as_current_span("print a label"):
        context.log.info("on its way")


if sys.argv[1] == "declare":
    app.sync()
elif sys.argv[1] == "work":
    app.run()
elif sys.argv[1] == "defer":
    start_tracing(service="shop-web")
    with tracer.start_as_current_span("POST /order"):
        pay.defer_sync(card="hunter2-card")
        pay.options(in_=0.2).defer_sync(card="hunter2-card")
    stop_tracing()
"""
CARD = b"hunter2-card"
TRIGGER = "raftsched.v1.JobService/TriggerJob"
OVER_HTTP = "POST /v1/jobs/{job}:trigger"
SECONDS = 60.0


@contextmanager
def working(command: list[str], env: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(command, env=env)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_trace_is_seen_whole(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = tmp_path / "shop.py"
    shop.write_text(SHOP)
    with collecting(protocol) as seen:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", seen.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        with LocalCluster(3) as cluster:
            nodes = ",".join(cluster.endpoints)
            env = environment() | {"RAFTSCHED_ENDPOINTS": nodes}

            def run(word: str) -> list[str]:
                return [sys.executable, str(shop), word]

            subprocess.run(run("declare"), env=env, check=True)
            with working(run("work"), env), gateway("--server", nodes) as served:
                subprocess.run(run("defer"), env=env, check=True)
                request = urllib.request.Request(
                    f"http://{served.address}/v1/jobs/ship:trigger", b"{}",
                    {"content-type": "application/json", "traceparent": PARENT},
                )  # fmt: skip
                with urllib.request.urlopen(request, timeout=30) as answer:
                    assert answer.status == 200
                # The two runs downstream, and that of the gateway.
                wait_until(lambda: len(seen.of("process ship")) == 3, SECONDS)
                wait_until(lambda: len(seen.of("commit")) == 3, SECONDS)
                wait_until(lambda: seen.lacks_nothing(SPAN_ID), SECONDS)
                wait_until(lambda: seen.of(OVER_HTTP) and seen.of("trigger ship"), SECONDS)
        sys.stderr.write(f"\n{protocol}\n{seen.tree()}\n")
    check_at_once(seen)
    check_delayed(seen)
    check_gateway(seen)
    everything = b"".join(seen.raw)
    assert CARD not in everything
    assert {one.service for one in seen.spans} == {
        "shop-web", "raftsched-worker", "raftsched-node", "raftsched-gateway",
    }  # fmt: skip


def link(span: Seen) -> tuple[str, str]:
    return span.trace, span.id


def check_at_once(seen: Collector) -> None:
    """The run that was due at once: below the web request, down to the leader's decision."""
    [web] = seen.of("POST /order")
    producers = seen.of("trigger pay", web.trace)
    assert [one.parent for one in producers] == [web.id, web.id]
    producer = producers[0]
    calls = [one for one in seen.of(TRIGGER, web.trace) if one.service == "raftsched-node"]
    assert producer.id in [one.parent for one in calls]
    steps = {name: seen.of(name, web.trace) for name in ("wait for a change", "decide", "commit")}
    for found in steps.values():
        assert {one.parent for one in found} <= {one.id for one in calls}
        assert len(found) == 2
    run = producer.attributes["messaging.message.id"]
    first, second = seen.of("process pay", run=run)
    assert (first.trace, first.parent, first.links) == (web.trace, producer.id, ())
    assert (first.failed, first.attributes["error.type"]) == (True, "Declined")
    assert second.links == (link(producer), link(first))
    assert (second.parent, second.failed) == ("", False)
    inner = {one.parent for one in seen.of("ask the bank")}
    assert {first.id, second.id} <= inner
    [wait] = [one for one in seen.of("wait for a worker") if one.parent == first.id]
    assert wait.end == first.start
    downstream = [one for one in seen.of("process ship") if link(first) in one.links]
    assert [one.links for one in downstream] == [(link(producer), link(first))]
    assert downstream[0].parent == ""


def check_delayed(seen: Collector) -> None:
    """The one that was to wait: a trace of its own, and its retry in the same."""
    producer = seen.of("trigger pay")[1]
    run = producer.attributes["messaging.message.id"]
    first, second = seen.of("process pay", run=run)
    assert (first.parent, first.links) == ("", (link(producer),))
    assert second.trace == first.trace != producer.trace
    assert second.links == (link(producer), link(first))


def check_gateway(seen: Collector) -> None:
    """Below the caller's span: the request, the call, the node, and the attempt."""
    [served] = seen.of(OVER_HTTP)
    assert (served.trace, served.parent, served.kind) == (TRACE_ID, SPAN_ID, "SERVER")
    [producer] = seen.of("trigger ship")
    assert (producer.parent, producer.service) == (served.id, "raftsched-gateway")
    [attempt] = seen.of("process ship", TRACE_ID)
    assert attempt.parent == producer.id
