"""What is stored: one value for each key, and what the log holds.

A record is an array in MessagePack: its format first, then its fields in the order in which they
stand here. Fields are only ever appended, and a new one comes with a new format, since a version
that does not know a field would lose it when it writes the record again: it stops instead.
tests/wire/golden holds the bytes of each. What a user or a worker wrote is kept as the
message of the API that it came in.

Times are milliseconds since 1970, UTC. 0 means "none" where nothing else is stated. A `jid` is the
number of a job and an `occurrence` names a run of it (keys.py).

Lists are tuples: a record that is shared is never half changed.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

import msgspec
from google.protobuf.message import Message

from ...proto.v1 import (
    access_pb2,
    alert_pb2,
    calendar_pb2,
    common_pb2,
    flow_pb2,
    identity_pb2,
    job_pb2,
    namespace_pb2,
    run_pb2,
    schedule_pb2,
    secret_pb2,
)
from . import phases, specs
from .specs import Template

FORMAT = 1
Outcome = run_pb2.Outcome
RunState = run_pb2.RunState


class UnknownFormat(Exception):
    """A record or change was written by a newer version. The node must stop."""


class RecordPart(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """A part of a record: the record's own format speaks for it."""


class Record(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """A value in the store. No record holds itself, so the collector need not look at it."""

    FORMAT: ClassVar[int] = FORMAT

    format: int = FORMAT

    def weight(self) -> int:
        """About how many bytes it is, for the kinds that can be large."""
        return 0

    def upgrade(self) -> bool:
        """Bring a record of a format of before to the present one; whether that can be done."""
        return False


class MetaRecord(Record):
    """What is there once: written with every change."""

    # Index of the log entry that was applied last.
    applied_index: int = 0
    # Sequence number of the change that was applied last.
    revision: int = 0
    # The clock of the last change; it never runs backwards by itself (set_time.py).
    now_ms: int = 0
    # Hash over all changes applied so far, in order.
    fingerprint: bytes = b""
    # The last token given out.
    token: int = 0
    # The last number given to a job, a lane, a session, a namespace.
    job_serial: int = 0
    lane_serial: int = 0
    session_serial: int = 0
    namespace_serial: int = 0
    # No timer has a smaller key: where the scan for due timers starts.
    timers_from: bytes = b""
    # The oldest and the next place among the answered request ids, by age.
    idempotency_from: int = 0
    idempotency_next: int = 0
    # The oldest and the next place in the audit log.
    audit_from: int = 0
    audit_next: int = 0
    # The last edition of the cluster's own alerts that were made.
    alerts_made: int = 0
    # No timer of what can wait has a smaller key.
    later_from: bytes = b""


class NamespaceRecord(Record):
    """A namespace's settings."""

    # Its number in keys.
    number: int = 0
    # What the user wrote; output-only fields are empty.
    settings: namespace_pb2.Namespace = msgspec.field(default_factory=namespace_pb2.Namespace)
    # See Namespace.etag.
    version: int = 0
    created_at_ms: int = 0


class UsageRecord(Record):
    """What a namespace uses: derived, kept by every change."""

    # Jobs registered, runs under way, runs leased, dead letters.
    jobs: int = 0
    live: int = 0
    leased: int = 0
    dead: int = 0
    # Bytes of payloads of registered jobs.
    payload_bytes: int = 0
    # Where it stands in the round of namespaces that share workers: the lowest goes next.
    virtual_time: int = 0
    # Missed scheduled times that still wait for their run.
    backlog: int = 0
    # From when on the next one of them, after an outage, may become a run: microseconds since 1970.
    backlog_free_us: int = 0
    # How many leases ended in the clock hour that began at `hour_at_ms`, and how long they lasted;
    # and the same of the clock hour before that.
    hour_at_ms: int = 0
    leases_ended: int = 0
    leases_took_ms: int = 0
    before_ended: int = 0
    before_took_ms: int = 0
    # Of very many lanes with ready runs, behind which the next ones are looked at.
    lane_from: bytes = b""
    # Of the runs, those that are held: the quota of runs does not count them.
    held: int = 0
    # Jobs that wait for that quota, and where the timer stands that serves them. 0: none does.
    quota_waits: int = 0
    quota_timer_ms: int = 0


class JobRecord(Record):
    """A job's definition: written when a person changes it, read when it fires and is leased."""

    name: str = ""
    # Its namespace's name.
    namespace: str = ""
    # What the user wrote, but for schedules, notes and payload.
    template: Template = specs.EMPTY
    # The schedules; labels, owner and description: each as bytes of a spec that says nothing else,
    # since most runs need not look at them.
    schedules: bytes = b""
    notes: bytes = b""
    # The message of the payload, in bytes, since it goes to workers as it is. None: there is none.
    payload: bytes | None = None
    # See Job.version.
    version: int = 0
    created_at_ms: int = 0
    # When it was last changed.
    updated_at_ms: int = 0
    # Who created it.
    creator: str = ""
    # The lane its runs wait in.
    lane: int = 0
    # Since when the schedules are the present ones.
    schedules_since_ms: int = 0
    # The version in which it got its present action and payload. 0: it never had others.
    action_version: int = 0
    # Since when what decides on its scheduled times is as it is: jitter, calendars, misfire and
    # overlap policy, how long its history is kept. 0: since its creation.
    policies_since_ms: int = 0

    def full_spec(self) -> job_pb2.JobSpec:
        """All that the user wrote."""
        spec = job_pb2.JobSpec.FromString(self.template.data + self.schedules + self.notes)
        if self.payload is not None:
            spec.payload.MergeFromString(self.payload)
        return spec

    def weight(self) -> int:
        parts = (self.template.data, self.schedules, self.notes, self.payload or b"")
        return sum(map(len, parts))


class FormerRecord(Record):
    """An action and payload that a job had before, as long as runs go by them."""

    # The action stands in it.
    template: Template = specs.EMPTY
    # See JobRecord.payload.
    payload: bytes | None = None
    # Runs under way that go by them.
    live: int = 0

    def weight(self) -> int:
        return len(self.template.data) + len(self.payload or b"")


def payload_of(spec: job_pb2.JobSpec) -> bytes | None:
    """A spec's payload as a job keeps it."""
    if not spec.HasField("payload"):
        return None
    return spec.payload.SerializeToString(deterministic=True)


class EditRecord(RecordPart):
    """An occurrence changed by hand; see OccurrenceEdit."""

    scheduled_at_ms: int = 0
    kind: schedule_pb2.OccurrenceEdit.Kind.ValueType = schedule_pb2.OccurrenceEdit.KIND_UNSPECIFIED
    moved_to_ms: int = 0


class BacklogRecord(RecordPart):
    """Past scheduled times that are still to run, oldest first."""

    # The next one that is looked at.
    next_at_ms: int = 0
    # The end; not included.
    to_ms: int = 0
    # How many are left.
    left: int = 0
    # One run per so many milliseconds.
    pace_ms: int = 0
    # When the next one is released. 0: when a run of the job has ended.
    release_at_ms: int = 0
    # SCHEDULE or BACKFILL, as the runs will say.
    cause: run_pb2.Cause.ValueType = run_pb2.CAUSE_UNSPECIFIED
    # For one that somebody moved or added, or that a backfill planned by former schedules: when it
    # was due.
    due_at_ms: int = 0
    # See ProofRecord.
    decided_at_ms: int = 0
    decided_in: int = 0


class StateRecord(Record):
    """Where a job stands: written when it fires, and when a run of it begins or ends."""

    # See JobStatus.State.
    state: job_pb2.JobStatus.State.ValueType = job_pb2.JobStatus.STATE_UNSPECIFIED
    # The next scheduled time and when it is due.
    next_scheduled_at_ms: int = 0
    next_due_at_ms: int = 0
    # Where its timer stands in the table of timers.
    timer_at_ms: int = 0
    # Counters; see JobStatus.
    fired: int = 0
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0
    live: int = 0
    running: int = 0
    held: int = 0
    # The last scheduled time that was decided on.
    last_scheduled_at_ms: int = 0
    # The run that ended last, how and when.
    last_occurrence: int = 0
    last_state: RunState.ValueType = run_pb2.RUN_STATE_UNSPECIFIED
    last_end_at_ms: int = 0
    # Why and until when it is paused.
    pause_reason: str = ""
    pause_until_ms: int = 0
    # Occurrences changed by hand, by scheduled time.
    edits: tuple[EditRecord, ...] = ()
    # Stretches of past scheduled times that are still to run.
    backlog: tuple[BacklogRecord, ...] = ()
    # It happens at one instant only, so there is nothing behind its first scheduled time.
    once: bool = False
    # No run under way has a smaller occurrence: where scans for them start.
    live_from: int = 0
    # No ledger entry has a smaller scheduled time: where its purge starts.
    ledger_from_ms: int = 0
    # The serial number of the last run that was not fired by a schedule.
    serial: int = 0
    # Runs that wait for a slot of this job (JobSpec.concurrency.job).
    parked: int = 0
    # When the job is to be deleted.
    delete_at_ms: int = 0
    # Other jobs depend on it, so an end of a run must look for them.
    has_downstream: bool = False
    # A schedule starts from the end of a run.
    after_end: bool = False
    # How long runs that ended well stay in the history. 0: as long as the namespace says.
    keep_ms: int = 0
    # Only its schedules make it happen, so without a next scheduled time it is FINISHED.
    may_finish: bool = False
    # How long after its finish the job is deleted; None: never.
    delete_after_ms: int | None = None
    # When its oldest ledger entry has had its time, for a job that nothing else wakes before.
    ledger_purge_at_ms: int = 0
    # Ledger entries before this instant were purged. 0: none was yet.
    ledger_purged_ms: int = 0
    # Runs under way that go by an action and payload that the job had before.
    former: int = 0
    # Of those held, the ones that were triggered for later and are not due yet.
    later: int = 0
    # Since when it waits for the quota of runs. 0: it is not.
    quota_wait_since_ms: int = 0
    # Without a next scheduled time: up to which instant those of its schedules were decided on. 0:
    # up to the last one.
    decided_ms: int = 0


class CatchUpRecord(Record):
    """A job has a backlog that goes on: derived from that."""

    # Where its timer stands in the table of timers.
    timer_at_ms: int = 0


class StreakRecord(Record):
    """Runs of a job failed in a row (JobSpec.pause_on_failure); it goes with the row."""

    failed: int = 0


class WarnedRecord(Record):
    """Runs of a job succeeded with a warning: how many ever, and the last one of them."""

    count: int = 0
    last_occurrence: int = 0


class BrokenRecord(Record):
    """A job that was set aside; it goes when the job comes back."""

    # See JobStatus.broken_reason.
    reason: str = ""
    at_ms: int = 0
    # Where the job stood before.
    was: job_pb2.JobStatus.State.ValueType = job_pb2.JobStatus.STATE_UNSPECIFIED


class AttemptRecord(RecordPart):
    """An attempt that ended without success; see Attempt."""

    number: int = 0
    worker: str = ""
    token: int = 0
    started_at_ms: int = 0
    ended_at_ms: int = 0
    end: run_pb2.Attempt.End.ValueType = run_pb2.Attempt.END_UNSPECIFIED
    error: run_pb2.RunError | None = None


class ProgressRecord(RecordPart):
    """How far a handler is; see Progress."""

    done: int = 0
    total: int = 0
    message: str = ""
    at_ms: int = 0


class UpstreamRecord(RecordPart):
    """A run upstream in a wave, and how it ended."""

    jid: int = 0
    occurrence: int = 0
    state: RunState.ValueType = run_pb2.RUN_STATE_UNSPECIFIED


class RunRecord(Record):
    """A run: under way in one table, ended in another."""

    # Format 1 showed the phase by five fields: the state that users see, and whether the run was
    # held, had a turn, was parked or waited for its next attempt.
    FORMAT: ClassVar[int] = 2
    # Whose slot a run waits for: nobody's, its job's, its key's.
    PARKING_UNSPECIFIED: ClassVar[int] = 0
    PARKING_JOB: ClassVar[int] = 1
    PARKING_KEY: ClassVar[int] = 2
    # What does not keep it from running, since somebody wants just this run.
    EXEMPT_OVERLAP: ClassVar[int] = 1
    EXEMPT_DEADLINE: ClassVar[int] = 2
    # Beside these: its trigger named `limit_key`, not its job; and it has a CarriedRecord.
    KEY_OF_TRIGGER: ClassVar[int] = 4
    CARRIES: ClassVar[int] = 8

    format: int = 2
    # Where it stands (phases.py), why it exists, what became of its scheduled time.
    phase: int = phases.NEW
    cause: run_pb2.Cause.ValueType = run_pb2.CAUSE_UNSPECIFIED
    outcome: Outcome.ValueType = run_pb2.OUTCOME_UNSPECIFIED
    # When it may start.
    due_at_ms: int = 0
    # Since when it could have been leased for the first time. 0: it could not yet.
    ready_at_ms: int = 0
    # Its turn among the ready runs of its lane. 0: it is not among them.
    rank_ms: int = 0
    # The lane it waits in.
    lane: int = 0
    # The number of the current or last attempt that counts.
    attempt: int = 0
    # The current or last lease, who holds it, and that worker's session number.
    token: int = 0
    worker: str = ""
    session: int = 0
    # When it was granted.
    leased_at_ms: int = 0
    # When it ends. 0: with the session.
    deadline_at_ms: int = 0
    # When the first attempt was leased.
    started_at_ms: int = 0
    ended_at_ms: int = 0
    # When the next attempt may begin.
    retry_at_ms: int = 0
    # Where its timer stands in the table of timers.
    timer_at_ms: int = 0
    # Attempts that ended without success, and how many are not there any more, to keep it small.
    attempts: tuple[AttemptRecord, ...] = ()
    attempts_dropped: int = 0
    # The payload, if it is not the job's own.
    payload: common_pb2.Payload | None = None
    priority: common_pb2.Priority.ValueType = common_pb2.PRIORITY_UNSPECIFIED
    # What the handler returned.
    result: common_pb2.Payload | None = None
    # Why it failed, was cancelled or skipped.
    error: run_pb2.RunError | None = None
    # How far the handler says it is, and since when.
    progress: ProgressRecord | None = None
    # The end of the handler's log.
    log_tail: bytes = b""
    # For the next attempt.
    checkpoint: bytes = b""
    # The business key it holds, and how long after its end.
    unique_key: str = ""
    unique_hold_ms: int = 0
    # When a running run that is to be cancelled is terminated. 0: it is not to be cancelled.
    cancel_at_ms: int = 0
    # Of format 1: it was held and is not counted as such by its namespace, nor as later by its job.
    uncounted: bool | int = False
    # The wave it belongs to: jid and occurrence of the run the wave began with.
    flow_jid: int = 0
    flow_occurrence: int = 0
    # The attempts that were used up before it was requeued.
    attempts_forgiven: int = 0
    # Whose slot it waits for while it is parked.
    parking: int = 0
    # The shared key that limits it: its trigger's, or its job's when it was leased or parked.
    limit_key: str = ""
    # Runs upstream in the wave.
    upstream: tuple[UpstreamRecord, ...] = ()
    # When it leaves the history: where its timer stands. Before, that was not among what can wait.
    purge_at_ms: int = 0
    # The attempt is at risk since this instant, by the heartbeat timeout. 0: not watched.
    heard_at_ms: int = 0
    # For a run that was triggered or fired by a wave, or ended in the change that made it: the
    # revision of that change.
    made_in: int = 0
    # As its job had it when it was made: by which action and payload it goes.
    action_version: int = 0
    # The sum of EXEMPT_*, KEY_OF_TRIGGER and CARRIES.
    exempt: int = 0

    @property
    def state(self) -> RunState.ValueType:
        """As what users see it."""
        return phases.STATES[self.phase]

    def upgrade(self) -> bool:
        """Find the phase of a run of format 1, whose state is one that users see."""
        if self.format != FORMAT:
            return False
        held, self.uncounted = self.uncounted, False
        if self.ended_at_ms or self.phase == phases.LEASED:
            pass
        elif held is True:
            # The oldest did not say for what. One for later fires when it is due.
            is_later = self.timer_at_ms == self.due_at_ms
            self.phase, self.uncounted = (phases.LATER if is_later else phases.HELD), True
        elif held:
            self.phase = _HELD_FOR[held]
        elif self.parking == _PARKING_BROKEN:
            self.phase, self.parking = phases.ASIDE, self.PARKING_UNSPECIFIED
        elif self.rank_ms:
            self.phase = phases.PARKED if self.parking else phases.READY
        else:
            self.phase = phases.DELAYED
        self.format = self.FORMAT
        return True

    def weight(self) -> int:
        size = len(self.log_tail) + len(self.checkpoint)
        if self.payload is not None:
            size += self.payload.ByteSize()
        if self.result is not None:
            size += self.result.ByteSize()
        if self.error is not None:
            size += self.error.ByteSize()
        for past in self.attempts:
            if past.error is not None:
                size += past.error.ByteSize()
        return size


class ProofRecord(RecordPart):
    """By what an audit sees whether an outcome is right."""

    # When it was decided on, with what else was due, and in the change that became which revision.
    # 0: not by a policy.
    decided_at_ms: int = 0
    decided_in: int = 0
    # When it was due; of a stretch the first. 0: at its scheduled time, plus jitter.
    due_at_ms: int = 0
    # When it was given up after it had waited, or was moved: by a call of somebody.
    dropped_at_ms: int = 0
    # What stood there before a backfill ran it.
    before: Outcome.ValueType = run_pb2.OUTCOME_UNSPECIFIED


# What a run of format 1 was held for (its due time, room, its job's resume), and that it was parked
# since its job was set aside.
_HELD_FOR = {2: phases.LATER, 3: phases.HELD, 4: phases.HALTED}
_PARKING_BROKEN = 3


class LedgerRecord(Record):
    """What became of a scheduled time, or of a stretch of them. An entry for one scheduled time
    inside a stretch takes that one out of the stretch."""

    outcome: Outcome.ValueType = run_pb2.OUTCOME_UNSPECIFIED
    # For a stretch: the last scheduled time. 0: one alone.
    last_at_ms: int = 0
    # For a stretch: how many, less those taken out. 0: one alone.
    count: int = 0
    # Somebody added it by hand: no schedule names it.
    added: bool = False
    # For a stretch: the revision of the change that made it.
    made_in: int = 0
    # None for one that ran in time, as its schedule says.
    proof: ProofRecord | None = None


class LabelRecord(RecordPart):
    """A label and its value."""

    name: str = ""
    value: str = ""


class FailureRecord(RecordPart):
    """What came of a run's failure; see FailureOutcome."""

    job: str = ""
    jid: int = 0
    occurrence: int = 0
    why_not: str = ""


class CarriedRecord(Record):
    """What a run carries that the rules do not look at, from its beginning until it is purged: most
    runs have none, so it is kept beside them. An older version that purges the run leaves it."""

    # Format 1 had no warnings and nothing of failures.
    FORMAT: ClassVar[int] = 2

    format: int = 2
    trace: run_pb2.TraceContext | None = None
    # By name.
    labels: tuple[LabelRecord, ...] = ()
    # See Run.warning.
    warning: str = ""
    # See Run.on_failure.
    failure: FailureRecord | None = None
    # Failures one behind the other that it came of, by `on_failure`.
    failures: int = 0

    def weight(self) -> int:
        size = sum(len(label.name) + 2 * len(label.value) for label in self.labels)
        size += len(self.warning)
        size += len(self.failure.why_not) if self.failure is not None else 0
        return size + (self.trace.ByteSize() if self.trace is not None else 0)

    def upgrade(self) -> bool:
        """One of format 1 lacks only what it could not have."""
        if self.format != FORMAT:
            return False
        self.format = self.FORMAT
        return True


class LaneRecord(Record):
    """The part of a queue whose runs have one priority and ask the same of a worker, so that any
    worker may take all of it or nothing, in order of ranks."""

    # Its number in keys.
    number: int = 0
    # The handler or executor it asks for, and the labels, by name.
    handler: str = ""
    labels: tuple[LabelRecord, ...] = ()
    # Runs that could be leased, those that wait for a slot of a job or key left out.
    ready: int = 0
    # No ready run of it has a smaller key: where the scan for them starts.
    ready_from: bytes = b""
    # The namespace's number, the queue's name, the priority of its runs.
    namespace: int = 0
    queue: str = ""
    priority: common_pb2.Priority.ValueType = common_pb2.PRIORITY_UNSPECIFIED


class QueueRecord(Record):
    """A queue's settings and counters; see Queue."""

    paused: bool = False
    pause_reason: str = ""
    concurrency: int = 0
    rate: int = 0
    burst: int = 0
    # See Queue.etag.
    version: int = 0
    # Runs leased now.
    leased: int = 0
    # Leases in hand, in thousandths, as of an instant: the token bucket of the rate.
    allowance: int = 0
    allowance_at_ms: int = 0


class KeyRecord(Record):
    """A shared key that limits runs (ConcurrencyLimit.key)."""

    # Runs leased now, and runs that wait for a slot.
    running: int = 0
    parked: int = 0


class SessionRecord(Record):
    """A worker's session, as far as it must survive the leader."""

    # Its number in keys.
    number: int = 0
    # Leases it holds.
    leased: int = 0
    # It holds no lease with a smaller token: where scans for them start.
    token_from: int = 0
    # Of its leases, those whose runs are to be cancelled.
    cancels: int = 0


class UniqueRecord(Record):
    """A business key that is taken."""

    # By this run.
    occurrence: int = 0
    # The run has ended; the key is free from this instant. 0: the run is under way.
    until_ms: int = 0


class IdempotencyRecord(Record):
    """The answer to a request id. Refusals are not remembered: they changed nothing, and the same
    request may be right later."""

    # Hash of the request.
    request: bytes = b""
    # Full name of the answer's message, and the answer.
    type: str = ""
    answer: bytes = b""
    # When it was given.
    at_ms: int = 0
    # For LeaseRequest, in place of an answer: the session that the leases were granted to, and by
    # how much the token of each lease is above that of the one before.
    session: int = 0
    token_steps: tuple[int, ...] = ()

    def weight(self) -> int:
        return len(self.answer) + 2 * len(self.token_steps)


class AuditEntryRecord(Record):
    """Who changed what; see AuditRecord."""

    at_ms: int = 0
    actor: str = ""
    method: str = ""
    namespace: str = ""
    subject: str = ""
    change: str = ""
    request_id: str = ""
    # The change it was made in.
    revision: int = 0


class CalendarRecord(Record):
    """A shared list of days."""

    # What the user wrote; output-only fields are empty.
    settings: calendar_pb2.Calendar = msgspec.field(default_factory=calendar_pb2.Calendar)
    # See Calendar.etag.
    version: int = 0
    # When it was last changed.
    updated_at_ms: int = 0
    # Jobs that name it.
    jobs: int = 0


class NamespaceDeletionRecord(Record):
    """A namespace that was deleted, until what it left behind is gone."""

    # Where its timer stands in the table of timers.
    timer_at_ms: int = 0


class AlertRecord(Record):
    """A condition that somebody wants to hear of."""

    # What the user wrote; output-only fields are empty.
    settings: alert_pb2.Alert = msgspec.field(default_factory=alert_pb2.Alert)
    # See Alert.etag.
    version: int = 0
    # Since when its condition holds. 0: it does not.
    true_since_ms: int = 0
    # Since when it is raised. 0: it is not.
    raised_at_ms: int = 0
    # The revision of the change in which it was raised or cleared last.
    changed_in: int = 0
    # The clock of that change.
    changed_at_ms: int = 0
    # The last of those revisions that its webhook has heard of, or never will.
    called_in: int = 0


class AccessTokenRecord(Record):
    """A secret that shows who calls."""

    # What it may do; output-only fields are empty.
    settings: access_pb2.AccessToken = msgspec.field(default_factory=access_pb2.AccessToken)
    created_at_ms: int = 0
    # SHA-256 of the secret.
    digest: bytes = b""


class IdentityProviderRecord(Record):
    """Who vouches for callers, and what those may do."""

    # What the user wrote; output-only fields are empty.
    settings: identity_pb2.IdentityProvider = msgspec.field(
        default_factory=identity_pb2.IdentityProvider
    )
    # See IdentityProvider.etag.
    version: int = 0
    created_at_ms: int = 0


class SecretRecord(Record):
    """A secret for the targets of jobs. No plain text is in the state."""

    # What the user wrote; output-only fields are empty.
    settings: secret_pb2.Secret = msgspec.field(default_factory=secret_pb2.Secret)
    # See Secret.etag.
    version: int = 0
    # How many values it has had.
    value_version: int = 0
    created_at_ms: int = 0
    # When it got its value, and by whom.
    updated_at_ms: int = 0
    updater: str = ""
    # The id of the key, and what the node encrypted under it.
    key_id: str = ""
    sealed: bytes = b""

    def weight(self) -> int:
        return len(self.sealed)


class FlowRecord(Record):
    """A wave through jobs that depend on each other."""

    # Runs of it that are under way, steps that wait, steps that can no longer run.
    live: int = 0
    waiting: int = 0
    cannot_run: int = 0
    # When it began, and when it ended.
    created_at_ms: int = 0
    ended_at_ms: int = 0
    # A step waits longer than its `stuck_after`.
    stuck: bool = False
    # Not used any more: its steps lie under its key.
    jids: tuple[int, ...] = ()
    # Where its timer stands in the table of timers.
    timer_at_ms: int = 0
    # A run of it failed, so it is kept as long as those are.
    failed: bool = False
    # Since when nothing lies ahead of it but steps that are stuck. 0: something does.
    stuck_since_ms: int = 0
    # Ends and dead ends of which the jobs downstream are still to hear (NoticeRecord).
    notices: int = 0
    # No waiting step counts as stuck before this instant, but for those that do already. 0: it is
    # not known.
    ahead_ms: int = 0
    # While stuck steps are looked for: the jid to go on from.
    looked_to: int = 0
    # When a step was last found to be stuck.
    found_stuck_ms: int = 0
    # How often its first run was made anew: what is left of an earlier round counts for nothing.
    round: int = 0
    # Its time is over, and what is left of it goes in steps.
    going: bool = False


class StepRecord(Record):
    """One job of a wave."""

    # Where it stands.
    state: flow_pb2.FlowStep.State.ValueType = flow_pb2.FlowStep.STATE_UNSPECIFIED
    # Its run, once it has one.
    occurrence: int = 0
    # Upstream runs that have ended, whether or not as wanted.
    ended: tuple[UpstreamRecord, ...] = ()
    # Since when it waits, and from when on it counts as stuck.
    waiting_since_ms: int = 0
    stuck_at_ms: int = 0
    # See FlowRecord.round.
    round: int = 0


class NoticeRecord(Record):
    """A job of a wave is over, and those downstream are still to hear of it."""

    # Its run, and how it ended; UNSPECIFIED: it can no longer run.
    occurrence: int = 0
    state: RunState.ValueType = run_pb2.RUN_STATE_UNSPECIFIED
    # Those with a smaller jid know.
    next_jid: int = 0
    # See FlowRecord.round.
    round: int = 0


class SurveyRecord(Record):
    """A wave looks for the jobs that its first one leads to, or has found them."""

    # Of which beginning of the wave: its FlowRecord has both.
    created_at_ms: int = 0
    round: int = 0
    # How many there were of that wave, this one included: what others have found counts for
    # nothing.
    number: int = 0
    began_at_ms: int = 0
    # Jobs that were found, how many of them were looked at, and where to go on behind the next.
    found: int = 0
    looked: int = 0
    next_jid: int = 0


class DependsRecord(Record):
    """What hangs on a job: derived, kept by every change of its upstream and downstream."""

    # Jobs that wait for it.
    dependents: int = 0
    # How many jobs wait one for the other up to this one, itself included, as far as was known
    # when it got its upstream.
    depth: int = 0


class RoomRecord(Record):
    """The overlap policy makes room for a run of a job, and more goes than fits into a change."""

    # The run, which is held back meanwhile.
    occurrence: int = 0
    # When it came, and in the change that became which revision.
    came_at_ms: int = 0
    came_in: int = 0
    # Those that nothing holds back go as well.
    replaces: bool = False
    # All with a smaller occurrence have gone.
    next_occurrence: int = 0
    # Where its timer stands in the table of timers.
    timer_at_ms: int = 0


class ResumeRecord(Record):
    """A job fires again, and more came to it meanwhile than is decided on in one change."""

    # Since when.
    at_ms: int = 0
    # How many the misfire policy has chosen, and where to go on. 0: at the beginning.
    chosen: int = 0
    next_occurrence: int = 0
    # Where its timer stands in the table of timers.
    timer_at_ms: int = 0


class Change(Record):
    """One decided change: every node writes the puts and removes the deletes in one batch, with a
    new MetaRecord. It is refused on any state but the one that it was decided on."""

    # Sequence number of the change it was decided on.
    base: int = 0
    # The leader's clock as it was decided; not less than that of the change before.
    now_ms: int = 0
    # Keys to put, in their order, in which the store takes them at half the cost; each key occurs
    # once, here or in `deletes`. Their values are in the same order.
    keys: list[bytes] = []
    values: list[bytes] = []
    deletes: list[bytes] = []
    # The MetaRecord after this change, without what apply adds: index, revision and fingerprint.
    meta: MetaRecord = msgspec.field(default_factory=MetaRecord)


class StagedRecord(Record):
    """A backup that is put back while the cluster runs, as far as it has come."""

    # The caller's, and the one under which its pieces stand.
    id: str = ""
    serial: int = 0
    size: int = 0
    received: int = 0
    # Who puts it back, and with which request.
    actor: str = ""
    request_id: str = ""
    # When its caller was last heard; long after that it is thrown away.
    touched_at_ms: int = 0
    # What keeps the history that begins from it apart from all others. Empty: it is not complete.
    origin: str = ""
    # It may be of a cluster with another name.
    other_cluster: bool = False
    # When it was complete: the time of the note in its audit log.
    sealed_at_ms: int = 0


class RestoredRecord(Record):
    """The backup that took the place of a state, and what that state was."""

    id: str = ""
    # The entry of the log that did it: nothing before it speaks of this state.
    index: int = 0
    # What the backup says of itself.
    cluster: str = ""
    taken: str = ""
    revision: int = 0
    jobs: int = 0
    live_runs: int = 0
    # The revision of the state that it took the place of.
    before: int = 0


class SwitchRecord(Record):
    """An entry of the log: from here on the state is what became of a backup."""

    # The revision that it was decided on; on any other state it does nothing.
    base: int = 0
    # Of the stage that it is made of.
    serial: int = 0
    # What stands in that state on all nodes; the index is that of the entry.
    meta: MetaRecord = msgspec.field(default_factory=MetaRecord)
    restored: RestoredRecord = msgspec.field(default_factory=RestoredRecord)


def _bytes_of(part: Message | Template) -> bytes:
    if isinstance(part, Template):
        return part.data
    # Sorted maps: equal records are equal bytes, whatever the process.
    return part.SerializeToString(deterministic=True)


def _part(kind: type[Message | Template], data: bytes) -> Message | Template:
    return specs.parse(data) if issubclass(kind, Template) else kind.FromString(data)


encode = msgspec.msgpack.Encoder(enc_hook=_bytes_of).encode
_DECODE = {
    kind: msgspec.msgpack.Decoder(kind, dec_hook=_part).decode for kind in Record.__subclasses__()
}


AnyRecord = TypeVar("AnyRecord", bound=Record)


def parse(place: bytes | int, data: bytes, kind: type[AnyRecord]) -> AnyRecord:
    """The record at a key, from its bytes."""
    try:
        record = _DECODE[kind](data)
    except msgspec.ValidationError as error:
        found = msgspec.msgpack.decode(data)[0]
        raise UnknownFormat(_unknown(kind, place, found, f" ({error})")) from error
    if record.format != kind.FORMAT and not record.upgrade():
        raise UnknownFormat(_unknown(kind, place, record.format))
    return record  # type: ignore[return-value]  # The decoder is that of the kind.


def parse_change(data: bytes, revision: int) -> Change:
    """The change that is to become, or became, a revision of the state."""
    return parse(revision, data, Change)


def _unknown(kind: type[Record], place: object, found: int, why: str = "") -> str:
    return (
        f"{kind.__name__} at {place!r} has format {found}; this version knows {kind.FORMAT}{why}. "
        "Run the version that wrote it, or a newer one."
    )
