"""What was recorded of an attempt, and what a word hears that comes behind its lease."""

from __future__ import annotations

from collections.abc import Collection

from ...proto.v1 import common_pb2, run_pb2, worker_pb2
from ..core import limits, rejection
from ..model import keys
from ..model.entities import Run
from ..model.phases import SUCCEEDED
from ..model.record import CarriedRecord, RunRecord
from ..model.view import View

Attempt = run_pb2.Attempt
Reason = rejection.Reason
# As what a report is recorded beside its own end: a run that is to be cancelled ends with whatever
# comes.
RECORDED = {
    "failure": (Attempt.END_CANCELLED,),
    "given_back": (Attempt.END_RELEASED, Attempt.END_CANCELLED),
}


def clip(error: run_pb2.RunError) -> run_pb2.RunError:
    """An error within its limits; of a trace the middle goes, since both ends show most."""
    trace = error.trace
    if len(trace) > limits.TRACE_CHARS:
        half = limits.TRACE_CHARS // 2 - 8
        trace = f"{trace[:half]}\n…\n{trace[-half:]}"
    return run_pb2.RunError(
        kind=error.kind[: limits.KIND_CHARS],
        message=error.message[: limits.MESSAGE_CHARS],
        trace=trace,
    )


def last_of(view: View, place: tuple[int, int], run: Run | None) -> RunRecord | None:
    """What is known of a run: where it stands, or how it ended."""
    return run.record if run is not None else view.get(keys.ended(*place), RunRecord)


def judge(
    view: View, place: tuple[int, int], run: Run | None, result: worker_pb2.Result
) -> rejection.Rejection | None:
    """A result without a live lease: fine if it says what was recorded."""
    record = last_of(view, place, run)
    if record is None:
        return no_run(result.run)
    kind = result.WhichOneof("end")
    if _succeeded(record, result.token):
        is_same = kind == "success" and _is_same_success(view, place, record, result)
        return None if is_same else _already_reported(result, record, "SUCCEEDED")
    for past in record.attempts:
        if past.token == result.token and past.end == Attempt.END_FAILED:
            is_same = kind == "failure" and past.error == clip(result.failure.error)
            return None if is_same else _already_reported(result, record, "FAILED")
    if _has_end(record, result.token, RECORDED.get(str(kind), ())):
        return None
    return lost(result.run, result.token, record)


def _is_same_success(
    view: View, place: tuple[int, int], record: RunRecord, result: worker_pb2.Result
) -> bool:
    """Whether a report says what was recorded: result and warning. Of labels and the log what
    attempts have written lies together."""
    recorded = record.result or common_pb2.Payload()
    if recorded != result.success.result:
        return False
    notes = None
    if record.exempt & RunRecord.CARRIES:
        notes = view.get(keys.carried(*place), CarriedRecord)
    warning = notes.warning if notes is not None else ""
    return warning == result.notes.warning[: limits.WARNING_CHARS]


def _already_reported(
    result: worker_pb2.Result, record: RunRecord, recorded: str
) -> rejection.Rejection:
    state = run_pb2.RunState.Name(record.state).removeprefix("RUN_STATE_")
    return rejection.Rejection(
        Reason.ERROR_REASON_ALREADY_REPORTED,
        f"the attempt of the lease {result.token} of run {result.run} was recorded as {recorded}, "
        f"and this report says otherwise (the run is {state}); what was recorded stays, and there "
        "is nothing left to do",
        {"run": result.run, "token": str(result.token), "recorded": recorded, "state": state},
    )


def _succeeded(run: RunRecord, token: int) -> bool:
    return run.phase == SUCCEEDED and run.token == token


def _has_end(run: RunRecord, token: int, ends: Collection[int]) -> bool:
    return any(past.token == token and past.end in ends for past in run.attempts)


def lost(run_id: str, token: int, run: RunRecord | None) -> rejection.Rejection:
    current = run.token if run is not None else 0
    state = run_pb2.RunState.Name(run.state).removeprefix("RUN_STATE_") if run else "unknown"
    return rejection.Rejection(
        Reason.ERROR_REASON_LEASE_LOST,
        f"the lease {token} of run {run_id} has ended (the run is {state}, its last token "
        f"{current}); stop the work, nothing was recorded",
        {"run": run_id, "token": str(token), "current_token": str(current), "state": state},
    )


def ended(run_id: str, token: int, run: RunRecord | None) -> str:
    """What a worker hears of a lease that it lists and that has ended."""
    if run is None or not (_succeeded(run, token) or _has_end(run, token, (Attempt.END_FAILED,))):
        return lost(run_id, token, run).message
    state = run_pb2.RunState.Name(run.state).removeprefix("RUN_STATE_")
    return (
        f"the lease {token} of run {run_id} has ended as its worker reported (the run is {state}, "
        f"its last token {run.token}); that was recorded, and there is nothing left to do"
    )


def no_run(run_id: str) -> rejection.Rejection:
    return rejection.Rejection(
        Reason.ERROR_REASON_RUN_NOT_FOUND,
        f"there is no run '{run_id}', or its history was purged; send the id of the lease",
        {"run": run_id},
    )
