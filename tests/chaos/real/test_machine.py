"""What the machine keeps a run waiting for, on a machine that is made up."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from raftsched.chaos.real import machine
from raftsched.chaos.real.history import Contention, Event, HistoryFile, Lag, read

LIMIT_S = 20.0


async def watched(
    tmp_path: Path, watching: Callable[[HistoryFile], asyncio.Future[None]]
) -> list[Event]:
    """What is written down until there is something."""
    path = tmp_path / "history"
    journal = HistoryFile(path)
    task = watching(journal)
    try:
        async with asyncio.timeout(LIMIT_S):
            while not path.read_bytes():
                assert not task.done()
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        journal.close()
    return list(read([path]))


async def test_who_waits_for_a_processor_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = {1: 5.0, 2: 7.0}

    def waits(pid: int) -> float:
        waited[pid] += {1: 0.001, 2: 0.03}[pid]
        return waited[pid]

    monkeypatch.setattr(machine, "waited_s", waits)
    (first, *_) = await watched(
        tmp_path,
        lambda journal: asyncio.ensure_future(
            machine.watch_turns(journal, lambda: {"n1": 1, "n2": 2})
        ),
    )
    assert isinstance(first, Contention)
    assert (first.who, first.waited) == ("n2", 0.03)
    assert first.began < first.ended


def test_the_kernel_tells_how_long_a_process_waited() -> None:
    assert machine.waited_s(os.getpid()) > 0
    assert machine.waited_s(1 << 30) == 0


async def test_a_slow_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "sync", lambda file: 0.5)
    (first, *_) = await watched(
        tmp_path,
        lambda journal: asyncio.ensure_future(machine.watch_disk(journal, tmp_path / "sync")),
    )
    assert isinstance(first, Contention)
    assert (first.who, first.waited) == ("disk", 0.5)


async def test_a_turn_that_comes_late_is_a_lag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "TURN_S", -1.0)  # Any turn comes a second late.
    (first, *_) = await watched(
        tmp_path, lambda journal: asyncio.ensure_future(machine.watch_self(journal))
    )
    assert isinstance(first, Lag)
