"""What `raftsched dev` prints: lines of the nodes, what fires, and what to type next."""

from __future__ import annotations

import json
import os
import shutil
import sys
import webbrowser
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ...proto.v1 import event_pb2
from .ports import Ports

CODES = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36}
COLORS = ("cyan", "yellow", "magenta", "green", "blue")
# Of a node's own line these stand elsewhere or say nothing new.
KNOWN = frozenset({"ts", "level", "node", "event", "logger", "term"})
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


class Screen:
    """Lines, one at a time. Colour on a terminal only, and not with NO_COLOR."""

    def __init__(self, names: list[str]) -> None:
        self.colors = dict(zip(names, COLORS, strict=False))
        self.color = sys.stdout.isatty() and "NO_COLOR" not in os.environ

    def line(self, text: str = "") -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def paint(self, text: str, color: str | None) -> str:
        code = CODES.get(color or "")
        return f"\x1b[{code}m{text}\x1b[0m" if code and self.color else text

    def of(self, name: str, text: str) -> None:
        """A line of a process: JSON of our own, or whatever it says."""
        prefix = self.paint(f"{name:>8} │", self.colors.get(name))
        try:
            said = json.loads(text)
        except ValueError:
            said = None
        text = printable(text)
        if isinstance(said, dict) and "event" in said:
            wrong = said.get("level") in ("error", "critical")
            text = self.paint(printable(_told(said)), "red" if wrong else None)
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


def _told(said: Mapping[str, Any]) -> str:
    if said["event"] == "serves":
        return f"serves clients at {said.get('clients')}, machines at http://{said.get('http')}"
    others = "".join(f" {key}={value}" for key, value in said.items() if key not in KNOWN)
    return f"{said['event']}{others}"


def _details(event: event_pb2.Event) -> Iterator[str]:
    run = event.run
    if event.kind == event_pb2.EVENT_KIND_RUN_LEASED:
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
    yield ""
    yield "In another terminal:"
    yield f"  export RAFTSCHED_ENDPOINTS={ports.endpoints}"
    yield f"  {me} job create mine --cron '*/10 * * * * *' --handler hello"
    yield f"  {me} job list"
    yield f"  {me} cluster status"
    yield ""
    if keys:
        numbers = " ".join(name[1:] for name in ports.names)
        yield (
            f"Keys: {numbers} kill -9 a node or revive it, k kill the leader, l move it, "
            "o open the page, q stop"
        )
        yield ""


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
