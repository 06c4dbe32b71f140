"""The typed methods, against the real rules; each with both clients."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any

import pytest

from raftsched.client import AsyncClient, Client
from raftsched.client.errors import (
    AlreadyExists,
    Conflict,
    InvalidArgument,
    NotFound,
    OutcomeUnknown,
    ResultMismatch,
    RunFailed,
    RunNotEnded,
)
from raftsched.client.sdk.policies import After, Concurrency, Misfire, Overlap, Retry, Timeouts
from raftsched.client.sdk.schedules import cron, every, once
from raftsched.client.sdk.specs import job_of
from raftsched.client.testing import Attempt
from raftsched.client.worker.context import entered
from raftsched.proto.v1 import access_pb2, common_pb2, dead_letter_pb2, job_pb2, run_pb2

from ..statemachine.driver import HOUR_MS, MINUTE_MS, Machine
from .stage import Stage

ALLOW = job_pb2.OverlapPolicy.RULE_ALLOW
MONDAY = datetime(2026, 1, 5, 9, tzinfo=UTC)


class Both:
    """One of the two clients: awaits what is to be awaited, makes lists of what is iterated."""

    def __init__(self, endpoints: str, kind: str) -> None:
        self._runner = asyncio.Runner() if kind == "async" else None
        made = AsyncClient if kind == "async" else Client
        self.client: Any = made(endpoints, timeout=10)

    def __call__(self, asked: Callable[[Any], Any]) -> Any:  # noqa: ANN401
        if self._runner is None:
            return _all(asked(self.client))
        return self._runner.run(_awaited(asked, self.client), context=copy_context())

    def close(self) -> None:
        self(lambda client: client.close())
        if self._runner is not None:
            self._runner.close()


def _all(answer: Any) -> Any:  # noqa: ANN401
    return list(answer) if isinstance(answer, Iterator) else answer


async def _awaited(asked: Callable[[Any], Any], client: Any) -> Any:  # noqa: ANN401
    answer = asked(client)
    if isinstance(answer, Awaitable):
        answer = await answer
    if isinstance(answer, AsyncIterator):
        return [item async for item in answer]
    return answer


@pytest.fixture(params=["sync", "async"])
def both(request: pytest.FixtureRequest, stage: Stage) -> Iterator[Both]:
    made = Both(stage.endpoints, request.param)
    yield made
    made.close()


def test_a_job_is_created_as_it_was_described(both: Both, stage: Stage) -> None:
    stage.act(lambda machine: machine.create("extract"))
    both(lambda client: client.calendars.create("holidays", ["12-25", date(2026, 6, 1), "sunday"]))

    job = both(
        lambda client: client.jobs.create(
            "report", handler="build", payload={"day": date(2026, 1, 5)}, owner="anna",
            schedule=[cron("*/5 * * * *", zone="Europe/Berlin"), once(MONDAY)], gap="skip",
            fold="both", start=MONDAY, end=MONDAY + timedelta(days=1), max_runs=7, jitter=30,
            exclude_calendars=["holidays"], after=After({"extract": "any_end"}, join="any"),
            queue="slow", priority="high", labels={"team": "a"}, description="a report",
            retry=Retry(5, first=2, factor=1.5, cap=60, jitter=0.2, fatal=["ValueError"], total=99),
            overlap=Overlap("queue", 3), misfire=Misfire("all", grace=5, maximum=9),
            timeouts=Timeouts(queue=1, attempt=2, run=3, heartbeat=4), delivery="at_most_once",
            concurrency=Concurrency(1, "database", 2), worker_labels={"gpu": "yes"},
            keep_history=timedelta(days=3), delete_after=60, pause_on_failure=5,
            on_failure="cleanup",
        )
    )  # fmt: skip

    spec = job.spec
    assert (spec.action.handler, spec.owner, spec.queue) == ("build", "anna", "slow")
    assert spec.payload.data == b'{"day":"2026-01-05"}'
    assert spec.payload.content_type == "application/json"
    assert spec.schedules[0].cron.expression == "*/5 * * * *"
    assert spec.schedules[1].once.time.seconds == MONDAY.timestamp()
    assert (spec.timing.zone, spec.timing.max_runs) == ("Europe/Berlin", 7)
    assert spec.timing.jitter.seconds == 30
    assert spec.timing.exclude_calendars == ["holidays"]
    assert spec.upstream.jobs[0].condition == job_pb2.Dependency.CONDITION_ANY_END
    assert spec.priority == common_pb2.PRIORITY_HIGH
    assert dict(spec.labels) == {"team": "a"}
    assert (spec.retry.max_attempts, spec.retry.factor_percent) == (5, 150)
    assert spec.retry.jitter_percent == 20
    assert (spec.overlap.rule, spec.overlap.limit) == (job_pb2.OverlapPolicy.RULE_QUEUE, 3)
    assert (spec.misfire.rule, spec.misfire.maximum) == (job_pb2.MisfirePolicy.RULE_ALL, 9)
    assert spec.timeouts.heartbeat.seconds == 4
    assert spec.delivery == job_pb2.DELIVERY_AT_MOST_ONCE
    assert spec.concurrency.key_limit == 2
    assert spec.keep_history.seconds == 3 * 86_400
    assert spec.delete_after.seconds == 60
    assert spec.pause_on_failure == 5
    assert spec.on_failure.job == "cleanup"


def test_a_job_is_got_listed_changed_and_deleted(both: Both, stage: Stage) -> None:
    for name in ("a", "b", "c"):
        stage.act(lambda machine, name=name: machine.create(name, cron="0 * * * *"))  # type: ignore[misc]

    job = both(lambda client: client.jobs.update("a", priority="low", jitter=20, etag="v1"))

    assert job.spec.priority == common_pb2.PRIORITY_LOW
    assert job.spec.schedules
    assert not both(lambda client: client.jobs.update("a", jitter=None)).spec.timing.HasField(
        "jitter"
    )
    with pytest.raises(Conflict) as caught:
        both(lambda client: client.jobs.update("a", priority="high", etag="v1"))
    assert caught.value.reason == "ETAG_MISMATCH"
    assert both(lambda client: client.jobs.get("a", stale=True)).name == "a"
    assert both(lambda client: client.jobs.status("a")).state == job_pb2.JobStatus.STATE_ACTIVE
    assert [job.name for job in both(lambda client: client.jobs.list())] == ["a", "b", "c"]
    assert [job.name for job in both(lambda client: client.jobs.list(limit=2))] == ["a", "b"]
    both(lambda client: client.jobs.delete("a"))
    with pytest.raises(NotFound):
        both(lambda client: client.jobs.get("a"))


def test_a_list_reads_all_pages(both: Both, stage: Stage) -> None:
    jobs = [job_of(f"job-{number:04}", handler="x") for number in range(1_050)]

    results = both(lambda client: client.jobs.import_(jobs))

    assert len(results) == 1_050
    assert all(one.verdict == job_pb2.ImportResult.VERDICT_CREATED for one in results)
    listed = both(lambda client: client.jobs.list())
    assert [job.name for job in listed] == [job.name for job in jobs]
    requests = [r for r in stage.nodes[0].heard if isinstance(r, job_pb2.ListJobsRequest)]
    assert len(requests) == 2


def test_an_import_is_cut_into_requests_that_fit(both: Both, stage: Stage) -> None:
    jobs = [job_of(f"job-{number}", handler="x", payload=b"x" * 60_000) for number in range(100)]

    results = both(lambda client: client.jobs.import_(jobs))

    assert [one.job for one in results] == [job.name for job in jobs]
    sizes = [request.ByteSize() for request in stage.nodes[0].heard]
    assert len(sizes) == 2
    assert max(sizes) <= 3 * 1024 * 1024


def test_an_import_says_what_became_of_each(both: Both) -> None:
    first = both(lambda client: client.jobs.import_([job_of("a", handler="x")], request_id="r"))
    again = both(lambda client: client.jobs.import_([job_of("a", handler="x")], request_id="r"))
    assert first == again

    job = job_of("a", handler="y")
    kept = both(lambda client: client.jobs.import_([job]))
    changed = both(lambda client: client.jobs.import_([job], replace=True))

    assert [one.reason for one in kept] == ["JOB_EXISTS"]
    assert [one.verdict for one in changed] == [job_pb2.ImportResult.VERDICT_UPDATED]


def test_a_job_is_paused_and_resumed(both: Both, stage: Stage) -> None:
    stage.act(lambda machine: machine.create("a", cron="0 * * * *"))

    paused = both(lambda client: client.jobs.pause("a", "repair", until=MONDAY))

    assert paused.status.pause_reason == "repair"
    assert paused.status.pause_until.seconds == MONDAY.timestamp()
    assert "repair" in both(lambda client: client.jobs.explain("a")).obstacles[0].message
    resumed = both(lambda client: client.jobs.resume("a"))
    assert resumed.status.state == job_pb2.JobStatus.STATE_ACTIVE


def test_occurrences_are_edited_and_previewed(both: Both, stage: Stage) -> None:
    stage.act(lambda machine: machine.create("a", cron="0 9 * * *"))

    both(lambda client: client.jobs.skip("a", MONDAY))
    both(lambda client: client.jobs.add("a", MONDAY + timedelta(hours=1)))
    moved = MONDAY + timedelta(days=1)
    both(lambda client: client.jobs.move("a", moved, moved + timedelta(minutes=5)))

    seen = both(lambda client: client.jobs.preview("a", start=MONDAY, count=3)).occurrences
    assert [one.excluded for one in seen] == [True, False, False]
    edits = both(lambda client: client.jobs.revert("a", MONDAY)).status.edits
    assert MONDAY.timestamp() not in [edit.scheduled_time.seconds for edit in edits]
    words = both(
        lambda client: client.jobs.preview(
            schedule=cron("30 2 * * *", zone="Europe/Berlin"),
            start=datetime(2026, 3, 28, 12, tzinfo=UTC), count=1,
        )
    )  # fmt: skip
    assert words.occurrences[0].local_time == "2026-03-29T03:00:00+02:00"


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_trigger_carries_labels_and_its_place_in_a_trace(both: Both, stage: Stage) -> None:
    stage.act(lambda machine: machine.create("a"))
    carrier = {"TraceParent": PARENT, "tracestate": "a=b", "baggage": "c=d"}
    run = both(lambda client: client.jobs.trigger("a", labels={"team": "x"}, trace_context=carrier))

    assert dict(run.message.labels) == {"team": "x"}
    assert run.message.trace_context.traceparent == PARENT
    assert run.message.trace_context.tracestate == "a=b"


def test_what_a_handler_triggers_is_in_the_trace_of_its_run(both: Both, stage: Stage) -> None:
    stage.act(lambda machine: machine.create("a"))
    with entered(Attempt(trace_context={"traceparent": PARENT}).context):
        inside = both(lambda client: client.jobs.trigger("a"))
        alone = both(lambda client: client.jobs.trigger("a", trace_context={}))
    outside = both(lambda client: client.jobs.trigger("a"))

    assert inside.message.trace_context.traceparent == PARENT
    assert not alone.message.HasField("trace_context")
    assert not outside.message.HasField("trace_context")


@dataclass
class Total:
    total: int


def test_a_run_is_waited_for_and_its_result_is_typed(both: Both, stage: Stage) -> None:
    stage.act(lambda machine: machine.create("a"))
    run = both(lambda client: client.jobs.trigger("a", payload=b"now", unique_key="k"))

    with pytest.raises(RunNotEnded):
        both(lambda client: run.wait(0.05))
    stage.finish(b'{"total": 3}')

    assert both(lambda client: run.wait(5)).state == "SUCCEEDED"
    assert both(lambda client: run.result()) == b'{"total": 3}'
    run.message.result.content_type = "application/json"
    assert both(lambda client: run.result(Total)) == Total(3)
    with pytest.raises(ResultMismatch, match=r"cannot be read as .*str.*: Expected `str`"):
        both(lambda client: run.result(str))
    assert both(lambda client: client.runs.get(run.id)).message.payload.data == b"now"
    assert [one.id for one in both(lambda client: client.jobs.history("a"))] == [run.id]


def test_a_run_that_failed_says_why(both: Both, stage: Stage) -> None:
    def fail(machine: Machine) -> None:
        machine.create("a", retry=job_pb2.RetryPolicy(max_attempts=1))
        machine.trigger("a")
        [lease] = machine.grant()
        machine.fail(lease, "Broken", message="no paper")

    stage.act(fail)
    [run] = both(lambda client: client.dead.list())

    with pytest.raises(RunFailed, match="Broken: no paper") as caught:
        both(lambda client: run.result())

    assert caught.value.run.state == run_pb2.RUN_STATE_FAILED
    assert both(lambda client: client.dead.get(run.id)).id == run.id
    both(lambda client: client.dead.edit(run.id, {"paper": 1}))
    assert both(lambda client: client.dead.requeue(run.id)).state == "PENDING"
    assert both(lambda client: client.dead.purge()) == 0
    assert both(lambda client: client.dead.requeue_all("job=a")) == 0


def test_dead_letters_are_requeued_until_none_is_left(both: Both, stage: Stage) -> None:
    for answer in ((1_000, True), (5, False)):
        made = dead_letter_pb2.RequeueDeadLettersResponse(requeued=answer[0], more=answer[1])
        stage.nodes[0].faults.append(lambda node, request, context, answer, made=made: made)  # type: ignore[misc]

    assert both(lambda client: client.dead.requeue_all("job=a", request_id="r")) == 1_005

    heard = stage.nodes[0].heard
    assert [(one.filter, one.request_id) for one in heard] == [("job=a", "r.0"), ("job=a", "r.1")]  # type: ignore[attr-defined]


def test_a_unique_key_returns_the_run_that_holds_it(both: Both, stage: Stage) -> None:
    stage.act(lambda machine: machine.create("a", overlap=job_pb2.OverlapPolicy(rule=ALLOW)))

    first = both(lambda client: client.jobs.trigger("a", unique_key="k", hold=60))
    second = both(lambda client: client.jobs.trigger("a", unique_key="k"))

    assert first.id == second.id
    with pytest.raises(AlreadyExists):
        both(lambda client: client.jobs.trigger("a", unique_key="k", when_taken="reject"))


def test_runs_are_ended_and_explained(both: Both, stage: Stage) -> None:
    stage.act(lambda machine: machine.create("a", overlap=job_pb2.OverlapPolicy(rule=ALLOW)))
    one, two = (both(lambda client: client.jobs.trigger("a")) for _ in range(2))

    assert [run.id for run in both(lambda client: client.runs.list())] == [two.id, one.id]
    assert both(lambda client: client.runs.explain(one.id)).summary
    assert both(lambda client: one.cancel("enough")).state == "CANCELLED"
    assert both(lambda client: client.runs.terminate(two.id)).ended
    with pytest.raises(Conflict) as caught:
        both(lambda client: client.runs.retry(two.id))
    assert caught.value.reason == "RUN_ENDED"
    assert both(lambda client: client.runs.wait(one.id, 1)).ended
    assert both(lambda client: two.refresh()).state == "CANCELLED"


def test_the_ledger_is_listed_and_audited(both: Both, stage: Stage) -> None:
    def fire(machine: Machine) -> None:
        machine.create("a", cron="0 * * * *", overlap=job_pb2.OverlapPolicy(rule=ALLOW))
        for _ in range(3):
            machine.advance(HOUR_MS)
            machine.fire()

    stage.act(fire)

    assert len(both(lambda client: client.jobs.ledger("a"))) == 3
    assert both(lambda client: client.jobs.audit("a")).sound
    assert both(lambda client: client.jobs.forecast(timedelta(hours=2))).minutes


def test_a_past_range_is_filled(both: Both, stage: Stage) -> None:
    def late(machine: Machine) -> None:
        machine.create("a", cron="0 * * * *")
        machine.advance(5 * MINUTE_MS)

    stage.act(late)
    start = datetime(2025, 12, 31, tzinfo=UTC)

    answer = both(lambda client: client.jobs.backfill("a", start, start + timedelta(hours=3)))

    assert answer.planned == 3


def test_queues_namespaces_and_calendars_are_set(both: Both) -> None:
    queue = both(lambda client: client.queues.update("mail", concurrency=3, rate=10))
    assert (queue.concurrency, queue.rate) == (3, 10)
    assert both(lambda client: client.queues.update("mail", rate=0)).concurrency == 3
    assert both(lambda client: client.queues.pause("mail", "no")).paused
    assert not both(lambda client: client.queues.resume("mail")).paused
    assert both(lambda client: client.queues.get("mail")).name == "mail"
    assert "mail" in [one.name for one in both(lambda client: client.queues.list())]

    shop = both(lambda client: client.namespaces.create("shop", jobs=5, keep_failed=3600))
    assert (shop.quota.jobs, shop.keep_failed.seconds) == (5, 3600)
    assert both(lambda client: client.namespaces.update("shop", jobs=None)).quota.jobs == 0
    assert both(lambda client: client.namespaces.get("shop")).name == "shop"
    assert len(both(lambda client: client.namespaces.list())) == 2
    both(lambda client: client.namespaces.delete("shop"))

    both(lambda client: client.calendars.create("c", [(date(2026, 1, 1), date(2026, 1, 6))]))
    changed = both(lambda client: client.calendars.update("c", days=["monday"], zone="Asia/Tokyo"))
    assert (changed.rules[0].weekday, changed.zone) == (1, "Asia/Tokyo")
    assert both(lambda client: client.calendars.get("c")).rules == changed.rules
    assert len(both(lambda client: client.calendars.list())) == 1
    both(lambda client: client.calendars.delete("c"))


def test_flows_and_graphs_are_shown(both: Both, stage: Stage) -> None:
    def wave(machine: Machine) -> None:
        machine.create("extract")
        machine.create("load", after=["extract"])
        machine.trigger("extract")
        for lease in machine.grant():
            machine.succeed(lease)

    stage.act(wave)

    [flow] = both(lambda client: client.flows.list())
    assert [step.job for step in flow.steps] == ["extract", "load"]
    assert both(lambda client: client.flows.get(flow.id)) == flow
    assert both(lambda client: client.flows.graph("load")).jobs == ["extract", "load"]


def test_changes_are_recorded(both: Both) -> None:
    both(lambda client: client.jobs.create("a", handler="x", request_id="mine"))

    [record] = both(lambda client: client.access.records("subject=job/a"))

    assert (record.method, record.request_id) == ("CreateJob", "mine")


def test_a_secret_that_was_lost_with_its_answer_is_told(both: Both, stage: Stage) -> None:
    made = access_pb2.CreateAccessTokenResponse(secret="s")
    stage.nodes[0].faults.append(lambda node, request, context, answer: made)
    assert both(lambda client: client.access.create_token("ci", "worker")).secret == "s"

    lost = access_pb2.CreateAccessTokenResponse()
    stage.nodes[0].faults.append(lambda node, request, context, answer: lost)
    with pytest.raises(OutcomeUnknown, match="revoke it"):
        both(lambda client: client.access.create_token("ci", "worker"))


def test_a_trial_changes_nothing(both: Both, stage: Stage) -> None:
    job = both(lambda client: client.jobs.create("a", handler="x", validate_only=True))

    assert job.name == "a"
    assert not stage.machine.log


def test_a_namespace_can_be_named_for_one_call(both: Both) -> None:
    both(lambda client: client.namespaces.create("shop"))

    job = both(lambda client: client.jobs.create("a", handler="x", namespace="shop"))

    assert job.namespace == "shop"
    assert both(lambda client: client.jobs.list()) == []
    assert both(lambda client: client.jobs.get("a", namespace="shop")) == job


def test_past_events_are_listed_page_by_page(both: Both, stage: Stage) -> None:
    for number in range(3):
        stage.act(lambda machine, number=number: machine.create(f"job-{number}"))  # type: ignore[misc]

    events = both(lambda client: client.events.list(limit=2))
    rest = both(lambda client: client.events.list(after=events[-1].revision))

    assert [event.job for event in events] == ["job-0", "job-1"]
    assert [event.job for event in rest] == ["job-2"]


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (
            lambda jobs: jobs.create("a", handler="x", http="http://a"),
            "'http' repeats another option",
        ),
        (lambda jobs: jobs.create("a", handler="x", nonsense=1), "no option 'nonsense'"),
        (lambda jobs: jobs.create("a", handler="x", priority="top"), "'high', 'medium', 'low'"),
        (lambda jobs: jobs.create("a", shell="ls -l"), "as a list"),
        (lambda jobs: jobs.create("a", handler="x", payload={1, object()}), "is no JSON"),
        (lambda jobs: jobs.create("a", handler="x", start=datetime(2026, 1, 1)), "no time zone"),  # noqa: DTZ001
        (
            lambda jobs: jobs.create(
                "a", handler="x", schedule=[cron("@daily", zone="UTC"), cron("@daily", zone="CET")]
            ),
            "a job has one zone",
        ),
        (lambda jobs: jobs.update("a"), "no field is named to change"),
    ],
)
def test_what_makes_no_sense_is_refused_before_it_is_sent(
    both: Both, stage: Stage, wrong: Callable[[Any], Any], what: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=what):
        both(lambda client: wrong(client.jobs))

    assert not stage.nodes[0].heard


def test_all_wrong_fields_come_at_once(both: Both) -> None:
    with pytest.raises(InvalidArgument) as caught:
        both(lambda client: client.jobs.create("A", handler="x", schedule=every(0.001)))

    assert len(caught.value.faults) == 2


def test_both_clients_have_the_same_methods() -> None:
    blocking, asynchronous = Client(), AsyncClient()
    names = [name for name, what in vars(Client).items() if isinstance(what, cached_property)]

    assert len(names) == 14
    assert _methods(blocking) == _methods(asynchronous)
    for name in names:
        one, other = getattr(blocking, name), getattr(asynchronous, name)
        assert _methods(one) == _methods(other)
    blocking.close()


def _methods(service: object) -> set[str]:
    return {
        f"{name}({', '.join(inspect.signature(method).parameters)})"
        for name, method in inspect.getmembers(service, callable)
        if not name.startswith("_")
    }


def test_all_that_fit_a_filter_are_changed(both: Both, stage: Stage) -> None:
    for name in ("a-1", "a-2", "b"):
        stage.act(lambda machine, name=name: machine.create(name))  # type: ignore[misc]
    stage.act(lambda machine: machine.create("c", after=["b"]))

    trial = both(lambda client: client.jobs.change_all("delete", "", validate_only=True))
    assert (trial.matched, trial.matched_is_exact, trial.failed) == (4, True, 1)
    done = both(lambda client: client.jobs.change_all("pause", "name=a*", "end", request_id="x"))
    assert (done.changed, list(done.sample)) == (2, ["a-1", "a-2"])
    again = both(lambda client: client.jobs.change_all("pause", "name=a*", "end", request_id="x"))
    assert again == done
    assert both(lambda client: client.jobs.change_all("trigger", "name=b OR name=c")).changed == 2
    ended = both(lambda client: client.runs.change_all("cancel", "job=b OR job=c", "wrong"))
    assert ended.changed == 2
    assert stage.machine.live("b") == []


def test_lists_are_counted(both: Both, stage: Stage) -> None:
    for name in ("b", "a"):
        stage.act(lambda machine, name=name: machine.create(name))  # type: ignore[misc]
    stage.act(lambda machine: machine.trigger("a"))

    assert both(lambda client: client.jobs.count()) == (2, True)
    assert both(lambda client: client.jobs.count("name=a")) == (1, True)
    assert both(lambda client: client.runs.count("job=a OR job=b")).number == 1
    assert both(lambda client: client.dead.count()).number == 0
    made = both(lambda client: client.jobs.list(order_by="create_time"))
    assert [job.name for job in made] == ["b", "a"]


def test_runs_are_listed_in_an_order(both: Both, stage: Stage) -> None:
    stage.act(lambda machine: machine.create("a", overlap=job_pb2.OverlapPolicy(rule=ALLOW)))
    for _ in range(3):
        stage.act(lambda machine: machine.advance(1))
        stage.act(lambda machine: machine.trigger("a"))

    first = both(lambda client: client.runs.list(order_by="scheduled_time"))
    last = both(lambda client: client.runs.list(order_by="scheduled_time desc"))
    assert [run.id for run in first] == [run.id for run in last][::-1]
    assert len(first) == 3
