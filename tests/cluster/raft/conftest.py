"""Clusters that are stepped by hand."""

from __future__ import annotations

import pytest

from raftsched.chaos.sim.group import Group


@pytest.fixture
def three() -> Group:
    return Group(3)
