"""What the machine itself keeps a run waiting for: a processor, the disk, the harness's own turn.

Bounds in milliseconds are a promise for a machine that is there for the cluster. On one that
others use, too, it is written down when this one was not, so that neither is taken for the other.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

from .history import Contention, HistoryFile, Lag

# By name, those that live.
Processes = Callable[[], dict[str, int]]
TURN_S = 0.02
LAG_S = 0.05
SLOT_S = 0.1
WAITED_S = 0.02  # Of a slot; of the 50 ms that are promised this leaves little.
SYNC_BYTES = b"x" * 600


async def watch(journal: HistoryFile, folder: Path, processes: Processes) -> None:
    """For as long as the run lasts."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch_self(journal))
        tasks.create_task(watch_turns(journal, processes))
        tasks.create_task(watch_disk(journal, folder / "sync"))


async def watch_self(journal: HistoryFile) -> None:
    """Write down when this process does not come to its turn: calls seem longer by that."""
    while True:
        began = time.monotonic()
        await asyncio.sleep(TURN_S)
        ended = time.monotonic()
        if ended - began > TURN_S + LAG_S:
            journal.add(Lag(began + TURN_S, ended))


async def watch_turns(journal: HistoryFile, processes: Processes) -> None:
    """Write down who could run and had no processor, and for how long of a tenth of a second."""
    before: dict[int, float] = {}
    began = time.monotonic()
    while True:
        await asyncio.sleep(SLOT_S)
        now = {pid: (name, waited_s(pid)) for name, pid in processes().items()}
        ended = time.monotonic()
        # One, not all together: at an instant at which many jobs are due they wait for each other.
        waited, who = max(
            ((waited - before.get(pid, waited), name) for pid, (name, waited) in now.items()),
            default=(0.0, ""),
        )
        if waited > WAITED_S:
            journal.add(Contention(began, ended, who, round(waited, 4)))
        before = {pid: waited for pid, (_, waited) in now.items()}
        began = ended


def waited_s(pid: int) -> float:
    """Seconds for which a process's first thread could have run, and others did."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0  # It has ended, or this kernel does not count.


async def watch_disk(journal: HistoryFile, path: Path) -> None:
    """Sync a little now and then, as the nodes do; one that takes long takes long for them, too."""
    file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        while True:
            await asyncio.sleep(SLOT_S / 2)
            began = time.monotonic()
            took = await asyncio.to_thread(sync, file)
            if took > WAITED_S:
                journal.add(Contention(began, time.monotonic(), "disk", round(took, 4)))
    finally:
        os.close(file)


def sync(file: int) -> float:
    os.pwrite(file, SYNC_BYTES, 0)
    began = time.monotonic()
    os.fdatasync(file)
    return time.monotonic() - began
