"""Where a command keeps what its nodes write."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click


@contextmanager
def data_folder(given: Path | None, mark: str = "") -> Iterator[Path]:
    """The folder that was named, or one that is thrown away. One that holds the file `mark` may be
    used again."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        may_be_used = bool(mark) and (given / mark).exists()
        if not may_be_used and any(given.iterdir()):
            raise click.UsageError(f"{given} is not empty; name another folder, or leave --dir out")
        yield given
        return
    made = Path(tempfile.mkdtemp(prefix="raftsched-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
