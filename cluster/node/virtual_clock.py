"""The clock of a test's cluster: a small file that all its nodes have mapped."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from pathlib import Path

from ..local.virtual_clock import ASKED, DONE, HANDLER, MAGIC, NOW, SIZE, UNTIL, WHAT

# What a folder and a link say beside the cluster's name, so that none is ever taken for a real one.
MARK = " (virtual clock)"


class NoClock(Exception):
    """The file is not one of a virtual clock."""


class VirtualClock:
    """Milliseconds since 1970, by the file."""

    # There is nothing to compare: all nodes read the same number.
    sure = True

    def __init__(self, path: Path) -> None:
        try:
            with path.open("r+b") as file:
                self._file = mmap.mmap(file.fileno(), SIZE)
        except (OSError, ValueError) as error:
            raise NoClock(str(error)) from error
        self._words = memoryview(self._file).cast("q")
        if self._words[WHAT] != MAGIC:
            raise NoClock("it begins otherwise")

    def now_ms(self) -> int:
        return self._words[NOW]

    def look(self, known: object, voters: Iterable[str], most_ms: int) -> int:
        return 0

    @property
    def is_asked(self) -> bool:
        """Time is to go on."""
        return self._words[ASKED] != self._words[DONE]

    @property
    def until_ms(self) -> int:
        return self._words[UNTIL]

    @property
    def handler_s(self) -> float:
        return self._words[HANDLER] / 1000

    def go_to(self, instant_ms: int) -> None:
        self._words[NOW] = max(instant_ms, self._words[NOW])

    def arrived(self, request: int) -> None:
        self._words[DONE] = request

    @property
    def request(self) -> int:
        return self._words[ASKED]
