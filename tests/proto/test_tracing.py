"""Whether spans are made, what a run's context says, and how spans leave a process."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from raftsched.proto import otel_spans, span_queue, tracing
from raftsched.proto.span_queue import SpanQueue

from ..traced import PARENT

OTLP = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        ({OTLP: "http://127.0.0.1:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", OTLP: "http://127.0.0.1:4318"}, False),
        ({"OTEL_SDK_DISABLED": "TRUE", OTLP: "http://127.0.0.1:4318"}, False),
        ({"OTEL_SERVICE_NAME": "shop"}, False),
    ],
)
def test_the_environment_asks_for_spans(environ: dict[str, str], wanted: bool) -> None:
    assert tracing.wanted(environ) is wanted


FULL = ",".join(f"k{number}=v" for number in range(32))
LONG = "a=" + "b" * 450


@pytest.mark.parametrize(
    ("state", "at_once", "given"),
    [
        ("", True, "raftsched=now"),
        ("", False, ""),
        ("a=b", True, "raftsched=now,a=b"),
        # A handler that defers has that of its own run.
        ("raftsched=now,a=b", False, "a=b"),
        ("a=b, raftsched=now", True, "raftsched=now,a=b"),
        (FULL, True, "raftsched=now," + FULL.removesuffix(",k31=v")),
        (LONG, False, LONG),
        (LONG, True, "raftsched=now"),
    ],
)
def test_a_run_is_given_a_context_that_says_whether_it_is_due(
    state: str, at_once: bool, given: str
) -> None:
    carrier = tracing.marked({"traceparent": PARENT, "tracestate": state}, at_once=at_once)
    assert carrier == {"traceparent": PARENT} | ({"tracestate": given} if given else {})
    assert tracing.is_at_once(given) is at_once
    assert tracing.marked({}, at_once=at_once) == {}


LOADS = """
import sys
import raftsched.client.worker.worker, raftsched.client.app.app, raftsched.client.gateway.app
import raftsched.cluster.ops.lifecycle, raftsched.client.sdk.tracing
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def test_nothing_of_opentelemetry_is_loaded_before_it_is_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_is_missing_or_wrong_is_reported_and_keeps_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(OTLP, "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
    assert tracing.start_if_wanted("test") is None
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    assert tracing.start_if_wanted("test") is None
    monkeypatch.delitem(sys.modules, "raftsched.proto.otel_spans")
    monkeypatch.delattr("raftsched.proto.otel_spans")
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    assert tracing.start_if_wanted("test") is None
    lines = [one.getMessage() for one in caplog.records]
    assert lines[0].endswith("OTEL_EXPORTER_OTLP_PROTOCOL is 'http/json'; write grpc or "
                             "http/protobuf")  # fmt: skip
    assert lines[1].endswith("OTEL_TRACES_EXPORTER is 'console'; write otlp or none")
    assert "pip install 'raftsched[otel]'" in lines[2]
    assert len(lines) == 3


def test_the_environment_names_the_service_else_we_do(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = otel_spans.resource_of("raftsched-node", "n1").attributes
    assert (mine["service.name"], mine["service.instance.id"]) == ("raftsched-node", "n1")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=a,team=x")
    other = otel_spans.resource_of("raftsched-node", "n1").attributes
    found = other["service.name"], other["service.instance.id"], other["team"]
    assert found == ("shop", "a", "x")


def test_a_program_of_ours_makes_spans_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OTLP, "http://127.0.0.1:9")
    queues = []
    for _ in range(2):
        with tracing.running("raftsched-test"):
            spans = tracing.active()
            assert spans is not None
            queues.append(spans.queue)
            # One that goes on beside what runs within it is left as it is.
            with tracing.running("other"):
                assert tracing.active() is spans
            assert tracing.active() is spans
        assert tracing.active() is None
    assert None not in queues
    assert queues[0] is not queues[1]
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with tracing.running("raftsched-test"):
        assert tracing.active() is None
        assert tracing.start("test") is None


class Collector(SpanExporter):
    """Takes spans, or not, when the test lets it."""

    def __init__(self, answers: Callable[[], SpanExportResult]) -> None:
        self.answers, self.batches, self.closed = answers, list[int](), False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.batches.append(len(spans))
        return self.answers()

    def shutdown(self) -> None:
        self.closed = True


def made(queue: SpanQueue, count: int) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(queue)
    for _ in range(count):
        provider.get_tracer("t").start_span("s").end()


def test_spans_leave_in_batches_and_the_last_ones_at_the_end() -> None:
    collector = Collector(lambda: SpanExportResult.SUCCESS)
    queue = SpanQueue(collector, {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4"})
    made(queue, 10)
    assert queue.force_flush(60_000)
    assert (queue.exported, queue.lost, queue.waiting) == (10, 0, 0)
    assert max(collector.batches) == 4
    made(queue, 1)
    queue.shutdown()
    queue.shutdown()
    made(queue, 1)
    assert (queue.exported, queue.lost, collector.closed) == (11, 1, True)


def test_a_collector_that_does_not_answer_costs_a_counter_and_a_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(span_queue, "STOP_S", 0.01)
    hangs = threading.Event()

    def hang() -> SpanExportResult:
        logging.getLogger("opentelemetry.exporter.otlp").warning("Transient error: no route")
        hangs.wait(60)
        return SpanExportResult.FAILURE

    collector = Collector(hang)
    few = {"OTEL_BSP_MAX_QUEUE_SIZE": "8", "OTEL_BSP_SCHEDULE_DELAY": "1"}
    queue = SpanQueue(collector, few)
    made(queue, 1_000)
    # One batch is under way, and no more than the queue holds waits.
    assert (queue.waiting <= 8, queue.lost >= 1_000 - 16, queue.exported) == (True, True, 0)
    assert queue.flush(0.01) is False
    hangs.set()
    assert queue.flush(60)
    made(queue, 1)
    assert queue.flush(60)
    queue.shutdown()
    assert queue.lost == 1_001
    lines = [one.getMessage() for one in caplog.records]
    assert len(lines) == 1
    assert lines[0].endswith("so far: Transient error: no route")


def test_an_exporter_that_breaks_and_a_wrong_number_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken() -> SpanExportResult:
        raise OSError("no such host")

    queue = SpanQueue(Collector(broken), {"OTEL_BSP_MAX_QUEUE_SIZE": "many"})
    made(queue, 3)
    assert queue.flush(60)
    queue.shutdown()
    lines = [one.getMessage() for one in caplog.records]
    assert lines[0].startswith("OTEL_BSP_MAX_QUEUE_SIZE is 'many'; it must be a number from 1 to")
    assert lines[1].endswith("so far: OSError: no such host")
