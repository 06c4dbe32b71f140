"""What a person does to runs and dead letters."""

from __future__ import annotations

from google.protobuf.message import Message
from msgspec.structs import replace

from ...proto.v1 import dead_letter_pb2, run_pb2, worker_pb2
from ..core import limits
from ..core.instants import ms_or
from ..core.rejection import Reason, Refused
from ..flows import waves
from ..model import answers, keys, validate
from ..model.entities import Run, run_with
from ..model.phases import CANCELLED, DELAYED, FAILED, HALTED, HELD, READY
from ..model.record import LaneRecord, RunRecord
from ..model.view import View
from ..occurrences import next_time
from ..runs import lanes, overlap, runs, unique_keys
from ..runs.move import move
from ..tenants import audit_log, namespaces, quota


def find(view: View, namespace: str, run_id: str) -> Run:
    """A run, under way or ended."""
    number = namespaces.need(view, namespace).number
    place = keys.run_key(run_id)
    if place is not None and keys.namespace_of(place[0]) == number:
        run = view.find_run(place) or ended(view, place)
        if run is not None and answers.id_of(run) == run_id:
            return run
    raise Refused.because(
        Reason.ERROR_REASON_RUN_NOT_FOUND,
        f"there is no run '{run_id}' in the namespace '{namespace or namespaces.DEFAULT}', or its "
        "history was purged",
        namespace=namespace or namespaces.DEFAULT, run=run_id,
    )  # fmt: skip


def ended(view: View, place: tuple[int, int]) -> Run | None:
    """A run that has ended, if it is kept still."""
    jid, occurrence = place
    record, job = view.get(keys.ended(jid, occurrence), RunRecord), view.find_job(jid)
    return run_with(job, occurrence, record) if record is not None and job is not None else None


def _live(view: View, namespace: str, run_id: str) -> Run:
    run = find(view, namespace, run_id)
    if (record := run.record).ended_at_ms:
        word = run_pb2.RunState.Name(record.state).removeprefix("RUN_STATE_")
        raise Refused.because(
            Reason.ERROR_REASON_RUN_ENDED,
            f"the run {run_id} has ended ({word}), so it cannot be changed",
            run=run_id, state=word,
        )  # fmt: skip
    return run


def cancel(view: View, request: run_pb2.CancelRunRequest, actor: str) -> run_pb2.Run:
    run = _live(view, request.namespace, request.run)
    faults = validate.text("reason", request.reason, limits.REASON_CHARS)
    faults += validate.span("grace", request, "grace", 0, limits.DAY_MS)
    if faults:
        raise Refused.of(faults)
    cancel_run(view, run, request, actor)
    return answers.run(view, run)


def cancel_run(
    view: View, run: Run, request: run_pb2.CancelRunRequest | run_pb2.ChangeRunsRequest, actor: str
) -> None:
    grace_ms = ms_or(request, "grace", limits.CANCEL_GRACE_MS)
    runs.cancel(view, run, request.reason or "cancelled manually", grace_ms)
    _note(view, actor, "CancelRun", run, request, request.reason)


def terminate(view: View, request: run_pb2.TerminateRunRequest, actor: str) -> run_pb2.Run:
    run = _live(view, request.namespace, request.run)
    faults = validate.text("reason", request.reason, limits.REASON_CHARS)
    if faults:
        raise Refused.of(faults)
    terminate_run(view, run, request, actor)
    return answers.run(view, run)


def terminate_run(
    view: View, run: Run, request: run_pb2.TerminateRunRequest | run_pb2.ChangeRunsRequest,
    actor: str,
) -> None:  # fmt: skip
    message = request.reason or "terminated manually"
    view.change_run(run).error = run_pb2.RunError(kind="terminated", message=message)
    runs.stop(view, run, worker_pb2.Stop.KIND_LOST)
    runs.end(view, run, CANCELLED)
    _note(view, actor, "TerminateRun", run, request, request.reason)


def retry(view: View, request: run_pb2.RetryRunRequest, actor: str) -> run_pb2.Run:
    run = _live(view, request.namespace, request.run)
    if run.record.phase != DELAYED:
        word = run_pb2.RunState.Name(run.record.state).removeprefix("RUN_STATE_")
        raise Refused.because(
            Reason.ERROR_REASON_NOT_RETRYING,
            f"the run {request.run} is {word} and does not wait for a retry",
            run=request.run, state=word,
        )  # fmt: skip
    retry_run(view, run, request, actor)
    return answers.run(view, run)


def retry_run(
    view: View, run: Run, request: run_pb2.RetryRunRequest | run_pb2.ChangeRunsRequest, actor: str
) -> None:
    """The next attempt of one that waits for it begins now."""
    move(view, run, READY)
    _note(view, actor, "RetryRun", run, request)


def _note(
    view: View, actor: str, method: str, run: Run, request: Message, change: str = ""
) -> None:
    subject = f"run/{answers.id_of(run)}"
    audit_log.add(view, actor, method, run.job.definition.namespace, subject, request, change)


def find_dead(view: View, namespace: str, run_id: str) -> Run:
    try:
        run = find(view, namespace, run_id)
    except Refused as refused:
        if refused.rejection.reason != Reason.ERROR_REASON_RUN_NOT_FOUND:
            raise
        raise _no_letter(namespace, run_id, "unknown") from None
    if run.record.phase != FAILED:
        word = run_pb2.RunState.Name(run.record.state).removeprefix("RUN_STATE_")
        raise _no_letter(namespace, run_id, word)
    return run


def _no_letter(namespace: str, run_id: str, word: str) -> Refused:
    return Refused.because(
        Reason.ERROR_REASON_DEAD_LETTER_NOT_FOUND,
        f"the run '{run_id}' is no dead letter (it is {word}); list the dead letters",
        namespace=namespace or namespaces.DEFAULT, run=run_id, state=word,
    )  # fmt: skip


def edit_dead(
    view: View, request: dead_letter_pb2.EditDeadLetterRequest, actor: str
) -> run_pb2.Run:
    run = find_dead(view, request.namespace, request.run)
    faults = validate.payload("payload", request.payload)
    if faults:
        raise Refused.of(faults)
    record = replace(run.record, payload=request.payload)
    view.put(keys.ended(run.jid, run.occurrence), record)
    run = run_with(run.job, run.occurrence, record)
    audit_log.add(
        view, actor, "EditDeadLetter", run.job.definition.namespace, f"run/{request.run}", request
    )
    return answers.run(view, run)


def requeue(
    view: View, request: dead_letter_pb2.RequeueDeadLetterRequest, actor: str
) -> run_pb2.Run:
    run = find_dead(view, request.namespace, request.run)
    holder = other_holder(view, run)
    if holder is not None:
        raise unique_keys.taken(run.jid, run.job.definition.name, holder, run.record.unique_key)
    begin_again(view, run)
    audit_log.add(
        view,
        actor,
        "RequeueDeadLetter",
        run.job.definition.namespace,
        f"run/{request.run}",
        request,
    )
    return answers.run(view, run)


def other_holder(view: View, run: Run) -> int | None:
    """The other run that holds a dead letter's business key, if any."""
    name = run.record.unique_key
    holder = unique_keys.holder(view, run.jid, name) if name else None
    return None if holder == run.occurrence else holder


def begin_again(view: View, run: Run) -> None:
    """A run that failed begins again, and has its business key again."""
    record, job = view.change_run(run), run.job
    record.error = None
    waves.reopen(view, run)
    if record.unique_key:
        unique_keys.take(view, run, record.unique_key)
    # It does what the job says now, which asks for the workers that can.
    record.action_version = job.definition.action_version
    lane = view.need(keys.lane(record.lane), LaneRecord)
    spec = job.definition.template.spec
    record.lane = lanes.lane_for(view, job.namespace, spec, lane.queue, lane.priority)
    record.exempt |= RunRecord.EXEMPT_DEADLINE
    move(view, run, _where(view, run))


def _where(view: View, run: Run) -> int:
    """Where a run goes that somebody wants again: it waits for the resume and for room, unless it
    was forced at first, and for the quota. It takes the place of none."""
    job = run.job
    if not run.record.exempt & RunRecord.EXEMPT_OVERLAP:
        if job.state.state == next_time.PAUSED:
            return HALTED
        if not runs.is_room(job) or overlap.waits_for_room(view, job):
            return HELD
    usage = namespaces.usage_of(view, job.jid)
    if quota.is_taken(view, usage, job.definition.namespace):
        quota.wait(view, job, usage)
        return HELD
    return READY
