"""The same change to all jobs or runs that fit a filter: one step of it in each call.

A step goes by keys and ends where its answer says, so the next one begins there and meets nothing
twice. Each item is changed by the rule of its single call, or refused alone: those rules ask first
and write then. One that was refused behind a write would spoil the whole step, so that is an error.

Where few fit, a step looks on in as many decisions as it takes (`Bulk`). On trial the first
decision does the step, on a view that is thrown away, and the others count what fits.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import count
from typing import Protocol

from ...proto.v1 import common_pb2, job_pb2, run_pb2
from ..core import filters, limits, pages
from ..core.filters import Filter
from ..core.rejection import Fault, Reason, Refused, Rejection
from ..model import answers, keys, validate
from ..model.phases import DELAYED
from ..model.record import StateRecord
from ..model.request import Bulk
from ..model.view import View
from ..occurrences import next_time
from ..runs import set_aside
from ..tenants import audit_log, idempotency, namespaces
from . import filtered, jobs, occurrences
from . import runs as run_calls

ChangeJobs = job_pb2.ChangeJobsRequest
ChangeRuns = run_pb2.ChangeRunsRequest
Answer = common_pb2.BulkChange
LOOK = 16  # Items that are looked at between two questions for the time.
Reply = Generator[None, None, "Answer | Bulk"]


class Changeable(Protocol):
    """What fits, and what is to be done with it."""

    name: str

    def change(self, view: View, actor: str) -> None: ...


class JobItem:
    """A job that fits."""

    def __init__(self, request: ChangeJobs, jid: int, name: str) -> None:
        self.request, self.jid, self.name = request, jid, name

    def change(self, view: View, actor: str) -> None:
        asked, name = self.request, self.name
        where, by = asked.namespace, asked.request_id
        job = view.job(self.jid)
        if asked.change == ChangeJobs.CHANGE_DELETE:
            delete = job_pb2.DeleteJobRequest(namespace=where, job=name, request_id=by)
            jobs.delete(view, delete, actor)
            return
        if not next_time.is_readable(view, job):
            raise set_aside.refusal(job.definition, "its schedules cannot be read")
        if asked.change == ChangeJobs.CHANGE_PAUSE:
            until = asked.until if asked.HasField("until") else None
            pause = job_pb2.PauseJobRequest(
                namespace=where, job=name, reason=asked.reason, until=until, request_id=by
            )
            jobs.pause(view, pause, actor)
        elif asked.change == ChangeJobs.CHANGE_RESUME:
            resume = job_pb2.ResumeJobRequest(namespace=where, job=name, request_id=by)
            jobs.resume(view, resume, actor)
        else:
            trigger = job_pb2.TriggerJobRequest(namespace=where, job=name, request_id=by)
            occurrences.trigger(view, trigger, actor)


class RunItem:
    """A run that fits."""

    def __init__(self, request: ChangeRuns, name: str) -> None:
        self.request, self.name = request, name

    def change(self, view: View, actor: str) -> None:
        asked, name = self.request, self.name
        where, by = asked.namespace, asked.request_id
        if asked.change == ChangeRuns.CHANGE_CANCEL:
            grace = asked.grace if asked.HasField("grace") else None
            cancel = run_pb2.CancelRunRequest(
                namespace=where, run=name, reason=asked.reason, grace=grace, request_id=by
            )
            run_calls.cancel(view, cancel, actor)
        elif asked.change == ChangeRuns.CHANGE_TERMINATE:
            terminate = run_pb2.TerminateRunRequest(
                namespace=where, run=name, reason=asked.reason, request_id=by
            )
            run_calls.terminate(view, terminate, actor)
        else:
            retry = run_pb2.RetryRunRequest(namespace=where, run=name, request_id=by)
            run_calls.retry(view, retry, actor)


# The range of keys to look at, and what a key stands for if it fits.
Range = tuple[bytes, bytes]
Look = Callable[[bytes], "Changeable | None"]


def all_at_once(view: View, request: ChangeJobs | ChangeRuns, actor: str) -> Reply:
    """A step in one decision, however long it looks."""
    reply: Answer | Bulk = Bulk(request)
    while isinstance(reply, Bulk):
        reply = yield from _step(view, reply, actor)
    return _noted(view, request, actor, reply)


def some(view: View, body: Bulk, actor: str) -> Reply:
    """As far as there is room: what came of the step, or where to look on."""
    request = body.request
    if request.request_id:
        before = idempotency.find(view, request.request_id, request)
        if before is not None:
            assert isinstance(before, Answer), before
            return before
    reply = yield from _step(view, body, actor)
    if isinstance(reply, Bulk):
        return reply
    answer = _noted(view, request, actor, reply)
    if request.request_id:
        idempotency.add(view, request.request_id, request, answer)
    return answer


def _step(view: View, body: Bulk, actor: str) -> Reply:
    request = body.request
    number = namespaces.need(view, request.namespace).number
    _check(view, request)
    kind = type(request).__name__
    scope = f"{request.filter}\0{request.change}"
    paging = pages.read(kind, number, scope, request.page_size, request.page_token)
    most = paging.size if request.page_size else limits.PAGE
    (first, end), look = _looked_at(view, number, request)
    trial, last = body.so_far, body.after or paging.after
    # A step may move the first run that is under way behind its own token.
    begin = max(first, last + b"\0") if last else first
    answer = Answer()
    if trial is not None:
        answer.CopyFrom(trial)
    bound = limits.LOOKED_AT if request.validate_only else limits.LETTERS_LOOKED_AT
    for looked, key in zip(count(body.looked), view.scan_stored(begin, end), strict=False):
        taken = answer.changed + answer.failed
        is_full = (looked > body.looked) and (taken or looked % LOOK == 0) and view.is_full
        if request.validate_only:
            if looked == bound:
                return answer
            if is_full and looked % LOOK == 0:
                return Bulk(request, last, looked, answer)
        elif taken == most or looked == bound or (is_full and taken):
            answer.next_page_token = pages.token_of(paging, last)
            return answer
        elif is_full:
            return Bulk(request, last, looked)
        last = key
        item = look(key)
        if item is None:
            continue
        answer.matched += request.validate_only
        if trial is None and taken < most and not (request.validate_only and is_full):
            _change(view, item, actor, answer)
            yield
    answer.matched_is_exact = request.validate_only
    return answer


def _change(view: View, item: Changeable, actor: str, answer: Answer) -> None:
    """Change one, or keep in mind why that was refused."""
    size = view.size
    try:
        item.change(view, actor)
    except Refused as refused:
        if view.size != size:
            raise RuntimeError(f"{item.name} was refused behind a write") from refused
        answer.failed += 1
        if len(answer.failures) < limits.BULK_FAILURES:
            answer.failures.append(_failure(item.name, refused.rejection))
        return
    answer.changed += 1
    if len(answer.sample) < limits.BULK_SAMPLE:
        answer.sample.append(item.name)


def _failure(name: str, no: Rejection) -> common_pb2.BulkChange.Failure:
    return common_pb2.BulkChange.Failure(name=name, reason=no.word, message=no.message)


def _looked_at(view: View, number: int, request: ChangeJobs | ChangeRuns) -> tuple[Range, Look]:
    if isinstance(request, ChangeJobs):
        wanted = filters.parse(request.filter, filtered.JOB_FIELDS)
        return filtered.name_range(wanted, number), lambda key: _job_at(view, request, wanted, key)
    wanted = filters.parse(request.filter, filtered.RUN_FIELDS)
    return _live_range(view, number, wanted), lambda key: _run_at(view, request, wanted, key)


def _job_at(view: View, request: ChangeJobs, wanted: Filter, key: bytes) -> JobItem | None:
    value = view.get_raw(key)
    if value is None:
        return None
    job = view.job(int.from_bytes(value, "big"))
    state, is_resume = job.state.state, request.change == ChangeJobs.CHANGE_RESUME
    if state == next_time.DELETING or (is_resume and state != next_time.PAUSED):
        return None
    if not wanted.fits(filtered.of_job(job)):
        return None
    return JobItem(request, job.jid, job.definition.name)


def _run_at(view: View, request: ChangeRuns, wanted: Filter, key: bytes) -> RunItem | None:
    run = view.find_run(keys.run_of(key))
    if run is None:
        # It has ended within this decision.
        return None
    if request.change == ChangeRuns.CHANGE_RETRY and run.record.phase != DELAYED:
        return None
    return RunItem(request, answers.id_of(run)) if wanted.fits(filtered.of_run(view, run)) else None


def _live_range(view: View, number: int, wanted: Filter) -> Range:
    """Where the runs under way stand that may fit."""
    name = filtered.job_named(wanted)
    if name is None:
        jids = keys.jid_of(number, 0), keys.jid_of(number + 1, 0)
        return keys.run(jids[0], 0), keys.run(jids[1], 0)
    value = view.get_raw(keys.job_name(number, name))
    if value is None:
        return b"", b""
    jid = int.from_bytes(value, "big")
    first, end = filtered.occurrences(wanted)
    # Below the mark lie only the tombstones of runs that have ended.
    first = max(first, view.need(keys.state(jid), StateRecord).live_from)
    return keys.run(jid, first), keys.run(jid, max(first, end))


def _check(view: View, request: ChangeJobs | ChangeRuns) -> None:
    faults = validate.enum("change", request, "change")
    if not request.change:
        message = "say what to do with what fits"
        faults.append(Fault("change", Reason.ERROR_REASON_FIELD_REQUIRED, message))
    faults += validate.text("reason", request.reason, limits.REASON_CHARS)
    if isinstance(request, ChangeJobs):
        faults += validate.instant("until", request, "until")
        belongs = {"reason", "until"} if request.change == ChangeJobs.CHANGE_PAUSE else set()
        extra = {"until"} if request.HasField("until") else set[str]()
    else:
        faults += validate.span("grace", request, "grace", 0, limits.DAY_MS)
        belongs = set() if request.change == ChangeRuns.CHANGE_RETRY else {"reason"}
        belongs |= {"grace"} if request.change == ChangeRuns.CHANGE_CANCEL else set()
        extra = {"grace"} if request.HasField("grace") else set[str]()
    extra |= {"reason"} if request.reason else set()
    for field in sorted(extra - belongs):
        message = "it does not belong to this change; leave it out"
        faults.append(Fault(field, Reason.ERROR_REASON_FIELD_INVALID, message))
    if faults:
        raise Refused.of(faults)


def _noted(view: View, request: ChangeJobs | ChangeRuns, actor: str, answer: Answer) -> Answer:
    if answer.changed:
        if isinstance(request, ChangeJobs):
            method, subject, change = "ChangeJobs", "job", ChangeJobs.Change.Name(request.change)
        else:
            method, subject, change = "ChangeRuns", "run", ChangeRuns.Change.Name(request.change)
        word = change.removeprefix("CHANGE_").lower()
        detail = f"{word}: {answer.changed} changed, {answer.failed} refused; {request.filter}"
        namespace = request.namespace or namespaces.DEFAULT
        audit_log.add(view, actor, method, namespace, subject, request, detail)
    return answer
