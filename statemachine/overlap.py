"""What happens when a job's turn comes while runs of it are under way."""

from __future__ import annotations

from enum import Enum

from ..proto.v1 import job_pb2, run_pb2
from . import keys, ledger, limits, runs
from .record import RunRecord, StateRecord
from .view import View

Policy = job_pb2.OverlapPolicy


class Verdict(Enum):
    """What the overlap policy says to one more run."""

    GO = "go"
    HOLD = "hold"
    HOLD_NEWEST = "hold the newest"
    REPLACE = "replace"
    SKIP = "skip"


GO, HOLD, HOLD_NEWEST, REPLACE, SKIP = Verdict


def judge(view: View, jid: int, state: StateRecord, spec: job_pb2.JobSpec) -> Verdict:
    """Runs that are held back do not stand in the way of others."""
    under_way = state.live - state.held
    if not under_way:
        return GO
    policy = spec.overlap
    rule = policy.rule
    if rule == Policy.RULE_ALLOW:
        return GO if not policy.limit or under_way < policy.limit else SKIP
    if rule in (Policy.RULE_UNSPECIFIED, Policy.RULE_SKIP):
        return GO if under_way < (policy.limit or 1) else SKIP
    if rule == Policy.RULE_QUEUE_ONE:
        return HOLD_NEWEST
    if rule == Policy.RULE_QUEUE:
        return SKIP if _is_full(view, jid, state, policy.limit or 1) else HOLD
    assert rule == Policy.RULE_REPLACE, f"unknown overlap rule {rule}"
    return REPLACE


def _is_full(view: View, jid: int, state: StateRecord, limit: int) -> bool:
    """Whether so many runs are held back; those that were triggered for later are not, though they
    are counted with them until they are due."""
    left = state.held
    if left < limit:
        return False
    first = keys.run(jid, keys.occasion_of(view.now_ms + 1))
    for key in view.scan(first, keys.run(jid, keys.OCCASION_MAX)):
        run = view.need(key, RunRecord)
        left -= run.held and run.due_at_ms > view.now_ms
        if left < limit:
            return False
    return True


def make_room(view: View, jid: int, state: StateRecord, verdict: Verdict, but: int = -1) -> bool:
    """Carry a verdict out on the other runs; True if the new run must be held back."""
    if verdict is GO:
        return False
    if verdict is HOLD_NEWEST or verdict is REPLACE:
        for occasion, run in runs.live_of(view, jid, state, limits.OVERLAP):
            if occasion == but:
                continue
            if run.held and run.due_at_ms <= view.now_ms:
                message = "a newer run took its place while it was held back"
                drop(view, jid, occasion, run, run_pb2.OUTCOME_REPLACED, "replaced", message)
            elif verdict is REPLACE and not run.held:
                message = "a newer run replaces it"
                runs.cancel(view, jid, occasion, run, message, limits.CANCEL_GRACE_MS)
    return state.live > state.held


def drop(
    view: View, jid: int, occasion: int, run: RunRecord,
    outcome: run_pb2.Outcome.ValueType, kind: str, message: str,
) -> None:  # fmt: skip
    """A policy ends a run before it began; the ledger says so in place of what it said."""
    run.outcome = outcome
    run.error = run_pb2.RunError(kind=kind, message=message)
    if not occasion & 0xFFFF:
        ledger.correct(view, jid, keys.nominal_of(occasion), outcome)
    runs.end(view, jid, occasion, run, runs.SKIPPED)
