"""Spans by OpenTelemetry for a program that uses this package: one line switches them on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...proto import tracing

if TYPE_CHECKING:
    from ...proto.otel_spans import ApiProvider


def start_tracing(provider: ApiProvider | None = None, *, service: str = "raftsched") -> bool:
    """Make spans of calls, and, in a worker, of attempts, from now on; before clients and workers
    are made. `provider` makes them, else that of the program, else one that goes by the variables
    of OpenTelemetry (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER), and is
    the program's from then on. False where OTEL_SDK_DISABLED forbids it. ImportError without
    raftsched[otel].

    start_tracing()
    """
    return tracing.start(service, provider) is not None


def stop_tracing() -> None:
    """Send the spans that wait, within a second, and make no more. A program that ends without it
    sends them as well.

    stop_tracing()
    """
    tracing.stop()


class TraceFields(logging.Filter):
    """Writes on each record of a log in which span it was made: trace_id and span_id."""

    def filter(self, record: logging.LogRecord) -> bool:
        spans = tracing.active()
        if spans is not None:
            vars(record).update(spans.log_fields())
        return True


class InSpan(logging.Formatter):
    """Lines of text, with their trace_id and span_id where they have any."""

    def format(self, record: logging.LogRecord) -> str:
        line, spans = super().format(record), tracing.active()
        fields = {} if spans is None else spans.log_fields()
        return " ".join([line, *(f"{name}={text}" for name, text in fields.items())])
