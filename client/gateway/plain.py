"""The short form of a job that people type first, and its answers.

    POST /api/v1/jobs
    {"name": "report", "cron": "0 9 * * *", "callback_url": "https://example.com/hook"}

`POST /v1/jobs` takes it too: the fields say which form is meant, and both at once are refused.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from google.protobuf.message import Message

from ...proto.contract import method_of
from ...proto.v1 import common_pb2, job_pb2, run_pb2
from ..sdk.errors import FieldFault, RaftschedError
from ..sdk.lengths import LENGTHS, parse_length
from ..sdk.links import Answer
from .fields import Reader, Wrong, enum, known_text, names, shown, text
from .manners import path_of
from .problems import GatewayRefusal, field_faults, of_error
from .routes import Binding, Routes, bindings_of_contracts

Ask = Callable[[Message], Awaitable[Answer[Any]]]
PATH = "/api/v1/jobs"
BINDINGS = (
    Binding(method_of(job_pb2.CreateJobRequest), "POST", PATH, "job", plain=True),
    Binding(method_of(job_pb2.GetJobStatusRequest), "GET", f"{PATH}/{{job}}/status", "",
            plain=True),
    Binding(method_of(job_pb2.ListJobHistoryRequest), "GET", f"{PATH}/{{job}}/history", "",
            plain=True),
    Binding(method_of(job_pb2.DeleteJobRequest), "DELETE", f"{PATH}/{{job}}", "", plain=True),
)  # fmt: skip
JOB = job_pb2.Job.DESCRIPTOR
RETRIES_MAX = 999
SHARED = ("name", "namespace")
# What waits, works or will be repeated, by the strongest first.
LIVE = (
    run_pb2.RUN_STATE_RUNNING,
    run_pb2.RUN_STATE_RETRYING,
    run_pb2.RUN_STATE_PENDING,
)
HISTORY_LOOKED = 20


def with_contracts() -> Routes:
    """All paths that a gateway serves."""
    return Routes((*bindings_of_contracts(), *BINDINGS))


def is_meant(binding: Binding, body: object) -> bool:
    """Whether a job is made, and said in this form."""
    if binding.call.verb != "CreateJob":
        return False
    return binding.plain or (isinstance(body, Mapping) and any(key in FIELDS for key in body))


def create(body: object, query: Mapping[str, list[str]], key: str) -> job_pb2.CreateJobRequest:
    """The request that is meant; GatewayRefusal with every wrong field. `key` makes the name."""
    reader, request = Reader(), job_pb2.CreateJobRequest()
    job = request.job
    if not isinstance(body, Mapping):
        example = '{"name": "report", "cron": "0 9 * * *", "callback_url": "https://…"}'
        raise field_faults([FieldFault("", "FIELD_INVALID", f"send a job, such as {example}")])
    for name, value in body.items():
        if name not in FIELDS and name not in SHARED:
            reader.note(name, _unknown(name))
        elif value is not None:
            try:
                FIELDS.get(name, _shared(name))(job, value)
            except (Wrong, ValueError) as wrong:
                reader.note(name, str(wrong))
    for name, texts in query.items():
        if name == "namespace" and job.namespace not in ("", texts[0]):
            reader.note(name, "it stands in the body and in the query; keep one of them")
        else:
            place = {"namespace": "job.namespace"}.get(name, name)
            reader.put_text(request, place, texts, name)
    if "callback_url" in body and "target" in body:
        reader.note("target", "callback_url is another word for it; keep one of them")
    if not job.spec.HasField("action"):
        reader.note("callback_url", "it says what to call; send an address", "FIELD_REQUIRED")
    if reader.faults:
        raise field_faults(reader.faults)
    job.name = job.name or made_name(key)
    return request


def made_name(key: str) -> str:
    """A name for a job that has none: the same one for the same Idempotency-Key."""
    return f"job-{hashlib.sha256(key.encode()).hexdigest()[:16] if key else uuid.uuid4().hex[:16]}"


def _unknown(name: str) -> str:
    if name in names(JOB):
        return "it belongs to the other form, of POST /v1/jobs; write all of the job in one form"
    return f"there is no field {shown(name)}; there are {', '.join((*SHARED, *FIELDS))}"


def _shared(name: str) -> Callable[[job_pb2.Job, object], None]:
    return lambda job, value: setattr(job, name, text(value))


def _cron(job: job_pb2.Job, value: object) -> None:
    job.spec.schedules.add().cron.expression = text(value)


def _every(job: job_pb2.Job, value: object) -> None:
    job.spec.schedules.add().interval.every.FromMilliseconds(length(value))


def _run_at(job: job_pb2.Job, value: object) -> None:
    known_text(job.spec.schedules.add().once.time, value)


def _url(job: job_pb2.Job, value: object) -> None:
    job.spec.action.http.url = text(value)


def _zone(job: job_pb2.Job, value: object) -> None:
    job.spec.timing.zone = text(value)


def _jitter(job: job_pb2.Job, value: object) -> None:
    job.spec.timing.jitter.FromMilliseconds(length(value))


def _retries(job: job_pb2.Job, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= RETRIES_MAX:
        raise Wrong(f"{shown(value)} is no number of retries from 0 to {RETRIES_MAX}")
    job.spec.retry.max_attempts = value + 1


def _priority(job: job_pb2.Job, value: object) -> None:
    kind = common_pb2.Priority.DESCRIPTOR
    word = f"PRIORITY_{text(value).upper().removeprefix('PRIORITY_')}"
    if word not in kind.values_by_name:
        raise Wrong(f"{shown(value)} is none of HIGH, MEDIUM, LOW")
    job.spec.priority = enum(kind, word)  # type: ignore[assignment]


def _payload(job: job_pb2.Job, value: object) -> None:
    job.spec.payload.data = msgspec.json.encode(value)
    job.spec.payload.content_type = "application/json"


# What each field says of the job, in the order of the manual.
FIELDS: Mapping[str, Callable[[job_pb2.Job, object], None]] = {
    "cron": _cron, "run_at": _run_at, "every": _every, "zone": _zone, "callback_url": _url,
    "target": _url, "priority": _priority, "payload": _payload, "retries": _retries,
    "jitter": _jitter,
}  # fmt: skip
# Where the cluster finds a fault, and the field that said it.
PLACES = (
    (r"spec\.action\.http\.url", "callback_url"), (r"spec\.action", "callback_url"),
    (r"spec\.timing\.zone", "zone"), (r"spec\.timing\.jitter", "jitter"),
    (r"spec\.retry\.max_attempts", "retries"), (r"spec\.priority", "priority"),
    (r"spec\.payload", "payload"), (r"spec\.schedules\[\d+\]\.cron(?:\.expression)?", "cron"),
    (r"spec\.schedules\[\d+\]\.interval(?:\.every)?", "every"),
    (r"spec\.schedules\[\d+\]\.once(?:\.time)?", "run_at"),
)  # fmt: skip


def length(value: object) -> int:
    """Milliseconds of seconds, or of a text such as "5m"."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return round(parse_length(f"{value:f}s")) if value >= 0 else _no_length(value)
    return parse_length(text(value)) if isinstance(value, str) else _no_length(value)


def _no_length(value: object) -> int:
    raise Wrong(f"{shown(value)} is no length of time; write seconds, or {LENGTHS}")


def in_plain_words(refused: GatewayRefusal) -> GatewayRefusal:
    """A refusal of the cluster, with the fields of this form."""
    refused.faults = tuple(
        FieldFault(_place(one.field), one.reason, _place(one.message)) for one in refused.faults
    )
    refused.message = _place(refused.message)
    refused.values = {key: _place(value) for key, value in refused.values.items()}
    return refused


def _place(words: str) -> str:
    for pattern, name in PLACES:
        words = re.sub(pattern, name, words)
    return words


async def answer(request: Message, ask: Ask) -> dict[str, Any]:
    """The call, and its answer in this form."""
    try:
        return await _answer(request, ask)
    except RaftschedError as error:
        raise in_plain_words(of_error(error)) from error


def location(request: Message) -> dict[str, str]:
    """Where what was made stands."""
    if not isinstance(request, job_pb2.CreateJobRequest) or request.validate_only:
        return {}
    return {"location": path_of("/v1/jobs", request.job.name, request.job.namespace)}


async def _answer(request: Message, ask: Ask) -> dict[str, Any]:
    match request:
        case job_pb2.CreateJobRequest():
            return _created((await ask(request)).message)
        case job_pb2.GetJobStatusRequest():
            return await _status(request, ask)
        case job_pb2.ListJobHistoryRequest():
            return _history(request.job, (await ask(request)).message)
        case job_pb2.DeleteJobRequest():
            await ask(request)
            return {"deleted": not request.validate_only}
    raise TypeError(f"{type(request).__name__} has no plain form")


def _created(job: job_pb2.Job) -> dict[str, Any]:
    return {"job_id": job.name, "next_fire_time": instant(job.status, "next_scheduled_time")}


async def _status(request: job_pb2.GetJobStatusRequest, ask: Ask) -> dict[str, Any]:
    status: job_pb2.JobStatus = (await ask(request)).message
    asked = job_pb2.ListJobHistoryRequest(
        namespace=request.namespace, job=request.job, page_size=HISTORY_LOOKED, read=request.read
    )
    runs: list[run_pb2.Run] = list((await ask(asked)).message.runs)
    live = [run for state in LIVE for run in runs if run.state == state]
    last = next((run for run in runs if run.id == status.last_run), None)
    shown_run = live[0] if live else last
    return {
        "job_id": request.job,
        "status": _word(status, live),
        "last_run": instant(last, "end_time") if last is not None else None,
        "next_run": instant(status, "next_scheduled_time"),
        "retry_count": max(0, shown_run.attempt - 1) if shown_run is not None else 0,
        "warning": status.last_warning or None,
    }


def _word(status: job_pb2.JobStatus, live: list[run_pb2.Run]) -> str:
    """What a run under way does, else what keeps the job from firing, else how the last ended."""
    states = job_pb2.JobStatus
    if live:
        return _state(live[0].state)
    if status.state in (states.STATE_PAUSED, states.STATE_BROKEN, states.STATE_DELETING):
        return states.State.Name(status.state).removeprefix("STATE_")
    return _state(status.last_state) if status.last_run else "PENDING"


def _history(job: str, page: job_pb2.ListJobHistoryResponse) -> dict[str, Any]:
    return {
        "job_id": job,
        "runs": [_run(run) for run in page.runs],
        "next_page_token": page.next_page_token,
    }


def _run(run: run_pb2.Run) -> dict[str, Any]:
    return {
        "run_id": run.id,
        "status": _state(run.state),
        "scheduled_time": instant(run, "scheduled_time"),
        "start_time": instant(run, "start_time"),
        "end_time": instant(run, "end_time"),
        "retry_count": max(0, run.attempt - 1),
        "error": run.error.message or None,
        "warning": run.warning or None,
    }


def _state(state: run_pb2.RunState.ValueType) -> str:
    return run_pb2.RunState.Name(state).removeprefix("RUN_STATE_")


def instant(message: Any, name: str) -> str | None:
    return getattr(message, name).ToJsonString() if message.HasField(name) else None
