"""Handlers run inline, with a context that a test sets and reads."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from raftsched.client.testing import Attempt
from raftsched.client.worker.context import Context, current_context
from raftsched.client.worker.outcomes import Cancelled, PayloadInvalid, PermanentError, RetryLater
from raftsched.proto.v1.common_pb2 import Payload

from ...rows import each


def build(context: Context, day: date, fmt: str = "pdf") -> str:
    for done in range(5):
        context.progress(done, 5)
        context.check_cancelled()
    return f"{day.year}.{fmt}"


async def wait(context: Context) -> None:
    context.progress(1)
    await asyncio.sleep(60)


def test_a_handler_gets_typed_arguments_and_its_result_comes_back() -> None:
    attempt = Attempt()

    outcome = attempt.run(build, {"day": "2026-11-18"})

    assert outcome.value == "2026.pdf"
    assert [one.done for one in attempt.progress] == [0, 1, 2, 3, 4]


def test_the_context_is_as_the_test_says() -> None:
    at = datetime(2026, 11, 18, 9, tzinfo=UTC)

    def look(context: Context) -> dict[str, Any]:
        assert current_context() is context
        context.checkpoint([8])
        context.extend(timedelta(minutes=1))
        context.log.info("looked")
        return {
            "attempt": context.attempt,
            "due": context.due_time,
            "checkpoint": context.load_checkpoint(list[int]),
            "up": context.upstream("a"),
            "draining": context.draining,
        }

    attempt = Attempt(attempt=3, scheduled_time=at, checkpoint=[7], upstream={"a": {"x": 1}})
    outcome = attempt.run(look)

    assert outcome.value == {
        "attempt": 3,
        "due": "2026-11-18T09:00:00Z",
        "checkpoint": [7],
        "up": {"x": 1},
        "draining": False,
    }
    assert attempt.checkpoints == [b"[8]"]
    assert attempt.extensions == [60]
    assert outcome.log.endswith("INFO looked\n")


@pytest.mark.parametrize("handler", [build, wait])
def test_a_cancel_in_the_middle_ends_sync_and_async_handlers(handler: Any) -> None:  # noqa: ANN401
    attempt = Attempt()
    attempt.cancel_on_progress(1)

    outcome = attempt.run(handler, {"day": "2026-11-18"})

    assert outcome.cancelled
    assert not outcome.failed
    assert attempt.progress[-1].done == 1


@pytest.mark.parametrize("handler", [build, wait])
def test_a_cancel_before_the_beginning_keeps_the_handler_from_it(handler: Any) -> None:  # noqa: ANN401
    attempt = Attempt()
    attempt.cancel()

    assert attempt.run(handler, {"day": "2026-11-18"}).cancelled
    assert attempt.progress == []


async def cancels_itself() -> None:
    raise asyncio.CancelledError


def gives_up() -> None:
    raise Cancelled


@pytest.mark.parametrize("handler", [cancels_itself, gives_up])
def test_a_handler_that_stops_without_a_word_has_failed(handler: Any) -> None:  # noqa: ANN401
    outcome = Attempt().run(handler)

    assert outcome.failed
    assert not outcome.cancelled


def test_a_worker_that_stops_gets_the_run_back() -> None:
    attempt = Attempt()
    attempt.shut_down()

    assert attempt.run(wait).given_back


async def test_a_test_with_a_loop_uses_it() -> None:
    attempt = Attempt()
    running = asyncio.create_task(attempt.run_async(wait))
    while not attempt.progress:
        await asyncio.sleep(0)
    attempt.cancel("enough")

    outcome = await running

    assert outcome.cancelled
    assert outcome.message == "enough"
    assert (await Attempt().run_async(build, {"day": "2026-11-18"})).succeeded


def test_failures_show_what_a_cluster_would_see_and_what_was_raised() -> None:
    def later() -> None:
        raise RetryLater(60, "busy")

    def never() -> None:
        raise PermanentError("no", kind="gone")

    outcome = Attempt().run(later)
    assert (outcome.failed, outcome.retry_after, outcome.kind) == (True, 60, "RetryLater")
    with pytest.raises(RetryLater):
        _ = outcome.value

    def at_once() -> None:
        raise RetryLater(0)

    assert Attempt().run(at_once).retry_after == 0

    outcome = Attempt().run(never)
    assert (outcome.fatal, outcome.kind) == (True, "gone")


@each(
    ("payload", "word"),
    [
        ({}, "`day`"),
        ({"day": "soon"}, "$.day"),
        ({"day": "2026-11-18", "colour": 1}, "colour"),
        (b"{", "the handler takes: day"),
        ([1], "array"),
    ],
)
def test_a_wrong_payload_is_fatal_and_says_what_is_wrong(payload: object, word: str) -> None:
    outcome = Attempt().run(build, payload)

    assert outcome.fatal
    assert isinstance(outcome.error, PayloadInvalid)
    assert word in outcome.message


def test_a_payload_of_another_kind_is_refused_unless_bytes_are_asked_for() -> None:
    def whole(data: bytes, /) -> int:
        return len(data)

    assert "text/plain" in Attempt().run(build, b"{}", "text/plain").message
    assert Attempt().run(whole, b"\xff\xfe", "image/png").value == 2


def test_a_payload_of_ones_own_may_be_returned_within_its_limits() -> None:
    assert Attempt().run(lambda: Payload(data=b"a,b", content_type="text/csv")).value == b"a,b"
    assert Attempt().run(lambda: Payload(content_type="x" * 129)).fatal


def test_an_attempt_is_made_once() -> None:
    attempt = Attempt()
    attempt.run(build, {"day": "2026-11-18"})

    with pytest.raises(RuntimeError, match="new Attempt"):
        attempt.run(build)


def test_a_lost_lease_outweighs_a_wish_to_cancel() -> None:
    attempt = Attempt()
    attempt.lose("gone")
    attempt.cancel("please")

    assert attempt.context.stop_reason == "gone"


def test_stop_signals_pass_except_exception() -> None:
    def swallows(context: Context) -> None:
        try:
            context.check_cancelled()
        except Exception:
            pytest.fail("it was swallowed")

    attempt = Attempt()
    attempt.lose()
    assert isinstance(attempt.context.stop_reason, str)
    with pytest.raises(Cancelled):
        swallows(attempt.context)


def test_what_was_returned_is_the_value_and_what_is_told_the_report() -> None:
    outcome = Attempt().run(lambda: 3)

    assert outcome.value == 3
    assert outcome.report.success.result.data == b"3"
    assert not hasattr(outcome, "result")
