"""What holds for all tests."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """What was collected lives as long as the run, so the collector of cycles need not look at it
    again: some tests ask it many times."""
    gc.collect()
    gc.freeze()
