"""Has the leader look at the alerts, with what only its node sees."""

from __future__ import annotations

from collections.abc import Callable

from ...statemachine.piecewise import FATAL
from ..raft.driver import Driver
from .alert_work import NodeHealth
from .elections import Elections
from .leader_loop import Leader
from .peer_info import PeerDirectory


class AlertWatch:
    """See the head of this file."""

    def __init__(
        self, leader: Leader, driver: Driver, directory: PeerDirectory, elections: Elections,
        ahead_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        """`ahead_ms`: how far the state's time is ahead of the clocks."""
        self._leader, self._driver, self._directory = leader, driver, directory
        self._elections, self._ahead_ms = elections, ahead_ms

    def try_to_look(self) -> None:
        """A node can live without it."""
        steps = self._leader.steps
        began = steps.seconds()
        try:
            self.look()
        except FATAL:
            raise
        except Exception as error:
            self._leader.troubles.failed("looking at the alerts", error)
        steps.end("looking at the alerts", began)

    def look(self) -> None:
        if not self._leader.leading:
            return
        directory = self._directory
        voters = [peer for peer in self._driver.status().peers.values() if peer.voter]
        there = sum(peer.connected for peer in voters)
        skews = [abs(info.wall_skew_ms) for info in directory.fresh().values()]
        health = NodeHealth(
            margin=there - 1 > len(voters) // 2,
            skew_ms=max(self._ahead_ms(), *skews, 0),
            leader_changes=self._elections.recent(), differ=bool(directory.differences()),
        )  # fmt: skip
        self._leader.watch(health, directory.lacking())
