"""Calls that showed nothing valid, by address."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

ADDRESSES_MAX = 10_000


class Failures:
    """Calls without a valid token, by address: so many a second are looked at."""

    def __init__(self, rate: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.clock = rate, clock
        # What each address may still do, and since when. The one that failed longest ago is first.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow(self, address: str) -> bool:
        now = self.clock()
        left, since = self._left.pop(address, (float(self.rate), now))
        left = min(float(self.rate), left + (now - since) * self.rate)
        allowed = left >= 1
        self._left[address] = (left - 1 if allowed else left, now)
        if len(self._left) > ADDRESSES_MAX:
            self._left.popitem(last=False)
        return allowed
