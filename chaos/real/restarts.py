"""Stops a node in order, and asks one what it was made of."""

from __future__ import annotations

import asyncio
import time

from ...cluster.local.nodes import NodeProcess
from ...proto.v1 import cluster_pb2
from .chaos_cluster import READY_S, ChaosCluster
from .history import Stop


async def build_of(cluster: ChaosCluster, node: NodeProcess) -> str:
    """What it says that it was made of."""
    async with cluster.client(node.client, READY_S) as client:
        status = await client.call(cluster_pb2.GetClusterStatusRequest())
    return str(next(each.build for each in status.nodes if each.name == node.name))


async def stop(cluster: ChaosCluster, node: NodeProcess) -> None:
    """In order; with which code is checked."""
    began = time.monotonic()
    code = await asyncio.to_thread(node.stop)
    words = node.tail() if code else ""
    cluster.journal.add(Stop(node.name, began, time.monotonic(), code, words))
