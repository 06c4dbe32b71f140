"""Spans that stay in memory, for tests of what makes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

from raftsched.proto import tracing

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID, SPAN_ID = PARENT[3:35], PARENT[36:52]


@dataclass
class Recorded:
    """The spans that have ended, as they did."""

    exporter: InMemorySpanExporter
    # The program's own, beside ours.
    tracer: Tracer

    @property
    def all(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        """The only one of this name."""
        found = [one for one in self.all if one.name == name]
        assert len(found) == 1, [one.name for one in self.all]
        return found[0]

    def text(self) -> str:
        """All that would be exported."""
        return "\n".join(one.to_json() for one in self.all)

    def take(self) -> list[ReadableSpan]:
        """Those since the last time."""
        found = list(self.all)
        self.exporter.clear()
        return found


@contextmanager
def recording() -> Iterator[Recorded]:
    """Make spans, by a provider of the program's own, as long as this lasts."""
    provider, exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.start("test", provider)
    try:
        yield Recorded(exporter, provider.get_tracer("program"))
    finally:
        tracing.stop()


def ids(span: ReadableSpan) -> tuple[str, str]:
    """Of its trace and of itself."""
    assert span.context is not None
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


def parent_of(span: ReadableSpan) -> str:
    return "" if span.parent is None else f"{span.parent.span_id:016x}"


def links_of(span: ReadableSpan) -> list[tuple[str, str]]:
    return [(f"{to.context.trace_id:032x}", f"{to.context.span_id:016x}") for to in span.links]


def attributes_of(span: ReadableSpan) -> Mapping[str, object]:
    return dict(span.attributes or {})
