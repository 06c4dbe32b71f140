"""Whose progress comes into the next change: tenants take turns, and the workers of each."""

from __future__ import annotations

from collections import OrderedDict

from ...statemachine.model import keys
from . import worker_reports
from .pending import PendingRequest
from .worker_session import WorkerSession

# Progress that one change may write. What is due or frees capacity waits for a change that is on
# its way, and three nodes write each.
PROGRESS_BYTES = 128 << 10
TURN_BYTES = 32 << 10  # Of one worker before it is another one's turn: a report of full size.


class ProgressQueue:
    """Sessions with progress that waits for a change, by tenant; whose turn it is, is first."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, OrderedDict[WorkerSession, None]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def add(self, session: WorkerSession, *, first: bool = False) -> None:
        """It waits behind the others, or ahead of them since a change had no room for it."""
        tenant = keys.owner_of(session.worker)
        line = self._tenants.setdefault(tenant, OrderedDict())
        line.setdefault(session)
        if first:
            self._tenants.move_to_end(tenant, last=False)
            line.move_to_end(session, last=False)

    def take(self, most: int) -> list[PendingRequest]:
        """At most so many reports."""
        parts: list[PendingRequest] = []
        left_bytes = PROGRESS_BYTES
        while self._tenants and most > 0 and left_bytes > 0:
            tenant, line = self._tenants.popitem(last=False)
            session, _ = line.popitem(last=False)
            if line:
                self._tenants[tenant] = line
            # A lease of its hello must not be called lost before it was looked at.
            if session.resume is None and session.notes:
                notes, size = session.take_notes(most, TURN_BYTES)
                parts.append(worker_reports.note(session, notes))
                most -= len(notes)
                left_bytes -= size
                if session.notes:
                    self.add(session)
        return parts

    def clear(self) -> None:
        self._tenants.clear()
