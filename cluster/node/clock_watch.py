"""Compares this node's clock with those of the others, and keeps the leader's loop to it."""

from __future__ import annotations

import logging

from ..raft.driver import Driver
from . import refusals
from .clock import SteadyClock
from .handover import LeaderHandover
from .leader_loop import Leader
from .peer_info import PeerDirectory
from .virtual_clock import VirtualClock

logger = logging.getLogger(__name__)

# A state that is ahead of the clocks by more was moved by clocks that were wrong.
AHEAD_MS = 5_000


class ClockWatch:
    """See the head of this file."""

    def __init__(
        self, clock: SteadyClock | VirtualClock, directory: PeerDirectory, driver: Driver,
        leader: Leader, handover: LeaderHandover, skew_max_ms: int,
    ) -> None:  # fmt: skip
        self._clock, self._directory, self._driver = clock, directory, driver
        self._leader, self._handover, self._skew_max_ms = leader, handover, skew_max_ms

    def look(self, *, is_draining: bool) -> None:
        """Compare the clocks; lead no longer where somebody else should."""
        leader, directory = self._leader, self._directory
        voters = [name for name, peer in self._driver.status().peers.items() if peer.voter]
        was_sure = self._clock.sure
        skew_ms = self._clock.look(directory, voters, self._skew_max_ms)
        if self._clock.sure and not was_sure:
            logger.info("the clock of %s is that of a majority", directory.name)
        if skew_ms and not leader.skew_ms:
            logger.error("%s", refusals.clock_skew(skew_ms).rejection.message)
        leader.clock_compared(skew_ms, is_sure=self._clock.sure)
        # Among nodes that all stop it would only go round.
        drained = is_draining and any(info.serving for info in directory.fresh().values())
        if leader.leading and (skew_ms or directory.diverged or drained):
            # Somebody whose clock and state are sound should lead, and who serves.
            self._handover.begin()

    def state_ahead_ms(self) -> int:
        """How far the state's time is ahead of the clocks; 0 when near enough, or nobody knows."""
        is_virtual = isinstance(self._clock, VirtualClock)
        if is_virtual or not self._clock.sure or self._leader.skew_ms:
            return 0
        ahead_ms = self._leader.applied.meta.now_ms - self._clock.now_ms()
        return ahead_ms if ahead_ms > AHEAD_MS else 0
