"""When the leader's loop takes its turns: woken by whoever has work, or by its timer.

Two changes that nobody waits for begin MIN_CHANGE_INTERVAL apart, so that under a steady load what
belongs together gathers. While a change is on its way there is nothing to begin; who answers it
wakes the loop again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..raft.driver import Driver
from .leader_loop import Leader

MIN_CHANGE_INTERVAL = 0.005


class LeaderTurns:
    """See the head of this file."""

    def __init__(
        self, leader: Leader, driver: Driver, now_ms: Callable[[], int],
        end: Callable[[BaseException], None], after: Callable[[], None],
        interval: float = MIN_CHANGE_INTERVAL,
    ) -> None:  # fmt: skip
        """`after` is called after each turn, and may wake the loop; what either raises is handed
        to `end`, which ends the node."""
        self._leader, self._driver, self._now_ms = leader, driver, now_ms
        self._end, self._after, self._interval = end, after, interval
        # The turn that is to come, if somebody woke the loop.
        self._next: asyncio.Handle | None = None
        self._is_delayed = self._is_over = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def stop(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    @property
    def is_awake(self) -> bool:
        """A turn is to come that somebody asked for."""
        return self._next is not None

    def wake(self) -> None:
        """There may be work."""
        leader = self._leader
        if leader.is_busy:
            return
        if self._next is None:
            rest = leader.began_at + self._interval - leader.seconds()
            self._is_delayed = rest > 0 and not leader.is_urgent
            if self._is_delayed:
                self._next = self._loop.call_later(rest, self._turn)
            else:
                self._next = self._loop.call_soon(self._turn)
        elif self._is_delayed and leader.is_urgent:
            self._next.cancel()
            self._is_delayed = False
            self._next = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._next, self._is_delayed = None, False
        if self._is_over:
            return
        try:
            self._leader.step()
            self._driver.go_on()
            if self._leader.is_busy:
                self._loop.call_soon(self._prepare)
            self._after()
            self._set_timer()
        except Exception as error:
            self._end(error)

    def _prepare(self) -> None:
        try:
            self._leader.prepare()
        except Exception as error:
            self._end(error)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_ms = self._leader.next_ms()
        if next_ms is not None:
            # The clock may be set meanwhile; the node looks again each second.
            delay = max(0, next_ms - self._now_ms()) / 1000
            self._timer = self._loop.call_later(delay, self.wake)
