"""What a node counts while it works, for Prometheus.

Everything here is fed in batches, a change or a call at a time: a busy leader makes thousands of
runs a second, and a count for each would be the dearest part of it. What can be read when somebody
asks is in figures.py.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from ...proto.v1 import cluster_pb2
from ...proto.v1.run_pb2 import CAUSE_BACKFILL
from ...statemachine.machine import Prepared
from ...statemachine.model import keys
from ...statemachine.model.record import Change, MetaRecord, RunRecord, parse
from ..node.applier import Applied
from ..node.figure_history import LATENESS, LeaderCounts
from ..node.leader_loop import Leader
from ..node.loop_steps import LoopTotals

SECONDS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
CALLS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
BYTES = tuple(float(256 << 2 * i) for i in range(8))
ITEMS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 500.0, 1000.0, 5000.0, 10_000.0)
# Of a change with more leases than this, so many speak for all.
SAMPLES = 64
# Methods and codes are ours, but a path in a request is the caller's.
SERIES_MAX = 1_000


class Histogram:
    """A histogram that is fed many values at a time."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def add_all(self, values: Sequence[float], stands_for: int) -> None:
        """Take a sample of so many values."""
        share, rest = divmod(stands_for, len(values))
        for place, value in enumerate(values):
            self.add(value, share + (place < rest))

    def buckets(self) -> list[tuple[str, float]]:
        """As the library wants them: cumulative, the last one without a bound."""
        found, below = [], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            found.append((bound, float(below)))
        return found


class Metrics:
    """All that is counted. `registry` is the node's own: nothing of the process leaks in."""

    def __init__(
        self, wall: Callable[[], float] = time.time,
        dead_letters: Callable[[Change], None] = lambda change: None,
    ) -> None:  # fmt: skip
        """`dead_letters` is called with each change in which runs became dead letters, as that was
        read here anyway."""
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        self.wall = wall
        self._leader: Leader | None = None
        self._applied: Applied | None = None
        self._dead_letters = dead_letters
        self.lateness = Histogram(LATENESS)
        self.decide, self.commit = Histogram(SECONDS), Histogram(SECONDS)
        self.apply, self.sync = Histogram(SECONDS), Histogram(SECONDS)
        self._before = (0.0, 0.0)
        self.change_bytes, self.change_items = Histogram(BYTES), Histogram(ITEMS)
        self.lag = Histogram(SECONDS)
        self.counted = dict.fromkeys(SHOWN, 0)
        self.calls: dict[tuple[str, str], int] = {}
        self.call_seconds: dict[str, Histogram] = {}
        self.leaderships = 0

    def follow(self, applied: Applied, leader: Leader) -> None:
        """Count what this node decides."""
        self._leader, self._applied = leader, applied
        applied.on_change(self.changed)

    def changed(self, index: int, prepared: Prepared, meta: MetaRecord) -> None:
        """A change was applied; a listener of the replica."""
        self.apply.add(self._applied.wrote_s if self._applied is not None else 0.0)
        # Each change is applied by all nodes; who decided it counts it.
        if self._leader is None or not self._leader.leading:
            return
        self._time(self._leader.done)
        change = prepared.change
        self.change_bytes.add(len(prepared.data))
        self.change_items.add(len(change.keys) + len(change.deletes))
        for table, name in PUTS.items():
            self.counted[name] += len(_places(change.keys, table))
        self.counted["leases_ended"] += len(_places(change.deletes, keys.LEASE))
        self._late(change)
        if _places(change.keys, keys.DEAD):
            self._dead_letters(change)

    def _late(self, change: Change) -> None:
        """How long after their time runs were leased, shown by an even sample of them."""
        leased = _places(change.keys, keys.LEASE)
        if not leased:
            return
        now_ms = self.wall() * 1000
        sample = leased[:: -(-len(leased) // SAMPLES)]
        late = []
        for place in sample:
            key = keys.run(*keys.run_of(change.values[place]))
            at = bisect_left(change.keys, key)
            if at < len(change.keys) and change.keys[at] == key:
                run = parse(key, change.values[at], RunRecord)
                # A later attempt was not due when the run was, nor is a backfilled one late.
                if run.attempt <= 1 and run.cause != CAUSE_BACKFILL:
                    late.append(max(0.0, now_ms - run.due_at_ms) / 1000)
        if late:
            self.lateness.add_all(late, len(leased) * len(late) // len(sample))

    def _time(self, done: LoopTotals) -> None:
        """The loop keeps sums, and one change is in flight at a time: so what was added since the
        last one is this one's decision, and the last one's way to the majority."""
        self.decide.add(done.decide_s - self._before[0])
        if done.commit_s != self._before[1]:
            self.commit.add(done.commit_s - self._before[1])
        self._before = (done.decide_s, done.commit_s)

    def called(self, method: str, code: str, seconds: float) -> None:
        """A call was answered; of a stream, it has ended. See the services' Observer."""
        key = (method, code)
        if key not in self.calls and len(self.calls) >= SERIES_MAX:
            key = ("other", code)
        self.calls[key] = self.calls.get(key, 0) + 1
        spread = self.call_seconds.get(key[0])
        if spread is None:
            spread = self.call_seconds[key[0]] = Histogram(CALLS)
        spread.add(seconds)

    def tally(self) -> cluster_pb2.Tally:
        """The same for whoever asks by gRPC; see the services' Observer."""
        counted = self.counted
        shown = cluster_pb2.Tally(
            scheduled_times=counted["scheduled_times"], leased=counted["leases_granted"],
            ended=counted["runs_ended"], dead_letters=counted["dead_letters"],
        )  # fmt: skip
        bounds = (*self.lateness.bounds, None)
        for bound, leases in zip(bounds, self.lateness.counts, strict=True):
            band = shown.lateness.add(leases=leases)
            if bound is not None:
                band.most.FromMilliseconds(round(bound * 1000))
        return shown

    def totals(self) -> LeaderCounts:
        """The same for the figures that nodes keep."""
        counted = self.counted
        return LeaderCounts(
            counted["scheduled_times"], counted["leases_granted"], counted["runs_ended"],
            counted["dead_letters"], tuple(self.lateness.counts),
        )  # fmt: skip

    def collect(self) -> Iterator[Metric]:
        for name, help_, spread in (
            ("lateness_seconds", "Lease granted after the run was due.", self.lateness),
            ("decide_seconds", "Requests turned into one change.", self.decide),
            ("commit_seconds", "From the decision until the change is applied.", self.commit),
            ("apply_seconds", "One change written into the state.", self.apply),
            ("sync_seconds", "One round of the journal, until it is durable.", self.sync),
            ("change_bytes", "Size of a change.", self.change_bytes),
            ("change_items", "Puts and deletes of a change.", self.change_items),
            ("loop_lag_seconds", "The loop was late for a timer by so much.", self.lag),
        ):
            yield histogram(name, help_, [([], spread)])
        for name, help_ in SHOWN.items():
            yield counter(name, help_, self.counted[name])
        yield counter("leaderships", "Times this node became leader.", self.leaderships)
        yield self._calls()
        yield histogram(
            "call_seconds", "Time to answer a call; of a stream, its life.",
            [([method], spread) for method, spread in self.call_seconds.items()], ["method"],
        )  # fmt: skip

    def _calls(self) -> Metric:
        family = CounterMetricFamily(
            "raftsched_calls", "Calls answered.", labels=["method", "code"]
        )
        for labels, count in self.calls.items():
            family.add_metric(labels, count)
        return family


SHOWN = {
    "scheduled_times": "Scheduled times (or stretches of them) that got an outcome.",
    "leases_granted": "Leases granted to workers.",
    "leases_ended": "Leases that ended, however they did.",
    "runs_ended": "Runs that ended, and changes to such runs.",
    "dead_letters": "Runs that used up their attempts.",
}
# Each is known by a key of its table; see events.py of the rules for the same idea.
PUTS = {
    keys.LEDGER: "scheduled_times",
    keys.LEASE: "leases_granted",
    keys.ENDED: "runs_ended",
    keys.DEAD: "dead_letters",
}


def _places(ordered: Sequence[bytes], table: bytes) -> range:
    """Where the keys of a table stand among the keys of a change, which are in order."""
    first = bisect_left(ordered, table)
    return range(first, bisect_left(ordered, keys.after(table), first))


def counter(name: str, help_: str, value: float) -> Metric:
    return CounterMetricFamily(f"raftsched_{name}", help_, value=value)


def histogram(
    name: str, help_: str, rows: Iterable[tuple[list[str], Histogram]], labels: Sequence[str] = ()
) -> Metric:
    family = HistogramMetricFamily(f"raftsched_{name}", help_, labels=labels)
    for values, spread in rows:
        family.add_metric(values, spread.buckets(), spread.total)
    return family
