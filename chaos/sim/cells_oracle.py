"""What must hold of all cells together, from what they did, each time when they do it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from .world import SimViolation


class CellsOracle:
    """Notes each firing, lease and end of a run; raises where one is wrong."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.counts: Counter[str] = Counter()
        # Namespaces whose cell was lost with what it had: a backup stands for them since.
        self.excused: set[str] = set()
        self.fired_by: dict[str, str] = {}
        self.made_by: dict[str, str] = {}  # Request -> its run.
        self.tokens: dict[str, int] = {}
        self.ended_in: dict[str, str] = {}
        self.promised: dict[str, tuple[str, str]] = {}  # Request -> namespace and run answered.

    def fired(self, space: str, run: str, cell: str, now: float) -> None:
        self.counts["fired"] += 1
        other = self.fired_by.setdefault(run, cell)
        if self.counts[f"fired {run}"] and space not in self.excused:
            raise SimViolation(f"doubled: {run} fired in {other}, and again in {cell}")
        self.counts[f"fired {run}"] += 1

    def triggered(self, space: str, request: str, run: str) -> None:
        self.counts["triggered"] += 1
        other = self.made_by.setdefault(request, run)
        if other != run and space not in self.excused:
            raise SimViolation(f"doubled: request {request} made {other}, and then {run}")

    def answered(self, space: str, request: str, run: str) -> None:
        self.counts["answered"] += 1
        self.promised[request] = space, run

    def leased(self, space: str, run: str, token: int) -> None:
        self.counts["leased"] += 1
        if token <= self.tokens.get(run, 0) and space not in self.excused:
            raise SimViolation(f"{run} has token {token} after {self.tokens[run]}")
        self.tokens[run] = token

    def completed(self, space: str, run: str, cell: str) -> None:
        self.counts["completed"] += 1
        if run in self.ended_in and space not in self.excused:
            raise SimViolation(f"doubled: {run} ended in {self.ended_in[run]}, and again in {cell}")
        self.ended_in[run] = cell

    def check_homes(self, active: dict[str, list[str]]) -> None:
        for space, cells in active.items():
            if len(cells) > 1:
                raise SimViolation(f"{space} lives in {' and '.join(cells)} at once")

    def missing(self, due: dict[str, list[str]]) -> str:
        """What was due and has not fired or ended, or was promised and not kept; or nothing."""
        for space, runs in due.items():
            if space in self.excused:
                continue
            for run in runs:
                if run not in self.fired_by:
                    return f"lost: {run} never fired"
                if run not in self.ended_in:
                    return f"lost: {run} fired and never ended"
        for request, (space, run) in self.promised.items():
            if space not in self.excused and run not in self.ended_in:
                return f"lost: request {request} was answered with {run}, never ended"
        return ""

    def figures(self) -> dict[str, int]:
        return {name: n for name, n in sorted(self.counts.items()) if " " not in name}
