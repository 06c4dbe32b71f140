"""How many elections there were of late, as one node saw them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

RECENT_S = 600.0
KEPT = 1_000  # Instants that are kept; more are "at least so many".


class Elections:
    """Counts terms, each of which begins with an election. To be called now and then."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.seconds = seconds
        self._term = 0
        self._begun: deque[float] = deque(maxlen=KEPT)

    def look(self, term: int) -> None:
        """What came before the first look was not seen by this process."""
        if self._term:
            for _ in range(min(term - self._term, KEPT)):
                self._begun.append(self.seconds())
        self._term = term

    def recent(self) -> int:
        since = self.seconds() - RECENT_S
        while self._begun and self._begun[0] < since:
            self._begun.popleft()
        return len(self._begun)
