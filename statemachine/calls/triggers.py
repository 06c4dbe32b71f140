"""Many triggers in one call, each taken or refused alone, in as many changes as it takes.

As an import, a call goes on where it ended, also when it is repeated with its request id: the
answer of each part is remembered, and on trial each part sees what those before it would have
written. Each change notes how many runs of a job it made, so that an audit can count them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from google.protobuf.message import Message

from ...proto.v1 import job_pb2
from ..core import limits
from ..core.rejection import Fault, Reason, Refused
from ..firing import effects
from ..model import answers, keys, validate
from ..model.entities import Job
from ..model.request import Triggered, TriggerSome
from ..model.view import View
from ..tenants import audit_log, idempotency, namespaces
from . import imports, jobs, occurrences

Asked = job_pb2.TriggerJobsRequest
Answer = job_pb2.TriggerJobsResponse
Result = job_pb2.TriggerResult


def trigger_jobs(view: View, request: Asked, actor: str) -> Answer:
    """All of them as one change, however long that takes."""
    _check(request)
    return _take(view, request, 0, actor, all_of_it=True)


def trigger_some(view: View, body: TriggerSome, actor: str) -> Triggered:
    """As many of them as there is room for, at least one."""
    request, first = body.request, body.first
    if not first:
        _check(request)
    request_id = imports.id_of(request.request_id, first) if request.request_id else ""
    if request_id:
        before = idempotency.find(view, request_id, request, body.digest)
        if before is not None:
            assert isinstance(before, Answer), before
            return Triggered(before, first + len(before.results))
    trial = None
    if request.validate_only:
        view, trial = imports.on_trial(view, body.trial)
    answer = _take(view, request, first, actor, all_of_it=False)
    if trial is not None:
        view.seal()
        trial.absorb(view)
    if request_id:
        idempotency.add(view, request_id, request, answer, body.digest)
    return Triggered(answer, first + len(answer.results), trial)


def some_of(request: Asked) -> TriggerSome:
    """The beginning of them."""
    return TriggerSome(request, idempotency.fingerprint(request) if request.request_id else b"")


def rest_of(body: TriggerSome, done: Triggered) -> TriggerSome:
    """What is left of them."""
    return replace(body, first=done.next, trial=done.trial)


def joined(parts: list[Answer]) -> Answer:
    """What all parts answered, in order."""
    answer = parts[0]
    for part in parts[1:]:
        answer.MergeFrom(part)
    return answer


def _check(request: Asked) -> None:
    faults = validate.count("triggers", len(request.triggers), limits.TRIGGERS)
    size = request.ByteSize()
    if size > limits.IMPORT_BYTES:
        message = (
            f"the request has {size} bytes; the most is {limits.IMPORT_BYTES}. Send it in parts"
        )
        faults.append(Fault("triggers", Reason.ERROR_REASON_LIMIT_EXCEEDED, message))
    if faults:
        raise Refused.of(faults)


def _take(view: View, request: Asked, first: int, actor: str, *, all_of_it: bool) -> Answer:
    answer = Answer()
    results, found = answer.results, dict[str, Job]()
    made = Counter[str]()
    for place in range(first, len(request.triggers)):
        if not all_of_it and results and view.is_full:
            break
        one = request.triggers[place]
        made[one.job] += _take_one(view, request.namespace, one, found, results.add())
    for name, count in made.items():
        if count:
            _note(view, actor, found[name], request, count)
    return answer


def _take_one(
    view: View, namespace: str, one: job_pb2.Trigger, found: dict[str, Job], result: Result
) -> bool:
    """Whether there is a new run."""
    size = view.size()
    try:
        job = found.get(one.job)
        if job is None:
            job = found[one.job] = jobs.find(view, namespace, one.job)
        run, taken = occurrences.begin(view, one, job)
    except Refused as refused:
        if view.size() != size:
            raise RuntimeError(f"a trigger of {one.job} was refused behind a write") from refused
        no = refused.rejection
        result.verdict, result.reason = Result.VERDICT_REFUSED, no.word
        result.field, result.message = no.values.get("field", ""), no.message
        return False
    if view.ended is not None:
        # What this one has ended may let others begin, before the next one.
        effects.carry_out(view)
    if run is None:
        result.run = keys.run_id(job.definition.name, job.jid, taken)
        result.verdict = Result.VERDICT_EXISTING
        return False
    result.run, result.verdict = answers.id_of(run), Result.VERDICT_CREATED
    return True


def _note(view: View, actor: str, job: Job, request: Message, count: int) -> None:
    runs = "1 run" if count == 1 else f"{count} runs"
    namespace = job.definition.namespace or namespaces.DEFAULT
    subject = f"job/{job.definition.name}"
    audit_log.add(view, actor, "TriggerJobs", namespace, subject, request, f"{runs} triggered")
