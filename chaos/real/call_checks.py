"""Is there what calls wrote, did triggers run once, and was each call answered in time?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from . import history
from .history import OK, REFUSED, ClientCall, Observations
from .jobs import PROBE, everything
from .lateness import TimeSpans
from .linear import ABSENT, Undecided, linearizable, matters
from .violation import Violation

SLACK_S = 1.0  # A call may end so much after its deadline: the machine is busy.
RECORD_CALLS = frozenset({"create", "update", "delete", "get"})


def acknowledged_writes_survive(seen: Observations) -> list[Violation]:
    """S1: what was acknowledged last is there at the end, or what a later call made of it."""
    found = []
    at_end = {job.job: job.value for job in seen.jobs}
    for job, calls in _records(seen).items():
        possible = _possible_ends(calls)
        value = at_end.get(job, ABSENT)
        if value not in possible:
            wanted = " or ".join(sorted(map(repr, possible)))
            found.append(Violation("S1", f"{job} is {value!r} at the end, and should be {wanted}"))
    return found


def records_are_linearizable(seen: Observations) -> list[Violation]:
    """S1: the calls on each record make sense in some order."""
    found = []
    for job, calls in _records(seen).items():
        try:
            sound = linearizable(calls)
        except Undecided as error:
            found.append(Violation("S1", f"cannot be checked: {error}"))
            continue
        if not sound:
            listed = "; ".join(
                f"{call.client} {call.what} {call.value!r} {call.outcome} "
                f"[{call.began:.3f}, {call.ended:.3f}]"
                for call in sorted(filter(matters, calls), key=lambda call: call.began)
            )
            found.append(Violation("S1", f"no order explains the calls on {job}: {listed}"))
    return found


def probes_survive(seen: Observations) -> list[Violation]:
    """S1: the record that the probe writes shows no value older than one acknowledged before."""
    probes = {str(probe.number): probe for probe in seen.probes if probe.number}
    found = []
    for job in seen.jobs:
        if job.job != PROBE or not probes:
            continue
        last = probes.get(job.value)
        if last is None:
            found.append(
                Violation("S1", f"{PROBE} is {job.value!r} at the end, and never was that")
            )
            continue
        ended = last.at + last.took if last.ok else float("inf")
        later = [probe for probe in seen.probes if probe.ok and probe.at > ended]
        if later:
            wanted = f"should be {later[-1].number} or a later one"
            found.append(Violation("S1", f"{PROBE} is {job.value} at the end, and {wanted}"))
    return found


def records_have_an_author(seen: Observations) -> list[Violation]:
    """S1: no job is there that nobody created."""
    known = {job.name for job in everything()} | {plan.job for plan in seen.plans}
    known |= {call.job for call in seen.calls if call.what == "create" and call.outcome != REFUSED}
    return [
        Violation("S1", f"nobody created {job.job}") for job in seen.jobs if job.job not in known
    ]


def triggers_run_once(seen: Observations) -> list[Violation]:
    """S2: an acknowledged trigger has its run; no request became two."""
    runs = {run.run for run in seen.runs}
    found = [
        Violation("S2", f"the trigger of {call.job} lost its run {call.value}")
        for call in seen.calls
        if call.what == "trigger" and call.outcome == OK and call.value not in runs
    ]
    asked: dict[str, list[str]] = defaultdict(list)
    unsure = Counter[str]()
    for call in seen.calls:
        if call.what == "trigger" and call.outcome == OK:
            asked[call.job].append(call.value)
        elif call.what == "trigger" and call.outcome == history.UNKNOWN:
            unsure[call.job] += 1
    for job, ids in asked.items():
        found += [
            Violation("S2", f"{count} triggers of {job} share the run {run}")
            for run, count in Counter(ids).items()
            if count > 1
        ]
    there: dict[str, set[str]] = defaultdict(set)
    for run in seen.runs:
        if not run.scheduled:
            there[run.job].add(run.run)
    for job, ids_there in there.items():
        more = len(ids_there - set(asked[job]))
        if more > unsure[job]:
            story = f"{job} was triggered {len(asked[job])} times and ran {len(ids_there)} times"
            found.append(Violation("S2", f"{story}; {unsure[job]} outcomes are unknown"))
    return found


def calls_end_in_time(seen: Observations) -> list[Violation]:
    """H1: each call ended with an answer or an error within its deadline."""
    lags = TimeSpans((lag.began, lag.ended) for lag in seen.lags)
    return [
        Violation(
            "H1", f"{call.client} {call.what} {call.job} took {call.ended - call.began:.1f} s"
        )
        for call in seen.calls
        if call.ended - call.began > call.deadline + SLACK_S
        # Time in which the caller itself did not come to its turn does not count.
        and call.ended - call.began - lags.within(call.began, call.ended) > call.deadline + SLACK_S
    ]


def _records(seen: Observations) -> dict[str, list[ClientCall]]:
    found: dict[str, list[ClientCall]] = defaultdict(list)
    for call in seen.calls:
        if call.what in RECORD_CALLS:
            found[call.job].append(call)
    return found


def _possible_ends(calls: Sequence[ClientCall]) -> set[str]:
    """Values a record may have in the end: of a write that none came wholly after."""
    writes = [call for call in calls if call.what != "get" and matters(call)]
    sure = [call for call in writes if call.outcome == OK]
    possible = {
        ABSENT if call.what == "delete" else call.value
        for call in writes
        if not any(
            other.began > (call.ended if call.outcome == OK else float("inf")) for other in sure
        )
    }
    # When nothing is sure, nothing may have happened.
    return possible if sure else possible | {ABSENT}
