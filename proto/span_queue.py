"""Spans on their way to the collector: a queue with a limit, and one thread that empties it.

Who ends a span pays for one append. With a collector that does not answer, the queue is full after
a while, and what finds no room is counted; one line a minute says so.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Final

from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

logger = logging.getLogger("raftsched.traces")

# By the variables of OpenTelemetry, with its defaults; and the most that is taken from them.
QUEUE: Final = "OTEL_BSP_MAX_QUEUE_SIZE", 2_048, 1_000_000
BATCH: Final = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512, 10_000
DELAY_MS: Final = "OTEL_BSP_SCHEDULE_DELAY", 5_000, 3_600_000
# What a process that ends waits for the last spans.
STOP_S = 1.0
WARN_EVERY_S = 60.0
# What the exporter logs of itself.
EXPORTERS: Final = "opentelemetry.exporter"
WHY_MAX = 300


def number(environ: Mapping[str, str], name: str, usual: int, most: int) -> int:
    """A variable as a number; what is none is reported, and the default counts."""
    text = environ.get(name, "").strip()
    if not text:
        return usual
    if not text.isdecimal() or not 1 <= int(text) <= most:
        logger.warning(
            "%s is %r; it must be a number from 1 to %d, so it is %d", name, text[:40], most, usual
        )
        return usual
    return int(text)


class LastWord(logging.Handler):
    """Takes what the exporter logs at each try, for the one line a minute."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()[:WHY_MAX]


class SpanQueue(SpanProcessor):
    """See the head of this file."""

    def __init__(self, exporter: SpanExporter, environ: Mapping[str, str] = os.environ) -> None:
        self._exporter = exporter
        self._most = number(environ, *QUEUE)
        self._batch = min(number(environ, *BATCH), self._most)
        self._delay_s = number(environ, *DELAY_MS) / 1_000
        self._waiting: deque[ReadableSpan] = deque()
        self._wake = threading.Event()
        self._beginning = threading.Lock()
        # Whoever wants to know when all that waited was tried.
        self._asked: deque[threading.Event] = deque()
        self._stopping = False
        # The last batch was not taken: then a process that ends waits for no other.
        self._failing = False
        # Whose thread there is.
        self._process = 0
        # Given to the collector; lost since it took none, or since there was no room.
        self.exported = self.lost = 0
        self._lost_warned = 0
        self._warned_at = float("-inf")
        self._why = LastWord()
        log = logging.getLogger(EXPORTERS)
        log.addHandler(self._why)
        log.propagate = False

    @property
    def waiting(self) -> int:
        """Spans that were not given to the collector yet."""
        return len(self._waiting)

    def on_start(self, span: Span, parent_context: otel_context.Context | None = None) -> None:
        """Nothing is done before it ends."""

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if self._stopping or len(self._waiting) >= self._most:
            self.lost += 1
            return
        self._waiting.append(span)
        if self._process != os.getpid():
            self._begin()
        elif len(self._waiting) >= self._batch and not self._wake.is_set():
            self._wake.set()

    def _begin(self) -> None:
        """A thread for this process: the first one, or, after a fork, one of its own."""
        with self._beginning:
            if self._process == os.getpid():
                return
            self._wake, self._process = threading.Event(), os.getpid()
            thread = threading.Thread(target=self._run, name="raftsched-spans", daemon=True)
            thread.start()

    def _run(self) -> None:
        """Of the thread. What the exporter does must make no spans in turn."""
        otel_context.attach(
            otel_context.set_value(otel_context._SUPPRESS_INSTRUMENTATION_KEY, True)
        )
        last = False
        while not last:
            self._wake.wait(self._delay_s)
            self._wake.clear()
            last = self._stopping
            asked = [self._asked.popleft() for _ in range(len(self._asked))]
            # What comes meanwhile is for the next time.
            for _ in range(-(-len(self._waiting) // self._batch)):
                self._export()
            self._warn()
            for one in asked:
                one.set()

    def _export(self) -> None:
        count = min(self._batch, len(self._waiting))
        spans = [self._waiting.popleft() for _ in range(count)]
        try:
            taken = self._exporter.export(spans) is SpanExportResult.SUCCESS
        except Exception as error:
            # The thread must live: the next batch may go well.
            taken, self._why.text = False, f"{type(error).__name__}: {error}"[:WHY_MAX]
        self._failing = not taken
        if taken:
            self.exported += count
        else:
            self.lost += count

    def _warn(self) -> None:
        now, lost = time.monotonic(), self.lost - self._lost_warned
        if lost and now - self._warned_at >= WARN_EVERY_S:
            self._warned_at, self._lost_warned = now, self.lost
            logger.warning(
                "%d spans were lost, %d so far: %s", lost, self.lost,
                self._why.text or "there was no room for them (OTEL_BSP_MAX_QUEUE_SIZE)",
            )  # fmt: skip

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send what waits, for so long at most."""
        return self.flush(timeout_millis / 1_000)

    def flush(self, seconds: float) -> bool:
        """The same; whether all that waited has been tried. The thread does it: a process that ends
        may begin none."""
        if self._stopping or self._process != os.getpid():
            return not self._waiting
        return self._ask().wait(seconds)

    def _ask(self) -> threading.Event:
        done = threading.Event()
        self._asked.append(done)
        self._wake.set()
        return done

    def shutdown(self) -> None:
        """Send what waits, for STOP_S at most; not to a collector that took nothing last time."""
        if self._stopping:
            return
        if self._process == os.getpid():
            done = self._ask()
            self._stopping = True
            self._wake.set()
            done.wait(0 if self._failing else STOP_S)
        self._stopping = True
        self.lost += len(self._waiting)
        self._exporter.shutdown()
        log = logging.getLogger(EXPORTERS)
        log.removeHandler(self._why)
        log.propagate = True
