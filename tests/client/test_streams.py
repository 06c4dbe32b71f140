"""Streams that break, fall silent or are followed over broken connections."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing, closing
from itertools import islice

import pytest

from raftsched.client import AsyncClient, Client
from raftsched.client.errors import Closed, RevisionGone, Unavailable
from raftsched.client.sdk import course
from raftsched.proto.v1 import event_pb2, run_pb2

from ..statemachine.driver import Machine
from .stage import Node, Stage, breaking_off, refusing, silent


def create(stage: Stage, *names: str) -> None:
    for name in names:
        stage.act(lambda machine, name=name: machine.create(name))  # type: ignore[misc]


def heard(stage: Stage) -> int:
    return sum(len(node.heard) for node in stage.nodes)


def kill_the_busiest(stage: Stage) -> None:
    """On a busy machine a try may be over before its answer, and the calls go elsewhere."""
    busiest, other, _ = sorted(stage.nodes, key=lambda node: -len(node.heard))
    stage.leader = other
    busiest.stop()


def test_a_watch_goes_on_at_another_node_when_its_own_dies(stage: Stage) -> None:
    create(stage, "before")
    with Client(stage.endpoints) as client, closing(client.events.watch(after="1.0")) as events:
        create(stage, "one", "two")
        seen = [event.job for event in islice(events, 2)]

        stage.nodes[0].stop()
        stage.leader = stage.nodes[1]
        create(stage, "three", "four")
        seen += [event.job for event in islice(events, 2)]

    assert seen == ["one", "two", "three", "four"]


async def test_an_asynchronous_watch_goes_on_at_another_node(stage: Stage) -> None:
    async with (
        AsyncClient(stage.endpoints) as client,
        aclosing(client.events.watch(after="0.0")) as events,
    ):
        create(stage, "one")
        seen = [(await anext(events)).job]

        stage.nodes[0].stop()
        stage.leader = stage.nodes[1]
        create(stage, "two")
        seen.append((await anext(events)).job)

    assert seen == ["one", "two"]


def test_a_watch_without_a_beginning_begins_now(stage: Stage) -> None:
    create(stage, "old")
    with Client(stage.endpoints) as client, closing(client.events.watch()) as events:
        found: list[event_pb2.Event] = []
        reader = threading.Thread(target=lambda: found.append(next(events)))
        reader.start()
        with stage.turn:
            assert stage.turn.wait_for(lambda: stage.watching, 60)
        create(stage, "new")
        reader.join()

    assert [event.job for event in found] == ["new"]


def test_a_watch_on_a_cluster_that_is_gone_ends_within_the_timeout(stage: Stage) -> None:
    create(stage, "one")
    with Client(stage.endpoints, timeout=0.5) as client:
        events = client.events.watch(after="0.0")
        next(events)
        for node in stage.nodes:
            node.stop()

        with pytest.raises(Unavailable):
            next(events)


def test_a_watch_whose_past_is_gone_says_so(stage: Stage) -> None:
    stage.nodes[0].faults.append(refusing("REVISION_GONE", oldest="9.0"))

    with Client(stage.endpoints) as client, pytest.raises(RevisionGone) as caught:
        next(client.events.watch(after="0.0"))

    assert caught.value.values == {"oldest": "9.0"}


def test_a_watch_resumes_behind_what_it_has_told(stage: Stage) -> None:
    with Client(stage.endpoints) as client, closing(client.events.watch(after="0.0")) as events:
        create(stage, "one")
        assert next(events).job == "one"
        stage.nodes[0].faults.append(breaking_off())
        create(stage, "two")

        assert next(events).job == "two"

    watches = [
        request
        for node in stage.nodes
        for request in node.heard
        if isinstance(request, event_pb2.WatchEventsRequest)
    ]
    assert len(watches) == 2
    assert watches[1].after.change == 1


def test_a_silent_stream_is_given_up(stage: Stage) -> None:
    with Client(stage.endpoints) as client:
        responses = client.stream(event_pb2.WatchEventsRequest(), silence=0.2)
        next(responses)

        with pytest.raises(Unavailable, match=r"nothing was heard for 0\.2 s"):
            next(responses)


async def test_a_silent_asynchronous_stream_is_given_up(stage: Stage) -> None:
    async with AsyncClient(stage.endpoints) as client:
        responses = client.stream(event_pb2.WatchEventsRequest(), silence=0.2)
        await anext(responses)

        with pytest.raises(Unavailable, match=r"nothing was heard for 0\.2 s"):
            await anext(responses)


def test_a_stream_finds_a_node_that_answers(stage: Stage) -> None:
    stage.nodes[0].stop()

    with Client(stage.endpoints) as client:
        responses = client.stream(event_pb2.WatchEventsRequest())
        assert next(responses).events == []
        responses.close()

    assert stage.nodes[1].heard


def test_a_stream_that_broke_leaves_no_thread_behind(stage: Stage) -> None:
    with Client(stage.endpoints) as client:
        responses = client.stream(event_pb2.WatchEventsRequest())
        next(responses)
        responses.close()

    for thread in threading.enumerate():
        if thread.name == "raftsched-silence":
            thread.join(10)
            assert not thread.is_alive()


def test_a_backup_comes_in_pieces_and_is_whole(stage: Stage) -> None:
    with Client(stage.endpoints) as client:
        assert b"".join(client.cluster.backup()) == b"piece" * 3

        stage.nodes[0].faults.append(lambda node, request, context, answer: answer())
        with pytest.raises(Unavailable, match="after 10 of 15 bytes"):
            list(client.cluster.backup(endpoint=stage.nodes[0].address))


def test_a_unary_request_is_no_stream(stage: Stage) -> None:
    with Client(stage.endpoints) as client, pytest.raises(TypeError, match=r"use call\(\)"):
        client.stream(event_pb2.ListEventsRequest())


def waits(node: Node) -> bool:
    return any(isinstance(one, run_pb2.WaitRunRequest) for one in node.heard)


async def test_a_run_is_waited_for_while_its_node_dies(stage: Stage) -> None:
    def begin(machine: Machine) -> None:
        machine.create("a")
        machine.trigger("a")

    stage.act(begin)
    async with AsyncClient(stage.endpoints) as client:
        [run] = [run async for run in client.runs.list()]
        waiting = asyncio.create_task(run.wait(60))
        while not any(waits(node) for node in stage.nodes):
            await asyncio.sleep(0.001)

        asked, other, _ = sorted(stage.nodes, key=lambda node: not waits(node))
        stage.leader = other
        await asyncio.to_thread(asked.stop)
        stage.finish()

        assert (await waiting).state == "SUCCEEDED"


async def test_a_thousand_calls_outlive_the_death_of_a_node(stage: Stage) -> None:
    """Every call is answered, each write is done once."""
    async with AsyncClient(stage.endpoints, timeout=100) as client:
        calls = [
            asyncio.create_task(client.jobs.create(f"job-{number}", handler="x"))
            for number in range(1_000)
        ]
        while heard(stage) < 300:
            await asyncio.sleep(0.001)

        await asyncio.to_thread(kill_the_busiest, stage)

        answers = await asyncio.gather(*calls)

    assert sorted(job.name for job in answers) == sorted(f"job-{number}" for number in range(1_000))
    assert len(stage.machine.log) == 1_000


def test_a_blocking_client_is_shared_by_threads(stage: Stage) -> None:
    failed: list[BaseException] = []
    with Client(stage.endpoints, timeout=100) as client:

        def work(part: int) -> None:
            try:
                for number in range(50):
                    client.jobs.create(f"job-{part}-{number}", handler="x")
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(part,)) for part in range(8)]
        for thread in threads:
            thread.start()
        while heard(stage) < 100:
            threads[0].join(0.001)
        kill_the_busiest(stage)
        for thread in threads:
            thread.join()

    assert failed == []
    assert len(stage.machine.log) == 400


def test_closing_a_blocking_client_ends_its_calls(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No try ends by itself while the test lasts.
    monkeypatch.setattr(course, "TRY_FIRST_S", 100.0)
    stage.nodes[0].faults.append(silent)
    client = Client(stage.endpoints, timeout=100)
    told: list[type[BaseException]] = []

    def work() -> None:
        try:
            client.jobs.create("a", handler="x")
        except Closed as error:
            told.append(type(error))

    thread = threading.Thread(target=work)
    thread.start()
    with stage.turn:
        assert stage.turn.wait_for(lambda: stage.nodes[0].heard, 60)
    client.close()
    thread.join(60)

    assert told == [Closed]
