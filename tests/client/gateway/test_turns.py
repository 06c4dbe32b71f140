"""Connections take turns: one of each address after the other."""

from __future__ import annotations

import asyncio

from raftsched.client.gateway.turns import ConnectionTurns


async def all_done(done: list[str], count: int) -> None:
    async with asyncio.timeout(10):
        while len(done) < count:
            await asyncio.sleep(0)


async def test_who_has_many_connections_waits_for_who_has_one() -> None:
    turns, done = ConnectionTurns(), list[str]()
    for number in range(100):
        turns.add("many", lambda number=number: done.append(f"many-{number}"))  # type: ignore[misc]
    turns.add("one", lambda: done.append("one"))
    turns.add("other", lambda: done.append("other"))
    assert done == []
    await all_done(done, 102)
    assert done[:4] == ["many-0", "one", "other", "many-1"]
    assert done[4:] == [f"many-{number}" for number in range(2, 100)]


async def test_between_turns_others_have_the_loop() -> None:
    turns, done = ConnectionTurns(turn_s=0.0), list[str]()
    for number in range(10):
        turns.add("a", lambda number=number: done.append(f"a-{number}"))  # type: ignore[misc]
    seen = []
    async with asyncio.timeout(10):
        while len(done) < 10:
            await asyncio.sleep(0)
            seen.append(len(done))
    assert len(seen) >= 10


async def test_one_that_fails_does_not_end_the_turns_of_others() -> None:
    turns, done, failed = ConnectionTurns(), list[str](), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, how: failed.append(how["exception"]))

    def fail() -> None:
        raise ValueError("a bug")

    turns.add("a", fail)
    turns.add("a", lambda: done.append("a"))
    turns.add("b", lambda: done.append("b"))
    await all_done(done, 2)
    assert [str(one) for one in failed] == ["a bug"]
