"""Ends the process in time, whatever hangs, and says what did."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading

from .exits import NodeExit

# From the signal to the end of the process, whatever hangs.
STOP_SECONDS = 3.0


class Ending:
    """Ends the process in time, from a thread: the loop itself may be what hangs."""

    def __init__(self) -> None:
        # What is being done, for whoever asks why it took so long.
        self.step = "its loop did not hear of the signal"
        self._code: NodeExit | None = None

    def soon(self, code: NodeExit) -> None:
        """Unless all is done before, the process ends with this code when its time is over."""
        threading.Thread(target=self._give_up, args=(code,), name="give-up", daemon=True).start()

    def done(self, code: NodeExit) -> None:
        """Only the interpreter's own end is left, which is not worth a complaint."""
        self._code = code

    def _give_up(self, code: NodeExit) -> None:
        threading.Event().wait(STOP_SECONDS)
        if self._code is None:
            sys.stderr.write(
                f"raftsched: not stopped within {STOP_SECONDS:.0f} s, so it ends now, with "
                f"{code:d}; not finished: {self.step}; nothing is lost by that\n"
            )
        os._exit(code if self._code is None else self._code)


def listen_to_signals(ending: Ending) -> asyncio.Event:
    """The first signal asks for the end, the second is the end."""
    asked, loop = asyncio.Event(), asyncio.get_running_loop()
    heard: list[int] = []

    def hear(number: int, frame: object) -> None:
        if heard:
            os._exit(128 + number)
        heard.append(number)
        ending.soon(NodeExit.CUT_SHORT)
        loop.call_soon_threadsafe(asked.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        # Not the loop's own handlers: those are not called while it is busy, or hangs.
        signal.signal(number, hear)
    return asked
