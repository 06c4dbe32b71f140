"""A word to systemd, where it started us (`Type=notify`), and the sign of life that it waits for
(`WatchdogSec`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

# How many times the sign comes within the time systemd waits for it.
SIGNS = 3


def notify(state: str) -> None:
    """Send READY=1, STOPPING=1 or STATUS=...; without systemd, nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    if address[0] == "@":
        address = "\0" + address[1:]
    # Nobody may listen there any more; then nobody wants to know.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
        sending.setblocking(False)
        sending.sendto(state.encode(), address)


class Watchdog:
    """Says that this process lives, as often as systemd wants to hear it. Whoever holds it calls
    `look` from what must not stand still."""

    def __init__(self) -> None:
        self.every_s = wanted_s() / SIGNS
        self._next_at = float("-inf")

    def look(self, now: float) -> None:
        """`now` is of a clock that is never set."""
        if self.every_s and now >= self._next_at:
            self._next_at = now + self.every_s
            notify("WATCHDOG=1")


def wanted_s() -> float:
    """Within how many seconds systemd wants to hear from this process; 0: it does not."""
    micros, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not micros.isdecimal() or (pid and pid != str(os.getpid())):
        return 0.0
    return int(micros) / 1e6


async def give_signs() -> None:
    """From a loop, until it is cancelled or at once where nobody waits for signs."""
    watchdog, loop = Watchdog(), asyncio.get_running_loop()
    while watchdog.every_s:
        watchdog.look(loop.time())
        await asyncio.sleep(watchdog.every_s)
