"""Where a command keeps what its nodes write."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click


@contextmanager
def data_folder(given: Path | None) -> Iterator[Path]:
    """The folder that was named, or one that is thrown away."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        if any(given.iterdir()):
            raise click.UsageError(f"{given} is not empty; name another folder, or leave --dir out")
        yield given
        return
    made = Path(tempfile.mkdtemp(prefix="raftsched-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
