"""The span of an attempt: where it belongs, what it says, and how others find it.

The first attempt at a run that was due at once is a child of the span that deferred it. All others
begin a trace, or go on in that of their run, and are linked to what they come from: to the span
that deferred the run, to its first attempt, to the runs upstream. RAFTSCHED_TRACE_RUNS=parent makes
all of them children, =link none.

The worker that makes a link has not seen the span that it leads to, and the cluster keeps nothing
of it. So the ids of these spans are computed: of the cluster's name, the run's id and the attempt's
number, by blake2b.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, cast

from ...proto import otel_spans, tracing
from ...proto.v1.worker_pb2 import Lease, Result, Stop
from .context import Context

if TYPE_CHECKING:
    from ...proto.otel_spans import Span, SpanContext, Spans

LOG = logging.getLogger("raftsched.worker")

VARIABLE = "RAFTSCHED_TRACE_RUNS"
MODES = ("auto", "parent", "link")
Mode = Literal["auto", "parent", "link"]
# So many runs upstream are linked; a run may have 64.
UPSTREAM_MAX = 16
IDS_KEPT = 4_096


def mode_of(environ: Mapping[str, str] = os.environ) -> Mode:
    """As the environment has it."""
    given = environ.get(VARIABLE, "").strip().lower() or "auto"
    if given not in MODES:
        LOG.warning("%s is %r; write auto, parent or link. It is auto", VARIABLE, given[:40])
        return "auto"
    return cast(Mode, given)


class AttemptSpans:
    """Makes the spans of a worker's attempts."""

    def __init__(self, spans: Spans, worker: str, queues: tuple[str, ...] = ()) -> None:
        self._spans, self._worker = spans, worker
        # A lease does not say from which queue it came; where there is one, that is known.
        self._queue = (queues or ("default",))[0] if len(queues) <= 1 else ""
        self._mode = mode_of()
        # The cluster's name, as it was given by the welcome.
        self.cluster = ""

    def begin(self, context: Context) -> AttemptSpan | None:
        """The span of an attempt that begins now, in a context of its own; None if that failed."""
        try:
            return self._begin(context, context.lease)
        except Exception as error:
            self._spans.failed(error)
            return None

    def _begin(self, context: Context, lease: Lease) -> AttemptSpan:
        now = time.time_ns()
        origin = Origin(lease, self._mode, self.cluster)
        attributes = attributes_of(lease) | {
            "messaging.client.id": self._worker, "raftsched.queue": self._queue,
        }  # fmt: skip
        late_ms = now // 1_000_000 - lease.due_time.ToMilliseconds()
        if lease.attempt == 1:
            attributes["raftsched.lateness_ms"] = max(0, late_ms)
        span = self._spans.begin(
            f"process {named(lease)}", "consumer", attributes, links=origin.links,
            parent=otel_spans.NOWHERE if origin.parent is None else otel_spans.below(origin.parent),
            start_ns=now, ids=(trace_id(self.cluster, lease.run), origin.span_id(lease.attempt)),
        )  # fmt: skip
        inside = otel_spans.inside(span)
        if lease.attempt == 1 and late_ms > 0 and span.is_recording():
            waited = {
                "messaging.system": "raftsched", "messaging.operation.name": "wait",
                "messaging.operation.type": "receive", "messaging.message.id": lease.run,
            }  # fmt: skip
            due_ns = lease.due_time.ToNanoseconds()
            self._spans.note("wait for a worker", waited, due_ns, now, parent=inside, kind="client")
        # The handler's context ends with it.
        otel_spans.attach(inside)
        made = context.span = AttemptSpan(self._spans, span, now)
        return made


class AttemptSpan:
    """The span of an attempt that is under way."""

    def __init__(self, spans: Spans, span: Span, began_ns: int) -> None:
        self._spans, self._span, self._began_ns = spans, span, began_ns

    def carrier(self) -> dict[str, str]:
        return otel_spans.carrier_of(self._span)

    def end(self, context: Context, result: Result) -> None:
        """The attempt has ended so."""
        try:
            self._end(outcome_of(context, result), result)
        except Exception as error:
            self._spans.failed(error)

    def _end(self, outcome: str, result: Result) -> None:
        span = self._span
        span.set_attribute("raftsched.outcome", outcome)
        if outcome == "given_back":
            # It did not count: the next lease has its number, and with it the id of this span.
            noted = {"messaging.system": "raftsched", "messaging.operation.name": "give back",
                     "messaging.operation.type": "settle", "raftsched.outcome": outcome,
                     "messaging.message.id": result.run}  # fmt: skip
            inside = otel_spans.inside(span)
            self._spans.note(
                "give back", noted, self._began_ns, time.time_ns(), parent=inside, kind="client"
            )
            return
        if outcome == "failed":
            otel_spans.fail(span, result.failure.error.kind or "failed")
        elif outcome == "lost":
            otel_spans.fail(span, "lease_lost")
        if result.notes.warning:
            span.set_attribute("raftsched.warned", True)
        span.end()


class Origin:
    """What an attempt comes from."""

    def __init__(self, lease: Lease, mode: Mode, cluster: str) -> None:
        self._cluster, self._run = cluster, lease.run
        context = lease.trace_context
        given = {"traceparent": context.traceparent, "tracestate": context.tracestate}
        producer = otel_spans.context_of(given) if context.traceparent else None
        # Of the run that began it all; what comes downstream has a copy.
        at_once = tracing.is_at_once(context.tracestate)
        first_below = mode == "parent" or (mode == "auto" and at_once and not lease.upstream)
        # Whose child it is.
        self.parent: SpanContext | None = None
        self.links: list[SpanContext] = []
        if producer is not None and (mode == "parent" or (first_below and lease.attempt == 1)):
            self.parent = producer
        elif producer is not None:
            self.links.append(producer)
        if lease.attempt > 1:
            trace = producer.trace_id if producer and first_below else trace_id(cluster, lease.run)
            self.links.append(otel_spans.remote(trace, self.span_id(1)))
        for one in lease.upstream[:UPSTREAM_MAX]:
            below = mode == "parent" or (
                mode == "auto" and at_once and one.run == (lease.flow or one.run)
            )
            trace = producer.trace_id if producer and below else trace_id(cluster, one.run)
            self.links.append(otel_spans.remote(trace, span_id(cluster, one.run, 1)))

    def span_id(self, attempt: int) -> int:
        return span_id(self._cluster, self._run, attempt)


@lru_cache(IDS_KEPT)
def trace_id(cluster: str, run: str) -> int:
    """Of the trace that a run begins."""
    return _hash(f"{cluster} {run}", 16)


def span_id(cluster: str, run: str, attempt: int) -> int:
    """Of the span of an attempt."""
    return _hash(f"{cluster} {run} {attempt}", 8)


def _hash(text: str, size: int) -> int:
    # No id may be 0.
    return int.from_bytes(blake2b(text.encode(), digest_size=size).digest(), "big") or 1


def named(lease: Lease) -> str:
    """What carries it out: one of the few names that a worker has."""
    return lease.action.handler or lease.action.WhichOneof("kind") or "nothing"


def attributes_of(lease: Lease) -> dict[str, str | int | float | bool]:
    return {
        "messaging.system": "raftsched",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": lease.job,
        "messaging.message.id": lease.run,
        "raftsched.namespace": lease.namespace,
        "raftsched.job": lease.job,
        "raftsched.run": lease.run,
        "raftsched.flow": lease.flow,
        "raftsched.handler": named(lease),
        "raftsched.attempt": lease.attempt,
        "raftsched.max_attempts": lease.max_attempts,
    }


def outcome_of(context: Context, result: Result) -> str:
    """One word for how an attempt ended."""
    if context.cancelled and context.stop_kind == Stop.KIND_LOST:
        return "lost"
    match result.WhichOneof("end"):
        case "success":
            return "succeeded"
        case "given_back":
            return "given_back"
    return "cancelled" if result.failure.cancelled else "failed"
