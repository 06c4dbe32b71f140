"""Streams over HTTP: whole however often what is behind them goes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from raftsched.client.gateway import streams
from raftsched.client.gateway.as_json import as_json
from raftsched.client.gateway.config import Limits, Settings
from raftsched.proto.v1 import event_pb2

from ..stage import Stage, breaking_off, refusing
from .served import Served, serving

HOOK = "https://example.com"
WATCH = "/v1/events:watch"


@dataclass(slots=True)
class Block:
    """What stands between two empty lines of Server-Sent Events."""

    id: str = ""
    event: str = ""
    data: Any = None
    retry: str = ""
    comments: list[str] = field(default_factory=list)


async def blocks(answer: aiohttp.ClientResponse) -> AsyncIterator[Block]:
    """As a browser reads them."""
    block, text = Block(), list[str]()
    async for raw in answer.content:
        line = raw.decode().rstrip("\n")
        name, _, value = line.partition(": ")
        if not line:
            block.data = json.loads("\n".join(text)) if text else None
            yield block
            block, text = Block(), []
        elif line.startswith(":"):
            block.comments.append(line)
        elif name == "data":
            text.append(value)
        else:
            setattr(block, name, value)


@asynccontextmanager
async def watching(
    gateway: Served, path: str = WATCH, **headers: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    named.setdefault("Accept", "text/event-stream")
    async with gateway.session.get(gateway.url + path, headers=named) as answer:
        yield answer


async def events(found: AsyncIterator[Block], count: int) -> list[Block]:
    made: list[Block] = []
    async with asyncio.timeout(30):
        async for block in found:
            if block.data is not None:
                made.append(block)
            if len(made) == count:
                return made
    return made


def test_an_event_is_written_once_for_all_who_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    written = list[object]()

    def write(message: Any) -> Any:
        written.append(message)
        return as_json(message)

    monkeypatch.setattr(streams, "as_json", write)
    one = event_pb2.WatchEventsResponse(events=[event_pb2.Event(job="only-here")])
    hidden = event_pb2.WatchEventsResponse(events=[event_pb2.Event(job="only-here", flow="f")])
    first = streams.as_events(one)
    assert [streams.as_events(one) for _ in range(9)] == [first] * 9
    assert len(written) == 1
    count = len(written)
    line = streams.once(streams.as_line, one)
    assert [streams.once(streams.as_line, one) for _ in range(9)] == [line] * 9
    assert len(written) == count + 1
    assert streams.once(streams.as_events, one) == first
    written.pop()
    # Who may see less or more gets what was sent to them.
    assert streams.as_events(hidden) != first
    large = event_pb2.WatchEventsResponse(events=[event_pb2.Event(job="x" * 3_000)])
    assert streams.as_events(large) == streams.as_events(large)
    assert len(written) == 4


async def make(gateway: Served, name: str) -> None:
    body = {"name": name, "callback_url": HOOK}
    assert (await gateway.ask("POST", "/api/v1/jobs", body)).status == 201


async def first_id(found: AsyncIterator[Block]) -> str:
    async with asyncio.timeout(30):
        async for block in found:
            if block.id:
                return block.id
    raise AssertionError("the stream ended")


async def test_events_come_with_their_revisions(gateway: Served) -> None:
    async with watching(gateway) as answer:
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/event-stream"
        found = blocks(answer)
        first = await anext(found)
        assert 500 <= int(first.retry) <= 1_500
        begun = await first_id(found)
        await make(gateway, "a")
        await make(gateway, "b")
        made = await events(found, 2)
    assert [one.data["job"] for one in made] == ["a", "b"]
    for block in made:
        place = block.data["revision"]
        assert block.id == f"{place['change']}.{place.get('position', 0)}"
    # Another stream goes on behind the first of them, wherever the address says to begin.
    async with watching(gateway, f"{WATCH}?after.change=1", Last_Event_ID=made[0].id) as answer:
        assert [one.data["job"] for one in await events(blocks(answer), 1)] == ["b"]
    async with watching(gateway, Last_Event_ID=begun) as answer:
        assert [one.data["job"] for one in await events(blocks(answer), 2)] == ["a", "b"]


async def test_lines_are_the_answers_of_the_contract(gateway: Served) -> None:
    async with watching(gateway, Accept="*/*") as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        first = json.loads(await answer.content.readline())
        assert {*first} == {"progress"}
        await make(gateway, "a")
        line = json.loads(await answer.content.readline())
        assert [event["job"] for event in line["events"]] == ["a"]


async def test_a_node_that_goes_costs_no_event(gateway: Served, stage: Stage) -> None:
    names: list[str] = []
    async with watching(gateway) as answer:
        found = blocks(answer)
        await first_id(found)
        for fault in (breaking_off(), refusing("DRAINING"), breaking_off()):
            for node in stage.nodes:
                node.faults.append(fault)
            stage.act(lambda machine: None)
            async with asyncio.timeout(30):
                while all(node.faults for node in stage.nodes):
                    await asyncio.sleep(0.01)
            for node in stage.nodes:
                node.faults.clear()
            # Nobody watches by now, or somebody does again.
            names.append(f"job-{len(names)}")
            await make(gateway, names[-1])
        made = await events(found, len(names))
    assert [one.data["job"] for one in made] == names


async def test_what_cannot_begin_has_a_status_of_its_own(gateway: Served, stage: Stage) -> None:
    for node in stage.nodes:
        node.turned_away.append(refusing("REVISION_GONE", oldest="9.0"))
    async with watching(gateway) as answer:
        assert answer.status == 400
        error = (await answer.json())["error"]
        assert error["details"][0]["reason"] == "REVISION_GONE"
    for node in stage.nodes:
        node.turned_away.clear()
    async with asyncio.timeout(10), watching(gateway, Last_Event_ID="999999999.0") as answer:
        assert answer.status == 400
        error = (await answer.json())["error"]
        assert error["message"].startswith("Last-Event-ID: after has not come yet; open")
    ahead = await gateway.ask("GET", "/v1/events:watch?after.change=999999999")
    assert ahead.status == 400
    assert ahead.body["error"]["message"].startswith("after: after has not come yet")
    for wrong in ("x", "1.x", "9" * 40):
        async with watching(gateway, Last_Event_ID=wrong) as answer:
            assert answer.status == 400


async def test_what_ends_a_stream_is_said_in_it(gateway: Served, stage: Stage) -> None:
    async with watching(gateway) as answer, watching(gateway, Accept="*/*") as lines:
        found = blocks(answer)
        await first_id(found)
        await lines.content.readline()
        for node in stage.nodes:
            node.faults.extend([refusing("UNAUTHENTICATED")] * 2)
        stage.act(lambda machine: None)
        [told] = await events(found, 1)
        assert (told.event, told.data["error"]["code"]) == ("error", 401)
        last = json.loads(await lines.content.readline())
        assert last["error"]["details"][0]["reason"] == "UNAUTHENTICATED"
        assert await lines.content.readline() == b""
        stage.nodes[0].faults.clear()


async def test_a_silent_stream_says_so(gateway: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SILENCE_S", 0.05)
    async with watching(gateway) as answer:
        found = blocks(answer)
        await first_id(found)
        async with asyncio.timeout(30):
            said = [await anext(found) for _ in range(2)]
        assert all(one.comments for one in said)
        await make(gateway, "a")
        assert [one.data["job"] for one in await events(found, 1)] == ["a"]


async def test_streams_are_bounded_and_given_back(stage: Stage) -> None:
    async with serving(stage.endpoints, Settings(Limits(streams=1))) as gateway:
        async with watching(gateway) as answer:
            await first_id(blocks(answer))
            async with watching(gateway) as full:
                assert full.status == 429
                error = (await full.json())["error"]
                assert error["details"][0]["metadata"]["limit"] == "streams_by_address"
        async with asyncio.timeout(30):
            while True:
                async with watching(gateway) as again:
                    if again.status == 200:
                        break
                await asyncio.sleep(0.02)


async def test_a_gateway_that_stops_ends_its_streams(stage: Stage) -> None:
    async with serving(stage.endpoints) as gateway:
        answer = await gateway.session.get(gateway.url + WATCH)
        await answer.content.readline()
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 4.0
    assert await answer.content.read() == b""


async def test_filters_and_namespaces_are_part_of_the_address(
    gateway: Served, stage: Stage
) -> None:
    async with watching(gateway, f"{WATCH}?namespace=default&filter=job%3Db") as answer:
        await first_id(blocks(answer))
    [request] = [
        one for node in stage.nodes for one in node.heard
        if isinstance(one, event_pb2.WatchEventsRequest)
    ]  # fmt: skip
    assert (request.namespace, request.filter) == ("default", "job=b")
