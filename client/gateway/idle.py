"""Connections without a request under way: where there is no room for another address, one of them
gives its place."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from .room import Room


class MayEnd(Protocol):
    """A connection that can be broken off without anybody losing an answer."""

    def break_off(self) -> None: ...


class IdleConnections:
    """By address, those that wait for longest first; those that never had a request go before
    those that have had one. Proxies are not in here: theirs are of many callers."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._never_asked: dict[str, OrderedDict[MayEnd, None]] = {}
        self._asked: dict[str, OrderedDict[MayEnd, None]] = {}

    def add(self, address: str, connection: MayEnd, *, asked: bool) -> None:
        idle = self._asked if asked else self._never_asked
        idle.setdefault(address, OrderedDict())[connection] = None

    def remove(self, address: str, connection: MayEnd) -> None:
        """It has a request, or is gone."""
        for idle in (self._never_asked, self._asked):
            line = idle.get(address)
            if line is not None and line.pop(connection, self) is None and not line:
                del idle[address]

    def give_way(self, address: str) -> bool:
        """Break one off for an address, of the address that holds most, if that has more; whether
        there is room now."""
        held = self._room.taken_by(address)
        for idle in (self._never_asked, self._asked):
            most = max(idle, key=self._room.taken_by, default="")
            if most and self._room.taken_by(most) > held:
                next(iter(idle[most])).break_off()
                return True
        return False
