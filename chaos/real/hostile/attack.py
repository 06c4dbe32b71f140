"""What an attack is, and the table of all of them.

An attack that a caller can make runs in a process of its own (`attacker.py`) and has a
`HostileCaller`. One that an operator or a disk makes needs a hand on the nodes and runs in the
harness (`hands.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .field import HostileCaller
    from .stand import Stand

Call = Callable[["HostileCaller"], Awaitable[None]]
Deed = Callable[["Stand"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Attack:
    """One way to mistreat a cluster."""

    name: str
    # Where it was first seen: a number of the list of known failures, or "-" for one of our own.
    number: str
    words: str
    # So long it goes on, as a rule; it is broken off after `LIMIT` times as long.
    seconds: float
    call: Call | None = None
    deed: Deed | None = None


LIMIT = 4.0
ATTACKS: dict[str, Attack] = {}


def _words(what: Callable[..., object]) -> str:
    return " ".join((what.__doc__ or "").split("\n\n")[0].split())


def attack(number: str = "-", seconds: float = 2.0) -> Callable[[Call], Call]:
    """Put a function into the table: what a caller does."""

    def put(call: Call) -> Call:
        name = call.__name__.replace("_", "-")
        ATTACKS[name] = Attack(name, number, _words(call), seconds, call=call)
        return call

    return put


def deed(number: str = "-", seconds: float = 6.0) -> Callable[[Deed], Deed]:
    """Put a function into the table: what an operator, a disk or a machine does."""

    def put(what: Deed) -> Deed:
        name = what.__name__.replace("_", "-")
        ATTACKS[name] = Attack(name, number, _words(what), seconds, deed=what)
        return what

    return put
