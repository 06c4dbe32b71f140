"""A tenant may hold the part of the free places that is free of all."""

from __future__ import annotations

import random

from raftsched.cluster.node.tenant_room import TenantRoom


def fill(room: TenantRoom, tenant: str, amount: int = 1) -> int:
    while room.has_room(tenant, amount):
        room.take(tenant, amount)
    return room.held(tenant)


def test_the_more_are_taken_the_smaller_is_a_share() -> None:
    room = TenantRoom(20_000)
    assert [fill(room, name) for name in ("red", "blue", "green")] == [7_639, 3_727, 2_120]
    assert room.has_room("white")
    # What the first gives back is for all; it has over its share still, so it gets none of it.
    room.give("red", 1_000)
    assert not room.has_room("red")
    assert fill(room, "white") == 1_693


def test_it_takes_hundreds_to_fill_all_places() -> None:
    """Seen while a tenant could have as many as it left free: 16 of them."""
    room = TenantRoom(20_000)
    tenants = 0
    while room.has_room("one more"):
        tenants += 1
        assert fill(room, f"t{tenants}") > 0
    assert tenants == 313


def test_who_has_nothing_is_let_in_with_what_fits() -> None:
    room = TenantRoom(100)
    assert fill(room, "red") == 38
    assert room.has_room("blue", 62)
    assert not room.has_room("blue", 63)
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
