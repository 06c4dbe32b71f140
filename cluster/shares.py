"""How the kinds of work in one change share its time.

What comes last in a change waits for all that is before it, and what is due next waits for the
change as a whole. So each kind has a share of the time, in the order in which they stand here. What
it does not use, the next ones may; and each has a little of its own, however long those before it
took. What callers ask for and what is left over from long work fill a change only while nothing is
due: else they have a moment of each.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, auto

from ..statemachine.budget import Budget, Share, until
from ..statemachine.request import Grant, MakeAlerts, Observe, Ring
from .part import Part


class Kind(IntEnum):
    """Kinds of work, in the order in which a change does them. Numbers, which hash fast."""

    # What workers have said, which frees what others wait for.
    WORDS = auto()
    # What is due now.
    DUE = auto()
    # What callers ask for.
    CALLS = auto()
    # What can wait: the rest of backfills, waves and deletions, and a look at the alerts.
    LATER = auto()
    GRANT = auto()


# Seconds that a kind has in any case; and since the beginning of the change, if those before it
# took less. Of a herd, a change holds 9 ms of words, of what is due and of leases each.
TIMES = {
    Kind.WORDS: (0.010, 0.010),
    Kind.DUE: (0.008, 0.020),
    Kind.CALLS: (0.004, 0.020),
    Kind.LATER: (0.004, 0.024),
    Kind.GRANT: (0.008, 0.030),
}
# Where something is due or will be soon; and what those may write then, since a change of many
# bytes takes long to agree on.
HURRIED = TIMES | {Kind.CALLS: (0.004, 0.0), Kind.LATER: (0.004, 0.0)}
HURRIED_BYTES = {Kind.CALLS: 256 << 10, Kind.LATER: 256 << 10}


def kind_of(part: Part) -> Kind:
    body = part.body
    if part.asked:
        return Kind.CALLS
    if isinstance(body, Ring):
        return Kind.LATER if body.later else Kind.DUE
    if isinstance(body, Grant):
        return Kind.GRANT
    return Kind.LATER if isinstance(body, MakeAlerts | Observe) else Kind.WORDS


class Shares:
    """Of one change."""

    def __init__(self, seconds: Callable[[], float], *, hurries: bool) -> None:
        self._seconds, self._began = seconds, seconds()
        self._times = HURRIED if hurries else TIMES
        self._most = HURRIED_BYTES if hurries else {}
        self._of: dict[Kind, Share] = {}

    def of(self, kind: Kind) -> Share:
        share = self._of.get(kind)
        if share is None:
            new_budget = counted(self._seconds, self._began, *self._times[kind])
            share = self._of[kind] = Share(new_budget, self._most.get(kind, 0))
        return share


def counted(
    seconds: Callable[[], float], began: float, least_s: float, until_s: float
) -> Callable[[], Budget]:
    """It does not hold the shares it is one of: they go with their decision."""
    return lambda: until(seconds, max(seconds() + least_s, began + until_s))
