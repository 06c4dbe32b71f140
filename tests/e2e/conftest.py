"""Deadlines for tests with real processes; each wait in them has its own, nearer one."""

from __future__ import annotations

from pathlib import Path

import pytest

TIMEOUT_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}/"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
