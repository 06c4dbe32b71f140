"""What is measured: the names of the costs, in what they are counted, how they are shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .lines import Point, StraightLine, fitted

Unit = Literal["s", "bytes", "cores"]
INSERT_S = 1 / 15_000
# What a unit is shown in: a factor and a name.
SHOWN: dict[Unit, tuple[float, str]] = {
    "s": (1e6, "µs"), "bytes": (1.0, "bytes"), "cores": (1e6, "µs a second"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CostKind:
    """A cost that grows with a count."""

    name: str
    # What it is the cost of, and where it arises, as people read it.
    text: str
    counted: str
    unit: Unit


KINDS = (
    CostKind("run_leader", "a run of many due at once: processor of the leader", "runs", "s"),
    CostKind("run_follower", "the same: processor of a follower", "runs", "s"),
    CostKind("run_log", "the same: log of each node", "runs", "bytes"),
    CostKind("run_disk", "the same: written by each node to its disk", "runs", "bytes"),
    CostKind("rate_leader", "a run of a steady load: processor of the leader", "runs/s", "s"),
    CostKind("rate_follower", "the same: processor of a follower", "runs/s", "s"),
    CostKind("rate_disk", "the same: written by each node to its disk", "runs/s", "bytes"),
    CostKind("job_import", "a job that is imported: processor of the leader", "jobs", "s"),
    CostKind("job_memory", "a job that is stored: memory of a node", "jobs", "bytes"),
    CostKind("job_disk", "the same: state of a node on its disk", "jobs", "bytes"),
    CostKind("job_snapshot", "the same: snapshot", "jobs", "bytes"),
    CostKind("job_start", "the same: start of a node", "jobs", "s"),
    CostKind("worker_leader", "a worker that is connected: processor of the leader", "workers",
             "cores"),
    CostKind("worker_memory", "the same: memory of the leader", "workers", "bytes"),
    CostKind("lease_leader", "a lease that is held: processor of the leader", "leases", "cores"),
    CostKind("lease_memory", "the same: memory of the leader", "leases", "bytes"),
    CostKind("event_gateway", "an event for a watcher: processor of the gateway",
             "events seen", "s"),
    CostKind("watcher_memory", "a watcher that is connected: memory of the gateway", "watchers",
             "bytes"),
    CostKind("view_gateway", "an overview that is opened: processor of the gateway", "views", "s"),
    CostKind("view_nodes", "the same: processor of all nodes", "views", "s"),
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}


@dataclass(slots=True)
class CostPoints:
    """All that was measured, by the name of a cost."""

    points: dict[str, list[Point]] = field(default_factory=dict)
    # The most runs a second that were seen, all due at one instant.
    best_rate: float = 0.0
    # What a node holds for its log, however many jobs there are.
    journal_bytes: float = 0.0
    # What inserting a job took last, at least as on a quiet machine.
    insert_s: float = INSERT_S

    def add(self, name: str, count: float, cost: float) -> None:
        self.points.setdefault(BY_NAME[name].name, []).append((count, cost))

    def line(self, name: str) -> StraightLine | None:
        return fitted(self.points.get(name, ()))

    def lines(self) -> dict[str, StraightLine]:
        """Those for which there are points enough."""
        found = {kind.name: self.line(kind.name) for kind in KINDS}
        return {name: line for name, line in found.items() if line is not None}

    def largest(self, name: str) -> float:
        """How far it was measured."""
        return max((count for count, _ in self.points.get(name, ())), default=0.0)
