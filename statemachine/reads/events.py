"""What happened, summary by the change that made it so.

Every node derives the same events from the same change, so the kept part of the journal is the
event log and nothing is written twice. What a change does not say, the names of jobs and queues, is
looked up in the state of the node, which may be newer. Any of it may be gone by then: the event
says what is left, a job is called "deleted", and a queue or a namespace has no name.

How two events are summary apart: a run was fired when the ledger got its outcome with it, or when
it says that this change made it, also when it ended at once; leased when its lease was put; its
attempt ended when that lease's token was deleted; it ended when it left the table of runs under
way. Changes by hand are summary by the audit log, which notes each in the same change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ...proto.v1 import common_pb2, event_pb2, run_pb2
from ..calls.alerts import event_of
from ..core import filters
from ..core.instants import set_ms
from ..core.store import Reading
from ..model import answers, keys, phases
from ..model.difference import jid_in, namespace_in
from ..model.entities import job_with, run_with
from ..model.record import (
    AlertRecord,
    AuditEntryRecord,
    BrokenRecord,
    Change,
    FlowRecord,
    JobRecord,
    LedgerRecord,
    NamespaceRecord,
    QueueRecord,
    RunRecord,
    StateRecord,
    parse,
    parse_change,
)
from ..model.view import View
from ..occurrences import ledger
from ..occurrences.next_time import DELETING, FINISHED
from ..tenants import namespaces, queues

Event = event_pb2.Event
Kind = event_pb2.EventKind
Events = Iterator[Event]
NO_STATE = StateRecord()  # Of a job that may be gone: what shows a run asks for none.
FIELDS = {
    "job": filters.TEXT,
    "kind": filters.words(Kind.keys(), "EVENT_KIND_"),
    "queue": filters.TEXT,
    "run": filters.TEXT,
}
ENDS = {
    phases.SUCCEEDED: event_pb2.EVENT_KIND_RUN_SUCCEEDED,
    phases.FAILED: event_pb2.EVENT_KIND_RUN_FAILED,
    phases.CANCELLED: event_pb2.EVENT_KIND_RUN_CANCELLED,
    phases.SKIPPED: event_pb2.EVENT_KIND_RUN_SKIPPED,
}
CALENDAR_METHODS = frozenset({"CreateCalendar", "UpdateCalendar", "DeleteCalendar"})
# What leaves a job with nothing ahead, without a scheduled time that was decided on.
FINISHING_METHODS = frozenset({"RevertOccurrence", "DropBacklog"})
QUEUE_METHODS = frozenset({"UpdateQueue", "PauseQueue", "ResumeQueue"})


@dataclass(slots=True)
class ChangeSummary:
    """A change, sorted by what it says."""

    revision: int
    now_ms: int
    view: View
    puts: dict[bytes, bytes]
    deletes: frozenset[bytes]
    by_table: dict[bytes, list[tuple[bytes, bytes]]] = field(default_factory=dict)
    # The key of the runs that were leased, and the tokens of leases that ended.
    leased: set[bytes] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)
    # Methods by subject, as the audit log notes them: "job/report" in the namespace "default".
    by_hand: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    imported: bool = False
    # Waves whose timer fired.
    fired_flows: set[tuple[int, int]] = field(default_factory=set)

    def job(self, jid: int) -> JobRecord:
        value = self.puts.get(keys.job(jid))
        if value is not None:
            return parse(keys.job(jid), value, JobRecord)
        found = self.view.get(keys.job(jid), JobRecord)
        if found is not None:
            return found
        namespace = namespace_named(self.view, keys.namespace_of(jid))
        return JobRecord(name="deleted", namespace=namespace)

    def event(self, kind: Kind.ValueType, job: JobRecord) -> Event:
        return Event(kind=kind, namespace=job.namespace, job=job.name)


def events(
    change: bytes, revision: int, lookup: Reading,
    failed: Callable[[Exception], None] | None = None,
) -> list[Event]:  # fmt: skip
    """What happened in a change, in order; `lookup` is the state after it, or a later one. Whoever
    gives `failed` hears of what cannot be derived, and gets the rest."""
    summary = _sort(parse_change(change, revision), revision, lookup)
    found: list[Event] = []
    for table, teller in EVENT_MAKERS.items():
        for key, value in summary.by_table.get(table, ()):
            try:
                found.extend(teller(summary, key, value))
            except Exception as error:
                if failed is None:
                    raise
                failed(error)
    for position, event in enumerate(found):
        event.revision.CopyFrom(common_pb2.Revision(change=revision, position=position))
        set_ms(event.time, summary.now_ms)
    return found


def _sort(change: Change, revision: int, lookup: Reading) -> ChangeSummary:
    summary = ChangeSummary(
        revision, change.now_ms, View(lookup, 0),
        dict(zip(change.keys, change.values, strict=True)), frozenset(change.deletes),
    )  # fmt: skip
    for key, value in summary.puts.items():
        summary.by_table.setdefault(key[:1], []).append((key, value))
        if key[:1] == keys.LEASE:
            summary.leased.add(keys.run(*keys.run_of(value)))
        elif key[:1] == keys.AUDIT:
            note = parse(key, value, AuditEntryRecord)
            summary.by_hand.setdefault((note.namespace, note.subject), set()).add(note.method)
            summary.imported |= note.method == "ImportJobs"
    for key in change.deletes:
        if key[:1] == keys.BROKEN:
            summary.by_table.setdefault(keys.BROKEN, []).append((key, b""))
        elif key[:1] == keys.LEASE:
            summary.dropped.add(keys.run_of(key)[1])
        elif key[:1] == keys.TIMER and key[9:10] == keys.WAKE_FLOW:
            summary.fired_flows.add(keys.run_of(key))
    return summary


def namespace_named(view: View, number: int) -> str:
    """The name of a namespace by its number; empty when it is gone."""
    if not number:
        return namespaces.DEFAULT
    for key, value in view.stored.scan(keys.NAMESPACE, keys.after(keys.NAMESPACE)):
        if parse(key, value, NamespaceRecord).number == number:
            return key[1:].decode()
    return ""


def _of_run(summary: ChangeSummary, key: bytes, value: bytes) -> Events:
    """A run that is under way: fired, requeued, or at the end or beginning of an attempt."""
    jid, occurrence = keys.run_of(key)
    run = parse(key, value, RunRecord)
    kinds = []
    if _is_fired(summary, jid, occurrence, run):
        kinds.append(event_pb2.EVENT_KIND_RUN_FIRED)
    elif keys.ended(jid, occurrence) in summary.deletes:
        kinds.append(event_pb2.EVENT_KIND_RUN_REQUEUED)
    if run.attempts and run.attempts[-1].token in summary.dropped:
        released = run.attempts[-1].end == run_pb2.Attempt.END_RELEASED
        kinds.append(
            event_pb2.EVENT_KIND_RUN_RELEASED if released else event_pb2.EVENT_KIND_RUN_RETRYING
        )
    if key in summary.leased:
        kinds.append(event_pb2.EVENT_KIND_RUN_LEASED)
    for kind in kinds:
        yield _run_event(summary, kind, jid, occurrence, run)


def _is_fired(summary: ChangeSummary, jid: int, occurrence: int, run: RunRecord) -> bool:
    if run.made_in:
        return run.made_in == summary.revision
    return (
        not occurrence & 0xFFFF and keys.ledger(jid, keys.scheduled_of(occurrence)) in summary.puts
    )


def _run_event(
    summary: ChangeSummary, kind: Kind.ValueType, jid: int, occurrence: int, run: RunRecord
) -> Event:
    job = summary.job(jid)
    event = summary.event(kind, job)
    event.run.CopyFrom(
        answers.run(summary.view, run_with(job_with(jid, job, NO_STATE), occurrence, run))
    )
    return event


def _of_ended(summary: ChangeSummary, key: bytes, value: bytes) -> Events:
    jid, occurrence = keys.ended_of(key)
    # Otherwise somebody has edited a dead letter.
    if keys.run(jid, occurrence) in summary.deletes:
        run = parse(key, value, RunRecord)
        if run.made_in == summary.revision:
            yield _run_event(summary, event_pb2.EVENT_KIND_RUN_FIRED, jid, occurrence, run)
        event = _run_event(summary, ENDS[run.phase], jid, occurrence, run)
        if event.run.on_failure.why_not:
            event.message = f"on_failure triggered nothing: {event.run.on_failure.why_not}"
        yield event


def _of_ledger(summary: ChangeSummary, key: bytes, value: bytes) -> Events:
    """A scheduled time, or a stretch of them, that became no run."""
    jid, scheduled_ms = keys.run_of(key)
    entry = parse(key, value, LedgerRecord)
    was_run = keys.ended(jid, keys.occurrence_of(scheduled_ms)) in summary.puts
    changed = entry.last_at_ms and entry.made_in != summary.revision
    if entry.outcome in ledger.WITH_RUN or was_run or changed:
        return
    event = summary.event(event_pb2.EVENT_KIND_FIRED_NOT, summary.job(jid))
    event.ledger.outcome = entry.outcome
    event.ledger.count = entry.count or 1
    set_ms(event.ledger.scheduled_time, scheduled_ms)
    if entry.last_at_ms:
        set_ms(event.ledger.last_scheduled_time, entry.last_at_ms)
    yield event


def _of_job(summary: ChangeSummary, key: bytes, value: bytes) -> Events:
    """A job's definition was written: it is new, or somebody changed it, or its pause is over."""
    jid = jid_in(key)
    job = parse(key, value, JobRecord)
    methods = summary.by_hand.get((job.namespace, f"job/{job.name}"), set())
    kinds = []
    if keys.job_name(keys.namespace_of(jid), job.name) in summary.puts:
        kinds.append(event_pb2.EVENT_KIND_JOB_CREATED)
    elif "UpdateJob" in methods or (summary.imported and not methods & {"PauseJob", "ResumeJob"}):
        kinds.append(event_pb2.EVENT_KIND_JOB_UPDATED)
    if "PauseJob" in methods:
        kinds.append(event_pb2.EVENT_KIND_JOB_PAUSED)
    if "ResumeJob" in methods or not kinds:
        kinds.append(event_pb2.EVENT_KIND_JOB_RESUMED)
    state_key = keys.state(jid)
    value = summary.puts.get(state_key, b"")
    state = parse(state_key, value, StateRecord) if value else StateRecord()
    if state.state == DELETING:
        # Its definition is written once more then, and nothing else that was done to it matters.
        yield summary.event(event_pb2.EVENT_KIND_JOB_DELETED, job)
        return
    for kind in kinds:
        event = _job_event(summary, kind, jid, job, state)
        if kind == event_pb2.EVENT_KIND_JOB_PAUSED:
            event.message = state.pause_reason
        yield event


def _job_event(
    summary: ChangeSummary, kind: Kind.ValueType, jid: int, job: JobRecord, state: StateRecord
) -> Event:
    event = summary.event(kind, job)
    event.job_after.CopyFrom(answers.job(job_with(jid, job, state)))
    return event


def _of_state(summary: ChangeSummary, key: bytes, value: bytes) -> Events:
    """Nothing is left to happen to a job, since its last scheduled time was decided on just now."""
    state = parse(key, value, StateRecord)
    if state.state != FINISHED:
        return
    jid = jid_in(key)
    last_ms = state.last_scheduled_at_ms
    dropped = keys.ended(jid, keys.occurrence_of(last_ms)) in summary.puts
    decided = keys.ledger(jid, last_ms) in summary.puts and not dropped
    by_hand = summary.by_hand.get(
        (summary.job(jid).namespace, f"job/{summary.job(jid).name}"), set()
    )
    if decided or keys.job(jid) in summary.puts or by_hand & FINISHING_METHODS:
        yield _job_event(summary, event_pb2.EVENT_KIND_JOB_FINISHED, jid, summary.job(jid), state)


def _of_alert(summary: ChangeSummary, key: bytes, value: bytes) -> Events:
    record = parse(key, value, AlertRecord)
    if record.changed_in == summary.revision:
        yield event_of(record)


def _of_flow(summary: ChangeSummary, key: bytes, value: bytes) -> Events:
    """A wave ended, after which it is written no more; or its timer fired, and it is stuck."""
    jid, occurrence = keys.run_of(key)
    flow = parse(key, value, FlowRecord)
    if flow.going:
        return
    if flow.ended_at_ms:
        if flow.ended_at_ms != summary.now_ms:
            return
        kind = event_pb2.EVENT_KIND_FLOW_ENDED
    elif flow.stuck and (jid, occurrence) in summary.fired_flows and _is_newly_stuck(summary, flow):
        kind = event_pb2.EVENT_KIND_FLOW_STUCK
    else:
        return
    job = summary.job(jid)
    event = summary.event(kind, job)
    event.flow = keys.run_id(job.name, jid, occurrence)
    yield event


def _is_newly_stuck(summary: ChangeSummary, flow: FlowRecord) -> bool:
    """Not when its timer fired only to go on with it, or to let it go when it is to be kept for
    longer."""
    if flow.found_stuck_ms != summary.now_ms:
        return False
    return not flow.stuck_since_ms or flow.stuck_since_ms == summary.now_ms


def _of_note(summary: ChangeSummary, key: bytes, value: bytes) -> Events:
    """Somebody changed a calendar, or a queue: its record alone is written with each lease too."""
    note = parse(key, value, AuditEntryRecord)
    if note.method in CALENDAR_METHODS:
        yield Event(
            kind=event_pb2.EVENT_KIND_CALENDAR_CHANGED, namespace=note.namespace,
            calendar=note.subject.removeprefix("calendar/"),
        )  # fmt: skip
        return
    if note.method not in QUEUE_METHODS:
        return
    name = note.subject.removeprefix("queue/")
    for queue_key, queue in summary.puts.items():
        if queue_key[:1] == keys.QUEUE and queue_key[5:] == name.encode():
            if namespace_named(summary.view, namespace_in(queue_key)) != note.namespace:
                continue
            record = parse(queue_key, queue, QueueRecord)
            event = Event(kind=event_pb2.EVENT_KIND_QUEUE_CHANGED, namespace=note.namespace)
            event.queue.CopyFrom(queues.settings(note.namespace, name, record))
            yield event
            return
    # The namespace is gone by now: whose settings these were nobody can say.
    event = Event(kind=event_pb2.EVENT_KIND_QUEUE_CHANGED, namespace=note.namespace)
    event.queue.namespace, event.queue.name = note.namespace, name
    yield event


def _of_broken(summary: ChangeSummary, key: bytes, value: bytes) -> Events:
    """A job was set aside, or is so no more; with one that is deleted its mark goes as well."""
    jid = jid_in(key)
    state_key = keys.state(jid)
    stored = summary.puts.get(state_key)
    state = parse(state_key, stored, StateRecord) if stored else StateRecord()
    job = summary.job(jid)
    if value:
        event = _job_event(summary, event_pb2.EVENT_KIND_JOB_BROKEN, jid, job, state)
        record = parse(key, value, BrokenRecord)
        event.message = event.job_after.status.broken_reason = record.reason
        set_ms(event.job_after.status.broken_time, record.at_ms)
        yield event
    elif state.state != DELETING and stored:
        yield _job_event(summary, event_pb2.EVENT_KIND_JOB_REPAIRED, jid, job, state)


EventMaker = Callable[[ChangeSummary, bytes, bytes], Events]
# In this order, in which one brings about the next: an end lets another run begin, and with the
# last one a job or a wave has come to its end.
EVENT_MAKERS: dict[bytes, EventMaker] = {
    keys.AUDIT: _of_note,
    keys.JOB: _of_job,
    keys.LEDGER: _of_ledger,
    keys.ENDED: _of_ended,
    keys.RUN: _of_run,
    keys.STATE: _of_state,
    keys.BROKEN: _of_broken,
    keys.FLOW: _of_flow,
    keys.ALERT: _of_alert,
}


def parse_filter(text: str) -> filters.Filter:
    """Read a filter of events; refused with FILTER_INVALID."""
    return filters.parse(text, FIELDS)


def fits(event: Event, namespace: str, wanted: filters.Filter) -> bool:
    """Whether a watcher of a namespace (empty: all) with a filter hears of an event."""
    if namespace and event.namespace != namespace:
        return False
    values: dict[str, filters.Value] = {
        "job": event.job,
        "kind": Kind.Name(event.kind).removeprefix("EVENT_KIND_"),
        "queue": event.queue.name or event.run.queue,
        "run": event.run.id,
    }
    return wanted.fits(values.__getitem__)
