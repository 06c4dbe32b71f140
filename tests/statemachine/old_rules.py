"""The rules as they once were: mistakes that an audit is to name (B1 to B6)."""

from __future__ import annotations

from collections.abc import Iterable

from raftsched.proto.v1 import job_pb2, run_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.firing import scheduled_time
from raftsched.statemachine.model.entities import Job
from raftsched.statemachine.model.record import UsageRecord
from raftsched.statemachine.model.view import View
from raftsched.statemachine.occurrences.misfire import (
    COALESCE,
    EXCLUDE,
    MISS,
    RUN,
    SKIP,
    WAIT,
    Fate,
    Fated,
)
from raftsched.statemachine.occurrences.timeline import EXCLUDED, OPEN, Stretch
from raftsched.statemachine.schedule.plan import Plan

Rule = job_pb2.MisfirePolicy


def choose(
    policy: Rule, stretches: Iterable[Stretch], plan: Plan, now_ms: int, grace_ms: int,
    deadline_ms: int,
    room: int | None, **_: bool,
) -> list[Fated]:  # fmt: skip
    """B1, B2 and B6: the policy chose among all times, those left out as well, and LATEST and
    EARLIEST did not know the grace."""
    ones = [one for stretch in stretches for one in _apart(stretch, plan)]
    rule = policy.rule or Rule.RULE_LATEST
    if not ones or now_ms - ones[0].due_ms <= grace_ms:
        return [(one, _unless(one, RUN)) for one in ones]
    number = {Rule.RULE_ALL: policy.maximum or limits.MISFIRE_DEFAULT, Rule.RULE_SKIP: 0}
    most = number.get(rule, 1)
    chosen = ones[:most] if rule == Rule.RULE_EARLIEST else ones[max(0, len(ones) - most) :]
    other = COALESCE if rule in (Rule.RULE_LATEST, Rule.RULE_EARLIEST) else MISS
    if not most:
        chosen = []
    return [(one, _unless(one, WAIT) if one in chosen else other) for one in ones]


def _apart(stretch: Stretch, plan: Plan) -> list[Stretch]:
    found, rest = [], stretch
    while rest is not None:
        one, rest = rest.earliest(plan)  # type: ignore[assignment]  # None at the end.
        found.append(one)
    return found


def _unless(one: Stretch, fate: Fate) -> Fate:
    if one.kind is OPEN:
        return fate
    return EXCLUDE if one.kind is EXCLUDED else SKIP


def fire_at_once(view: View, job: Job, plan: Plan, one: Stretch) -> None:
    """B3 and B4: what catches up does not wait for overlap or quota: it is skipped."""
    for each in _apart(one, plan):
        scheduled_time.fire(view, job, each.first, each.due_ms, run_pb2.CAUSE_SCHEDULE)


def used(usage: UsageRecord) -> int:
    """B5: the quota counted runs that are held, such as those for later."""
    return usage.live
