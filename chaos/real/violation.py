"""What a check says when a promise was broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .history import Observations


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken."""

    invariant: str
    story: str
    # The check that found it.
    check: str = ""

    def __str__(self) -> str:
        return f"{self.invariant}: {self.story}"


Check = Callable[[Observations], list[Violation]]
