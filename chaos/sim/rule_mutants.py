"""Known mistakes of schedulers, each of which can be switched on for the time of a history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any, cast

from ...cluster.node import leader_loop as leaders
from ...cluster.node.leader_loop import Leader
from ...cluster.node.limits import HEARTBEAT_MS
from ...cluster.node.pending import PendingRequest
from ...cluster.node.worker_sessions import WorkerSessions
from ...proto.v1 import run_pb2
from ...statemachine.core.budget import Budget, unlimited
from ...statemachine.core.store import Reading
from ...statemachine.firing import catch_up, dispatch, scheduled_time
from ...statemachine.model import keys
from ...statemachine.model.entities import Job
from ...statemachine.model.phases import READY
from ...statemachine.model.request import DropEntry, FireTimer, FireTimers, Request, WorkDone
from ...statemachine.model.view import Recall, View
from ...statemachine.occurrences import ledger, misfire, next_time
from ...statemachine.occurrences.misfire import COALESCE, WAIT, Fated
from ...statemachine.occurrences.timeline import Stretch
from ...statemachine.piecewise import LEADER_RULES, Careful, LeaderRule
from ...statemachine.runs import overlap, runs
from ...statemachine.runs.move import move
from ...statemachine.schedule.plan import Plan

LIMIT = 1_000


class Office:
    """Whether the decision that is being made is the first of a leader, or its first fire."""

    first = False
    first_firing = False


class NewLeader(Leader):
    """Says so to the rules that are broken."""

    fresh = False
    rang = True

    def gained(self) -> None:
        self.fresh, self.rang = True, False
        super().gained()

    def _decide(self, parts: list[PendingRequest]) -> None:
        rings = any(isinstance(part.body, FireTimers) for part in parts)
        Office.first, Office.first_firing = self.fresh, rings and not self.rang
        self.fresh, self.rang = False, self.rang or rings
        try:
            super()._decide(parts)
        finally:
            Office.first = Office.first_firing = False


class DiesOfIt(Leader):
    """What fails in the rules ends the node, as it ends the next one."""

    def _decide(self, parts: list[PendingRequest]) -> None:
        super()._decide(parts)
        assert not self.troubles.counts, "a rule failed, and the node ends"


def drops_neighbours() -> AbstractContextManager[None]:
    """When the work of one timer fails, those behind it are dropped with it."""
    genuine = Careful._fire_timers

    def fire(self: Careful, request: Request) -> WorkDone:
        if cast(FireTimers, request.body).later:
            return genuine(self, request)
        due, _, _ = dispatch.due_now(View(self.layer, self.now_ms), LIMIT, later=False)
        for done, key in enumerate(due):
            self._own(Request(FireTimer(key)), self._jid_of(key))
            if any(failure.fate == "set aside" for failure in self.outcome.failures):
                for other in due[done + 1 :]:
                    self._attempt(Request(DropEntry(other)))
                break
        return WorkDone(len(due), more=False)

    return exchanged_item(LEADER_RULES, FireTimers, fire)


@contextmanager
def exchanged_item(table: dict[type, LeaderRule], key: type, what: LeaderRule) -> Iterator[None]:
    """As `exchanged`, for an entry of a table."""
    before = table[key]
    table[key] = what
    try:
        yield
    finally:
        table[key] = before


class LapsesAtOnce(WorkerSessions):
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


class LapsesByTheWall(WorkerSessions):
    """Silence is measured by a clock that may be set."""

    def __init__(
        self,
        clock_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        wake: Callable[[], None],
        heartbeat_ms: int = HEARTBEAT_MS,
    ) -> None:
        # The clock that the node was given, not the one that waits for others to agree.
        raw_ms = getattr(getattr(wall_ms, "__self__", None), "wall_ms", wall_ms)
        super().__init__(raw_ms, wall_ms, wake, heartbeat_ms)


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


def drops(view: View, job: Job) -> None:
    """A new leader goes on from now; what fell due in between has no outcome."""
    state = job.state
    if Office.first_firing and state.next_scheduled_at_ms and state.next_due_at_ms <= view.now_ms:
        next_time.advance_behind(view, job, view.now_ms)
    fire_due(view, job)


def doubles(view: View, job: Job) -> None:
    """A new leader cannot know whether the last one fired, and does it again."""
    last_ms = job.state.last_scheduled_at_ms
    if Office.first_firing and last_ms:
        state = view.change_state(job)
        state.serial += 1
        occurrence = keys.occurrence_of(last_ms, state.serial)
        cause, outcome = run_pb2.CAUSE_SCHEDULE, run_pb2.OUTCOME_RAN
        move(view, runs.new(job, occurrence, cause, outcome, last_ms), READY)
    fire_due(view, job)


def nothing_stands(*world: Any, **more: Any) -> list[Fated]:  # noqa: ANN401
    """Where another run is to stand for what was missed, none does."""
    chosen = choose(*world, **more)
    missed = any(fate is COALESCE for _, fate in chosen)
    return [(one, COALESCE if missed and fate is WAIT else fate) for one, fate in chosen]


def knows_no_grace(
    policy: Any, ones: Any, plan: Any, now_ms: int, grace_ms: int, *world: Any, **more: Any,  # noqa: ANN401
) -> list[Fated]:  # fmt: skip
    """What is late by a little is missed as well."""
    return choose(policy, ones, plan, now_ms, 0, *world, **more)


class CatchesUp:
    """What catches up does not wait: it is given another outcome."""

    def __init__(self, outcome: run_pb2.Outcome.ValueType) -> None:
        self.outcome = outcome

    def wait(self, view: View, job: Job, plan: Plan, one: Stretch) -> None:
        ledger.stretch(view, job, plan, one.first, one.last, self.outcome)


def counts_what_is_held(
    view: View, job: Job, scheduled_ms: int, *late: Any, **more: Any,  # noqa: ANN401
) -> bool:  # fmt: skip
    """A quota that is used up by what is not under way: each third time finds it so."""
    if scheduled_ms // 1000 % 3 == 0 and not more.get("waited"):
        ledger.record(view, job, scheduled_ms, run_pb2.OUTCOME_SKIPPED_QUOTA)
        return True
    return fire(view, job, scheduled_ms, *late, **more)


def lets_all_begin(view: View, job: Job) -> overlap.Verdict:
    """A run of a schedule begins, whatever is under way."""
    return overlap.GO


def lets_nothing_go(view: View, job: Job) -> None:
    """What is held for the end of a run does not hear of it."""


fire = scheduled_time.fire
fire_due, choose = dispatch.fire_due, misfire.choose


@contextmanager
def exchanged(module: ModuleType | type, name: str, what: object) -> Iterator[None]:
    """Put something else in the place of what a module or class has, for the time of a history."""
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


def stands_by_hand() -> AbstractContextManager[None]:
    return exchanged(catch_up, "_wait", CatchesUp(run_pb2.OUTCOME_SKIPPED_MANUALLY).wait)


def skips_for_overlap() -> AbstractContextManager[None]:
    return exchanged(catch_up, "_wait", CatchesUp(run_pb2.OUTCOME_SKIPPED_OVERLAP).wait)


def skips_for_quota() -> AbstractContextManager[None]:
    return exchanged(catch_up, "_wait", CatchesUp(run_pb2.OUTCOME_SKIPPED_QUOTA).wait)


def counts_held_runs() -> AbstractContextManager[None]:
    return exchanged(scheduled_time, "fire", counts_what_is_held)


def ignores_the_grace() -> AbstractContextManager[None]:
    return exchanged(misfire, "choose", knows_no_grace)


def doubles_occurrences() -> AbstractContextManager[None]:
    return exchanged(dispatch, "fire_due", doubles)


def ignores_overlap() -> AbstractContextManager[None]:
    return exchanged(overlap, "judge", lets_all_begin)


def forgets_what_is_held() -> AbstractContextManager[None]:
    return exchanged(runs, "let_held_go", lets_nothing_go)
