"""Thousands of calls that come at once, as when all workers and clients go to a new leader."""

from __future__ import annotations

import asyncio
from collections import Counter

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from .conftest import Start
from .talk import Anything

# More than gRPC lets wait by itself before it turns some, and then all, away.
CALLS = 3_500
MANY = 6_000


async def test_none_of_those_that_wait_to_be_heard_is_turned_away(start: Start) -> None:
    served = await start("a")
    stub: Anything = health_pb2_grpc.HealthStub(served.channel)
    request = health_pb2.HealthCheckRequest()
    # All are sent within one turn of the loop, which the server shares.
    answers = await asyncio.gather(
        *(stub.Check(request, timeout=30) for _ in range(CALLS)), return_exceptions=True
    )
    turned_away = [answer for answer in answers if isinstance(answer, BaseException)]
    assert turned_away == []


async def test_no_more_wait_to_be_heard_than_there_is_memory_for(start: Start) -> None:
    served = await start("a")
    stub: Anything = health_pb2_grpc.HealthStub(served.channel)
    request = health_pb2.HealthCheckRequest()
    calls = [stub.Check(request, timeout=30) for _ in range(MANY)]
    codes = Counter([await call.code() for call in calls])
    # The SDK takes this for a connection that broke, and tries again.
    assert codes[grpc.StatusCode.CANCELLED] == MANY - codes[grpc.StatusCode.OK]
    assert 17_000 * codes[grpc.StatusCode.OK] < 80 << 20
