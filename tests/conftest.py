"""What holds for all tests."""

from __future__ import annotations

import gc
import os

import pytest


def pytest_collection_finish() -> None:
    """What was collected lives as long as the run, so the collector of cycles need not look at it
    again: some tests ask it many times."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, which works while others wait for processes and disks."""
    return (os.cpu_count() or 1) + 1
