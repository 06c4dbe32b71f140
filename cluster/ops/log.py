"""What a node says of itself: one line for each change of its state, none for a heartbeat.

structlog for our own lines; the standard library's logging, which consensus, gRPC and uvicorn
speak, goes the same way. A line is made on the loop and written by a thread of its own, since a
terminal or a pipe that nobody reads must not stop a leader: lines that find no room are counted.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TextIO

import msgspec
import structlog
from structlog.stdlib import ProcessorFormatter

from ...proto import tracing
from .config import LogSection

Event = MutableMapping[str, Any]

LINES_MAX = 10_000  # Lines that wait to be written.
# Of one message in one period; a peer that is refused ten times a second would fill the disk.
BURST = 20
PERIOD = 10.0
KINDS_MAX = 1_000  # Messages that are kept apart for that.
FIRST = ("ts", "level", "node", "term", "event")


@dataclass(slots=True)
class LogContext:
    """What each line says beside its own words."""

    node: str = ""
    _term: Callable[[], int] = field(default=lambda: 0)

    def follow(self, term: Callable[[], int]) -> None:
        """Add the term from now on, if it is not 0."""
        self._term = term

    def __call__(self, logger: object, method: str, event: Event) -> Event:
        event["node"] = self.node
        if term := self._term():
            event["term"] = term
        if (spans := tracing.active()) is not None:
            event.update(spans.log_fields())
        return event


class Writer(logging.Handler):
    """Hands finished lines to a thread. The loop never waits for it."""

    def __init__(self, stream: TextIO, lines_max: int = LINES_MAX) -> None:
        super().__init__()
        self.stream = stream
        self.lost = 0
        self._lines: queue.Queue[str | None] = queue.Queue(lines_max)
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self.lost += 1

    def stop(self, seconds: float = 1.0) -> None:
        """Write what waits, for so long at most."""
        try:
            self._lines.put(None, timeout=seconds)
        except queue.Full:
            return
        self._thread.join(seconds)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self.stream.write(line + "\n")
                if self._lines.empty():
                    self.stream.flush()
            except (OSError, ValueError):
                # Whoever read it is gone; the node is not a lesser one for that.
                self.lost += 1


class Restraint(logging.Filter):
    """Lets one message through so many times in a period, then says how many were left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.clock = clock
        self._seen: dict[tuple[str, object], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        words = record.msg
        kind = (record.name, words.get("event") if isinstance(words, dict) else words)
        began, count = self._seen.get(kind, (self.clock(), 0))
        if self.clock() - began > PERIOD:
            if count > BURST:
                fields = words if isinstance(words, dict) else record.__dict__
                fields["left_out"] = count - BURST
            began, count = self.clock(), 0
        if len(self._seen) >= KINDS_MAX and kind not in self._seen:
            self._seen.clear()
        self._seen[kind] = (began, count + 1)
        return count < BURST


def start(
    settings: LogSection, node: str, stream: TextIO = sys.stderr
) -> tuple[Writer, LogContext]:
    """Send everything that is logged to `stream`; returns what to stop at the end."""
    context = LogContext(node)
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts")
    shared: list[structlog.types.Processor] = [
        structlog.stdlib.add_log_level,
        stamp,
        context,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    writer = Writer(stream)
    writer.addFilter(Restraint())
    writer.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(), _foreign],
            processors=[ProcessorFormatter.remove_processors_meta, *_rendering(settings, stream)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [writer]
    root.setLevel(settings.level.upper())
    # Their debug lines speak of their own insides.
    for name in ("asyncio", "grpc", "uvicorn", "pysyncobj"):
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))
    return writer, context


def _rendering(settings: LogSection, stream: TextIO) -> list[structlog.types.Processor]:
    console = settings.format == "console" or (settings.format == "auto" and stream.isatty())
    if console:
        renderer = structlog.dev.ConsoleRenderer(
            colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback,
            timestamp_key="ts", pad_event_to=0, sort_keys=False,
        )  # fmt: skip
        return [_printable, _ordered, renderer]
    return [structlog.processors.format_exc_info, _ordered, _json]


def _foreign(logger: object, method: str, event: Event) -> Event:
    """Say which library speaks, if it is not ours."""
    record = event.get("_record")
    if record is not None and not record.name.startswith("raftsched."):
        event["logger"] = record.name
    return event


def _printable(logger: object, method: str, event: Event) -> Event:
    """What a client or a handler sent must not move the cursor; JSON escapes it anyway."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[name] = value.encode("unicode_escape").decode("ascii")
    return event


def _ordered(logger: object, method: str, event: Event) -> Event:
    fields = {name: event.pop(name) for name in FIRST if name in event}
    return fields | dict(event)


def _json(logger: object, method: str, event: Event) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()
