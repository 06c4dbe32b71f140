"""In which order runs are listed: compared with a sort of all of them."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import error_pb2, run_pb2
from raftsched.statemachine.core import limits

from ..rows import each
from . import asking
from .test_filters import everything, world

FAILED = run_pb2.RUN_STATE_FAILED
LIVE = (run_pb2.RUN_STATE_PENDING, run_pb2.RUN_STATE_RUNNING, run_pb2.RUN_STATE_RETRYING)
INVALID = error_pb2.ERROR_REASON_FIELD_INVALID


def listed(text: str, order_by: str, size: int = 3) -> list[run_pb2.Run]:
    request = run_pb2.ListRunsRequest(filter=text, order_by=order_by, page_size=size)
    found = list(asking.pages(world(), request, run_pb2.ListRunsResponse))
    assert len(found) > 1, "more than a page is wanted"
    return [run for page in found for run in page.runs]


def scheduled(run: run_pb2.Run) -> tuple[int, ...]:
    return tuple(int(part) for part in run.id.split(".")[2:])


@pytest.mark.parametrize("order", ["scheduled_time", "scheduled_time asc", "scheduled_time desc"])
@pytest.mark.parametrize(
    "text", ["job=a-6 AND NOT state=SKIPPED", "job=b-5 AND NOT state=SKIPPED", ""]
)
def test_by_scheduled_time_of_one_job_or_under_way(text: str, order: str) -> None:
    _, runs = everything()
    job = text[4:7]
    wanted = [run for run in runs.values() if (run.job == job if job else run.state in LIVE)]
    found = listed(text, order, size=1 if job else 3)

    times = [scheduled(run)[0] for run in found]
    assert times == sorted(times, reverse=order.endswith("desc"))
    assert sorted(run.id for run in found) == sorted(run.id for run in wanted)


@pytest.mark.parametrize("order", ["end_time", "end_time desc"])
def test_by_the_end_of_dead_letters(order: str) -> None:
    _, runs = everything()
    wanted = [run for run in runs.values() if run.state == FAILED]
    found = listed("state=FAILED", order)

    times = [run.end_time.ToMilliseconds() for run in found]
    assert times == sorted(times, reverse=order.endswith("desc"))
    assert sorted(run.id for run in found) == sorted(run.id for run in wanted)


@each(
    ("text", "order", "why"),
    [
        ("", "name", "there are scheduled_time, scheduled_time desc, end_time, end_time desc"),
        ("", "create_time", "there are scheduled_time,"),
        ("", "end_time up", "there are scheduled_time,"),
        ("", "end_time", "add state=FAILED to the filter"),
        ("state=SUCCEEDED", "end_time desc", "add state=FAILED to the filter"),
        ("state=FAILED OR job=a-6", "end_time", "add state=FAILED to the filter"),
        ("state=FAILED", "scheduled_time", "add job=NAME to the filter"),
    ],
)
def test_an_order_that_no_index_has_is_refused(text: str, order: str, why: str) -> None:
    request = run_pb2.ListRunsRequest(filter=text, order_by=order)
    assert asking.refuse(world(), request) == INVALID
    assert why in asking.refusal(world(), request).message


def test_very_many_under_way_are_put_in_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SORTED_RUNS", 1)
    request = run_pb2.ListRunsRequest(order_by="scheduled_time")
    assert asking.refuse(world(), request) == error_pb2.ERROR_REASON_LIMIT_EXCEEDED
    request.filter = "job=a-6"
    asking.ask(world(), request, run_pb2.ListRunsResponse)


def test_a_token_is_for_its_order_alone() -> None:
    request = run_pb2.ListRunsRequest(filter="state=FAILED", order_by="end_time", page_size=1)
    page = asking.ask(world(), request, run_pb2.ListRunsResponse)
    for order in ("", "end_time desc"):
        other = asking.but(request, order_by=order, page_token=page.next_page_token)
        assert asking.refuse(world(), other) == error_pb2.ERROR_REASON_PAGE_TOKEN_INVALID
