"""The virtual clock of a cluster for tests: it stands still until the test moves it."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from time import monotonic, sleep

# The file that all nodes have mapped: six signed numbers of 64 bits. What it is; milliseconds since
# 1970: now, and where to go; how long a handler may hold time up, in real milliseconds; the last
# request and the last one that was carried out, by number. `cluster/node/virtual_time.py` obeys it.
MAGIC = int.from_bytes(b"raftclk1", "little")
WHAT, NOW, UNTIL, HANDLER, ASKED, DONE = range(6)
WORDS = 6
SIZE = 8 * WORDS
LOOK_S = 0.001
LOOK_AT_NODES_S = 0.25
HANDLER_S = 5.0
TIMEOUT_S = 60.0
MILLISECOND = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock:
    """Moves the time of a cluster; `cluster.clock` of a LocalCluster with `virtual_clock`.

    cluster.clock.advance(hours=3)

    Time goes from one due time to the next: firings, retries, timeouts, ends of all kinds, each at
    its own instant and in order, so that nothing is missed, however far it goes. At each it stays
    until the handlers under way have ended, or have held it up for `handler_timeout` real seconds.
    It returns when all that was due up to then is done.

    Workers do not notice: their sessions and heartbeats go by the real clock.
    """

    def __init__(self, file: Path, begin: datetime, check_nodes: Callable[[], None]) -> None:
        self._check_nodes = check_nodes
        self._moving = Lock()
        if not file.exists():
            file.write_bytes(bytes(SIZE))
        with file.open("r+b") as opened:
            self._file = mmap.mmap(opened.fileno(), SIZE)
        self._words = memoryview(self._file).cast("q")
        if self._words[WHAT] != MAGIC:
            # In a folder that was used before, time goes on from where it was.
            self._words[NOW] = _ms(begin)
            self._words[WHAT] = MAGIC
        self._words[DONE] = self._words[ASKED]

    def close(self) -> None:
        self._words.release()
        self._file.close()

    @property
    def now(self) -> datetime:
        """The cluster's time, in UTC."""
        return EPOCH + self._words[NOW] * MILLISECOND

    def advance(
        self,
        by: timedelta = timedelta(0),
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        handler_timeout: float = HANDLER_S,
        timeout: float = TIMEOUT_S,
    ) -> datetime:
        """Let so much time go by, and say what time it is then. Without any, only what is due by
        now is waited for."""
        length = by + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if length < timedelta(0):
            raise ValueError(f"time cannot go back by {-length}; start another cluster")
        return self.advance_to(self.now + length, handler_timeout=handler_timeout, timeout=timeout)

    def advance_to(
        self, instant: datetime, *, handler_timeout: float = HANDLER_S, timeout: float = TIMEOUT_S
    ) -> datetime:
        """As `advance`, to an instant."""
        if instant.tzinfo is None:
            raise ValueError(f"{instant} has no zone; give it one, such as tzinfo=UTC")
        if handler_timeout < 0:
            raise ValueError(f"handler_timeout is {handler_timeout}; it must be 0 or more")
        if instant < self.now:
            raise ValueError(f"it is {self.now} already, and time cannot go back to {instant}")
        if not self._moving.acquire(blocking=False):
            raise RuntimeError("the clock is being moved by another thread; let one do it")
        try:
            return self._move(_ms(instant), handler_timeout, timeout)
        finally:
            self._moving.release()

    def _move(self, until_ms: int, handler_timeout: float, timeout: float) -> datetime:
        words = self._words
        words[UNTIL], words[HANDLER] = until_ms, round(handler_timeout * 1000)
        # Last, as the nodes look at it first.
        words[ASKED] = request = words[ASKED] + 1
        try:
            if self._arrives(request, timeout):
                return self.now
        finally:
            # Whatever ends the wait, an interrupt too, ends the way.
            words[UNTIL] = words[NOW]
            words[DONE] = request
        goal = EPOCH + until_ms * MILLISECOND
        raise TimeoutError(
            f"the clock came to {self.now} within {timeout:g} s, on its way to {goal}; there is "
            "much to do on that way (then say timeout=), handlers that do not end hold it up for "
            f"{handler_timeout:g} s each (say handler_timeout=), or no node leads"
        )

    def _arrives(self, request: int, timeout: float) -> bool:
        began = looked = monotonic()
        while self._words[DONE] != request:
            sleep(LOOK_S)
            if monotonic() - looked > LOOK_AT_NODES_S:
                looked = monotonic()
                self._check_nodes()
            if monotonic() - began > timeout:
                return False
        return True


def _ms(instant: datetime) -> int:
    """Rounded up, so that what is due at the instant is due."""
    return -((EPOCH - instant) // MILLISECOND)
