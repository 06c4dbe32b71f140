"""What a job's policies say, with their defaults: numbers in, numbers out."""

from __future__ import annotations

from hashlib import blake2b

from ...proto.v1 import job_pb2, run_pb2
from ..core import limits
from ..core.instants import ms_or, to_ms
from ..schedule.describe import length
from . import concurrency_key
from .record import RunRecord
from .specs import Template
from .timers import earliest


def back_off_ms(retry: job_pb2.RetryPolicy, attempt: int, seed: bytes) -> int:
    """How long to wait after the attempt with this number, from 1. Integers only, so that every
    machine computes the same, and bounded: the power stops where the cap is reached."""
    cap_ms = ms_or(retry, "cap", limits.RETRY_CAP_MS)
    wait_ms = min(ms_or(retry, "first", limits.RETRY_FIRST_MS), cap_ms)
    factor = retry.factor_percent or limits.RETRY_FACTOR_PERCENT
    for _ in range(attempt - 1):
        if wait_ms >= cap_ms or factor == 100:
            break
        wait_ms = min(wait_ms * factor // 100, cap_ms)
    percent = limits.RETRY_JITTER_PERCENT
    if retry.HasField("jitter_percent"):
        percent = retry.jitter_percent
    return wait_ms + spread(seed, attempt, wait_ms * percent // 100)


def at_odds(spec: job_pb2.JobSpec) -> list[str]:
    """Policies that go against each other, for people: each is right, nobody wants both."""
    found = []
    first_ms = ms_or(spec.retry, "first", limits.RETRY_FIRST_MS)
    cap_ms = ms_or(spec.retry, "cap", limits.RETRY_CAP_MS)
    if first_ms > cap_ms:
        first, cap = (length(ms, counted=True) for ms in (first_ms, cap_ms))
        found.append(f"retry.first is {first}, but no wait is longer than retry.cap, {cap}")
    attempt_ms, run_ms = (ms_or(spec.timeouts, name, 0) for name in ("attempt", "run"))
    if attempt_ms > run_ms > 0:
        attempt, run = (length(ms, counted=True) for ms in (attempt_ms, run_ms))
        found.append(f"timeouts.attempt is {attempt}, but the whole run has timeouts.run, {run}")
    if filled := concurrency_key.warning(spec.concurrency.key):
        found.append(filled)
    return found


def spread(seed: bytes, number: int, width: int) -> int:
    """A stable number from 0 to width, evenly spread over seeds and numbers."""
    if width <= 0:
        return 0
    digest = blake2b(seed, digest_size=8, key=number.to_bytes(8, "big")).digest()
    return int.from_bytes(digest, "big") * (width + 1) >> 64


def retries_end(run: RunRecord, template: Template) -> int:
    """The first instant at which no attempt may begin any more; 0 for never."""
    if not template.retry_total_ms or not run.ready_at_ms or run.state == run_pb2.RUN_STATE_RUNNING:
        return 0
    return run.ready_at_ms + template.retry_total_ms + 1


def next_timeout(run: RunRecord, timeouts: job_pb2.Timeouts) -> int:
    """The first instant at which a timeout may end a run or an attempt; 0 for none."""
    at_ms = 0
    if run.ready_at_ms:
        if timeouts.HasField("run"):
            at_ms = run.ready_at_ms + to_ms(timeouts.run)
        if timeouts.HasField("queue") and not run.started_at_ms:
            at_ms = earliest(at_ms, run.ready_at_ms + to_ms(timeouts.queue))
    if run.heard_at_ms and timeouts.HasField("heartbeat"):
        at_ms = earliest(at_ms, run.heard_at_ms + to_ms(timeouts.heartbeat))
    return at_ms
