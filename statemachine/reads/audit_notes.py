"""What the audit log says of the jobs of a namespace: read once, for all that are audited together.

The log is walked from its newest note on, only so far back as the oldest of the jobs needs, and a
note is found by what it is about. A job sees of it what a walk of its own would have: the notes
from the newest one to its creation. The clock of the state may have been set back, so its notes
need not lie in the order of their times.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from ..core import limits
from ..model import keys
from ..model.record import AuditEntryRecord, parse
from ..model.view import View

# Calls after which history may lack what it would have kept else.
SHORTENS = frozenset({"UpdateNamespace", "PurgeDeadLetters", "ImportJobs", "DeleteJob"})
# Calls that are looked for, whatever they are about.
METHODS = SHORTENS | {"CreateJob", "RequeueDeadLetters"}
KEEPS = "keep_history"  # In a note of a job that is kept for another time now.
RUN = "run/"

# A note, and how many are newer.
Placed = tuple[int, AuditEntryRecord]


class NotesLog:
    """See the head of this file."""

    def __init__(self, view: View, namespace: str) -> None:
        self._view, self._namespace = view, namespace
        self._entries = view.stored.scan(keys.AUDIT, keys.after(keys.AUDIT))
        # Of each note that was read the earliest time up to it, negative, so that it only rises.
        self._back: list[int] = []
        self._last_ms = 0
        self.by_subject: dict[str, list[Placed]] = {}
        self.by_method: dict[str, list[Placed]] = {method: [] for method in METHODS}
        self.shortening: list[Placed] = []
        self.keeping: list[Placed] = []

    def back_to(self, created_ms: int) -> Notes:
        """As much of it as a job sees that was created then."""
        self._read_back_to(created_ms)
        end = bisect_right(self._back, -created_ms)
        if end < len(self._back):
            since_ms = created_ms
        elif end > limits.AUDIT_NOTES:
            end, since_ms = limits.AUDIT_NOTES, self._last_ms + 1
        elif not self._view.meta.audit_from:
            since_ms = 0
        else:
            since_ms = (self._last_ms if end else self._view.now_ms) + 1
        return Notes(self, end, since_ms)

    def _read_back_to(self, created_ms: int) -> None:
        back, namespace = self._back, self._namespace
        earliest = back[-1] if back else -limits.INSTANT_MAX_MS
        if earliest > -created_ms or len(back) > limits.AUDIT_NOTES:
            return
        for key, value in self._entries:
            note = parse(key, value, AuditEntryRecord)
            if note.namespace == namespace:
                self._index((len(back), note))
            self._last_ms = note.at_ms
            if -note.at_ms > earliest:
                earliest = -note.at_ms
            back.append(earliest)
            if earliest > -created_ms or len(back) > limits.AUDIT_NOTES:
                return

    def _index(self, placed: Placed) -> None:
        note = placed[1]
        subject, method = note.subject, note.method
        if subject.startswith(RUN):
            # All runs of a job stand together.
            subject = ".".join(subject.split(".", 2)[:2])
        mine = self.by_subject.get(subject)
        if mine is None:
            self.by_subject[subject] = [placed]
        else:
            mine.append(placed)
        if method in METHODS:
            self.by_method[method].append(placed)
            if method in SHORTENS:
                self.shortening.append(placed)
        elif method == "UpdateJob" and KEEPS in note.change:
            self.keeping.append(placed)


@dataclass(frozen=True, slots=True)
class Notes:
    """What the audit log says of a namespace, as one job sees it; always the newest first."""

    log: NotesLog
    # So many of the newest notes are looked at, of all namespaces.
    end: int
    # From this instant on nothing is missing.
    since_ms: int

    def placed(self, found: list[Placed]) -> Iterator[Placed]:
        for one in found:
            if one[0] >= self.end:
                return
            yield one

    def about(self, subject: str) -> Iterator[Placed]:
        """Notes of calls on one thing."""
        return self.placed(self.log.by_subject.get(subject, []))

    def about_runs(self, job: str, jid: int) -> Iterator[AuditEntryRecord]:
        """Notes of calls on runs of a job."""
        return (note for _, note in self.about(f"{RUN}{job}.{jid}"))

    def of(self, method: str) -> Iterator[Placed]:
        """Notes of one of METHODS."""
        return self.placed(self.log.by_method[method])

    def number_of(self, method: str) -> int:
        return bisect_left(self.log.by_method[method], self.end, key=lambda one: one[0])

    def newest_ms(self, found: list[Placed]) -> int:
        """When the newest of some notes was made; 0: there is none."""
        return next((note.at_ms for _, note in self.placed(found)), 0)
