"""The cluster that is mistreated: nodes with a hand on each, links, workers, and what they do."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...client import AsyncClient, RaftschedError
from ...cluster.local.nodes import LOCAL, NodeProcess
from ...cluster.local.ports import free_ports
from ...cluster.local.process import Process, ProcessFailed
from ...proto.v1 import cluster_pb2
from .builds import Build
from .history import HistoryFile
from .link_backend import LinkBackend
from .node import Control, controlled

WORKER_PROCESSES, PER_PROCESS = 4, 5
READY_S = 90.0  # Longer than anything takes, even where others use the machine too.
LEADER_S = 60.0
VOTERS = (
    cluster_pb2.Node.ROLE_LEADER,
    cluster_pb2.Node.ROLE_FOLLOWER,
    cluster_pb2.Node.ROLE_CANDIDATE,
)
SETTINGS = ("--heartbeat-ms", "1000", "--segment-mb", "8", "--cache-mb", "32")


class ChaosCluster:
    """Starts and stops all of it, and knows who is who. Faults are `injector.py`'s."""

    def __init__(
        self,
        folder: Path,
        count: int,
        seed: int,
        links: LinkBackend,
        *,
        broken_rule: str = "",
        stall: float = 0.0,
        settings: Sequence[str] = (),
        older: Build | None = None,
    ) -> None:
        self.folder, self.seed = folder, seed
        # With access tokens: that of an admin.
        self.token: str | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.links = links
        self.worker_number = 0
        self.nodes = links.nodes(folder, count, [*SETTINGS, *settings], controlled(folder))
        self.present = Build("the present build", controlled(folder))
        # The build of each node; all begin with the older one, where there is one.
        self.builds: dict[str, Build] = {}
        self.older = older or self.present
        for name in self.nodes.names:
            self.put(name, self.older)
        self.controls = {name: folder / f"{name}.control" for name in self.nodes.names}
        self.broken_rule = broken_rule
        for name in self.nodes.names:
            self.control(name)
        self.journal = HistoryFile(folder / "harness.jsonl")
        (sink_port,) = free_ports(1)
        self.sink = Process(
            "sink",
            ["raftsched.chaos.real.effect_sink", str(sink_port), str(folder / "sink.jsonl")],
            folder / "sink.log",
        )  # fmt: skip
        self.workers = [
            Process(
                f"workers-{number}",
                [
                    "raftsched.chaos.real.worker", f"w{number}", self.nodes.endpoints,
                    str(sink_port), str(folder / f"workers-{number}.jsonl"),
                    "--count", str(PER_PROCESS), "--seed", str(seed),
                    "--stall", str(stall), "--late", str(stall),
                ],
                folder / f"workers-{number}.log",
            )
            for number in range(WORKER_PROCESSES)
        ]  # fmt: skip
        self.down: set[str] = set()

    # Life.

    async def start(self) -> None:
        await self.links.start()
        self.sink.start()
        self.nodes.spawn()
        await self.wait_ready()
        await self.open()
        for worker in self.workers:
            worker.start()
        await self._until_workers_are_here()

    async def open(self) -> None:
        """What must be done before the first worker comes."""

    async def _until_workers_are_here(self) -> None:
        wanted = WORKER_PROCESSES * PER_PROCESS
        limit = time.monotonic() + READY_S
        async with self.client(self.nodes.endpoints, 5.0) as client:
            while True:
                with contextlib.suppress(RaftschedError):
                    status = await client.call(cluster_pb2.GetClusterStatusRequest())
                    if status.workers >= wanted:
                        return
                if time.monotonic() > limit:
                    raise ProcessFailed(f"{wanted} workers did not come within {READY_S:.0f} s")
                await asyncio.sleep(0.1)

    async def stop(self) -> None:
        for worker in self.workers:
            worker.kill()
        await asyncio.to_thread(self.nodes.stop)
        self.sink.kill()
        await self.links.close()
        self.journal.close()

    async def wait_ready(self) -> None:
        await asyncio.to_thread(self.nodes.wait_ready, READY_S)

    def client(self, endpoints: str, timeout: float) -> AsyncClient:
        """Speaks to nodes as the harness, which may do all."""
        return AsyncClient(endpoints, timeout=timeout, token=self.token)

    def processes(self) -> dict[str, int]:
        """Those that a call or a run goes through, if they live, and how the kernel calls them."""
        ours = [*self.nodes, *self.workers, self.sink]
        found = {each.name: each.pid for each in ours if each.alive}
        return found | ({"links": self.links.pid} if self.links.pid else {})

    def history(self) -> list[Path]:
        return sorted(self.folder.glob("*.jsonl"))

    def check(self) -> None:
        """What must not die by itself: workers, the sink, and nodes that nobody touched."""
        for process in (self.sink, *self.workers):
            if process.popen is not None and not process.alive and process.name not in self.down:
                raise ProcessFailed(f"{process.name} ended by itself:\n{process.tail()}")

    # Who is who.

    async def leader(self) -> NodeProcess | None:
        """The node that most of those who can be asked name."""
        votes: dict[str, int] = {}
        for node in self.nodes:
            if not node.alive or node.name in self.down:
                continue
            try:
                async with self.client(node.client, 0.5) as client:
                    status = await client.call(cluster_pb2.GetClusterStatusRequest())
            except RaftschedError:
                continue
            votes[status.leader] = votes.get(status.leader, 0) + 1
        votes.pop("", None)
        return self.nodes[max(votes, key=lambda name: votes[name])] if votes else None

    async def sure_leader(self) -> NodeProcess:
        limit = time.monotonic() + LEADER_S
        while (leader := await self.leader()) is None:
            if time.monotonic() > limit:
                raise ProcessFailed(f"no leader was found within {LEADER_S:.0f} s")
            await asyncio.sleep(0.05)
        return leader

    # What faults are made of.

    def control(self, name: str, control: Control | None = None) -> None:
        """What a node's hand receives; written whole, so that it is never read half."""
        wanted = msgspec.structs.replace(control or Control(), broken_rule=self.broken_rule)
        new = self.controls[name].with_suffix(".new")
        new.write_bytes(msgspec.json.encode(wanted))
        new.rename(self.controls[name])

    async def kill(self, nodes: list[NodeProcess]) -> None:
        for node in nodes:
            node.signal(signal.SIGKILL)
        # Calls are made and checked here, so this process must not stand still until they are gone.
        await asyncio.gather(*(asyncio.to_thread(node.kill) for node in nodes))

    async def restart(self, nodes: list[NodeProcess]) -> None:
        for node in nodes:
            if not node.alive:
                node.start()
        limit = time.monotonic() + READY_S
        while not all([await asyncio.to_thread(node.is_ready) for node in nodes]):
            for node in nodes:
                if not node.alive:
                    raise ProcessFailed(f"{node.name} does not come back:\n{node.tail()}")
            # Others may be cut off or stopped meanwhile; then it waits for them.
            if time.monotonic() > limit and await self._most_are_ready():
                raise ProcessFailed(f"{nodes[0].name} is not ready again:\n{nodes[0].tail()}")
            await asyncio.sleep(0.02)

    async def _most_are_ready(self) -> bool:
        ready = [await asyncio.to_thread(node.is_ready) for node in self.nodes]
        return sum(ready) > len(ready) // 2

    def put(self, name: str, build: Build) -> None:
        """What is run at the next start of a node."""
        node = self.nodes[name]
        node.program = build.program(name)
        node.environment = {**LOCAL, **build.environment}
        self.builds[name] = build

    async def next_of(self, build: Build) -> NodeProcess:
        """A node of that build; the leader comes last."""
        leader = await self.sure_leader()
        found = [node for node in self.nodes if self.builds[node.name] is build]
        if not found:
            raise ProcessFailed(f"no node runs {build.name}; plan no step for one")
        return next((node for node in found if node is not leader), found[0])

    async def lose_disk(self, node: NodeProcess) -> None:
        await self.kill([node])
        await asyncio.to_thread(shutil.rmtree, self.folder / node.name)

    def some_worker(self) -> Process:
        self.worker_number += 1
        free = [worker for worker in self.workers if worker.name not in self.down]
        return free[self.worker_number % len(free)]

    async def until_voter(self, node: NodeProcess) -> None:
        """No protocol survives the loss of another disk before."""
        limit = time.monotonic() + READY_S
        async with self.client(self.nodes.endpoints, 5.0) as client:
            while True:
                with contextlib.suppress(RaftschedError):
                    status = await client.call(cluster_pb2.GetClusterStatusRequest())
                    if any(n.name == node.name and n.role in VOTERS for n in status.nodes):
                        return
                if time.monotonic() > limit:
                    raise ProcessFailed(f"{node.name} did not get its vote back")
                await asyncio.sleep(0.1)
