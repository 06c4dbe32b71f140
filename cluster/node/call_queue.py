"""Calls that wait for a change, and bounded.

Callers take turns, each with one call; the calls of one caller are first come first served. The
places are shared by tenants, whatever callers (access tokens) these have: see TenantRoom.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from . import refusals
from .pending import PendingRequest
from .tenant_room import TenantRoom

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
    items: TenantRoom = field(default_factory=lambda: TenantRoom(WAITING_ITEMS))
    bytes: TenantRoom = field(default_factory=lambda: TenantRoom(WAITING_BYTES))

    def check_room(self, name: str, tenant: str, items: int, size: int) -> None:
        """Refuse a call for which there is no room, or which its tenant must leave to others."""
        rooms = (self.items, items, "requests"), (self.bytes, size, "bytes of requests")
        for room, amount, what in rooms:
            if not room.has_room(tenant, amount):
                all_of = f"{room.taken} {what} wait for {name} already"
                own = f"{room.held(tenant)} {what} of {tenant} wait for {name} already, and a "
                own += f"tenant may hold {room.share()} while {room.maximum - room.taken} of "
                own += f"{room.maximum} are free"
                raise refusals.backlog_full(own if room.held(tenant) and tenant else all_of)

    def add(self, call: PendingRequest) -> None:
        line = self.lines.get(call.actor)
        if line is None:
            self.lines[call.actor] = deque((call,))
            self.turns.append(call.actor)
        else:
            line.append(call)
        self._count(call)

    def _count(self, call: PendingRequest) -> None:
        self.items.take(call.tenant, call.items)
        self.bytes.take(call.tenant, call.size)

    def put_back(self, calls: Sequence[PendingRequest]) -> None:
        """These were taken last and not decided: each comes first among the calls of its caller,
        and their callers, in this order, have the next turns."""
        for call in reversed(calls):
            self.lines.setdefault(call.actor, deque()).appendleft(call)
            self._count(call)
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
        self.items.give(call.tenant, call.items)
        self.bytes.give(call.tenant, call.size)
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
