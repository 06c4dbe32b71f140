"""Gives leadership away: when the node stops, drains, or its clock or state is in doubt."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from ..raft import faults
from ..raft.driver import Driver
from .leader_loop import Leader

logger = logging.getLogger(__name__)

TIMEOUT = 1.0  # Seconds for one try; the clock watch begins another.


class LeaderHandover:
    """See the head of this file."""

    def __init__(self, name: str, leader: Leader, driver: Driver) -> None:
        self._name, self._leader, self._driver = name, leader, driver
        self._under_way: asyncio.Task[bool] | None = None

    def begin(self) -> None:
        """Try it, unless a try is under way."""
        if self._under_way is None or self._under_way.done():
            loop = asyncio.get_running_loop()
            self._under_way = loop.create_task(self.hand_over(TIMEOUT))
            self._under_way.add_done_callback(_keep_error)

    def stop(self) -> None:
        if self._under_way is not None:
            self._under_way.cancel()

    async def hand_over(self, timeout: float) -> bool:
        """Whether this node does not lead any more, if there was somebody to take it."""
        if not self._leader.leading:
            return True
        if self._driver.status().peers.keys() == {self._name}:
            # It is alone, and nobody asks why it stops as a leader.
            return False
        under_way = self._under_way
        if under_way is not None and asyncio.current_task() is not under_way:
            await asyncio.wait([under_way], timeout=timeout)
            if not self._leader.leading:
                return True
        try:
            return await self._driver.transfer(None, timeout)
        except faults.CallRefused as refused:
            logger.warning("%s keeps leading: %s", self._name, refused)
            return False


def _keep_error(task: asyncio.Task[bool]) -> None:
    """What a task raises must not be lost."""
    with contextlib.suppress(asyncio.CancelledError):
        task.result()
