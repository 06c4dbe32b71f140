"""Which branches of the rules and of consensus seeds have taken, and which functions they never
entered:

    coverage run --branch --source=statemachine,cluster/raft -m raftsched.chaos.sim --days \\
        --seeds 200 --jobs 1
    coverage json -o reach.json && python -m raftsched.chaos.sim.reach reach.json

Several runs are put together with `coverage run -p` and `coverage combine`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SHOWN = 12  # Functions of a folder, unless all are asked for.


@dataclass
class Reached:
    """What was taken of the files of one folder."""

    lines: int = 0
    lines_taken: int = 0
    branches: int = 0
    branches_taken: int = 0
    never: list[str] = field(default_factory=list)

    def add(self, path: str, file: dict[str, Any]) -> None:
        found = file["summary"]
        self.lines += found["num_statements"]
        self.lines_taken += found["covered_lines"]
        self.branches += found["num_branches"]
        self.branches_taken += found["covered_branches"]
        for name, one in sorted(file.get("functions", {}).items()):
            inside = one["summary"]
            if name and inside["num_statements"] and not inside["covered_lines"]:
                self.never.append(f"{Path(path).stem}.{name}")


def read(report: dict[str, Any]) -> dict[str, Reached]:
    """By folder, and by file where a folder has no folders in it."""
    found: dict[str, Reached] = defaultdict(Reached)
    for path, file in sorted(report["files"].items()):
        parts = Path(path).parts
        root = max(parts.index(name) for name in ("statemachine", "cluster") if name in parts)
        folder = "/".join(parts[root:][:2]) if len(parts[root:]) > 2 else f"{parts[root]} itself"
        found[folder].add(path, file)
        found["all of " + parts[root]].add(path, file)
    return dict(found)


def share(taken: int, of: int) -> str:
    return f"{100 * taken / of:.0f} %" if of else "-"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Which branches seeds have taken.")
    parser.add_argument("report", type=Path, help="what `coverage json` wrote")
    parser.add_argument("--all", action="store_true", help="name every function")
    options = parser.parse_args(argv)
    out: list[str] = ["| folder | lines | branches | never entered |", "|---|---|---|---|"]
    for folder, one in sorted(read(json.loads(options.report.read_text())).items()):
        is_sum = folder.startswith("all of ")
        names = [] if is_sum else one.never if options.all else one.never[:SHOWN]
        more = len(one.never) - len(names)
        words = ", ".join(f"`{name}`" for name in names)
        words += f" and {more} others" * (more > 0 and not is_sum)
        lines = share(one.lines_taken, one.lines)
        branches = share(one.branches_taken, one.branches)
        out.append(f"| {folder} | {lines} | {branches} | {words} |")
    print("\n".join(out))  # noqa: T201  # This is the program's output.
    return 0


if __name__ == "__main__":
    sys.exit(main())
