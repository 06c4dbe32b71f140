"""What waits for workers in all namespaces: for figures that people look at, not for decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from ...proto.v1 import common_pb2
from ..core.store import Reading
from ..model import keys
from ..model.record import LaneRecord, parse
from ..runs import lanes


@dataclass(frozen=True, slots=True)
class Waiting:
    """Ready runs at one moment."""

    # By priority.
    ready: Mapping[common_pb2.Priority.ValueType, int]
    # Since when the oldest of them waits; 0: none does.
    oldest_ms: int


def waiting(store: Reading, most: int) -> Waiting:
    """What waits in so many lanes: those behind them are left out."""
    ready = Counter[common_pb2.Priority.ValueType]()
    oldest_ms = 0
    for key, _ in islice(store.scan(keys.BUSY, keys.after(keys.BUSY)), most):
        number = keys.lane_in(key)
        place = keys.lane(number)
        value = store.get(place)
        lane = parse(place, value, LaneRecord) if value is not None else None
        if lane is None or not lane.ready:
            continue
        ready[lane.priority or common_pb2.PRIORITY_MEDIUM] += lane.ready
        entries = keys.ready_in(number)
        first = next(store.scan(entries + lane.ready_from, keys.after(entries)), None)
        if first is not None:
            since_ms = keys.rank_of(first[0]) - lanes.BOOSTS[lane.priority]
            oldest_ms = min(oldest_ms or since_ms, since_ms)
    return Waiting(ready, oldest_ms)
