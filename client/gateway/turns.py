"""What came on connections is worked at in turns, one of each address after the other: however many
connections somebody has, others wait for one of them only."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable

# So long at a time; then answers are written and new callers heard.
TURN_S = 0.002
Work = Callable[[], None]


class ConnectionTurns:
    """Those that wait for theirs. A connection waits once at most, so there are no more of them."""

    def __init__(self, turn_s: float = TURN_S) -> None:
        self._turn_s = turn_s
        # By address; that which has waited longest is first.
        self._waiting: OrderedDict[str, deque[Work]] = OrderedDict()
        self._is_due = False

    def add(self, address: str, work: Work) -> None:
        """Do this when it is its turn; soon, but not now."""
        line = self._waiting.get(address)
        if line is None:
            self._waiting[address] = deque((work,))
        else:
            line.append(work)
        self._arrange()

    def _arrange(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._go_round)

    def _go_round(self) -> None:
        clock = asyncio.get_running_loop().time
        until, self._is_due = clock() + self._turn_s, False
        try:
            while self._waiting:
                address, line = self._waiting.popitem(last=False)
                work = line.popleft()
                if line:
                    self._waiting[address] = line
                work()
                if clock() >= until:
                    break
        finally:
            self._arrange()
