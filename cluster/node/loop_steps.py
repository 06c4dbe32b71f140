"""How long the steps of a node's loop last: while one lasts, nothing else is done.

A step that has a name is measured by whoever takes it. A watch on the loop finds those that have
none: it wants to be called every WATCH_S, and whoever lets it wait has stood in the way. It says
what was done on other threads meanwhile, which share the interpreter with the loop. What is longer
than a third of the silence after which others elect a leader is logged, counted and shown.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from ..raft.port import RaftSettings

logger = logging.getLogger(__name__)

LONG_S = RaftSettings().silence_min / 3
KEPT = 20  # Of the last ones, for `cluster status`.
WATCH_S = 0.05
RECENT_S = 600.0  # For alerts: how long one counts.
LOG_S = 1.0  # At most one line in so many seconds.


@dataclass(frozen=True, slots=True)
class LongStep:
    """One that lasted too long."""

    what: str
    seconds: float
    at_ms: int


@dataclass(slots=True)
class LoopTotals:
    """What the leader's loop has done, counted from the start of the process."""

    changes: int = 0
    bytes: int = 0
    parts: int = 0
    decide_s: float = 0.0
    # From the proposal to the answer.
    commit_s: float = 0.0


class LoopSteps:
    """Those of one loop, since the process began."""

    def __init__(
        self, name: str, now_ms: Callable[[], int], seconds: Callable[[], float],
        long_s: float = LONG_S,
    ) -> None:  # fmt: skip
        self.name, self.now_ms, self.seconds, self.long_s = name, now_ms, seconds, long_s
        self.count = 0
        self.longest_s = 0.0
        self.total_s = 0.0
        # The last ones, newest first.
        self.last: deque[LongStep] = deque(maxlen=KEPT)
        self._recent: deque[tuple[float, float]] = deque(maxlen=KEPT)
        self._logged_at = float("-inf")
        # The last step that has a name, and when the last long one ended.
        self._named = "the start"
        self._noted_at = float("-inf")
        self._watch: asyncio.TimerHandle | None = None
        # What other threads do now, and what they have done since the last look at the loop.
        self._beside: Counter[str] = Counter()
        self._were_beside: set[str] = set()
        self._collecting_since = 0.0
        self._collections: deque[LongStep] = deque(maxlen=KEPT)

    def end(self, what: str, began: float, *of: object) -> None:
        """A step ended that began at an instant of `seconds`; `of`: what it was about."""
        self._named = what
        took = self.seconds() - began
        if took > self.long_s:
            about = ", ".join(sorted({type(one).__name__ for one in of}))
            self.note(f"{what}: {about}" if about else what, took)

    def note(self, what: str, took: float) -> None:
        """A step lasted too long."""
        now = self._noted_at = self.seconds()
        self.count += 1
        self.total_s += took
        self.longest_s = max(self.longest_s, took)
        self.last.appendleft(LongStep(what, took, self.now_ms()))
        self._recent.append((now, took))
        if now - self._logged_at >= LOG_S:
            self._logged_at = now
            logger.warning(
                "%s: one step of the loop lasted %.3f s (%s); %d of them so far", self.name, took,
                what, self.count,
            )  # fmt: skip

    def recent_ms(self) -> int:
        """The longest of late."""
        since = self.seconds() - RECENT_S
        while self._recent and self._recent[0][0] < since:
            self._recent.popleft()
        return int(max((took for _, took in self._recent), default=0.0) * 1000)

    # What is no step of the loop, and may hold it up all the same.

    def begin_beside(self, what: str) -> None:
        """Another thread begins to do something; to be called on the loop."""
        self._beside[what] += 1
        self._were_beside.add(what)

    def end_beside(self, what: str) -> None:
        self._beside[what] -= 1
        if not self._beside[what]:
            del self._beside[what]

    def collected(self, phase: str, info: dict[str, int]) -> None:
        """The collector of garbage began or ended, on whatever thread: all others wait for it. One
        of `gc.callbacks`, called in the middle of anything, so that the watch has to report it."""
        if phase == "start":
            self._collecting_since = self.seconds()
            return
        took = self.seconds() - self._collecting_since
        if took > self.long_s:
            what = f"garbage of generation {info['generation']}"
            self._collections.append(LongStep(what, took, self.now_ms()))

    # What has no name.

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look after a loop until `stop`."""
        due, worked = self.seconds() + WATCH_S, time.thread_time()
        self._were_beside = set(self._beside)

        def look() -> None:
            while self._collections:
                collection = self._collections.popleft()
                self.note(collection.what, collection.seconds)
            late = self.seconds() - due
            if late > self.long_s and self._noted_at < due:
                busy = min(time.thread_time() - worked, late)
                what = f"something after {self._named}, {busy:.3f} s of it at work"
                beside = " and ".join(sorted(self._were_beside))
                self.note(f"{what}, beside {beside}" if beside else what, late)
            self.watch(loop)

        self._watch = loop.call_later(WATCH_S, look)

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
