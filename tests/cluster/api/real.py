"""Whole nodes with their servers, in one process: real consensus, stores and sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from raftsched.cluster.api.server import Server
from raftsched.cluster.local.ports import free_ports
from raftsched.cluster.node.node import Node
from raftsched.cluster.node.node_spec import MemberAddresses, NodeSpec

from ..node.test_node import until as until
from ..node.test_node import wait_longer
from .talk import Anything


class Real:
    """One of them."""

    def __init__(self, spec: NodeSpec) -> None:
        self.name = spec.name
        self.address = spec.members[spec.name].client
        self.node = Node(spec)
        # How long a step lasts tells how busy this machine is, and one alert more is one change.
        self.node.steps.long_s = float("inf")
        self.server = Server(self.node, self.address)
        self.channel = grpc.aio.insecure_channel(self.address)
        self.up = False

    async def start(self) -> None:
        await self.node.start()
        assert await self.server.start() == self.address
        self.up = True

    def stub(self, kind: Callable[[grpc.aio.Channel], Anything]) -> Anything:
        return kind(self.channel)

    async def kill(self) -> None:
        """As a process that ends at once: no drain, no word."""
        if self.up:
            self.up = False
            await self.server.stop(0)
            await self.node.stop()

    async def stop(self) -> None:
        await self.channel.close()
        await self.kill()


@asynccontextmanager
async def cluster(folder: Path, count: int) -> AsyncIterator[dict[str, Real]]:
    """So many nodes; one of them leads."""
    names = [f"n{number}" for number in range(1, count + 1)]
    ports = free_ports(2 * count)
    members = {
        name: MemberAddresses(peer=f"127.0.0.1:{ports.pop()}", client=f"127.0.0.1:{ports.pop()}")
        for name in names
    }
    nodes = {
        name: Real(
            NodeSpec(
                name=name, cluster="test", folder=folder / name, members=members,
                cache_bytes=8 << 20, version="1.2.3",
            )
        )
        for name in names
    }  # fmt: skip
    try:
        for real in nodes.values():
            await real.start()
        await until(lambda: any(real.node.leads for real in nodes.values()))
        for real in nodes.values():
            wait_longer(real.node)
        await until(lambda: all(real.node.leader_address for real in nodes.values()))
        yield nodes
    finally:
        for real in nodes.values():
            await real.stop()


def leader_of(nodes: dict[str, Real]) -> Real:
    return next(real for real in nodes.values() if real.up and real.node.leads)


def followers_of(nodes: dict[str, Real]) -> list[Real]:
    return [real for real in nodes.values() if real.up and not real.node.leads]
