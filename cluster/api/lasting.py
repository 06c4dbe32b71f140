"""Calls that last: streams, and calls that wait. None outlives the access token that it showed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

from ...statemachine.core.rejection import Refused
from .call import Call

LOOK_AGAIN_S = 5.0  # After so long it is looked again whether a caller may still have its call.
LOOKED_AT = 100  # Of them in one look, of which there are fifty a second.


class Lasting:
    """See the head of this file."""

    def __init__(self, check: Callable[[Call], None]) -> None:
        # Refuses a caller whose access token is valid no more.
        self.check = check
        # When each was looked at; the one of longest ago is first.
        self._looked_at: OrderedDict[Call, float] = OrderedDict()

    @contextmanager
    def watched(self, call: Call) -> Iterator[None]:
        """End a call from outside when its token is valid no more."""
        self._looked_at[call] = call.began
        try:
            yield
        finally:
            del self._looked_at[call]

    def look(self, now: float) -> None:
        """End some of those whose access token is valid no more; soon it was all of them."""
        for call, looked_at in list(islice(self._looked_at.items(), LOOKED_AT)):
            if looked_at > now - LOOK_AGAIN_S:
                break
            self._looked_at[call] = now
            self._looked_at.move_to_end(call)
            try:
                self.check(call)
            except Refused as refusal:
                call.end(refusal.rejection)
