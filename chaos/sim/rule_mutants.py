"""Known mistakes of schedulers, each of which can be switched on for the time of a history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any, cast

from ...cluster import leader as leaders
from ...cluster.leader import Leader
from ...cluster.part import Part
from ...cluster.sessions import Sessions
from ...proto.v1 import run_pb2
from ...statemachine.core.budget import Budget, unlimited
from ...statemachine.core.store import Reading
from ...statemachine.firing import dispatch
from ...statemachine.model import keys
from ...statemachine.model.phases import READY
from ...statemachine.model.record import JobRecord, StateRecord
from ...statemachine.model.request import DropEntry, Request, Ring, RingOne, Rung
from ...statemachine.model.view import Recall, View
from ...statemachine.occurrences import misfire, next_time
from ...statemachine.occurrences.misfire import COALESCE, WAIT, Fated
from ...statemachine.piecewise import LEADER_RULES, Careful, LeaderRule
from ...statemachine.runs import runs
from ...statemachine.runs.move import move

LIMIT = 1_000


class Office:
    """Whether the decision that is being made is the first of a leader, or its first ring."""

    first = False
    first_ring = False


class NewLeader(Leader):
    """Says so to the rules that are broken."""

    fresh = False
    rang = True

    def gained(self) -> None:
        self.fresh, self.rang = True, False
        super().gained()

    def _decide(self, parts: list[Part]) -> None:
        rings = any(isinstance(part.body, Ring) for part in parts)
        Office.first, Office.first_ring = self.fresh, rings and not self.rang
        self.fresh, self.rang = False, self.rang or rings
        try:
            super()._decide(parts)
        finally:
            Office.first = Office.first_ring = False


class DiesOfIt(Leader):
    """What fails in the rules ends the node, as it ends the next one."""

    def _decide(self, parts: list[Part]) -> None:
        super()._decide(parts)
        assert not self.troubles.counts, "a rule failed, and the node ends"


def drops_neighbours() -> AbstractContextManager[None]:
    """When the work of one timer fails, those behind it are dropped with it."""
    genuine = Careful._ring

    def ring(self: Careful, request: Request) -> Rung:
        if cast(Ring, request.body).later:
            return genuine(self, request)
        due, _, _ = dispatch.due_now(View(self.layer, self.now_ms), LIMIT, later=False)
        for done, key in enumerate(due):
            self._own(Request(RingOne(key)), self._jid_of(key))
            if any(failure.fate == "set aside" for failure in self.outcome.failures):
                for other in due[done + 1 :]:
                    self._attempt(Request(DropEntry(other)))
                break
        return Rung(len(due), more=False)

    return exchanged_item(LEADER_RULES, Ring, ring)


@contextmanager
def exchanged_item(table: dict[type, LeaderRule], key: type, what: LeaderRule) -> Iterator[None]:
    """As `exchanged`, for an entry of a table."""
    before = table[key]
    table[key] = what
    try:
        yield
    finally:
        table[key] = before


class LapsesAtOnce(Sessions):
    """A new leader does not wait for those who hold leases; it has never heard them."""

    def heard(self, session: object, at_ms: int | None = None) -> None:
        super().heard(session, at_ms)  # type: ignore[arg-type]  # As below.
        if self.taking_over:
            session.heard_ms -= self.lapse_ms  # type: ignore[attr-defined]  # It is a Session.

    taking_over = False

    def takeover(self, workers: Iterator[str]) -> None:  # type: ignore[override]  # As it is called.
        self.taking_over = True
        try:
            super().takeover(workers)
        finally:
            self.taking_over = False


class LapsesByTheWall(Sessions):
    """Silence is measured by a clock that may be set."""

    def __init__(
        self,
        clock_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        poke: Callable[[], None],
        heartbeat_ms: int = 2_000,
    ) -> None:
        # The clock that the node was given, not the one that waits for others to agree.
        raw_ms = getattr(getattr(wall_ms, "__self__", None), "wall_ms", wall_ms)
        super().__init__(raw_ms, wall_ms, poke, heartbeat_ms)


class Forgetful(View):
    """The last tokens that a leader gave out are forgotten with it."""

    def __init__(
        self,
        store: Reading,
        now_ms: int,
        recall: Recall | None = None,
        is_spent: Budget = unlimited,
    ) -> None:
        super().__init__(store, now_ms, recall, is_spent)
        if Office.first:
            self.meta.token = max(0, self.meta.token - 3)


class Tireless(View):
    """A decision goes on until all is done, whatever time it has."""

    @property
    def is_full(self) -> bool:
        return False


def drops(view: View, jid: int, job: JobRecord, state: StateRecord) -> None:
    """A new leader goes on from now; what fell due in between has no outcome."""
    if Office.first_ring and state.next_scheduled_at_ms and state.next_due_at_ms <= view.now_ms:
        next_time.advance_behind(view, jid, job, state, view.now_ms)
    fire_due(view, jid, job, state)


def doubles(view: View, jid: int, job: JobRecord, state: StateRecord) -> None:
    """A new leader cannot know whether the last one fired, and does it again."""
    last_ms = state.last_scheduled_at_ms
    if Office.first_ring and last_ms:
        run = runs.new(job, run_pb2.CAUSE_SCHEDULE, run_pb2.OUTCOME_RAN, last_ms)
        state.serial += 1
        occasion = keys.occasion_of(last_ms, state.serial)
        move(view, jid, occasion, run, READY, state, job.form)
    fire_due(view, jid, job, state)


def nothing_stands(*world: Any) -> list[Fated]:  # noqa: ANN401
    """Where another run is to stand for what was missed, none does."""
    chosen = choose(*world)
    missed = any(fate is COALESCE for _, fate in chosen)
    return [(one, COALESCE if missed and fate is WAIT else fate) for one, fate in chosen]


fire_due, choose = dispatch.fire_due, misfire.choose


@contextmanager
def exchanged(module: ModuleType, name: str, what: object) -> Iterator[None]:
    """Put something else in the place of what a module has, for the time of a history."""
    before = getattr(module, name)
    setattr(module, name, what)
    try:
        yield
    finally:
        setattr(module, name, before)


# Functions by name, since mutants go to other processes.


def forgets_tokens() -> AbstractContextManager[None]:
    return exchanged(leaders, "View", Forgetful)


def ignores_the_time() -> AbstractContextManager[None]:
    return exchanged(leaders, "View", Tireless)


def drops_occurrences() -> AbstractContextManager[None]:
    return exchanged(dispatch, "fire_due", drops)


def coalesces_all() -> AbstractContextManager[None]:
    return exchanged(misfire, "choose", nothing_stands)


def doubles_occurrences() -> AbstractContextManager[None]:
    return exchanged(dispatch, "fire_due", doubles)
