"""Threads for sync handlers, and the way back from them to the loop.

Both ways are batched: a thread works off the line until it is empty, and the loop is woken once for
all that ended meanwhile. A line of short handlers costs few switches between threads this way.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")

# So many threads are woken at once. If the line still stands a little later, its handlers are no
# short ones, or the machine is busy: then twice as many each time, until all are at work.
WAKE_AT_ONCE = 2
LOOK_AFTER_S, LOOK_AFTER_MAX_S = 0.001, 0.05


class Mailbox(Generic[T]):
    """Takes things from any thread, hands them to `deliver` on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deliver: Callable[[T], None]) -> None:
        self._loop = loop
        self._deliver = deliver
        self._items: deque[T] = deque()
        self._is_woken = False
        self._closed = False

    def put(self, item: T) -> None:
        self._items.append(item)
        if not self._is_woken and not self._closed:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self.empty)
            except RuntimeError:
                # The loop is closed: the worker has stopped, and gave back what this is about.
                self._closed = True

    def empty(self) -> None:
        self._is_woken = False
        for _ in range(len(self._items)):
            self._deliver(self._items.popleft())

    def close(self) -> None:
        self._closed = True


class Threads:
    """At most `maximum` daemon threads, started as they are needed; used from the loop only.

    Daemons, since a handler that does not stop must not keep the process.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, maximum: int) -> None:
        self._loop = loop
        self._maximum = maximum
        self._line: deque[Callable[[], None]] = deque()
        self._calls: SimpleQueue[bool] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._count = 0
        self._looking = False
        self._fresh = 0

    def submit(self, work: Callable[[], None]) -> None:
        self._line.append(work)
        if self._fresh < WAKE_AT_ONCE:
            self._fresh += 1
            self._wake(1)
        if not self._looking:
            self._looking = True
            self._loop.call_soon(self._turn_ends)

    def _turn_ends(self) -> None:
        self._fresh = 0
        self._loop.call_later(LOOK_AFTER_S, self._look, LOOK_AFTER_S, WAKE_AT_ONCE)

    def _look(self, waited_s: float, wanted: int) -> None:
        if not self._line:
            self._looking = False
            return
        # Those that are at work already take the rest as they come free.
        woken = self._wake(min(wanted, len(self._line)))
        wait_s = LOOK_AFTER_S if woken else min(waited_s * 2, LOOK_AFTER_MAX_S)
        self._loop.call_later(wait_s, self._look, wait_s, min(2 * wanted, self._maximum))

    def _wake(self, wanted: int) -> int:
        with self._lock:
            waking = min(wanted, self._idle)
            self._idle -= waking
        for _ in range(waking):
            self._calls.put(True)
        fresh = min(wanted - waking, self._maximum - self._count)
        for _ in range(fresh):
            self._count += 1
            name = f"raftsched-handler-{self._count}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        return waking + fresh

    def _work(self) -> None:
        line = self._line
        while True:
            while line:
                try:
                    work = line.popleft()
                except IndexError:
                    break
                work()
            with self._lock:
                self._idle += 1
            if not self._calls.get():
                return

    def close(self) -> None:
        """Let the threads end as they come to rest. What waits in the line is not done."""
        self._line.clear()
        for _ in range(self._count):
            self._calls.put(False)
