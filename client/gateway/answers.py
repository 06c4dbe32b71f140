"""Answers that are shared for a while: twenty pages that are open ask the same each second.

It is about reads that promise no more than what a node has at hand: how the cluster is, its
figures, and what is asked with CONSISTENCY_STALE. Whoever asks the same with the same token within
SHARED_S gets the same answer, made and packed once; who asks while it is on its way waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from time import monotonic

from .exchange import Answered

SHARED_S = 1.0
# Answers that are kept, and how large each may be; a larger one serves those who wait for it.
KEPT_MAX, BYTES_MAX = 200, 1 << 20
AGE = "raftsched-age-ms"
Key = tuple[str, str, bytes]


class SharedAnswer:
    """One that is on its way, or has come."""

    def __init__(self, making: Awaitable[Answered], seconds: Callable[[], float]) -> None:
        self.task = asyncio.ensure_future(making)
        self.task.add_done_callback(self._came)
        self._seconds = seconds
        self._until = self._came_at = float("inf")

    def _came(self, task: asyncio.Future[Answered]) -> None:
        # What failed is raised to those who wait, and to nobody who comes later.
        failed = task.cancelled() or task.exception() is not None
        keeps = not failed and len(task.result().body) <= BYTES_MAX
        self._came_at = self._seconds()
        self._until = self._came_at + SHARED_S if keeps else float("-inf")

    async def answered(self) -> Answered:
        """As a message of its own, which says how old the state is by now."""
        # Whoever leaves does not take it from the others.
        found = await asyncio.shield(self.task)
        headers = dict(found.headers)
        if AGE in headers:
            late_ms = max(0.0, self._seconds() - self._came_at) * 1_000
            headers[AGE] = str(int(headers[AGE]) + round(late_ms))
        return replace(found, headers=headers)

    @property
    def is_over(self) -> bool:
        return self._seconds() >= self._until


class SharedAnswers:
    """See the head of this file."""

    def __init__(self, seconds: Callable[[], float] = monotonic) -> None:
        self._seconds = seconds
        self._kept: dict[Key, SharedAnswer] = {}

    async def get(self, key: Key, make: Callable[[], Awaitable[Answered]]) -> Answered:
        """What was answered to this just now, or is made now."""
        one = self._kept.get(key)
        if one is None or one.is_over:
            self._kept = {name: kept for name, kept in self._kept.items() if not kept.is_over}
            if len(self._kept) >= KEPT_MAX:
                return await make()
            one = self._kept[key] = SharedAnswer(make(), self._seconds)
        return await one.answered()

    def close(self) -> None:
        for one in self._kept.values():
            one.task.cancel()
