"""Request ids, dry runs, etags, quotas: what holds for many requests alike."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from raftsched.proto.v1 import common_pb2, job_pb2, namespace_pb2, run_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.instants import timestamp
from raftsched.statemachine.core.rejection import Rejection
from raftsched.statemachine.machine import Request, apply, decide
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.view import Recall, View

from .driver import Machine, image, job_of, with_mask

Create = job_pb2.CreateJobRequest


def test_a_request_id_gets_its_first_answer_again(machine: Machine) -> None:
    request = Create(job=job_of("a"), request_id="r")
    first = machine.do(request)
    machine.do(job_pb2.PauseJobRequest(job="a"))
    before = image(machine.store)

    again = machine.do(request)

    assert again == first
    assert image(machine.store) == before


def test_the_same_request_twice_in_one_change_is_done_once(machine: Machine) -> None:
    request = job_pb2.TriggerJobRequest(job="a", request_id="r", force=True)
    machine.create("a")

    first, second = machine.do_all(request, request)

    assert first == second
    assert len(machine.live("a")) == 1


def test_a_request_id_cannot_be_used_for_another_request(machine: Machine) -> None:
    machine.do(Create(job=job_of("a"), request_id="r"))

    for other in (Create(job=job_of("b"), request_id="r"),
                  job_pb2.PauseJobRequest(job="a", request_id="r")):  # fmt: skip
        assert machine.refused(other).word == "REQUEST_ID_REUSED"


def test_a_request_that_is_repeated_in_another_trace_is_the_same(machine: Machine) -> None:
    machine.create("a")

    def asked(span: int) -> list[Message]:
        place = run_pb2.TraceContext(traceparent=f"00-{'1' * 32}-{span:016x}-01")
        one = job_pb2.Trigger(job="a", trace_context=place)
        return [
            job_pb2.TriggerJobRequest(job="a", request_id="one", trace_context=place),
            job_pb2.TriggerJobsRequest(triggers=[one, one], request_id="many"),
        ]

    first = [machine.do(request) for request in asked(1)]
    assert [machine.do(request) for request in asked(2)] == first
    other = job_pb2.TriggerJobRequest(job="a", request_id="one", queue="other")
    assert machine.refused(other).word == "REQUEST_ID_REUSED"


def test_each_namespace_has_request_ids_of_its_own(machine: Machine) -> None:
    other = namespace_pb2.Namespace(name="other")
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=other))
    machine.do(Create(job=job_of("a"), request_id="order-1"))

    theirs = job_of("a")
    theirs.namespace = "other"

    made = machine.do(Create(job=theirs, request_id="order-1"))

    assert isinstance(made, job_pb2.Job)
    assert made.namespace == "other"
    batch = job_pb2.ImportJobsRequest(request_id="order-1")
    batch.jobs.append(theirs)
    assert machine.refused(batch).word == "REQUEST_ID_REUSED"


def test_a_refusal_is_not_remembered(machine: Machine) -> None:
    request = job_pb2.PauseJobRequest(job="a", request_id="r")
    assert machine.refused(request).word == "JOB_NOT_FOUND"
    machine.create("a")

    assert isinstance(machine.do(request), job_pb2.Job)


def test_answers_are_remembered_for_their_time_and_then_forgotten(machine: Machine) -> None:
    machine.create("a")
    machine.do(job_pb2.PauseJobRequest(job="a", request_id="old"))
    machine.advance(limits.IDEMPOTENCY_MS - 1)
    machine.do(job_pb2.ResumeJobRequest(job="a", request_id="new-1"))
    assert remembered(machine) == 2

    machine.advance(1)
    machine.do(job_pb2.PauseJobRequest(job="a", request_id="new-2"))

    assert remembered(machine) == 2


def test_answers_are_bounded_in_number(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "IDEMPOTENCY", 3)
    machine.create("a")

    for number in range(10):
        machine.do(job_pb2.PauseJobRequest(job="a", request_id=f"r{number}"))

    assert remembered(machine) == 3


def remembered(machine: Machine) -> int:
    return sum(1 for key in image(machine.store) if key[:1] == keys.IDEMPOTENCY)


def test_a_dry_run_answers_and_changes_nothing(machine: Machine) -> None:
    before = image(machine.store)

    reply = machine.do(Create(job=job_of("a", cron="* * * * *"), validate_only=True))

    assert isinstance(reply, job_pb2.Job)
    assert reply.status.HasField("next_scheduled_time")
    assert image(machine.store) == before
    assert machine.refused(Create(job=job_of("B"), validate_only=True)).word == "FIELD_INVALID"


def test_an_old_etag_is_refused(machine: Machine) -> None:
    etag = machine.create("a").etag
    machine.do(job_pb2.PauseJobRequest(job="a", etag=etag))

    refusal = machine.refused(job_pb2.ResumeJobRequest(job="a", etag=etag))

    assert refusal.word == "ETAG_MISMATCH"
    assert refusal.values == {"etag": "v1", "current": "v2"}


def test_quotas_are_met_exactly(machine: Machine) -> None:
    quota = namespace_pb2.Quota(jobs=2, payload_bytes=10, live_runs=1)
    settings = namespace_pb2.Namespace(name="n", quota=quota)
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=settings))

    def job(name: str, size: int) -> Create:
        wanted = job_of(name, namespace="n", payload=common_pb2.Payload(data=b"x" * size))
        return Create(job=wanted)

    machine.do(job("a", 6))
    assert machine.refused(job("b", 5)).values["quota"] == "payload_bytes"
    machine.do(job("b", 4))
    assert machine.refused(job("c", 0)).values["quota"] == "jobs"
    machine.trigger("a", namespace="n")
    trigger = job_pb2.TriggerJobRequest(namespace="n", job="b")
    assert machine.refused(trigger).values["quota"] == "live_runs"


def test_the_clock_never_runs_backwards(machine: Machine) -> None:
    machine.create("a")
    machine.advance(10_000)
    run = machine.trigger("a")
    machine.advance(-9_000)

    [lease] = machine.grant()

    assert lease.token
    assert machine.run(run.id).start_time == run.ready_time


def test_all_wrong_fields_are_named_at_once(machine: Machine) -> None:
    job = job_of("No Name", cron=["61 * * * *", "* * * * *"])
    job.spec.priority = 9  # type: ignore[assignment]
    job.spec.timing.zone = "Europe/Berln"

    refusal = machine.refused(Create(job=job))

    assert {fault.field for fault in refusal.faults} == {
        "name", "spec.priority", "spec.timing.zone", "spec.schedules[0].cron.expression",
    }  # fmt: skip
    assert "'no-name' would do" in refusal.message
    assert "Europe/Berlin" in refusal.message


def test_an_import_takes_what_is_right_and_says_what_is_wrong(machine: Machine) -> None:
    machine.create("old", cron="* * * * *")
    request = job_pb2.ImportJobsRequest(
        jobs=[job_of("new"), job_of("old", cron="* * * * *"), job_of("X"), job_of("new")],
        mode=job_pb2.ImportJobsRequest.MODE_UPSERT,
    )

    reply = machine.ask(request, job_pb2.ImportJobsResponse)

    verdicts = [job_pb2.ImportResult.Verdict.Name(r.verdict)[8:] for r in reply.results]
    assert verdicts == ["CREATED", "UNCHANGED", "REFUSED", "UNCHANGED"]
    assert (reply.results[2].reason, reply.results[2].field) == ("FIELD_INVALID", "name")


def test_an_import_names_what_it_changed(machine: Machine) -> None:
    machine.create("a", cron="* * * * *", owner="anna")
    other = job_of("a", cron="1 * * * *", owner="anna", labels={"x": "1"})
    other.spec.timing.zone = "Asia/Tokyo"
    other.spec.timing.jitter.FromSeconds(9)
    other.spec.retry.SetInParent()
    upsert = job_pb2.ImportJobsRequest(jobs=[other], mode=job_pb2.ImportJobsRequest.MODE_UPSERT)

    [result] = machine.ask(upsert, job_pb2.ImportJobsResponse).results

    assert list(result.changed_paths) == [
        "spec.labels",
        "spec.schedules",
        "spec.timing",
        "spec.retry",
    ]
    upsert.jobs[0].spec.timing.zone = "Asia/Seoul"
    upsert.jobs[0].spec.timing.jitter.FromMilliseconds(500)
    [deeper] = machine.ask(upsert, job_pb2.ImportJobsResponse).results
    assert list(deeper.changed_paths) == ["spec.timing.zone", "spec.timing.jitter"]
    assert len(machine.job("a").spec.schedules) == 1


def test_an_import_with_an_old_etag_is_refused(machine: Machine) -> None:
    job = machine.create("a", owner="anna")
    machine.do(with_mask("spec.owner", name="a", owner="bert"))
    job.spec.owner = "carl"
    upsert = job_pb2.ImportJobsRequest(jobs=[job], mode=job_pb2.ImportJobsRequest.MODE_UPSERT)

    [old] = machine.ask(upsert, job_pb2.ImportJobsResponse).results
    upsert.jobs[0].etag = machine.job("a").etag
    [current] = machine.ask(upsert, job_pb2.ImportJobsResponse).results

    assert old.reason == "ETAG_MISMATCH"
    assert current.verdict == job_pb2.ImportResult.VERDICT_UPDATED


def test_a_mask_changes_what_it_names_and_nothing_else(machine: Machine) -> None:
    machine.create("a", cron="* * * * *", owner="anna", labels={"x": "1"})

    changed = machine.ask(with_mask("spec.owner", name="a", owner="bert"), job_pb2.Job)
    cleared = machine.ask(with_mask("spec.labels", name="a"), job_pb2.Job)

    assert (changed.spec.owner, dict(changed.spec.labels)) == ("bert", {"x": "1"})
    assert (cleared.spec.owner, dict(cleared.spec.labels)) == ("bert", {})
    assert len(cleared.spec.schedules) == 1
    for path in ("spec.ownr", "status.fired", "spec.owner.x"):
        assert machine.refused(with_mask(path, name="a")).word == "MASK_INVALID"


def test_a_unique_key_returns_rejects_or_replaces(machine: Machine) -> None:
    machine.create("a", overlap=job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW))
    Unique = run_pb2.UniqueKey
    first = machine.trigger("a", unique=Unique(key="k"))

    again = machine.trigger("a", unique=Unique(key="k"))
    reject = Unique(key="k", policy=Unique.POLICY_REJECT)
    refusal = machine.refused(job_pb2.TriggerJobRequest(job="a", unique=reject))
    replace = Unique(key="k", policy=Unique.POLICY_REPLACE)
    other = machine.trigger("a", unique=replace)

    assert again.id == first.id
    assert (refusal.word, refusal.values["run"]) == ("UNIQUE_KEY_TAKEN", first.id)
    assert other.id != first.id
    assert machine.run(first.id).state == run_pb2.RUN_STATE_CANCELLED


def test_a_run_triggered_for_later_stands_in_nobodys_way(machine: Machine) -> None:
    machine.create("a")
    later = machine.trigger("a", due_time=timestamp(machine.now_ms + 60_000))

    now = machine.trigger("a")
    [lease] = machine.grant()
    assert lease.run == now.id
    machine.succeed(lease)
    assert machine.grant() == []

    machine.advance(60_000)
    machine.fire()
    assert [x.run for x in machine.grant()] == [later.id]


def test_recalled_records_give_the_same_changes_as_stored_ones(machine: Machine) -> None:
    """A leader that keeps records between decisions decides as one that does not, also when some
    of its decisions are dropped."""
    recall = Recall(most=3)
    machine.create("a", cron="* * * * *", every_ms=7_000)
    for step in range(60):
        machine.advance(3_500)
        dropped = View(machine.store, machine.now_ms, recall)
        decide(dropped, [Request(job_pb2.TriggerJobRequest(job="a", force=True))])
        body: object = job_pb2.TriggerJobRequest(job="a", force=step % 3 == 0)
        view = View(machine.store, machine.now_ms, recall)
        recalled = decide(view, [Request(body)])
        fresh = machine.decide(body)
        assert recalled.change == fresh.change
        assert isinstance(recalled.replies[0], run_pb2.Run | Rejection)
        if recalled.change:
            machine.index += 1
            apply(machine.store, machine.index, recalled.change)
            recall.keep(view)
        assert len(recall) <= 3
        machine.fire()
