"""What a person does to runs and dead letters."""

from __future__ import annotations

from ...proto.v1 import dead_letter_pb2, run_pb2, worker_pb2
from ..core import limits
from ..core.instants import ms_or
from ..core.rejection import Reason, Refused
from ..flows import waves
from ..model import answers, keys, validate
from ..model.phases import CANCELLED, DELAYED, FAILED, READY
from ..model.record import JobRecord, LaneRecord, RunRecord, StateRecord
from ..model.view import View
from ..runs import lanes, runs
from ..runs.move import move
from ..tenants import audit_log, namespaces

FoundRun = tuple[int, int, RunRecord, JobRecord]


def find(view: View, namespace: str, run_id: str) -> FoundRun:
    """A run, under way or ended."""
    number = namespaces.need(view, namespace).number
    place = keys.run_key(run_id)
    if place is not None and keys.namespace_of(place[0]) == number:
        jid, occurrence = place
        run = view.get(keys.run(jid, occurrence), RunRecord)
        run = run or view.get(keys.ended(jid, occurrence), RunRecord)
        job = view.get(keys.job(jid), JobRecord)
        if run is not None and job is not None and keys.run_id(job.name, jid, occurrence) == run_id:
            return jid, occurrence, run, job
    raise Refused.because(
        Reason.ERROR_REASON_RUN_NOT_FOUND,
        f"there is no run '{run_id}' in the namespace '{namespace or namespaces.DEFAULT}', or its "
        "history was purged",
        namespace=namespace or namespaces.DEFAULT, run=run_id,
    )  # fmt: skip


def _live(view: View, namespace: str, run_id: str) -> FoundRun:
    found = find(view, namespace, run_id)
    state = found[2].state
    if found[2].ended_at_ms:
        word = run_pb2.RunState.Name(state).removeprefix("RUN_STATE_")
        raise Refused.because(
            Reason.ERROR_REASON_RUN_ENDED,
            f"the run {run_id} has ended ({word}), so it cannot be changed",
            run=run_id, state=word,
        )  # fmt: skip
    return found


def cancel(view: View, request: run_pb2.CancelRunRequest, actor: str) -> run_pb2.Run:
    jid, occurrence, run, job = _live(view, request.namespace, request.run)
    faults = validate.text("reason", request.reason, limits.REASON_CHARS)
    faults += validate.span("grace", request, "grace", 0, limits.DAY_MS)
    if faults:
        raise Refused.of(faults)
    grace_ms = ms_or(request, "grace", limits.CANCEL_GRACE_MS)
    runs.cancel(view, jid, occurrence, run, request.reason or "cancelled manually", grace_ms)
    audit_log.add(
        view, actor, "CancelRun", job.namespace, f"run/{request.run}", request, request.reason
    )
    return answers.run(view, jid, occurrence, run, job)


def terminate(view: View, request: run_pb2.TerminateRunRequest, actor: str) -> run_pb2.Run:
    jid, occurrence, run, job = _live(view, request.namespace, request.run)
    faults = validate.text("reason", request.reason, limits.REASON_CHARS)
    if faults:
        raise Refused.of(faults)
    message = request.reason or "terminated manually"
    run.error = run_pb2.RunError(kind="terminated", message=message)
    runs.stop(view, jid, occurrence, run, worker_pb2.Stop.KIND_LOST)
    runs.end(view, jid, occurrence, run, CANCELLED)
    audit_log.add(
        view, actor, "TerminateRun", job.namespace, f"run/{request.run}", request, request.reason
    )
    return answers.run(view, jid, occurrence, run, job)


def retry(view: View, request: run_pb2.RetryRunRequest, actor: str) -> run_pb2.Run:
    jid, occurrence, run, job = _live(view, request.namespace, request.run)
    if run.phase != DELAYED:
        word = run_pb2.RunState.Name(run.state).removeprefix("RUN_STATE_")
        raise Refused.because(
            Reason.ERROR_REASON_NOT_RETRYING,
            f"the run {request.run} is {word} and does not wait for a retry",
            run=request.run, state=word,
        )  # fmt: skip
    move(view, jid, occurrence, run, READY, view.need(keys.state(jid), StateRecord), job.template)
    audit_log.add(view, actor, "RetryRun", job.namespace, f"run/{request.run}", request)
    return answers.run(view, jid, occurrence, run, job)


def find_dead(view: View, namespace: str, run_id: str) -> FoundRun:
    try:
        found = find(view, namespace, run_id)
    except Refused as refused:
        if refused.rejection.reason != Reason.ERROR_REASON_RUN_NOT_FOUND:
            raise
        raise _no_letter(namespace, run_id, "unknown") from None
    if found[2].phase != FAILED:
        word = run_pb2.RunState.Name(found[2].state).removeprefix("RUN_STATE_")
        raise _no_letter(namespace, run_id, word)
    return found


def _no_letter(namespace: str, run_id: str, word: str) -> Refused:
    return Refused.because(
        Reason.ERROR_REASON_DEAD_LETTER_NOT_FOUND,
        f"the run '{run_id}' is no dead letter (it is {word}); list the dead letters",
        namespace=namespace or namespaces.DEFAULT, run=run_id, state=word,
    )  # fmt: skip


def edit_dead(
    view: View, request: dead_letter_pb2.EditDeadLetterRequest, actor: str
) -> run_pb2.Run:
    jid, occurrence, run, job = find_dead(view, request.namespace, request.run)
    faults = validate.payload("payload", request.payload)
    if faults:
        raise Refused.of(faults)
    run.payload = request.payload
    view.put(keys.ended(jid, occurrence), run)
    audit_log.add(view, actor, "EditDeadLetter", job.namespace, f"run/{request.run}", request)
    return answers.run(view, jid, occurrence, run, job)


def requeue(
    view: View, request: dead_letter_pb2.RequeueDeadLetterRequest, actor: str
) -> run_pb2.Run:
    jid, occurrence, run, job = find_dead(view, request.namespace, request.run)
    begin_again(view, jid, occurrence, run, job)
    audit_log.add(view, actor, "RequeueDeadLetter", job.namespace, f"run/{request.run}", request)
    return answers.run(view, jid, occurrence, run, job)


def begin_again(view: View, jid: int, occurrence: int, run: RunRecord, job: JobRecord) -> None:
    """A run that failed begins again.

    The overlap policy is not asked: somebody wants just this run.
    """
    state_key = keys.state(jid)
    state = view.need(state_key, StateRecord)
    run.error = None
    waves.reopen(view, jid, occurrence, run)
    run.unique_key = ""
    # It does what the job says now, which asks for the workers that can.
    run.action_version = job.action_version
    lane = view.need(keys.lane(run.lane), LaneRecord)
    namespace = keys.namespace_of(jid)
    run.lane = lanes.lane_for(view, namespace, job.template.spec, lane.queue, lane.priority)
    run.exempt |= RunRecord.EXEMPT_DEADLINE
    move(view, jid, occurrence, run, READY, state, job.template)
    view.put(state_key, state)
