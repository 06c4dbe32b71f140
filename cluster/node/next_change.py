"""What goes into the leader's next change, in which order, and how much time each kind has.

Completions come first, since they free capacity; each kind is bounded, so none starves. What a
change has no room for comes first of its kind in the next one; callers take turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import inf

from ...statemachine.core.limits import CHANGE_ITEMS
from ...statemachine.model.request import LEFT, FireTimers, Note, Report
from .alert_work import AlertWork
from .call_queue import CallQueue
from .due_times import DueTimes, is_due
from .pending import PendingRequest
from .time_shares import OTHERS, Haste, TimeShares, WorkKind, kind_of
from .token_uses import TokenUses
from .worker_sessions import WorkerSessions

# What is due so soon is not to wait for a change that is filled with other work: the longest, and
# agreeing on it.
NEAR_MS = 45
# What is due waits for no more than that in its own change.
QUICK_S = 0.003
# Where changes last so long, up to so long, the last one before somebody is due waits for him.
WAIT_LEAST_MS = 3
WAIT_S = 0.020
REPORTED = (Note, Report)  # What workers have reported of single runs.


class NextChange:
    """See the head of this file."""

    def __init__(
        self,
        sessions: WorkerSessions,
        due: DueTimes,
        alerts: AlertWork,
        uses: TokenUses,
        seconds: Callable[[], float],
    ) -> None:
        self.calls = CallQueue()
        self._sessions, self._due, self._alerts, self._seconds = sessions, due, alerts, seconds
        self._uses = uses
        # What the last change had no room for.
        self._carried: deque[PendingRequest] = deque()
        # The last one was without what others ask for, to be quick; or it held some of that. How
        # long the last one of these took to decide, and to its end.
        self._goes_ahead = self._held_others = False
        self._others_s = self._lasts_s = 0.0
        # Progress that comes in calls and on streams goes first by turns.
        self._calls_first = False

    @property
    def is_empty(self) -> bool:
        """Nothing waits that is not found in the state."""
        waits = self._carried or self.calls.turns or self._alerts.waits or self._uses.waits
        return not (waits or self._sessions.has_reports)

    def clear(self) -> list[PendingRequest]:
        """Leave out what the last change had no room for, and return it."""
        carried, self._carried = list(self._carried), deque()
        return carried

    def gather(self, now_ms: int, *, fires: bool) -> list[PendingRequest]:
        """What is to be done now. Where the clock is wrong, nothing fires and nobody is asked to
        take leases."""
        carried = self.clear()
        pending = [one for one in carried if kind_of(one) is WorkKind.REPORTS]
        grant = next((one for one in carried if kind_of(one) is WorkKind.GRANT), None)
        if not pending:
            pending = self._sessions.reports(CHANGE_ITEMS) + self._sessions.lapses(10)
        now_ms = now_ms if fires else -1
        if is_due(self._due.timer_ms, now_ms):
            pending.append(self._due.fire())
        pending += self._gather_others([one for one in carried if kind_of(one) in OTHERS], now_ms)
        if fires and grant is None:
            grant = self._grant(now_ms, anew=bool(pending))
        return pending if grant is None else [*pending, grant]

    def _grant(self, now_ms: int, *, anew: bool) -> PendingRequest | None:
        allowed = is_due(self._due.allowance_ms, now_ms)
        if not (anew or allowed or self._sessions.fresh):
            return None
        grant = self._sessions.grant(CHANGE_ITEMS, anew=anew or allowed)
        if grant is None and allowed:
            # Nobody would take what it allows; whoever comes asks anew.
            self._due.allowance_ms = None
        return grant

    def _gather_others(self, carried: list[PendingRequest], now_ms: int) -> list[PendingRequest]:
        """What neither frees what others wait for nor is due. If it lasts long, somebody who is due
        now goes ahead of it, in a change without it; the next one has it again."""
        waits = is_due(self._due.other_ms, now_ms)
        self._goes_ahead = waits and not self._goes_ahead and self._others_s > QUICK_S
        if self._goes_ahead:
            self._carried.extend(carried)
            return []
        hellos = [one for one in carried if kind_of(one) is WorkKind.HELLOS]
        pending = hellos or self._sessions.hellos(CHANGE_ITEMS)
        calls, progress = self.calls.take(), self._sessions.progress(CHANGE_ITEMS)
        self._calls_first = not self._calls_first
        # What workers say goes first. Each kind stands together, since its first is always asked.
        pending += sorted(
            [*calls, *progress] if self._calls_first else [*progress, *calls], key=kind_of
        )
        if is_due(self._due.later_ms, now_ms):
            pending.append(self._due.fire_later())
        pending += [one for one in carried if kind_of(one) is WorkKind.LATER]
        return pending + self._alerts.take() + self._uses.take()

    def waits_for_due(self, now_ms: int) -> bool:
        """Whether a change that begins now would be on its way still when somebody is due, who
        would wait for it. So the next one waits for him, unless the last one did."""
        due_ms, lasts_ms = self._due.timer_ms, int(1000 * min(self._lasts_s, WAIT_S))
        if due_ms is None or not self._held_others or lasts_ms < WAIT_LEAST_MS:
            return False
        return 0 < due_ms - now_ms <= lasts_ms

    def shares(self, pending: list[PendingRequest], now_ms: int) -> TimeShares:
        """How its kinds share its time."""
        other_ms = self._due.other_ms
        left_s = inf if other_ms is None else (other_ms - now_ms) / 1000
        return TimeShares(self._seconds, self._haste(pending, now_ms), left_s)

    def _haste(self, pending: list[PendingRequest], now_ms: int) -> Haste:
        near_ms = now_ms + NEAR_MS
        if is_due(self._due.other_ms, near_ms) and not self._due.is_behind:
            return Haste.OTHERS
        if is_due(self._due.timer_ms, near_ms):
            return Haste.MANY_DUE
        frees = any(kind_of(one) is WorkKind.REPORTS for one in pending)
        return Haste.MANY_DUE if frees else Haste.NOBODY

    def decided(
        self, pending: list[PendingRequest], replies: list[object], took_s: float
    ) -> tuple[list[PendingRequest], list[object]]:
        """Those that were decided, with their replies. The others come first in the next change,
        each among its kind; timers are found in the state."""
        if len(replies) < len(pending) or any(reply is LEFT for reply in replies):
            pending, replies = self._keep_left(pending, replies)
        self._held_others = any(kind_of(one) in OTHERS for one in pending)
        if self._held_others:
            self._others_s = took_s
        return pending, replies

    def ended(self, lasted_s: float) -> None:
        """The change that was decided last is over."""
        if self._held_others:
            self._lasts_s = lasted_s

    def _keep_left(
        self, pending: list[PendingRequest], replies: list[object]
    ) -> tuple[list[PendingRequest], list[object]]:
        replies = replies + [LEFT] * (len(pending) - len(replies))
        both = list(zip(pending, replies, strict=True))
        self.put_back(
            [one for one, reply in both if reply is LEFT and not isinstance(one.body, FireTimers)]
        )
        both = [(one, reply) for one, reply in both if reply is not LEFT]
        return [one for one, _ in both], [reply for _, reply in both]

    def put_back(self, pending: Sequence[PendingRequest]) -> None:
        """These come first in the next change, in this order."""
        own = [one for one in pending if not one.asked]
        for one in own:
            if isinstance(one.body, REPORTED):
                # Nothing of it was taken: its session has it again, with what comes meanwhile.
                one.answer([])
        self._carried.extendleft(one for one in reversed(own) if not isinstance(one.body, REPORTED))
        self.calls.put_back([one for one in pending if one.asked])
