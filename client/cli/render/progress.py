"""A bar that shows how far something is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Less than this is done before a bar could be read.
BAR_FROM = 50


@contextmanager
def bar(title: str, total: int | None, done: int = 0) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr when a person sits there; silence otherwise."""
    if not (sys.stderr and sys.stderr.isatty()) or (total is not None and total < BAR_FROM):
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total, completed=done)
        yield lambda count: progress.advance(task, count)
