"""Jobs, for readers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from ...proto.v1 import job_pb2, run_pb2
from ..calls import job_warnings
from ..calls.jobs import find
from ..core import filters, limits, pages
from ..core.instants import instant_of, ms_or, timestamp
from ..core.rejection import Reason, Refused
from ..model import answers, keys, validate
from ..model.entities import Job, run_with
from ..model.record import JobRecord, LedgerRecord, RunRecord, StateRecord, parse
from ..model.view import View
from ..model.workers import Workers
from ..occurrences import ledger, upcoming
from ..runs import lanes, set_aside
from ..tenants import audit_log, namespaces

Terms = list[filters.Term]
FIELDS = ("name", "labels.", "state", "queue", "owner", "zone", "handler", "calendar")
HISTORY_FIELDS = ("state", "scheduled_time", "outcome")


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
    upcoming.show(view, job, status)


def list_jobs(
    view: View, request: job_pb2.ListJobsRequest, workers: Workers
) -> job_pb2.ListJobsResponse:
    number = namespaces.need(view, request.namespace).number
    terms = filters.parse(request.filter, FIELDS)
    check_word(terms, "state", job_pb2.JobStatus.State.keys(), "STATE_")
    paging = pages.read("jobs", number, request.filter, request.page_size, request.page_token)
    first, end = _range(number, terms)
    found = view.stored.scan(pages.first_behind(paging, first, end), end)

    def show(entry: tuple[bytes, bytes]) -> job_pb2.Job | None:
        job = view.job(int.from_bytes(entry[1], "big"))
        if terms and not filters.matches(terms, _fields(job.definition, job.state, terms)):
            return None
        answer = answers.job(job)
        _complete(view, job, answer.status)
        return answer

    page = pages.fill(paging, found, pages.key_of, show)
    return job_pb2.ListJobsResponse(jobs=page.items, next_page_token=page.next_token)


def _range(number: int, terms: Terms) -> tuple[bytes, bytes]:
    """The names to look at: a filter by name needs no look at the others."""
    beginning = ""
    for term in terms:
        if term.field == "name" and term.sign == "=":
            beginning = term.value.removesuffix("*")
    prefix = keys.job_name(number, beginning)
    return prefix, keys.after(prefix)


def _fields(job: JobRecord, state: StateRecord, terms: Terms) -> dict[str, str | int]:
    spec = job.full_spec()
    fields: dict[str, str | int] = {
        "name": job.name,
        "state": word(job_pb2.JobStatus.State.Name(state.state), "STATE_"),
        "queue": spec.queue or "default",
        "owner": spec.owner,
        "zone": spec.timing.zone or "UTC",
        "handler": lanes.handler_of(spec.action),
    }
    for term in terms:
        if term.field.startswith("labels."):
            fields[term.field] = spec.labels.get(term.field.removeprefix("labels."), "")
        elif term.field == "calendar":
            fits = (name for name in job.template.calendars if filters.same(term, name))
            fields[term.field] = next(fits, "")
    return fields


def word(name: str, prefix: str) -> str:
    """An enum value as filters and messages say it."""
    return name.removeprefix(prefix)


def check_word(terms: Terms, field: str, names: list[str], prefix: str) -> None:
    """Refuse a value that can never fit, which is a slip as a rule."""
    known = [word(name, prefix) for name in names if not name.endswith("_UNSPECIFIED")]
    for term in terms:
        if term.field == field and not term.value.endswith("*") and term.value not in known:
            why = f"'{term.value}' is no {field}; there are {', '.join(known)}"
            raise wrong_filter(f"{field}{term.sign}{term.value}", why)


def wrong_filter(text: str, why: str) -> Refused:
    return Refused.because(
        Reason.ERROR_REASON_FILTER_INVALID, f"the filter is wrong: {why}", filter=text, hint=why
    )


def list_history(
    view: View, request: job_pb2.ListJobHistoryRequest, workers: Workers
) -> job_pb2.ListJobHistoryResponse:
    job = find(view, request.namespace, request.job)
    jid = job.jid
    terms = _in_ms(filters.parse(request.filter, HISTORY_FIELDS))
    check_word(terms, "state", run_pb2.RunState.keys(), "RUN_STATE_")
    check_word(terms, "outcome", run_pb2.Outcome.keys(), "OUTCOME_")
    paging = pages.read("history", jid, request.filter, request.page_size, request.page_token)
    first, end = _occurrences(terms)
    if paging.after:
        end = min(end, _occurrence_in(paging.after))

    def show(found: tuple[int, RunRecord]) -> run_pb2.Run | None:
        occurrence, run = found
        if terms and not filters.matches(terms, _run_fields(occurrence, run)):
            return None
        return answers.run(view, run_with(job, occurrence, run))

    page = pages.fill(paging, runs_of(view, jid, job.state, first, end), _place, show)
    return job_pb2.ListJobHistoryResponse(runs=page.items, next_page_token=page.next_token)


def _in_ms(terms: Terms) -> Terms:
    """The terms with instants as numbers, which compare as instants do."""
    read = []
    for term in terms:
        if term.field == "scheduled_time":
            at_ms = instant_of(term.value)
            if at_ms is None:
                why = f"'{term.value}' is no instant; write one such as 2026-03-29T01:00:00Z"
                raise wrong_filter(f"scheduled_time{term.sign}{term.value}", why)
            term = term._replace(value=str(at_ms))
        read.append(term)
    return read


def _occurrences(terms: Terms) -> tuple[int, int]:
    """The occurrences to look at: a filter by scheduled time needs no look at the others."""
    first, end = 0, keys.OCCURRENCE_MAX
    for term in terms:
        if term.field == "scheduled_time":
            at_ms = max(0, min(int(term.value), keys.scheduled_of(keys.OCCURRENCE_MAX) - 1))
            if term.sign in "=<":
                end = min(end, keys.occurrence_of(at_ms + (term.sign == "=")))
            if term.sign in "=>":
                first = max(first, keys.occurrence_of(at_ms))
    return first, end


def _occurrence_in(place: bytes) -> int:
    if len(place) != 8:
        raise pages.wrong_token()
    return int.from_bytes(place, "big")


def _place(found: tuple[int, RunRecord]) -> bytes:
    return found[0].to_bytes(8, "big")


def _run_fields(occurrence: int, run: RunRecord) -> dict[str, str | int]:
    return {
        "state": word(run_pb2.RunState.Name(run.state), "RUN_STATE_"),
        "scheduled_time": keys.scheduled_of(occurrence),
        "outcome": word(run_pb2.Outcome.Name(run.outcome), "OUTCOME_"),
    }


def runs_of(
    view: View, jid: int, state: StateRecord, first: int, end: int
) -> Iterator[tuple[int, RunRecord]]:
    """The runs of a job from one occurrence to before another, newest first, ended or not."""
    if first >= end:
        return
    # Below the mark lie only the tombstones of runs that have ended.
    mark = keys.run(jid, max(first, state.live_from) if state.live else end)
    live = view.stored.scan(mark, keys.run(jid, end), backwards=True)
    past = view.stored.scan(keys.ended(jid, end - 1), keys.ended(jid, first) + b"\0")
    running, ended = next(live, None), next(past, None)
    while running is not None or ended is not None:
        begun = keys.run_of(running[0])[1] if running else -1
        over = keys.ended_of(ended[0])[1] if ended else -1
        if running is not None and begun > over:
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
