"""Known mistakes of rules, each of which can be switched on for the time of a history of days."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from ...proto.v1 import namespace_pb2
from ...statemachine.firing import backlog, catch_up, dispatch
from ...statemachine.model import keys, specs
from ...statemachine.model.entities import Job, Run
from ...statemachine.model.record import RunRecord
from ...statemachine.model.view import View
from ...statemachine.occurrences import misfire, next_time
from ...statemachine.rules import RULES
from ...statemachine.runs import slots
from ...statemachine.schedule import compiler
from ...statemachine.schedule.calendar_days import CalendarDays
from ...statemachine.schedule.zones import Zone
from ...statemachine.tenants import idempotency, namespaces
from .rule_mutants import exchanged

DAY_MS = 86_400_000


@contextmanager
def all_of(*exchanges: AbstractContextManager[None]) -> Iterator[None]:
    with ExitStack() as stack:
        for exchange in exchanges:
            stack.enter_context(exchange)
        yield


def pause_forgotten() -> AbstractContextManager[None]:
    """Whoever goes on with what waits does not ask whether a job is paused."""
    genuine = dispatch._wake_backlog

    def wake(view: View, jid: int) -> None:
        job = view.find_job(jid)
        if job is None or job.state.state != next_time.PAUSED or not job.state.backlog:
            genuine(view, jid)
            return
        view.delete(keys.catch_up(jid))
        backlog.release(view, job)
        next_time.reschedule(view, job)

    return exchanged(dispatch, "_wake_backlog", wake)


def old_limit_holds() -> AbstractContextManager[None]:
    """A limit that is edited counts as it was when its job was first looked at."""
    kept: dict[int, int] = {}
    genuine = slots.full

    def full(view: View, run: Run) -> int:
        limit = run.job.definition.template.spec.concurrency.job
        if run.job.state.running >= kept.setdefault(run.jid, limit or 1_000):
            return RunRecord.PARKING_JOB
        why = genuine(view, run)
        return why if why != RunRecord.PARKING_JOB else RunRecord.PARKING_UNSPECIFIED

    return exchanged(slots, "full", full)


def days_by_winter_time() -> AbstractContextManager[None]:
    """On a day on which clocks go forward or back a calendar leaves nothing out."""
    genuine = CalendarDays.leaves_out

    def leaves_out(self: CalendarDays, instant_ms: int, job_zone: Zone) -> bool:
        zone = self.zone or job_zone
        offsets = {zone.segment_at((instant_ms + by) // 1000).offset for by in (-DAY_MS, DAY_MS)}
        return len(offsets) == 1 and genuine(self, instant_ms, job_zone)

    return exchanged(CalendarDays, "leaves_out", leaves_out)


def late_by_the_last_decision() -> AbstractContextManager[None]:
    """How late a time is counts up to the last decision before the outage, so none was missed."""
    last: list[int] = [0]
    genuine_decide, genuine_choose = catch_up.decide, misfire.choose

    def decide(view: View, job: Job) -> bool:
        last[0] = view.since_ms
        return genuine_decide(view, job)

    def choose(policy: Any, ones: Any, plan: Any, now_ms: int, *world: Any, **more: Any) -> Any:  # noqa: ANN401
        return genuine_choose(policy, ones, plan, last[0] or now_ms, *world, **more)

    return all_of(exchanged(catch_up, "decide", decide), exchanged(misfire, "choose", choose))


def quota_edit_leaks() -> AbstractContextManager[None]:
    """With each edit of a quota one place of it is lost."""
    genuine = namespaces.wake_quota

    def wake(view: View, number: int, usage: Any) -> None:  # noqa: ANN401
        usage.live += 1
        genuine(view, number, usage)

    return _in_update("wake_quota", wake)


def _in_update(name: str, what: Callable[..., None]) -> AbstractContextManager[None]:
    """Something else in the place of a function, while a namespace is updated."""
    genuine = RULES[namespace_pb2.UpdateNamespaceRequest]

    def update(view: View, request: Any, actor: str) -> object:  # noqa: ANN401
        with exchanged(namespaces, name, what):
            return genuine(view, request, actor)

    return _rule(namespace_pb2.UpdateNamespaceRequest, update)


@contextmanager
def _rule(kind: type, what: Callable[[Any, Any, str], object]) -> Iterator[None]:
    before = RULES[kind]
    RULES[kind] = what
    try:
        yield
    finally:
        RULES[kind] = before


def one_run_more() -> AbstractContextManager[None]:
    """A job with max_runs has one more than that."""
    genuine = next_time.runs_left
    return exchanged(next_time, "runs_left", lambda job, from_ms: genuine(job, from_ms) + 1)


def answers_forgotten() -> AbstractContextManager[None]:
    """Who asks again under the same id asks anew."""
    return exchanged(idempotency, "find", lambda *_: None)


@contextmanager
def gaps_are_skipped() -> Iterator[None]:
    """What the clocks leave out is left out, whatever the order says."""
    try:
        with exchanged(vars(compiler)["ZonedCron"], "_gap_runs", lambda *_: False):
            _forget_plans()
            yield
    finally:
        _forget_plans()


def _forget_plans() -> None:
    """Those that were compiled keep their last answers."""
    for module in (compiler, specs):
        for one in vars(module).values():
            if hasattr(one, "cache_clear"):
                one.cache_clear()
