"""A gateway before a stage of three nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ..stage import Stage
from .served import Served, serving


@pytest.fixture
async def gateway(stage: Stage) -> AsyncIterator[Served]:
    async with serving(stage.endpoints) as served:
        yield served
