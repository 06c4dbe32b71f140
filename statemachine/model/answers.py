"""From records to the messages of the API."""

from __future__ import annotations

from functools import lru_cache

from ...proto.v1 import common_pb2, job_pb2, run_pb2, schedule_pb2, worker_pb2
from ..core import limits
from ..core.instants import set_ms, timestamp
from . import carried, former_specs, keys, phases
from .entities import Job, Run
from .record import AttemptRecord, FailureRecord, JobRecord, LaneRecord, RunRecord
from .view import View

TIMES_KEPT = 1_024
EDITS_KEPT = 4_096


def id_of(run: Run) -> str:
    return keys.run_id(run.job.definition.name, run.jid, run.occurrence)


def lease(view: View, run: Run) -> worker_pb2.Lease:
    # Field by field: a message that is made of keywords costs half as much again.
    # And bytes where many leases say the same: to read them costs a third of saying it.
    record, definition, occurrence = run.record, run.job.definition, run.occurrence
    template = ordered = definition.template
    payload = definition.payload
    if record.action_version != definition.action_version:
        ordered, payload = former_specs.former(view, run)
    answer = worker_pb2.Lease.FromString(ordered.lease + _times(occurrence >> 16, record.due_at_ms))
    answer.namespace = definition.namespace
    answer.job = definition.name
    answer.run = keys.run_id(definition.name, run.jid, occurrence)
    answer.token = record.token
    answer.attempt = record.attempt
    answer.max_attempts = record.attempts_forgiven + template.max_attempts
    if record.payload is not None:
        answer.payload.CopyFrom(record.payload)
    elif payload is not None:
        answer.payload.MergeFromString(payload)
    if record.deadline_at_ms:
        set_ms(answer.deadline, record.deadline_at_ms)
    if record.checkpoint:
        answer.checkpoint = record.checkpoint
    if record.heard_at_ms and template.spec.timeouts.HasField("heartbeat"):
        answer.heartbeat_timeout.CopyFrom(template.spec.timeouts.heartbeat)
    if record.flow_jid:
        answer.flow = flow_id(view, record)
    if record.upstream:
        answer.upstream.extend(upstream(view, record))
    if record.exempt & RunRecord.CARRIES:
        _carried(view, run, answer)
    return answer


def _carried(view: View, run: Run, answer: worker_pb2.Lease | run_pb2.Run) -> None:
    record = carried.of(view, run)
    if record is not None:
        if record.trace is not None:
            answer.trace_context.CopyFrom(record.trace)
        answer.labels.update((label.name, label.value) for label in record.labels)
        if record.warning and isinstance(answer, run_pb2.Run):
            answer.warning = record.warning
        if record.failure is not None and isinstance(answer, run_pb2.Run):
            _failure(record.failure, answer.on_failure)


def _failure(record: FailureRecord, answer: run_pb2.FailureOutcome) -> None:
    answer.job, answer.why_not = record.job, record.why_not
    if record.jid:
        answer.run = keys.run_id(record.job, record.jid, record.occurrence)


@lru_cache(TIMES_KEPT)
def _times(scheduled_ms: int, due_ms: int) -> bytes:
    """The times of a lease, as bytes of that message: many runs fire at the same instant."""
    lease = worker_pb2.Lease()
    set_ms(lease.scheduled_time, scheduled_ms)
    set_ms(lease.due_time, due_ms)
    return lease.SerializeToString()


def flow_id(view: View, run: RunRecord) -> str:
    job = view.get(keys.job(run.flow_jid), JobRecord)
    return keys.run_id(job.name if job else "deleted", run.flow_jid, run.flow_occurrence)


def upstream(view: View, run: RunRecord) -> list[run_pb2.UpstreamResult]:
    results = []
    room = limits.UPSTREAM_BYTES
    for item in run.upstream:
        job = view.get(keys.job(item.jid), JobRecord)
        name = job.name if job else "deleted"
        result = run_pb2.UpstreamResult(
            job=name, run=keys.run_id(name, item.jid, item.occurrence), state=item.state
        )
        ended = view.get(keys.ended(item.jid, item.occurrence), RunRecord)
        if ended is not None and ended.result is not None:
            size = len(ended.result.data)
            if size <= room:
                room -= size
                result.result.CopyFrom(ended.result)
            else:
                result.result_omitted = True
        results.append(result)
    return results


def run(view: View, run: Run) -> run_pb2.Run:
    record, definition = run.record, run.job.definition
    answer = run_pb2.Run(
        namespace=definition.namespace, id=id_of(run), job=definition.name,
        state=record.state, cause=record.cause, outcome=record.outcome, attempt=record.attempt,
        priority=record.priority or common_pb2.PRIORITY_MEDIUM, token=record.token,
        unique_key=record.unique_key, cancel_requested=bool(record.cancel_at_ms),
        concurrency_key=record.limit_key,
        held=record.phase in (phases.HELD, phases.HALTED), later=record.phase == phases.LATER,
        log_tail=record.log_tail, checkpoint=record.checkpoint,
    )  # fmt: skip
    # An event of the past may be shown when the namespace with its lanes is gone.
    lane = view.get(keys.lane(record.lane), LaneRecord)
    if lane is not None:
        answer.queue = lane.queue
    set_ms(answer.scheduled_time, run.occurrence >> 16)
    set_ms(answer.due_time, record.due_at_ms)
    for name, ms in (
        ("ready_time", record.ready_at_ms),
        ("start_time", record.started_at_ms),
        ("end_time", record.ended_at_ms),
        ("retry_time", record.retry_at_ms),
        ("lease_deadline", record.deadline_at_ms),
    ):
        if ms:
            set_ms(getattr(answer, name), ms)
    if record.state == run_pb2.RUN_STATE_RUNNING:
        answer.worker = keys.worker_id(record.worker)
    for name in ("payload", "result", "error"):
        if getattr(record, name) is not None:
            getattr(answer, name).CopyFrom(getattr(record, name))
    if record.progress is not None:
        done = record.progress
        answer.progress.CopyFrom(
            run_pb2.Progress(
                done=done.done, total=done.total, message=done.message, time=timestamp(done.at_ms)
            )
        )
    answer.attempts.extend(attempts(record))
    if record.flow_jid:
        answer.flow = flow_id(view, record)
    if record.upstream:
        answer.upstream.extend(upstream(view, record))
    _carried(view, run, answer)
    return answer


def attempts(record: RunRecord) -> list[run_pb2.Attempt]:
    """Those that ended without success, and the present or last one."""
    found = [_attempt(item) for item in record.attempts]
    if record.leased_at_ms and (not found or found[-1].token != record.token):
        last = run_pb2.Attempt(
            number=record.attempt,
            worker=keys.worker_id(record.worker),
            token=record.token,
            start_time=timestamp(record.leased_at_ms),
        )
        if record.ended_at_ms:
            last.end_time.CopyFrom(timestamp(record.ended_at_ms))
            last.end = ENDS[record.state]
        found.append(last)
    return found


def _attempt(item: AttemptRecord) -> run_pb2.Attempt:
    return run_pb2.Attempt(
        number=item.number,
        worker=keys.worker_id(item.worker),
        token=item.token,
        end=item.end,
        start_time=timestamp(item.started_at_ms),
        end_time=timestamp(item.ended_at_ms),
        error=item.error,
    )


ENDS = {
    run_pb2.RUN_STATE_SUCCEEDED: run_pb2.Attempt.END_SUCCEEDED,
    run_pb2.RUN_STATE_FAILED: run_pb2.Attempt.END_FAILED,
    run_pb2.RUN_STATE_CANCELLED: run_pb2.Attempt.END_CANCELLED,
    run_pb2.RUN_STATE_SKIPPED: run_pb2.Attempt.END_CANCELLED,
}


def job(job: Job) -> job_pb2.Job:
    record = job.definition
    answer = job_pb2.Job(
        namespace=record.namespace, name=record.name, spec=record.full_spec(), uid=job.jid,
        etag=etag(record.version), version=record.version, creator=record.creator,
        create_time=timestamp(record.created_at_ms), update_time=timestamp(record.updated_at_ms),
    )  # fmt: skip
    status(job, answer.status)
    return answer


def status(job: Job, answer: job_pb2.JobStatus) -> None:
    state = job.state
    answer.state = state.state
    answer.pause_reason = state.pause_reason
    for name in ("fired", "succeeded", "failed", "skipped", "running", "held"):
        setattr(answer, name, getattr(state, name))
    answer.held -= state.later
    answer.live, answer.later = state.live, state.later
    answer.backlog = sum(part.left for part in state.backlog)
    for name, ms in (
        ("pause_until", state.pause_until_ms),
        ("next_scheduled_time", state.next_scheduled_at_ms),
        ("next_due_time", state.next_due_at_ms),
        ("last_scheduled_time", state.last_scheduled_at_ms),
    ):
        if ms:
            set_ms(getattr(answer, name), ms)
    if state.last_state:
        answer.last_run = keys.run_id(job.definition.name, job.jid, state.last_occurrence)
        answer.last_state = state.last_state
    if state.edits:
        answer.edits.extend(
            _edit(edit.scheduled_at_ms, edit.kind, edit.moved_to_ms) for edit in state.edits
        )


@lru_cache(EDITS_KEPT)
def _edit(
    scheduled_ms: int, kind: schedule_pb2.OccurrenceEdit.Kind.ValueType, moved_to_ms: int
) -> schedule_pb2.OccurrenceEdit:
    """Nobody may change it: each answer about its job shows all edits, and has a copy."""
    shown = schedule_pb2.OccurrenceEdit(scheduled_time=timestamp(scheduled_ms), kind=kind)
    if moved_to_ms:
        set_ms(shown.moved_to, moved_to_ms)
    return shown


def etag(version: int) -> str:
    return f"v{version}"
