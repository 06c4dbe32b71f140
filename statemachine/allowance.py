"""When a queue with a rate may give leases again.

A timer for this would be written with each lease. The leader's loop asks instead, after each
change, for the queues that somebody pulls from.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import keys, namespaces
from .record import LaneRecord, QueueRecord
from .view import View

Place = tuple[str, str]


def next_ms(view: View, places: Iterable[Place]) -> int | None:
    """The first instant after the view's at which one of these queues, by namespace and name, has
    an allowance for a run that waits; None when none waits for that alone."""
    instants = []
    for namespace, name in places:
        record = namespaces.find(view, namespace)
        if record is None:
            continue
        queue = view.get(keys.queue(record.number, name), QueueRecord)
        if queue is None or not queue.rate or queue.paused:
            continue
        # In thousandths, filled by the rate in each millisecond. Rounded up.
        at_ms = queue.allowance_at_ms - (queue.allowance - 1_000) // queue.rate
        if at_ms > view.now_ms and _ready(view, record.number, name):
            instants.append(at_ms)
    return min(instants, default=None)


def _ready(view: View, namespace: int, queue: str) -> bool:
    prefix = keys.lanes_of(namespace, queue)
    for _, value in view.stored.scan(prefix, keys.after(prefix)):
        lane = view.need(keys.lane(int.from_bytes(value, "big")), LaneRecord)
        if lane.ready:
            return True
    return False
