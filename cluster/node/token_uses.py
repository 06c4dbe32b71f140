"""Which access tokens were used of late, so that people see which nobody needs any more.

Each call notes the name of its token here, in memory. The leader writes what it knows into the
state now and then, to the hour; other nodes send it what they know with what they say of themselves
each second. What a node that dies has not sent is noted when the token is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from ...statemachine.core import limits
from ...statemachine.model.request import NoteUses
from ...statemachine.tenants import access
from .applier import Applied
from .pending import PendingRequest, nothing

WRITE_S = 600.0  # Between two changes with such notes.
SENT_MAX = 20  # Names that a node sends the leader at once.


class TokenUses:
    """See the head of this file."""

    def __init__(
        self, applied: Applied, now_ms: Callable[[], int], seconds: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:  # fmt: skip
        self._applied, self._now_ms, self._seconds = applied, now_ms, seconds
        self._wake = wake
        # Used since they were last looked at: names of tokens that there are, oldest first.
        self._used: dict[str, None] = {}
        # When the leader may write again.
        self._write_at = float("-inf")
        self._next: PendingRequest | None = None

    def note(self, name: str) -> None:
        """A token was used."""
        self._used[name] = None

    def heard(self, names: Iterable[str]) -> None:
        """Another node says that these were used there."""
        for name in islice(names, SENT_MAX):
            if len(self._used) < limits.ACCESS_TOKENS:
                self._used[name] = None

    def to_send(self) -> tuple[str, ...]:
        """Some that the leader may not know of. They are sent once for each use."""
        return self._taken(SENT_MAX)

    def look(self) -> None:
        """On the leader: have noted what was used, if it is time for that."""
        now = self._seconds()
        if not self._used or now < self._write_at or self._next is not None:
            return
        names = self._taken(limits.USES_NOTED)
        if not self._used:
            self._write_at = now + WRITE_S
        if names:
            self._next = PendingRequest(
                NoteUses(names), nothing, lambda: self._used.update(dict.fromkeys(names)),
                items=len(names),
            )  # fmt: skip
            self._wake()

    @property
    def waits(self) -> bool:
        """A note waits for a change."""
        return self._next is not None

    def take(self) -> list[PendingRequest]:
        """What goes into the next change."""
        request, self._next = self._next, None
        return [request] if request is not None else []

    def _taken(self, most: int) -> tuple[str, ...]:
        """Some of those of which the state does not say that they were used in this hour."""
        hour_ms, store = access.hour_of(self._now_ms()), self._applied.store
        names = list(islice(self._used, most))
        for name in names:
            del self._used[name]
        return tuple(name for name in names if access.last_use_ms(store, name) < hour_ms)
