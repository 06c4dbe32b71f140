"""What a node does with files that are not what was written: set aside, noted, kept once.

Nothing damaged is deleted before something whole is in its place: the last of it stays in
`damaged/` for whoever asks why, or has nothing else.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path

from ..raft.disk import sync_entries

logger = logging.getLogger(__name__)

ASIDE = "damaged"
NOTE = "damaged.json"
STATE, SNAPSHOT, JOURNAL = "state", "snapshot", "journal"
# All that speaks for a disk or of its files.
OF_THE_DISK = ["consensus", "state", "checksums.json", "stopped", NOTE]


def note(folder: Path, what: str, why: str) -> None:
    """Let the next start know what met damage, should it not find it by itself."""
    new = folder / f"{NOTE}.new"
    with new.open("w") as out:
        json.dump({"what": what, "why": why}, out)
        out.flush()
        os.fsync(out.fileno())
    new.rename(folder / NOTE)
    sync_entries(folder)


def noted(folder: Path) -> str:
    """What met damage before this start; empty if nothing did."""
    try:
        note = json.loads((folder / NOTE).read_text())
    except FileNotFoundError:
        return ""
    except ValueError:
        return STATE  # The note is damaged itself: the dearer of the two is always right.
    return str(note.get("what")) if isinstance(note, dict) else STATE


def forget(folder: Path) -> None:
    """It was seen to."""
    (folder / NOTE).unlink(missing_ok=True)
    sync_entries(folder)


def set_aside_at(folder: Path) -> float:
    """When something was put there last, in seconds since 1970; 0 if there is nothing."""
    try:
        return (folder / ASIDE).stat().st_mtime
    except FileNotFoundError:
        return 0.0


def set_aside(folder: Path, names: list[str], why: str) -> None:
    """Put what is damaged into `damaged/`, in the place of what was there before."""
    target = folder / ASIDE
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(mode=0o700)
    for name in names:
        path = folder / name
        if path.exists():
            path.rename(target / path.name)
            sync_entries(path.parent)
    sync_entries(target)
    sync_entries(folder)
    logger.error("set aside in %s: %s, since %s", target, ", ".join(names), why)
