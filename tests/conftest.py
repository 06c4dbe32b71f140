"""What holds for all tests."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

# What is collected lives as long as the run, so the collector of cycles need not look at it: not
# while it becomes more, which takes a quarter of that time, and not again after it.
gc.disable()


HERE = Path(__file__).resolve().parent
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Of several workers each begins with other files, and finds compiled what the others began
    with: in a new checkout a fifth less until the first test."""
    args = session.config.args
    if WORKER and [Path(one).resolve() for one in args] == [HERE]:
        number, count = int(WORKER.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        files = sorted(map(str, HERE.rglob("test_*.py")))
        first = len(files) * number // count
        args[:] = files[first:] + files[:first]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The same order in each worker; within a file it is that of the file."""
    if WORKER:
        items.sort(key=lambda item: str(item.path))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, which works while others wait for processes and disks."""
    return (os.cpu_count() or 1) + 1
