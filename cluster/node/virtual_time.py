"""Time as tests want it: it stands still, and goes from one due time to the next when it is moved.

A test writes where time is to go into a small file that all its nodes have mapped. So they see one
and the same time, there is nothing to skew, and a leader that comes after another goes on from
there. The leader does the going: to the next due time, not further before all that was due is done
and the handlers of workers have ended. Sessions, heartbeats and elections go by the real clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from ...statemachine.core.store import Reading
from ...statemachine.model import keys
from ...statemachine.model.record import RunRecord, SessionRecord, parse
from .leader_loop import Leader
from .virtual_clock import VirtualClock

LOOK_S = 0.005

# A lease by its token, and whether its worker was asked to stop.
Held = tuple[int, bool]


class VirtualTimeDriver:
    """What the leader does about it, whenever it has nothing else to do."""

    def __init__(
        self,
        clock: VirtualClock,
        leader: Leader,
        wake: Callable[[], None],
        watch_alerts: Callable[[], None],
    ) -> None:
        self.clock, self._leader, self._wake = clock, leader, wake
        self._watch_alerts = watch_alerts
        # Leases whose handlers have held time up for long enough.
        self._given_up: set[Held] = set()
        self._request = 0
        self._waited_for: set[Held] = set()
        self._looking: asyncio.TimerHandle | None = None
        self._waiting: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._look()

    def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        self._wait_for(set())

    def _look(self) -> None:
        """Nobody calls when the file is written to."""
        self._looking = self._loop.call_later(LOOK_S, self._look)
        if self.clock.is_asked:
            self._wake()

    def advance(self) -> None:
        """Nothing is due and nothing under way: wait for handlers, go on, or be there."""
        clock, leader = self.clock, self._leader
        # Read before what it asks for, so that a later request is not taken for this one.
        request = clock.request
        if request != self._request:
            self._request = request
            self._given_up.clear()
            self._wait_for(set())
        if not clock.is_asked or not leader.rests or self._handlers_run():
            return
        now_ms, until_ms = clock.now_ms(), clock.until_ms
        if now_ms >= until_ms:
            clock.arrived(request)
            return
        next_ms = leader.next_due_ms()
        clock.go_to(until_ms if next_ms is None else min(max(next_ms, now_ms + 1), until_ms))
        self._watch_alerts()
        self._wake()

    def _handlers_run(self) -> bool:
        held = set(held_leases(self._leader.applied.store))
        self._given_up &= held
        self._wait_for(held - self._given_up)
        return bool(self._waited_for)

    def _wait_for(self, leases: set[Held]) -> None:
        """As long as some of them end now and then, time waits for them."""
        if leases == self._waited_for:
            return
        self._waited_for = leases
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if leases:
            self._waiting = self._loop.call_later(self.clock.handler_s, self._wait_no_longer)

    def _wait_no_longer(self) -> None:
        self._given_up |= self._waited_for
        self._wake()


def held_leases(store: Reading) -> Iterator[Held]:
    """Yield all leases. One that is to be cancelled is not the same as before: its worker has yet
    to answer to that."""
    for key, value in store.scan(keys.SESSION, keys.after(keys.SESSION)):
        session = parse(key, value, SessionRecord)
        first = keys.lease(session.number, session.token_from)
        end = keys.lease(session.number, keys.OCCURRENCE_MAX)
        for lease, place in store.scan(first, end) if session.leased else ():
            at = keys.run(*keys.run_of(place))
            found = store.get(at)
            assert found is not None, f"the run of the lease {lease!r} is gone"
            run = parse(at, found, RunRecord)
            yield keys.run_of(lease)[1], bool(run.cancel_at_ms)
