"""What a node's figures are at the moment somebody asks, for Prometheus.

What the state says (queues, jobs, dead letters) is shown by the leader alone: it is the same on all
nodes, and a sum over them must not count it three times.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ...statemachine.core.rocks_store import RocksStore
from ...statemachine.core.store import Reading
from ...statemachine.model import keys
from ...statemachine.model.record import LaneRecord, NamespaceRecord, UsageRecord, parse
from ...statemachine.runs import set_aside
from ..node import damage
from ..node.figure_history import Figure
from ..node.node import Node
from ..node.peer_info import ZONE_EDITION
from ..node.troubles import FATES

ROLES = ("leader", "follower", "candidate", "learner")
# Queues and namespaces are made by users; beyond so many, the rest is left out.
ROWS_MAX = 1_000
LANES_MAX = 10_000  # Some 10 ms of the loop.
Rows = Mapping[tuple[str, ...], float]


class NodeFigures:
    """A collector over a node."""

    def __init__(self, node: Node, lines_lost: Callable[[], int]) -> None:
        self.node, self.lines_lost = node, lines_lost

    def collect(self) -> Iterator[Metric]:
        node = self.node
        build: Rows = {(node.spec.version, ZONE_EDITION): 1.0}
        yield gauge("build_info", "The version that runs.", build, "version", "zone_edition")
        yield from self._consensus()
        yield from self._disk()
        if node.leads:
            yield one("worker_sessions", "Workers connected.", node.sessions.present())
            yield from latest(node.figures.history.newest(1))
            yield from queues(node.replica.store)
            yield from namespaces(node.replica.store)

    def _consensus(self) -> Iterator[Metric]:
        node, status = self.node, self.node.status()
        me = status.peers.get(node.name)
        now = "learner" if me is not None and not me.voter else status.role
        roles: Rows = {(role,): float(role == now) for role in ROLES}
        yield gauge("node_role", "1 for what this node is.", roles, "role")
        yield one("leads", "It leads and is ready.", node.leads)
        yield one("leader_known", "It knows a leader.", bool(node.leader_name))
        yield one("draining", "It is being stopped or was asked to drain.", node.draining)
        yield one("state_diverged", "Its state differs from the others'.", node.directory.diverged)
        yield one("clock_skew_too_large", "The leader fires nothing for that.",
                  bool(node.leader.skew_ms))  # fmt: skip
        ends: Rows = {(door,): at for door, at in node.condition.expiries.items()}
        yield gauge("certificate_expires_timestamp_seconds", "When it ends; 0: it is not valid.",
                    ends, "door")  # fmt: skip
        yield one("state_time_ahead_seconds", "How far the state's time is ahead of the clocks; "
                  "nothing fires for that.", node.ahead_ms / 1000)  # fmt: skip
        yield one("term", "Counts leaderships of the cluster.", status.term)
        yield one("commit_index", "The last entry on a majority of disks.", status.commit)
        yield one("applied_index", "The last entry in this node's state.", status.applied)
        yield one("revision", "The last change in this node's state.", node.revision)
        yield one("staleness_seconds", "How old its state is at most.", node.driver.staleness())
        yield one("voters", "Members that vote.", sum(p.voter for p in status.peers.values()))
        connected: Rows = {(name,): float(p.connected) for name, p in status.peers.items()}
        yield gauge("member_connected", "This node has a connection to it.", connected, "member")
        if node.leads:
            behind: Rows = {
                (name,): float(max(0, status.last_index - p.match))
                for name, p in status.peers.items()
            }
            yield gauge("member_behind_entries", "Entries it does not have yet.", behind, "member")
        steps, troubles = node.steps, node.leader.troubles
        yield count("long_steps", "Steps of the loop over a third of silence_min.", steps.count)
        yield count("long_steps_seconds", "How long those lasted in all.", steps.total_s)
        yield one("longest_step_seconds", "The longest step of the loop.", steps.longest_s)
        # Each from the start: one that comes with its first 1 has not grown, for who takes rates.
        fates: Rows = {(fate,): float(troubles.counts[fate]) for fate in FATES}
        family = CounterMetricFamily(
            "raftsched_set_aside", "Work that failed here, and what became of it.", labels=("fate",)
        )
        for fate, many in fates.items():
            family.add_metric(fate, many)
        yield family
        yield one("broken_jobs", "Jobs that were set aside.", set_aside.count(node.replica.store))
        skews: Rows = {
            (name,): about.wall_skew_ms / 1000 for name, about in node.directory.peer_infos.items()
        }
        yield gauge("member_clock_skew_seconds", "Its clock less this one.", skews, "member")

    def _disk(self) -> Iterator[Metric]:
        node, journal = self.node, self.node.journal
        free = os.statvfs(node.spec.folder)
        yield one("disk_free_bytes", "Free on the disk of the folder.",
                  free.f_bavail * free.f_frsize)  # fmt: skip
        yield one("damaged_timestamp_seconds", "When files were last set aside as damaged; 0: none "
                  "are there.", damage.set_aside_at(node.spec.folder))  # fmt: skip
        status = node.status()
        yield one("committed_missing_entries", "Committed, as others know, and not on this disk.",
                  max(0, status.missing - status.last_index))  # fmt: skip
        yield one("disk_full", "It takes no writes for want of space.", status.full)
        yield count("store_verified_bytes", "Read again to find damage.",
                    node.damage.scrub.verified_bytes)  # fmt: skip
        yield one("store_verified_timestamp_seconds", "When all of it was last read to the end.",
                  node.damage.scrub.pass_ended)  # fmt: skip
        yield one("journal_bytes", "What the journal takes on the disk.", journal.bytes_kept)
        yield one("journal_waiting_bytes", "Written and not durable.", journal.bytes_waiting)
        yield one("journal_entries", "Entries kept.", journal.last_index - journal.base_index)
        yield count("journal_written_bytes", "Bytes ever appended.", journal.end)
        yield count("log_lines_lost", "Log lines that nobody read.", self.lines_lost())
        store = node.replica.store
        figures = store.figures() if isinstance(store, RocksStore) else {}
        for name, value in figures.items():
            yield one(f"rocksdb_{name}", f"RocksDB's {name.replace('_', ' ')}.", value)


def latest(figures: Iterable[Figure]) -> Iterator[Metric]:
    """Of the last second, as the leader counted it."""
    for figure in figures:
        yield one("worker_slots", "Slots of workers.", figure.slots)
        yield one("worker_slots_busy", "Slots of workers that are taken.", figure.busy)
        yield one("oldest_ready_seconds", "How long the oldest run waits that could start.",
                  figure.oldest_ms / 1000)  # fmt: skip


def queues(store: Reading) -> Iterator[Metric]:
    """How long the lines are, and since when the first in them waits."""
    names = namespace_names(store)
    ready: dict[tuple[str, ...], float] = defaultdict(float)
    for key, value in islice(store.scan(keys.LANE, keys.after(keys.LANE)), LANES_MAX):
        lane = parse(key, value, LaneRecord)
        where = (names.get(lane.namespace, ""), lane.queue)
        if where in ready or len(ready) < ROWS_MAX:
            ready[where] += lane.ready
    yield gauge("queue_ready", "Runs that wait for a worker.", ready, "namespace", "queue")


def namespaces(store: Reading) -> Iterator[Metric]:
    names = namespace_names(store)
    found: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in USAGE}
    for number, name in names.items():
        value = store.get(keys.usage(number))
        usage = parse(keys.usage(number), value, UsageRecord) if value else None
        for field in USAGE:
            found[field][name,] = float(getattr(usage, field)) if usage else 0.0
    for field, (metric, help_) in USAGE.items():
        yield gauge(metric, help_, found[field], "namespace")


USAGE = {
    "jobs": ("jobs", "Jobs registered."),
    "live": ("live_runs", "Runs under way."),
    "leased": ("leases", "Runs leased."),
    "dead": ("dead_letters_kept", "Dead letters that nobody has dealt with."),
}


def namespace_names(store: Reading) -> dict[int, str]:
    """By number; the default one needs no record."""
    found = {0: "default"}
    for key, value in store.scan(keys.NAMESPACE, keys.after(keys.NAMESPACE)):
        if len(found) >= ROWS_MAX:
            break
        found[parse(key, value, NamespaceRecord).number] = key[1:].decode()
    return found


def one(name: str, help_: str, value: float) -> Metric:
    return GaugeMetricFamily(f"raftsched_{name}", help_, value=float(value))


def count(name: str, help_: str, value: float) -> Metric:
    return CounterMetricFamily(f"raftsched_{name}", help_, value=float(value))


def gauge(name: str, help_: str, rows: Rows, *labels: str) -> Metric:
    family = GaugeMetricFamily(f"raftsched_{name}", help_, labels=labels)
    for values, value in rows.items():
        family.add_metric(values, value)
    return family


class SpansSent(Protocol):
    """The queue of spans, as far as it is shown."""

    @property
    def exported(self) -> int: ...

    @property
    def lost(self) -> int: ...


class SpanFigures:
    """A collector of what became of the spans of a node that makes any."""

    def __init__(self, queue: SpansSent) -> None:
        self.queue = queue

    def collect(self) -> Iterator[Metric]:
        sent, lost = "Spans given to the collector.", "Spans that it did not take, or had no room."
        yield CounterMetricFamily("raftsched_spans_exported", sent, value=self.queue.exported)
        yield CounterMetricFamily("raftsched_spans_lost", lost, value=self.queue.lost)


class RefusedFigures:
    """A collector of what a node has turned away, by the name of the limit or the reason."""

    def __init__(self, count: Mapping[str, int]) -> None:
        self.count = count

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "raftsched_refused", "Calls and streams turned away.", labels=["reason"]
        )
        for reason, count in self.count.items():
            family.add_metric([reason], count)
        yield family
