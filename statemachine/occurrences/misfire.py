"""What becomes of times that are due, some of them late: a pure choice.

What is late by no more than the grace is in time and runs, under every policy. The policy speaks of
the others, which were missed, and chooses among those that may run: what a calendar leaves out,
somebody skipped or is past its start deadline is none of these and stands for nobody.

Times that are in time together are one choice where the overlap policy has room for so many only
(each policy but ALLOW without a limit): the latest run, and stand for the others. Under ALL none
stands for another, so all of them wait for their turn. Where there is room for none each is left to
the overlap policy. What comes behind one that waits waits as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from ...proto.v1 import job_pb2
from ..core import limits
from ..schedule.plan import Plan
from .timeline import EXCLUDED, OPEN, Stretch

Rule = job_pb2.MisfirePolicy


class Fate(Enum):
    """What becomes of a time."""

    # Now: it is in time.
    RUN = "run"
    # As soon as the outage guard and the overlap policy let it.
    WAIT = "wait"
    # Another run stands for it.
    COALESCE = "coalesce"
    MISS = "miss"
    EXCLUDE = "exclude"
    SKIP = "skip"
    # It is past its start deadline.
    EXPIRE = "expire"


RUN, WAIT, COALESCE, MISS, EXCLUDE, SKIP, EXPIRE = Fate
Fated = tuple[Stretch, Fate]


def choose(
    policy: job_pb2.MisfirePolicy, stretches: Iterable[Stretch], plan: Plan,
    now_ms: int, grace_ms: int, deadline_ms: int, room: int | None, *, is_full: bool = False,
    is_behind: bool = False,
) -> list[Fated]:  # fmt: skip
    """What becomes of each, in the order in which they are due. `room`: how many more runs the
    overlap policy lets begin now; None: it says no to none for being too many. `is_full`: the quota
    of runs lets none begin. `is_behind`: older ones wait, and go first."""
    may_run, found = _apart(stretches)
    late: list[Stretch] = []
    in_time: list[Stretch] = []
    for stretch in may_run:
        expired, one = stretch.before(plan, now_ms - deadline_ms + 1)
        found += [(expired, EXPIRE)] if expired else []
        if one is None:
            continue
        missed, others = one.before(plan, now_ms - grace_ms)
        late += [missed] if missed else []
        in_time += [others] if others else []
    rule = policy.rule or Rule.RULE_LATEST
    together = sum(one.count for one in in_time)
    too_many = not is_full and room is not None and 0 < room < together
    if rule == Rule.RULE_ALL and (late or too_many):
        # What is in time uses up no maximum.
        most = min((policy.maximum or limits.MISFIRE_DEFAULT) + together, limits.MISFIRE_RUNS)
        return _in_order(found + _newest(plan, late + in_time, most, WAIT, MISS))
    found += _missed(rule, plan, late, stands=bool(in_time))
    # What comes behind one that waits waits as well; so does what stands for those that were missed
    # where there is no room for it.
    no_room = is_full or room == 0
    waits = bool(late) and (rule == Rule.RULE_EARLIEST or (rule == Rule.RULE_LATEST and no_room))
    waits = waits or is_behind
    number = together
    if room or (waits and room is not None):
        number = max(room, 1)
    return _in_order(found + _newest(plan, in_time, number, WAIT if waits else RUN, COALESCE))


def miss(stretches: Iterable[Stretch]) -> list[Fated]:
    """None of those that may run does."""
    may_run, found = _apart(stretches)
    return _in_order([(one, MISS) for one in may_run] + found)


def _apart(stretches: Iterable[Stretch]) -> tuple[list[Stretch], list[Fated]]:
    """Those that may run, and what becomes of the others in any case."""
    may_run: list[Stretch] = []
    left_out: list[Fated] = []
    for one in stretches:
        if one.kind is OPEN:
            may_run.append(one)
        else:
            left_out.append((one, EXCLUDE if one.kind is EXCLUDED else SKIP))
    return may_run, left_out


def _in_order(fated: list[Fated]) -> list[Fated]:
    return sorted(fated, key=lambda item: (item[0].due_ms, item[0].first))


def _missed(
    rule: job_pb2.MisfirePolicy.Rule.ValueType, plan: Plan, late: list[Stretch], *, stands: bool
) -> list[Fated]:
    """Of what was missed; `stands`: a later one is in time."""
    if rule == Rule.RULE_SKIP:
        return [(one, MISS) for one in late]
    if rule == Rule.RULE_LATEST:
        return _newest(plan, late, 0 if stands else 1, WAIT, COALESCE)
    if not late:
        return []
    earliest, others = late[0].earliest(plan)
    behind = [others] if others else []
    return [(earliest, WAIT), *((one, COALESCE) for one in (*behind, *late[1:]))]


def _newest(
    plan: Plan, stretches: list[Stretch], number: int, chosen: Fate, others: Fate
) -> list[Fated]:
    """The newest so many get one fate, and those before another."""
    found: list[Fated] = []
    for one in reversed(stretches):
        before, behind = one.newest(plan, number)
        number -= behind.count if behind else 0
        found += [(behind, chosen)] if behind else []
        found += [(before, others)] if before else []
    return found
