"""What a context passes on, and what it keeps."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from raftsched.client.testing import Attempt
from raftsched.client.worker.context import Context, current_context
from raftsched.client.worker.redaction import Redaction
from raftsched.proto.v1 import run_pb2, worker_pb2
from raftsched.proto.v1.worker_pb2 import Lease, Stop


class Ear:
    draining = False

    def __init__(self) -> None:
        self.heard: list[worker_pb2.ProgressReport] = []

    def progress(self, report: worker_pb2.ProgressReport) -> None:
        self.heard.append(report)

    def extend(self, request: worker_pb2.ExtendRequest) -> None:
        raise AssertionError("nobody asked for it")

    async def secrets(self, lease: Lease) -> dict[str, str]:
        raise AssertionError("no action names one")


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def context(ear: Ear) -> Context:
    return Context(Lease(run="r", token=7, job="j"), ear)


def test_the_log_goes_along_with_progress_when_there_is_more_of_it(
    context: Context, ear: Ear
) -> None:
    context.progress(1)
    context.log.info("one")
    context.progress(2)
    context.progress(3)
    context.log.info("two")
    context.progress(4)

    assert [report.log_tail.count(b"INFO") for report in ear.heard] == [0, 1, 0, 2]


def test_a_context_shows_labels_and_its_place_in_a_trace(ear: Ear) -> None:
    trace = run_pb2.TraceContext(traceparent="00-1")
    lease = Lease(run="r", labels={"team": "a"}, trace_context=trace)
    context = Context(lease, ear)
    context.label("rows", "1")
    context.label("rows", "2")

    assert context.labels == {"team": "a", "rows": "2"}
    assert context.new_labels == {"rows": "2"}
    assert context.trace_context == {"traceparent": "00-1"}


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_labels_are_said_with_the_end_of_the_attempt(ends: str) -> None:
    def handler(context: Context) -> None:
        context.label("rows", context.labels["start"])
        if ends == "badly":
            raise RuntimeError

    async def same(context: Context) -> None:
        handler(context)

    for one in (handler, same):
        outcome = Attempt(labels={"start": "17"}).run(one)
        assert outcome.succeeded == (ends == "well")
        assert dict(outcome.report.notes.labels) == {"rows": "17"}


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_a_warning_is_said_with_a_success_alone(ends: str) -> None:
    def handler(context: Context) -> None:
        context.warn("  3 rows had no address\n")
        context.warn(f"half a sign: {chr(0xD800)}")
        if ends == "badly":
            raise RuntimeError

    async def same(context: Context) -> None:
        handler(context)

    for one in (handler, same):
        outcome = Attempt().run(one)
        assert outcome.warning == (
            "3 rows had no address\nhalf a sign: ?" if ends == "well" else ""
        )
        assert outcome.report.HasField("notes") == (ends == "well")


def test_a_secret_is_taken_out_of_a_warning_before_that_is_cut(context: Context) -> None:
    context._redaction = Redaction(["hunter2-hunter2"])
    context.warn("x" * 1_016 + "hunter2-hunter2")

    assert context.warning == "x" * 1_016 + "(hidden)"


def test_a_warning_is_cut_and_an_empty_one_refused(context: Context) -> None:
    with pytest.raises(ValueError, match="the text is empty"):
        context.warn(" ")
    for _ in range(3):
        context.warn("x" * 600)
    assert context.warning == "x" * 600 + "\n" + "x" * 423


def test_a_label_that_the_cluster_would_refuse_is_refused_here(context: Context) -> None:
    for name, value in (("Rows", "1"), ("", "1"), ("a", "b\n"), ("a", "b" * 257)):
        with pytest.raises(ValueError, match=r"name is|the value of a"):
            context.label(name, value)
    for number in range(32):
        context.label(f"l{number}", "")
    context.label("l0", "again")
    with pytest.raises(ValueError, match="that is the most"):
        context.label("one-more", "")


def test_only_the_end_of_a_long_log_is_kept(context: Context) -> None:
    for number in range(5_000):
        context.log.info("line %d", number)

    assert len(context.log_tail) == 16_384
    assert context.log_tail.endswith(b"line 4999\n")
    assert len(context.log._kept) < 100_000


def test_the_kept_log_has_the_trace_of_an_exception(context: Context) -> None:
    try:
        raise ValueError("bad")
    except ValueError:
        context.log.exception("it failed")

    assert b"ERROR it failed" in context.log_tail
    assert b"ValueError: bad" in context.log_tail


def test_debug_lines_are_for_the_programs_own_log(
    context: Context, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "raftsched.run"):
        context.log.debug("detail")

    assert context.log_tail == b""
    assert caplog.messages == ["detail"]


def test_what_is_over_a_limit_is_refused_with_its_size(context: Context) -> None:
    with pytest.raises(ValueError, match="16,384"):
        context.checkpoint(b"x" * 16_385)
    with pytest.raises(ValueError, match="from 1 s to 24 h"):
        context.extend(0.5)
    with pytest.raises(ValueError, match="delay"):
        context.release(-1)


def test_a_long_message_of_progress_is_cut_to_its_limit(context: Context, ear: Ear) -> None:
    context.progress(1, 2, "x" * 300 + "\ud800")

    assert len(ear.heard[0].progress.message) == 256


def test_there_is_no_context_outside_of_a_handler() -> None:
    with pytest.raises(LookupError, match="no handler"):
        current_context()


def test_an_unknown_job_upstream_is_named_with_those_there_are(context: Context) -> None:
    context.lease.upstream.add(job="a")

    with pytest.raises(LookupError, match="upstream are: a"):
        context.upstream("b")
    assert context.upstream("a") is None


def test_a_thread_that_waits_is_told_before_and_while_it_waits(context: Context) -> None:
    assert context.wait_cancelled_sync(0) is False
    waiting = threading.Thread(target=context.wait_cancelled_sync, args=(20,))
    waiting.start()

    context.stop(Stop(token=7, kind=Stop.KIND_CANCEL, message="enough"))

    waiting.join(20)
    assert not waiting.is_alive()
    assert context.wait_cancelled_sync() is True
    assert context.stop_reason == "enough"


async def test_coroutines_that_wait_are_told_from_another_thread(context: Context) -> None:
    waiting = [asyncio.create_task(context.wait_cancelled()) for _ in range(3)]
    await asyncio.sleep(0)

    await asyncio.to_thread(context.stop, Stop(token=7, kind=Stop.KIND_LOST))

    await asyncio.wait_for(asyncio.gather(*waiting), 60)
    await asyncio.wait_for(context.wait_cancelled(), 60)


def test_progress_is_told_in_whole_numbers() -> None:
    def handler(context: Context) -> None:
        context.progress(0.5)  # type: ignore[arg-type]

    outcome = Attempt().run(handler)

    assert outcome.message == "done is 0.5; write whole numbers, such as progress(50, 100)"
