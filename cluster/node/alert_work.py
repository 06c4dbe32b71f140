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
# A look at more lanes than this keeps those who are due waiting, by some 45 us for each. The next
# one waits two hundred times as long, or so long at most. Counted, not timed: whether an alert is
# raised must not depend on how busy the machine is.
LANES_FEW, REST_S, REST_MOST_S = 200, 0.009, 10.0


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
        wake: Callable[[], None], *, clock_stands_still: bool = False,
    ) -> None:  # fmt: skip
        """Where the clock stands still and then goes far, there is a look at each step."""
        self._clock_stands_still = clock_stands_still
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
        # Lanes that the present look has taken; and before this, on the clock of the steps, no
        # other begins.
        self._lanes, self._rests_until = 0, float("-inf")

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
        if self._steps.seconds() < self._rests_until and not self._clock_stands_still:
            return
        one = next(self._applied.store.scan(keys.ALERT, keys.after(keys.ALERT)), None)
        if not self._is_looking and one is not None:
            self._is_looking = True
            self._look_at(b"", health)

    def _look_at(self, after: bytes, health: NodeHealth) -> None:
        def answer(observed: object) -> None:
            if isinstance(observed, Observed):
                self._lanes += observed.lanes
                if observed.after:
                    self._look_at(observed.after, health)
                    return
            self._ended()

        body = Observe(
            self._sessions.connected, health.margin, health.skew_ms, ALERTS, after,
            step_ms=self._steps.recent_ms(), leader_changes=health.leader_changes,
            set_aside=self._troubles.recent(), differ=health.differ,
        )  # fmt: skip
        self._next = PendingRequest(body, answer, nobody, items=ALERTS)
        self._wake()

    def _ended(self) -> None:
        lanes, self._lanes, self._is_looking = self._lanes, 0, False
        if lanes > LANES_FEW:
            self._rests_until = self._steps.seconds() + min(REST_MOST_S, REST_S * lanes)
