"""A watch over a blocking stream, whose reads take no timeout of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

from .refusals import FailedTry


class Silence:
    """Cancels a stream when a read from it lasts too long. The reader's own work does not count."""

    def __init__(self, cancel: Callable[[], object], limit: float) -> None:
        self._cancel = cancel
        self._limit = limit
        self._reading_since: float | None = None
        self._fell = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="raftsched-silence")
        self._thread.start()

    def next(self, call: Iterator[Any]) -> Any:  # noqa: ANN401  # What the stream carries.
        """The next message, or None at the end of the stream."""
        self._reading_since = monotonic()
        try:
            return next(call, None)
        finally:
            self._reading_since = None

    def failure(self) -> FailedTry | None:
        """Why the stream was cancelled, if this watch has done it."""
        if not self._fell:
            return None
        return FailedTry("DEADLINE_EXCEEDED", f"nothing was heard for {self._limit:g} s")

    def end(self) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while True:
            since = self._reading_since
            left = self._limit if since is None else since + self._limit - monotonic()
            if left <= 0:
                self._fell = True
                self._cancel()
                return
            if self._ended.wait(left):
                return
