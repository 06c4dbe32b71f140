"""Was every promise kept? Checked from what was seen outside, never from the cluster's word alone.

Each check takes the whole history and returns what it found wrong, in words; the invariants are
those of the design (S1 to S8, H1). What the cluster says of itself (ledger, runs, records) is held
against what clients, workers and the sink saw, and against scheduled times computed anew.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...cluster.ops.exits import NodeExit
from . import history
from .call_checks import (
    acknowledged_writes_survive,
    calls_end_in_time,
    probes_survive,
    records_are_linearizable,
    records_have_an_author,
    triggers_run_once,
)
from .ends import (
    attempts_are_explained,
    completions_are_recorded_once,
    ends_were_reported,
    everything_ended,
    leases_are_recorded,
    leases_do_not_overlap,
    no_effect_after_success,
    runs_are_known,
    runs_end_for_a_reason,
)
from .faults import STROBE, STROBE_SET_MS
from .history import (
    OK,
    ClientCall,
    FaultSpan,
    FinalOutcome,
    Lease,
    Observations,
    RecurringJob,
)
from .jobs import REST_GRACE_MS
from .lateness import overdue, quiet_firsts
from .violation import Check, Violation

CLOCK_MS = 50  # Clocks of two processes are read so far apart at most.
# Clocks of nodes may differ by so much; a leader that is further off starts nothing.
SKEW_MS = 1_000
CLOCK_S = 2.0  # So long after a fault its clock may still be in a firing that is under way.
# Of so many firings at least, one in so many may be late in quiet times.
QUIET_LEAST, QUIET_LATE, MOMENTS_LEAST = 300, 0.01, 3
RAN = frozenset({"RAN", "LATE"})


def scheduled_times_have_one_outcome(seen: Observations) -> list[Violation]:
    """S2: none is lost, none has two, and each that ran has a run that the cluster still knows."""
    found = []
    outcomes: dict[str, list[FinalOutcome]] = defaultdict(list)
    for outcome in seen.outcomes:
        outcomes[outcome.job].append(outcome)
    runs = {(run.job, run.scheduled_ms) for run in seen.runs if run.scheduled}
    for plan in seen.plans:
        mine = outcomes[plan.job]
        counts = _count(plan, mine)
        for scheduled_ms in _scheduled_times(plan):
            count = counts[scheduled_ms]
            if count != 1:
                what = "has no outcome" if not count else f"has {count} outcomes"
                found.append(Violation("S2", f"{plan.job} at {scheduled_ms} {what}"))
        for outcome in mine:
            if outcome.outcome in RAN and (plan.job, outcome.scheduled_ms) not in runs:
                story = f"{plan.job} at {outcome.scheduled_ms} ran, and its run is not there"
                found.append(Violation("S2", story))
            meant = plan.from_ms <= outcome.last_ms and outcome.scheduled_ms <= plan.until_ms
            if plan.must_run and meant and outcome.outcome not in RAN:
                story = f"{plan.job} at {outcome.scheduled_ms} has no outcome but {outcome.outcome}"
                found.append(Violation("S2", story))
    return found


def scheduled_runs_are_unique(seen: Observations) -> list[Violation]:
    """S2: a scheduled time became one run, whatever its id."""
    counts = Counter((run.job, run.scheduled_ms) for run in seen.runs if run.scheduled)
    leased: dict[tuple[str, int], set[str]] = defaultdict(set)
    by_hand = {call.job for call in seen.calls if call.what == "trigger"}
    for lease in seen.leases:
        if lease.job not in by_hand:
            leased[lease.job, lease.scheduled_ms].add(lease.run)
    found = [
        Violation("S2", f"{job} at {scheduled_ms} became {count} runs")
        for (job, scheduled_ms), count in counts.items()
        if count > 1
    ]
    return found + [
        Violation("S2", f"{job} at {scheduled_ms} was leased as {sorted(ids)}")
        for (job, scheduled_ms), ids in leased.items()
        if len(ids) > 1
    ]


def nothing_runs_without_reason(seen: Observations) -> list[Violation]:
    """S3: what was leased was planned or triggered, and not before it was due."""
    found = []
    plans = {plan.job: plan for plan in seen.plans}
    triggered = {call.value for call in seen.calls if call.what == "trigger"}
    unsure = {
        call.job
        for call in seen.calls
        if call.what in ("trigger", "create") and call.outcome == history.UNKNOWN
    }
    # Those have a check of their own.
    unsure |= {follows.job for follows in seen.follows}
    for lease in seen.leases:
        plan = plans.get(lease.job)
        if lease.wall_ms + CLOCK_MS + set_ahead_ms(seen, lease) < lease.due_ms:
            early = lease.due_ms - lease.wall_ms
            found.append(Violation("S3", f"{lease.run} was leased {early} ms early"))
        if plan is not None:
            if not _is_scheduled(plan, lease.scheduled_ms):
                story = f"{lease.run}: {lease.scheduled_ms} is no scheduled time of {lease.job}"
                found.append(Violation("S3", story))
        elif lease.run not in triggered and lease.job not in unsure:
            found.append(Violation("S3", f"nobody asked for {lease.run}"))
    return found


def set_ahead_ms(seen: Observations, lease: Lease) -> float:
    """How far the clock of a node was set ahead, when no more than what nodes may differ by."""
    return max(
        (
            clock_ms(fault)
            for fault in seen.faults
            if fault.began <= lease.at <= fault.ended + CLOCK_S and 0 < clock_ms(fault) <= SKEW_MS
        ),
        default=0.0,
    )


def tokens_grow(seen: Observations) -> list[Violation]:
    """S4: a later lease of a run has a higher token, and no token was given twice."""
    found = []
    by_token: dict[int, Lease] = {}
    by_run: dict[str, list[Lease]] = defaultdict(list)
    for lease in seen.leases:
        other = by_token.setdefault(lease.token, lease)
        if (other.run, other.worker) != (lease.run, lease.worker):
            story = f"token {lease.token} is {other.run} at {other.worker} and {lease.run} at "
            found.append(Violation("S4", story + lease.worker))
        by_run[lease.run].append(lease)
    for run, leases in by_run.items():
        attempts = {lease.token: lease.attempt for lease in leases}
        line = [attempts[token] for token in sorted(attempts)]
        if line != sorted(line):
            found.append(Violation("S4", f"{run}: by token its attempts are {line}"))
    return found


def the_sink_took_no_old_token(seen: Observations) -> list[Violation]:
    """S5: at the sink, no effect of an older lease came after one of a newer lease."""
    found = []
    highest: dict[str, int] = {}
    for effect in sorted(seen.effects, key=lambda effect: effect.at):
        before = highest.get(effect.run, 0)
        if effect.accepted and effect.token < before:
            story = f"{effect.run}: token {effect.token} was taken after {before}"
            found.append(Violation("S5", story))
        if effect.accepted:
            highest[effect.run] = max(before, effect.token)
    return found


def stops_are_clean(seen: Observations) -> list[Violation]:
    """H1: a node that is asked to stop does, well or at the end of the time that it has."""
    return [
        Violation("H1", f"{stop.node}, asked to stop, ended with {stop.code}: {stop.words}")
        for stop in seen.stops
        if stop.code not in (NodeExit.CLEAN, NodeExit.CUT_SHORT)
    ]


def copies_are_equal(seen: Observations) -> list[Violation]:
    """A1: all nodes have the same state at the same revision."""
    by_revision: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for copy in seen.copies:
        by_revision[copy.revision][copy.fingerprint].append(copy.node)
    return [
        Violation("A1", f"at revision {revision} the states differ: {dict(prints)}")
        for revision, prints in by_revision.items()
        if len(prints) > 1
    ]


def states_are_sound(seen: Observations) -> list[Violation]:
    """A1: what is derived in each state is as its records say."""
    return [
        Violation("A1", f"the state of {each.node}: {words}")
        for each in seen.verified
        for words in each.differences
    ]


def flows_are_followed(seen: Observations) -> list[Violation]:
    """S2, S3: what follows others ran once for each time all of them succeeded, and not before."""
    found = []
    succeeded = {(run.job, run.scheduled_ms) for run in seen.runs if run.state == "SUCCEEDED"}
    ran = {(run.job, run.scheduled_ms) for run in seen.runs}
    reported: dict[tuple[str, int], float] = {}
    places = {run.run: (run.job, run.scheduled_ms) for run in seen.runs}
    for report in seen.reports:
        place = places.get(report.run)
        if place is not None and report.end == "success":
            reported[place] = min(report.at, reported.get(place, report.at))
    for follows in seen.follows:
        first = follows.upstream[0]
        for job, scheduled_ms in succeeded:
            due = all((each, scheduled_ms) in succeeded for each in follows.upstream)
            due = due and scheduled_ms >= follows.from_ms
            if job == first and due and (follows.job, scheduled_ms) not in ran:
                story = f"{follows.job} has no outcome for {scheduled_ms}; its upstream succeeded"
                found.append(Violation("S2", story))
        for lease in seen.leases:
            if lease.job != follows.job:
                continue
            for each in follows.upstream:
                if reported.get((each, lease.scheduled_ms), float("inf")) > lease.at:
                    story = f"{lease.run} was leased before anybody reported that {each} succeeded"
                    found.append(Violation("S3", story))
    return found


def limits_are_held(seen: Observations) -> list[Violation]:
    """S5: never are more runs leased at once than a concurrency limit allows.

    A lease counts from when a worker had it until the same worker reported its end, and only if
    that word was taken: then it was live all the while.
    """
    taken = {ack.token for ack in seen.acks if not ack.reason}
    ends: dict[int, float] = {}
    for report in seen.reports:
        if report.token in taken:
            ends.setdefault(report.token, report.at)
    found = []
    for limited in seen.limits:
        changes = []
        for lease in seen.leases:
            if lease.job in limited.jobs and ends.get(lease.token, 0.0) > lease.at:
                changes += [(lease.at, 1), (ends[lease.token], -1)]
        live = most = 0
        for _, change in sorted(changes):
            live += change
            most = max(most, live)
        if most > limited.most:
            story = f"{most} runs of {', '.join(limited.jobs)} were leased at once"
            found.append(Violation("S5", f"{story}, and {limited.most} may be"))
    return found


def pauses_are_kept(seen: Observations) -> list[Violation]:
    """S3: no scheduled time that came while a job was surely paused ran."""
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    asleep: dict[str, ClientCall] = {}
    for call in sorted(seen.calls, key=lambda call: call.began):
        if call.what == "pause" and call.outcome == OK:
            asleep[call.job] = call
        elif call.what == "resume" and call.job in asleep:
            # The first attempt counts, whatever became of it.
            pause = asleep.pop(call.job)
            # By the leader's clock it began and ended earlier or later.
            off = CLOCK_MS + set_off_ms(seen, pause.began, call.ended)
            spans[call.job].append((int(pause.value) + off, int(call.value) - off))
    return [
        Violation("S3", f"{run.run} ran, though its job was paused from {first} to {last}")
        for run in seen.runs
        for first, last in spans.get(run.job, ())
        if run.scheduled and first < run.scheduled_ms < last - REST_GRACE_MS
    ]


def set_off_ms(seen: Observations, began: float, ended: float) -> float:
    """How far a clock was set, ahead or back, in a stretch, when nodes may differ by that."""
    return max(
        (
            abs(how)
            for fault in seen.faults
            if fault.began <= ended and began <= fault.ended + CLOCK_S
            for how in [clock_ms(fault)]
            if abs(how) <= SKEW_MS
        ),
        default=0.0,
    )


def clock_ms(fault: FaultSpan) -> float:
    """How far it set a clock; 0 for other faults and for one that drifts."""
    how = fault.what.removeprefix("clock ")
    if how == STROBE:
        return STROBE_SET_MS
    return 0.0 if how in (fault.what, "drift") else float(how)


def firings_are_prompt(seen: Observations) -> list[Violation]:
    """S8: a first attempt begins within the bound, or within the bound after a fault is over."""
    return [
        Violation(
            "S8",
            f"{first.lease.run} began {first.late_ms:.0f} ms late; neither a fault nor a busy "
            "machine explains that",
        )
        for bounds in seen.bounds
        for first in overdue(seen, bounds)
    ]


def quiet_firings_are_soon(seen: Observations) -> list[Violation]:
    """S8: of those with no fault and no busy machine near, 99 of 100 begin within the quiet bound.

    Few are not checked, nor is one odd moment at which many are due.
    """
    found = []
    for bounds in seen.bounds:
        firsts = quiet_firsts(seen)
        late = [first for first in firsts if first.late_ms > bounds.quiet_ms]
        moments = {first.lease.due_ms for first in late}
        many = len(firsts) >= QUIET_LEAST and len(moments) >= MOMENTS_LEAST
        if many and len(late) > QUIET_LATE * len(firsts):
            story = f"in quiet times {len(late)} of {len(firsts)}, due at {len(moments)} instants"
            found.append(Violation("S8", f"{story}, began over {bounds.quiet_ms:.0f} ms late"))
    return found


CHECKS: tuple[Check, ...] = (
    acknowledged_writes_survive,
    calls_end_in_time,
    probes_survive,
    records_have_an_author,
    records_are_linearizable,
    scheduled_times_have_one_outcome,
    scheduled_runs_are_unique,
    triggers_run_once,
    everything_ended,
    runs_are_known,
    runs_end_for_a_reason,
    nothing_runs_without_reason,
    tokens_grow,
    leases_do_not_overlap,
    the_sink_took_no_old_token,
    completions_are_recorded_once,
    ends_were_reported,
    no_effect_after_success,
    attempts_are_explained,
    leases_are_recorded,
    flows_are_followed,
    limits_are_held,
    pauses_are_kept,
    firings_are_prompt,
    quiet_firings_are_soon,
    calls_end_in_time,
    stops_are_clean,
    copies_are_equal,
    states_are_sound,
)


def violations_in(seen: Observations) -> list[Violation]:
    """Everything that is wrong with a history."""
    return [
        replace(violation, check=check.__name__) for check in CHECKS for violation in check(seen)
    ]


def _scheduled_times(plan: RecurringJob) -> Sequence[int]:
    if plan.times is not None:
        return [time for time in plan.times if plan.from_ms <= time <= plan.until_ms]
    first = -(-plan.from_ms // plan.every_ms) * plan.every_ms
    return range(first, plan.until_ms + 1, plan.every_ms)


def _is_scheduled(plan: RecurringJob, scheduled_ms: int) -> bool:
    return not scheduled_ms % plan.every_ms if plan.times is None else scheduled_ms in plan.times


def _count(plan: RecurringJob, outcomes: Iterable[FinalOutcome]) -> Counter[int]:
    """How many outcomes each scheduled time has; an entry may speak of a stretch."""
    counts: Counter[int] = Counter()
    for outcome in outcomes:
        counts.update(range(outcome.scheduled_ms, outcome.last_ms + 1, plan.every_ms))
    return counts
