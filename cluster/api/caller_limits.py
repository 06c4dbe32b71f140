"""What callers hold of this node: calls, bytes that come and go, streams, watchers and waits,
each with a limit for one caller and one for all of them.

A caller is the access token that is shown, or the address of whoever shows none and needs none. One
caller may have no more than a share, so that there is always room for another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from google.protobuf.message import Message

from ...proto.v1 import job_pb2
from ..node import refusals
from ..node.limits import CallerLimits

MIB = 1 << 20
MESSAGE_MAX = 4 * MIB  # As gRPC sends and takes it.
STRANGERS = 8
# Reads that compute for long on a thread, which shares the interpreter with the loop.
COSTLY = frozenset({
    "JobService/ForecastFirings", "JobService/AuditJob", "JobService/AuditJobs"
})  # fmt: skip
COSTLY_MAX, COSTLY_BY_CALLER = 2, 1

# There must be room for the largest answer before a call is looked at.
ANSWER_MAX = 8 << 20
# What a call holds beside its answer until the caller has taken that. The answer is held twice: as
# bytes of ours, and as gRPC copies them.
ANSWERED_BYTES = 8 << 10


def is_costly(name: str, request: Message) -> bool:
    """Whether a call computes for long. A forecast for which an older count will do does not."""
    return name in COSTLY and not (
        isinstance(request, job_pb2.ForecastFiringsRequest) and request.HasField("max_age")
    )


class CallerShare:
    """One thing of which there is not enough for everybody."""

    __slots__ = ("by_caller", "held", "maximum", "name", "own", "total", "unit")

    def __init__(self, name: str, maximum: int, by_caller: int, unit: int = 1) -> None:
        """The name is that of the setting, if it is one, which counts in units."""
        own = f"{name}_by_caller"
        self.name, self.own, self.unit = name, own if own in refusals.RAISED else name, unit
        self.maximum, self.by_caller = maximum * unit, by_caller * unit
        self.total = 0
        # Whoever holds nothing is not in here.
        self.held: dict[str, int] = {}

    def take(self, caller: str, amount: int = 1) -> None:
        """Let a caller have some more, or refuse it. Written out, since each call does it twice."""
        held, total = self.held.get(caller, 0) + amount, self.total + amount
        if held > self.by_caller or total > self.maximum:
            self.check(caller, amount)
        self.held[caller], self.total = held, total

    def check(self, caller: str, amount: int) -> None:
        """Refuse a caller for whom there is not so much more."""
        if self.by_caller < self.maximum and self.held.get(caller, 0) + amount > self.by_caller:
            raise refusals.node_limit(self.own, self.by_caller // self.unit, caller)
        if self.total + amount > self.maximum:
            raise refusals.node_limit(self.name, self.maximum // self.unit, refusals.ALL)

    def hold(self, caller: str, amount: int) -> None:
        """A caller has so much more, whether there is room or not."""
        self.total += amount
        self.held[caller] = self.held.get(caller, 0) + amount

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


class CallerShares:
    """All of them, as a node is configured."""

    def __init__(self, limits: CallerLimits | None = None) -> None:
        limits = limits or CallerLimits()
        self.limits = limits
        self.calls = CallerShare("calls", limits.calls, limits.calls_by_caller)
        self.costly = CallerShare("costly_reads", COSTLY_MAX, COSTLY_BY_CALLER)
        # Calls of whom only the request itself says who they are.
        self.strangers = CallerShare("strangers", STRANGERS, STRANGERS)
        self.bytes = CallerShare("body_mb", limits.body_mb, limits.body_mb_by_caller, MIB)
        self.answers = CallerShare(
            "answers_mb", limits.answers_mb, limits.answers_mb_by_caller, MIB
        )
        self.streams = CallerShare("streams", limits.streams, limits.streams_by_caller)
        # Streams of workers that have sent no hello yet, which they must do soon.
        self.greetings = CallerShare("greetings", limits.streams, limits.streams_by_caller)
        self.watchers = CallerShare("watchers", limits.watchers, limits.watchers_by_caller)
        self.waits = CallerShare("waits", limits.waits, limits.waits_by_caller)
