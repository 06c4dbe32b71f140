"""What the server itself refuses, beside the rules: one place for each reason and its words."""

from __future__ import annotations

from ...statemachine.core.rejection import Reason, Refused, Rejection
from ...statemachine.model import keys
from .limits import CallerLimits

RETRY_MS = 100
NEVER_S = 1e9  # The age of a state that was never known to be fresh is above this.
LIMIT_RETRY_MS = 1_000
ALL = "all"  # Whose limit it is, if nobody's in particular.
RAISED = frozenset(CallerLimits.__struct_fields__)  # Those that a configuration may say.


def refused(reason: Reason.ValueType, message: str, retry_ms: int = 0, **values: object) -> Refused:
    words = {name: str(value) for name, value in values.items()}
    return Refused(Rejection(reason, message, words, retry_after_ms=retry_ms))


def not_leader(node: str, leader: str) -> Refused:
    where = f"ask {leader}" if leader else "no leader is known; ask another node in a moment"
    message = f"{node} does not lead; {where}"
    return refused(Reason.ERROR_REASON_NOT_LEADER, message, leader=leader)


def no_quorum(node: str) -> Refused:
    return refused(
        Reason.ERROR_REASON_NO_QUORUM,
        f"{node} knows no leader that a majority follows; nothing was done, try again. If this "
        "stays, look at 'raftsched cluster status'",
        RETRY_MS,
    )


def deadline_passed(node: str, seconds: float) -> Refused:
    shown = f"{seconds:.1f}" if seconds >= 0.1 else f"{seconds:.3f}"
    return refused(
        Reason.ERROR_REASON_DEADLINE_PASSED,
        f"{shown} s were over before {node} could answer; nothing was changed, give the call more "
        "time",
        seconds=shown,
    )


def too_old(node: str, seconds: float, maximum: float) -> Refused:
    age = f"up to {seconds:.0f} s old" if seconds < NEVER_S else "of an age that it does not know"
    return refused(
        Reason.ERROR_REASON_NO_QUORUM,
        f"the state of {node} is {age}, and it answers from none over "
        f"{maximum:.0f} s; ask another node, or bring back a majority",
        RETRY_MS,
    )


def not_reached(node: str, wanted: int, revision: int, seconds: float) -> Refused:
    return refused(
        Reason.ERROR_REASON_NO_QUORUM,
        f"{node} is at revision {revision}, and within {seconds:.1f} s did not reach {wanted}, "
        "which min_revision asks for; ask again, or the leader. If no answer of this cluster ever "
        "named that revision, leave it out",
        RETRY_MS,
    )


def leader_changed(node: str) -> Refused:
    return refused(
        Reason.ERROR_REASON_LEADER_CHANGED,
        f"leadership moved away from {node} while the call was under way, so it may have been "
        "done or not; send it again with the same request_id",
    )


def commit_timeout(seconds: float) -> Refused:
    return refused(
        Reason.ERROR_REASON_COMMIT_TIMEOUT,
        f"no majority confirmed the call within {seconds:.1f} s, so it may have been done or not; "
        "send it again with the same request_id",
    )


def backlog_full(what: str) -> Refused:
    return refused(
        Reason.ERROR_REASON_BACKLOG_FULL, f"{what}; nothing was done, try again", RETRY_MS
    )


def node_limit(limit: str, maximum: int, whose: str) -> Refused:
    of = "all callers together" if whose == ALL else whose
    raised = f"ask another node, or have limits.{limit} raised"
    more = raised if limit in RAISED else "ask for less"
    return refused(
        Reason.ERROR_REASON_NODE_LIMIT,
        f"the limit '{limit}' of this node is reached: {maximum} for {of}; nothing was done, try "
        f"again in {LIMIT_RETRY_MS / 1000:.0f} s, or {more}",
        LIMIT_RETRY_MS,
        limit=limit,
        maximum=maximum,
        of=whose,
    )


def unread(what: str, seconds: float, whose: str) -> Refused:
    return refused(
        Reason.ERROR_REASON_NODE_LIMIT,
        f"nobody has read from {what} for {seconds:.0f} s; a watch goes on from the last progress, "
        "and all else is asked for again; keep reading",
        LIMIT_RETRY_MS,
        limit="unread",
        maximum=seconds,
        of=whose,
    )


def read_timeout(seconds: float, whose: str) -> Refused:
    return refused(
        Reason.ERROR_REASON_NODE_LIMIT,
        f"the read was not done after {seconds:.1f} s, with those of the same caller that were "
        "before it; ask for less at a time, for fewer at once, or wait longer",
        LIMIT_RETRY_MS,
        limit="reading",
        maximum=round(seconds, 1),
        of=whose or ALL,
    )


def disk_full(node: str) -> Refused:
    return refused(
        Reason.ERROR_REASON_DISK_FULL,
        f"the disk of {node} is full, so it takes no writes; nothing is lost. Free space on it",
        1000,
    )


def not_now(node: str, why: str) -> Refused:
    return refused(
        Reason.ERROR_REASON_NO_QUORUM, f"{node} takes no writes now: {why}; nothing was done",
        RETRY_MS,
    )  # fmt: skip


def draining(node: str, leader: str) -> Refused:
    return refused(
        Reason.ERROR_REASON_DRAINING,
        f"{node} is stopping; nothing was done, ask another node",
        leader=leader,
    )


def clock_skew(skew_ms: int) -> Refused:
    return refused(
        Reason.ERROR_REASON_CLOCK_SKEW,
        f"the leader's clock is {skew_ms} ms away from those of a majority, so it starts no run; "
        "set the clocks of the nodes (NTP), then it goes on by itself",
        1000,
        skew_ms=skew_ms,
    )


def state_diverged(node: str) -> Refused:
    return refused(
        Reason.ERROR_REASON_STATE_DIVERGED,
        f"the state of {node} differs from that of the other nodes, so it serves no longer; ask "
        "another node, and have this one fetch its state anew",
        node=node,
    )


def state_lost(node: str) -> Refused:
    return refused(
        Reason.ERROR_REASON_STATE_DIVERGED,
        f"the state of {node} was damaged on its disk and is set aside; it fetches another from "
        "the leader by itself. Ask another node",
        node=node,
    )


def session_lapsed(worker: str) -> Rejection:
    return _session_lost(
        worker, "LAPSED",
        "it was silent for too long, so its leases have ended; stop its handlers and say hello "
        "again",
    )  # fmt: skip


def place_given(worker: str) -> Rejection:
    what = (
        f"all places for workers are taken, and worker {keys.worker_id(worker)}, which held no "
        "lease, gave its own to the first one of another tenant"
    )
    return backlog_full(what).rejection


def session_taken_over(worker: str) -> Rejection:
    return _session_lost(
        worker, "TAKEN_OVER",
        "another stream with this id took it over; if that is not this worker's own, another "
        "process has its id: stop the handlers, and take an id that no other process has",
    )  # fmt: skip


def no_session(worker: str, *, lapsed: bool) -> Refused:
    if lapsed:
        return Refused(session_lapsed(worker))
    why = "this leader does not know it; say hello again, or call Lease"
    return Refused(_session_lost(worker, "UNKNOWN", why))


def _session_lost(worker: str, cause: str, why: str) -> Rejection:
    worker = keys.worker_id(worker)
    return Rejection(
        Reason.ERROR_REASON_SESSION_LOST,
        f"the session of worker {worker} is gone: {why}",
        {"worker": worker, "cause": cause},
    )


def worker_not_found(worker: str) -> Refused:
    return refused(
        Reason.ERROR_REASON_WORKER_NOT_FOUND,
        f"there is no session of a worker '{worker}'; 'raftsched worker list' shows all",
        worker=worker,
    )
