"""Deadlines for tests with real processes; each wait in them has its own, nearer one."""

from __future__ import annotations

from pathlib import Path

import pytest

TIMEOUT_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
