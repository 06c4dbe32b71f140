"""What holds for all tests."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

# What is collected lives as long as the run, so the collector of cycles need not look at it: not
# while it becomes more, which takes a quarter of that time, and not again after it.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, which works while others wait for processes and disks."""
    return (os.cpu_count() or 1) + 1
