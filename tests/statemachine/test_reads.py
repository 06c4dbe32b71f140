"""Lists are whole, in order, in pages, and bounded; what is not there is refused."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from raftsched.proto.v1 import (
    access_pb2,
    calendar_pb2,
    common_pb2,
    dead_letter_pb2,
    flow_pb2,
    job_pb2,
    namespace_pb2,
    queue_pb2,
    run_pb2,
)
from raftsched.statemachine.core import filters, limits
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.core.rejection import Reason, Refused
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model.request import Offer
from raftsched.statemachine.model.view import View
from raftsched.statemachine.model.workers import Worker
from raftsched.statemachine.reads.reads import READS, read
from raftsched.statemachine.schedule.zones import LATEST_MS

from .asking import ask, but, pages, refuse, token
from .driver import HOUR_MS, MINUTE_MS, Machine
from .world import ALLOW, OTHER, build

ONCE = job_pb2.RetryPolicy(max_attempts=1)


def names(machine: Machine, text: str = "", size: int = 0) -> list[str]:
    request = job_pb2.ListJobsRequest(filter=text, page_size=size)
    found = pages(machine, request, job_pb2.ListJobsResponse)
    return [job.name for page in found for job in page.jobs]


def history(machine: Machine, name: str, text: str = "", size: int = 0) -> list[run_pb2.Run]:
    request = job_pb2.ListJobHistoryRequest(job=name, filter=text, page_size=size)
    found = pages(machine, request, job_pb2.ListJobHistoryResponse)
    return [run for page in found for run in page.runs]


def listed(machine: Machine, text: str = "", size: int = 0) -> list[run_pb2.Run]:
    request = run_pb2.ListRunsRequest(filter=text, page_size=size)
    found = pages(machine, request, run_pb2.ListRunsResponse)
    return [run for page in found for run in page.runs]


def minutely(machine: Machine, hours: int = 1) -> None:
    """A job with runs that ended, and one that is under way."""
    machine.create("a", cron="*/10 * * * *", overlap=ALLOW)
    for _ in range(6 * hours):
        machine.advance(10 * MINUTE_MS)
        machine.fire()
        for lease in machine.grant():
            machine.succeed(lease)
    machine.advance(10 * MINUTE_MS)
    machine.fire()
    machine.grant()


# Jobs.


def test_a_job_and_its_status_are_shown(machine: Machine) -> None:
    made = machine.create("a", cron="0 * * * *", labels={"team": "x"})

    assert ask(machine, job_pb2.GetJobRequest(job="a"), job_pb2.Job) == made
    status = ask(machine, job_pb2.GetJobStatusRequest(job="a"), job_pb2.JobStatus)
    assert status == made.status


def test_jobs_are_listed_by_name_whatever_the_size_of_a_page(machine: Machine) -> None:
    for name in ("c", "a", "b-2", "b-1"):
        machine.create(name)

    assert names(machine) == ["a", "b-1", "b-2", "c"]
    assert names(machine, size=1) == ["a", "b-1", "b-2", "c"]
    assert names(machine, size=3) == ["a", "b-1", "b-2", "c"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("name=b*", ["b-1", "b-2"]),
        ("name=a", ["a"]),
        ("name!=a", ["b-1", "b-2", "c"]),
        ("labels.team=red", ["a", "b-1"]),
        ("labels.team!=red", ["b-2", "c"]),
        ("state=PAUSED", ["c"]),
        ("queue=mail AND labels.team=red", ["b-1"]),
        ("owner=anna", ["a"]),
        ("zone=Europe/Berlin", ["b-2"]),
        ("handler=work AND name=b*", ["b-1", "b-2"]),
        ("name=nobody", []),
    ],
)
def test_jobs_are_filtered(machine: Machine, text: str, found: list[str]) -> None:
    machine.create("a", labels={"team": "red"}, owner="anna")
    machine.create("b-1", labels={"team": "red"}, queue="mail")
    machine.create("b-2", cron="0 * * * *", timing={"zone": "Europe/Berlin"})
    machine.create("c")
    machine.do(job_pb2.PauseJobRequest(job="c"))

    assert names(machine, text) == found


@pytest.mark.parametrize(
    ("text", "then"),
    [
        ("name==p", 'write name=p, or name="=p"'),
        ("name!==p", 'write name!=p, or name!="=p"'),
    ],
)
def test_a_sign_that_there_is_not_is_refused(text: str, then: str) -> None:
    with pytest.raises(Refused) as refused:
        filters.parse(text, {"name": filters.TEXT})

    assert refused.value.rejection.word == "FILTER_INVALID"
    assert then in refused.value.rejection.message
    [term] = filters.parse('name="=p"', {"name": filters.TEXT}).needed()
    assert term == filters.Term("name", "=", "=p")


def test_a_job_that_comes_between_two_pages_leaves_none_out(machine: Machine) -> None:
    for name in ("b", "d", "f"):
        machine.create(name)
    request = job_pb2.ListJobsRequest(page_size=2)
    first = ask(machine, request, job_pb2.ListJobsResponse)

    machine.create("a")
    machine.create("e")
    machine.do(job_pb2.DeleteJobRequest(job="d"))
    request.page_token = first.next_page_token
    second = ask(machine, request, job_pb2.ListJobsResponse)

    assert [job.name for job in first.jobs] == ["b", "d"]
    assert [job.name for job in second.jobs] == ["e", "f"]
    assert second.next_page_token == ""


def test_a_page_ends_at_its_bound_of_bytes(machine: Machine) -> None:
    payload = common_pb2.Payload(data=b"x" * 60_000)
    for number in range(20):
        machine.create(f"job-{number:02}", payload=payload)
    request = job_pb2.ListJobsRequest(page_size=1_000)

    found = list(pages(machine, request, job_pb2.ListJobsResponse))

    assert [len(page.jobs) for page in found] == [17, 3]
    assert all(page.ByteSize() <= limits.PAGE_BYTES + 1_000 for page in found)
    assert [job.name for page in found for job in page.jobs] == names(machine)


def test_a_filter_that_nothing_fits_is_looked_for_in_bounded_steps(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOOKED_AT", 4)
    for number in range(10):
        machine.create(f"job-{number}")
    machine.create("last", owner="anna")
    request = job_pb2.ListJobsRequest(filter="owner=anna")

    found = list(pages(machine, request, job_pb2.ListJobsResponse))

    assert [len(page.jobs) for page in found] == [0, 0, 1]


# Page tokens.


LISTS: list[tuple[Message, type[Message]]] = [
    (job_pb2.ListJobsRequest(), job_pb2.ListJobsResponse),
    (job_pb2.ListJobHistoryRequest(job="minutely"), job_pb2.ListJobHistoryResponse),
    (job_pb2.ListJobLedgerRequest(job="minutely"), job_pb2.ListJobLedgerResponse),
    (run_pb2.ListRunsRequest(), run_pb2.ListRunsResponse),
    (run_pb2.ListRunsRequest(filter="state=FAILED"), run_pb2.ListRunsResponse),
    (run_pb2.ListRunsRequest(filter="state=SUCCEEDED"), run_pb2.ListRunsResponse),
    (run_pb2.ListRunsRequest(filter="job=minutely"), run_pb2.ListRunsResponse),
    (dead_letter_pb2.ListDeadLettersRequest(), dead_letter_pb2.ListDeadLettersResponse),
    (flow_pb2.ListFlowsRequest(), flow_pb2.ListFlowsResponse),
    (queue_pb2.ListQueuesRequest(), queue_pb2.ListQueuesResponse),
    (namespace_pb2.ListNamespacesRequest(), namespace_pb2.ListNamespacesResponse),
    (access_pb2.ListAuditRecordsRequest(), access_pb2.ListAuditRecordsResponse),
]


@pytest.fixture(scope="module")
def world() -> Machine:
    machine = Machine(MemoryStore())
    build(machine)
    return machine


def items(answer: Message) -> list[object]:
    return [item for field, value in answer.ListFields() if field.is_repeated for item in value]


@pytest.mark.parametrize(("request_", "kind"), LISTS)
def test_a_list_is_the_same_in_pages_of_any_size(
    world: Machine, request_: Message, kind: type[Message]
) -> None:
    whole = pages(world, but(request_, page_size=1_000), kind)
    at_once = [item for page in whole for item in items(page)]
    assert len(at_once) > 1

    for size in (1, 2, 3):
        found = list(pages(world, but(request_, page_size=size), kind))

        assert [item for page in found for item in items(page)] == at_once
        assert all(len(items(page)) <= size for page in found)


@pytest.mark.parametrize(("request_", "kind"), LISTS)
def test_a_token_of_another_list_or_none_at_all_is_refused(
    world: Machine, request_: Message, kind: type[Message]
) -> None:
    good = token(ask(world, but(request_, page_size=1), kind))
    assert good

    for other, _ in LISTS:
        if other != request_:
            wrong = but(other, page_token=good)
            assert refuse(world, wrong) == Reason.ERROR_REASON_PAGE_TOKEN_INVALID
    for bad in ("x", "!!", "é", "A" * 3_000, good[:-9]):
        wrong = but(request_, page_token=bad)
        assert refuse(world, wrong) == Reason.ERROR_REASON_PAGE_TOKEN_INVALID


def test_a_token_does_not_serve_another_filter(world: Machine) -> None:
    request = job_pb2.ListJobsRequest(page_size=1, filter="name=m*")
    first = ask(world, job_pb2.ListJobsRequest(page_size=1), job_pb2.ListJobsResponse)
    request.page_token = first.next_page_token

    assert refuse(world, request) == Reason.ERROR_REASON_PAGE_TOKEN_INVALID


def test_a_negative_page_size_is_refused(world: Machine) -> None:
    request = job_pb2.ListJobsRequest(page_size=-1)

    assert refuse(world, request) == Reason.ERROR_REASON_FIELD_INVALID


# History and runs.


def test_history_is_newest_first_with_what_is_under_way(machine: Machine) -> None:
    minutely(machine)

    found = history(machine, "a", size=2)

    times = [run.scheduled_time.seconds for run in found]
    assert times == sorted(times, reverse=True)
    assert [run.state for run in found] == [run_pb2.RUN_STATE_RUNNING] + [
        run_pb2.RUN_STATE_SUCCEEDED
    ] * 6


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("state=SUCCEEDED", 6),
        ("state=RUNNING", 1),
        ("state!=RUNNING", 6),
        ("outcome=RAN", 7),
        ("outcome=LATE", 0),
        ("scheduled_time>2026-01-01T00:30:00Z", 4),
        ("scheduled_time<2026-01-01T00:30:00Z", 2),
        ("scheduled_time=2026-01-01T00:30:00Z", 1),
        ("scheduled_time=2026-01-01T00:31:00Z", 0),
        ("scheduled_time>2026-01-01T00:10:00Z AND scheduled_time<2026-01-01T00:40:00+00:00", 2),
        ("scheduled_time>99999999999999999", 0),
    ],
)
def test_history_is_filtered(machine: Machine, text: str, count: int) -> None:
    minutely(machine)

    assert len(history(machine, "a", text)) == count
    assert len(history(machine, "a", text, size=1)) == count


def test_runs_under_way_are_listed_newest_first_over_all_jobs(machine: Machine) -> None:
    for name in ("a", "b"):
        machine.create(name, cron="*/10 * * * *", overlap=ALLOW)
    for _ in range(3):
        machine.advance(10 * MINUTE_MS)
        machine.fire()
    machine.succeed(machine.grant("w1", 1)[0])
    machine.grant("w2", 1)

    found = listed(machine)

    times = [run.scheduled_time.seconds for run in found]
    assert len(found) == 5
    assert times == sorted(times, reverse=True)
    assert len(listed(machine, "job=a")) + len(listed(machine, "job=b")) == 5
    assert [run.worker for run in listed(machine, "state=RUNNING")] == ["w2"]
    assert len(listed(machine, "worker=w2")) == 1
    assert len(listed(machine, "state=SUCCEEDED")) == 1
    assert len(listed(machine, "queue=nobody")) == 0


def test_with_too_many_runs_to_sort_none_is_left_out(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        machine.create(name, cron="*/10 * * * *", overlap=ALLOW)
    for _ in range(5):
        machine.advance(10 * MINUTE_MS)
        machine.fire()
    sorted_ids = {run.id for run in listed(machine)}
    monkeypatch.setattr(limits, "LOOKED_AT", 3)

    ids = [run.id for run in listed(machine, size=2)]

    assert len(ids) == 10
    assert set(ids) == sorted_ids


def test_dead_letters_are_listed_with_their_number(machine: Machine) -> None:
    for name in ("a", "b", "c"):
        machine.create(name, retry=ONCE)
        machine.advance(1_000)
        machine.trigger(name)
        machine.fail(machine.grant()[0], kind=f"Kind-{name}")

    whole = ask(
        machine,
        dead_letter_pb2.ListDeadLettersRequest(filter="kind=Kind-b"),
        dead_letter_pb2.ListDeadLettersResponse,
    )
    ids = [run.job for run in listed(machine, "state=FAILED")]
    [letter] = whole.runs

    assert (letter.job, whole.total) == ("b", 3)
    assert ids == ["c", "b", "a"]
    request = dead_letter_pb2.GetDeadLetterRequest(run=letter.id)
    assert ask(machine, request, run_pb2.Run) == letter


# Settings.


def test_queues_show_who_pulls_from_them(machine: Machine) -> None:
    machine.create("a", queue="mail")
    machine.create("b")
    workers = [
        Worker(Offer("w1", 1, ("default",), ("mail",)), 2),
        Worker(Offer("w2", 0, ("default",), ("mail", "default")), 2),
        Worker(Offer("w3", 1, ("other",), ("mail",)), 2),
    ]

    answer = ask(machine, queue_pb2.ListQueuesRequest(), queue_pb2.ListQueuesResponse, workers)
    mail = ask(machine, queue_pb2.GetQueueRequest(queue="mail"), queue_pb2.Queue, workers)

    assert [(queue.name, queue.workers) for queue in answer.queues] == [("default", 1), ("mail", 2)]
    assert mail == answer.queues[1]


def test_the_default_namespace_is_listed_in_its_place_before_it_is_stored(
    machine: Machine,
) -> None:
    for name in ("a", "z"):
        settings = namespace_pb2.Namespace(name=name)
        machine.do(namespace_pb2.CreateNamespaceRequest(namespace=settings))

    for size in (1, 2, 50):
        request = namespace_pb2.ListNamespacesRequest(page_size=size)
        found = pages(machine, request, namespace_pb2.ListNamespacesResponse)
        assert [item.name for page in found for item in page.namespaces] == ["a", "default", "z"]
    settings = namespace_pb2.Namespace(name="default", weight=50)
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=settings))
    request = namespace_pb2.ListNamespacesRequest()
    found = pages(machine, request, namespace_pb2.ListNamespacesResponse)
    assert [item.name for page in found for item in page.namespaces] == ["a", "default", "z"]
    shown = ask(
        machine, namespace_pb2.GetNamespaceRequest(namespace="default"), namespace_pb2.Namespace
    )
    assert shown.weight == 50


def test_calendars_are_shown_and_listed(machine: Machine) -> None:
    for name in ("b", "a"):
        rule = calendar_pb2.CalendarRule(weekday=7)
        calendar = calendar_pb2.Calendar(name=name, rules=[rule])
        machine.do(calendar_pb2.CreateCalendarRequest(calendar=calendar))

    answer = ask(machine, calendar_pb2.ListCalendarsRequest(), calendar_pb2.ListCalendarsResponse)
    shown = ask(machine, calendar_pb2.GetCalendarRequest(calendar="a"), calendar_pb2.Calendar)

    assert [calendar.name for calendar in answer.calendars] == ["a", "b"]
    assert shown == answer.calendars[0]


def test_the_audit_log_says_who_did_what_newest_first(machine: Machine) -> None:
    settings = namespace_pb2.Namespace(name=OTHER)
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=settings), actor="root")
    machine.create("a", namespace=OTHER)
    machine.create("b")
    machine.do(job_pb2.PauseJobRequest(job="b", reason="repair", request_id="r1"), actor="anna")

    def noted(namespace: str = "", filter: str = "") -> list[tuple[str, str, str]]:
        request = access_pb2.ListAuditRecordsRequest(namespace=namespace, filter=filter)
        answer = ask(machine, request, access_pb2.ListAuditRecordsResponse)
        return [(note.actor, note.method, note.subject) for note in answer.records]

    assert noted() == [
        ("anna", "PauseJob", "job/b"),
        ("", "CreateJob", "job/b"),
        ("", "CreateJob", "job/a"),
        ("root", "CreateNamespace", "namespace/other"),
    ]
    assert noted(namespace=OTHER) == noted()[2:]
    assert noted(filter="actor=anna") == noted()[:1]
    assert noted(filter="method=CreateJob AND subject=job/a") == noted()[2:3]


# Refusals.


def test_instants_beyond_those_of_schedules_are_refused(world: Machine) -> None:
    far = timestamp(LATEST_MS)
    for request in (
        job_pb2.PreviewScheduleRequest(job="minutely", from_time=far),
        job_pb2.AuditJobRequest(job="minutely", to_time=far),
        job_pb2.ListJobLedgerRequest(job="minutely", from_time=far),
    ):
        assert refuse(world, request) == Reason.ERROR_REASON_FIELD_INVALID


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (job_pb2.GetJobRequest(job="x"), Reason.ERROR_REASON_JOB_NOT_FOUND),
        (job_pb2.GetJobStatusRequest(job="x"), Reason.ERROR_REASON_JOB_NOT_FOUND),
        (job_pb2.ListJobHistoryRequest(job="x"), Reason.ERROR_REASON_JOB_NOT_FOUND),
        (job_pb2.AuditJobRequest(job="x"), Reason.ERROR_REASON_JOB_NOT_FOUND),
        (job_pb2.ExplainJobRequest(job="x"), Reason.ERROR_REASON_JOB_NOT_FOUND),
        (job_pb2.PreviewScheduleRequest(job="x"), Reason.ERROR_REASON_JOB_NOT_FOUND),
        (flow_pb2.GetGraphRequest(job="x"), Reason.ERROR_REASON_JOB_NOT_FOUND),
        (run_pb2.GetRunRequest(run="x.1.1"), Reason.ERROR_REASON_RUN_NOT_FOUND),
        (run_pb2.ExplainRunRequest(run="x"), Reason.ERROR_REASON_RUN_NOT_FOUND),
        (flow_pb2.GetFlowRequest(flow="x.1.1"), Reason.ERROR_REASON_FLOW_NOT_FOUND),
        (
            dead_letter_pb2.GetDeadLetterRequest(run="x.1.1"),
            Reason.ERROR_REASON_DEAD_LETTER_NOT_FOUND,
        ),
        (queue_pb2.GetQueueRequest(queue="x"), Reason.ERROR_REASON_QUEUE_NOT_FOUND),
        (
            namespace_pb2.GetNamespaceRequest(namespace="x"),
            Reason.ERROR_REASON_NAMESPACE_NOT_FOUND,
        ),
        (calendar_pb2.GetCalendarRequest(calendar="x"), Reason.ERROR_REASON_CALENDAR_NOT_FOUND),
        (job_pb2.ListJobsRequest(namespace="x"), Reason.ERROR_REASON_NAMESPACE_NOT_FOUND),
        (job_pb2.ListJobsRequest(filter="size=1"), Reason.ERROR_REASON_FILTER_INVALID),
        (job_pb2.ListJobsRequest(filter="labels=a"), Reason.ERROR_REASON_FILTER_INVALID),
        (job_pb2.ListJobsRequest(filter="state=PUASED"), Reason.ERROR_REASON_FILTER_INVALID),
        (run_pb2.ListRunsRequest(filter="state=PUASED"), Reason.ERROR_REASON_FILTER_INVALID),
        (flow_pb2.ListFlowsRequest(filter="state=SLOW"), Reason.ERROR_REASON_FILTER_INVALID),
        (
            dead_letter_pb2.ListDeadLettersRequest(filter="color=red"),
            Reason.ERROR_REASON_FILTER_INVALID,
        ),
        (access_pb2.ListAuditRecordsRequest(filter="x=1"), Reason.ERROR_REASON_FILTER_INVALID),
        (
            job_pb2.ListJobHistoryRequest(job="minutely", filter="scheduled_time>soon"),
            Reason.ERROR_REASON_FILTER_INVALID,
        ),
        (
            job_pb2.ForecastFiringsRequest(ahead=duration(90_000_000)),
            Reason.ERROR_REASON_FIELD_INVALID,
        ),
        (job_pb2.ForecastFiringsRequest(namespace="x"), Reason.ERROR_REASON_NAMESPACE_NOT_FOUND),
    ],
)
def test_what_is_not_there_or_not_right_is_refused(
    world: Machine, request_: Message, reason: int
) -> None:
    assert refuse(world, request_) == reason


def test_every_read_of_the_contracts_has_an_answer() -> None:
    reads = set(READS)

    for module in (job_pb2, run_pb2, dead_letter_pb2, flow_pb2, queue_pb2, namespace_pb2):
        for name, message in vars(module).items():
            descriptor = getattr(message, "DESCRIPTOR", None)
            fields = getattr(descriptor, "fields_by_name", {})
            if name.endswith("Request") and "read" in fields:
                assert message in reads, name


def test_a_page_read_at_one_instant_does_not_see_later_writes(machine: Machine) -> None:
    machine.create("a")
    view = View(machine.store.snapshot(), machine.now_ms)
    machine.advance(HOUR_MS)
    machine.create("b")

    answer = read(view, job_pb2.ListJobsRequest())

    assert isinstance(answer, job_pb2.ListJobsResponse)
    assert [job.name for job in answer.jobs] == ["a"]


def test_more_runs_than_a_page_looks_at_are_in_order_too(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOOKED_AT", 3)
    for name in ("a", "b", "c"):
        machine.create(name, overlap=ALLOW)
    order = ["b", "a", "c", "a", "b", "c", "c", "a"]
    for name in order:
        machine.trigger(name)
        machine.advance(1_000)
    request = run_pb2.ListRunsRequest(page_size=2)

    found = list(pages(machine, request, run_pb2.ListRunsResponse))

    assert [run.job for page in found for run in page.runs] == order[::-1]
    monkeypatch.setattr(limits, "SORTED_RUNS", 7)
    by_job = list(pages(machine, request, run_pb2.ListRunsResponse))
    jobs = [run.job for page in by_job for run in page.runs]
    assert jobs == sorted(order, reverse=True)
