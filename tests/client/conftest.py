"""What the tests of the client share: a stage with three nodes, and a black hole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .stage import BlackHole, Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage(3)
    yield made
    made.close()


@pytest.fixture
def black_hole() -> Iterator[BlackHole]:
    made = BlackHole()
    yield made
    made.close()
