"""What a refused call leaves behind: nothing. The collector of cycles of a node looks seldom, so an
exception that holds its own frame would hold the request of its call as well, for minutes."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc
import pytest

from raftsched.cluster.api import unary
from raftsched.cluster.api.call import Call
from raftsched.cluster.node import leader_loop
from raftsched.proto.v1 import (
    access_pb2,
    access_pb2_grpc,
    event_pb2,
    job_pb2,
    job_pb2_grpc,
    options_pb2,
    worker_pb2,
)
from raftsched.statemachine.core.rejection import Refused

from .conftest import Served, Start
from .fake import World
from .talk import Anything, create

BODY_BYTES = 256 << 10
# What channels and caches may gain: a few dozen bodies, not hundreds.
GROWTH_BYTES = 16 << 20
CREATE = "/raftsched.v1.JobService/CreateJob"
WATCH = "/raftsched.v1.EventService/WatchEvents"
WORK = "/raftsched.v1.WorkerService/Work"
Ask = Callable[[Served], Awaitable[object]]


def left() -> int:
    return sum(isinstance(one, Refused | Call) for one in gc.get_objects())


@asynccontextmanager
async def nothing_stays(served: Served) -> AsyncIterator[None]:
    """Fail if anything of a refused call is still there afterwards, without the collector."""
    gc.collect()
    before = left()
    gc.disable()
    tracemalloc.start()
    try:
        yield
        # The test's own list of calls.
        served.admitted.clear()
        async with asyncio.timeout(60):
            # The server may have some frames of the last call to go.
            while left() > before + 2:
                await asyncio.sleep(0.01)
        grown, _ = tracemalloc.get_traced_memory()
        assert grown < GROWTH_BYTES
    finally:
        tracemalloc.stop()
        gc.enable()


async def close_to_strangers(served: Served) -> None:
    root = access_pb2.AccessToken(name="root", role=options_pb2.Role.ROLE_ADMIN)
    stub: Anything = access_pb2_grpc.AccessServiceStub(served.channel)
    await stub.CreateAccessToken(access_pb2.CreateAccessTokenRequest(access_token=root))


async def refused_all(served: Served, ask: Ask, times: int) -> None:
    for _ in range(times):
        with pytest.raises(grpc.aio.AioRpcError) as found:
            await ask(served)
        assert found.value.code() != grpc.StatusCode.CANCELLED


async def test_hundreds_of_calls_of_strangers_leave_nothing(start: Start) -> None:
    served = await start("a")
    await close_to_strangers(served)
    call: Anything = served.channel.unary_unary(CREATE)
    async with nothing_stays(served):
        await refused_all(served, lambda _: call(b"\x12" + bytes(BODY_BYTES)), 250)


async def by_its_fields(served: Served) -> object:
    call: Anything = served.channel.unary_unary(CREATE)
    return await call(create("Not A Name").SerializeToString())


async def by_its_bytes(served: Served) -> object:
    call: Anything = served.channel.unary_unary(CREATE)
    return await call(b"\xff" * 1_000)


async def watching(served: Served) -> object:
    call: Anything = served.channel.unary_stream(WATCH)
    request = event_pb2.WatchEventsRequest(filter="what is this")
    return await call(request.SerializeToString()).read()


async def working(served: Served) -> object:
    call: Anything = served.channel.stream_stream(WORK)()
    await call.write(worker_pb2.WorkRequest(beat=1).SerializeToString())
    return await call.read()


async def working_wrongly(served: Served) -> object:
    call: Anything = served.channel.stream_stream(WORK)()
    hello = worker_pb2.WorkerHello(worker="w1", handlers=["work"])
    await call.write(worker_pb2.WorkRequest(hello=hello).SerializeToString())
    await call.write(worker_pb2.WorkRequest(credits=-1).SerializeToString())
    while await call.read() is not grpc.aio.EOF:
        pass
    return await call.wait_for_connection()


@pytest.mark.parametrize("ask", [by_its_fields, by_its_bytes, watching, working, working_wrongly])
async def test_what_is_refused_later_leaves_nothing_either(start: Start, ask: Ask) -> None:
    served = await start("a")
    async with nothing_stays(served):
        await refused_all(served, ask, 50)


async def test_what_the_leader_refuses_leaves_nothing_here(start: Start) -> None:
    leads, served = await start("a"), await start("b")
    async with nothing_stays(served):
        await refused_all(served, by_its_fields, 50)
        leads.admitted.clear()


async def test_what_a_broken_rule_raised_leaves_nothing(
    start: Start, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await start("a")

    def broken(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("raftsched.cluster.node.leader_loop.decide", broken)
    # The records of a test's log hold what was raised.
    monkeypatch.setattr(unary.logger, "disabled", True)
    monkeypatch.setattr(leader_loop.logger, "disabled", True)
    async with nothing_stays(served):
        await refused_all(served, by_its_fields, 50)


async def test_calls_that_are_answered_leave_nothing_to_the_collector(start: Start) -> None:
    served = await start("a")
    stub: Anything = job_pb2_grpc.JobServiceStub(served.channel)

    def contexts() -> int:
        return sum(type(one).__name__ == "_ServicerContext" for one in gc.get_objects())

    async with nothing_stays(served):
        for _ in range(100):
            await stub.ListJobs(job_pb2.ListJobsRequest())
        served.admitted.clear()
        assert contexts() < 10
