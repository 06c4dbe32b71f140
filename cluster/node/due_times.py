"""When the state has something to do by itself: timers, what can wait, the allowance of a queue."""

from __future__ import annotations

from ...statemachine.core.limits import CHANGE_ITEMS
from ...statemachine.model import timers
from ...statemachine.model.request import FireTimers, WorkDone
from .applier import Applied
from .pending import PendingRequest, nobody

# So many timers a change is asked to do at least, however few the last ones had time for.
LEAST = 128
# After so many changes that left some of those that fell due beside many, these are many, too.
BEHIND = 3


class TimerCount:
    """How many timers the next change is asked to do: twice what the last one had time for.

    A change looks for all that it is asked for, and reads their jobs, before it does the first of
    them. Asked for a thousand where there is time for fifty, it has time for fewer still.
    """

    def __init__(self) -> None:
        self.most = CHANGE_ITEMS

    def learn(self, fired: WorkDone) -> None:
        had_no_time = fired.more and fired.done < self.most
        self.most = max(LEAST, 2 * fired.done) if had_no_time else 2 * self.most
        self.most = min(self.most, CHANGE_ITEMS)


class DueTimes:
    """See the head of this file. Instants of the state's time; None: there is nothing to do."""

    def __init__(self, applied: Applied) -> None:
        self._applied = applied
        self.timer_ms: int | None = None
        # Of what falls due behind what is left over from many jobs due at once.
        self.other_ms: int | None = None
        # Changes in a row behind which some of these were left over as well.
        self._behind = 0
        self.later_ms: int | None = None
        self.allowance_ms: int | None = None
        # Where those begin that fall due behind it; b"": nothing is left over.
        self._fresh_from = b""
        self._count, self._later_count = TimerCount(), TimerCount()

    def begin(self) -> None:
        """This node leads from now on."""
        self._fresh_from, self.allowance_ms = b"", None
        self.look()

    def look(self) -> None:
        """See what the state has to do after a change."""
        store, meta = self._applied.store, self._applied.meta
        first_ms = self.timer_ms = self.other_ms = timers.next_due_ms(store, meta)
        is_left = is_due(first_ms, meta.now_ms)
        if is_left:
            self.other_ms = timers.next_due_ms(store, meta, self._fresh_from)
        are_left = is_left and bool(self._fresh_from) and is_due(self.other_ms, meta.now_ms)
        self._behind = self._behind + 1 if are_left else 0
        self.later_ms = timers.next_later_ms(store, meta)

    @property
    def is_behind(self) -> bool:
        """More falls due than changes do that are quick for the sake of those beside many."""
        return self._behind >= BEHIND

    def next_ms(self) -> int | None:
        return first(self.timer_ms, self.later_ms, self.allowance_ms)

    def fire(self) -> PendingRequest:
        """What is due goes on where the last one ended."""

        def answer(fired: object) -> None:
            self._fresh_from = fired.fresh_from if isinstance(fired, WorkDone) else b""
            if isinstance(fired, WorkDone):
                self._count.learn(fired)

        most = self._count.most
        body = FireTimers(most, later=False, fresh_from=self._fresh_from)
        return PendingRequest(body, answer, nobody, items=most)

    def fire_later(self) -> PendingRequest:
        """What can wait."""

        def answer(fired: object) -> None:
            if isinstance(fired, WorkDone):
                self._later_count.learn(fired)

        most = self._later_count.most
        return PendingRequest(FireTimers(most, later=True), answer, nobody, items=most)


def first(*instants_ms: int | None) -> int | None:
    return min((ms for ms in instants_ms if ms is not None), default=None)


def is_due(instant_ms: int | None, now_ms: int) -> bool:
    return instant_ms is not None and instant_ms <= now_ms
