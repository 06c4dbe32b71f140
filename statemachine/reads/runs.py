"""Runs and dead letters of a namespace, for readers.

Runs under way lie by job, so to show them by time they are sorted first. A namespace with more of
them than one call looks at is shown job by job, the newest job first; so are runs that ended well,
which have no order across jobs. Dead letters have one. Whoever asks for an order that no index has
is refused (`run_order.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import nlargest, nsmallest

from ...proto.v1 import dead_letter_pb2, run_pb2
from ..calls import filtered
from ..calls import runs as run_calls
from ..core import filters, limits, pages
from ..core.filters import Filter
from ..model import answers, keys
from ..model.entities import run_with
from ..model.record import RunRecord, StateRecord, UsageRecord, parse
from ..model.view import View
from ..model.workers import Workers
from ..tenants import namespaces
from . import run_order
from .jobs import runs_of
from .run_order import RunOrder

# A run with its jid and occurrence, and where it stands in the list.
ListedRun = tuple[bytes, int, int, RunRecord]


def get(view: View, request: run_pb2.GetRunRequest, workers: Workers) -> run_pb2.Run:
    return answers.run(view, run_calls.find(view, request.namespace, request.run))


def list_runs(
    view: View, request: run_pb2.ListRunsRequest, workers: Workers
) -> run_pb2.ListRunsResponse:
    number = namespaces.need(view, request.namespace).number
    wanted = filters.parse(request.filter, filtered.RUN_FIELDS)
    order = run_order.read(view, number, wanted, request.order_by)
    scope = f"{request.filter}\0{order.name}" if order.name else request.filter
    paging = pages.read("runs", number, scope, request.page_size, request.page_token)
    walks = _in_order(wanted, order) or _walks(view, number, wanted, is_sorted=True)
    found = _one_after_the_other(view, number, wanted, paging.after, walks)
    page = pages.fill(paging, found, _place, _shown(view, wanted), terms=wanted.terms)
    answer = run_pb2.ListRunsResponse(runs=page.items, next_page_token=page.next_token)
    if request.with_count:
        usage = view.get(keys.usage(number), UsageRecord)
        if not wanted.terms:
            answer.count, answer.count_is_exact = usage.live if usage else 0, True
        else:
            walks = _walks(view, number, wanted, is_sorted=False)
            whole = _one_after_the_other(view, number, wanted, b"", walks)
            answer.count, answer.count_is_exact = _count(view, wanted, whole)
    return answer


def _count(view: View, wanted: Filter, found: Iterator[ListedRun]) -> tuple[int, bool]:
    def fits(one: ListedRun) -> bool:
        _, jid, occurrence, record = one
        job = view.find_job(jid)
        return job is not None and wanted.fits(
            filtered.of_run(view, run_with(job, occurrence, record))
        )

    return pages.count(found, fits, wanted.terms)


Walk = Callable[[View, int, Filter, bytes], Iterator[ListedRun]]


def _one_after_the_other(
    view: View, number: int, wanted: Filter, after: bytes, walks: Sequence[Walk]
) -> Iterator[ListedRun]:
    """What some walks meet; a place begins with the number of its walk."""
    first = after[0] if after else 0
    if after and first >= len(walks):
        raise pages.wrong_token()
    for place, walk in enumerate(walks[first:], first):
        behind = after[1:] if after and place == first else b""
        for found in walk(view, number, wanted, behind):
            yield bytes([place]) + found[0], *found[1:]


def _in_order(wanted: Filter, order: RunOrder) -> Sequence[Walk]:
    """The walk that an order asks for; none where it asks for nothing."""
    if not order.name:
        return ()
    if order.by_end:
        return (partial(_dead, forwards=not order.is_descending),)
    walk = _sorted if filtered.job_named(wanted) is None else _of_job
    return (partial(walk, forwards=not order.is_descending),)


def _walks(view: View, number: int, wanted: Filter, *, is_sorted: bool) -> Sequence[Walk]:
    """The cheapest walks that meet every run that may fit."""
    states = filtered.states(wanted)
    if filtered.job_named(wanted) is not None:
        return (_of_job,)
    walks: list[Walk] = []
    if states & filtered.LIVE_STATES:
        usage = view.get(keys.usage(number), UsageRecord)
        few = usage is None or usage.live <= limits.SORTED_RUNS
        walks.append(_sorted if few and is_sorted else _live)
    if over := states - filtered.LIVE_STATES:
        walks.append(_dead if over == {"FAILED"} else _past)
    return walks


def _shown(view: View, wanted: Filter) -> Callable[[ListedRun], run_pb2.Run | None]:
    def show(found: ListedRun) -> run_pb2.Run | None:
        _, jid, occurrence, record = found
        job = view.find_job(jid)
        if job is None:
            return None
        run = run_with(job, occurrence, record)
        return answers.run(view, run) if wanted.fits(filtered.of_run(view, run)) else None

    return show


def _place(found: ListedRun) -> bytes:
    return found[0]


def _sorted(
    view: View, number: int, wanted: Filter, after: bytes, *, forwards: bool = False
) -> Iterator[ListedRun]:
    """The runs under way of a namespace by scheduled time, newest first or forwards, as far as a
    page looks."""
    first, end = _jids(number)
    last = _numbers(after, 2) if after else None
    places = (
        (occurrence, jid)
        for jid, occurrence in (
            keys.run_of(key) for key, _ in view.stored.scan(keys.run(first, 0), keys.run(end, 0))
        )
        if last is None or ((occurrence, jid) > last if forwards else (occurrence, jid) < last)
    )
    some = nsmallest if forwards else nlargest
    for occurrence, jid in some(limits.LOOKED_AT + 1, places):
        run = view.need(keys.run(jid, occurrence), RunRecord)
        yield _packed(occurrence, jid), jid, occurrence, run


def _live(view: View, number: int, wanted: Filter, after: bytes) -> Iterator[ListedRun]:
    """The runs under way of a namespace, job by job."""
    first, end = _jids(number)
    low, high = keys.run(first, 0), keys.run(end, 0)
    if after:
        high = _within(after, low, high)
    for key, value in view.stored.scan(low, high, backwards=True):
        yield key, *keys.run_of(key), parse(key, value, RunRecord)


def _past(view: View, number: int, wanted: Filter, after: bytes) -> Iterator[ListedRun]:
    """The runs of a namespace that have ended, job by job, the oldest job first."""
    first, end = _jids(number)
    low, high = keys.of_job(keys.ENDED, first), keys.of_job(keys.ENDED, end)
    if after:
        low = _within(after, low, high) + b"\0"
    for key, value in view.stored.scan(low, high):
        yield key, *keys.ended_of(key), parse(key, value, RunRecord)


def _dead(
    view: View, number: int, wanted: Filter, after: bytes, *, forwards: bool = False
) -> Iterator[ListedRun]:
    """The dead letters of a namespace, the newest end first, or forwards."""
    low, high = filtered.dead_range(wanted, number)
    if after and forwards:
        high = _within(after, low, high)
    elif after:
        low = _within(after, low, high) + b"\0"
    for key, _ in view.stored.scan(low, high, backwards=forwards):
        jid, occurrence = keys.run_of(key)
        yield key, jid, occurrence, view.need(keys.ended(jid, occurrence), RunRecord)


def _of_job(
    view: View, number: int, wanted: Filter, after: bytes, *, forwards: bool = False
) -> Iterator[ListedRun]:
    """The runs of one job by scheduled time, newest first or forwards; without a state only those
    under way."""
    value = view.stored.get(keys.job_name(number, filtered.job_named(wanted) or ""))
    if value is None:
        return
    jid = int.from_bytes(value, "big")
    first, end = filtered.occurrences(wanted)
    if after and forwards:
        first = max(first, _numbers(after, 1)[0] + 1)
    elif after:
        end = min(end, _numbers(after, 1)[0])
    live_only = filtered.states(wanted) <= filtered.LIVE_STATES
    state = view.need(keys.state(jid), StateRecord)
    for occurrence, run in runs_of(
        view, jid, state, first, end, live_only=live_only, forwards=forwards
    ):
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
    wanted = filters.parse(request.filter, filtered.RUN_FIELDS)
    paging = pages.read("dead", number, request.filter, request.page_size, request.page_token)
    found = _dead(view, number, wanted, paging.after)
    page = pages.fill(paging, found, _place, _shown(view, wanted), terms=wanted.terms)
    usage = view.get(keys.usage(number), UsageRecord)
    answer = dead_letter_pb2.ListDeadLettersResponse(
        runs=page.items, next_page_token=page.next_token, total=usage.dead if usage else 0
    )
    if request.with_count and not wanted.terms:
        answer.count, answer.count_is_exact = answer.total, True
    elif request.with_count:
        whole = _dead(view, number, wanted, b"")
        answer.count, answer.count_is_exact = _count(view, wanted, whole)
    return answer
