"""`raftsched top`: the cluster as it is now, drawn again each second."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

import click

from ..exits import wrong_use
from ..options import command
from ..session import Invocation
from ..times import Length

if TYPE_CHECKING:
    from .top_snapshot import ClusterSnapshot, SnapshotReader

FRAME_WIDTH, FRAME_HEIGHT = 120, 60  # Of one look, which scrolls by.


@command(
    None, "top",
    "raftsched top",
    "raftsched top --every 5s -n shop",
    "raftsched top --once -o json",
)  # fmt: skip
@click.option("--once", is_flag=True, help="It prints what there is now, and ends.")
@click.option("--every", type=Length(), default="1s", show_default=True,
              help="How often it looks; rates are over this time.")  # fmt: skip
def top(session: Invocation, once: bool, every: int) -> None:
    """Show nodes, rates, lateness, queues, workers and what happens, until q or Ctrl-C.

    Any node will do; the leader is found by itself, also when it changes. Queues, workers and
    events are those of one namespace. What cannot be read is left out, and named.
    """
    if not 10 <= every <= 60_000:
        raise wrong_use("--every is out of its range", "it is from 10ms to 1m", "--every 1s")
    if once:
        print_once(session, every / 1000)
        return
    if not session.out.is_table:
        raise wrong_use(
            f"-o {session.out.format} is for one look", "a picture that moves is for people",
            f"raftsched top --once -o {session.out.format}",
        )  # fmt: skip
    if not sys.stdout.isatty():
        raise wrong_use("there is no terminal to draw on", "", "raftsched top --once")
    live(session, every / 1000)


def print_once(session: Invocation, every_s: float) -> None:
    """One look, and one before it to compare with."""
    from .cluster import ask_status
    from .top_snapshot import SnapshotReader

    # Refused here, it says so as every command does.
    ask_status(session, "look at the cluster")
    reader = SnapshotReader(session)
    reader.read()
    time.sleep(every_s)
    snapshot = reader.read()
    if session.out.format == "jsonl":
        session.out.piece(snapshot.document())
        return
    if not session.out.is_table:
        session.out.document(snapshot.document())
        return
    from .top_view import draw

    console = session.out.console
    if not session.out.for_person:
        console.width = FRAME_WIDTH
    console.print(draw(snapshot, session.out.formats, FRAME_HEIGHT))


def live(session: Invocation, every_s: float) -> None:
    """Draw until a key or a signal ends it; the terminal is left as it was found."""
    from rich.live import Live

    from .top_snapshot import SnapshotReader
    from .top_view import draw

    console, formats = session.out.console, session.out.formats
    reader = SnapshotReader(session)
    # Whether anybody listens at all is found out before the screen is taken.
    _ = session.client
    with (
        contextlib.suppress(KeyboardInterrupt),
        _signals() as ended,
        _keys() as pressed,
        Live(console=console, screen=True, auto_refresh=False) as shown,
    ):
        for snapshot in _snapshots(reader, every_s, pressed, ended):
            shown.update(draw(snapshot, formats, console.height, keys=True), refresh=True)


def _snapshots(
    reader: SnapshotReader, every_s: float, pressed: Callable[[float], str], ended: list[int]
) -> Iterator[ClusterSnapshot]:
    """One look after the other, until q or a signal."""
    key = ""
    while key not in ("q", "Q") and not ended:
        began = time.monotonic()
        yield reader.read()
        key = pressed(max(0.0, began + every_s - time.monotonic()))


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """What asks for a key, waiting so many seconds; without a keyboard it only waits."""
    if not sys.stdin.isatty():
        yield _only_wait
        return
    import termios
    import tty

    fd = sys.stdin.fileno()

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([fd], [], [], seconds)
        return os.read(fd, 1).decode(errors="replace") if ready else ""

    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        yield pressed
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _only_wait(seconds: float) -> str:
    time.sleep(seconds)
    return ""


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """What ends it, as Ctrl-C does, so that the terminal is given back. An exception that is raised
    while an object is taken apart is swallowed by the interpreter, so the signal is noted too."""
    came = list[int]()

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt

    before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
