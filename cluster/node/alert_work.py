"""The leader's own work with alerts: a look at all of them now and then, some in each change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...statemachine.model import keys
from ...statemachine.model.request import MakeAlerts, Observe, Observed
from ...statemachine.tenants import own_alerts
from .applier import Applied
from .loop_steps import LoopSteps
from .pending import PendingRequest, nobody, nothing
from .troubles import Troubles
from .worker_sessions import WorkerSessions

ALERTS = 100  # Looked at in a change.
# A look at thousands of lanes keeps those who are due waiting, so it has so much of the time at
# most; and after so long there is one in any case.
LOOKS_SHARE, REST_MOST_S = 0.005, 10.0


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """What only the node of the leader sees, for alerts."""

    # A node of the cluster can be lost.
    margin: bool = True
    # By how much the clock of a node is off at most.
    skew_ms: int = 0
    # Elections of late.
    leader_changes: int = 0
    # Members differ in what they compute with.
    differ: bool = False


class AlertWork:
    """See the head of this file."""

    def __init__(
        self, applied: Applied, sessions: WorkerSessions, steps: LoopSteps, troubles: Troubles,
        wake: Callable[[], None],
    ) -> None:  # fmt: skip
        self._applied, self._sessions, self._wake = applied, sessions, wake
        self._steps, self._troubles = steps, troubles
        self.clear()

    def clear(self) -> None:
        """Nothing of it is under way."""
        # The cluster's own alerts, if they are to be made.
        self._made: PendingRequest | None = None
        # What comes next of looking at the alerts.
        self._next: PendingRequest | None = None
        self._is_looking = False
        # Before this no look begins, on the clock of the steps.
        self._rests_until = float("-inf")

    @property
    def waits(self) -> bool:
        """A piece of a look waits for a change."""
        return self._next is not None

    def take(self) -> list[PendingRequest]:
        """What goes into the next change."""
        requests = [request for request in (self._next, self._made) if request is not None]
        self._next = self._made = None
        return requests

    def make_own(self) -> None:
        """Have the cluster's own alerts made, if they were not yet."""
        if own_alerts.wanted(self._applied.meta.alerts_made):
            self._made = PendingRequest(MakeAlerts(), nothing, nobody)
            self._wake()

    def look(self, health: NodeHealth) -> None:
        """Look at all alerts, unless the last look is under way or was long, or there are none."""
        if self._steps.seconds() < self._rests_until:
            return
        one = next(self._applied.store.scan(keys.ALERT, keys.after(keys.ALERT)), None)
        if not self._is_looking and one is not None:
            self._is_looking = True
            self._look_at(b"", health)

    def took(self, seconds: float) -> None:
        """The change that a piece of a look was in took so long to decide."""
        rest_s = min(REST_MOST_S, seconds / LOOKS_SHARE)
        self._rests_until = max(self._rests_until, self._steps.seconds() + rest_s)

    def _look_at(self, after: bytes, health: NodeHealth) -> None:
        def answer(observed: object) -> None:
            if isinstance(observed, Observed) and observed.after:
                self._look_at(observed.after, health)
            else:
                self._is_looking = False

        body = Observe(
            self._sessions.connected, health.margin, health.skew_ms, ALERTS, after,
            step_ms=self._steps.recent_ms(), leader_changes=health.leader_changes,
            set_aside=self._troubles.recent(), differ=health.differ,
        )  # fmt: skip
        self._next = PendingRequest(body, answer, nobody, items=ALERTS)
        self._wake()
