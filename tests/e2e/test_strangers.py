"""What callers do to a cluster that have no token, do not read or say nothing."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from raftsched.chaos.real.hostile import http2
from raftsched.client import Client, every
from raftsched.cluster.api.strangers import TCP_INFO
from raftsched.proto.v1 import (
    access_pb2,
    access_pb2_grpc,
    cluster_pb2,
    event_pb2,
    event_pb2_grpc,
    options_pb2,
)

from .processes import Cluster, cluster, fetch, until

Anything = Any
CREATE = "/raftsched.v1.JobService/CreateJob"
WATCH = "/raftsched.v1.EventService/WatchEvents"
FLOOD_S = 10.0
BODY = b"\x12" + bytes(4_000_000)
GROWTH_MB = 150
# All that a hundred connections send; the entry "accept-encoding" of HTTP/2's own table.
HEADERS_BYTES, REFERENCE = 96 << 20, b"\x90"
# An address of its own for each that sends, so that they share no connection.
ALONE = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", 8 << 20))


def memory_mb(made: Cluster) -> dict[str, int]:
    """The most that each node has used so far."""
    found = {}
    for name, node in made.nodes.items():
        lines = Path(f"/proc/{node.pid}/status").read_text().splitlines()
        [most] = [line.split()[1] for line in lines if line.startswith("VmHWM")]
        found[name] = int(most) // 1024
    return found


async def closed(made: Cluster) -> str:
    """Make the first token; its secret."""
    async with grpc.aio.insecure_channel(made.address("n1")) as channel:
        stub: Anything = access_pb2_grpc.AccessServiceStub(channel)
        root = access_pb2.AccessToken(name="root", role=options_pb2.Role.ROLE_ADMIN)
        request = access_pb2.CreateAccessTokenRequest(access_token=root)
        return str((await stub.CreateAccessToken(request)).secret)


def statuses(made: Cluster, secret: str) -> cluster_pb2.ClusterStatus:
    with Client(made.endpoints, token=secret, timeout=10) as client:
        return client.cluster.status()


def tick(made: Cluster, secret: str) -> None:
    with Client(made.endpoints, token=secret, timeout=10) as client:
        client.jobs.create("tick", handler="nobody", schedule=every(1.0), overlap="allow")


def ticks(made: Cluster, secret: str) -> int:
    with Client(made.endpoints, token=secret, timeout=10) as client:
        return len(list(client.jobs.ledger("tick")))


@pytest.mark.slow
async def test_a_flood_of_strangers_is_refused_unread(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as made:
        secret = await closed(made)
        await asyncio.to_thread(tick, made, secret)
        term = (await asyncio.to_thread(statuses, made, secret)).term
        before, codes = memory_mb(made), Counter[str]()

        async def flood(number: int) -> None:
            address = made.address(f"n{number % 3 + 1}")
            async with grpc.aio.insecure_channel(address, ALONE) as channel:
                call: Anything = channel.unary_unary(CREATE)
                while time.monotonic() < end:
                    with pytest.raises(grpc.aio.AioRpcError) as refused:
                        await call(BODY, timeout=10)
                    codes[refused.value.code().name] += 1

        end = time.monotonic() + FLOOD_S
        began = await asyncio.to_thread(ticks, made, secret)
        await asyncio.gather(*(flood(number) for number in range(10)))
        fired = await asyncio.to_thread(ticks, made, secret) - began
        status = await asyncio.to_thread(statuses, made, secret)
        grown = {name: most - before[name] for name, most in memory_mb(made).items()}

    assert status.term == term
    assert max(grown.values()) <= GROWTH_MB, grown
    assert fired >= FLOOD_S - 2
    # After some refusals the connection is broken off.
    assert set(codes) <= {"UNAUTHENTICATED", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}
    assert status.refused["UNAUTHENTICATED"] > 0


@pytest.mark.slow
@pytest.mark.skipif(TCP_INFO is None, reason="the system does not tell how much came")
async def test_headers_of_strangers_who_read_nothing_fill_no_memory(tmp_path: Path) -> None:
    head = http2.headers(CREATE) + REFERENCE * 300
    async with cluster(tmp_path, 1) as made:
        secret = await closed(made)
        before, end, left = memory_mb(made)["n1"], time.monotonic() + FLOOD_S, HEADERS_BYTES

        async def flood() -> None:
            nonlocal left
            while time.monotonic() < end and left > 0:
                with suppress(OSError):
                    host, port = made.address("n1").split(":")
                    reader, writer = await asyncio.open_connection(host, int(port), limit=1)
                    connection = http2.Connection(reader, writer)
                    writer.write(http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0))
                    try:
                        while time.monotonic() < end and left > 0:
                            for _ in range(10):
                                connection.begin(head)
                            left -= 10 * len(head)
                            await writer.drain()
                    finally:
                        writer.close()
                await asyncio.sleep(0.01)

        async with asyncio.timeout(2 * FLOOD_S):
            await asyncio.gather(*(flood() for _ in range(100)))
        assert left < HEADERS_BYTES / 2
        assert (await asyncio.to_thread(statuses, made, secret)).term
        grown = memory_mb(made)["n1"] - before
        assert grown <= GROWTH_MB


@pytest.mark.slow
async def test_a_thousand_watchers_that_do_not_read_leave_room(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as made:
        before = memory_mb(made)["n1"]
        channels = [grpc.aio.insecure_channel(made.address("n1"), ALONE) for _ in range(10)]
        request = event_pb2.WatchEventsRequest().SerializeToString()
        calls: list[Anything] = []
        for channel in channels:
            # A hundred at once: of more than may wait to be heard some would be turned away.
            more = [watch(channel)(request) for _ in range(100)]
            await asyncio.gather(*(call.initial_metadata() for call in more))
            calls += more
        await asyncio.to_thread(create_many, made, 500)
        async with grpc.aio.insecure_channel(made.address("n1"), ALONE) as channel:
            stub: Anything = event_pb2_grpc.EventServiceStub(channel)
            # Of one address 1,000 may watch; a token has a share of its own.
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.WatchEvents(event_pb2.WatchEventsRequest()).read()
            assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        secret = await closed(made)

        async def watches() -> bool:
            async with grpc.aio.insecure_channel(made.address("n1"), ALONE) as channel:
                stub: Anything = event_pb2_grpc.EventServiceStub(channel)
                metadata = (("authorization", f"Bearer {secret}"),)
                call = stub.WatchEvents(event_pb2.WatchEventsRequest(), metadata=metadata)
                return bool(await call.read())

        await until(watches, 10)
        assert memory_mb(made)["n1"] - before <= GROWTH_MB
        for channel in channels:
            await channel.close()


def watch(channel: Anything) -> Anything:
    return channel.unary_stream(WATCH)


def create_many(made: Cluster, count: int) -> None:
    with Client(made.endpoints, timeout=10) as client:
        for number in range(count):
            client.jobs.create(f"job-{number}", handler="nobody")


@pytest.mark.slow
async def test_idle_connections_to_all_ports_stop_nobody(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as made:
        term = (await asyncio.to_thread(statuses, made, "")).term
        with ExitStack() as idle:
            for host, port in listeners(made):
                for _ in range(300):
                    idle.enter_context(socket.create_connection((host, port)))
            for name, node in made.nodes.items():
                assert (await fetch(made.http(name), "/healthz"))[0] == 200
                assert (await fetch(made.http(name), "/readyz"))[0] == 200
                assert node.alive
            await asyncio.to_thread(create_many, made, 10)
            assert (await asyncio.to_thread(statuses, made, "")).term == term


FEW = ("/bin/sh", "-c", 'ulimit -n 256; exec "$@"', "sh")


@pytest.mark.slow
async def test_idle_connections_end_no_node_that_may_open_few_files(tmp_path: Path) -> None:
    """Seen before: all three ended as soon as a segment was full and the next could not be opened,
    since "what it holds is not known"."""
    async with cluster(tmp_path, 3, wrap=FEW) as made:
        for node in made.nodes.values():
            limits = Path(f"/proc/{node.pid}/limits").read_text().splitlines()
            assert [line.split()[3:5] for line in limits if "open files" in line] == [["256"] * 2]
        with Client(made.endpoints, timeout=10) as client, ExitStack() as idle:
            client.jobs.create("before", handler="nobody")
            for place in listeners(made):
                # It takes some of them, and so has no file left for others.
                assert hold(idle, place, 300)
            # Three segments and more.
            kept = await asyncio.to_thread(create_large, client, 400)
            for name, node in made.nodes.items():
                assert node.alive, node.log.read_text()[-2_000:]
                assert len(list((made.folder / name / "consensus/journal").iterdir())) >= 3
        with Client(made.endpoints, timeout=10) as client:
            await asyncio.to_thread(create_many, made, 20)
            jobs = {job.name for job in client.jobs.list()}
        assert all(node.alive for node in made.nodes.values())
    assert len(kept) == 400
    assert kept | {"before", "job-19"} <= jobs


def listeners(made: Cluster) -> list[tuple[str, int]]:
    """Host and port: all that clients find, then all for HTTP, then all for nodes."""
    ways = zip(*((at.client, at.http, at.peer) for at in made.addresses.values()), strict=True)
    return [(host, int(port)) for way in ways for host, _, port in (a.partition(":") for a in way)]


def hold(idle: ExitStack, place: tuple[str, int], count: int) -> int:
    """Open connections and say nothing; how many there are."""
    held = 0
    for _ in range(count):
        with suppress(OSError):
            idle.enter_context(socket.create_connection(place, timeout=2))
            held += 1
    return held


def create_large(client: Client, count: int) -> set[str]:
    kept = set[str]()
    for number in range(count):
        name = f"large-{number}"
        client.jobs.create(name, handler="nobody", payload=os.urandom(60_000))
        kept.add(name)
    return kept
