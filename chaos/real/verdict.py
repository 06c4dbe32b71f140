"""What is reported of a run: one object of figures, and whether every promise was kept."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ...cluster.ops.exits import NodeExit
from ..percentile import percentile
from .faults import BUILD_STEPS
from .history import OK, ClientCall, FaultSpan, Observations, Probe
from .jobs import HERD
from .lateness import busy, firsts, quiet_firsts, with_others
from .violation import Violation

SLOT_S = 0.1
STEP_LEAST_S = 1.0  # Jobs fire each second, and a node may be back sooner than that.
LOST = (
    "has no outcome", "lost its run", "is not there", "at the end, and should be", "share the run",
    "which nobody asked for", "was given up",
)  # fmt: skip
DOUBLED = ("outcomes", "became", "times and ran", "was leased as", "succeeded with")


def spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "p50": round(percentile(values, 0.5, 0.0), 1),
        "p99": round(percentile(values, 0.99, 0.0), 1),
        "max": round(max(values, default=0.0), 1),
    }


def failovers(seen: Observations) -> list[float]:
    """Milliseconds from each kill of a leader to the first write that began after it and was
    acknowledged. An answer to an earlier one may be the dead leader's, and still on its way.
    Kills that came into another fault are left out.
    """
    answered = [(probe.at, probe.at + probe.took) for probe in seen.probes if probe.ok]
    answered += [(call.began, call.ended) for call in seen.calls if wrote(call)]
    answered.sort(key=lambda call: call[1])
    found = []
    for fault in seen.faults:
        if fault.what == "leader-kill" and not with_others(fault, seen.faults):
            first = bisect_left(answered, fault.began, key=lambda call: call[1])
            later = (ended for began, ended in answered[first:] if began > fault.began)
            after = next(later, None)
            if after is not None:
                found.append(1000 * (after - fault.began))
    return found


def wrote(call: ClientCall) -> bool:
    return call.outcome == OK and call.what != "get"


def availability(probes: Sequence[Probe]) -> float:
    """The share of slots of 100 ms in which a probe that began in it was answered."""
    found = slots(probes)
    return sum(found.values()) / (max(found) + 1) if found else 0.0


def slots(probes: Sequence[Probe]) -> dict[int, bool]:
    """By number, from the first probe on: was one answered in its 100 ms? Gaps were not tried."""
    first = min((probe.at for probe in probes), default=0.0)
    found: dict[int, bool] = {}
    for probe in probes:
        slot = int((probe.at - first) / SLOT_S)
        found[slot] = found.get(slot, False) or (probe.ok and probe.took <= SLOT_S)
    return found


def busy_share(seen: Observations) -> float:
    """How much of the time the machine kept somebody waiting."""
    if not seen.probes:
        return 0.0
    began, ended = seen.probes[0].at, max(probe.at + probe.took for probe in seen.probes)
    return round(busy(seen).within(began, ended) / (ended - began), 3)


def herd(seen: Observations) -> dict[str, float]:
    """Seconds from the instant at which very many jobs were due until the last report on them."""
    due = {plan.job: plan.from_ms for plan in seen.plans if plan.job.startswith(f"{HERD}-")}
    at = {lease.token: lease for lease in seen.leases if lease.job in due}
    ends = [
        ack.at - lease.at + (lease.wall_ms - due[lease.job]) / 1000
        for ack in seen.acks
        if (lease := at.get(ack.token)) is not None
    ]
    return {"herd": len(due), "herd_drained_s": round(max(ends, default=0.0), 1)} if due else {}


def steps(seen: Observations) -> list[dict[str, Any]]:
    """Each node that got another build: how long that took, and how late runs began meanwhile."""
    found = []
    begun = list(firsts(seen))
    for fault in seen.faults:
        if fault.what in BUILD_STEPS:
            until = max(fault.ended, fault.began + STEP_LEAST_S)
            within = [one.late_ms for one in begun if fault.began <= one.due_at <= until]
            found.append({
                "step": fault.what, "node": fault.target, "builds": fault.sign,
                "s": round(fault.ended - fault.began, 1), "firings": len(within),
                "lateness_ms": spread(within), "no_write_ms": no_write_ms(seen, fault),
            })  # fmt: skip
    return found


def no_write_ms(seen: Observations, fault: FaultSpan) -> float:
    """The longest time in it in which no probe was acknowledged."""
    done = [probe.at + probe.took for probe in seen.probes if probe.ok]
    inside = [at for at in done if fault.began <= at <= fault.ended]
    return round(1000 * max(b - a for a, b in pairwise([fault.began, *inside, fault.ended])), 1)


def verdict(seen: Observations, violations: Sequence[Violation]) -> dict[str, Any]:
    everything = [first.late_ms for first in firsts(seen)]
    quiet_ms = [first.late_ms for first in quiet_firsts(seen)] if seen.bounds else []
    kinds = Counter(violation.invariant for violation in violations)
    return {
        "verdict": "violated" if violations else "ok",
        "violations": len(violations),
        "by_invariant": dict(sorted(kinds.items())),
        "leader_kills": sum(fault.what == "leader-kill" for fault in seen.faults),
        "faults": sum(fault.what != "leader-kill" for fault in seen.faults),
        # Faults that left no sign: a place in the code that was not come by, for instance.
        "faults_without_sign": sum(not fault.sign for fault in seen.faults),
        # Nodes that were asked to stop, and those of them that needed more than the time they have.
        "stops": len(seen.stops),
        "slow_stops": sum(stop.code == NodeExit.CUT_SHORT for stop in seen.stops),
        "harness_lag_s": round(sum(lag.ended - lag.began for lag in seen.lags), 1),
        # The share of the time in which the machine kept processes of the run waiting.
        "busy_share": busy_share(seen),
        "acknowledged": sum(map(wrote, seen.calls)) + sum(probe.ok for probe in seen.probes),
        "calls": len(seen.calls) + len(seen.probes),
        "unknown": sum(call.outcome == "unknown" for call in seen.calls),
        "firings": sum(run.scheduled for run in seen.runs),
        "leases": len(seen.leases),
        "lost": sum(any(word in v.story for word in LOST) for v in violations),
        "doubled": sum(any(word in v.story for word in DOUBLED) for v in violations),
        "two_leases": kinds["S4"] + kinds["S5"],
        "effects": len(seen.effects),
        "effects_refused": sum(not effect.accepted for effect in seen.effects),
        "failover_ms": spread(failovers(seen)),
        "failovers_ms": [round(value, 1) for value in failovers(seen)],
        "availability": round(availability(seen.probes), 4),
        **herd(seen),
        **({"steps": found} if (found := steps(seen)) else {}),
        # Firings with neither a fault nor a busy machine near.
        "quiet_firings": len(quiet_ms),
        "quiet_lateness_ms": spread(quiet_ms),
        "lateness_ms": spread(everything),
    }
