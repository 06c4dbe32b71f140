"""What workers say about single leases.

A word counts only with the token of the run's present lease. A report that was recorded already is
acknowledged again, since the worker may not have heard; one that says otherwise is answered
ALREADY_REPORTED, any other word with an old token LEASE_LOST, and neither changes anything.
"""

from __future__ import annotations

from collections.abc import Generator

from ...proto.v1 import common_pb2, job_pb2, run_pb2, worker_pb2
from ..core import instants, limits, rejection
from ..core.instants import ms_or
from ..model import carried, keys, policies, validate
from ..model.entities import Run
from ..model.phases import CANCELLED, DELAYED, FAILED, LEASED, READY, SUCCEEDED
from ..model.record import (
    AttemptRecord,
    ProgressRecord,
    RunRecord,
)
from ..model.request import Note, Report
from ..model.view import View
from . import admission, recorded, runs, warned
from .move import move
from .timeouts import arm

Attempt = run_pb2.Attempt
Reason = rejection.Reason
Ack = worker_pb2.ResultAck


def report(view: View, request: Report, actor: str) -> Generator[None, None, list[Ack]]:
    """Take how attempts ended; each result is judged alone."""
    acks: list[Ack] = []
    for result in request.results:
        if acks and view.is_full:
            break
        refusal = take(view, result)
        ack = Ack()
        ack.token = result.token
        if refusal is not None:
            ack.reason, ack.message = refusal.word, refusal.message
        acks.append(ack)
        if view.ended is not None:
            yield
    return acks


def take(view: View, result: worker_pb2.Result) -> rejection.Rejection | None:
    place = keys.run_key(result.run)
    if place is None:
        return recorded.no_run(result.run)
    run = view.runs.get(place) or view.find_run(place)
    if run is None or run.record.token != result.token or run.record.phase != LEASED:
        return recorded.judge(view, place, run, result)
    kind = result.WhichOneof("end")
    has_notes = result.HasField("notes")
    if has_notes and (wrong := _wrong_notes(view, run, result)) is not None:
        return wrong
    if kind == "success":
        return _succeed(view, run, result, has_notes=has_notes)
    wrong = _wrong_end(kind, result)
    if wrong is None:
        if has_notes:
            carried.put(view, run, None, result.notes.labels)
        _note_log(view, view.change_run(run), result.log_tail)
        if kind == "failure":
            _fail(view, run, result.failure)
        else:
            _give_back(view, run, result.given_back)
    return wrong


def _wrong_payload(payload: common_pb2.Payload) -> rejection.Rejection | None:
    if len(payload.data) > limits.PAYLOAD_BYTES:
        return _too_large(len(payload.data))
    if len(payload.content_type) > limits.CONTENT_TYPE_CHARS:
        return _over("content_type", limits.CONTENT_TYPE_CHARS, len(payload.content_type))
    return None


def _wrong_end(kind: str | None, result: worker_pb2.Result) -> rejection.Rejection | None:
    """What is wrong with an end that is no success."""
    if kind is None:
        message = f"the result of run {result.run} says no end; set success, failure or given_back"
        return rejection.Rejection(Reason.ERROR_REASON_FIELD_INVALID, message, {"field": "end"})
    if kind == "failure":
        faults = validate.span("failure.retry_after", result.failure, "retry_after", 0)
    else:
        faults = validate.span("given_back.delay", result.given_back, "delay", 0)
        size = len(result.given_back.checkpoint)
        if size > limits.CHECKPOINT_BYTES:
            return _over("checkpoint", limits.CHECKPOINT_BYTES, size)
    return rejection.Refused.of(faults).rejection if faults else None


def _succeed(
    view: View, run: Run, result: worker_pb2.Result, *, has_notes: bool
) -> rejection.Rejection | None:
    success = result.success
    has_result = success.HasField("result")
    if has_result and (wrong := _wrong_payload(success.result)) is not None:
        return wrong
    if has_notes:
        warning = result.notes.warning[: limits.WARNING_CHARS]
        carried.put(view, run, None, result.notes.labels, warning)
        if warning:
            warned.count(view, run)
    record = view.end_run(run)
    if has_result:
        record.result = success.result
    if result.log_tail:
        _note_log(view, record, result.log_tail)
    # What an earlier attempt met stays with that attempt, and a cancel came too late.
    record.error = None
    runs.end_as(view, run, record, SUCCEEDED)
    return None


def _wrong_notes(view: View, run: Run, result: worker_pb2.Result) -> rejection.Rejection | None:
    """The run is to have no more labels in all than a trigger may give it."""
    faults = carried.faults(None, carried.labels_with(view, run, result.notes.labels))
    if not faults:
        return None
    fault = faults[0]
    is_limit = fault.reason == Reason.ERROR_REASON_LIMIT_EXCEEDED
    reason = fault.reason if is_limit else Reason.ERROR_REASON_FIELD_INVALID
    return rejection.Rejection(reason, f"{fault.field}: {fault.message}", {"field": fault.field})


def _note_log(view: View, record: RunRecord, log_tail: bytes) -> None:
    if log_tail:
        record.log_tail = log_tail[-limits.LOG_TAIL_BYTES :]
        view.weigh(len(record.log_tail))


def _fail(view: View, run: Run, failure: worker_pb2.Failure) -> None:
    error = recorded.clip(failure.error)
    wait_ms = instants.to_ms(failure.retry_after) if failure.HasField("retry_after") else None
    attempt_failed(view, run, Attempt.END_FAILED, error, fatal=failure.fatal, wait_ms=wait_ms)


def attempt_failed(
    view: View,
    run: Run,
    how: Attempt.End.ValueType,
    error: run_pb2.RunError,
    *,
    fatal: bool = False,
    wait_ms: int | None = None,
) -> None:
    """An attempt ended without success: try again as the policy says, or end the run."""
    if run.record.cancel_at_ms:
        log_attempt(view, run, Attempt.END_CANCELLED if how == Attempt.END_FAILED else how, error)
        runs.end(view, run, CANCELLED)
        return
    view.change_run(run).error = error
    at_ms = 0 if fatal else _retry_at(view, run, error.kind, wait_ms)
    if how == Attempt.END_LAPSED and at_ms:
        # It was the worker that went away, not the work that failed.
        at_ms = view.now_ms
    log_attempt(view, run, how, error)
    if not at_ms:
        runs.end(view, run, FAILED)
        return
    if at_ms > view.now_ms:
        _end_lease(view, run, DELAYED, at_ms)
    else:
        _end_lease(view, run, READY)


def _retry_at(view: View, run: Run, kind: str, wait_ms: int | None) -> int:
    """When the next attempt may begin; 0 when there is none."""
    record = run.record
    template = run.job.definition.template
    spec, retry = template.spec, template.spec.retry
    used = record.attempt - record.attempts_forgiven
    if spec.delivery == job_pb2.DELIVERY_AT_MOST_ONCE or kind in retry.fatal_kinds:
        return 0
    if used >= template.max_attempts:
        return 0
    if wait_ms is None:
        seed = run.jid.to_bytes(8, "big") + run.occurrence.to_bytes(8, "big")
        wait_ms = policies.back_off_ms(retry, used, seed)
    at_ms = view.now_ms + wait_ms
    total_ms = ms_or(retry, "total", 0)
    if total_ms and at_ms > record.ready_at_ms + total_ms:
        return 0
    return at_ms


def log_attempt(
    view: View, run: Run, how: Attempt.End.ValueType, error: run_pb2.RunError | None
) -> None:
    record = view.change_run(run)
    if len(record.attempts) == limits.ATTEMPTS_KEPT:
        record.attempts = record.attempts[:1] + record.attempts[2:]
        record.attempts_dropped += 1
    attempt = AttemptRecord(
        number=record.attempt, worker=record.worker, token=record.token,
        started_at_ms=record.leased_at_ms, ended_at_ms=view.now_ms, end=how, error=error,
    )  # fmt: skip
    record.attempts = (*record.attempts, attempt)
    if error is not None:
        # It may stand in the run itself as well.
        view.weigh(2 * error.ByteSize())


def _end_lease(view: View, run: Run, to: int, at_ms: int = 0) -> None:
    """Another attempt follows; see `move` for the instant. Others have its slots first."""
    move(view, run, to, at_ms=at_ms)
    admission.has_left(view, run)


def _give_back(view: View, run: Run, back: worker_pb2.GivenBack) -> None:
    if back.checkpoint:
        view.change_run(run).checkpoint = back.checkpoint
        view.weigh(len(back.checkpoint))
    put_back(view, run, ms_or(back, "delay", 0))


def put_back(view: View, run: Run, delay_ms: int = 0) -> None:
    """The attempt does not count, and without a delay the run keeps the rank it had."""
    if run.record.cancel_at_ms:
        log_attempt(view, run, Attempt.END_CANCELLED, None)
        runs.end(view, run, CANCELLED)
        return
    log_attempt(view, run, Attempt.END_RELEASED, None)
    record = view.change_run(run)
    if run.job.definition.template.spec.delivery == job_pb2.DELIVERY_AT_MOST_ONCE:
        worker = keys.worker_id(record.worker)
        message = f"the worker {worker} gave it back, and it is delivered at most once"
        record.error = run_pb2.RunError(kind="given_back", message=message)
        runs.end(view, run, FAILED)
        return
    record.attempt -= 1
    if delay_ms > 0:
        _end_lease(view, run, DELAYED, view.now_ms + delay_ms)
    else:
        _end_lease(view, run, READY, record.ready_at_ms)


def note(view: View, request: Note, actor: str) -> list[Ack]:
    """Take how far attempts are."""
    acks: list[Ack] = []
    for report in request.reports:
        if acks and view.is_full:
            break
        acks.append(_note_one(view, report))
    return acks


def _note_one(view: View, report: worker_pb2.ProgressReport) -> Ack:
    place = keys.run_key(report.run)
    run = view.find_run(place) if place else None
    if run is None or run.record.token != report.token or run.record.phase != LEASED:
        last = recorded.last_of(view, place, run) if place else None
        refusal = recorded.lost(report.run, report.token, last)
        return Ack(token=report.token, reason=refusal.word, message=refusal.message)
    if len(report.checkpoint) > limits.CHECKPOINT_BYTES:
        refusal = _over("checkpoint", limits.CHECKPOINT_BYTES, len(report.checkpoint))
        return Ack(token=report.token, reason=refusal.word, message=refusal.message)
    record = view.change_run(run)
    before = len(record.checkpoint) + len(record.log_tail)
    if report.HasField("progress"):
        record.progress = ProgressRecord(
            done=report.progress.done,
            total=report.progress.total,
            message=report.progress.message[: limits.PROGRESS_CHARS],
            at_ms=view.now_ms,
        )
    if report.checkpoint:
        record.checkpoint = report.checkpoint
    if report.log_tail:
        record.log_tail = report.log_tail[-limits.LOG_TAIL_BYTES :]
    # The record is weighed as it was: what it had is replaced.
    view.weigh(len(record.checkpoint) + len(record.log_tail) - before)
    if record.heard_at_ms:
        # The timer is not moved for each word: when it fires, it looks when the last one came.
        record.heard_at_ms = view.now_ms
    return Ack(token=report.token)


def extend(view: View, request: worker_pb2.ExtendRequest, actor: str) -> worker_pb2.ExtendResponse:
    """More time for an attempt."""
    place = keys.run_key(request.run)
    if place is None:
        raise rejection.Refused(recorded.no_run(request.run))
    run = view.find_run(place)
    if run is None or run.record.token != request.token or run.record.phase != LEASED:
        record = recorded.last_of(view, place, run)
        if record is None:
            raise rejection.Refused(recorded.no_run(request.run))
        raise rejection.Refused(recorded.lost(request.run, request.token, record))
    by_ms = ms_or(request, "by", 0)
    if not limits.SECOND_MS <= by_ms <= limits.DAY_MS:
        raise rejection.Refused.because(
            Reason.ERROR_REASON_FIELD_INVALID,
            f"by is {by_ms} ms; it must be from 1 s to 24 h",
            field="by",
        )
    answer = worker_pb2.ExtendResponse()
    if run.record.deadline_at_ms:
        # Asking for more time never leaves less; a lease without a deadline needs none.
        record = view.change_run(run)
        record.deadline_at_ms = max(record.deadline_at_ms, view.now_ms + by_ms)
        arm(view, run)
        instants.set_ms(answer.deadline, record.deadline_at_ms)
    return answer


def _too_large(size: int) -> rejection.Rejection:
    return rejection.Rejection(
        Reason.ERROR_REASON_PAYLOAD_TOO_LARGE,
        f"the result has {size} bytes; the most is {limits.PAYLOAD_BYTES}. Store it elsewhere "
        "and return its address",
        {"maximum": str(limits.PAYLOAD_BYTES), "actual": str(size)},
    )


def _over(name: str, maximum: int, actual: int) -> rejection.Rejection:
    return rejection.Rejection(
        Reason.ERROR_REASON_LIMIT_EXCEEDED,
        f"the {name} has a length of {actual}; the most is {maximum}",
        {"limit": name, "maximum": str(maximum), "actual": str(actual)},
    )
