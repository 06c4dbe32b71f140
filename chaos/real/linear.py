"""Is there an order in which the calls on one record make sense?

Each call takes effect at one instant between its beginning and its end. A call whose outcome is
unknown took effect at some instant after its beginning, or never. The search is Wing and Gong's
with Lowe's memory: it takes the calls that may come first, one after the other, and never looks at
the same set of calls with the same value twice. Records are checked one by one, which is allowed
since no call touches two.
"""

from __future__ import annotations

from collections.abc import Sequence

from .history import OK, UNKNOWN, ClientCall

ABSENT = ""
STEPS_MAX = 200_000


class Undecided(Exception):
    """The search was ended; the history is too concurrent to be checked."""


def effect(call: ClientCall, value: str) -> str | None:
    """The value after the call; None when it could not have been answered so."""
    if call.what == "get":
        return value if call.value == value else None
    if call.what == "create":
        return call.value if value == ABSENT else None
    if call.what == "update":
        return call.value if value != ABSENT else None
    if call.what == "delete":
        return ABSENT if value != ABSENT else None
    raise ValueError(f"{call.what} is no call on a record")


def linearizable(calls: Sequence[ClientCall]) -> bool:
    """Check the calls on one record, which is absent at first."""
    line = sorted((c for c in calls if matters(c)), key=lambda call: call.began)
    ends = [call.ended if call.outcome == OK else float("inf") for call in line]
    must = sum(1 << place for place, call in enumerate(line) if call.outcome == OK)
    seen: set[tuple[int, str]] = set()
    stack: list[tuple[int, str]] = [(0, ABSENT)]
    while stack:
        done, value = stack.pop()
        if done & must == must:
            return True
        if (done, value) in seen:
            continue
        seen.add((done, value))
        if len(seen) > STEPS_MAX:
            raise Undecided(f"{len(line)} calls of {line[0].job} overlap too much")
        stack += _next(line, ends, done, value)
    return not must


def matters(call: ClientCall) -> bool:
    """Refused calls changed nothing, and a read without an answer saw nothing."""
    return call.outcome == OK or (call.outcome == UNKNOWN and call.what != "get")


def _next(
    line: Sequence[ClientCall], ends: Sequence[float], done: int, value: str
) -> list[tuple[int, str]]:
    """Who may come next: those that began before any other that is left has ended."""
    first_end = min(
        (ends[place] for place in range(len(line)) if not done >> place & 1), default=float("inf")
    )
    found = []
    for place, call in enumerate(line):
        if done >> place & 1:
            continue
        if call.began > first_end:
            break
        after = effect(call, value)
        if after is not None:
            found.append((done | 1 << place, after))
    return found
