"""How the kinds of work in one change share its time.

What comes last in a change waits for all that is before it, and what is due next waits for the
change as a whole. So each kind has a share of the time, in the order in which they stand here. What
it does not use, the next ones may; and each has a little of its own, however long those before it
took. How large the shares are depends on who waits:

* Nobody: what callers ask for and what is left over from long work fill a change.
* Many that are due: those have a moment of each change, and what is due the rest of it.
* Somebody beside it, now or soon: all have a moment. A change costs what it costs however little is
  in it, so many alone take a tenth longer in such changes, and nobody waits long for one. What
  callers ask for may go on for a quarter of the time until then: agreeing on it takes as long again
  or longer. Where change after change leaves some of those beside it, they are many as well: only
  large changes get them done.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum, IntEnum, auto

from ...statemachine.core.budget import Budget, Share, until
from ...statemachine.model.request import (
    FireTimers,
    Grant,
    MakeAlerts,
    Note,
    NoteUses,
    Observe,
    Report,
    Resume,
)
from .pending import PendingRequest
from .progress_queue import PROGRESS_BYTES


class WorkKind(IntEnum):
    """Kinds of work, in the order in which a change does them. Numbers, which hash fast."""

    # What workers have reported, which frees what others wait for.
    REPORTS = auto()
    # What is due now.
    DUE = auto()
    # What workers hold that come to this leader: any number of them, with thousands of leases each.
    HELLOS = auto()
    # How far runs are: nobody waits for it, and a newer word replaces an older one.
    PROGRESS = auto()
    # What callers ask for.
    CALLS = auto()
    # What can wait: the rest of backfills, waves and deletions, a look at the alerts, and notes.
    LATER = auto()
    GRANT = auto()


# Who waits for nothing that is due, and is waited for by what is.
OTHERS = (WorkKind.HELLOS, WorkKind.PROGRESS, WorkKind.CALLS, WorkKind.LATER)
UNTIL_DUE = 0.25  # Of the time until somebody is due: what others may fill of it.


# Seconds that a kind has in any case; and since the beginning of the change, if those before it
# took less.
Times = dict[WorkKind, tuple[float, float]]


class Haste(Enum):
    """Who waits for a change."""

    NOBODY = auto()
    MANY_DUE = auto()
    OTHERS = auto()


TIMES: dict[Haste, Times] = {
    Haste.NOBODY: {
        WorkKind.REPORTS: (0.010, 0.010),
        WorkKind.DUE: (0.008, 0.020),
        WorkKind.HELLOS: (0.004, 0.020),
        WorkKind.PROGRESS: (0.004, 0.020),
        WorkKind.CALLS: (0.004, 0.020),
        WorkKind.LATER: (0.004, 0.024),
        WorkKind.GRANT: (0.008, 0.030),
    },
    # A change holds 9 ms of words, of what is due and of leases each.
    Haste.MANY_DUE: {
        WorkKind.REPORTS: (0.010, 0.0),
        WorkKind.DUE: (0.008, 0.020),
        WorkKind.HELLOS: (0.004, 0.0),
        WorkKind.PROGRESS: (0.004, 0.0),
        WorkKind.CALLS: (0.004, 0.0),
        WorkKind.LATER: (0.004, 0.0),
        WorkKind.GRANT: (0.008, 0.030),
    },
    Haste.OTHERS: {
        WorkKind.REPORTS: (0.002, 0.0),
        WorkKind.DUE: (0.002, 0.004),
        WorkKind.HELLOS: (0.002, 0.004),
        WorkKind.PROGRESS: (0.002, 0.0),
        WorkKind.CALLS: (0.002, 0.0),
        WorkKind.LATER: (0.002, 0.0),
        WorkKind.GRANT: (0.002, 0.007),
    },
}
# What some may write where somebody waits, since a change of many bytes takes long to agree on; and
# progress in any case, since there may be any amount of it.
_PROGRESS = {WorkKind.PROGRESS: PROGRESS_BYTES}
BYTES: dict[Haste, dict[WorkKind, int]] = {
    Haste.NOBODY: _PROGRESS,
    Haste.MANY_DUE: {**_PROGRESS, WorkKind.CALLS: 256 << 10, WorkKind.LATER: 256 << 10},
    Haste.OTHERS: {**_PROGRESS, WorkKind.CALLS: 128 << 10, WorkKind.LATER: 128 << 10},
}


# Steps that a kind does, in so many seconds more at most: where the machine gives this process no
# processor for a while, time goes by and nothing was done.
LEAST = {WorkKind.REPORTS: 32, WorkKind.DUE: 32}
LEAST_S = 0.006


def kind_of(part: PendingRequest) -> WorkKind:
    body = part.body
    if isinstance(body, Note):
        return WorkKind.REPORTS if part.ends else WorkKind.PROGRESS
    if part.asked:
        # A worker without a stream says in a call how attempts ended.
        return WorkKind.REPORTS if isinstance(body, Report) else WorkKind.CALLS
    if isinstance(body, FireTimers):
        return WorkKind.LATER if body.later else WorkKind.DUE
    if isinstance(body, Grant):
        return WorkKind.GRANT
    if isinstance(body, Resume):
        return WorkKind.HELLOS
    return WorkKind.LATER if isinstance(body, MakeAlerts | NoteUses | Observe) else WorkKind.REPORTS


class TimeShares:
    """Of one change."""

    def __init__(
        self, seconds: Callable[[], float], haste: Haste, left_s: float = math.inf
    ) -> None:
        """`left_s`: until somebody is due."""
        self._seconds, self._began = seconds, seconds()
        self._times, self._most = dict(TIMES[haste]), BYTES[haste]
        for kind in OTHERS if haste is not Haste.MANY_DUE else ():
            least_s, until_s = TIMES[Haste.OTHERS][kind]
            most_s = TIMES[Haste.NOBODY][kind][1]
            self._times[kind] = least_s, min(most_s, max(until_s, UNTIL_DUE * left_s))
        self._of: dict[WorkKind, Share] = {}

    def of(self, kind: WorkKind) -> Share:
        share = self._of.get(kind)
        if share is None:
            new_budget = counted(self._seconds, self._began, *self._times[kind], LEAST.get(kind, 0))
            share = self._of[kind] = Share(new_budget, self._most.get(kind, 0))
        return share


def counted(
    seconds: Callable[[], float], began: float, least_s: float, until_s: float, least: int
) -> Callable[[], Budget]:
    """It does not hold the shares it is one of: they go with their decision."""

    def new_budget() -> Budget:
        at = max(seconds() + least_s, began + until_s)
        return until(seconds, at, least, at + LEAST_S) if least else until(seconds, at)

    return new_budget
