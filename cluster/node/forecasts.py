"""Counts of what is due in the time to come, kept for those who look at them again and again.

To count what a million jobs have due takes seconds, and twenty pages that are open ask for it all
day. So one count is made at a time, on a thread that stands back for the loop, and only while
somebody asks; it is kept, and made anew some time after. Nobody waits for one: whoever asks gets
the last one if it is new enough, else the one that is being made, as far as it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ...statemachine.core import limits
from ...statemachine.core.store import Reading
from ...statemachine.model.view import View
from ...statemachine.reads.firings_ahead import FiringsAhead
from ...statemachine.reads.forecast import MAX_AGE_MS
from . import refusals
from .readers import Readers

# By namespace and span; the one that was asked for longest ago goes first.
KEPT_MAX = 64
# Counts that are made or wait for the one before.
UNDER_WAY_MAX = 8
LIMIT = "forecasts"
# In whose turn they are made.
LINE = "forecasts"
# How long one may take; it is partial then.
COUNT_S = 60.0
# One is used for so long before it is made anew, or for so many times as long as it took: whoever
# looks all day costs no more than that share of a processor.
FRESH_S, FRESH_TIMES = 30.0, 25
# So long is waited for one that was just begun: nearly all have ended by then.
WAIT_S = 0.2
# How far ahead they look, and as much further as they may be old.
SPANS_MS = (limits.HOUR_MS, limits.DAY_MS)

# The namespace's number, and a span.
Key = tuple[int, int]


class KeptForecast:
    """One that is made, or was."""

    def __init__(self, key: Key, now_ms: int, began: float) -> None:
        number, span_ms = key
        self.found = FiringsAhead(number, now_ms, now_ms + span_ms + MAX_AGE_MS)
        self.began, self.took_s = began, 0.0
        self.task: asyncio.Task[None] | None = None


class Forecasts:
    """See the head of this file. For one loop."""

    def __init__(
        self, readers: Readers, snapshot: Callable[[], Reading],
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._readers, self._snapshot, self._seconds = readers, snapshot, seconds
        self._kept: dict[Key, KeptForecast] = {}
        self._under_way: dict[Key, KeptForecast] = {}
        self._is_over = False

    async def get(self, number: int, now_ms: int, ahead_ms: int, max_age_ms: int) -> FiringsAhead:
        """What a namespace has due, counted no longer ago than that, or as far as it is counted.
        Raises Refused where too many are under way."""
        key = number, next(span for span in SPANS_MS if ahead_ms <= span)
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._kept[key] = kept
            # One from before the clock was set back is of no use.
            if now_ms - max_age_ms <= kept.found.now_ms <= now_ms:
                if self._is_due(kept) and len(self._under_way) < UNDER_WAY_MAX:
                    self._begun(key, now_ms)
                return kept.found
        count = self._begun(key, now_ms)
        assert count.task is not None, "it was begun"
        await asyncio.wait({count.task}, timeout=WAIT_S)
        if count.task.done():
            # Whatever went wrong.
            count.task.result()
        return count.found

    def _is_due(self, kept: KeptForecast) -> bool:
        """Whether it is time to count anew."""
        return self._seconds() - kept.began > max(FRESH_S, FRESH_TIMES * kept.took_s)

    def _begun(self, key: Key, now_ms: int) -> KeptForecast:
        """The count that is under way, or a new one."""
        count = self._under_way.get(key)
        if count is None:
            if len(self._under_way) >= UNDER_WAY_MAX:
                raise refusals.node_limit(LIMIT, UNDER_WAY_MAX, refusals.ALL)
            count = self._under_way[key] = KeptForecast(key, now_ms, self._seconds())
            count.task = asyncio.get_running_loop().create_task(self._make(key, count))
        return count

    async def _make(self, key: Key, count: KeptForecast) -> None:
        try:
            await self._readers.read(LINE, lambda: self._counting(count))
        finally:
            del self._under_way[key]
        count.took_s = self._seconds() - count.began
        self._kept.pop(key, None)
        self._kept[key] = count
        if len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]

    def _counting(self, count: KeptForecast) -> Callable[[], None]:
        reading, until = self._snapshot(), self._seconds() + COUNT_S

        def is_spent() -> bool:
            return self._is_over or self._seconds() > until

        return lambda: count.found.count(View(reading, count.found.now_ms), is_spent)

    def stop(self) -> None:
        """A count that is under way ends soon."""
        self._is_over = True
        for count in self._under_way.values():
            if count.task is not None:
                count.task.cancel()
