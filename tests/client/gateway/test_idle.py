"""Which idle connection gives its place, and to whom."""

from __future__ import annotations

from raftsched.client.gateway.idle import IdleConnections
from raftsched.client.gateway.room import Room


class Fake:
    """A connection as its address has it."""

    def __init__(self, room: Room, idle: IdleConnections, address: str) -> None:
        self.room, self.idle, self.address, self.is_open = room, idle, address, True
        room.take(address)

    def break_off(self) -> None:
        self.is_open = False
        self.room.give(self.address)
        self.idle.remove(self.address, self)


def test_who_has_most_gives_way_and_first_what_was_never_asked() -> None:
    room = Room("connections", 100, 100)
    idle = IdleConnections(room)

    def made(address: str, count: int, *, asked: bool) -> list[Fake]:
        found = [Fake(room, idle, address) for _ in range(count)]
        for one in found:
            idle.add(address, one, asked=asked)
        return found

    resting, silent = made("a", 5, asked=True), made("b", 3, asked=False)
    few, busy = made("c", 2, asked=False), [Fake(room, idle, "d") for _ in range(9)]
    ended = [idle.give_way("new") for _ in range(9)]

    # Of "b" down to as many as "c" has, and so on, each time the one that waits for longest; then
    # those of "a". Nobody with a request is broken off.
    assert ended == [True] * 9
    assert [one.is_open for one in silent] == [False] * 3
    assert [one.is_open for one in few] == [False] * 2
    assert [one.is_open for one in resting] == [False] * 4 + [True]
    assert all(one.is_open for one in busy)
    # One that has as many itself takes nobody's.
    room.take("new")
    assert not idle.give_way("new")
    for one in resting[4:]:
        one.break_off()
    assert not idle.give_way("other")
    assert idle._asked == idle._never_asked == {}
