"""A part of a decision: one request, and whoever waits for what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class PendingRequest:
    """Exactly one of the two is called, once."""

    body: object
    # With the reply, once it holds: a message or a Rejection.
    answer: Callable[[object], None]
    # The outcome is not known: leadership went away in between.
    unknown: Callable[[], None]
    actor: str = ""
    # Whose it is: the namespace that its caller's access token is for, or nobody's in particular.
    tenant: str = ""
    # About how much it adds to a change.
    items: int = 1
    size: int = 0
    # A person's request; others are the loop's own, and must not fail.
    asked: bool = False
    # Whoever asked waits no longer: if it was not decided yet, it never is.
    withdrawn: bool = False
    # The reply must hold though nothing was changed: it is given once it is sure that this node
    # led when it was decided.
    sure: bool = False
    # Progress of runs whose results come next, which wait for it.
    ends: bool = False
    # Given the reply while it is on its way, so that less is left to do once it holds.
    pre_serialize: Callable[[object], None] = lambda reply: None


def nothing(_: object) -> None:
    """The loop looks at the state for what comes next."""


def nobody() -> None:
    """The next leader finds the same in the state."""
