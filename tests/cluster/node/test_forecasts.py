"""Counts of what is due are kept: nobody waits for one, and looking at them costs little."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from raftsched.cluster.node import forecasts
from raftsched.cluster.node.forecasts import FRESH_S, FRESH_TIMES, UNDER_WAY_MAX, Forecasts
from raftsched.cluster.node.readers import Readers
from raftsched.statemachine.core.rejection import Refused
from raftsched.statemachine.core.store import MemoryStore, Reading
from raftsched.statemachine.model import keys
from raftsched.statemachine.reads.forecast import MAX_AGE_MS

from ...statemachine.driver import HOUR_MS, MINUTE_MS, Machine

DEADLINE_S = 20.0


class Gated:
    """State that cannot be scanned before the gate is opened."""

    def __init__(self, reading: Reading, gate: threading.Event) -> None:
        self._reading, self._gate = reading, gate
        self.get, self.get_many = reading.get, reading.get_many

    def scan(
        self, first: bytes, end: bytes, *, backwards: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        assert self._gate.wait(DEADLINE_S)
        return self._reading.scan(first, end, backwards=backwards)


class Desk:
    """Counts over a machine, with a clock of ours and a gate before the state."""

    def __init__(self) -> None:
        self.machine, self.seconds, self.counted = Machine(MemoryStore()), 100.0, 0
        self.machine.create("a", cron="* * * * *")
        self.number = keys.namespace_of(self.machine.jid("a"))
        self.gate = threading.Event()
        self.gate.set()
        self.readers = Readers()
        self.forecasts = Forecasts(self.readers, self.snapshot, lambda: self.seconds)

    def snapshot(self) -> Reading:
        self.counted += 1
        return Gated(self.machine.store.snapshot(), self.gate)

    async def ask(self, max_age_ms: int = MAX_AGE_MS, number: int = 0) -> list[int] | None:
        """How much is due in each minute of the coming hour; None where that is not whole."""
        now_ms = self.machine.now_ms
        found = await self.forecasts.get(number or self.number, now_ms, HOUR_MS, max_age_ms)
        minutes = found.minutes(now_ms, now_ms + HOUR_MS)
        return [firings for _, firings, _ in minutes] if found.is_whole else None

    def passes(self, ms: int) -> None:
        self.machine.advance(ms)
        self.seconds += ms / 1_000

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not is_so():
                await asyncio.sleep(0.001)

    async def rests(self) -> None:
        """Return when nothing is counted."""
        await self.until(lambda: not self.forecasts._under_way)


@pytest.fixture
async def desk(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    monkeypatch.setattr(forecasts, "WAIT_S", DEADLINE_S)
    made = Desk()
    yield made
    made.forecasts.stop()
    made.gate.set()
    await asyncio.to_thread(made.readers.close)


async def test_a_count_serves_all_who_look_until_it_is_made_anew(desk: Desk) -> None:
    first = await asyncio.gather(*(desk.ask() for _ in range(20)))
    assert first == [[0] + [1] * 59] * 20
    assert desk.counted == 1

    desk.passes(int(FRESH_S) * 1_000)
    desk.machine.create("b", cron="* * * * *")
    assert await desk.ask() == [0] + [1] * 60
    assert desk.counted == 1

    # The old one is shown once more, and nobody waits for the new one.
    desk.passes(MINUTE_MS)
    desk.gate.clear()
    assert await desk.ask() == [1] * 61
    await desk.until(lambda: desk.counted == 2)
    desk.gate.set()
    await desk.rests()
    assert await desk.ask() == [2] * 61
    assert desk.counted == 2


async def test_whoever_wants_a_newer_one_has_it_counted(desk: Desk) -> None:
    await desk.ask()
    desk.passes(2_000)
    desk.machine.create("b", cron="* * * * *")

    assert await desk.ask(max_age_ms=2_000) == [0] + [1] * 60
    assert await desk.ask(max_age_ms=1_000) == [0] + [2] * 60


async def test_a_count_that_takes_long_is_shown_as_far_as_it_is(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasts, "WAIT_S", 0.0)
    desk.gate.clear()

    assert await desk.ask() is None
    assert await desk.ask() is None
    assert desk.counted == 1

    # It took long, so it is used for long: looking costs a share of a processor at most.
    desk.seconds += 20.0
    desk.gate.set()
    await desk.rests()
    for _ in range(4):
        assert await desk.ask() is not None
        desk.passes(int(20 * FRESH_TIMES * 1_000 / 4) - 10_000)
    assert desk.counted == 1
    desk.passes(2 * MINUTE_MS)
    assert await desk.ask() is not None
    await desk.until(lambda: desk.counted == 2)


async def test_counts_under_way_are_bounded_and_end_with_the_node(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasts, "WAIT_S", 0.0)
    desk.gate.clear()
    for number in range(1, UNDER_WAY_MAX + 1):
        assert await desk.ask(number=number) is None

    with pytest.raises(Refused, match="forecasts"):
        await desk.ask(number=99)
    # One after the other, however many there are.
    assert desk.counted == 1

    desk.forecasts.stop()
    await desk.rests()


async def test_what_goes_wrong_is_raised_to_whoever_asks(desk: Desk) -> None:
    def broken() -> Reading:
        raise RuntimeError("planted")

    fine = desk.forecasts._snapshot
    desk.forecasts._snapshot = broken
    with pytest.raises(RuntimeError, match="planted"):
        await desk.ask()
    desk.forecasts._snapshot = fine
    assert await desk.ask() is not None
