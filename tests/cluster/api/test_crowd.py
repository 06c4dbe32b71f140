"""Thousands of calls that come at once, as when all workers and clients go to a new leader."""

from __future__ import annotations

import asyncio
from collections import Counter

import grpc
import pytest

from raftsched.proto.v1 import job_pb2

from .conftest import Start
from .test_auth import jobs

CALLS = 3_500
MANY = 6_000
HEADERS_BYTES = 50_000  # What a call holds with as many headers as it may have.
TRY_AGAIN_S = (0.05, 1.0)
TURNED_AWAY = (grpc.StatusCode.CANCELLED, grpc.StatusCode.RESOURCE_EXHAUSTED)


@pytest.mark.slow
async def test_all_of_a_crowd_are_heard_at_once_or_soon(start: Start) -> None:
    served = await start("a")
    stub, request = jobs(served), job_pb2.ListJobsRequest(page_size=1)

    async def ask() -> None:
        """As an SDK does: whoever is turned away comes again."""
        wait, last = TRY_AGAIN_S
        while True:
            try:
                await stub.ListJobs(request, timeout=60)
                return
            except grpc.aio.AioRpcError as error:
                if error.code() not in TURNED_AWAY:
                    raise
            await asyncio.sleep(wait)
            wait = min(2 * wait, last)

    # All are sent within one turn of the loop, which the server shares.
    async with asyncio.timeout(60):
        await asyncio.gather(*(ask() for _ in range(CALLS)))


async def test_no_more_wait_to_be_heard_than_there_is_memory_for(start: Start) -> None:
    served = await start("a")
    stub, request = jobs(served), job_pb2.ListJobsRequest(page_size=1)
    calls = [stub.ListJobs(request, timeout=60) for _ in range(MANY)]
    codes = Counter([await call.code() for call in calls])
    assert sum(codes[code] for code in TURNED_AWAY) == MANY - codes[grpc.StatusCode.OK]
    assert HEADERS_BYTES * codes[grpc.StatusCode.OK] < 80 << 20
