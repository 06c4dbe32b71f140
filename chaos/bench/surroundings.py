"""What a figure was measured on."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path

SYNCS = 50
LIBRARIES = ("grpcio", "protobuf", "rocksdict", "pysyncobj", "msgspec")


def surroundings(folder: Path) -> dict[str, object]:
    """Machine, versions, commit, and what the disk needs for one sync."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load_before": round(os.getloadavg()[0], 2),
        "machine": platform.machine(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in LIBRARIES},
        "raftsched": metadata.version("raftsched"),
        "commit": commit(),
        "fdatasync_ms": round(fdatasync_ms(folder), 3),
    }


def commit() -> str:
    """Of the checkout this runs from, if it is one."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def fdatasync_ms(folder: Path) -> float:
    """The median of some writes of 4 KiB, each made durable."""
    path = folder / "sync-probe"
    took = []
    with path.open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            took.append(1000 * (time.perf_counter() - began))
    path.unlink()
    return sorted(took)[SYNCS // 2]
