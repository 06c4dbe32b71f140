"""The port for machines: what they are told, and that it stops."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from raftsched.cluster.ops import probes
from raftsched.cluster.ops.metrics import Metrics
from raftsched.cluster.ops.probes import HttpPort
from raftsched.cluster.raft.port import Untimed

Answer = tuple[int, str]


@asynccontextmanager
async def serving(checks: dict[str, str]) -> AsyncIterator[str]:
    port = HttpPort(Metrics().registry, lambda: checks, {"version": "0.1.0"})
    address = await port.start("127.0.0.1:0")
    try:
        yield address
    finally:
        await port.stop()


async def get(address: str, path: str) -> Answer:
    host, port = address.split(":")
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
    return int(head.split()[1]), body


async def test_metrics_are_in_prometheus_form() -> None:
    async with serving({}) as address:
        status, body = await get(address, "/metrics")

    assert status == 200
    assert "# TYPE raftsched_lateness_seconds histogram\n" in body
    assert body.endswith("\n")


class Slow:
    """Figures that take a while."""

    written = 0

    def collect(self) -> Iterator[Metric]:
        self.written += 1
        until = time.monotonic() + 0.06
        while time.monotonic() < until:
            pass
        yield GaugeMetricFamily("slow", "Of a large state.", value=self.written)


class Told(Untimed):
    def __init__(self) -> None:
        self.steps: list[str] = []

    def end(self, what: str, began: float) -> None:
        self.steps.append(what)


async def test_metrics_that_are_dear_are_written_a_share_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A minute passes in no test.
    monkeypatch.setattr(probes, "METRICS_SHARE", 0.001)
    monkeypatch.setattr(probes, "METRICS_SECONDS_MOST", 60.0)
    registry, slow, told = CollectorRegistry(), Slow(), Told()
    registry.register(slow)
    slow.written = 0
    port = HttpPort(registry, dict, {}, steps=told)
    address = await port.start("127.0.0.1:0")
    try:
        for _ in range(10):
            _, body = await get(address, "/metrics")
            assert "slow 1.0" in body
    finally:
        await port.stop()

    assert (slow.written, told.steps) == (1, ["metrics"])


async def test_a_node_without_a_leader_is_alive_but_not_ready() -> None:
    async with serving({"leader": "none is known", "disk": ""}) as address:
        health, ready = await get(address, "/healthz"), await get(address, "/readyz")
        verbose = await get(address, "/readyz?verbose")

    assert health == (200, "ok\n")
    assert ready == (503, "[-] leader: none is known\nnot ready\n")
    assert verbose == (503, "[-] leader: none is known\n[+] disk\nnot ready\n")


async def test_a_node_that_serves_says_so() -> None:
    async with serving({"leader": ""}) as address:
        assert await get(address, "/readyz") == (200, "ready\n")
        assert await get(address, "/readyz?verbose") == (200, "[+] leader\nready\n")


async def test_the_version_is_told() -> None:
    async with serving({}) as address:
        status, body = await get(address, "/version")

    assert (status, json.loads(body)) == (200, {"version": "0.1.0"})


async def test_other_paths_are_not_there() -> None:
    async with serving({}) as address:
        assert (await get(address, "/"))[0] == 404


async def test_a_used_port_is_an_error_of_the_operating_system() -> None:
    async with serving({}) as address:
        with pytest.raises(OSError, match="in use"):
            await HttpPort(Metrics().registry, dict, {}).start(address)


async def test_a_client_that_says_nothing_does_not_hold_up_the_end() -> None:
    async with serving({}) as address:
        host, port = address.split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        began = asyncio.get_running_loop().time()

    assert asyncio.get_running_loop().time() - began < 1.5
    writer.close()


Streams = list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]


async def connections(address: str, count: int) -> Streams:
    host, port = address.split(":")
    return [await asyncio.open_connection(host, int(port)) for _ in range(count)]


async def close(streams: Streams) -> None:
    for _, writer in streams:
        writer.close()


async def test_probes_are_answered_however_many_connections_are_silent() -> None:
    async with serving({}) as address:
        silent = await connections(address, 1_000)
        for _, writer in silent[::2]:
            writer.write(b"GET /healthz HT")
        assert await get(address, "/healthz") == (200, "ok\n")
        assert (await get(address, "/metrics"))[0] == 200
        await close(silent)


async def test_a_connection_without_a_request_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "WAIT_SECONDS", 0.05)
    async with serving({}) as address:
        [(reader, writer)] = await connections(address, 1)
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionError):
                for _ in range(1_000):
                    writer.write(b"G")
                    await asyncio.sleep(0.01)
                    await writer.drain()
                raise AssertionError("it is still open")
        await close([(reader, writer)])


async def test_a_connection_that_asks_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "CONNECTIONS_MAX", 2)
    async with serving({}) as address:
        streams = await connections(address, 1)
        [(reader, writer)] = streams
        for _ in range(5):
            streams += await connections(address, 1)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(60):
                assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200")
        await close(streams)
