"""What an audit can prove of the past: the audit log, and the runs that are kept.

Each is read once, when the first question needs it, and only so much of it; what jobs of one
namespace have in common once for all that are audited together. What lies before is not known, and
each answer says from when on it is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain, islice

from ...proto.v1 import run_pb2
from ..core import limits
from ..core.instants import instant_of
from ..model import keys
from ..model.entities import Job
from ..model.record import AuditEntryRecord, CalendarRecord, RunRecord, StateRecord, parse
from ..model.view import View
from ..tenants import namespaces
from .audit_notes import Notes, NotesLog, Placed


class Spans:
    """Spans of time, of which is counted how many there are at an instant. What ended before it was
    to begin, as a run for later that was cancelled, is none."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        known = [(begin, end) for begin, end in spans if not 0 < end < begin]
        self.begins = sorted(begin for begin, _ in known)
        self.ends = sorted(end for _, end in known if end)

    def at(self, at_ms: int) -> int:
        return bisect_right(self.begins, at_ms) - bisect_left(self.ends, at_ms)


class NamespaceEvidence:
    """What is known of a namespace, for the audits of its jobs."""

    def __init__(self, view: View, job: Job) -> None:
        """Of that of a job."""
        self.view = view
        self.number = keys.namespace_of(job.jid)
        self.log = NotesLog(view, job.definition.namespace)
        set_back = view.get_raw(keys.SET_BACK)
        # What was decided up to here was decided by clocks that were set back since.
        self.set_back_ms = int.from_bytes(set_back or b"", "big")

    @cached_property
    def runs(self) -> list[RunRecord]:
        """Its runs, at most so many: those under way, then the newest of each job."""
        live, past = (_of_namespace(table, self.number) for table in (keys.RUN, keys.ENDED))
        return _runs(self.view, live, past)

    @cached_property
    def counted(self) -> Spans:
        """When runs of the namespace may have counted for its quota. What was requeued did before
        as well."""
        again = RunRecord.EXEMPT_DEADLINE
        begins = (
            (run.due_at_ms if run.exempt & again else run.ready_at_ms, run.ended_at_ms)
            for run in self.runs
        )
        return Spans((begin, end) for begin, end in begins if begin)

    @cached_property
    def jobs(self) -> tuple[int, int]:
        """How many jobs there are, as far as an audit looks; and for how long the one keeps its
        history that keeps it for the shortest time."""
        low, end = _of_namespace(keys.STATE, self.number)
        states = list(islice(self.view.stored.scan(low, end), limits.AUDIT_TIMES + 1))
        keeps = (parse(key, value, StateRecord).keep_ms for key, value in states)
        return len(states), min((keep for keep in keeps if keep), default=limits.LONG_MS)


class Evidence:
    """What is known of one job."""

    def __init__(self, view: View, job: Job, namespace: NamespaceEvidence) -> None:
        self.view = view
        self.jid = job.jid
        self.job = job.definition
        self.state = job.state
        self.namespace = namespace
        self.set_back_ms = namespace.set_back_ms

    @cached_property
    def notes(self) -> Notes:
        return self.namespace.log.back_to(self.job.created_at_ms)

    def about_job(self, *methods: str) -> Iterator[AuditEntryRecord]:
        """Notes of calls on the job, newest first."""
        return (note for _, note in self._about_job(*methods))

    def _about_job(self, *methods: str) -> Iterator[Placed]:
        found = self.notes.about(f"job/{self.job.name}")
        return (one for one in found if one[1].method in methods)

    @cached_property
    def edits(self) -> frozenset[int]:
        """The scheduled times that somebody moved or added, as far as it is known."""
        return frozenset(self.edited()[0])

    def edited(self) -> tuple[list[int], bool]:
        """The scheduled times that somebody moved or added; and whether these are all."""
        found, is_whole = [], self.notes.since_ms <= self.job.created_at_ms
        for note in self.about_job("EditOccurrence"):
            if note.change.startswith(("move ", "add ")):
                at_ms = instant_of(note.change.split()[1])
                found += [] if at_ms is None else [at_ms]
            # Notes of an earlier version do not say what was done.
            is_whole = is_whole and bool(note.change)
        return sorted(dict.fromkeys(found)), is_whole

    @cached_property
    def gave_up_ms(self) -> frozenset[int]:
        """When somebody made a call that gives up what waits or was moved."""
        own = self._about_job("DropBacklog", "RevertOccurrence", "UpdateJob")
        return frozenset(note.at_ms for _, note in chain(own, self.notes.of("ImportJobs")))

    @cached_property
    def edit_notes(self) -> frozenset[str]:
        """What was done to occurrences of the job, as the audit log says it; "" in an earlier
        version."""
        return frozenset(note.change for note in self.about_job("EditOccurrence"))

    @cached_property
    def schedules_ms(self) -> int:
        """When the job last got other schedules or another timing, or may have; 0 if never. They
        may count from before that, where both name what waited."""
        job, words = self.job, ("spec.schedules", "spec.timing")
        if job.version == 1:
            return 0
        updates = (
            one for one in self._about_job("UpdateJob")
            if any(word in one[1].change for word in words)
        )  # fmt: skip
        # Of an import the note does not say which jobs it changed.
        imports = (
            one for one in self.notes.of("ImportJobs")
            if job.created_at_ms < one[1].at_ms <= job.updated_at_ms
        )  # fmt: skip
        newest = [one for one in (next(updates, None), next(imports, None)) if one is not None]
        return min(newest, key=lambda one: one[0])[1].at_ms if newest else 0

    @cached_property
    def calendars_ms(self) -> int:
        """When a calendar of the job was last changed."""
        namespace = keys.namespace_of(self.jid)
        found = (
            self.view.get(keys.calendar(namespace, name), CalendarRecord)
            for name in self.job.template.calendars
        )
        return max((one.updated_at_ms for one in found if one is not None), default=0)

    # The runs of the job.

    @cached_property
    def history_ms(self) -> int:
        """What ended behind this instant is in the history still."""
        view, state = self.view, self.state
        well_ms, failed_ms = namespaces.keep_times(view, self.jid)
        keep_ms = min(state.keep_ms or well_ms, failed_ms)
        notes = self.notes
        return max(
            view.now_ms - keep_ms, self.job.policies_since_ms, self.set_back_ms,
            notes.since_ms - 1, notes.newest_ms(notes.log.shortening),
        )  # fmt: skip

    def occurrences(self, first_ms: int, end_ms: int) -> frozenset[int]:
        """Where runs of a range of scheduled times stand, under way or in the history."""
        jid, first, end = self.jid, keys.occurrence_of(first_ms), keys.occurrence_of(end_ms)
        stored = self.view.stored
        live = stored.scan(keys.run(jid, first), keys.run(jid, end))
        past = stored.scan(keys.ended(jid, end), keys.after(keys.ended(jid, first)))
        found = chain(
            (keys.run_of(key)[1] for key, _ in live), (keys.ended_of(key)[1] for key, _ in past)
        )
        return frozenset(islice(found, limits.LOOKED_AT))

    def backfilled(self, first_ms: int, end_ms: int) -> Iterator[tuple[int, RunRecord]]:
        """The runs of backfills in a range of scheduled times, and where they stand."""
        stored, jid = self.view.stored, self.jid
        for occurrence in sorted(self.occurrences(first_ms, end_ms)):
            key = keys.run(jid, occurrence)
            value = stored.get(key)
            if value is None:
                key = keys.ended(jid, occurrence)
                value = stored.get(key)
            run = RunRecord() if value is None else parse(key, value, RunRecord)
            if run.cause == run_pb2.CAUSE_BACKFILL:
                yield occurrence, run

    @cached_property
    def runs(self) -> list[RunRecord]:
        """The runs of the job, at most so many: those under way, then the newest."""
        live, past = keys.of_job(keys.RUN, self.jid), keys.of_job(keys.ENDED, self.jid)
        return _runs(self.view, (live, keys.after(live)), (past, keys.after(past)))

    @cached_property
    def requeued(self) -> dict[int, RunRecord]:
        """Those of its runs that were dead letters and began again, by where they stand."""
        jid, stored = self.jid, self.view.stored
        found: dict[int, RunRecord] = {}
        for table, place_of in ((keys.RUN, keys.run_of), (keys.ENDED, keys.ended_of)):
            low = keys.of_job(table, jid)
            entries = stored.scan(low, keys.after(low))
            for key, value in islice(entries, limits.AUDIT_TIMES - len(found)):
                run = parse(key, value, RunRecord)
                if run.exempt & RunRecord.EXEMPT_DEADLINE:
                    found[place_of(key)[1]] = run
        return found

    @property
    def has_all_runs(self) -> bool:
        return len(self.runs) <= limits.AUDIT_TIMES

    @cached_property
    def beside(self) -> Spans:
        """When runs of the job may have been under way."""
        return Spans((run.due_at_ms, run.ended_at_ms) for run in self.runs)

    @cached_property
    def expired(self) -> Counter[int]:
        """How many runs of the job reached their start deadline, by the instant at which they
        ended: what came then found them gone."""
        late = run_pb2.OUTCOME_SKIPPED_DEADLINE
        return Counter(run.ended_at_ms for run in self.runs if run.outcome == late)

    # The runs of its namespace.

    @cached_property
    def quota_ms(self) -> int:
        """Since when the quota of the namespace is as it is now, as far as the audit log says."""
        notes = self.notes
        changed_ms = notes.newest_ms(notes.log.by_method["UpdateNamespace"])
        return max(notes.since_ms - 1, self.set_back_ms, changed_ms)

    @cached_property
    def namespace_ms(self) -> int | None:
        """What ran in the namespace behind this instant is in the history still; None: nobody
        knows, since it is too much, or jobs have gone."""
        namespace, notes = self.namespace, self.notes
        number, keep_ms = namespace.jobs
        is_much = len(namespace.runs) > limits.AUDIT_TIMES
        if is_much or notes.number_of("CreateJob") != number:
            return None
        changed_ms = notes.newest_ms(notes.log.keeping)
        return max(self.history_ms, self.view.now_ms - keep_ms, changed_ms)


def _of_namespace(table: bytes, number: int) -> tuple[bytes, bytes]:
    """Where the keys of a table of jobs or runs begin and end that belong to a namespace."""
    return (
        keys.of_job(table, keys.jid_of(number, 0)), keys.of_job(table, keys.jid_of(number + 1, 0))
    )  # fmt: skip


def _runs(view: View, *ranges: tuple[bytes, bytes]) -> list[RunRecord]:
    entries = chain(*(view.stored.scan(low, end) for low, end in ranges))
    return [parse(key, value, RunRecord) for key, value in islice(entries, limits.AUDIT_TIMES + 1)]
