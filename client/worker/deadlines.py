"""The deadlines of a worker's leases, by its own clock."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

# Entries of leases that have ended, beyond those of leases that stand.
STALE_MAX = 1_000


class LeaseDeadlines:
    """When each lease with a deadline ends, at the earliest; by token."""

    def __init__(self) -> None:
        self.at: dict[int, float] = {}
        self.heap: list[tuple[float, int]] = []

    def put(self, token: int, at: float) -> None:
        self.at[token] = at
        heapq.heappush(self.heap, (at, token))
        if len(self.heap) > 2 * len(self.at) + STALE_MAX:
            # Most of it speaks of leases that ended long before their deadline.
            self.heap = [(at, token) for token, at in self.at.items()]
            heapq.heapify(self.heap)

    def expired(self, now: float) -> Iterator[int]:
        """The leases whose deadline has passed, each once."""
        while self.heap and self.heap[0][0] <= now:
            at, token = heapq.heappop(self.heap)
            if self.at.get(token) == at:
                yield token

    @property
    def first(self) -> float:
        """When to look again, at the latest."""
        return self.heap[0][0] if self.heap else float("inf")
