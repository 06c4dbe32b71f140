"""What lasts too long in a node's loop is found, named or not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import cast

import pytest

from raftsched.cluster.node.elections import Elections
from raftsched.cluster.node.loop_steps import KEPT, WATCH_S, LoopSteps


class Clock:
    at = 100.0

    def seconds(self) -> float:
        return self.at

    def now_ms(self) -> int:
        return int(self.at * 1000)


def made(clock: Clock) -> LoopSteps:
    return LoopSteps("n1", clock.now_ms, clock.seconds, 0.1)


def test_a_long_step_is_counted_named_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    steps = made(clock)
    began = clock.seconds()
    clock.at += 0.09
    steps.end("decide", began, b"x")
    assert steps.count == 0

    clock.at += 0.3
    steps.end("decide", began, b"x", 17)

    assert (steps.count, steps.recent_ms()) == (1, 390)
    assert steps.last[0].what == "decide: bytes, int"
    assert "one step of the loop lasted 0.390 s (decide: bytes, int)" in caplog.text
    for _ in range(3 * KEPT):
        steps.note("again", 0.2)
    assert len(steps.last) == KEPT
    assert caplog.text.count("lasted") == 1
    clock.at += 601
    assert steps.recent_ms() == 0
    assert steps.longest_s == pytest.approx(0.39)


async def test_what_has_no_name_is_found_by_the_watch() -> None:
    steps = LoopSteps("n1", lambda: 0, time.monotonic, 0.1)
    steps.end("answer", time.monotonic())
    steps.watch(asyncio.get_running_loop())
    deadline = time.monotonic() + 20
    try:
        stood = time.monotonic() + 0.4
        while time.monotonic() < stood:
            pass
        while not steps.count and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
    finally:
        steps.stop()

    assert steps.count >= 1
    assert any(step.what.startswith("something after answer, ") for step in steps.last)


class Hand:
    """Calls what it was given when the test says so."""

    def __init__(self) -> None:
        self.call: Callable[[], None] = lambda: None

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.call = call

    def turn(self) -> None:
        self.call()


def test_what_other_threads_did_meanwhile_is_named() -> None:
    clock, hand = Clock(), Hand()
    steps = made(clock)
    steps.begin_beside("checkpoint")
    steps.watch(cast("asyncio.AbstractEventLoop", hand))
    steps.end_beside("checkpoint")
    steps.begin_beside("write snapshot")
    clock.at += 0.3  # What stands in the loop's way, whatever it is.
    hand.turn()
    assert steps.last[0].what.endswith(" at work, beside checkpoint and write snapshot")
    steps.end_beside("write snapshot")
    # The watch that was set before has seen the last of it.
    clock.at += WATCH_S
    hand.turn()
    clock.at += 0.3
    hand.turn()

    assert steps.count == 2
    assert "beside" not in steps.last[0].what


async def test_a_long_collection_of_garbage_is_named() -> None:
    clock = Clock()
    steps = made(clock)
    steps.collected("start", {"generation": 2})
    clock.at += 0.05
    steps.collected("stop", {"generation": 2})
    steps.collected("start", {"generation": 1})
    clock.at += 0.15
    steps.collected("stop", {"generation": 1})
    steps.watch(asyncio.get_running_loop())
    try:
        await until(lambda: steps.count)
    finally:
        steps.stop()

    assert [step.what for step in steps.last] == ["garbage of generation 1"]


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.01)


def test_elections_of_late_are_counted() -> None:
    clock = Clock()
    elections = Elections(clock.seconds)
    elections.look(7)
    assert elections.recent() == 0
    elections.look(10)
    clock.at += 300
    elections.look(11)
    assert elections.recent() == 4
    clock.at += 301
    assert elections.recent() == 1
