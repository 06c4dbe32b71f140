"""Who may work on a run, and whose word counts."""

from __future__ import annotations

from typing import cast

import pytest
from google.protobuf.duration_pb2 import Duration

from raftsched.proto.v1 import (
    common_pb2,
    dead_letter_pb2,
    job_pb2,
    namespace_pb2,
    queue_pb2,
    run_pb2,
    worker_pb2,
)
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.instants import duration
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.request import Note, Offer, Report

from .driver import MINUTE_MS, Machine, image, job_of, with_mask

ALLOW = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
LOST = "LEASE_LOST"
REPORTED = "ALREADY_REPORTED"
MINUTE = duration(MINUTE_MS)
Result = worker_pb2.Result
Verdict = job_pb2.ImportResult
Limit = job_pb2.ConcurrencyLimit
SHARED = Limit(key="db", key_limit=1)


def test_a_lapsed_token_cannot_complete_a_run(machine: Machine) -> None:
    machine.create("a")
    machine.trigger("a")
    [first] = machine.grant("w1")
    machine.lapse("w1")
    [second] = machine.grant("w2")
    before = image(machine.store)

    ack = machine.succeed(first)

    assert ack.reason == LOST
    assert f"its last token {second.token}" in ack.message
    assert image(machine.store) == before
    assert machine.run(first.run).worker == "w2"


def test_a_late_word_is_told_how_the_run_ended(machine: Machine) -> None:
    machine.create("a")
    machine.trigger("a")
    [lease] = machine.grant("w1")
    machine.succeed(lease)

    said = machine.note(lease)
    more = machine.refused(worker_pb2.ExtendRequest(run=lease.run, token=lease.token, by=MINUTE))
    stranger = machine.refused(worker_pb2.ExtendRequest(run="a.99.5", token=1, by=MINUTE))

    assert said.reason == LOST
    assert f"the run is SUCCEEDED, its last token {lease.token}" in said.message
    assert (more.word, more.values["state"]) == (LOST, "SUCCEEDED")
    assert stranger.word == "RUN_NOT_FOUND"


@pytest.mark.parametrize("word", ["succeed", "fail", "release", "note"])
def test_no_word_with_an_old_token_changes_anything(machine: Machine, word: str) -> None:
    machine.create("a")
    machine.trigger("a")
    [first] = machine.grant("w1")
    machine.lapse("w1")
    machine.grant("w2")
    before = image(machine.store)

    ack = getattr(machine, word)(first)

    assert ack.reason == LOST
    assert image(machine.store) == before


def test_an_old_token_cannot_ask_for_more_time(machine: Machine) -> None:
    machine.create("a", timeouts=job_pb2.Timeouts(attempt=duration(MINUTE_MS)))
    machine.trigger("a")
    [first] = machine.grant("w1")
    machine.lapse("w1")
    machine.grant("w2")

    refusal = machine.refused(
        worker_pb2.ExtendRequest(run=first.run, token=first.token, by=Duration(seconds=60))
    )

    assert refusal.word == LOST


def test_a_result_that_was_recorded_is_acknowledged_again(machine: Machine) -> None:
    machine.create("a")
    machine.trigger("a")
    [lease] = machine.grant()
    machine.succeed(lease, b"42", warning="look")
    before = image(machine.store)

    # What is cut off or lies together is not compared.
    assert not machine.succeed(lease, b"42", b"another log", warning="look").reason
    for other in (
        machine.succeed(lease, b"43", warning="look"),
        machine.succeed(lease, warning="look"),
        machine.succeed(lease, b"42"),
        machine.fail(lease),
        machine.release(lease),
    ):
        assert other.reason == REPORTED
        assert "was recorded as SUCCEEDED, and this report says otherwise" in other.message

    assert image(machine.store) == before
    assert machine.run(lease.run).result.data == b"42"


def test_a_call_with_another_result_names_what_was_recorded(machine: Machine) -> None:
    machine.create("a", retry=job_pb2.RetryPolicy(max_attempts=1))
    run = machine.trigger("a")
    [lease] = machine.grant()
    failure = worker_pb2.Failure(error=run_pb2.RunError(kind="Oh"))
    request = worker_pb2.FailRequest(run=run.id, token=lease.token, failure=failure)
    machine.do(request)
    machine.do(request)

    other = worker_pb2.CompleteRequest(run=run.id, token=lease.token)
    refused = machine.refused(other)
    assert (refused.word, refused.values) == (REPORTED, {
        "run": run.id, "token": str(lease.token), "recorded": "FAILED", "state": "FAILED",
    })  # fmt: skip
    request.failure.error.kind = "Ah"
    assert machine.refused(request).word == REPORTED


def test_a_failure_that_was_recorded_is_acknowledged_again(machine: Machine) -> None:
    machine.create("a")
    machine.trigger("a")
    [lease] = machine.grant()
    machine.fail(lease)
    before = image(machine.store)

    assert not machine.fail(lease).reason
    for other in (machine.succeed(lease), machine.fail(lease, "Other"), machine.release(lease)):
        assert other.reason == REPORTED
        assert "was recorded as FAILED, and this report says otherwise" in other.message
    assert image(machine.store) == before


def test_tokens_grow_with_every_lease(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW)
    tokens = []
    for _ in range(3):
        machine.trigger("a")
        tokens += [lease.token for lease in machine.grant()]
        machine.lapse("w1")
        tokens += [lease.token for lease in machine.grant("w2")]

    assert tokens == sorted(set(tokens))


def test_a_lapse_counts_as_an_attempt_and_the_run_goes_back_at_once(machine: Machine) -> None:
    machine.create("a")
    machine.trigger("a")
    [first] = machine.grant("w1")

    machine.lapse("w1")
    [second] = machine.grant("w2")

    assert (first.attempt, second.attempt) == (1, 2)
    assert [a.end for a in machine.run(first.run).attempts] == [
        run_pb2.Attempt.END_LAPSED,
        run_pb2.Attempt.END_UNSPECIFIED,
    ]


def test_a_run_given_back_keeps_its_attempt_and_its_turn(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW)
    first = machine.trigger("a")
    machine.advance(1)
    machine.trigger("a")
    [lease] = machine.grant(credits=1)
    machine.advance(1)

    machine.release(lease, checkpoint=b"half")
    [again] = machine.grant(credits=1)

    assert (again.run, again.attempt, again.checkpoint) == (first.id, 1, b"half")
    assert again.token > lease.token


def test_a_run_given_back_with_a_delay_waits(machine: Machine) -> None:
    machine.create("a")
    machine.trigger("a")
    [lease] = machine.grant()
    machine.release(lease, delay_ms=5_000)

    machine.advance(4_999)
    machine.fire()
    assert machine.grant() == []

    machine.advance(1)
    machine.fire()
    assert len(machine.grant()) == 1


def test_at_most_once_means_no_attempt_after_a_lease(machine: Machine) -> None:
    machine.create("a", delivery=job_pb2.DELIVERY_AT_MOST_ONCE)
    machine.trigger("a")
    [lease] = machine.grant("w1")

    machine.lapse("w1")

    run = machine.run(lease.run)
    assert run.state == run_pb2.RUN_STATE_FAILED
    assert run.error.kind == "lapsed"


def test_an_attempt_that_takes_too_long_ends_and_is_tried_again(machine: Machine) -> None:
    machine.create("a", timeouts=job_pb2.Timeouts(attempt=duration(MINUTE_MS)))
    machine.trigger("a")
    [lease] = machine.grant()

    machine.advance(MINUTE_MS)
    machine.fire()

    run = machine.run(lease.run)
    assert run.state == run_pb2.RUN_STATE_RETRYING
    assert run.error.kind == "timeout.attempt"
    assert machine.succeed(lease).reason == LOST


def test_more_time_moves_the_deadline(machine: Machine) -> None:
    machine.create("a", timeouts=job_pb2.Timeouts(attempt=duration(MINUTE_MS)))
    machine.trigger("a")
    [lease] = machine.grant()
    machine.do(
        worker_pb2.ExtendRequest(run=lease.run, token=lease.token, by=duration(2 * MINUTE_MS))
    )

    machine.advance(MINUTE_MS)
    machine.fire()

    assert not machine.succeed(lease).reason


def test_more_time_is_never_less_time(machine: Machine) -> None:
    machine.create("a", timeouts=job_pb2.Timeouts(attempt=duration(5 * MINUTE_MS)))
    machine.create("b")
    machine.trigger("a")
    machine.trigger("b")
    leases = machine.grant()

    for lease in leases:
        machine.do(
            worker_pb2.ExtendRequest(run=lease.run, token=lease.token, by=duration(MINUTE_MS))
        )
    machine.advance(2 * MINUTE_MS)
    machine.fire()

    assert [machine.succeed(lease).reason for lease in leases] == ["", ""]


def test_a_silent_handler_is_given_up_and_one_that_reports_is_not(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW, timeouts=job_pb2.Timeouts(heartbeat=duration(MINUTE_MS)))
    machine.trigger("a")
    machine.trigger("a")
    loud, silent = machine.grant()
    machine.advance(MINUTE_MS - 1)
    machine.fire()
    machine.note(loud, 1, 2)

    machine.advance(1)
    machine.fire()

    assert machine.run(silent.run).error.kind == "timeout.heartbeat"
    assert not machine.succeed(loud).reason


def test_a_worker_gets_only_what_it_fits(machine: Machine) -> None:
    machine.create("gpu", worker_labels={"gpu": "yes"})
    machine.create("mail", handler="send-mail")
    machine.create("http", action=job_pb2.Action(http=job_pb2.HttpAction(url="http://x/")))
    machine.create("far", queue="far")
    for name in ("gpu", "mail", "http", "far"):
        machine.trigger(name)

    assert [x.job for x in machine.grant("plain")] == ["mail"]
    assert [x.job for x in machine.grant("wrong", labels={"gpu": "no"})] == []
    assert [x.job for x in machine.grant("right", labels={"gpu": "yes", "cpu": "8"})] == ["gpu"]
    assert [x.job for x in machine.grant("picky", handlers=["other"])] == []
    assert [x.job for x in machine.grant("caller", handlers=["http"])] == ["http"]
    assert [x.job for x in machine.grant("away", queues=("far",))] == ["far"]


def test_high_goes_first_and_waiting_makes_up_for_priority(machine: Machine) -> None:
    for name in ("HIGH", "MEDIUM", "LOW"):
        priority = common_pb2.Priority.Value(f"PRIORITY_{name}")
        machine.create(name.lower(), overlap=ALLOW, priority=priority)
    machine.trigger("low")
    machine.advance(60_000)
    machine.trigger("medium")
    machine.advance(60_001)
    machine.trigger("low")
    machine.trigger("medium")
    machine.trigger("high")

    assert [lease.job for lease in machine.grant()] == ["medium", "low", "high", "medium", "low"]


def test_a_queue_leases_no_more_than_its_concurrency(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW)
    machine.do(queue_pb2.UpdateQueueRequest(queue=queue_pb2.Queue(name="default", concurrency=2)))
    for _ in range(4):
        machine.trigger("a")

    first, _ = machine.grant()
    assert machine.grant() == []

    machine.succeed(first)
    assert len(machine.grant()) == 1


def test_a_paused_queue_leases_nothing(machine: Machine) -> None:
    machine.create("a")
    machine.trigger("a")
    machine.do(queue_pb2.PauseQueueRequest(queue="default", reason="repair"))
    assert machine.grant() == []

    machine.do(queue_pb2.ResumeQueueRequest(queue="default"))
    assert len(machine.grant()) == 1


def test_a_queue_leases_at_its_rate_and_saves_up_only_its_burst(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW)
    queue = queue_pb2.Queue(name="default", rate=2, burst=3)
    machine.do(queue_pb2.UpdateQueueRequest(queue=queue))
    for _ in range(12):
        machine.trigger("a")

    given = [len(machine.grant())]
    for wait_ms in (499, 1, 1_000, 3_600_000):
        machine.advance(wait_ms)
        given.append(len(machine.grant()))

    assert given == [3, 0, 1, 2, 3]


def share(machine: Machine, *names: str, limit: Limit = SHARED) -> list[worker_pb2.Lease]:
    """Jobs that share a key; a run of the first has its only slot, and more of all wait for it."""
    for name in names:
        machine.create(name, overlap=ALLOW, concurrency=limit)
    machine.trigger(names[0])
    leases = machine.grant()
    for name in names[1:]:
        for _ in range(3):
            machine.advance(1)
            machine.trigger(name)
    assert machine.grant() == []
    return leases


@pytest.mark.parametrize("paused", [True, False])
@pytest.mark.parametrize("limit", [SHARED, Limit(job=1)])
def test_a_free_slot_is_taken_whatever_other_queues_do(
    machine: Machine, limit: Limit, paused: bool
) -> None:
    machine.create("a", overlap=ALLOW, concurrency=limit)
    machine.trigger("a")
    [lease] = machine.grant()
    for queue in ("batch", "batch", "batch", "default"):
        machine.advance(1)
        machine.trigger("a", queue=queue)
    assert machine.grant(queues=("batch", "default")) == []
    served = ("batch", "default") if paused else ("default",)
    if paused:
        machine.do(queue_pb2.PauseQueueRequest(queue="batch"))

    machine.succeed(lease)

    [lease] = machine.grant(queues=served)
    machine.succeed(lease)
    machine.do(queue_pb2.ResumeQueueRequest(queue="batch"))
    assert len(machine.grant(queues=("batch",))) == 1


def test_a_raised_limit_of_a_key_lets_those_in_that_wait(machine: Machine) -> None:
    share(machine, "a", "b")
    wider = Limit(key="db", key_limit=3)

    machine.do(with_mask("spec.concurrency", name="b", concurrency=wider))

    assert len(machine.grant()) == 2


@pytest.mark.parametrize("limit", [Limit(), Limit(key="other", key_limit=9)])
def test_a_job_that_leaves_its_key_waits_for_it_no_more(machine: Machine, limit: Limit) -> None:
    [lease] = share(machine, "a", "b")

    machine.do(with_mask("spec.concurrency", name="b", concurrency=limit))

    leases = machine.grant()
    assert [found.job for found in leases] == ["b", "b", "b"]
    machine.trigger("a")
    assert machine.grant() == []
    machine.succeed(lease)
    assert [found.job for found in machine.grant()] == ["a"]


@pytest.mark.parametrize("limit", [None, Limit(), Limit(key="other", key_limit=9)])
def test_who_was_admitted_by_a_key_that_it_leaves_admits_the_next_one(
    machine: Machine, limit: Limit | None
) -> None:
    [lease] = share(machine, "a", "b", "c")
    machine.succeed(lease)
    machine.do(with_mask("spec.concurrency", name="b", concurrency=limit))

    leases = machine.grant()

    assert [found.job for found in leases] == ["b", "b", "b", "c"]


def test_who_was_admitted_by_a_key_and_waits_for_its_job_admits_the_next_one(
    machine: Machine,
) -> None:
    both = Limit(job=1, key="db", key_limit=2)
    machine.create("a", overlap=ALLOW, concurrency=Limit(key="db", key_limit=2))
    machine.create("b", overlap=ALLOW, concurrency=both)
    machine.trigger("a")
    machine.trigger("a")
    leases = machine.grant()
    for name in ("b", "b", "b", "b", "b", "b", "a"):
        machine.advance(1)
        machine.trigger(name)
    assert machine.grant() == []

    for lease in leases:
        machine.succeed(lease)

    assert [lease.job for lease in machine.grant()] == ["b", "a"]


def test_a_namespace_leases_no_more_than_its_quota(machine: Machine) -> None:
    quota = namespace_pb2.Quota(leases=2)
    machine.do(
        namespace_pb2.CreateNamespaceRequest(
            namespace=namespace_pb2.Namespace(name="small", quota=quota)
        )
    )
    machine.create("a", namespace="small", overlap=ALLOW)
    for _ in range(4):
        machine.trigger("a", namespace="small")

    leases = machine.grant(namespaces=("small",))
    assert len(leases) == 2

    machine.succeed(leases[0])
    assert len(machine.grant(namespaces=("small",))) == 1


def test_namespaces_share_workers_by_weight(machine: Machine) -> None:
    for name, weight in (("heavy", 300), ("light", 100)):
        settings = namespace_pb2.Namespace(name=name, weight=weight)
        machine.do(namespace_pb2.CreateNamespaceRequest(namespace=settings))
        machine.create("a", namespace=name, overlap=ALLOW)
        for _ in range(200):
            machine.trigger("a", namespace=name)

    leases = machine.grant(credits=200, namespaces=("heavy", "light"))

    heavy = sum(lease.namespace == "heavy" for lease in leases)
    assert 148 <= heavy <= 152


def test_a_namespace_that_was_idle_has_not_saved_its_turns_up(machine: Machine) -> None:
    for name in ("busy", "idle"):
        settings = namespace_pb2.Namespace(name=name)
        machine.do(namespace_pb2.CreateNamespaceRequest(namespace=settings))
        machine.create("a", namespace=name, overlap=ALLOW)
    for _ in range(900):
        machine.trigger("a", namespace="busy")
    for lease in machine.grant(credits=600, namespaces=("busy", "idle")):
        machine.succeed(lease)
    for _ in range(300):
        machine.trigger("a", namespace="idle")

    leases = machine.grant(credits=300, namespaces=("busy", "idle"))

    assert sum(lease.namespace == "busy" for lease in leases) >= 95


def test_workers_of_one_kind_share_what_there_is(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW)
    for _ in range(6):
        machine.trigger("a")

    given = machine.offer(Offer("w1", 10), Offer("w2", 10), Offer("w3", 1))

    assert [len(leases) for leases in given] == [3, 2, 1]


def test_no_worker_starves_others_with_other_skills(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW, handler="x")
    for _ in range(100):
        machine.trigger("a")

    given = machine.offer(Offer("w1", 100), Offer("w2", 100, handlers=frozenset({"x"})), most=100)

    assert [len(leases) for leases in given] == [50, 50]


def test_a_report_about_no_run_is_refused(machine: Machine) -> None:
    results = (
        worker_pb2.Result(run="a.1.5", token=1, success=worker_pb2.Success()),
        worker_pb2.Result(run="nonsense", token=1, success=worker_pb2.Success()),
    )

    acks = machine.ask(Report("w1", results), list)

    assert [ack.reason for ack in acks] == ["RUN_NOT_FOUND", "RUN_NOT_FOUND"]


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (Result(), "FIELD_INVALID"),
        (Result(success=worker_pb2.Success(result=common_pb2.Payload(data=b"x" * 65_537))),
         "PAYLOAD_TOO_LARGE"),
        (Result(success=worker_pb2.Success(result=common_pb2.Payload(content_type="x" * 129))),
         "LIMIT_EXCEEDED"),
        (Result(failure=worker_pb2.Failure(retry_after=Duration(seconds=-1))), "FIELD_INVALID"),
        (Result(failure=worker_pb2.Failure(retry_after=Duration(seconds=10**9))), "FIELD_INVALID"),
        (Result(given_back=worker_pb2.GivenBack(delay=Duration(seconds=-1))), "FIELD_INVALID"),
        (Result(given_back=worker_pb2.GivenBack(delay=Duration(seconds=10**9))), "FIELD_INVALID"),
        (Result(given_back=worker_pb2.GivenBack(checkpoint=b"x" * 16_385)), "LIMIT_EXCEEDED"),
    ],
)  # fmt: skip
def test_a_wrong_result_is_refused_and_the_lease_stands(
    machine: Machine, result: Result, reason: str
) -> None:
    machine.create("a")
    machine.trigger("a")
    [lease] = machine.grant()
    result.run, result.token = lease.run, lease.token
    before = image(machine.store)

    [ack] = cast("list[worker_pb2.ResultAck]", machine.do(Report("w1", (result,))))

    assert (ack.token, ack.reason) == (lease.token, reason)
    assert ack.message
    assert image(machine.store) == before
    assert not machine.succeed(lease).reason


def test_what_is_just_within_its_limit_is_taken(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW)
    for _ in range(2):
        machine.trigger("a")
    first, second = machine.grant()

    assert not machine.succeed(first, b"x" * 65_536).reason
    assert not machine.release(second, checkpoint=b"y" * 16_384).reason

    assert len(machine.run(first.run).result.data) == 65_536
    assert len(machine.run(second.run).checkpoint) == 16_384


def test_the_end_of_the_log_is_kept_as_it_grows(machine: Machine) -> None:
    machine.create("a")
    machine.trigger("a")
    [lease] = machine.grant()

    def tail(said: bytes) -> bytes:
        word = worker_pb2.ProgressReport(run=lease.run, token=lease.token, log_tail=said)
        machine.do(Note("w1", (word,)))
        return machine.run(lease.run).log_tail

    assert tail(b"one") == b"one"
    assert tail(b"") == b"one"
    assert tail(b"a" + b"z" * 16_384) == b"z" * 16_384
    assert not machine.succeed(lease).reason
    assert machine.run(lease.run).log_tail == b"z" * 16_384


def with_order(name: str, handler: str, data: bytes = b"") -> job_pb2.UpdateJobRequest:
    job = job_pb2.Job(name=name)
    job.spec.action.handler = handler
    job.spec.payload.data = data
    return job_pb2.UpdateJobRequest(job=job)


def orders(leases: list[worker_pb2.Lease]) -> list[tuple[str, bytes]]:
    return [(lease.action.handler, lease.payload.data) for lease in leases]


def test_a_run_keeps_the_action_and_payload_it_was_made_with(machine: Machine) -> None:
    machine.create("a", handler="h1", payload=common_pb2.Payload(data=b"1"), overlap=ALLOW)
    machine.trigger("a")
    machine.do(with_order("a", "h2", b"2"))
    machine.trigger("a")
    machine.do(with_order("a", "h2", b"3"))
    machine.trigger("a", payload=common_pb2.Payload(data=b"own"))
    machine.do(with_order("a", "h1", b"4"))
    machine.trigger("a")

    assert orders(machine.grant("w2", handlers=["h2"])) == [("h2", b"2"), ("h2", b"own")]
    assert orders(machine.grant("w1", handlers=["h1"])) == [("h1", b"1"), ("h1", b"4")]


def test_the_next_attempt_does_what_the_first_one_did(machine: Machine) -> None:
    machine.create("a", handler="h1", payload=common_pb2.Payload(data=b"1"))
    machine.trigger("a")
    [lease] = machine.grant(handlers=["h1"])
    machine.do(with_order("a", "h2", b"2"))
    machine.fail(lease, retry_after_ms=1_000)
    machine.advance(1_000)
    machine.fire()

    leases = machine.grant(handlers=["h1", "h2"])

    assert orders(leases) == [("h1", b"1")]
    assert leases[0].attempt == 2


def test_what_a_job_said_before_is_forgotten_with_the_last_run_of_it(machine: Machine) -> None:
    machine.create("a", handler="h1", overlap=ALLOW)
    machine.trigger("a")
    machine.trigger("a")
    machine.do(with_order("a", "h2"))
    first, second = machine.grant(handlers=["h1"])
    machine.succeed(first)
    machine.check()
    assert machine.state("a").former == 1

    machine.do(run_pb2.TerminateRunRequest(run=second.run))

    assert machine.state("a").former == 0
    assert not [key for key in image(machine.store) if key[:1] == keys.FORMER]


def test_a_dead_letter_that_is_requeued_does_what_its_job_says_now(machine: Machine) -> None:
    machine.create("a", handler="h1")
    machine.trigger("a", queue="far", priority=common_pb2.PRIORITY_LOW)
    [lease] = machine.grant(queues=("far",))
    machine.fail(lease, fatal=True)
    machine.do(with_order("a", "h2", b"2"))

    run = machine.ask(dead_letter_pb2.RequeueDeadLetterRequest(run=lease.run), run_pb2.Run)

    assert (run.queue, run.priority) == ("far", common_pb2.PRIORITY_LOW)
    assert machine.grant(queues=("far",), handlers=["h1"]) == []
    assert orders(machine.grant(queues=("far",), handlers=["h2"])) == [("h2", b"2")]


def test_an_import_that_would_keep_too_much_of_what_was_refuses_the_rest(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHANGE_BYTES", 4_000)
    for name in ("a", "b", "c"):
        machine.create(name, payload=common_pb2.Payload(data=b"x" * 4_000))
        machine.trigger(name)
    wanted = [job_of(name, payload=common_pb2.Payload(data=b"y")) for name in ("a", "b", "c")]
    request = job_pb2.ImportJobsRequest(jobs=wanted, mode=job_pb2.ImportJobsRequest.MODE_UPSERT)

    verdicts = []
    for _ in range(4):
        answer = machine.ask(request, job_pb2.ImportJobsResponse)
        verdicts.append([result.reason or result.verdict for result in answer.results])

    full, done, same = "LIMIT_EXCEEDED", Verdict.VERDICT_UPDATED, Verdict.VERDICT_UNCHANGED
    assert verdicts[0] == [done, full, full]
    assert verdicts[-1] == [same, same, same]
    assert {payload for _, payload in orders(machine.grant())} == {b"x" * 4_000}
