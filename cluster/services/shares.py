"""What callers hold of this node: calls, bytes, streams, watchers and waits, each with a limit for
one caller and one for all of them.

A caller is the access token that is shown, or the address of whoever shows none and needs none. One
caller may have no more than a share, so that there is always room for another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .. import refusals
from ..config import Limits

STRANGERS = 8
# Reads that compute for long on a thread, which shares the interpreter with the loop.
COSTLY = frozenset({"JobService/ForecastFirings", "JobService/AuditJob"})
COSTLY_MAX, COSTLY_BY_CALLER = 2, 1


class Share:
    """One thing of which there is not enough for everybody."""

    __slots__ = ("by_caller", "held", "maximum", "name", "total")

    def __init__(self, name: str, maximum: int, by_caller: int) -> None:
        self.name, self.maximum, self.by_caller = name, maximum, by_caller
        self.total = 0
        # Whoever holds nothing is not in here.
        self.held: dict[str, int] = {}

    def take(self, caller: str, amount: int = 1) -> None:
        """Let a caller have some more, or refuse it."""
        total, held = self.total + amount, self.held.get(caller, 0) + amount
        if held > self.by_caller:
            raise refusals.node_limit(self.name, self.by_caller, caller)
        if total > self.maximum:
            raise refusals.node_limit(self.name, self.maximum, refusals.ALL)
        self.total, self.held[caller] = total, held

    def give(self, caller: str, amount: int = 1) -> None:
        """A caller has done with it."""
        self.total -= amount
        # Who held nothing but empty bodies is not in here any more when the first of them goes.
        left = self.held.pop(caller, 0) - amount
        if left:
            self.held[caller] = left

    @contextmanager
    def taken(self, caller: str) -> Iterator[None]:
        self.take(caller)
        try:
            yield
        finally:
            self.give(caller)


class Shares:
    """All of them, as a node is configured."""

    def __init__(self, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self.limits = limits
        self.calls = Share("calls", limits.calls, limits.calls_by_caller)
        self.costly = Share("costly_reads", COSTLY_MAX, COSTLY_BY_CALLER)
        # Calls of whom only the request itself tells who they are.
        self.strangers = Share("strangers", STRANGERS, STRANGERS)
        self.bytes = Share("body_mb", limits.body_mb << 20, limits.body_mb_by_caller << 20)
        self.streams = Share("streams", limits.streams, limits.streams_by_caller)
        # Streams of workers that have not said hello yet, which they must do soon.
        self.greetings = Share("greetings", limits.streams, limits.streams_by_caller)
        self.watchers = Share("watchers", limits.watchers, limits.watchers_by_caller)
        self.waits = Share("waits", limits.waits, limits.waits_by_caller)
