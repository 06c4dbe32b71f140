"""The same change to all jobs or runs that fit a filter: one step of it in each call.

A step goes by keys and ends where its answer says, so the next one begins there and meets nothing
twice. It takes as many decisions as it needs (`Bulk`), each as long as there is time. Each item is
changed by the rule of its single call, or refused alone: those rules ask first and write then. One
that was refused behind a write would spoil the whole step, so that is an error.

On trial the first decision does the step, on a view that is thrown away, and the others count what
fits.
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
from ..model.entities import Run
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

    @property
    def name(self) -> str: ...

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

    def __init__(self, request: ChangeRuns, run: Run) -> None:
        self.request, self.run = request, run

    @property
    def name(self) -> str:
        return answers.id_of(self.run)

    def change(self, view: View, actor: str) -> None:
        # The call itself was checked, and so was what the run waits for.
        if self.request.change == ChangeRuns.CHANGE_CANCEL:
            run_calls.cancel_run(view, self.run, self.request, actor)
        elif self.request.change == ChangeRuns.CHANGE_TERMINATE:
            run_calls.terminate_run(view, self.run, self.request, actor)
        else:
            run_calls.retry_run(view, self.run, self.request, actor)


# The range of keys to look at, and what a key stands for if it fits.
Range = tuple[bytes, bytes]
Look = Callable[[bytes], "Changeable | None"]


def all_at_once(view: View, request: ChangeJobs | ChangeRuns, actor: str) -> Reply:
    """A step in one decision, however long it looks, which ends with the time of that."""
    reply: Answer | Bulk = Bulk(request)
    while isinstance(reply, Bulk):
        reply = yield from _one_step(view, reply, actor)
        if isinstance(reply, Bulk) and reply.so_far is not None and not request.validate_only:
            reply = reply.so_far
    _note(view, request, actor, reply)
    return reply


def some(view: View, body: Bulk, actor: str) -> Reply:
    """As far as there is room: what came of the step, or where to go on. What was done is noted
    and remembered in the very change, with where to go on should the rest never come."""
    request = body.request
    if request.request_id and body.so_far is None:
        before = idempotency.find(view, request.request_id, request)
        if before is not None:
            assert isinstance(before, Answer), before
            return before
    reply = yield from _one_step(view, body, actor)
    answer = reply.so_far if isinstance(reply, Bulk) else reply
    if answer is None or (isinstance(reply, Bulk) and request.validate_only):
        return reply
    _note(view, request, actor, answer, body.so_far)
    if request.request_id:
        idempotency.keep(view, request.request_id, request, answer)
    return reply


def _one_step(view: View, body: Bulk, actor: str) -> Reply:
    """What the ends of many runs mean for their flows would take all the time that there is, so it
    is left to these."""
    view.waves_later = True
    try:
        return (yield from _step(view, body, actor))
    finally:
        view.waves_later = False


def _step(view: View, body: Bulk, actor: str) -> Reply:
    request = body.request
    number = namespaces.need(view, request.namespace).number
    _check(view, request)
    kind = type(request).__name__
    scope = f"{request.filter}\0{request.change}"
    paging = pages.read(kind, number, scope, request.page_size, request.page_token)
    most = paging.size if request.page_size else limits.PAGE
    (first, end), look = _looked_at(view, number, request)
    last = body.after or paging.after
    # A step may move the first run that is under way behind its own token.
    begin = max(first, last + b"\0") if last else first
    answer = Answer()
    if body.so_far is not None:
        answer.CopyFrom(body.so_far)
        answer.next_page_token = ""
    is_trial, changes = request.validate_only, body.so_far is None or not request.validate_only
    bound = limits.LOOKED_AT if is_trial else limits.LETTERS_LOOKED_AT
    for looked, key in zip(count(body.looked), view.scan_stored(begin, end), strict=False):
        taken = answer.changed + answer.failed
        is_full = (looked > body.looked) and (taken or looked % LOOK == 0) and view.is_full
        if is_trial:
            if looked == bound:
                return answer
            if is_full and looked % LOOK == 0:
                return Bulk(request, last, looked, answer)
        elif taken == most or looked == bound:
            answer.next_page_token = pages.token_of(paging, last)
            return answer
        elif is_full:
            if not taken:
                return Bulk(request, last, looked)
            answer.next_page_token = pages.token_of(paging, last)
            return Bulk(request, last, looked, answer)
        last = key
        item = look(key)
        if item is None:
            continue
        answer.matched += is_trial
        if changes and taken < most and not (is_trial and is_full):
            _change(view, item, actor, answer)
            yield
    answer.matched_is_exact = is_trial
    return answer


def _change(view: View, item: Changeable, actor: str, answer: Answer) -> None:
    """Change one, or keep in mind why that was refused."""
    size = view.size()
    try:
        item.change(view, actor)
    except Refused as refused:
        if view.size() != size:
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
    return RunItem(request, run) if wanted.fits(filtered.of_run(view, run)) else None


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


def _note(
    view: View, request: ChangeJobs | ChangeRuns, actor: str, answer: Answer,
    before: Answer | None = None,
) -> None:  # fmt: skip
    """Note what was changed since an answer."""
    changed, failed = answer.changed, answer.failed
    if before is not None:
        changed, failed = changed - before.changed, failed - before.failed
    if not changed:
        return
    if isinstance(request, ChangeJobs):
        method, subject, change = "ChangeJobs", "job", ChangeJobs.Change.Name(request.change)
    else:
        method, subject, change = "ChangeRuns", "run", ChangeRuns.Change.Name(request.change)
    word = change.removeprefix("CHANGE_").lower()
    detail = f"{word}: {changed} changed, {failed} refused; {request.filter}"
    namespace = request.namespace or namespaces.DEFAULT
    audit_log.add(view, actor, method, namespace, subject, request, detail)
