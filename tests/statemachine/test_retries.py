"""What happens when attempts fail, and dead letters."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import common_pb2, dead_letter_pb2, job_pb2, run_pb2
from raftsched.statemachine.core.instants import duration
from raftsched.statemachine.model import policies

from .driver import HOUR_MS, MINUTE_MS, SECOND_MS, Machine

Retry = job_pb2.RetryPolicy
ALLOW = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)


def waits(retry: Retry, attempts: int) -> list[int]:
    return [policies.back_off_ms(retry, number, b"seed") for number in range(1, attempts + 1)]


def test_waits_double_up_to_the_cap_by_default() -> None:
    assert waits(Retry(jitter_percent=0), 9) == [
        5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 600_000, 600_000,
    ]  # fmt: skip


def test_a_thousand_attempts_neither_overflow_nor_take_long() -> None:
    retry = Retry(cap=duration(HOUR_MS), factor_percent=1_000, jitter_percent=0)

    assert policies.back_off_ms(retry, 1_000, b"seed") == HOUR_MS


def test_a_factor_of_a_hundred_percent_is_constant() -> None:
    assert waits(Retry(factor_percent=100, jitter_percent=0), 3) == [5_000] * 3


def test_jitter_is_stable_within_its_share_and_even() -> None:
    retry = Retry(first=duration(10_000), jitter_percent=50)
    found = [policies.back_off_ms(retry, 1, bytes([a, b])) for a in range(50) for b in range(50)]

    assert found == [
        policies.back_off_ms(retry, 1, bytes([a, b])) for a in range(50) for b in range(50)
    ]
    assert min(found) >= 10_000
    assert max(found) <= 15_000
    fifths = [sum(10_000 + 1_000 * n <= x < 11_000 + 1_000 * n for x in found) for n in range(5)]
    assert all(400 <= count <= 600 for count in fifths), fifths


def fail_until_the_end(machine: Machine, kind: str = "Error") -> run_pb2.Run:
    for _ in range(50):
        leases = machine.grant()
        for lease in leases:
            machine.fail(lease, kind)
        if not machine.live("a"):
            return machine.ended("a")[0]
        machine.advance(HOUR_MS)
        machine.fire()
    raise AssertionError("it never ended")


@pytest.mark.parametrize(("wanted", "made"), [(0, 4), (1, 1), (3, 3)])
def test_there_are_as_many_attempts_as_the_policy_says(
    machine: Machine, wanted: int, made: int
) -> None:
    machine.create("a", retry=Retry(max_attempts=wanted))
    machine.trigger("a")

    run = fail_until_the_end(machine)

    assert run.state == run_pb2.RUN_STATE_FAILED
    assert [attempt.number for attempt in run.attempts] == list(range(1, made + 1))


def test_a_run_that_succeeds_in_the_end_has_no_error_and_its_attempts_keep_theirs(
    machine: Machine,
) -> None:
    machine.create("a")
    machine.trigger("a")
    [lease] = machine.grant()
    machine.fail(lease, "Hiccup")
    [waiting] = machine.live("a")
    machine.advance(HOUR_MS)
    machine.fire()
    [lease] = machine.grant()
    machine.succeed(lease)

    [run] = machine.ended("a")
    assert waiting.error.kind == "Hiccup"
    assert not run.HasField("error")
    assert [attempt.error.kind for attempt in run.attempts] == ["Hiccup", ""]


def test_a_fatal_kind_and_a_fatal_failure_are_not_tried_again(machine: Machine) -> None:
    machine.create("a", retry=Retry(fatal_kinds=["BadInput"]), overlap=ALLOW)
    machine.trigger("a")
    machine.trigger("a")
    first, second = machine.grant()

    machine.fail(first, "BadInput")
    machine.fail(second, "Other", fatal=True)

    assert [run.attempt for run in machine.ended("a")] == [1, 1]
    assert machine.job("a").status.failed == 2


def test_no_attempt_begins_after_the_total_time(machine: Machine) -> None:
    retry = Retry(first=duration(MINUTE_MS), factor_percent=100, jitter_percent=0,
                  max_attempts=100, total=duration(3 * MINUTE_MS))  # fmt: skip
    machine.create("a", retry=retry)
    machine.trigger("a")
    began_ms = machine.now_ms

    starts = []
    while machine.live("a"):
        for lease in machine.grant():
            starts.append(machine.now_ms - began_ms)
            machine.fail(lease)
        machine.advance(MINUTE_MS)
        machine.fire()

    assert starts == [0, MINUTE_MS, 2 * MINUTE_MS, 3 * MINUTE_MS]


def test_the_handler_may_say_when_to_try_again(machine: Machine) -> None:
    machine.create("a")
    machine.trigger("a")
    [lease] = machine.grant()

    machine.fail(lease, retry_after_ms=7 * SECOND_MS)

    [run] = machine.live("a")
    assert run.retry_time.ToMilliseconds() == machine.now_ms + 7 * SECOND_MS


def test_a_retry_can_be_hurried(machine: Machine) -> None:
    machine.create("a")
    machine.trigger("a")
    [lease] = machine.grant()
    machine.fail(lease)

    machine.do(run_pb2.RetryRunRequest(run=lease.run))

    assert [x.attempt for x in machine.grant()] == [2]


def test_a_run_with_many_attempts_keeps_its_record_small(machine: Machine) -> None:
    machine.create("a", retry=Retry(max_attempts=30, first=duration(0)))
    machine.trigger("a")

    run = fail_until_the_end(machine)

    assert len(run.attempts) == 20
    assert [run.attempts[0].number, run.attempts[1].number, run.attempts[-1].number] == [1, 12, 30]


def test_long_words_of_a_handler_are_cut_and_not_refused(machine: Machine) -> None:
    machine.create("a")
    machine.trigger("a")
    [lease] = machine.grant()

    machine.fail(lease, "k" * 1_000, message="m" * 10_000)

    [run] = machine.live("a")
    assert (len(run.error.kind), len(run.error.message)) == (128, 4_096)


def test_a_run_that_may_be_leased_once_says_so(machine: Machine) -> None:
    machine.create("a", delivery=job_pb2.DELIVERY_AT_MOST_ONCE)
    machine.trigger("a")
    [lease] = machine.grant()
    assert (lease.attempt, lease.max_attempts) == (1, 1)


def test_a_dead_letter_runs_again_with_fresh_attempts_and_another_payload(
    machine: Machine,
) -> None:
    machine.create("a", retry=Retry(max_attempts=2))
    machine.trigger("a")
    dead = fail_until_the_end(machine)
    payload = common_pb2.Payload(data=b"mended")
    machine.do(dead_letter_pb2.EditDeadLetterRequest(run=dead.id, payload=payload))

    machine.do(dead_letter_pb2.RequeueDeadLetterRequest(run=dead.id))
    [lease] = machine.grant()

    assert (lease.run, lease.attempt, lease.payload.data) == (dead.id, 3, b"mended")
    assert lease.max_attempts == 4
    assert lease.token > dead.token
    machine.fail(lease)
    assert machine.live("a")[0].state == run_pb2.RUN_STATE_RETRYING


def test_dead_letters_are_requeued_and_purged_by_filter(machine: Machine) -> None:
    machine.create("a", retry=Retry(max_attempts=1), overlap=ALLOW)
    for kind in ("Red", "Red", "Blue"):
        machine.trigger("a")
        [lease] = machine.grant()
        machine.fail(lease, kind)

    requeued = machine.ask(
        dead_letter_pb2.RequeueDeadLettersRequest(filter="kind=Red AND job=a"),
        dead_letter_pb2.RequeueDeadLettersResponse,
    )
    purged = machine.ask(
        dead_letter_pb2.PurgeDeadLettersRequest(filter="kind=Blue"),
        dead_letter_pb2.PurgeDeadLettersResponse,
    )

    assert (requeued.requeued, purged.purged) == (2, 1)
    assert len(machine.live("a")) == 2
    assert machine.ended("a") == []


def test_a_run_that_did_not_fail_is_no_dead_letter(machine: Machine) -> None:
    machine.create("a")
    run = machine.trigger("a")

    refusal = machine.refused(dead_letter_pb2.RequeueDeadLetterRequest(run=run.id))

    assert refusal.word == "DEAD_LETTER_NOT_FOUND"
    assert refusal.values["state"] == "PENDING"
