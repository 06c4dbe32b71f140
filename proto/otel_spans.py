"""Spans by OpenTelemetry: who makes them, where they go, and the W3C context on the wire.

Imported by `tracing.start` alone; see there.
"""

from __future__ import annotations

import atexit
import importlib.metadata
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Link, SpanKind, TraceFlags
from opentelemetry.trace import Span as Span
from opentelemetry.trace import SpanContext as SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from . import tracing
from .span_queue import STOP_S, WARN_EVERY_S, SpanQueue

logger = logging.getLogger("raftsched.traces")

# Longer texts are cut: no attribute of ours can grow with what a caller sends.
TEXT_MAX = 256
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
W3C: Final = TraceContextTextMapPropagator()
NOWHERE: Final = otel_context.Context()

# What a program may have; that of the SDK is one.
ApiProvider = trace.TracerProvider
Attributes = Mapping[str, str | int | float | bool]
KINDS: Final = {
    "server": SpanKind.SERVER, "client": SpanKind.CLIENT, "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER, "internal": SpanKind.INTERNAL,
}  # fmt: skip


class ChosenIds(IdGenerator):
    """Ids of spans that others must be able to name who have not seen them; else the usual ones."""

    def __init__(self, usual: IdGenerator) -> None:
        self._usual = usual
        self._chosen = threading.local()

    @contextmanager
    def of(self, trace_id: int, span_id: int) -> Iterator[None]:
        """The next span that begins on this thread gets these."""
        self._chosen.ids = trace_id, span_id
        try:
            yield
        finally:
            self._chosen.ids = None

    def generate_trace_id(self) -> int:
        ids = getattr(self._chosen, "ids", None)
        return self._usual.generate_trace_id() if ids is None else ids[0]

    def generate_span_id(self) -> int:
        ids = getattr(self._chosen, "ids", None)
        return self._usual.generate_span_id() if ids is None else ids[1]

    def is_trace_id_random(self) -> bool:
        """What is chosen is a hash: as good as random for samplers, and not sent as such."""
        usual = getattr(self._usual, "is_trace_id_random", None)
        return getattr(self._chosen, "ids", None) is None and usual is not None and bool(usual())


class Spans:
    """Makes the spans of this process; see `tracing.active`."""

    def __init__(self, provider: trace.TracerProvider, queue: SpanQueue | None = None) -> None:
        version = importlib.metadata.version("raftsched")
        self._provider, self.queue = provider, queue
        self._tracer = provider.get_tracer("raftsched", version)
        # Of its own, since its ids are not those of the others.
        self._chooser = provider.get_tracer("raftsched.worker", version)
        self._ids: ChosenIds | None = None
        usual = getattr(self._chooser, "id_generator", None)
        if isinstance(usual, ChosenIds):
            self._ids = usual
        elif usual is not None:
            self._ids = ChosenIds(usual)
            self._chooser.id_generator = self._ids  # type: ignore[attr-defined]
        # What went wrong in a processor of the program's own.
        self.failures = 0
        self._warned_at = float("-inf")

    def begin(
        self, name: str, kind: str, attributes: Attributes, *, parent: otel_context.Context | None,
        links: Sequence[SpanContext] = (), start_ns: int | None = None,
        ids: tuple[int, int] | None = None,
    ) -> Span:  # fmt: skip
        """A span that has begun and is nobody's current one. `parent`: None, what is current;
        NOWHERE, none. With `ids` (trace, span) it gets these, the first only without a parent."""
        found: dict[str, Any] = {
            "context": parent, "kind": KINDS[kind], "attributes": clipped(attributes),
            "links": [Link(one) for one in links], "start_time": start_ns,
        }  # fmt: skip
        if ids is None or self._ids is None:
            tracer = self._tracer if ids is None else self._chooser
            return tracer.start_span(name, **found)
        with self._ids.of(*ids):
            return self._chooser.start_span(name, **found)

    def note(
        self, name: str, attributes: Attributes, start_ns: int, end_ns: int, *,
        parent: otel_context.Context | None = None, kind: str = "internal",
    ) -> None:  # fmt: skip
        """A span that is over already."""
        begun = self.begin(name, kind, attributes, parent=parent, start_ns=start_ns)
        begun.end(end_ns)

    @property
    def is_recording(self) -> bool:
        """Whether there is a current span of which more is wanted than its ids."""
        return trace.get_current_span().is_recording()

    def step(self, name: str, start_ns: int, end_ns: int) -> None:
        """A piece of what the current span is about."""
        self.note(name, {}, start_ns, end_ns)

    @contextmanager
    def around(self, name: str, kind: str, attributes: Attributes) -> Iterator[Span]:
        """A span below what is current, and current itself meanwhile. Who it is about says itself
        how it went: what an error holds may be a payload."""
        span = self.begin(name, kind, attributes, parent=None)
        token = otel_context.attach(trace.set_span_in_context(span))
        try:
            yield span
        finally:
            otel_context.detach(token)
            span.end()

    def failed(self, error: Exception) -> None:
        """Making a span went wrong, which is no reason for what it is about to go wrong."""
        self.failures += 1
        now = time.monotonic()
        if now - self._warned_at >= WARN_EVERY_S:
            self._warned_at = now
            logger.warning("a span was lost, %d so far", self.failures, exc_info=error)

    def current(self) -> dict[str, str]:
        """What belongs to the current span, as W3C headers; empty without one."""
        carrier: dict[str, str] = {}
        W3C.inject(carrier)
        return carrier

    def log_fields(self) -> dict[str, str]:
        """For a line of a log: in which span it was written."""
        found = trace.get_current_span().get_span_context()
        if not found.is_valid:
            return {}
        return {"trace_id": f"{found.trace_id:032x}", "span_id": f"{found.span_id:016x}"}

    def flush(self) -> None:
        """Send what waits, within a second."""
        if self.queue is not None:
            self.queue.flush(STOP_S)

    def close(self) -> None:
        """Send what waits; a provider of the program's own is the program's to close."""
        if self.queue is not None:
            self.queue.shutdown()


# A program has one for as long as it lives; this one, if it was made here.
_own: TracerProvider | None = None


def made_by(provider: object, service: str, instance: str) -> Spans:
    """By this provider, else by the program's, else by one that is made by the environment and is
    the program's from then on."""
    global _own
    if provider is None:
        # Without one the program has a stand-in, which has no processors.
        found = trace.get_tracer_provider()
        provider = found if hasattr(found, "add_span_processor") else None
    if provider is not None and provider is not _own:
        if not isinstance(provider, trace.TracerProvider):
            raise TypeError(f"provider is {provider!r}; give a TracerProvider of OpenTelemetry")
        return Spans(provider)
    queue = SpanQueue(exporter_of(os.environ))
    if _own is None:
        # Who ends the process closes the queue itself, in time.
        _own = TracerProvider(resource=resource_of(service, instance), shutdown_on_exit=False)
        trace.set_tracer_provider(_own)
    # Of a program that says nothing at its end.
    atexit.register(queue.shutdown)
    # The queue of the time before, if there was one, is closed.
    _own.add_span_processor(queue)
    return Spans(_own, queue)


def resource_of(service: str, instance: str) -> Resource:
    """Who makes the spans: as the environment has it, else by these names."""
    found: dict[str, str] = {}
    named = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not os.environ.get("OTEL_SERVICE_NAME") and "service.name=" not in named:
        found["service.name"] = service
    if instance and "service.instance.id=" not in named:
        found["service.instance.id"] = instance
    if "service.version=" not in named:
        found["service.version"] = importlib.metadata.version("raftsched")
    return Resource.create(found)


def exporter_of(environ: Mapping[str, str]) -> SpanExporter:
    """To whom spans are sent, over which form of OTLP."""
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    if exporter != "otlp":
        raise ValueError(f"OTEL_TRACES_EXPORTER is {exporter[:40]!r}; write otlp or none")
    given = (environ.get(name, "").strip() for name in PROTOCOLS)
    protocol = next(filter(None, given), "http/protobuf")
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter()
    if protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
            OTLPSpanExporter as OverHttp,
        )

        return OverHttp()
    raise ValueError(f"{PROTOCOLS[1]} is {protocol[:40]!r}; write grpc or http/protobuf")


def context_of(carrier: Mapping[str, str]) -> SpanContext | None:
    """The span that W3C headers name; None for none. What is about one run is left out."""
    found = trace.get_current_span(W3C.extract(_plain(carrier), NOWHERE)).get_span_context()
    return found if found.is_valid else None


def below(span: SpanContext) -> otel_context.Context:
    """The context of whoever goes on below a span of somebody else."""
    return trace.set_span_in_context(trace.NonRecordingSpan(span), NOWHERE)


def inside(span: Span) -> otel_context.Context:
    """The context of what is done within a span."""
    return trace.set_span_in_context(span)


def carrier_of(span: Span) -> dict[str, str]:
    """A span as W3C headers."""
    carrier: dict[str, str] = {}
    W3C.inject(carrier, inside(span))
    return carrier


def remote(trace_id: int, span_id: int) -> SpanContext:
    """A span that somebody else has made, or will make."""
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(1))


def fail(span: Span, kind: str) -> None:
    """It did not go well; the words that came with it may repeat a payload, and stay away."""
    span.set_attribute("error.type", kind[:TEXT_MAX])
    span.set_status(trace.StatusCode.ERROR)


def clipped(attributes: Attributes) -> dict[str, str | int | float | bool]:
    """Without those that are empty, and none too long."""
    return {
        name: value[:TEXT_MAX] if isinstance(value, str) else value
        for name, value in attributes.items()
        if value != ""
    }


def _plain(carrier: Mapping[str, str]) -> dict[str, str]:
    found = {"traceparent": carrier.get("traceparent", "")}
    if state := tracing.plain_state(carrier.get("tracestate", "")):
        found["tracestate"] = state
    return found


attach, detach = otel_context.attach, otel_context.detach
