"""Ready runs, in the order in which they are leased.

A lane is the part of a queue whose runs have one priority and ask the same of a worker (handler,
labels). Within a lane the order is by rank: the instant at which a run became ready, moved back or
forth by its priority. A worker is given the lowest rank over all lanes that it fits, so HIGH goes
before MEDIUM before LOW, and waiting makes up for priority: nothing starves.

A run whose job or key has no free slot is parked: it leaves its lane for a wait queue, so that
no scan walks over it again, and comes back with its old rank when a slot is free. It is parked when
its turn comes, not before; until then it keeps its place. Each lane has its own wait queue for a
slot, since those of another lane may find nobody who takes them.

Priority is part of the lane, though the rank alone would order it: new HIGH runs would otherwise
enter before the low-water mark, and each scan would walk over a minute of tombstones.

Lanes are many where labels or handlers are (one for each host), and are never deleted; an empty one
costs nothing. Those with ready runs stand in a table (`keys.BUSY`) by queue, labels and handler, so
a grant meets no lane without work and none that its worker does not fit, but for one look at all of
them where they are at most 8. Of more than 128 that fit it looks at 128, and at others the next
time: across those, not across all, the lowest rank wins. A state older than that table is indexed
in steps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping

from ...proto.v1 import common_pb2, job_pb2
from ..core import limits
from ..model import keys
from ..model.entities import Run
from ..model.record import LabelRecord, LaneRecord, QueueRecord, RunRecord
from ..model.specs import EXECUTORS
from ..model.view import View

# A rank is never negative: every lane's ranks are shifted by one boost.
BOOSTS = {
    common_pb2.PRIORITY_HIGH: 0,
    common_pb2.PRIORITY_UNSPECIFIED: limits.BOOST_MS,
    common_pb2.PRIORITY_MEDIUM: limits.BOOST_MS,
    common_pb2.PRIORITY_LOW: 2 * limits.BOOST_MS,
}
MARK = 5  # A lane's low-water mark is a ready key without table and lane.


def lane_for(view: View, namespace: int, spec: job_pb2.JobSpec, queue: str, priority: int) -> int:
    """The number of the lane for a job's runs; it is made when there is none."""
    labels = sorted(spec.worker_labels.items())
    handler = handler_of(spec.action)
    index = keys.lane_of(namespace, queue, priority, handler, labels)
    if index in view.lanes:
        return view.lanes[index]
    value = view.get_raw(index)
    if value is not None:
        number = view.lanes[index] = int.from_bytes(value, "big")
        return number
    view.meta.lane_serial += 1
    number = view.lanes[index] = view.meta.lane_serial
    view.put_raw(index, number.to_bytes(4, "big"))
    record = LaneRecord(
        number=number, handler=handler, namespace=namespace, queue=queue,
        priority=common_pb2.Priority.ValueType(priority),
        labels=tuple(LabelRecord(name=n, value=v) for n, v in labels),
    )  # fmt: skip
    view.put(keys.lane(number), record)
    if _indexed(view) == number - 1:
        # It has no run yet.
        view.put_raw(keys.LANES_INDEXED, number.to_bytes(4, "big"))
    queue_key = keys.queue(namespace, queue)
    if view.get(queue_key, QueueRecord) is None:
        view.put(queue_key, QueueRecord())
    return number


def handler_of(action: job_pb2.Action) -> str:
    """What a worker must have to carry an action out."""
    kind = action.WhichOneof("kind")
    return action.handler if kind == "handler" else str(kind)


def fits(lane: LaneRecord, handlers: frozenset[str], labels: Mapping[str, str]) -> bool:
    """Whether a worker may take runs of a lane. No handlers named: all of them, no executors."""
    if handlers:
        if lane.handler not in handlers:
            return False
    elif lane.handler in EXECUTORS:
        return False
    return all(labels.get(label.name) == label.value for label in lane.labels)


def busy_key(lane: LaneRecord) -> bytes:
    """Where a lane stands while it has ready runs."""
    labels = [(label.name, label.value) for label in lane.labels]
    return keys.busy(lane.namespace, lane.queue, labels, lane.handler, lane.number)


def busy_for(
    view: View, namespace: int, queue: str, handlers: frozenset[str], labels: Mapping[str, str],
    after: bytes = b"",
) -> Iterator[bytes]:  # fmt: skip
    """The lanes of a queue with ready runs that a worker fits, by their keys.

    Those that it does not fit are not looked at: labels lie behind each other in the key, so only
    those are followed that the worker has. Where all handlers fit, it begins behind a key.
    """
    own = [keys.label(name, value) for name, value in sorted(labels.items())]
    ways = [(keys.busy_in(namespace, queue), 0)]
    while ways:
        at, first = ways.pop()
        yield from _of_handlers(view, at + keys.LAST, handlers, after)
        if first < len(own) and _is_any(view, at + keys.LABEL):
            deeper = [(at + own[place], place + 1) for place in range(first, len(own))]
            ways += [way for way in deeper if _is_any(view, way[0])]


def _is_any(view: View, prefix: bytes) -> bool:
    return next(view.scan(prefix, keys.after(prefix)), None) is not None


def _of_handlers(view: View, at: bytes, handlers: frozenset[str], after: bytes) -> Iterator[bytes]:
    """The lanes that ask for these labels and one of the handlers; none named: any, no executor."""
    end = keys.after(at)
    if not handlers:
        executors = tuple(at + keys.text(name) for name in EXECUTORS)
        first = after + b"\0" if after.startswith(at) else at
        for key in view.scan(first, end):
            if not key.startswith(executors):
                yield key
        return
    wanted = sorted(map(keys.text, handlers))
    place = 0
    while place < len(wanted):
        part = wanted[place]
        following = b""
        for key in view.scan(at + part, end):
            if not key.startswith(part, len(at)):
                following = key[len(at) : -4]
                break
            yield key
        if not following:
            return
        # On to the next of its handlers that may have a lane.
        place = bisect_left(wanted, following, place + 1)


def _indexed(view: View) -> int:
    """Up to which number lanes stand among the busy ones while they have ready runs."""
    return int.from_bytes(view.get_raw(keys.LANES_INDEXED) or b"", "big")


def index_some(view: View) -> None:
    """A state of before does not say which of its lanes have ready runs: find out, step by step."""
    first, last = _indexed(view) + 1, view.meta.lane_serial
    if first > last:
        return
    for number in range(first, min(last, first + limits.CHANGE_ITEMS - 1) + 1):
        lane = view.get(keys.lane(number), LaneRecord)
        if lane is not None and lane.ready:
            view.put_raw(busy_key(lane))
        view.put_raw(keys.LANES_INDEXED, number.to_bytes(4, "big"))


def entry_of(run: Run) -> bytes:
    """Where a ready run stands in its lane."""
    return keys.ready(run.record.lane, run.record.rank_ms, run.jid, run.occurrence)


def enter(view: View, run: Run, record: RunRecord, at_ms: int) -> None:
    """Put a run among the ready ones of its lane, with the turn it has, or one that counts from an
    instant; 0: from now. `record` is that of the run, to be changed."""
    lane = view.edit(keys.lane(record.lane), LaneRecord)
    if not record.ready_at_ms:
        record.ready_at_ms = view.now_ms
    if not record.rank_ms:
        record.rank_ms = (at_ms or view.now_ms) + BOOSTS[lane.priority]
    # A run that enters is not in its lane, so its entry is not stored.
    entry = keys.ready(record.lane, record.rank_ms, run.jid, run.occurrence)
    view.put_new(entry)
    mark = entry[MARK:]
    if not lane.ready:
        view.put_new(busy_key(lane))
    if not lane.ready or mark < lane.ready_from:
        lane.ready_from = mark
    lane.ready += 1


def leave(view: View, run: Run) -> None:
    """Take a run out of its lane before its turn."""
    view.delete(entry_of(run))
    lane = view.edit(keys.lane(run.record.lane), LaneRecord)
    lane.ready -= 1
    if not lane.ready:
        view.delete(busy_key(lane))


def wait_queue_of(jid: int, record: RunRecord) -> bytes:
    """The wait queue in which a run is parked."""
    return keys.parked_in(slot_owner(jid, record), record.lane)


def slot_owner(jid: int, record: RunRecord) -> bytes:
    """Whose slot a parked run waits for."""
    if record.parking == RunRecord.PARKING_JOB:
        return keys.parked_by_job(jid)
    return keys.parked_by_key(keys.namespace_of(jid), record.limit_key)
