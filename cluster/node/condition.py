"""How this node is, as it shows the others each second beside the rest of what it says of itself:
how slow its disk was, until when its certificates are valid, and who came to lead.

Nothing here is replicated. A node that has just started learns from the others who led before.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ..raft.driver import Driver
from .consensus_view import ConsensusView
from .elections import Elections
from .node_spec import NodeSpec
from .peer_info import PeerDirectory, SelfReport, TookOver

DAY_MS = 86_400_000
# The slowest write of each stretch, as many as make a minute.
STRETCH_S, STRETCHES = 10.0, 6
SENT = 20  # Of the last that came to lead; all are kept that are not a day old, up to KEPT.
KEPT = 100
HANDED_OVER, CONNECTION_LOST, SILENT = "handed over", "connection lost", "silent"


class NodeCondition:
    """See the head of this file."""

    def __init__(
        self, spec: NodeSpec, driver: Driver, consensus: ConsensusView, directory: PeerDirectory
    ) -> None:
        self._spec, self._consensus, self._directory = spec, consensus, directory
        self.elections = Elections(spec.seconds)
        # Until when the certificates of its listeners are valid, in seconds since 1970.
        self.expiries: Mapping[str, float] = MappingProxyType({})
        # The seconds in which a stretch began, and its slowest write.
        self._syncs: deque[tuple[float, float]] = deque(maxlen=STRETCHES)
        self._leader = ""
        # By term.
        self._took_over: dict[int, TookOver] = {}
        driver.on_sync(self.synced)
        driver.on_leader_change(self.look_at_leader)

    def look(self) -> None:
        """To be called each second: what has changed is sent with the next word."""
        self.elections.look(self._consensus.term)
        for info in self._directory.peer_infos.values():
            self._learn(info.report.took_over)
        ends = min(self.expiries.values(), default=math.inf)
        self._directory.report = SelfReport(
            round(1_000 * self.slowest_sync(), 1), None if math.isinf(ends) else ends,
            self.took_over()[:SENT],
        )  # fmt: skip

    def synced(self, took: float) -> None:
        now = self._spec.seconds()
        if not self._syncs or now - self._syncs[-1][0] >= STRETCH_S:
            self._syncs.append((now, took))
        elif took > self._syncs[-1][1]:
            self._syncs[-1] = (self._syncs[-1][0], took)

    def slowest_sync(self) -> float:
        """Of the last minute, in seconds."""
        since = self._spec.seconds() - STRETCH_S * STRETCHES
        return max((took for began, took in self._syncs if began > since), default=0.0)

    def took_over(self) -> tuple[TookOver, ...]:
        """Who came to lead within the last day, newest first."""
        since = self._spec.wall_ms() - DAY_MS
        found = [one for one in self._took_over.values() if one.at_ms > since]
        return tuple(sorted(found, key=lambda one: -one.term))

    def look_at_leader(self) -> None:
        """Note who leads now, if it is known that this is new."""
        leader, before, term = self._consensus.known_leader, self._leader, self._consensus.term
        if not leader:
            return
        self._leader = leader
        # Whoever finds somebody who leads does not know since when, but of itself.
        if not before and leader != self._spec.name:
            return
        if term not in self._took_over:
            new = TookOver(self._spec.wall_ms(), term, leader, before, self._why(before, leader))
            self._keep({term: new})

    def _why(self, before: str, leader: str) -> str:
        if self._consensus.was_handed_over:
            return HANDED_OVER
        is_there = before in (self._spec.name, leader) or before in self._consensus.connected
        return (SILENT if is_there else CONNECTION_LOST) if before else ""

    def _learn(self, heard: Iterable[TookOver]) -> None:
        """Take what another node has seen, and this one has not."""
        now_ms = self._spec.wall_ms()
        self._keep({
            one.term: one
            for one in heard
            if one.term not in self._took_over and now_ms - DAY_MS < one.at_ms < now_ms + DAY_MS
        })  # fmt: skip

    def _keep(self, more: Mapping[int, TookOver]) -> None:
        self._took_over |= more
        for term in sorted(self._took_over)[:-KEPT]:
            del self._took_over[term]
