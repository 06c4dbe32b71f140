"""Sends what a node has to say of itself to the others, and takes what they say."""

from __future__ import annotations

from collections.abc import Callable

from .bootstrap_token import Bootstrap
from .consensus_view import ConsensusView
from .figure_watch import FigureWatch
from .loop_steps import LoopSteps
from .peer_info import PeerDirectory
from .preload import Ahead
from .token_uses import TokenUses
from .worker_sessions import WorkerSessions

INTERVAL = 1.0
FAST_INTERVAL = 0.1  # While somebody has not heard from all it is linked to.


class Gossip:
    """See the head of this file."""

    def __init__(
        self, version: str, directory: PeerDirectory, consensus: ConsensusView,
        sessions: WorkerSessions, zones: Ahead, bootstrap: Bootstrap, steps: LoopSteps,
        figures: FigureWatch, send: Callable[[bytes], None], uses: TokenUses,
    ) -> None:  # fmt: skip
        self._version, self._directory, self._consensus = version, directory, consensus
        self._sessions, self._zones, self._bootstrap = sessions, zones, bootstrap
        self._steps, self._figures, self._send, self._uses = steps, figures, send, uses

    def introduce(self, address: str, *, serving: bool, leads: bool) -> None:
        """Notify the others of this node: each interval, and at once when it has changed."""
        self._figures.try_to_look()
        began = self._steps.seconds()
        message = self._directory.message(
            address, self._version, serving=serving,
            met=self._directory.has_met(self._consensus.linked()),
            workers=len(self._sessions.by_worker), bootstrap=self._bootstrap.digest,
            recovery=self._bootstrap.recovery,
            zones_in_use=self._zones.in_use() if leads else (),
            tokens_used=() if leads else self._uses.to_send(), figures=self._figures.to_send(),
            figures_begin=self._figures.history.begins(), figures_past=self._figures.past_for(
                one.figures_begin for one in self._directory.fresh().values()
            ),
        )  # fmt: skip
        if leads:
            self._uses.look()
        self._send(message)
        self._steps.end("gossip", began)

    def received(self, peer: str, text: bytes, now_ms: int) -> None:
        """Take what another node says of itself."""
        began = self._steps.seconds()
        info = self._directory.received(peer, text)
        if info is not None:
            self._zones.soon(info.zones_in_use, now_ms)
            self._uses.heard(info.tokens_used)
            self._figures.received(info.figures, info.figures_past)
        self._steps.end("gossip", began)

    def interval(self, *, clock_is_sure: bool) -> float:
        """Seconds until this node is to introduce itself again."""
        # At first a node does not know who belongs, and then it can notify nobody.
        belongs = bool(self._consensus.members)
        met = belongs and clock_is_sure and self._directory.all_met(self._consensus.linked())
        return INTERVAL if met else FAST_INTERVAL
