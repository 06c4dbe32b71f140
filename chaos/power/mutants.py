"""What a node forgets to sync, to show that the cuts would find it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from ...cluster.node import applier
from ...cluster.raft.manifest import MANIFEST
from ..sim.rule_mutants import exchanged
from .history import run_power
from .mount import Mount, PowerDisk

BUDGET = 30
FAULT_S = 3.0  # Of faults in each history: a few cuts are enough.


class NoSync(PowerDisk):
    """Nothing of a file is synced: the journal is in the system's memory."""

    def sync(self, path: str) -> None:
        self.size(path)


class NoFolderSync(PowerDisk):
    """Names are not synced: a new segment, a snapshot that has its final name."""

    def sync_folder(self, path: str) -> None:
        """Nothing."""


class NoSegmentName(PowerDisk):
    """The name of a new segment of the journal is not synced."""

    def sync_folder(self, path: str) -> None:
        if path != "journal":
            super().sync_folder(path)


class NoManifestSync(PowerDisk):
    """A snapshot gets its final name before its manifest is on the disk."""

    def sync(self, path: str) -> None:
        if not path.endswith(MANIFEST):
            super().sync(path)


class RenamesFirst(PowerDisk):
    """A snapshot gets its final name before those of its files are on the disk."""

    def sync_folder(self, path: str) -> None:
        if not path.endswith(("making", "incoming")):
            super().sync_folder(path)


def syncs_nothing(path: Path) -> None:
    """Of the state that is built from a snapshot, and of the files of a checkpoint."""
    os.stat(path)


@dataclass(frozen=True)
class PowerMutant:
    """A node that forgets one sync."""

    name: str
    disk: type[PowerDisk] = PowerDisk
    sync: Callable[[Path], None] | None = None


MUTANTS = [
    PowerMutant("no-sync", NoSync),
    PowerMutant("no-folder-sync", NoFolderSync),
    PowerMutant("no-segment-name", NoSegmentName),
    PowerMutant("no-manifest-sync", NoManifestSync),
    PowerMutant("rename-first", RenamesFirst),
    PowerMutant("state-not-synced", sync=syncs_nothing),
]


def hunt_power(mutant: PowerMutant, mount: Mount) -> dict[str, object]:
    """Look for a mutant; the same history with all syncs must hold."""
    for seed in range(1, BUDGET + 1):
        kit = exchanged(applier, "sync", mutant.sync) if mutant.sync else nullcontext()
        with kit:
            found = run_power(seed, mount, mutant.disk, FAULT_S).violation
        if found:
            control = run_power(seed, mount, fault_s=FAULT_S).violation
            words = f"seed {seed} without it: {control}" if control else found
            return row(mutant, None if control else seed, words)
    return row(mutant, None, "")


def row(mutant: PowerMutant, seeds: int | None, found: str) -> dict[str, object]:
    return {"mutant": mutant.name, "seeds": seeds, "budget": BUDGET, "found": found[:160]}
