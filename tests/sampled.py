"""Stories of which the fast tests play some; `./dev test -m slow` plays all the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some(stories: Iterable[Any], fast: int) -> list[Any]:
    """Parameters of a test, the first of them fast."""
    listed = list(stories)
    return [*listed[:fast], *(pytest.param(one, marks=pytest.mark.slow) for one in listed[fast:])]
