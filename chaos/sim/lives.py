"""What holds of runs, jobs and times whatever people ask for, checked from the changes alone.

L1 a run goes from phase to phase as the one table of its life says; L2 a time fires once, and what
begins again had failed, or had never begun; L3 nothing of a schedule begins while its job is
paused; L4 nothing is leased above a limit of its job, its key, its queue or the namespace; L5
nothing begins above the quota; L6 nothing runs on a day that a calendar leaves out; L7 no more
times than `max_runs`; L8 nothing before it is due; L9 tokens rise, and a lease is given once; L10
what a decision does of a kind is bounded. At the end (`settled`) nothing waits that nobody keeps,
each time that a schedule names has one outcome, and what ran has a run.

A limit that is changed in the same change counts as the wider of both.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ...proto.v1 import calendar_pb2, job_pb2, run_pb2, schedule_pb2
from ...statemachine.model import keys, phases
from ...statemachine.model.phases import ENDS, FAILED, LEASED, MOVES, NEW, SKIPPED, WAITING
from ...statemachine.model.record import (
    CalendarRecord,
    Change,
    JobRecord,
    LedgerRecord,
    NamespaceRecord,
    QueueRecord,
    RunRecord,
    StateRecord,
    parse,
)
from . import reckoning
from .world import SimViolation

RunKey = tuple[int, int]
Tables = dict[bytes, list[tuple[bytes, bytes]]]  # What a change puts, by table.
PAUSED = job_pb2.JobStatus.STATE_PAUSED
OF_SCHEDULES = frozenset({run_pb2.CAUSE_SCHEDULE, run_pb2.CAUSE_BACKFILL})
FIRED = frozenset({run_pb2.OUTCOME_RAN, run_pb2.OUTCOME_LATE, run_pb2.OUTCOME_REPLACED})
Edit = schedule_pb2.OccurrenceEdit


def _reach() -> dict[int, frozenset[int]]:
    """Where a run may stand after any number of moves."""
    found: dict[int, frozenset[int]] = {}
    for at in MOVES:
        seen, left = {at}, [at]
        while left:
            for to in MOVES[left.pop()]:
                if to not in seen:
                    seen.add(to)
                    left.append(to)
        found[at] = frozenset(seen)
    return found


REACH = _reach()


@dataclass
class SeenJob:
    """A job, and since when its times are those of now."""

    record: JobRecord
    spec: job_pb2.JobSpec
    since_ms: int = 0  # Its schedules.
    days_ms: int = 0  # Its calendars and what they say.
    edits: dict[int, int] = field(default_factory=dict)  # Ever made: time -> when it is due.
    added: set[int] = field(default_factory=set)
    most_ever: int = 0  # The largest max_runs; -1: there was none once.
    was_backfilled: bool = False


@dataclass
class LatestRecords:
    """The records that changes were about, as they are now."""

    jobs: dict[int, SeenJob] = field(default_factory=dict)
    states: dict[int, StateRecord] = field(default_factory=dict)
    runs: dict[RunKey, RunRecord] = field(default_factory=dict)
    ended: dict[RunKey, RunRecord] = field(default_factory=dict)
    books: dict[int, dict[int, LedgerRecord]] = field(default_factory=dict)
    calendars: dict[str, calendar_pb2.Calendar] = field(default_factory=dict)
    queues: dict[bytes, QueueRecord] = field(default_factory=dict)
    namespaces: dict[int, NamespaceRecord] = field(default_factory=dict)


class Lives:
    """See the head of this file."""

    def __init__(self, steps: int) -> None:
        self.most_pieces = 2 * (steps + 1)
        self.seen = LatestRecords()
        self.fired: set[RunKey] = set()
        self.token = 0
        # How often a run began in the place of one that was skipped, and how often one ended.
        self.refilled: Counter[RunKey] = Counter()
        self.ends: Counter[RunKey] = Counter()
        self.ended_as: dict[RunKey, int] = {}  # Also of those that have left the history.
        self.good: set[int] = set()  # Leases whose runs succeeded.
        self.now_ms = 0
        self.counts: Counter[str] = Counter()

    def changed(self, change: Change) -> None:
        """The next change became part of the state."""
        if change.now_ms < self.now_ms:
            raise SimViolation(f"L9 time runs back from {self.now_ms} to {change.now_ms}")
        self.now_ms = change.now_ms
        self.counts["changes"] += 1
        seen = self.seen
        tables: Tables = {}
        for key, value in zip(change.keys, change.values, strict=True):
            tables.setdefault(key[:1], []).append((key, value))
        before = dict(seen.states)
        former_jobs = self._settings(tables, change)
        gone: dict[RunKey, RunRecord] = {}
        for key in change.deletes:
            if key[:1] == keys.RUN:
                if (run := seen.runs.pop(keys.run_of(key), None)) is not None:
                    gone[keys.run_of(key)] = run
            elif key[:1] == keys.ENDED:
                if (run := seen.ended.pop(keys.ended_of(key), None)) is not None:
                    gone[keys.ended_of(key)] = run
            elif key[:1] == keys.LEDGER:
                seen.books[_jid(key)].pop(keys.scheduled_at(key), None)
            elif key[:1] == keys.JOB:
                seen.jobs.pop(_jid(key), None)
                seen.states.pop(_jid(key), None)
        for key, value in tables.get(keys.LEDGER, ()):
            entry = parse(key, value, LedgerRecord)
            seen.books.setdefault(_jid(key), {})[keys.scheduled_at(key)] = entry
        begun: list[RunKey] = []
        leases: list[RunKey] = []
        fresh = {keys.run_of(key) for key, _ in tables.get(keys.RUN, ())} - seen.runs.keys()
        for key, value in tables.get(keys.RUN, ()):
            self._run(keys.run_of(key), parse(key, value, RunRecord), gone, begun, leases)
        for key, value in tables.get(keys.ENDED, ()):
            self._ended(keys.ended_of(key), parse(key, value, RunRecord), gone)
        self._fired(begun, fresh, before)
        self._leased(leases, former_jobs)
        self._quota(begun, former_jobs)
        self._pieces(tables, begun)

    # What was set.

    def _settings(self, tables: Tables, change: Change) -> Former:
        """Take in what people have set; what it was before."""
        seen, former = self.seen, Former()
        for key, value in tables.get(keys.NAMESPACE, ()):
            record = parse(key, value, NamespaceRecord)
            # Without a record it has no quota.
            former.namespaces[record.number] = seen.namespaces.get(record.number, NamespaceRecord())
            seen.namespaces[record.number] = record
        for key, value in tables.get(keys.QUEUE, ()):
            queue = parse(key, value, QueueRecord)
            former.queues[key] = seen.queues.get(key, queue)
            seen.queues[key] = queue
        for key, value in tables.get(keys.CALENDAR, ()):
            wanted = parse(key, value, CalendarRecord).settings
            if seen.calendars.get(wanted.name) != wanted:
                seen.calendars[wanted.name] = wanted
                for one in seen.jobs.values():
                    if wanted.name in one.spec.timing.exclude_calendars:
                        one.days_ms = change.now_ms
        for key, value in tables.get(keys.JOB, ()):
            self._job(_jid(key), parse(key, value, JobRecord), change, former)
        for key, value in tables.get(keys.STATE, ()):
            state = parse(key, value, StateRecord)
            seen.states[_jid(key)] = state
            if (job := seen.jobs.get(_jid(key))) is not None:
                for edit in state.edits:
                    due_ms = edit.moved_to_ms or edit.scheduled_at_ms
                    due_ms = min(due_ms, job.edits.get(edit.scheduled_at_ms, due_ms))
                    job.edits[edit.scheduled_at_ms] = due_ms
                    if edit.kind == Edit.KIND_ADD:
                        job.added.add(edit.scheduled_at_ms)
                job.was_backfilled |= any(
                    part.cause == run_pb2.CAUSE_BACKFILL for part in state.backlog
                )
        return former

    def _job(self, jid: int, record: JobRecord, change: Change, former: Former) -> None:
        spec = record.full_spec()
        before = self.seen.jobs.get(jid)
        job = SeenJob(record, spec, change.now_ms, change.now_ms)
        most = spec.timing.max_runs
        job.most_ever = most or -1
        if before is not None:
            former.jobs[jid] = before
            job.edits, job.added = before.edits, before.added
            job.was_backfilled = before.was_backfilled
            if list(before.spec.schedules) == list(spec.schedules) and _clock(
                before.spec.timing
            ) == _clock(spec.timing):
                job.since_ms = before.since_ms
                if list(before.spec.timing.exclude_calendars) == list(
                    spec.timing.exclude_calendars
                ):
                    job.days_ms = before.days_ms
            is_less = before.most_ever < 0 or not most
            job.most_ever = -1 if is_less else max(before.most_ever, most)
        self.seen.jobs[jid] = job

    def name(self, jid: int) -> str:
        job = self.seen.jobs.get(jid)
        return job.record.name if job is not None else str(jid)

    # Runs.

    def _run(
        self, place: RunKey, run: RunRecord, gone: dict[RunKey, RunRecord], begun: list[RunKey],
        leases: list[RunKey],
    ) -> None:  # fmt: skip
        seen = self.seen
        former = seen.runs.get(place) or gone.get(place)
        self._step(place, former, run)
        is_new = place not in self.fired or place in gone
        if place in self.fired and place not in seen.runs:
            self._again(place, former, run)
        if place not in self.fired:
            self.fired.add(place)
            self.counts["runs"] += 1
        waited = former is None or former.phase in WAITING or former.phase in ENDS
        if run.phase not in WAITING and (is_new or waited):
            begun.append(place)
        if run.phase == LEASED and (former is None or former.token != run.token):
            if run.token <= self.token:
                raise SimViolation(f"L9 {self.say(place)} gets the token {run.token} again")
            leases.append(place)
            self.counts["leases"] += 1
        if former is not None and former.phase in ENDS and run.phase not in ENDS:
            self.counts["begun again"] += 1
        seen.runs[place] = run

    def _step(self, place: RunKey, former: RunRecord | None, run: RunRecord) -> None:
        """L1. One that was put in the place of another begins anew."""
        at = former.phase if former is not None else NEW
        if at == SKIPPED and run.cause == run_pb2.CAUSE_BACKFILL:
            at = NEW
        if run.phase not in REACH[at]:
            names = phases.name(at), phases.name(run.phase)
            raise SimViolation(f"L1 {self.say(place)} goes from {names[0]} to {names[1]}")

    def _again(self, place: RunKey, former: RunRecord | None, run: RunRecord) -> None:
        """L2. A run that was there once, and had left."""
        was = former.phase if former is not None else self.ended_as.get(place, NEW)
        is_refill = was == SKIPPED and run.cause == run_pb2.CAUSE_BACKFILL
        if former is None and not is_refill:
            raise SimViolation(f"L2 {self.say(place)} fires twice")
        if was != FAILED and not is_refill:
            name = phases.name(was)
            raise SimViolation(f"L2 {self.say(place)} runs again, and was {name}")
        self.refilled[place] += is_refill

    def _ended(self, place: RunKey, run: RunRecord, gone: dict[RunKey, RunRecord]) -> None:
        seen = self.seen
        former = gone.get(place) or seen.runs.get(place) or seen.ended.get(place)
        if former is None and place in self.fired:
            raise SimViolation(f"L2 {self.say(place)} ends twice")
        self._step(place, former, run)
        if run.phase == phases.SUCCEEDED and place not in seen.ended:
            if former is not None and former.phase == LEASED and former.token != run.token:
                raise SimViolation(f"L9 {self.say(place)} succeeds under {run.token}")
            self.good.add(run.token)
            self.counts["completions"] += 1
        if place not in self.fired:
            self.fired.add(place)
            self.counts["runs"] += 1
        # An end that is written anew, as with a result that came late, is no other end.
        self.ends[place] += place in gone or place not in seen.ended
        seen.runs.pop(place, None)
        seen.ended[place] = run
        self.ended_as[place] = run.phase

    def say(self, place: RunKey) -> str:
        return f"{self.name(place[0])} at {keys.scheduled_of(place[1])}/{place[1] & 0xFFFF}"

    def _fired(
        self, begun: list[RunKey], fresh: set[RunKey], before: dict[int, StateRecord]
    ) -> None:
        """L3, L6 and L8, of what schedules have begun."""
        for place in begun:
            jid, occurrence = place
            run, at_ms = self.seen.runs[place], keys.scheduled_of(occurrence)
            if run.cause not in OF_SCHEDULES or run.attempt > (run.phase == LEASED):
                continue
            was, now = before.get(jid), self.seen.states.get(jid)
            is_paused = was is not None and now is not None and was.state == now.state == PAUSED
            # What fired before the pause goes on.
            if is_paused and place in fresh:
                raise SimViolation(f"L3 {self.say(place)} begins while its job is paused")
            job = self.seen.jobs.get(jid)
            if job is None or run.cause != run_pb2.CAUSE_SCHEDULE:
                continue
            if self.now_ms < job.edits.get(at_ms, at_ms):
                raise SimViolation(f"L8 {self.say(place)} begins at {self.now_ms}")
            if at_ms > job.days_ms and at_ms not in job.edits and self.is_left_out(job, at_ms):
                raise SimViolation(f"L6 {self.say(place)} runs on a day that is left out")

    def is_left_out(self, job: SeenJob, at_ms: int) -> bool:
        timing = job.spec.timing
        wanted = (self.seen.calendars.get(name) for name in timing.exclude_calendars)
        return any(one and reckoning.leaves_out(one, timing.zone, at_ms) for one in wanted)

    def _leased(self, leases: list[RunKey], former: Former) -> None:
        """L4."""
        if not leases:
            return
        seen = self.seen
        self.token = max(self.token, *(seen.runs[place].token for place in leases))
        held = [(place, run) for place, run in seen.runs.items() if run.phase == LEASED]
        by_job = Counter(place[0] for place, _ in held)
        for place in leases:
            run, job = seen.runs[place], seen.jobs.get(place[0])
            if job is None:
                continue
            limit = job.spec.concurrency
            wide = former.jobs.get(place[0], job).spec.concurrency
            most = max(limit.job, wide.job) if limit.job and wide.job else 0
            self._at_most(place, by_job[place[0]], most, "its job")
            if limit == wide and limit.key == run.limit_key:
                number = keys.namespace_of(place[0])
                # Each was given by its own job's limit of the key, in the order of tokens.
                count = sum(
                    other.limit_key == run.limit_key
                    and other.token <= run.token
                    and keys.namespace_of(at[0]) == number
                    for at, other in held
                )
                self._at_most(place, count, limit.key_limit, f"the key {limit.key}")
        for number, record in seen.namespaces.items():
            some = [place for place in leases if keys.namespace_of(place[0]) == number]
            before = former.namespaces.get(number, record).settings.quota.leases
            quota = record.settings.quota.leases
            count = sum(keys.namespace_of(place[0]) == number for place, _ in held)
            if some and quota and before:
                self._at_most(some[0], count, max(quota, before), "the quota of leases")

    def _at_most(self, place: RunKey, count: int, most: int, what: str) -> None:
        if most and count > most:
            words = f"one of {count}, above the {most} of {what}"
            raise SimViolation(f"L4 {self.say(place)} is leased as {words}")

    def _quota(self, begun: list[RunKey], former: Former) -> None:
        """L5."""
        if not begun:
            return
        used = Counter(
            keys.namespace_of(jid)
            for (jid, _), run in self.seen.runs.items()
            if run.phase not in WAITING
        )
        for number, record in self.seen.namespaces.items():
            before = former.namespaces.get(number, record).settings.quota.live_runs
            quota = record.settings.quota.live_runs
            some = [place for place in begun if keys.namespace_of(place[0]) == number]
            if some and quota and before and used[number] > max(quota, before):
                words = f"one of {used[number]}, above the quota of {max(quota, before)}"
                raise SimViolation(f"L5 {self.say(some[0])} begins as {words}")

    def _pieces(self, tables: Tables, begun: list[RunKey]) -> None:
        """L10."""
        causes = [self.seen.runs[place].cause for place in begun]
        found = {
            "jobs are notified of an end": len(tables.get(keys.STEP, ())),
            "runs fire": causes.count(run_pb2.CAUSE_SCHEDULE),
        }
        for what, count in found.items():
            if count > self.most_pieces:
                most = self.most_pieces
                raise SimViolation(f"L10 {what}: {count} in a change that has time for {most}")


@dataclass
class Former:
    """What was changed, as it was before."""

    jobs: dict[int, SeenJob] = field(default_factory=dict)
    namespaces: dict[int, NamespaceRecord] = field(default_factory=dict)
    queues: dict[bytes, QueueRecord] = field(default_factory=dict)


def _jid(key: bytes) -> int:
    return int.from_bytes(key[1:9], "big")


def _clock(timing: schedule_pb2.Timing) -> schedule_pb2.Timing:
    """What says which times there are. Who may have more again catches up with nothing."""
    found = schedule_pb2.Timing()
    found.CopyFrom(timing)
    for name in ("exclude_calendars", "jitter"):
        found.ClearField(name)
    return found
