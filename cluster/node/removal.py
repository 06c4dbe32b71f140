"""The note in a node's folder that its cluster removed it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ..raft.disk import sync_entries

REMOVED = "removed.json"


def note_removal(path: Path, since: str) -> None:
    """Let each later start say so, where it would ask the others for ever."""
    with (path / REMOVED).open("w") as opened:
        json.dump({"since": since}, opened)
        opened.flush()
        os.fsync(opened.fileno())
    sync_entries(path)
