"""What the tests of the rules share: a machine on each kind of store, checked when a test ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from raftsched.statemachine.core.rocks_store import RocksStore
from raftsched.statemachine.core.store import MemoryStore, Store

from .driver import Machine

CACHE_BYTES = 8 * 1024 * 1024


@contextmanager
def empty(request: pytest.FixtureRequest) -> Iterator[Store]:
    made: Store
    if request.param == "memory":
        made = MemoryStore()
    else:
        folder = request.getfixturevalue("tmp_path")
        made = RocksStore(folder / "store", cache_bytes=CACHE_BYTES)
    yield made
    made.close()


@pytest.fixture(params=["memory", "rocks"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty store of each kind."""
    with empty(request) as made:
        yield made


@pytest.fixture(params=["memory", pytest.param("rocks", marks=pytest.mark.slow)])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A state machine; when the test ends, all that is derived in it must be right. That both kinds
    of store come to the same is for the tests that ask for a store."""
    with empty(request) as store:
        made = Machine(store)
        yield made
        made.check()
