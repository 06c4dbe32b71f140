"""How one attempt ended, in a call of its own: for workers without a stream."""

from __future__ import annotations

from ...proto.v1 import run_pb2, worker_pb2
from ..core import instants
from ..core.rejection import Refused
from ..model import keys
from ..model.record import RunRecord
from ..model.view import View
from . import reports


def complete(
    view: View, request: worker_pb2.CompleteRequest, actor: str
) -> worker_pb2.CompleteResponse:
    success = worker_pb2.Success()
    if request.HasField("result"):
        success.result.CopyFrom(request.result)
    _take(view, worker_pb2.Result(
        run=request.run, token=request.token, success=success, log_tail=request.log_tail,
        notes=request.notes if request.HasField("notes") else None,
    ))  # fmt: skip
    return worker_pb2.CompleteResponse()


def fail(view: View, request: worker_pb2.FailRequest, actor: str) -> worker_pb2.FailResponse:
    _take(view, worker_pb2.Result(
        run=request.run, token=request.token, failure=request.failure, log_tail=request.log_tail,
        notes=request.notes if request.HasField("notes") else None,
    ))  # fmt: skip
    jid, occurrence = keys.run_key(request.run) or (0, 0)
    run = view.get(keys.run(jid, occurrence), RunRecord)
    if run is None:
        run = view.need(keys.ended(jid, occurrence), RunRecord)
    answer = worker_pb2.FailResponse(state=run.state)
    if run.state == run_pb2.RUN_STATE_RETRYING:
        instants.set_ms(answer.retry_time, run.retry_at_ms)
    elif run.state == run_pb2.RUN_STATE_PENDING:
        # Its next attempt may begin at once.
        answer.state = run_pb2.RUN_STATE_RETRYING
        instants.set_ms(answer.retry_time, view.now_ms)
    return answer


def release(
    view: View, request: worker_pb2.ReleaseRequest, actor: str
) -> worker_pb2.ReleaseResponse:
    _take(view, worker_pb2.Result(
        run=request.run, token=request.token, given_back=request.given_back
    ))  # fmt: skip
    return worker_pb2.ReleaseResponse()


def _take(view: View, result: worker_pb2.Result) -> None:
    refusal = reports.take(view, result)
    if refusal is not None:
        raise Refused(refusal)
