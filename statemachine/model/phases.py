"""Where a run stands, and where it may go from there: the one table of its life.

    phase                            it goes on when           what it holds
    LATER      triggered for later   its time comes            a timer at that time
    HELD       no room beside
               others, or in the
               quota of runs         another run ends          nothing
    HALTED     its job is paused     its job is resumed        nothing
    READY      in its lane           a worker takes it         a place in its lane
    PARKED     waits for a slot of
               its job or key        a lease gives one back    a place in its wait queue
    ASIDE      its job is set aside  its job comes back        the rank it had in its lane
    LEASED     a worker has it       the worker reports        lease, slots, a place in the session
    DELAYED    between two attempts  its delay is over         a timer at that time
    SUCCEEDED  FAILED  CANCELLED  SKIPPED: it stands in the history, a failed one also among the
               dead letters, from where it may begin again

Up to DELAYED a run is *under way*: it stands in the table of runs, is counted as live in its job
and its namespace, and may have a timer for a deadline. `runs/move.py` is the only code that moves
one.
"""

from __future__ import annotations

from typing import NamedTuple

from ...proto.v1 import run_pb2

State = run_pb2.RunState

# Plain numbers, since every run asks for them. Those that users see by the same name have the
# number of that; 1 stands in runs of format 1 for what is PENDING to users.
NEW = 0  # It is being made, and stands nowhere yet.
LEASED, DELAYED, SUCCEEDED, FAILED, CANCELLED, SKIPPED = range(2, 8)
LATER, HELD, HALTED, READY, PARKED, ASIDE = range(8, 14)


_BY_HAND = "somebody cancels it, or a newer run replaces it"
_TOO_LATE = "its start deadline passes"
_TIMEOUT = "a timeout passes"

# The phases that may follow each, with what brings a run there.
MOVES: dict[int, dict[int, str]] = {
    NEW: {
        LATER: "it was triggered for later",
        HELD: "the overlap policy or the quota says that it waits",
        HALTED: "a wave, or a failure, brings it while its job is paused",
        READY: "nothing is in its way",
    },
    LATER: {
        HELD: "it is due, and the overlap policy or the quota says that it waits",
        HALTED: "it is due, and its job is paused",
        READY: "it is due",
        CANCELLED: _BY_HAND,
        SKIPPED: _TOO_LATE,
    },
    HELD: {
        READY: "there is room",
        CANCELLED: _BY_HAND,
        SKIPPED: _TOO_LATE + ", or a newer run takes its place",
    },
    HALTED: {
        HELD: "its job is resumed",
        CANCELLED: _BY_HAND,
        SKIPPED: _TOO_LATE + ", or the misfire policy chooses others",
    },
    READY: {
        LEASED: "a worker takes it",
        PARKED: "its turn comes, and its job or key has no free slot",
        ASIDE: "its turn comes, and its job is set aside",
        FAILED: _TIMEOUT,
        CANCELLED: _BY_HAND,
        SKIPPED: _TOO_LATE,
    },
    PARKED: {
        READY: "a slot is free",
        FAILED: _TIMEOUT,
        CANCELLED: _BY_HAND,
        SKIPPED: _TOO_LATE,
    },
    ASIDE: {
        READY: "its job comes back",
        FAILED: _TIMEOUT,
        CANCELLED: _BY_HAND,
        SKIPPED: _TOO_LATE,
    },
    LEASED: {
        READY: "the attempt failed and the next may begin at once, or its worker gives it back",
        DELAYED: "the attempt failed, or is given back, and the next may begin after a while",
        SUCCEEDED: "its worker says so",
        FAILED: "the attempt failed, and no other follows",
        CANCELLED: "the attempt ends after somebody asked for that, or its grace passes",
    },
    DELAYED: {
        READY: "the delay is over, or somebody asks for the next attempt now",
        FAILED: _TIMEOUT,
        CANCELLED: _BY_HAND,
    },
    SUCCEEDED: {},
    FAILED: {
        HELD: "somebody requeues it, and the overlap policy or the quota says that it waits",
        HALTED: "somebody requeues it while its job is paused",
        READY: "somebody requeues it",
    },
    CANCELLED: {},
    SKIPPED: {},
}


class Row(NamedTuple):
    """What is true of a run as long as it is in one phase."""

    name: str
    # As what users see it.
    state: State.ValueType
    # The counters of its job's state, and of its namespace's usage, in which it is counted.
    in_job: tuple[str, ...] = ()
    in_namespace: tuple[str, ...] = ()
    # The fields of its record that are set; and those that may be. Other FIELDS are not.
    holds: tuple[str, ...] = ()
    may_hold: tuple[str, ...] = ()


_PENDING, _TIMER = State.RUN_STATE_PENDING, ("timer_at_ms",)
_LIVE, _HELD = ("live",), ("live", "held")
_LEASE = (*_TIMER, "deadline_at_ms", "cancel_at_ms", "heard_at_ms")

TABLE: dict[int, Row] = {
    NEW: Row("NEW", State.RUN_STATE_UNSPECIFIED),
    LATER: Row("LATER", _PENDING, (*_HELD, "later"), _HELD, _TIMER),
    HELD: Row("HELD", _PENDING, _HELD, _HELD, (), _TIMER),
    HALTED: Row("HALTED", _PENDING, _HELD, _HELD, (), _TIMER),
    READY: Row("READY", _PENDING, _LIVE, _LIVE, ("rank_ms",), _TIMER),
    PARKED: Row("PARKED", _PENDING, (*_LIVE, "parked"), _LIVE, ("rank_ms", "parking"), _TIMER),
    ASIDE: Row("ASIDE", _PENDING, _LIVE, _LIVE, ("rank_ms",), _TIMER),
    LEASED: Row(
        "LEASED", State.RUN_STATE_RUNNING, (*_LIVE, "running"), (*_LIVE, "leased"), (), _LEASE
    ),
    DELAYED: Row("DELAYED", State.RUN_STATE_RETRYING, _LIVE, _LIVE, ("retry_at_ms", *_TIMER)),
    SUCCEEDED: Row("SUCCEEDED", State.RUN_STATE_SUCCEEDED),
    FAILED: Row("FAILED", State.RUN_STATE_FAILED, (), ("dead",)),
    CANCELLED: Row("CANCELLED", State.RUN_STATE_CANCELLED),
    SKIPPED: Row("SKIPPED", State.RUN_STATE_SKIPPED),
}

ENDS = frozenset({SUCCEEDED, FAILED, CANCELLED, SKIPPED})
# Runs that are held back: they stand in no other's way, and are counted apart.
WAITING = frozenset({LATER, HELD, HALTED})
# What a run becomes in a grant, when its turn in its lane comes.
AT_ITS_RANK = frozenset({LEASED, PARKED, ASIDE})
# The fields that only some phases set.
FIELDS = tuple(sorted({name for row in TABLE.values() for name in row.holds + row.may_hold}))
# By phase, for what every run asks.
NEXT = tuple(frozenset(MOVES.get(at, {})) for at in range(ASIDE + 1))
STATES = tuple(TABLE[at].state if at in TABLE else _PENDING for at in range(ASIDE + 1))


def name(phase: int) -> str:
    row = TABLE.get(phase)
    return row.name if row is not None else f"phase {phase}"
