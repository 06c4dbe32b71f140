"""Runs and dead letters of a namespace, for readers.

Runs under way lie by job, so to show them by time they are sorted first. A namespace with more of
them than one call looks at is shown job by job, the newest job first; so are runs that ended well,
which have no order across jobs. Dead letters have one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nlargest

from ...proto.v1 import dead_letter_pb2, run_pb2
from ..calls import runs as run_calls
from ..core import filters, limits, pages
from ..model import answers, keys
from ..model.entities import run_with
from ..model.phases import LEASED
from ..model.record import JobRecord, LaneRecord, RunRecord, StateRecord, UsageRecord, parse
from ..model.view import View
from ..model.workers import Workers
from ..tenants import namespaces
from .jobs import Terms, check_word, runs_of, word

FIELDS = ("state", "job", "queue", "worker", "flow")
DEAD_FIELDS = ("job", "queue", "kind")
LIVE_WORDS = frozenset({"PENDING", "RUNNING", "RETRYING"})
# A run with its jid and occurrence, and where it stands in the list.
ListedRun = tuple[bytes, int, int, RunRecord]


def get(view: View, request: run_pb2.GetRunRequest, workers: Workers) -> run_pb2.Run:
    return answers.run(view, run_calls.find(view, request.namespace, request.run))


def list_runs(
    view: View, request: run_pb2.ListRunsRequest, workers: Workers
) -> run_pb2.ListRunsResponse:
    number = namespaces.need(view, request.namespace).number
    terms = filters.parse(request.filter, FIELDS)
    check_word(terms, "state", run_pb2.RunState.keys(), "RUN_STATE_")
    paging = pages.read("runs", number, request.filter, request.page_size, request.page_token)
    found = _source(view, number, terms)(view, number, terms, paging.after)
    page = pages.fill(paging, found, _place, _shown(view, terms))
    return run_pb2.ListRunsResponse(runs=page.items, next_page_token=page.next_token)


def _source(
    view: View, number: int, terms: Terms
) -> Callable[[View, int, Terms, bytes], Iterator[ListedRun]]:
    """The cheapest walk that meets every run that may fit."""
    if any(term.field == "job" and term.sign == "=" and "*" not in term.value for term in terms):
        return _of_job
    states = {term.value for term in terms if term.field == "state" and term.sign == "="}
    if states == {"FAILED"}:
        return _dead
    if states and not states & LIVE_WORDS:
        return _past
    usage = view.get(keys.usage(number), UsageRecord)
    few = usage is None or usage.live <= limits.SORTED_RUNS
    return _sorted if few else _live


def _shown(view: View, terms: Terms) -> Callable[[ListedRun], run_pb2.Run | None]:
    def show(found: ListedRun) -> run_pb2.Run | None:
        _, jid, occurrence, run = found
        job = view.find_job(jid)
        if job is None or (
            terms and not filters.matches(terms, _fields(view, run, job.definition))
        ):
            return None
        return answers.run(view, run_with(job, occurrence, run))

    return show


def _fields(view: View, run: RunRecord, job: JobRecord) -> dict[str, str | int]:
    return {
        "state": word(run_pb2.RunState.Name(run.state), "RUN_STATE_"),
        "job": job.name,
        "queue": view.need(keys.lane(run.lane), LaneRecord).queue,
        "worker": keys.worker_id(run.worker) if run.phase == LEASED else "",
        "kind": run.error.kind if run.error else "",
        "flow": answers.flow_id(view, run) if run.flow_jid else "",
    }


def _place(found: ListedRun) -> bytes:
    return found[0]


def _sorted(view: View, number: int, terms: Terms, after: bytes) -> Iterator[ListedRun]:
    """The runs under way of a namespace by scheduled time, newest first, as far as a page looks."""
    first, end = _jids(number)
    before = _numbers(after, 2) if after else (keys.OCCURRENCE_MAX, keys.OCCURRENCE_MAX)
    places = (
        (occurrence, jid)
        for jid, occurrence in (
            keys.run_of(key) for key, _ in view.stored.scan(keys.run(first, 0), keys.run(end, 0))
        )
        if (occurrence, jid) < before
    )
    for occurrence, jid in nlargest(limits.LOOKED_AT + 1, places):
        run = view.need(keys.run(jid, occurrence), RunRecord)
        yield _packed(occurrence, jid), jid, occurrence, run


def _live(view: View, number: int, terms: Terms, after: bytes) -> Iterator[ListedRun]:
    """The runs under way of a namespace, job by job."""
    first, end = _jids(number)
    low, high = keys.run(first, 0), keys.run(end, 0)
    if after:
        high = _within(after, low, high)
    for key, value in view.stored.scan(low, high, backwards=True):
        yield key, *keys.run_of(key), parse(key, value, RunRecord)


def _past(view: View, number: int, terms: Terms, after: bytes) -> Iterator[ListedRun]:
    """The runs of a namespace that have ended, job by job, the oldest job first."""
    first, end = _jids(number)
    low, high = keys.of_job(keys.ENDED, first), keys.of_job(keys.ENDED, end)
    if after:
        low = _within(after, low, high) + b"\0"
    for key, value in view.stored.scan(low, high):
        yield key, *keys.ended_of(key), parse(key, value, RunRecord)


def _dead(view: View, number: int, terms: Terms, after: bytes) -> Iterator[ListedRun]:
    """The dead letters of a namespace, the newest end first."""
    low = keys.in_namespace(keys.DEAD, number)
    high = keys.after(low)
    if after:
        low = _within(after, low, high) + b"\0"
    for key, _ in view.stored.scan(low, high):
        jid, occurrence = keys.run_of(key)
        yield key, jid, occurrence, view.need(keys.ended(jid, occurrence), RunRecord)


def _of_job(view: View, number: int, terms: Terms, after: bytes) -> Iterator[ListedRun]:
    """The runs of one job by scheduled time, newest first; without a state only those under way."""
    [name, *_] = [term.value for term in terms if term.field == "job" and term.sign == "="]
    value = view.stored.get(keys.job_name(number, name))
    if value is None:
        return
    jid = int.from_bytes(value, "big")
    end = _numbers(after, 1)[0] if after else keys.OCCURRENCE_MAX
    live_only = not any(term.field == "state" and term.sign == "=" for term in terms)
    for occurrence, run in runs_of(view, jid, view.need(keys.state(jid), StateRecord), 0, end):
        if not (live_only and run.ended_at_ms):
            yield _packed(occurrence), jid, occurrence, run


def _jids(number: int) -> tuple[int, int]:
    return keys.jid_of(number, 0), keys.jid_of(number + 1, 0)


def _packed(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "big") for number in numbers)


def _numbers(place: bytes, count: int) -> tuple[int, ...]:
    if len(place) != 8 * count:
        raise pages.wrong_token()
    return tuple(int.from_bytes(place[at : at + 8], "big") for at in range(0, len(place), 8))


def _within(place: bytes, low: bytes, high: bytes) -> bytes:
    if not low <= place < high:
        raise pages.wrong_token()
    return place


def get_dead(
    view: View, request: dead_letter_pb2.GetDeadLetterRequest, workers: Workers
) -> run_pb2.Run:
    return answers.run(view, run_calls.find_dead(view, request.namespace, request.run))


def list_dead(
    view: View, request: dead_letter_pb2.ListDeadLettersRequest, workers: Workers
) -> dead_letter_pb2.ListDeadLettersResponse:
    number = namespaces.need(view, request.namespace).number
    terms = filters.parse(request.filter, DEAD_FIELDS)
    paging = pages.read("dead", number, request.filter, request.page_size, request.page_token)
    found = _dead(view, number, terms, paging.after)
    page = pages.fill(paging, found, _place, _shown(view, terms))
    usage = view.get(keys.usage(number), UsageRecord)
    return dead_letter_pb2.ListDeadLettersResponse(
        runs=page.items, next_page_token=page.next_token, total=usage.dead if usage else 0
    )
