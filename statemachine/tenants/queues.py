"""Queues: settings that bound what is leased from them."""

from __future__ import annotations

from ...proto.v1 import queue_pb2
from ..core import instants, limits, masks
from ..core.rejection import Reason, Refused
from ..model import keys, validate
from ..model.record import LaneRecord, QueueRecord, RunRecord
from ..model.view import View
from . import audit_log, namespaces

Queue = queue_pb2.Queue
CHANGEABLE = frozenset({"concurrency", "rate", "burst"})


def _find(view: View, namespace: str, name: str) -> tuple[int, QueueRecord]:
    number = namespaces.need(view, namespace).number
    record = view.get(keys.queue(number, name), QueueRecord)
    if record is None:
        raise Refused.because(
            Reason.ERROR_REASON_QUEUE_NOT_FOUND,
            f"there is no queue '{name}' in the namespace '{namespace or namespaces.DEFAULT}'; it "
            "is made when a job names it, or by setting a limit",
            namespace=namespace or namespaces.DEFAULT, queue=name,
        )  # fmt: skip
    return number, record


def get(view: View, request: queue_pb2.GetQueueRequest, actor: str) -> Queue:
    number, record = _find(view, request.namespace, request.queue)
    return answer(view, request.namespace, number, request.queue, record)


def update(view: View, request: queue_pb2.UpdateQueueRequest, actor: str) -> Queue:
    wanted = request.queue
    number = namespaces.need(view, wanted.namespace).number
    name = wanted.name
    record = view.get(keys.queue(number, name), QueueRecord) or QueueRecord()
    namespaces.check_etag(wanted.etag, record.version)
    merged = Queue(concurrency=record.concurrency, rate=record.rate, burst=record.burst)
    masks.merge(wanted, merged, request.update_mask, CHANGEABLE)
    faults = validate.name("queue.name", name)
    for field in sorted(CHANGEABLE):
        faults += validate.between(f"queue.{field}", getattr(merged, field), 0, limits.CONCURRENCY)
    if faults:
        raise Refused.of(faults)
    record.concurrency, record.rate, record.burst = merged.concurrency, merged.rate, merged.burst
    record.allowance = (merged.burst or merged.rate) * 1000
    record.allowance_at_ms = view.now_ms
    return _changed(view, wanted.namespace, number, name, record, actor, "UpdateQueue", request)


def pause(view: View, request: queue_pb2.PauseQueueRequest, actor: str) -> Queue:
    number, record = _find(view, request.namespace, request.queue)
    faults = validate.text("reason", request.reason, limits.REASON_CHARS)
    if faults:
        raise Refused.of(faults)
    record.paused = True
    record.pause_reason = request.reason
    return _changed(
        view, request.namespace, number, request.queue, record, actor, "PauseQueue", request
    )


def resume(view: View, request: queue_pb2.ResumeQueueRequest, actor: str) -> Queue:
    number, record = _find(view, request.namespace, request.queue)
    record.paused = False
    record.pause_reason = ""
    return _changed(
        view, request.namespace, number, request.queue, record, actor, "ResumeQueue", request
    )


def _changed(
    view: View, namespace: str, number: int, name: str, record: QueueRecord, actor: str,
    method: str,
    request: queue_pb2.UpdateQueueRequest | queue_pb2.PauseQueueRequest
    | queue_pb2.ResumeQueueRequest,
) -> Queue:  # fmt: skip
    record.version += 1
    view.put(keys.queue(number, name), record)
    namespace = namespace or namespaces.DEFAULT
    audit_log.add(view, actor, method, namespace, f"queue/{name}", request)
    return answer(view, namespace, number, name, record)


def settings(namespace: str, name: str, record: QueueRecord) -> Queue:
    return Queue(
        namespace=namespace or namespaces.DEFAULT, name=name, paused=record.paused,
        pause_reason=record.pause_reason, concurrency=record.concurrency, rate=record.rate,
        burst=record.burst, leased=record.leased, etag=f"v{record.version}",
    )  # fmt: skip


def answer(view: View, namespace: str, number: int, name: str, record: QueueRecord) -> Queue:
    """A queue as users see it; how many workers pull from it only the leader knows."""
    shown = settings(namespace, name, record)
    oldest_ms = 0
    prefix = keys.busy_in(number, name)
    for busy in list(view.scan(prefix, keys.after(prefix))):
        lane_number = keys.lane_in(busy)
        lane = view.need(keys.lane(lane_number), LaneRecord)
        shown.ready += lane.ready
        if lane.ready:
            ready = keys.ready_in(lane_number)
            first = next(view.scan(ready + lane.ready_from, keys.after(ready)))
            run = view.need(keys.run(*keys.run_of(first)), RunRecord)
            oldest_ms = min(oldest_ms or run.ready_at_ms, run.ready_at_ms)
    if oldest_ms:
        instants.set_ms(shown.oldest_ready_time, oldest_ms)
    return shown
