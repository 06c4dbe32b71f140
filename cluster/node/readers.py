"""Reads that look at much compute on threads, in turns between those who ask.

Threads share the interpreter with the loop and there are few of them, so of one caller one read
computes at a time: who asks for twenty heavy lists at once waits for his own, and nobody else does.
What waits is bounded, of one caller and of all.

Whoever computes has the interpreter for as long as the loop has, whatever that has to do. So reads
stand back while a change is on its way, for a while at each look at the state, and go on after it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ...statemachine.core.store import Reading
from ..raft.port import LoopMeter, Untimed
from . import refusals

READERS = 3
WAITING_MAX = 2_000  # Reads that wait for their turn.
WAITING_BY_CALLER = 500  # Of these, those of one caller.
LIMIT = "waiting_reads"
# A read stands back after so long, for as long as a change is on its way, but no longer than so
# long for each that computes: a leader without a pause must not keep it for ever.
WORK_S = 0.001
REST_S = 0.004
REST_STEP_S = 0.0005
LOOKED_AT = 64  # Entries of a scan between two looks at the clock.
BESIDE = "reads"
T = TypeVar("T")


class Readers:
    """For one loop."""

    def __init__(
        self, threads: int = READERS, steps: LoopMeter | None = None,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """`is_busy` is asked on threads: whether the loop has a change on its way."""
        self._is_busy = is_busy
        self._threads = ThreadPoolExecutor(threads, "read")
        self._steps = steps or Untimed()
        self._free = threads
        # Whose read computes now.
        self._computing: set[str] = set()
        # The reads of each caller that wait, and the callers of whom the next one may begin: the
        # first of them had its turn longest ago.
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        self._next: OrderedDict[str, None] = OrderedDict()
        self.waiting = 0

    async def read(self, caller: str, begin: Callable[[], Callable[[], T]]) -> T:
        """Have a read of a caller computed. `begin` is called on the loop when its turn has come,
        and says what is to be done on the thread."""
        if not self._free or caller in self._computing:
            await self._wait(caller)
        else:
            self._take(caller)
        loop = asyncio.get_running_loop()
        try:
            computing = self._threads.submit(begin())
        except BaseException:
            self._ended(caller)
            raise
        # Whoever asked may leave before; the thread goes on, and the turn ends with that.
        computing.add_done_callback(lambda _: loop.call_soon_threadsafe(self._ended, caller))
        return await asyncio.wrap_future(computing)

    def pace(self, rest_s: float = REST_S) -> Pace:
        """For whoever computes; to be made on its thread."""
        return Pace(self, rest_s)

    def paced(self, reading: Reading) -> Paced:
        """What a read is to look at the state by."""
        return Paced(reading, Pace(self, REST_S))

    def rest(self, rest_s: float) -> None:
        """Stand back for the loop; on a thread."""
        until = time.monotonic() + rest_s * max(1, len(self._computing))
        while self._is_busy() and time.monotonic() < until:
            time.sleep(REST_STEP_S)

    async def _wait(self, caller: str) -> None:
        """Return when a thread is free and no other read of this caller computes."""
        line = self._lines.get(caller, deque())
        if len(line) >= WAITING_BY_CALLER:
            raise refusals.node_limit(LIMIT, WAITING_BY_CALLER, caller)
        if self.waiting >= WAITING_MAX:
            raise refusals.node_limit(LIMIT, WAITING_MAX, refusals.ALL)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(turn)
        self._lines[caller] = line
        self.waiting += 1
        if caller not in self._computing:
            self._next.setdefault(caller)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # Its turn came at the same moment.
                self._ended(caller)
            elif turn in line:
                line.remove(turn)
                self._left(caller)
            raise

    def _left(self, caller: str) -> None:
        """One read of a caller waits no more."""
        self.waiting -= 1
        if not self._lines[caller]:
            del self._lines[caller]
            self._next.pop(caller, None)

    def _take(self, caller: str) -> None:
        self._free -= 1
        self._computing.add(caller)
        self._steps.begin_beside(BESIDE)

    def _ended(self, caller: str) -> None:
        """A thread is free, and the caller may have another turn, behind all others."""
        self._free += 1
        self._computing.remove(caller)
        self._steps.end_beside(BESIDE)
        if caller in self._lines:
            self._next[caller] = None
        while self._free and self._next:
            caller, _ = self._next.popitem(last=False)
            turn = self._lines[caller].popleft()
            self._left(caller)
            if not turn.cancelled():
                self._take(caller)
                turn.set_result(None)
            elif caller in self._lines:
                self._next[caller] = None

    def close(self) -> None:
        self._threads.shutdown()


class Pace:
    """When one that computes on a thread stands back."""

    def __init__(self, readers: Readers, rest_s: float) -> None:
        self._readers, self._rest_s = readers, rest_s
        self._rested_at = time.monotonic()

    def look(self) -> None:
        """To be called now and then."""
        if time.monotonic() - self._rested_at > WORK_S:
            self._readers.rest(self._rest_s)
            self._rested_at = time.monotonic()


class Paced:
    """State at one instant, for a read that stands back."""

    def __init__(self, reading: Reading, pace: Pace) -> None:
        self._reading, self._look = reading, pace.look

    def get(self, key: bytes) -> bytes | None:
        self._look()
        return self._reading.get(key)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        self._look()
        return self._reading.get_many(keys)

    def scan(
        self, first: bytes, end: bytes, *, backwards: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        self._look()
        for count, entry in enumerate(self._reading.scan(first, end, backwards=backwards), 1):
            yield entry
            if count % LOOKED_AT == 0:
                self._look()
