"""What the tests of the rules share: a machine on each kind of store, checked when a test ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from raftsched.statemachine.core.rocks_store import RocksStore
from raftsched.statemachine.core.store import MemoryStore, Store

from .driver import Machine

CACHE_BYTES = 8 * 1024 * 1024


@pytest.fixture(params=["memory", "rocks"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind."""
    made: Store
    if request.param == "memory":
        made = MemoryStore()
    else:
        made = RocksStore(tmp_path / "store", cache_bytes=CACHE_BYTES)
    yield made
    made.close()


@pytest.fixture
def machine(store: Store) -> Iterator[Machine]:
    """A state machine; when the test ends, all that is derived in it must be right."""
    made = Machine(store)
    yield made
    made.check()
