"""The spans of attempts: where they belong, what they are linked to, and what they do not say."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace

from raftsched.client.worker import attempt_spans
from raftsched.client.worker.attempt_spans import AttemptSpans
from raftsched.client.worker.context import Context
from raftsched.client.worker.executors.executor import headers
from raftsched.client.worker.handlers import Handler
from raftsched.client.worker.outcomes import AttemptFailed
from raftsched.client.worker.runner import call, drive
from raftsched.proto import tracing
from raftsched.proto.v1.worker_pb2 import Lease, Result, Stop

from ...traced import (
    PARENT,
    SPAN_ID,
    TRACE_ID,
    Recorded,
    attributes_of,
    ids,
    links_of,
    parent_of,
    recording,
)

DUE_MS = 1_790_000_000_000
SECRET = "hunter2-payload"


class Ear:
    draining = False

    def progress(self, report: object) -> None: ...

    def extend(self, request: object) -> None: ...

    async def secrets(self, lease: Lease) -> dict[str, str]:
        return {}


@pytest.fixture
def spans() -> Iterator[Recorded]:
    with recording() as recorded:
        yield recorded


def lease(
    run: str = "mail.7.1", attempt: int = 1, *, at_once: bool = True, traced: bool = True,
    upstream: tuple[str, ...] = (), flow: str = "",
) -> Lease:  # fmt: skip
    made = Lease(run=run, job="mail", namespace="shop", token=attempt, attempt=attempt,
                 max_attempts=3, flow=flow)  # fmt: skip
    made.action.handler = "send"
    made.due_time.FromMilliseconds(DUE_MS)
    if traced:
        made.trace_context.traceparent = PARENT
        made.trace_context.tracestate = "raftsched=now,a=b" if at_once else "a=b"
    for one in upstream:
        made.upstream.add(run=one, job=one.partition(".")[0])
    return made


def worker(cluster: str = "prod") -> AttemptSpans:
    active = tracing.active()
    assert active is not None
    made = AttemptSpans(active, "w-1", ("bulk",))
    made.cluster = cluster
    return made


def carried_out(
    given: Lease, function: Callable[..., Any] = lambda: None, stop: Stop | None = None,
    by: AttemptSpans | None = None,
) -> Result:  # fmt: skip
    context = Context(given, Ear())
    if stop is not None:
        context.stop(stop)
    invoke = Handler("send", function).invoke
    return contextvars.copy_context().run(call, invoke, context, by or worker())


def own(run: str, attempt: int = 1, cluster: str = "prod") -> tuple[str, str]:
    """Where an attempt is that is in the trace of its run."""
    trace_id = attempt_spans.trace_id(cluster, run)
    return f"{trace_id:032x}", f"{attempt_spans.span_id(cluster, run, attempt):016x}"


PRODUCER = TRACE_ID, SPAN_ID
FIRST = TRACE_ID, own("mail.7.1")[1]


@pytest.mark.parametrize(
    ("mode", "given", "place", "parent", "links"),
    [
        ("auto", lease(), FIRST, SPAN_ID, []),
        ("auto", lease(at_once=False), own("mail.7.1"), "", [PRODUCER]),
        ("auto", lease(traced=False), own("mail.7.1"), "", []),
        ("auto", lease(attempt=2), own("mail.7.1", 2), "", [PRODUCER, FIRST]),
        ("auto", lease(attempt=2, at_once=False), own("mail.7.1", 2), "",
         [PRODUCER, own("mail.7.1")]),
        ("auto", lease(attempt=3, traced=False), own("mail.7.1", 3), "", [own("mail.7.1")]),
        # Downstream of a run that was due at once, of that in turn, and of one that was scheduled.
        ("auto", lease("b.8.1", upstream=("mail.7.1",), flow="mail.7.1"), own("b.8.1"), "",
         [PRODUCER, FIRST]),
        ("auto", lease("c.9.1", upstream=("b.8.1",), flow="mail.7.1"), own("c.9.1"), "",
         [PRODUCER, own("b.8.1")]),
        ("auto", lease("b.8.1", upstream=("mail.7.1",), flow="mail.7.1", traced=False),
         own("b.8.1"), "", [own("mail.7.1")]),
        ("link", lease(), own("mail.7.1"), "", [PRODUCER]),
        ("parent", lease(attempt=2, at_once=False), (TRACE_ID, own("mail.7.1", 2)[1]), SPAN_ID,
         [FIRST]),
        ("parent", lease("b.8.1", upstream=("mail.7.1",), flow="mail.7.1"),
         (TRACE_ID, own("b.8.1")[1]), SPAN_ID, [FIRST]),
    ],
)  # fmt: skip
def test_an_attempt_is_a_child_or_linked(
    spans: Recorded, monkeypatch: pytest.MonkeyPatch, mode: str, given: Lease,
    place: tuple[str, str], parent: str, links: list[tuple[str, str]],
) -> None:  # fmt: skip
    monkeypatch.setenv(attempt_spans.VARIABLE, mode)
    carried_out(given)
    span = spans.named("process send")
    assert (ids(span), parent_of(span), links_of(span)) == (place, parent, links)
    assert span.kind is trace.SpanKind.CONSUMER


def test_two_clusters_with_the_same_runs_have_other_ids(spans: Recorded) -> None:
    for cluster in ("prod", "staging"):
        carried_out(lease(traced=False), by=worker(cluster))
    assert len({ids(one) for one in spans.all if one.name == "process send"}) == 2


def test_a_mode_that_is_none_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    assert attempt_spans.mode_of({attempt_spans.VARIABLE: "sometimes"}) == "auto"
    assert caplog.records[0].getMessage().startswith("RAFTSCHED_TRACE_RUNS is 'sometimes'; write")


def boom() -> None:
    raise AttemptFailed(f"cannot send {SECRET}", kind="BadAddress")


def test_it_says_how_it_went_and_repeats_no_payload(spans: Recorded) -> None:
    given = lease()
    given.payload.data = SECRET.encode()
    given.labels["note"] = SECRET
    carried_out(given, boom)
    failed = spans.named("process send")
    assert attributes_of(failed) == {
        "messaging.system": "raftsched", "messaging.operation.name": "process",
        "messaging.operation.type": "process", "messaging.destination.name": "mail",
        "messaging.message.id": "mail.7.1", "messaging.client.id": "w-1",
        "raftsched.namespace": "shop", "raftsched.job": "mail", "raftsched.run": "mail.7.1",
        "raftsched.handler": "send", "raftsched.queue": "bulk", "raftsched.attempt": 1,
        "raftsched.max_attempts": 3, "raftsched.outcome": "failed", "error.type": "BadAddress",
        "raftsched.lateness_ms": attributes_of(failed)["raftsched.lateness_ms"],
    }  # fmt: skip
    assert failed.status.status_code is trace.StatusCode.ERROR
    waited = spans.named("wait for a worker")
    assert (waited.start_time, parent_of(waited)) == (DUE_MS * 1_000_000, ids(failed)[1])
    assert SECRET not in spans.text()
    # A name that is longer than any may be is cut.
    given = lease(run="x" * 400)
    spans.take()
    carried_out(given)
    assert attributes_of(spans.named("process send"))["raftsched.run"] == "x" * 256


LOST = Stop(kind=Stop.KIND_LOST)


@pytest.mark.parametrize(
    ("stop", "outcome"),
    [(None, "succeeded"), (Stop(kind=Stop.KIND_CANCEL), "cancelled"), (LOST, "lost")],
)
def test_it_has_one_word_for_how_it_ended(spans: Recorded, stop: Stop | None, outcome: str) -> None:
    carried_out(lease(attempt=2), stop=stop)
    span = spans.named("process send")
    assert attributes_of(span)["raftsched.outcome"] == outcome
    assert "raftsched.lateness_ms" not in attributes_of(span)


def test_what_was_given_back_goes_on_in_the_span_of_the_next_lease(spans: Recorded) -> None:
    def release(context: Context) -> None:
        context.release(1.0)

    carried_out(lease(), release)
    back = spans.named("give back")
    assert "process send" not in [one.name for one in spans.all]
    carried_out(lease())
    again = spans.named("process send")
    assert parent_of(back) == ids(again)[1]


def test_what_a_handler_does_is_within_its_attempt(
    spans: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[dict[str, str]] = []

    def handler(context: Context) -> None:
        with spans.tracer.start_as_current_span("own work"):
            context.log.warning("at work")
        seen.append(dict(context.trace_context))
        seen.append(headers(context))

    async def other(context: Context) -> None:
        handler(context)

    with caplog.at_level(logging.INFO):
        carried_out(lease(), handler)
    span = spans.named("process send")
    place = ids(span)
    assert parent_of(spans.named("own work")) == place[1]
    assert seen[0]["traceparent"] == f"00-{place[0]}-{place[1]}-01"
    assert seen[1]["traceparent"] == seen[0]["traceparent"]
    # Whether the run was due at once is nothing to those whom the handler calls.
    assert seen[0]["tracestate"] == "a=b"
    [record] = caplog.records
    inner = ids(spans.named("own work"))
    assert (vars(record)["trace_id"], vars(record)["span_id"]) == inner
    assert inner[0] == place[0]
    assert not trace.get_current_span().get_span_context().is_valid

    spans.take()
    context = Context(lease(), Ear())
    asyncio.run(drive(Handler("send", other).invoke, context, worker()))
    assert parent_of(spans.named("own work")) == ids(spans.named("process send"))[1]


def test_a_processor_that_fails_costs_a_line_and_no_run(
    spans: Recorded, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("disk full")

    monkeypatch.setattr(spans.exporter, "export", broken)
    active = tracing.active()
    assert active is not None
    monkeypatch.setattr(active, "begin", broken)
    for _ in range(3):
        assert carried_out(lease()).HasField("success")
    lines = [one.getMessage() for one in caplog.records if one.name == "raftsched.traces"]
    assert lines == ["a span was lost, 1 so far"]
    assert active.failures == 3
