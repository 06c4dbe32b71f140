"""A tenant may hold as many places as it leaves free."""

from __future__ import annotations

import random

from raftsched.cluster.node.tenant_room import TenantRoom


def fill(room: TenantRoom, tenant: str, amount: int = 1) -> int:
    while room.has_room(tenant, amount):
        room.take(tenant, amount)
    return room.held(tenant)


def test_each_tenant_leaves_as_much_as_it_has() -> None:
    room = TenantRoom(20_000)
    assert [fill(room, name) for name in ("red", "blue", "green")] == [10_000, 5_000, 2_500]
    assert room.has_room("white")
    # What the first gives back is for all; it has over its share still, so it gets none of it.
    room.give("red", 1_000)
    assert not room.has_room("red")
    assert fill(room, "white") == 1_750


def test_who_has_nothing_is_let_in_with_what_fits() -> None:
    room = TenantRoom(100)
    fill(room, "red")
    assert room.has_room("blue", 50)
    assert not room.has_room("blue", 51)
    room.take("blue", 30)
    assert not room.has_room("blue", 1)


def test_what_is_of_no_tenant_may_take_all() -> None:
    room = TenantRoom(10)
    assert fill(room, "") == 10
    assert not room.has_room("red")


def test_nothing_is_kept_of_who_has_left() -> None:
    chance, room = random.Random(3), TenantRoom(1_000)
    held = [(f"t{chance.randrange(50)}", chance.randrange(0, 9)) for _ in range(500)]
    for tenant, amount in held:
        room.take(tenant, amount)
    chance.shuffle(held)
    for tenant, amount in held:
        room.give(tenant, amount)
    assert room.taken == 0
    assert room._by_tenant == {}
