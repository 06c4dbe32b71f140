"""Takes the figures of the leader each second, and on other nodes those that the leader sends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...proto.v1 import common_pb2
from ...statemachine.piecewise import FATAL
from ...statemachine.reads.waiting import waiting
from ..raft.driver import Driver
from .figure_history import MEMBERS_MAX, Figure, FigureHistory, LeaderCounts, Past, grown
from .leader_loop import Leader

# Lanes with ready runs that are looked at: some 10 µs each, on the loop.
LANES_MAX = 200
# Figures sent each second, so that one that was lost on the way comes with the next; and of each
# row those before what somebody has, until they have all.
SENT, PAST = 3, 40


class FigureWatch:
    """See the head of this file."""

    def __init__(self, leader: Leader, driver: Driver) -> None:
        self.history = FigureHistory()
        self._leader, self._driver = leader, driver
        # Nobody counts before `count_by`.
        self._totals: Callable[[], LeaderCounts] | None = None
        # What was counted at the last look, and when that was.
        self._before: tuple[LeaderCounts, float] | None = None

    def count_by(self, totals: Callable[[], LeaderCounts]) -> None:
        """Who knows what this node has decided."""
        self._totals = totals

    def try_to_look(self) -> None:
        """A node can live without it."""
        steps = self._leader.steps
        began = steps.seconds()
        try:
            self.look(began)
        except FATAL:
            raise
        except Exception as error:
            self._leader.troubles.failed("taking the figures", error)
        steps.end("taking the figures", began)

    def look(self, at: float) -> None:
        """Take a figure, if this node leads and the last one was of another second."""
        if self._totals is None:
            return
        second = self._leader.now_ms() // 1_000
        if not self._leader.leading or self._before is None:
            self._before = self._totals(), at
        elif second != self.history.last_second:
            now = self._totals()
            (before, since), self._before = self._before, (now, at)
            self.history.add(self._figure(second, before, now, max(at - since, 0.001)))

    def _figure(
        self, second: int, before: LeaderCounts, now: LeaderCounts, seconds: float
    ) -> Figure:
        found = waiting(self._leader.applied.store, LANES_MAX)
        status, (workers, slots, free) = self._driver.status(), self._leader.sessions.slots()
        behind = {
            name: max(0, status.last_index - peer.match)
            for name, peer in sorted(status.peers.items())[:MEMBERS_MAX]
            if name != self._leader.name
        }
        oldest_ms = self._leader.now_ms() - found.oldest_ms if found.oldest_ms else 0
        return Figure(
            second, self._leader.name, round(seconds, 3), now.fired - before.fired,
            now.started - before.started, now.ended - before.ended, now.failed - before.failed,
            grown(before.late, now.late), found.ready.get(common_pb2.PRIORITY_HIGH, 0),
            found.ready.get(common_pb2.PRIORITY_MEDIUM, 0),
            found.ready.get(common_pb2.PRIORITY_LOW, 0), max(0, oldest_ms), behind,
            workers, slots, slots - free,
        )  # fmt: skip

    def to_send(self) -> tuple[Figure, ...]:
        """What the leader sends to the others each second."""
        return self.history.newest(SENT) if self._leader.leading else ()

    def past_for(self, begins: Iterable[Sequence[int]]) -> tuple[Past, ...]:
        """What the leader sends to nodes whose figures begin there: what comes right before, in
        each row of the one that has least of it."""
        if not self._leader.leading:
            return ()
        mine = self.history.begins()
        latest = tuple(
            map(max, zip(*(one for one in begins if len(one) == len(mine)), strict=True))
        )
        lacks = any(at > own for own, at in zip(mine, latest, strict=False))
        return self.history.before(latest, PAST) if lacks else ()

    def received(self, figures: Iterable[Figure], past: Sequence[Past] = ()) -> None:
        """Take what another node has sent as leader."""
        if not self._leader.leading:
            for figure in figures:
                self.history.add(figure)
            self.history.fill(past)
