"""Stories of which the fast tests play some; `./dev test -m slow` plays all the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import settings


def some(stories: Iterable[Any], fast: int) -> list[Any]:
    """Parameters of a test, the first of them fast."""
    listed = list(stories)
    return [*listed[:fast], *(pytest.param(one, marks=pytest.mark.slow) for one in listed[fast:])]


def examples(fast: int, slow: int) -> pytest.MarkDecorator:
    """Parameters of a test of a property: with how many examples it is played; see `play`."""
    return pytest.mark.parametrize("many", some([fast, slow], 1))


def play(many: int, a_property: Callable[[], None], *, derandomize: bool = False) -> None:
    """Play a property, which `given` made of a function, with so many examples."""
    settings(max_examples=many, deadline=None, derandomize=derandomize)(a_property)()
