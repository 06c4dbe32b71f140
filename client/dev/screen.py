"""What `raftsched dev` prints: lines of the nodes, what fires, and what to type next."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import webbrowser
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ...proto.v1 import event_pb2, run_pb2
from .ports import Ports

CODES = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36}
COLORS = ("cyan", "yellow", "magenta", "green", "blue")
# Of a node's own line these stand elsewhere or say nothing new.
KNOWN = frozenset({"ts", "level", "node", "event", "logger", "term", "left_out"})
KEPT_LINES = 200
CLEAR = "\r\x1b[K"  # To the beginning of the line, which is wiped.
# One of these is set where windows can be opened.
WINDOWS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
KINDS = {
    event_pb2.EVENT_KIND_RUN_LEASED: ("started", None),
    event_pb2.EVENT_KIND_RUN_SUCCEEDED: ("succeeded", "green"),
    event_pb2.EVENT_KIND_RUN_RETRYING: ("failed, will be tried again", "yellow"),
    event_pb2.EVENT_KIND_RUN_RELEASED: ("was given back", "yellow"),
    event_pb2.EVENT_KIND_RUN_FAILED: ("failed", "red"),
    event_pb2.EVENT_KIND_RUN_CANCELLED: ("was cancelled", "yellow"),
    event_pb2.EVENT_KIND_RUN_SKIPPED: ("was skipped", "yellow"),
    event_pb2.EVENT_KIND_FIRED_NOT: ("did not fire", "red"),
    event_pb2.EVENT_KIND_JOB_CREATED: ("was created", "cyan"),
    event_pb2.EVENT_KIND_JOB_UPDATED: ("was changed", "cyan"),
    event_pb2.EVENT_KIND_JOB_PAUSED: ("was paused", "cyan"),
    event_pb2.EVENT_KIND_JOB_RESUMED: ("was resumed", "cyan"),
    event_pb2.EVENT_KIND_JOB_DELETED: ("was deleted", "cyan"),
}


# Why a scheduled time has no run.
NOT_FIRED = {
    run_pb2.OUTCOME_SKIPPED_OVERLAP: "the previous run is still going",
    run_pb2.OUTCOME_SKIPPED_CALENDAR: "a calendar leaves it out",
    run_pb2.OUTCOME_SKIPPED_MANUALLY: "it was left out manually",
    run_pb2.OUTCOME_COALESCED: "merged with a later one",
    run_pb2.OUTCOME_MISSED: "it was missed",
    run_pb2.OUTCOME_SKIPPED_DEADLINE: "it was later than its start deadline",
    run_pb2.OUTCOME_REPLACED: "a newer one took its place",
    run_pb2.OUTCOME_SKIPPED_QUOTA: "its namespace has its maximum of runs",
}


class Screen:
    """Lines, one at a time, and below them one that stays, on a terminal. Colour there only, and
    not with NO_COLOR."""

    def __init__(self, names: list[str]) -> None:
        self.colors = dict(zip(names, COLORS, strict=False))
        self.is_terminal = sys.stdout.isatty()
        self.color = self.is_terminal and "NO_COLOR" not in os.environ
        # While it starts or stops, what processes have to say is kept: nobody wants to read how
        # nodes find each other, unless they do not.
        self.is_quiet = True
        self.kept: deque[tuple[str, str]] = deque(maxlen=KEPT_LINES)
        self._status = ""

    def line(self, text: str = "") -> None:
        sys.stdout.write(f"{CLEAR if self._status else ''}{text}\n{self._status}")
        sys.stdout.flush()

    def status(self, text: str) -> None:
        """Set the line that stays; nothing takes it away."""
        if self.is_terminal:
            width = shutil.get_terminal_size().columns - 1
            shown = self.paint(text[:width], "cyan") if text else ""
            if shown != self._status:
                sys.stdout.write(f"{CLEAR if self._status else ''}{shown}")
                sys.stdout.flush()
                self._status = shown

    def speak(self) -> None:
        """From now on processes are heard."""
        self.is_quiet = False
        self.kept.clear()

    def confess(self) -> None:
        """Print what was kept: it did not start."""
        self.is_quiet = False
        for name, text in self.kept:
            self.of(name, text)
        self.kept.clear()

    def paint(self, text: str, color: str | None) -> str:
        code = CODES.get(color or "")
        return f"\x1b[{code}m{text}\x1b[0m" if code and self.color else text

    def of(self, name: str, text: str) -> None:
        """A line of a process: JSON of our own, or whatever it says."""
        if self.is_quiet:
            self.kept.append((name, text))
            return
        prefix = self.paint(f"{name:>8} │", self.colors.get(name))
        try:
            record = json.loads(text)
        except ValueError:
            record = None
        text = printable(text)
        if isinstance(record, dict) and "event" in record:
            wrong = record.get("level") in ("error", "critical")
            text = self.paint(printable(_sentence(record)), "red" if wrong else None)
        self.line(f"{prefix} {text}")

    def event(self, event: event_pb2.Event) -> None:
        words, color = KINDS.get(event.kind, ("", None))
        if words:
            at = event.time.ToDatetime(UTC).astimezone()
            text = printable(f"{event.job} {words}{''.join(_details(event))}")
            self.line(f"{at:%H:%M:%S} │ {self.paint(text, color)}")


def printable(text: str) -> str:
    """What a handler or a client said must not move the cursor."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def _sentence(record: Mapping[str, Any]) -> str:
    if record["event"] == "serves":
        return f"serves clients at {record.get('clients')}, machines at http://{record.get('http')}"
    others = "".join(f" {key}={value}" for key, value in record.items() if key not in KNOWN)
    like_it = f" ({record['left_out']:,} more like it)" if record.get("left_out") else ""
    return f"{record['event']}{others}{like_it}"


def _details(event: event_pb2.Event) -> Iterator[str]:
    run = event.run
    if event.kind == event_pb2.EVENT_KIND_FIRED_NOT:
        why = NOT_FIRED.get(event.ledger.outcome, event.message)
        yield f": {why}" if why else ""
    elif event.kind == event_pb2.EVENT_KIND_RUN_LEASED:
        if run.attempt > 1:
            yield f", attempt {run.attempt}"
        else:
            late_ms = _ms(event.time.ToDatetime(UTC)) - _ms(run.due_time.ToDatetime(UTC))
            yield f" {late_ms} ms after its time"
    elif event.kind == event_pb2.EVENT_KIND_RUN_SUCCEEDED and run.result.data:
        yield f": {run.result.data[:100].decode(errors='replace')}"
    elif run.error.message:
        yield f": {run.error.message[:100]}"


def _ms(instant: datetime) -> int:
    return round(instant.timestamp() * 1000)


def welcome(ports: Ports, where: str, seconds: float, leader: str, keys: bool) -> Iterator[str]:
    """What to know and what to type next."""
    me = command()
    nodes = "1 node" if ports.count == 1 else f"{ports.count} nodes"
    yield ""
    yield f"Ready in {seconds:.1f} s: {nodes}, a worker, four example jobs."
    for name in ports.names:
        leads = "   leads" if name == leader else ""
        yield f"  {name}  {ports.client(name)}   http://{ports.http(name)}/metrics{leads}"
    yield f"  Web page: http://{ports.gateway}/   HTTP and JSON: http://{ports.gateway}/v1/jobs"
    yield f"Data: {where}"
    if importlib.util.find_spec("aiohttp") is None:
        yield "The worker takes no HTTP jobs without aiohttp: pip install 'raftsched[http]'"
    yield ""
    yield "In another terminal:"
    yield f"  export RAFTSCHED_ENDPOINTS={ports.endpoints}"
    yield f"  {me} job create mine --cron '*/10 * * * * *' --handler hello"
    yield f"  {me} job list"
    yield f"  {me} cluster status"
    yield ""
    if keys:
        yield keys_of(ports)
        yield ""


def keys_of(ports: Ports) -> str:
    """What each key does."""
    numbers = " ".join(name[1:] for name in ports.names)
    return f"Keys: {numbers} kill -9 or revive, k kill leader, l move it, o page, ? this, q stop"


def status_line(alive: Mapping[str, bool], leader: str) -> str:
    """What stays in sight: who lives, who leads, and where the keys are explained."""
    nodes = "  ".join(f"{name} {'up' if is_up else 'DOWN'}" for name, is_up in alive.items())
    return f" {nodes}   leader: {leader or 'none'}   ? keys   q stop"


def opened(url: str) -> bool:
    """Whether a browser with windows of its own has it; one for terminals would take this one."""
    has_windows = sys.platform == "darwin" or any(name in os.environ for name in WINDOWS)
    return has_windows and webbrowser.open(url)


def command() -> str:
    """How to call us from another terminal in this folder."""
    if shutil.which("raftsched"):
        return "raftsched"
    path = os.path.relpath(sys.argv[0])
    return path if len(path) < len(sys.argv[0]) else sys.argv[0]
