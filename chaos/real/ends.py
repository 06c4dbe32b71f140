"""How runs ended: each for a reason that a worker gave, none twice, none without one."""

from __future__ import annotations

from collections import defaultdict

from .history import Lease, Observations
from .violation import Violation

ATTEMPTS_KEPT = 20  # A run with more shows only some of them.


def completions_are_recorded_once(seen: Observations) -> list[Violation]:
    """S6: one lease ends a run well; what was acknowledged is what the cluster shows."""
    found = []
    states = {run.run: run for run in seen.runs}
    tokens: dict[str, set[int]] = defaultdict(set)
    for ack in seen.acks:
        if ack.end == "success" and not ack.reason:
            tokens[ack.run].add(ack.token)
    for run_id, taken in tokens.items():
        if len(taken) > 1:
            found.append(Violation("S6", f"{run_id} succeeded with the tokens {sorted(taken)}"))
        run = states.get(run_id)
        if run is not None and run.state != "SUCCEEDED":
            found.append(Violation("S6", f"{run_id} is {run.state}; its success was acknowledged"))
    return found


def ends_were_reported(seen: Observations) -> list[Violation]:
    """S6: an attempt that succeeded or failed was reported so by whoever held that very lease."""
    reported = {(report.run, report.token, report.end) for report in seen.reports}
    found = []
    for run in seen.runs:
        if run.state == "SUCCEEDED" and "SUCCEEDED" not in dict(run.attempts).values():
            found.append(Violation("S6", f"{run.run} succeeded, and none of its attempts did"))
        for token, end in run.attempts:
            word = {"SUCCEEDED": "success", "FAILED": "failure"}.get(end)
            if word is not None and (run.run, token, word) not in reported:
                story = f"{run.run}: the attempt with token {token} {end}, which nobody reported"
                found.append(Violation("S6", story))
    return found


def no_effect_after_success(seen: Observations) -> list[Violation]:
    """S6: once a success is acknowledged, no other lease of that run does anything."""
    done: dict[str, tuple[float, int]] = {}
    for ack in seen.acks:
        if ack.end == "success" and not ack.reason:
            done.setdefault(ack.run, (ack.at, ack.token))
    found = []
    for lease in seen.leases:
        at, token = done.get(lease.run, (float("inf"), 0))
        if lease.token > token and at < float("inf"):
            story = f"{lease.run} was leased with {lease.token} though {token} had succeeded"
            found.append(Violation("S6", story))
    return found


def attempts_are_explained(seen: Observations) -> list[Violation]:
    """S7: no more attempts than the policy allows, and none without an end of the one before."""
    allowed = {plan.job: plan.max_attempts for plan in seen.plans}
    found = []
    for run in seen.runs:
        most = allowed.get(run.job)
        if most is not None and run.attempt > most:
            found.append(Violation("S7", f"{run.run} has {run.attempt} attempts of {most}"))
        # A lease that was given back does not count, but stands among the ends.
        ends = [end for _, end in run.attempts if end not in ("SUCCEEDED", "UNSPECIFIED")]
        if len(ends) < run.attempt - 1:
            story = f"{run.run} is at attempt {run.attempt}, and {len(ends)} ends are recorded"
            found.append(Violation("S7", story))
    return found


def leases_are_recorded(seen: Observations) -> list[Violation]:
    """S7: each lease that a worker had stands among the attempts, no more than are allowed.

    What is to happen at most once is leased to nobody a second time, whatever became of the first.
    """
    allowed = {plan.job: plan.max_attempts for plan in seen.plans}
    tokens: dict[str, set[int]] = defaultdict(set)
    for lease in seen.leases:
        tokens[lease.run].add(lease.token)
    found = []
    for run in seen.runs:
        ends, had = dict(run.attempts), tokens[run.run]
        most = allowed.get(run.job, len(had))
        counted = {token for token in had if most == 1 or ends.get(token) != "RELEASED"}
        if len(counted) > most:
            story = f"{run.run} was leased with {sorted(counted)}, and {most} attempts are allowed"
            found.append(Violation("S7", story))
        if len(ends) < ATTEMPTS_KEPT and not had <= set(ends):
            story = f"{run.run} was leased with {sorted(had - set(ends))}, which it does not record"
            found.append(Violation("S7", story))
    return found


def everything_ended(seen: Observations) -> list[Violation]:
    """S2: with the faults over, every run that was due has ended."""
    return [
        Violation("S2", f"{run.run} is still {run.state}")
        for run in seen.runs
        if run.state in ("PENDING", "RUNNING", "RETRYING")
    ]


def runs_are_known(seen: Observations) -> list[Violation]:
    """S2: what a worker was once given is there at the end; no run vanishes."""
    known = {run.run for run in seen.runs}
    leased = {lease.run: lease for lease in seen.leases}
    return [
        Violation("S2", f"{run}, leased to {lease.worker}, is not there at the end")
        for run, lease in leased.items()
        if run not in known
    ]


def runs_end_for_a_reason(seen: Observations) -> list[Violation]:
    """S2: nothing here may be skipped or cancelled, and nothing is given up before its time."""
    allowed = {plan.job: plan.max_attempts for plan in seen.plans if plan.must_run}
    found = []
    for run in seen.runs:
        most = allowed.get(run.job)
        if most is None or not run.scheduled:
            continue
        if run.state == "FAILED" and run.attempt < most:
            story = f"{run.run} was given up after {run.attempt} of {most} attempts"
            found.append(Violation("S2", story))
        elif run.state in ("CANCELLED", "SKIPPED"):
            found.append(Violation("S2", f"{run.run} is {run.state}, which nobody asked for"))
    return found


def leases_do_not_overlap(seen: Observations) -> list[Violation]:
    """S4: what is reported with an older lease, once there is a newer one, is never taken."""
    taken = {ack.token for ack in seen.acks if not ack.reason}
    newer: dict[str, list[Lease]] = defaultdict(list)
    for lease in seen.leases:
        if lease.attempt > 1:
            newer[lease.run].append(lease)
    found = []
    for report in seen.reports:
        for lease in newer.get(report.run, ()) if report.token in taken else ():
            if lease.token > report.token and lease.at < report.at:
                story = f"{report.run}: {report.worker}'s {report.end} with token {report.token} "
                story += f"was taken after {lease.worker} had token {lease.token}"
                found.append(Violation("S4", story))
    return found
