"""The note in a node's folder that its cluster removed it."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path

from ..raft.disk import sync_entries

logger = logging.getLogger(__name__)

REMOVED = "removed.json"


def note_removal(path: Path, since: str) -> None:
    """Let each later start say so, where it would ask the others for ever."""
    with (path / REMOVED).open("w") as opened:
        json.dump({"since": since}, opened)
        opened.flush()
        os.fsync(opened.fileno())
    sync_entries(path)


def try_to_note_removal(name: str, path: Path) -> None:
    """The same for now. Where it fails, the next start asks the others, which say it again."""
    try:
        note_removal(path, datetime.now(UTC).isoformat(timespec="seconds"))
    except OSError as error:
        logger.warning("%s cannot note that it was removed: %s", name, error)
