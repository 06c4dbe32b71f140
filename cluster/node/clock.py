"""The wall clock as the leader's loop takes it: it does not follow a jump before others agree.

Time in the state never runs backwards. Were an hour that somebody set by mistake to get in, jobs
would fire an hour early and then nothing would happen for an hour. So a clock that was set goes on
from where it was, by the monotonic clock, until a look at the other nodes says who is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .peer_info import PeerDirectory

ALONE = 3.0  # Seconds after which no more voters need to agree than speak against.
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

    def look(self, known: PeerDirectory, voters: Iterable[str], most_ms: int) -> int:
        """Compare with the other nodes; return how far this clock is from a majority of theirs,
        or 0 if it is near enough to go by."""
        voters = list(voters)
        if not voters:
            # A fresh disk does not know yet who belongs: none of none is no majority.
            self._began = self.seconds()
            return 0
        wall_ms = self.wall_ms()
        skews = known.skews_ms(voters, wall_ms)
        near = 1 + sum(abs(skew) <= most_ms for skew in skews)
        # Who hears less than a majority may be cut off, and lead as soon as it is not.
        heard = 2 * (1 + len(skews)) > len(voters)
        alone = heard and not self.sure and self.seconds() - self._began > ALONE
        if alone and 2 * near == 1 + len(skews):
            likelier = nearest(known.replica.meta.now_ms, wall_ms, skews, most_ms)
            if likelier:
                return likelier
        if 2 * near > len(voters) or (alone and 2 * near > len(skews)):
            self.sure = True
            self.trust()
            return 0
        return known.skew_ms(voters, most_ms, self.now_ms())


def nearest(state_ms: int, wall_ms: int, skews: Iterable[int], most_ms: int) -> int:
    """How far this clock is from that of as many as agree with it and as many do not, which is
    likelier to be right; 0 if it is this one. The state's time was right not long ago: a clock
    behind it is wrong, and of others the nearest fires the least too early."""

    def doubt(skew: int) -> tuple[bool, int]:
        ahead_ms = wall_ms + skew - state_ms
        return ahead_ms < -most_ms, abs(ahead_ms)

    best = min((skew for skew in skews if abs(skew) > most_ms), key=doubt, default=0)
    return best if doubt(best) < doubt(0) else 0
