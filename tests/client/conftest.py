"""What the tests of the client share: a stage with three nodes, and a black hole."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from .stage import BlackHole, Stage


@pytest.fixture(autouse=True)
def same_logging() -> Iterator[None]:
    """A command sets the logging of its process, which is one for all tests."""
    root = logging.getLogger()
    loggers = [one for one in root.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    levels = [(one, one.level) for one in (root, *loggers)]
    handlers = list(root.handlers)
    yield
    root.handlers[:] = handlers
    for one, level in levels:
        one.setLevel(level)


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
