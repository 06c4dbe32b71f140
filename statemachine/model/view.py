"""What a decision sees: the store, and over it everything this decision has written so far.

Records are parsed once for a decision and handed out as they are. Jobs and runs are handed out as
entities (entities.py), and what a rule takes of one to change it is written; of other kinds it
changes a record and then calls `put`. Scans see the writes too, for the tables in which rules scan.
When the decision is done, `seal` turns the writes into a change. The store is never written here.

Scans see the writes only for tables in which a rule must find what its own decision wrote;
`scan_stored` is for work in small steps, which finds the rest in the next step.

A change is bounded in bytes. A view weighs what can be large in it (runs, jobs, answers). When it
is full (`limits.CHANGE_BYTES`) work in steps ends, a report is acknowledged in part, and `decide`
leaves the requests behind for the next change. A change goes beyond that by its last record, or by
what its last request brought along, which is at most 3 MiB.

`Recall` carries parsed records from one decision to the next, since a run is fired, leased and
completed in two or three changes, each time with its job. What nobody looks at again soon (new
jobs, ended runs, answers) is put as bytes (`put_once`), so that an import does not push out what is
needed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from ...proto.v1 import worker_pb2
from ..core import limits
from ..core.budget import Budget, unlimited
from ..core.store import Reading
from ..schedule.calendar_days import CalendarDays
from ..schedule.plan import Plan
from . import keys
from .entities import Job, Run, job_with, run_with
from .graph_memory import GraphMemory
from .record import (
    AnyRecord,
    CalendarRecord,
    Change,
    JobRecord,
    MetaRecord,
    NamespaceRecord,
    QueueRecord,
    Record,
    RunRecord,
    SessionRecord,
    StateRecord,
    UsageRecord,
    encode,
    parse,
)
from .specs import Template

# Tables in which a rule must find what its own decision has written, with the length of the prefix
# that each scan gives. `scan` sees those; `scan_stored` is for all others.
_SCANNED = {
    keys.RUN: 9,
    keys.READY: 5,
    keys.PARKED: 8,
    keys.FIRST_WAITING: 8,
    keys.LANE_OF: 5,
    keys.BUSY: 1,
    keys.EDGE: 9,
    keys.STEP: 17,
    keys.NOTICE: 17,
    keys.SURVEYED: 17,
    keys.IN_SURVEY: 17,
    keys.UNIQUE: 9,
    keys.NAMESPACE: 1,
    keys.JOB: 4,
    keys.CALENDAR: 5,
    keys.ALERT: 5,
    keys.ACCESS: 1,
    keys.PROVIDER: 1,
    keys.TARGET_SECRET: 5,
    keys.SECRET_USER: 13,
    keys.STRETCH: 9,
    keys.QUOTA_WAIT: 5,
}
_PREFIX = {table[0]: length for table, length in _SCANNED.items()}


# Tables whose records the leader meets again soon: a run is fired, leased and completed in two or
# three changes, each time with its job.
_RECALLED = frozenset(
    table[0]
    for table in (
        keys.RUN, keys.STATE, keys.JOB, keys.LANE, keys.QUEUE, keys.SESSION, keys.USAGE,
        keys.NAMESPACE,
    )
)  # fmt: skip
# Of which rules have jobs and runs, not records.
_ENTITIES = frozenset(table[0] for table in (keys.RUN, keys.STATE, keys.JOB))
# Of which a view need note nothing when a record is put.
_QUIET = _RECALLED - _PREFIX.keys()
RECALL_MAX = 32_768
# What an entry weighs beside what can be large in it.
_LIGHT_BYTES = 100
# Records that are read ahead at a time; so few that no scan pays; and up to how many may lie there
# for each that is wanted, so that it does.
STRETCH = 64
FEW = 8
DENSE = 4
MANY = 64  # Keys written under the prefix of a scan above which they are sorted once for all.
NO_TIMER = b"\xff"  # Behind every timer.


class Lent(NamedTuple):
    """What was parsed, by key; jobs by their numbers, and runs with their occurrence."""

    records: dict[bytes, Record]
    jobs: dict[int, Job]
    runs: dict[tuple[int, int], Run]

    @classmethod
    def nothing(cls) -> Lent:
        return cls({}, {}, {})

    def size(self) -> int:
        """How many records that is."""
        return len(self.records) + 2 * len(self.jobs) + len(self.runs)


class Recall:
    """Parsed records that outlive a decision, so that the next one need not read them again.

    A view takes them all, and may change them. Only when that view's change was applied do they
    come back (`keep`); whatever became of a view that was dropped, the store is asked anew. Any
    other change applied in between makes it forget everything.

    There are two generations. When the young one is full it becomes the old one, and what nobody
    took from the old one is forgotten whole. (Dropping the oldest of one dictionary one by one
    looks simpler, and walks over the holes of all that was dropped before, each time.)
    """

    def __init__(self, most: int = RECALL_MAX) -> None:
        self._half = most // 2
        self._young = Lent.nothing()
        self._old = Lent.nothing()
        self._revision = -1
        self.graph = GraphMemory()

    def __len__(self) -> int:
        return self._young.size() + self._old.size()

    def take(self, revision: int) -> tuple[Lent, Lent]:
        """Both generations, for a view on the state with this revision."""
        taken = self._young, self._old
        self._young, self._old = Lent.nothing(), Lent.nothing()
        if revision != self._revision:
            self.graph = GraphMemory()
        return taken if revision == self._revision else (Lent.nothing(), Lent.nothing())

    def keep(self, view: View) -> None:
        """The view's change, if it had one, is the change that was applied last."""
        if view.is_spoiled:
            self._young, self._old, self._revision = Lent.nothing(), Lent.nothing(), -1
            self.graph = GraphMemory()
            return
        young, old = Lent(view.records, view.jobs, view.runs), view.older
        for key in view.passing:
            young.records.pop(key, None)
        if (size := young.size()) > self._half:
            # If one decision looked at more than there is room for, all of it goes.
            old, young = young if size <= 2 * self._half else Lent.nothing(), Lent.nothing()
        self._young, self._old = young, old
        self.graph = view.graph
        self._revision = view.base + (1 if view.writes else 0)


@dataclass(slots=True)
class JobBatch:
    """What jobs of one template with the same schedules have in common when they are made at
    once."""

    lane: int
    # Where each of them stands at first, which nobody may change; and its bytes.
    state: StateRecord
    encoded: bytes
    # What an import warns of; None: it was not looked for, or each has its own.
    warnings: list[str] | None = None


class View:
    """State as one decision sees and changes it."""

    # What every decision needs has a slot: CPython shares up to 29 names of attributes; with
    # more, each run costs 4 % more. What few need is set when it is needed.
    __slots__ = (
        "__dict__",
        "_is_spent",
        "_new",
        "_noted",
        "_read",
        "_scanned",
        "_store",
        "_weight",
        "_written",
        "backfilled",
        "base",
        "first_timer",
        "graph",
        "job_batches",
        "jobs",
        "keeps",
        "lanes",
        "lanes_of_templates",
        "live_runs",
        "meta",
        "namespaces",
        "now_ms",
        "older",
        "passing",
        "plans",
        "queues",
        "records",
        "restored",
        "runs",
        "sessions",
        "since_ms",
        "stops",
        "subject",
        "usages",
    )  # fmt: skip
    # A rule may have changed records of it in memory and not in the store: nothing is kept.
    is_spoiled = False
    # Zones that a member of the cluster does not know, with its name: it could not go on with
    # jobs that use them.
    lacking: Mapping[str, str] = MappingProxyType({})
    # What `seal` made, before it became bytes.
    sealed: Change | None = None
    # Keys that were sorted for many scans, by their prefix.
    _ordered: Mapping[bytes, list[bytes]] = MappingProxyType({})
    # The first of the timers of what can wait that this decision has set.
    first_later = NO_TIMER
    set_later: list[bytes] | None = None
    # How many jobs were due before this decision, by second, of those that were asked.
    due_counts: dict[int, int] | None = None
    # What calendars say, by their keys, each with the record and the version that says so.
    calendars: dict[bytes, tuple[CalendarRecord, int, CalendarDays]] | None = None
    # Timers that are due at once in this decision, so that none takes all of its time.
    due_at_once = 1
    # Many runs are ended by hand: what that means for their waves is left to the timers of these.
    waves_later = False
    # Runs that have ended, of which others are still to hear.
    ended: list[Run] | None = None
    # When there may be more for those that a grant was for: a queue with a rate may give again, or
    # the grant ended early. 0: nothing waits.
    allowance_ms = 0

    def __init__(
        self,
        store: Reading,
        now_ms: int,
        recall: Recall | None = None,
        is_spent: Budget = unlimited,
    ) -> None:
        self._store = store
        self._is_spent = is_spent
        self._read = store.get
        value = store.get(keys.META)
        self.meta = MetaRecord() if value is None else parse(keys.META, value, MetaRecord)
        self.base = self.meta.revision
        # Parsed records by key. What is among the older ones is moved when somebody looks at it.
        lent = (Lent.nothing(), Lent.nothing()) if recall is None else recall.take(self.base)
        self.graph = GraphMemory() if recall is None else recall.graph
        (self.records, self.jobs, self.runs), self.older = lent
        # What was written: a record, whose bytes are made when sealing, or bytes; None: deleted.
        self._written: dict[bytes, Record | bytes | None] = {}
        self._new: set[bytes] = set()
        # How much of it can be large.
        self._weight = 0
        # Keys of records that are not recalled.
        self.passing: list[bytes] = []
        # Keys that a scan must find: as they were written, by table, until somebody scans it;
        # from then on by the prefix of the scan.
        self._noted: dict[int, list[bytes]] = {table: [] for table in _PREFIX}
        self._scanned: defaultdict[bytes, dict[bytes, None]] = defaultdict(dict)
        # When the change before this one was decided.
        self.since_ms = self.meta.now_ms
        # The clock never runs backwards, whatever a new leader's clock says.
        self.now_ms = max(now_ms, self.meta.now_ms)
        # The key of what is being worked on, where a request is about many: whom to set aside.
        self.subject = b""
        self.meta.now_ms = self.now_ms
        # The first of the timers that this decision has set.
        self.first_timer = NO_TIMER
        # What workers are to stop, by worker: the leader sends these once the change is applied.
        self.stops: list[tuple[str, worker_pb2.Stop]] = []
        # Jobs whose ledger got an entry among the old ones.
        self.backfilled: set[int] = set()
        # Usage by namespace: every run counts there, so it is worth a place of its own.
        self.usages: dict[int, UsageRecord] = {}
        self.namespaces: dict[str, NamespaceRecord | None] = {}
        self.live_runs: dict[str, int] = {}
        # How long runs that ended well, and failed ones, stay, by namespace.
        self.keeps: dict[int, tuple[int, int]] = {}
        # Queues by the lanes of the runs that leave them.
        self.queues: dict[int, QueueRecord] = {}
        # Sessions by their number, of the leases that end; they are put already.
        self.sessions: dict[int, SessionRecord] = {}
        self.lanes: dict[bytes, int] = {}
        self.lanes_of_templates: dict[tuple[int, Template], int] = {}
        # By namespace, template and schedules, of jobs that this decision has made.
        self.job_batches: dict[tuple[int, Template, bytes], JobBatch] = {}
        # By schedules, timing and since when they are in force: of specs that were asked whether
        # they can be, and of jobs that are there.
        self.plans: dict[tuple[bytes, bytes, int], Plan] = {}
        self.restored: dict[tuple[bytes, bytes, int], Plan] = {}

    def get(self, key: bytes, kind: type[AnyRecord]) -> AnyRecord | None:
        """The record at a key. Change it only together with a `put`."""
        record = self.records.get(key)
        if record is None:
            record = self._fetch(key, kind)
        return record  # type: ignore[return-value]  # A table has one kind of record.

    def need(self, key: bytes, kind: type[AnyRecord]) -> AnyRecord:
        """A record that must be there; its absence is a bug that stops the node."""
        record = self.records.get(key)
        if record is None:
            record = self._fetch(key, kind)
            assert record is not None, f"no {kind.__name__} at {key!r}"
        return record  # type: ignore[return-value]

    def _fetch(self, key: bytes, kind: type[AnyRecord]) -> Record | None:
        if key in self._written:
            value = self._written[key]
            if isinstance(value, Record):
                return value
        elif key[0] in _ENTITIES and (record := self._of_entity(key)) is not None:
            return record
        else:
            record = self.older.records.pop(key, None)
            if record is not None:
                self.records[key] = record
                return record
            value = self._read(key)
        if value is None:
            return None
        if key[0] not in _RECALLED:
            self.passing.append(key)
        found = self.records[key] = parse(key, value, kind)
        return found

    def _of_entity(self, key: bytes) -> Record | None:
        """The record of a job or run that is handed out, or lent."""
        if key[0] == keys.RUN[0]:
            place = keys.run_of(key)
            run = self.runs.get(place) or self.older.runs.get(place)
            return None if run is None else run.record
        jid = int.from_bytes(key[1:9], "big")
        job = self.jobs.get(jid) or self.older.jobs.get(jid)
        if job is None:
            return None
        return job.state if key[0] == keys.STATE[0] else job.definition

    def read_jobs_ahead(self, jids: Iterable[int]) -> None:
        """Read jobs that will be needed, given their numbers in order."""
        jobs, older = self.jobs, self.older.jobs
        missing = [jid for jid in jids if jid not in jobs and jid not in older]
        definitions, states = [keys.job(jid) for jid in missing], [*map(keys.state, missing)]
        self.read_ahead(definitions, JobRecord)
        self.read_ahead(states, StateRecord)
        records = self.records
        for jid, key, state_key in zip(missing, definitions, states, strict=True):
            if key in records and state_key in records:
                definition, state = records.pop(key), records.pop(state_key)
                # A table has one kind of record.
                jobs[jid] = Job(jid, definition, state, state_key, jid >> keys.SERIAL_BITS)  # type: ignore[arg-type]

    def read_ahead(self, found: list[bytes], kind: type[AnyRecord]) -> None:
        """Read records of one table that will be needed, given their keys in order.

        What lies close together is scanned: a step of a scan costs a third of a read in memory,
        and a tenth of one on disk. For the others, many reads at once are cheaper than one by one.
        """
        records, older, written = self.records, self.older.records, self._written
        missing = [k for k in found if k not in records and k not in older and k not in written]
        for start in range(0, len(missing), STRETCH):
            stretch = missing[start : start + STRETCH]
            first, last = stretch[0], stretch[-1]
            between = int.from_bytes(last, "big") - int.from_bytes(first, "big")
            if len(stretch) > FEW and between <= DENSE * len(stretch):
                read: Iterable[tuple[bytes, bytes | None]]
                read = self._store.scan(first, last + b"\0")
            else:
                read = zip(stretch, self._store.get_many(stretch), strict=True)
            wanted = set(stretch)
            for key, value in read:
                if value is not None and key in wanted:
                    records[key] = parse(key, value, kind)

    def job(self, jid: int) -> Job:
        """A job that must be there. Only `change_state` and `change_definition` may change it."""
        job = self.jobs.get(jid)
        if job is None:
            job = self.find_job(jid)
            assert job is not None, f"there is no job {jid}"
        return job

    def find_job(self, jid: int) -> Job | None:
        """As `job`; None if there is no such job."""
        job = self.jobs.get(jid) or self.older.jobs.pop(jid, None)
        if job is None:
            state_key, key = keys.state(jid), keys.job(jid)
            state = self.get(state_key, StateRecord)
            if state is None:
                return None
            job = job_with(jid, self.need(key, JobRecord), state)
            # Lent as one from now on.
            self.records.pop(state_key, None)
            self.records.pop(key, None)
        self.jobs[jid] = job
        return job

    def change_state(self, job: Job) -> StateRecord:
        """Where a job stands, to be changed: it is written when this decision is sealed."""
        state = self._written[job.key] = job.state
        return state

    def change_definition(self, job: Job) -> JobRecord:
        """A job's definition, to be changed, as `change_state`."""
        key, definition = keys.job(job.jid), job.definition
        if key not in self._written:
            self._weight += definition.weight()
            self._noted[key[0]].append(key)
        self._written[key] = definition
        return definition

    def run(self, place: tuple[int, int]) -> Run:
        """The run under way of a job with an occurrence, which must be there. Only `change_run` may
        change it."""
        run = self.runs.get(place)
        if run is None:
            run = self.find_run(place)
            assert run is not None, f"job {place[0]} has no run {place[1]} under way"
        return run

    def find_run(self, place: tuple[int, int]) -> Run | None:
        """As `run`; None if there is no such run under way."""
        run = self.runs.get(place)
        if run is None:
            run = self.older.runs.pop(place, None)
            if run is None:
                key = keys.run(*place)
                record = self.get(key, RunRecord)
                if record is None:
                    return None
                run = run_with(self.job(place[0]), place[1], record)
                self.records.pop(key, None)
            else:
                run.job = self.job(place[0])
            self.runs[place] = run
        return run

    def change_run(self, run: Run) -> RunRecord:
        """The record of a run, to be changed, as `change_state`."""
        record = run.record
        if run.key not in self._written:
            self._weight += record.weight()
        self._written[run.key] = record
        return record

    def add_run(self, run: Run) -> RunRecord:
        """The record of a run that is under way from now on, to be changed."""
        record = self._written[run.key] = run.record
        self._noted[run.key[0]].append(run.key)
        self.runs[run.jid, run.occurrence] = run
        return record

    def end_run(self, run: Run) -> RunRecord:
        """The record of a run that ends now, to be changed: it is under way no more."""
        self.runs.pop((run.jid, run.occurrence), None)
        if self._written.get(run.key) is not None:
            # It is weighed in the history.
            self._weight -= run.record.weight()
        self._noted[run.key[0]].append(run.key)
        self._written[run.key] = None
        return run.record

    def weigh(self, size: int) -> None:
        """So many bytes more were added to what is to be written."""
        self._weight += size

    def edit(self, key: bytes, kind: type[AnyRecord]) -> AnyRecord:
        """A record that must be there and is changed now: `need` and `put` in one."""
        record = self._written.get(key)
        if record is None or record.__class__ is bytes:
            record = self.records.get(key) or self.need(key, kind)
            self.put(key, record)
        return record  # type: ignore[return-value]

    def put(self, key: bytes, record: Record) -> None:
        written = self._written
        if key not in written and key[0] not in _QUIET:
            self._weight += record.weight()
            if key[0] in _PREFIX:
                self._noted[key[0]].append(key)
            if key[0] not in _RECALLED:
                self.passing.append(key)
        if key[0] in _ENTITIES:
            self._exchange(key, record)
        self.records[key] = written[key] = record

    def _exchange(self, key: bytes, record: Record) -> None:
        """Another record stands where that of a job or run stood, which have it from now on."""
        if isinstance(record, RunRecord):
            place = keys.run_of(key)
            run = self.runs.get(place) or self.older.runs.get(place)
            if run is not None:
                run.record = record
            return
        jid = int.from_bytes(key[1:9], "big")
        job = self.jobs.get(jid) or self.older.jobs.get(jid)
        if job is not None and isinstance(record, StateRecord):
            job.state = record
        elif job is not None and isinstance(record, JobRecord):
            job.definition = record

    def put_once(self, key: bytes, record: Record) -> None:
        """Put a record that nobody looks at again soon: it is not kept in memory."""
        self.put_encoded(key, encode(record))

    def put_encoded(self, key: bytes, value: bytes) -> None:
        """Put a record that is encoded already."""
        table, written = key[0], self._written
        self.records.pop(key, None)
        if table in _RECALLED:
            self.older.records.pop(key, None)
            if table in _ENTITIES:
                self._forget_entity(key)
        self._weight += len(value)
        if table in _PREFIX and key not in written:
            self._noted[table].append(key)
        written[key] = value

    def put_unseen(self, key: bytes, value: bytes) -> None:
        """The same under a key that was never there, nor looked at."""
        self._weight += len(value)
        if key[0] in _PREFIX:
            self._noted[key[0]].append(key)
        self._written[key] = value

    def get_raw(self, key: bytes) -> bytes | None:
        """The value of a derived entry, which is no record."""
        if key in self._written:
            return self._written[key]  # type: ignore[return-value]
        return self._read(key)

    def note_end(self, run: Run) -> None:
        """A run has ended, and others wait for that."""
        self.ended = self.ended or []
        self.ended.append(run)

    def set_back(self, to_ms: int) -> None:
        """Somebody sets the clock of the state back: the only way in which it does not go on."""
        self.now_ms = self.meta.now_ms = to_ms

    def put_timer(self, key: bytes) -> None:
        self._written[key] = b""
        if key < self.first_timer:
            self.first_timer = key
            if key < self.meta.timers_from:
                self.meta.timers_from = key

    def put_later(self, key: bytes) -> None:
        """Put a timer of what can wait."""
        self._written[key] = b""
        self.set_later = self.set_later or []
        self.set_later.append(key)
        if key < self.first_later:
            self.first_later = key
            if key < self.meta.later_from:
                self.meta.later_from = key

    def put_raw(self, key: bytes, value: bytes = b"") -> None:
        written = self._written
        if key[0] in _PREFIX and key not in written:
            self._noted[key[0]].append(key)
        written[key] = value

    def put_new(self, key: bytes) -> None:
        """As `put_raw`, for an entry that is known not to be stored: should this decision delete
        it again, no trace of it goes into the log, and no tombstone into the store."""
        if key not in self._written:
            self._new.add(key)
            self._noted[key[0]].append(key)
        self._written[key] = b""

    def delete(self, key: bytes) -> None:
        if key in self._new:
            self._new.remove(key)
            del self._written[key]
            return
        self.records.pop(key, None)
        self.older.records.pop(key, None)
        if key[0] in _ENTITIES:
            self._forget_entity(key)
        written = self._written
        if key[0] in _PREFIX and key not in written:
            self._noted[key[0]].append(key)
        written[key] = None

    def _forget_entity(self, key: bytes) -> None:
        if key[0] == keys.RUN[0]:
            for runs in (self.runs, self.older.runs):
                runs.pop(keys.run_of(key), None)
        else:
            for jobs in (self.jobs, self.older.jobs):
                jobs.pop(int.from_bytes(key[1:9], "big"), None)

    def delete_raw(self, key: bytes) -> None:
        """Delete a derived entry that is stored."""
        written = self._written
        if key[0] in _PREFIX and key not in written:
            self._noted[key[0]].append(key)
        written[key] = None

    def take(self, key: bytes) -> bool:
        """Delete a derived entry that is stored; False when this decision has done so before."""
        written = self._written
        if key in written and written[key] is None:
            return False
        if key[0] in _PREFIX and key not in written:
            self._noted[key[0]].append(key)
        written[key] = None
        return True

    def scan_stored(self, first: bytes, end: bytes, *, backwards: bool = False) -> Iterator[bytes]:
        """Yield the keys that were there before this decision, less those it has deleted.

        For work in small steps, which finds the rest in the next step.
        """
        written = self._written
        for key, _ in self._store.scan(first, end, backwards=backwards):
            if written.get(key, b"") is not None:
                yield key

    def touched_between(self, first: bytes, end: bytes) -> list[bytes]:
        """The keys in a range that this decision has put or deleted, in no order: it looks at all
        that it wrote."""
        return [key for key in self._written if first <= key < end]

    def scan(self, first: bytes, end: bytes, *, backwards: bool = False) -> Iterator[bytes]:
        """Yield the keys in a range as this decision left them. Do not write ahead of it."""
        stored = self._store.scan(first, end, backwards=backwards)
        mine = self._mine(first)
        if not mine:
            return (key for key, _ in stored)
        written = self._written
        if len(mine) > MANY:
            sorted_mine = self._in_order(mine, first)
            low, high = bisect_left(sorted_mine, first), bisect_left(sorted_mine, end)
            inside = [key for key in sorted_mine[low:high] if key in written]
            if backwards:
                inside.reverse()
        else:
            inside = [key for key in mine if first <= key < end and key in written]
            inside.sort(reverse=backwards)
        return self._merged(iter(inside), stored, backwards)

    def _in_order(self, mine: dict[bytes, None], first: bytes) -> list[bytes]:
        """What was written under a prefix, sorted once for many scans."""
        prefix = first[: _PREFIX[first[0]]]
        ordered = self._ordered.get(prefix)
        if ordered is None or len(ordered) != len(mine):
            ordered = sorted(mine)
            self._ordered = {**self._ordered, prefix: ordered}
        return ordered

    def _mine(self, first: bytes) -> dict[bytes, None]:
        """What this decision has written under the prefix of a scan. Most decisions scan little,
        so keys are sorted by prefix only when somebody asks."""
        table = first[0]
        length, noted, scanned = _PREFIX[table], self._noted[table], self._scanned
        for key in noted:
            scanned[key[:length]][key] = None
        noted.clear()
        return scanned.get(first[:length], {})

    def _merged(
        self, mine: Iterator[bytes], stored: Iterator[tuple[bytes, bytes]], backwards: bool
    ) -> Iterator[bytes]:
        written = next(mine, None)
        for key, _ in stored:
            while written is not None and (written > key if backwards else written < key):
                if self._written.get(written) is not None:
                    yield written
                written = next(mine, None)
            if written == key:
                written = next(mine, None)
                if self._written.get(key) is None:
                    continue
            yield key
        while written is not None:
            if self._written.get(written) is not None:
                yield written
            written = next(mine, None)

    def fresh(self) -> View:
        """Another view of what is stored, without what this decision has written."""
        other = View(self._store, self.now_ms, is_spent=self._is_spent)
        if self.lacking:
            other.lacking = self.lacking
        return other

    @property
    def stored(self) -> Reading:
        """The state without what this decision has written."""
        return self._store

    def spend(self, is_spent: Budget) -> None:
        """From now on this is the time there is."""
        self._is_spent = is_spent

    @property
    def is_spent(self) -> Budget:
        """Whether the decision has used up its time."""
        return self._is_spent

    @property
    def writes(self) -> int:
        """How much was written so far: a refusal must leave it as it was."""
        return len(self._written)

    def size(self) -> int:
        """About how many bytes the change has by now."""
        return self._weight + _LIGHT_BYTES * len(self._written)

    @property
    def has_bytes(self) -> bool:
        """Whether the change has enough bytes by now, whatever time it took."""
        return self._weight + _LIGHT_BYTES * len(self._written) >= limits.CHANGE_BYTES

    @property
    def is_full(self) -> bool:
        """Whether the change has enough bytes by now, about, or took its time: work in steps ends
        here. Whoever asks has done one step before, so that the work as a whole goes on."""
        weight = self._weight + _LIGHT_BYTES * len(self._written)
        return weight >= limits.CHANGE_BYTES or self._is_spent()

    def is_over(self, writes: int) -> bool:
        """Whether it is full, or so many entries were written."""
        count = len(self._written)
        weight = self._weight + _LIGHT_BYTES * count
        return count > writes or weight >= limits.CHANGE_BYTES or self._is_spent()

    def seal(self) -> bytes:
        """The change that this decision is, as bytes for the log; b"" when nothing changed."""
        written = self._written
        if not written:
            return b""
        if not self.base:
            # In a state that begins now, every stretch will stand in its table.
            written[keys.INDEXED] = keys.LEDGER_END
        change = self.sealed = Change(base=self.base, now_ms=self.now_ms, meta=self.meta)
        names, values, deletes = change.keys, change.values, change.deletes
        # In the order of the keys, in which the store takes them at half the cost.
        for key in sorted(written):
            value = written[key]
            if value is None:
                deletes.append(key)
            else:
                names.append(key)
                values.append(value if value.__class__ is bytes else encode(value))
        return encode(change)
