"""Calls that wait for a change, first come first served, and bounded."""

from __future__ import annotations

from collections import deque
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

    line: deque[PendingRequest] = field(default_factory=deque)
    items: int = 0
    bytes: int = 0

    def check_room(self, name: str, items: int, size: int) -> None:
        """Refuse a call for which there is no room."""
        if self.items + items > WAITING_ITEMS or self.bytes + size > WAITING_BYTES:
            raise refusals.backlog_full(
                f"{self.items} requests of {self.bytes} bytes wait for {name} already"
            )

    def add(self, call: PendingRequest) -> None:
        self.line.append(call)
        self.items += call.items
        self.bytes += call.size

    def add_first(self, call: PendingRequest) -> None:
        self.line.appendleft(call)
        self.items += call.items
        self.bytes += call.size

    def pop(self) -> PendingRequest:
        call = self.line.popleft()
        self.items -= call.items
        self.bytes -= call.size
        return call

    def take(self) -> list[PendingRequest]:
        """What goes into the next change."""
        calls: list[PendingRequest] = []
        items = size = 0
        line = self.line
        while line and items < CALLS_ITEMS and (not calls or size + line[0].size <= CALLS_SIZE):
            call = self.pop()
            if not call.withdrawn:
                calls.append(call)
                items += call.items
                size += call.size
        return calls
