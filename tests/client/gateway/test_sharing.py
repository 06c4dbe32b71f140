"""Watchers who ask for the same share one stream, and none misses or doubles anything by that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

import pytest

from raftsched.client import AsyncClient
from raftsched.client.errors import NotFound
from raftsched.client.gateway import sharing, streams
from raftsched.client.gateway.sharing import SharedStreams
from raftsched.proto.v1 import event_pb2

COUNT = 400
CLIENT = cast("AsyncClient", object())


class Source:
    """Events numbered from 1, as a cluster that keeps all of them would send them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = 0
        self.closed = 0
        self.now = 0
        self.moved = asyncio.Condition()
        self.error: Exception | None = None
        monkeypatch.setattr(streams, "messages", self.messages)

    async def messages(
        self, client: object, request: Any, token: str, timeout: float
    ) -> AsyncGenerator[Any, None]:
        self.opened += 1
        at = request.after.change if request.HasField("after") else self.now
        try:
            yield response(at)
            while True:
                async with self.moved:
                    while self.now <= at and self.error is None:
                        await self.moved.wait()
                if self.error is not None:
                    raise self.error
                at += 1
                yield response(at, f"job-{at}")
        finally:
            self.closed += 1

    async def happen(self, count: int = 1) -> None:
        for _ in range(count):
            async with self.moved:
                self.now += 1
                self.moved.notify_all()
            await asyncio.sleep(0)

    async def fail(self, error: Exception) -> None:
        async with self.moved:
            self.error = error
            self.moved.notify_all()


def response(at: int, *jobs: str) -> event_pb2.WatchEventsResponse:
    made = event_pb2.WatchEventsResponse(events=[event_pb2.Event(job=job) for job in jobs])
    made.progress.change = at
    return made


async def collect(shared: SharedStreams, until: int, token: str = "", pause: int = 0) -> list[str]:
    """The jobs of what comes, until this one; `pause`: read slowly at first."""
    seen = list[str]()
    opened = shared.messages(CLIENT, event_pb2.WatchEventsRequest(), token, 1.0)
    async with aclosing(opened) as coming:
        async for message in coming:
            seen += [event.job for event in message.events]
            if f"job-{until}" in seen:
                return seen
            for _ in range(pause):
                await asyncio.sleep(0)
    return seen


async def started(shared: SharedStreams, count: int, until: int) -> list[asyncio.Task[list[str]]]:
    tasks = [asyncio.create_task(collect(shared, until)) for _ in range(count)]
    for _ in range(20):
        await asyncio.sleep(0)
    return tasks


@pytest.mark.parametrize("watchers", [3, 30])
async def test_all_see_all_in_order_over_one_stream(
    watchers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "GATHER_S", 0.01)
    source, shared = Source(monkeypatch), SharedStreams()
    tasks = await started(shared, watchers, COUNT)
    await source.happen(COUNT)
    async with asyncio.timeout(20):
        for seen in await asyncio.gather(*tasks):
            assert seen == [f"job-{number}" for number in range(1, COUNT + 1)]
    assert source.opened == 1
    async with asyncio.timeout(5):
        while source.closed < 1:
            await asyncio.sleep(0)
    assert not shared._open


async def test_who_is_too_slow_goes_on_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "UNREAD_MAX", 5)
    source, shared = Source(monkeypatch), SharedStreams()
    [quick] = await started(shared, 1, COUNT)
    slow = asyncio.create_task(collect(shared, COUNT, pause=200))
    await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    await source.happen(COUNT)
    async with asyncio.timeout(20):
        whole = [f"job-{number}" for number in range(1, COUNT + 1)]
        assert await quick == whole
        assert await slow == whole
    assert source.opened >= 2


async def test_another_token_has_a_stream_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    source, shared = Source(monkeypatch), SharedStreams()
    tasks = [asyncio.create_task(collect(shared, 1, token)) for token in ("a", "b", "a")]
    for _ in range(20):
        await asyncio.sleep(0)
    await source.happen()
    await asyncio.gather(*tasks)
    assert source.opened == 2


async def test_what_ends_it_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    source, shared = Source(monkeypatch), SharedStreams()
    tasks = await started(shared, 3, COUNT)
    await source.fail(NotFound("gone"))
    async with asyncio.timeout(5):
        for one in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(one, NotFound)
    # The next one asks anew.
    source.error = None
    again = await started(shared, 1, 1)
    await source.happen()
    assert await again[0] == ["job-1"]
