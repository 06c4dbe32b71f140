"""What a cluster of machines like this one holds, and what ends first for a load that is asked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .lines import StraightLine

# One thread of a node decides everything, so it has one core, whatever the machine has.
LEADER_CORES = 1.0
# A node that is started again should be back within this.
START_S = 60.0
# Sessions of workers that a leader keeps (SESSIONS_MAX in cluster/node/worker_sessions.py).
WORKERS_MAX = 20_000
# A snapshot shares its tables with the state until they are rewritten: room for both.
DISK_COPIES = 2.0


@dataclass(frozen=True, kw_only=True)
class CapacityAsked:
    """A load."""

    jobs: float = 0.0
    rate: float = 0.0
    workers: float = 0.0


@dataclass(frozen=True, kw_only=True)
class MachineRoom:
    """What a machine has, and what a node needs with nothing to do."""

    memory: float
    disk: float
    disk_per_s: float
    journal: float


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """One resource under a load: what it needs and what there is."""

    name: str
    needed: float
    there: float
    unit: str

    @property
    def share(self) -> float:
        return self.needed / self.there


@dataclass(frozen=True, slots=True)
class CapacityModel:
    """Straight lines, and the machine they are held against."""

    lines: Mapping[str, StraightLine]
    room: MachineRoom

    def uses(self, load: CapacityAsked) -> list[ResourceUse]:
        """Each resource of one node, the leader; one that was not measured is absent."""
        found = []
        if "rate_leader" in self.lines:
            cores = self._base("rate_leader") + self._each("rate_leader") * load.rate
            cores += self._each("worker_leader") * load.workers
            found.append(ResourceUse("processor of the leader", cores, LEADER_CORES, "cores"))
        if "job_memory" in self.lines:
            memory = self._base("job_memory") + self._each("job_memory") * load.jobs
            memory += self._each("worker_memory") * load.workers
            found.append(ResourceUse("memory of a node", memory, self.room.memory, "bytes"))
        if "job_disk" in self.lines:
            disk = self._base("job_disk") + self._each("job_disk") * load.jobs
            found.append(ResourceUse(
                "disk of a node", self.room.journal + DISK_COPIES * disk, self.room.disk, "bytes"
            ))  # fmt: skip
        if "rate_disk" in self.lines:
            written = self._base("rate_disk") + self._each("rate_disk") * load.rate
            found.append(
                ResourceUse("writing to the disk", written, self.room.disk_per_s, "bytes/s")
            )
        if "job_start" in self.lines:
            start = self._base("job_start") + self._each("job_start") * load.jobs
            found.append(ResourceUse("start of a node", start, START_S, "s"))
        found.append(ResourceUse("connections of workers", load.workers, WORKERS_MAX, "workers"))
        return found

    def ends_first(self, load: CapacityAsked) -> ResourceUse:
        return max(self.uses(load), key=lambda use: use.share)

    def unmeasured(self, load: CapacityAsked) -> list[str]:
        """The costs that an answer for this load would need and that are not there."""
        needed = ["rate_leader"]
        needed += ["job_memory", "job_disk", "job_start"] if load.jobs else []
        needed += ["rate_disk"] if load.rate else []
        needed += ["worker_leader", "worker_memory"] if load.workers else []
        return [name for name in needed if name not in self.lines]

    def fits(self, load: CapacityAsked, headroom: float) -> bool:
        """Whether so much of everything stays free; what was not measured fits nothing."""
        return not self.unmeasured(load) and self.ends_first(load).share <= 1 - headroom

    def most(self, counted: str, headroom: float) -> tuple[float, str]:
        """How many of one kind alone leave so much of everything free, and what is scarce then."""
        none, one = self.uses(CapacityAsked()), self.uses(CapacityAsked(**{counted: 1.0}))
        found = math.inf, ""
        for before, after in zip(none, one, strict=True):
            more, left = after.share - before.share, 1 - headroom - before.share
            if more > 0 and left / more < found[0]:
                found = max(left / more, 0.0), before.name
        return found

    def _each(self, name: str) -> float:
        line = self.lines.get(name)
        return 0.0 if line is None else line.dear

    def _base(self, name: str) -> float:
        return max(self.lines[name].base, 0.0)
