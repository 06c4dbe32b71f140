"""The port for machines: what they are told, and that it stops."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from raftsched.cluster.http import HttpPort
from raftsched.cluster.metrics import Metrics

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
    async with asyncio.timeout(5):
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
