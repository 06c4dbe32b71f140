"""Clusters of real processes on free ports of this machine, as tests look at them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raftsched.client import RaftschedError
from raftsched.cluster.local.nodes import (
    PROGRAM,
    Address,
    NodeProcess,
    NodeProcesses,
    free_addresses,
)
from raftsched.cluster.local.process import Process

SMALL = ("--segment-mb", "8", "--cache-mb", "16", "--heartbeat-ms", "2000")
READY_S = 20.0
# A test's own nodes need not prove who they are.
TRUSTING = ssl._create_unverified_context()
# An exit code, and lines.
Said = tuple[int | None, list[str]]


def crowd() -> float:
    """How many times longer things may take, since others want the cores as well: ten times at
    least, for the load is known late.

    What is promised in seconds is promised to who has the machine for itself; the benchmarks
    measure it.
    """
    return max(10.0, os.getloadavg()[0] / (os.cpu_count() or 1))


async def until(reached: Callable[[], Awaitable[object] | object], seconds: float) -> float:
    """Wait for a condition; the seconds it took. A condition may be refused by a cluster."""
    began = time.monotonic()
    seconds *= crowd()
    while True:
        with suppress(RaftschedError):
            answer = reached()
            if await answer if isinstance(answer, Awaitable) else answer:
                return time.monotonic() - began
        assert time.monotonic() - began < seconds, f"not within {seconds} s: {reached}"
        await asyncio.sleep(0.01)


async def fetch(address: str, path: str) -> tuple[int, str]:
    """Status and text of a page; OSError when there is none."""

    def get() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(address + path, timeout=2, context=TRUSTING) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    return await asyncio.to_thread(get)


def alone(folder: Path, *flags: str, address: Address | None = None) -> NodeProcess:
    """A node n1 of itself alone, without HTTP, that is not started yet."""
    addresses = {"n1": address} if address else free_addresses(1, http=False)
    [node] = NodeProcesses(folder, addresses, settings=(*SMALL, *flags))
    return node


def command(folder: Path, *words: str) -> Process:
    """A command of a node that ends by itself."""
    return Process("command", words, folder / "command.log", program=PROGRAM)


async def ends(process: Process) -> Said:
    """Start it and let it end; its code and its lines."""
    process.log.unlink(missing_ok=True)
    process.start()
    try:
        await until(lambda: not process.alive, 20)
    finally:
        process.kill()
    return process.code, process.log.read_text().splitlines()


async def stop(node: NodeProcess) -> tuple[int | None, float]:
    """SIGTERM; the exit code and how long it took."""
    began = time.monotonic()
    node.signal(signal.SIGTERM)
    await until(lambda: not node.alive, 10)
    return node.code, time.monotonic() - began


def lines_of(node: NodeProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in node.log.read_text().splitlines() if line[:1] == "{"]


@dataclass
class Cluster:
    """Nodes n1, n2, ... with one list of members."""

    processes: NodeProcesses
    scheme: str = "http"

    @property
    def folder(self) -> Path:
        return self.processes.folder

    @property
    def nodes(self) -> dict[str, NodeProcess]:
        return self.processes.by_name

    @property
    def addresses(self) -> dict[str, Address]:
        return {name: node.address for name, node in self.nodes.items()}

    def address(self, name: str) -> str:
        return self.nodes[name].client

    def http(self, name: str) -> str:
        return f"{self.scheme}://{self.nodes[name].http}"

    @property
    def endpoints(self) -> str:
        return self.processes.endpoints

    def start(self) -> None:
        self.processes.spawn()

    def newcomer(self, name: str, address: Address) -> NodeProcess:
        """A node at an address of its own that knows all others; it is not started yet."""
        addresses = self.addresses | {name: address}
        self.nodes[name] = NodeProcesses(self.folder, addresses, settings=SMALL)[name]
        return self.nodes[name]

    async def ready(self) -> str:
        """Wait until somebody leads; the leader's name."""
        leader = ""

        async def leads() -> bool:
            nonlocal leader
            for node in self.nodes.values():
                assert node.alive, f"{node.name} ended: {node.log.read_text()[-2000:]}"
            leader = await self.leader()
            return bool(leader)

        await until(leads, READY_S)
        return leader

    async def leader(self) -> str:
        """Who leads and says so itself; empty when nobody does."""
        for name, node in self.nodes.items():
            if node.alive:
                with suppress(OSError):
                    _, figures = await fetch(self.http(name), "/metrics")
                    if "\nraftsched_leads 1.0\n" in figures:
                        return name
        return ""

    async def serves(self, name: str) -> None:
        """Wait until a node that was started has caught up and takes calls."""

        async def ready() -> bool:
            with suppress(OSError):
                return (await fetch(self.http(name), "/readyz"))[0] == 200
            return False

        await until(ready, READY_S)

    def end(self) -> None:
        for node in self.nodes.values():
            node.kill()


@asynccontextmanager
async def cluster(
    folder: Path,
    count: int = 3,
    arguments: Mapping[str, tuple[str, ...]] | None = None,
    scheme: str = "http",
    wrap: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Cluster]:
    """A cluster that somebody leads; its processes end with the test."""
    nodes = NodeProcesses(folder, free_addresses(count), settings=SMALL, own=arguments)
    for node in nodes:
        node.wrap, node.environment = wrap, node.environment | dict(environment or {})
    made = Cluster(nodes, scheme)
    try:
        made.start()
        await made.ready()
        yield made
    finally:
        made.end()
