"""Whoever asks for health needs no token, so they are given little room."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2

from raftsched.cluster.api import health
from raftsched.proto.v1 import job_pb2

from .conftest import Served, Start
from .talk import Anything, refusal_of
from .test_auth import jobs

CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"


def check(served: Served) -> Anything:
    return served.channel.unary_unary(CHECK)


async def refused(call: Anything) -> Anything:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return refusal_of(caught.value)


async def test_a_large_request_is_refused(start: Start) -> None:
    served = await start("a")
    for path in (CHECK, WATCH):
        large = health_pb2.HealthCheckRequest(service="x" * 2_000).SerializeToString()
        if path == CHECK:
            found = await refused(check(served)(large, timeout=60))
        else:
            found = await refused(served.channel.unary_stream(path)(large, timeout=60).read())
        assert (found.reason, found.values["limit"]) == ("LIMIT_EXCEEDED", "request")
    assert (await refused(check(served)(b"\xff", timeout=60))).reason == "FIELD_INVALID"
    answer = health_pb2.HealthCheckResponse.FromString(await check(served)(b"", timeout=60))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check(served)(health_pb2.HealthCheckRequest(service="no").SerializeToString())
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


async def test_requests_that_do_not_come_take_no_room_for_long(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "READ_S", 30.0)
    monkeypatch.setattr(health, "SLOW_S", 0.1)
    served = await start("a")
    reading = served.server._health._reading
    # A connection on which somebody is known may ask so often.
    await jobs(served).ListJobs(job_pb2.ListJobsRequest())
    silent: list[Anything] = [served.channel.stream_unary(CHECK)(timeout=60) for _ in range(100)]
    waiting = [asyncio.ensure_future(refused(call)) for call in silent]
    # Whoever asks at once is answered meanwhile.
    await check(served)(b"", timeout=60)
    async with asyncio.timeout(60):
        while sum(task.done() for task in waiting) < 100 - health.READING_MAX:
            await asyncio.sleep(0.01)
    assert len(reading) == health.READING_MAX
    found = await waiting[0]
    assert (found.reason, found.values["limit"]) == ("NODE_LIMIT", "sending")
    for call in silent:
        call.cancel()
    await asyncio.wait(waiting)
    async with asyncio.timeout(60):
        while reading:
            await asyncio.sleep(0.01)


async def test_a_request_that_never_comes_is_ended(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "READ_S", 0.2)
    served = await start("a")
    found = await refused(served.channel.stream_unary(CHECK)(timeout=60))
    assert (found.reason, found.values["limit"]) == ("NODE_LIMIT", "sending")
