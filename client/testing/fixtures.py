"""Clusters as fixtures, for pytest.

Write `pytest_plugins = ["raftsched.client.testing.fixtures"]` into the conftest.py at the top of
your tests, or import those that you want from here into any conftest.py.

`raftsched_cluster` has one node, `raftsched_cluster_of_three` has three; both live as long as the
session, so tests that kill nodes make a LocalCluster of their own. `raftsched_virtual_cluster` has
one node and a virtual clock that begins with the year 2026, anew for each test.

    def test_a_retry(raftsched_virtual_cluster: LocalCluster) -> None:
        raftsched_virtual_cluster.clock.advance(minutes=10)
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from .cluster import LocalCluster

# pytest is the user's to install; without it there is nobody to ask for a fixture.
if importlib.util.find_spec("pytest") is not None:
    import pytest

    @pytest.fixture(scope="session")
    def raftsched_cluster() -> Iterator[LocalCluster]:
        """A real cluster of one node."""
        with LocalCluster(1) as cluster:
            yield cluster

    @pytest.fixture(scope="session")
    def raftsched_cluster_of_three() -> Iterator[LocalCluster]:
        """A real cluster of three nodes."""
        with LocalCluster(3) as cluster:
            yield cluster

    @pytest.fixture
    def raftsched_virtual_cluster() -> Iterator[LocalCluster]:
        """A real cluster of one node, whose time the test moves."""
        with LocalCluster(virtual_clock=True) as cluster:
            yield cluster
