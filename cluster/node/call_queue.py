"""Calls that wait for a change, and bounded.

Callers take turns, each with one call; the calls of one caller are first come first served.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from . import refusals
from .pending import PendingRequest

CALLS_ITEMS = 3_000  # Jobs in calls that go into a change; creating one costs a third of a run.
CALLS_SIZE = 1 << 20  # Bytes of calls that go into a change: what they write may be more.
WAITING_ITEMS = 100_000  # Jobs and other things asked for that wait for a change.
WAITING_BYTES = 64 << 20


@dataclass(slots=True)
class CallQueue:
    """See the head of this file."""

    # The callers who have calls here, in the order of their turns, and the calls of each.
    turns: deque[str] = field(default_factory=deque)
    lines: dict[str, deque[PendingRequest]] = field(default_factory=dict)
    items: int = 0
    bytes: int = 0

    def check_room(self, name: str, items: int, size: int) -> None:
        """Refuse a call for which there is no room."""
        if self.items + items > WAITING_ITEMS or self.bytes + size > WAITING_BYTES:
            raise refusals.backlog_full(
                f"{self.items} requests of {self.bytes} bytes wait for {name} already"
            )

    def add(self, call: PendingRequest) -> None:
        line = self.lines.get(call.actor)
        if line is None:
            self.lines[call.actor] = deque((call,))
            self.turns.append(call.actor)
        else:
            line.append(call)
        self.items += call.items
        self.bytes += call.size

    def put_back(self, calls: Sequence[PendingRequest]) -> None:
        """These were taken last and not decided: each comes first among the calls of its caller,
        and their callers, in this order, have the next turns."""
        for call in reversed(calls):
            self.lines.setdefault(call.actor, deque()).appendleft(call)
            self.items += call.items
            self.bytes += call.size
        callers = dict.fromkeys(call.actor for call in calls)
        self.turns = deque((*callers, *(each for each in self.turns if each not in callers)))

    def pop(self) -> PendingRequest:
        caller = self.turns.popleft()
        line = self.lines[caller]
        call = line.popleft()
        if line:
            self.turns.append(caller)
        else:
            del self.lines[caller]
        self.items -= call.items
        self.bytes -= call.size
        return call

    def take(self) -> list[PendingRequest]:
        """What goes into the next change."""
        calls: list[PendingRequest] = []
        items = size = 0
        while self.turns and items < CALLS_ITEMS:
            if calls and size + self.lines[self.turns[0]][0].size > CALLS_SIZE:
                break
            call = self.pop()
            if not call.withdrawn:
                calls.append(call)
                items += call.items
                size += call.size
        return calls
