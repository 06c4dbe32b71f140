"""The wall clock as the leader's loop takes it: it does not follow a jump before others agree.

Time in the state never runs backwards. Were an hour that somebody set by mistake to get in, jobs
would fire an hour early and then nothing would happen for an hour. So a clock that was set goes on
from where it was, by the monotonic clock, until a look at the other nodes says who is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .about import Acquaintances

ALONE = 3.0  # Seconds after which a clock counts as right that nobody said is wrong.
FOLLOWED_MS = 250  # What a time server may move a clock by between two looks at it.


class SteadyClock:
    """Milliseconds since 1970."""

    def __init__(self, wall_ms: Callable[[], int], seconds: Callable[[], float]) -> None:
        self.wall_ms, self.seconds = wall_ms, seconds
        self._ahead = 0.0  # Of the monotonic clock.
        # It was compared since this process began.
        self.sure = False
        self._began = seconds()
        self.trust()

    def trust(self) -> None:
        """The wall clock is right: go on from what it says."""
        self._ahead = self.wall_ms() - self.seconds() * 1000

    def now_ms(self) -> int:
        wall, kept = self.wall_ms(), int(self.seconds() * 1000 + self._ahead)
        if abs(wall - kept) > FOLLOWED_MS:
            return kept
        self.trust()
        return wall

    def look(self, known: Acquaintances, voters: Iterable[str], most_ms: int) -> int:
        """Compare with the other nodes; return how far this clock is from a majority of theirs,
        or 0 if it is near enough to go by."""
        voters = list(voters)
        if not voters:
            # A fresh disk does not know yet who belongs: none of none is no majority.
            self._began = self.seconds()
            return 0
        skews = known.skews_ms(voters, self.wall_ms())
        near = 1 + sum(abs(skew) <= most_ms for skew in skews)
        alone = not self.sure and self.seconds() - self._began > ALONE
        if 2 * near > len(voters) or (alone and 2 * near > len(skews)):
            self.sure = True
            self.trust()
            return 0
        return known.skew_ms(voters, most_ms, self.now_ms())
