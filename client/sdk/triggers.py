"""Triggers: one, and many that are cut into requests which the cluster takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Literal

from ...proto import tracing
from ...proto.v1 import common_pb2, job_pb2, run_pb2
from . import values
from .imports import BYTES_MAX
from .specs import PriorityWord
from .values import Length, choice, duration, timestamp

TRIGGERS_MAX = 1_000


def trigger_of(
    job: str,
    *,
    payload: object = None,
    priority: PriorityWord | None = None,
    queue: str = "",
    due: datetime | None = None,
    force: bool = False,
    if_running: Literal["wait", "refuse"] = "wait",
    unique_key: str = "",
    when_taken: Literal["return_existing", "reject", "replace"] = "return_existing",
    hold: Length | None = None,
    concurrency_key: str = "",
    labels: Mapping[str, str] | None = None,
    trace_context: Mapping[str, str] | None = None,
) -> job_pb2.Trigger:
    """One of many triggers, with the words of `jobs.trigger`.

    client.jobs.trigger_many([trigger_of("mail", payload={"to": name}) for name in names])
    """
    trigger = job_pb2.Trigger(
        job=job,
        payload=values.payload(payload),
        queue=queue,
        force=force,
        due_time=timestamp(due),
        concurrency_key=concurrency_key,
        labels=labels,
        trace_context=values.trace_context(trace_context or {}),
    )
    if if_running != "wait":
        kinds = job_pb2.TriggerJobRequest.IfRunning
        trigger.if_running = choice(kinds, "IF_RUNNING_", if_running)
    if priority is not None:
        trigger.priority = choice(common_pb2.Priority, "PRIORITY_", priority)
    if unique_key:
        policy = choice(run_pb2.UniqueKey.Policy, "POLICY_", when_taken)
        unique = run_pb2.UniqueKey(key=unique_key, policy=policy, hold=duration(hold))
        trigger.unique.CopyFrom(unique)
    return trigger


def single_request(trigger: job_pb2.Trigger, namespace: str) -> job_pb2.TriggerJobRequest:
    """The request for one alone."""
    said: dict[str, Any] = {field.name: value for field, value in trigger.ListFields()}
    return job_pb2.TriggerJobRequest(namespace=namespace, **said)


def trigger_requests(
    triggers: Iterable[job_pb2.Trigger], namespace: str, request_id: str = ""
) -> Iterator[job_pb2.TriggerJobsRequest]:
    """Requests for all of them, in their order. The n-th gets "request_id.n", if there is one."""
    part: list[job_pb2.Trigger] = []
    size = count = 0
    # Each is given its place in a trace as it is sent.
    beside = 8 if tracing.active() is None else 16 + tracing.CONTEXT_BYTES_MAX
    for trigger in triggers:
        own = trigger.ByteSize() + beside
        if part and (len(part) >= TRIGGERS_MAX or size + own > BYTES_MAX):
            yield _request(part, namespace, request_id, count)
            part, size, count = [], 0, count + 1
        part.append(trigger)
        size += own
    if part:
        yield _request(part, namespace, request_id, count)


def _request(
    part: list[job_pb2.Trigger], namespace: str, request_id: str, number: int
) -> job_pb2.TriggerJobsRequest:
    own = f"{request_id}.{number}" if request_id else ""
    return job_pb2.TriggerJobsRequest(namespace=namespace, triggers=part, request_id=own)
