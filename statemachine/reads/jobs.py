"""Jobs, for readers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from ...proto.v1 import job_pb2, run_pb2
from ..calls import filtered, job_warnings
from ..calls.jobs import find
from ..core import filters, limits, pages
from ..core.instants import ms_or, timestamp
from ..core.rejection import Refused
from ..model import answers, keys, validate
from ..model.entities import Job, run_with
from ..model.record import LedgerRecord, RunRecord, StateRecord, UsageRecord, parse
from ..model.view import View
from ..model.workers import Workers
from ..occurrences import ledger, upcoming
from ..runs import set_aside, warned
from ..tenants import audit_log, namespaces
from . import job_order

TOGETHER = 64  # Jobs that a filtered list reads at a time.
HISTORY_FIELDS = {
    name: filtered.RUN_FIELDS[name]
    for name in (
        "state", "scheduled_time", "outcome", "cause", "kind", "error", "warning",
        "end_time", "last_worker", "unique_key", "attempt",
    )
}  # fmt: skip


def get(view: View, request: job_pb2.GetJobRequest, workers: Workers) -> job_pb2.Job:
    job = find(view, request.namespace, request.job)
    answer = answers.job(job)
    _complete(view, job, answer.status)
    answer.status.paused_by = audit_log.paused_by(view, job)
    return answer


def get_status(
    view: View, request: job_pb2.GetJobStatusRequest, workers: Workers
) -> job_pb2.JobStatus:
    job = find(view, request.namespace, request.job)
    answer = job_pb2.JobStatus()
    answers.status(job, answer)
    _complete(view, job, answer)
    answer.paused_by = audit_log.paused_by(view, job)
    answer.warnings.extend(job_warnings.warnings(view, job))
    return answer


def _complete(view: View, job: Job, status: job_pb2.JobStatus) -> None:
    set_aside.show(view, job.jid, status)
    warned.show(view, job, status)
    upcoming.show(view, job, status)


def list_jobs(
    view: View, request: job_pb2.ListJobsRequest, workers: Workers
) -> job_pb2.ListJobsResponse:
    number = namespaces.need(view, request.namespace).number
    wanted = filters.parse(request.filter, filtered.JOB_FIELDS)
    order = job_order.read(view, number, request.order_by)
    scope = f"{request.filter}\0{order.name}"
    paging = pages.read("jobs", number, scope, request.page_size, request.page_token)

    def show(found: job_order.PlacedJob) -> job_pb2.Job | None:
        job = filtered.fitting_job(view, wanted, found[1], order.name_at(found[0]))
        if job is None:
            return None
        answer = answers.job(job)
        _complete(view, job, answer.status)
        return answer

    walk = order.walk(view, number, wanted, paging.after)
    walk = _read_ahead(view, wanted, walk)
    page = pages.fill(paging, walk, job_order.place, show, terms=wanted.terms)
    answer = job_pb2.ListJobsResponse(jobs=page.items, next_page_token=page.next_token)
    if request.with_count:
        answer.count, answer.count_is_exact = _count(view, number, wanted)
    return answer


def _read_ahead(
    view: View, wanted: filters.Filter, walk: Iterator[job_order.PlacedJob]
) -> Iterator[job_order.PlacedJob]:
    """The same, read some at a time where nearly each is looked at: jobs that were made together
    lie together."""
    if not wanted.names or "name" in wanted.names:
        yield from walk
        return
    by_state = wanted.names <= filtered.STATE_FIELDS.keys()
    while some := list(islice(walk, TOGETHER)):
        jids = sorted(jid for _, jid in some)
        if by_state:
            view.read_ahead([*map(keys.state, jids)], StateRecord)
        else:
            view.read_jobs_ahead(jids)
        yield from some


def _count(view: View, number: int, wanted: filters.Filter) -> tuple[int, bool]:
    if not wanted.terms:
        usage = view.get(keys.usage(number), UsageRecord)
        return usage.jobs if usage else 0, True
    found = view.stored.scan(*filtered.name_range(wanted, number))

    def fits(entry: tuple[bytes, bytes]) -> bool:
        key, jid = entry[0], int.from_bytes(entry[1], "big")
        return filtered.fitting_job(view, wanted, jid, keys.name_at(key)) is not None

    return pages.count(found, fits, wanted.terms)


def list_history(
    view: View, request: job_pb2.ListJobHistoryRequest, workers: Workers
) -> job_pb2.ListJobHistoryResponse:
    job = find(view, request.namespace, request.job)
    jid = job.jid
    wanted = filters.parse(request.filter, HISTORY_FIELDS)
    paging = pages.read("history", jid, request.filter, request.page_size, request.page_token)
    first, end = filtered.occurrences(wanted)
    if paging.after:
        end = min(end, _occurrence_in(paging.after))

    def show(found: tuple[int, RunRecord]) -> run_pb2.Run | None:
        run = run_with(job, *found)
        return answers.run(view, run) if wanted.fits(filtered.of_run(view, run)) else None

    walk = runs_of(view, jid, job.state, first, end)
    page = pages.fill(paging, walk, _place, show, terms=wanted.terms)
    return job_pb2.ListJobHistoryResponse(runs=page.items, next_page_token=page.next_token)


def _occurrence_in(place: bytes) -> int:
    if len(place) != 8:
        raise pages.wrong_token()
    return int.from_bytes(place, "big")


def _place(found: tuple[int, RunRecord]) -> bytes:
    return found[0].to_bytes(8, "big")


def runs_of(
    view: View, jid: int, state: StateRecord, first: int, end: int, *, live_only: bool = False,
    forwards: bool = False,
) -> Iterator[tuple[int, RunRecord]]:  # fmt: skip
    """The runs of a job from one occurrence to before another, newest first or forwards, ended or
    not."""
    if first >= end:
        return
    # Below the mark lie only the tombstones of runs that have ended.
    mark = keys.run(jid, max(first, state.live_from) if state.live else end)
    live = view.stored.scan(mark, keys.run(jid, end), backwards=not forwards)
    newest, oldest = keys.ended(jid, end - 1), keys.ended(jid, first) + b"\0"
    past = iter(()) if live_only else view.stored.scan(newest, oldest, backwards=forwards)
    running, ended = next(live, None), next(past, None)
    none = keys.OCCURRENCE_MAX if forwards else -1
    while running is not None or ended is not None:
        begun = keys.run_of(running[0])[1] if running else none
        over = keys.ended_of(ended[0])[1] if ended else none
        if running is not None and (begun < over if forwards else begun > over):
            yield begun, parse(*running, RunRecord)
            running = next(live, None)
        elif ended is not None:
            yield over, parse(*ended, RunRecord)
            ended = next(past, None)


def list_ledger(
    view: View, request: job_pb2.ListJobLedgerRequest, workers: Workers
) -> job_pb2.ListJobLedgerResponse:
    """What became of each scheduled time, newest first."""
    jid = find(view, request.namespace, request.job).jid
    first = ms_or(request, "from_time", 0)
    last = ms_or(request, "to_time", limits.INSTANT_MAX_MS)
    if faults := validate.period(request, first, last):
        raise Refused.of(faults)
    scope = f"{first}-{last}"
    paging = pages.read("ledger", jid, scope, request.page_size, request.page_token)
    low, high = keys.ledger(jid, first), keys.ledger(jid, last)
    if paging.after:
        if not low <= paging.after < high:
            raise pages.wrong_token()
        high = paging.after
    found = chain(view.stored.scan(low, high, backwards=True), _reaching(view, jid, first))
    page = pages.fill(paging, found, pages.key_of, _ledger_entry)
    return job_pb2.ListJobLedgerResponse(entries=page.items, next_page_token=page.next_token)


def _reaching(view: View, jid: int, first_ms: int) -> Iterator[tuple[bytes, bytes]]:
    """The stretch that begins before a range and reaches into it."""
    before = ledger.reaching(view, jid, first_ms)
    if before is not None:
        key = keys.ledger(jid, before[0])
        yield from view.stored.scan(key, key + b"\0")


def _ledger_entry(found: tuple[bytes, bytes]) -> run_pb2.LedgerEntry:
    record = parse(*found, LedgerRecord)
    entry = run_pb2.LedgerEntry(
        scheduled_time=timestamp(keys.scheduled_at(found[0])), outcome=record.outcome,
        count=record.count or 1,
    )  # fmt: skip
    if record.last_at_ms:
        entry.last_scheduled_time.CopyFrom(timestamp(record.last_at_ms))
    return entry
