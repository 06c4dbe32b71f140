"""A cluster with a hand on everything: processes, links, disks, clocks, workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
from google.protobuf.message import Message

from ...client import AsyncClient, RaftschedError
from ...cluster.local.nodes import NodeProcess
from ...cluster.local.ports import free_ports
from ...cluster.local.process import Process, ProcessFailed
from ...proto.v1 import cluster_pb2
from .faults import ALL, FOLLOWER, LEADER, MAJORITY, Planned, split
from .history import Fault, Journal, Stop
from .links import CLIENTS, Pair
from .node import HITS, Control, Failpoint, controlled
from .wiring import Wiring

WORKER_PROCESSES, PER_PROCESS = 4, 5
READY_S = 90.0  # Longer than anything takes, even where others use the machine too.
LEADER_S = 60.0
# They take a disk, or count on everybody else.
WHOLE = frozenset({"wipe", "remove-and-add", "restart"})
VOTERS = (
    cluster_pb2.Node.ROLE_LEADER,
    cluster_pb2.Node.ROLE_FOLLOWER,
    cluster_pb2.Node.ROLE_CANDIDATE,
)
DRIFT_PPM = 2_000.0
SETTINGS = ("--heartbeat-ms", "1000", "--segment-mb", "8", "--cache-mb", "32")


class Arena:
    """See the head of this file."""

    def __init__(
        self,
        folder: Path,
        count: int,
        seed: int,
        links: Wiring,
        *,
        broken_rule: str = "",
        stall: float = 0.0,
        settings: Sequence[str] = (),
    ) -> None:
        self.folder, self.seed = folder, seed
        # With access tokens: that of an admin.
        self.token: str | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.links = links
        self.dice_number = 0
        self.nodes = links.nodes(folder, count, [*SETTINGS, *settings], controlled(folder))
        self.controls = {name: folder / f"{name}.control" for name in self.nodes.names}
        self.broken_rule = broken_rule
        for name in self.nodes.names:
            self.control(name)
        self.journal = Journal(folder / "harness.jsonl")
        (sink_port,) = free_ports(1)
        self.sink = Process(
            "sink", ["raftsched.chaos.real.sink", str(sink_port), str(folder / "sink.jsonl")],
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
        self.locks = {name: asyncio.Lock() for name in self.nodes.names}

    # Life.

    async def start(self) -> None:
        await self.links.start()
        self.sink.start()
        for node in self.nodes:
            node.start()
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
            worker.signal(signal.SIGCONT)
            worker.kill()
        await asyncio.to_thread(self.nodes.stop)
        self.sink.kill()
        await self.links.close()
        self.journal.close()

    async def wait_ready(self, count: int | None = None, seconds: float = READY_S) -> None:
        wanted = len(self.nodes) if count is None else count
        limit = time.monotonic() + seconds
        while sum([await asyncio.to_thread(n.is_ready) for n in self.nodes]) < wanted:
            if time.monotonic() > limit:
                words = "\n".join(f"{n.name}: {n.tail()}" for n in self.nodes)
                raise ProcessFailed(f"the nodes are not ready after {seconds:.0f} s:\n{words}")
            await asyncio.sleep(0.02)

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

    async def find(self, target: str) -> list[NodeProcess]:
        alive = [node for node in self.nodes if node.alive]
        if target == ALL:
            return alive
        if target == MAJORITY:
            return alive[: len(self.nodes) // 2 + 1]
        leader = None
        if target in (LEADER, FOLLOWER):
            leader = await self.sure_leader()
        if target == LEADER and leader is not None:
            return [leader]
        self.dice_number += 1
        line = [node for node in alive if node is not leader]
        free = [node for node in line if not self.locks[node.name].locked()] or line
        return [free[self.dice_number % len(free)]]

    async def sure_leader(self) -> NodeProcess:
        limit = time.monotonic() + LEADER_S
        while (leader := await self.leader()) is None:
            if time.monotonic() > limit:
                raise ProcessFailed(f"no leader was found within {LEADER_S:.0f} s")
            await asyncio.sleep(0.05)
        return leader

    # Faults.

    def control(self, name: str, control: Control | None = None) -> None:
        """What a node's hand is told; written whole, so that it is never read half."""
        wanted = msgspec.structs.replace(control or Control(), broken_rule=self.broken_rule)
        new = self.controls[name].with_suffix(".new")
        new.write_bytes(msgspec.json.encode(wanted))
        new.rename(self.controls[name])

    async def do(self, fault: Planned) -> None:
        """Begin a fault, hold it, end it, and write down what it was and the sign that it was."""
        async with self.hands_on(fault) as targets:
            names = ",".join(node.name for node in targets)
            began = time.monotonic()
            deed: Callable[[Planned, list[NodeProcess]], Awaitable[str]]
            deed = getattr(self, "do_" + fault.what.replace("-", "_"))
            sign = await deed(fault, targets)
            what = f"{fault.what} {fault.how}".strip()
            self.journal.add(Fault(what, names, began, time.monotonic(), sign))

    @asynccontextmanager
    async def hands_on(self, fault: Planned) -> AsyncIterator[list[NodeProcess]]:
        """Nobody has two hands on one node, and those who take a disk have the cluster alone."""
        while True:
            targets = await self.find(fault.target)
            names = {node.name for node in targets}
            wanted = sorted(self.locks if fault.what in WHOLE else names)
            if fault.what in ("kill-workers", "pause-workers"):
                wanted = []
            waits = any(self.locks[name].locked() for name in wanted)
            async with AsyncExitStack() as stack:
                for name in wanted:
                    await stack.enter_async_context(self.locks[name])
                if waits and fault.target in (LEADER, FOLLOWER):
                    continue  # Meanwhile another may lead.
                yield targets
                return

    async def do_kill(self, fault: Planned, targets: list[NodeProcess]) -> str:
        if fault.target == LEADER:
            self.journal.add(Fault("leader-kill", targets[0].name, time.monotonic(), 0.0, "sent"))
        await self.kill(targets)
        sign = " ".join(f"{node.name} ended with {node.code}" for node in targets)
        await asyncio.sleep(fault.seconds)
        await self.restart(targets)
        return sign

    async def kill(self, nodes: list[NodeProcess]) -> None:
        for node in nodes:
            node.signal(signal.SIGKILL)
        # Calls are made and judged in this process, so it must not stand still until they are gone.
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

    async def do_pause(self, fault: Planned, targets: list[NodeProcess]) -> str:
        for node in targets:
            node.signal(signal.SIGSTOP)
        await asyncio.sleep(fault.seconds)
        sign = f"process states {' '.join(node.state for node in targets)}"
        for node in targets:
            node.signal(signal.SIGCONT)
        return sign

    # Links.

    async def do_partition(self, fault: Planned, targets: list[NodeProcess]) -> str:
        names = self.nodes.names
        return await self._links(fault, "cut", split(fault.how, targets[0].name, names, CLIENTS))

    async def do_delay(self, fault: Planned, targets: list[NodeProcess]) -> str:
        return await self._links(fault, "slow", self._all_of(targets[0].name), delay_s=0.05)

    async def do_throttle(self, fault: Planned, targets: list[NodeProcess]) -> str:
        pairs = self._all_of(targets[0].name)
        return await self._links(fault, "slow", pairs, delay_s=0.0, rate=200_000)

    async def do_hold(self, fault: Planned, targets: list[NodeProcess]) -> str:
        return await self._links(fault, "hold", self._all_of(targets[0].name))

    async def _links(self, fault: Planned, what: str, pairs: list[Pair], **how: float) -> str:
        before = await self.links.tell(what, pairs=pairs, **how)
        await asyncio.sleep(fault.seconds)
        touched = await self.links.tell("heal", pairs=pairs) - before
        return f"{touched} bytes" if touched else ""

    def _all_of(self, name: str) -> list[Pair]:
        others = [other for other in self.nodes.names if other != name]
        return [(name, other) for other in others] + [(other, name) for other in others]

    # Disk and clock.

    async def do_clock(self, fault: Planned, targets: list[NodeProcess]) -> str:
        if fault.how == "drift":
            control = Control(drift_ppm=DRIFT_PPM, drift_from=time.time())
        else:
            control = Control(clock_ms=float(fault.how))
        return await self._hold_control(fault, targets[0].name, control)

    async def do_full(self, fault: Planned, targets: list[NodeProcess]) -> str:
        full = Failpoint("error", error="ENOSPC")
        control = Control(failpoints={"before-append": full})
        return await self._hold_control(fault, targets[0].name, control)

    async def do_slow(self, fault: Planned, targets: list[NodeProcess]) -> str:
        control = Control(failpoints={"before-sync": Failpoint("sleep", seconds=0.1)})
        return await self._hold_control(fault, targets[0].name, control)

    async def do_eio(self, fault: Planned, targets: list[NodeProcess]) -> str:
        """A failed sync is final: the node ends itself, and comes back."""
        control = Control(failpoints={"before-sync": Failpoint("error", error="EIO")})
        sign = await self._hold_control(fault, targets[0].name, control)
        await self.restart(targets)
        return sign

    async def do_failpoint(self, fault: Planned, targets: list[NodeProcess]) -> str:
        """It is killed at a place in the code."""
        return await self._killed_at(fault, targets[0], chance=0.2)

    async def do_snapshot(self, fault: Planned, targets: list[NodeProcess]) -> str:
        """It is killed somewhere on the way to a snapshot, or while the journal is cut after it."""

        async def take() -> None:
            with contextlib.suppress(RaftschedError):
                async with self.client(targets[0].client, fault.seconds) as client:
                    await client.call(cluster_pb2.TakeSnapshotRequest())

        return await self._killed_at(fault, targets[0], chance=1.0, meanwhile=take)

    async def do_start(self, fault: Planned, targets: list[NodeProcess]) -> str:
        """It is killed, and killed again at a place on the way up."""

        async def again() -> None:
            await self.kill(targets)
            targets[0].start()
            # A start takes what the machine gives it.
            limit = time.monotonic() + READY_S
            while targets[0].alive and time.monotonic() < limit:
                if await asyncio.to_thread(targets[0].is_ready):
                    return
                await asyncio.sleep(0.02)

        return await self._killed_at(fault, targets[0], chance=1.0, meanwhile=again)

    async def _killed_at(
        self,
        fault: Planned,
        node: NodeProcess,
        chance: float,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
    ) -> str:
        control = Control(failpoints={fault.how: Failpoint("kill", chance=chance)})
        sign = await self._hold_control(fault, node.name, control, meanwhile)
        await self.restart([node])
        return sign

    async def _hold_control(
        self,
        fault: Planned,
        name: str,
        control: Control,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
    ) -> str:
        hits = self.controls[name].with_suffix(HITS)
        before = hits.stat().st_size if hits.exists() else 0
        self.control(name, control)
        began = time.monotonic()
        if meanwhile is not None:
            await meanwhile()
        await asyncio.sleep(max(0.0, began + fault.seconds - time.monotonic()))
        self.control(name)
        new = hits.read_text()[before:].split() if hits.exists() else []
        return " ".join(f"{place} {count}x" for place, count in Counter(new).items())

    async def do_files(self, fault: Planned, targets: list[NodeProcess]) -> str:
        """It may open no more files and connections than it has."""
        node = targets[0]
        _, hard = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
        numbers = {int(number) for number in os.listdir(f"/proc/{node.pid}/fd")}
        # The limit is on numbers, so below it no number may be free.
        first_free = next(number for number in range(hard) if number not in numbers)
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (first_free, hard))
        await asyncio.sleep(fault.seconds)
        # One that answers has found a place for one more connection.
        sign = "" if await asyncio.to_thread(node.is_ready) else f"no room beyond {first_free}"
        if node.alive:
            resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (hard, hard))
        await self.restart(targets)
        return sign

    async def do_wipe(self, fault: Planned, targets: list[NodeProcess]) -> str:
        """Its disk is lost; it comes back with an empty one."""
        await self._lose_disk(targets[0])
        await asyncio.sleep(fault.seconds)
        await self.restart(targets)
        await self._until_voter(targets[0])
        return "came back" if (self.folder / targets[0].name).exists() else ""

    async def _lose_disk(self, node: NodeProcess) -> None:
        await self.kill([node])
        await asyncio.to_thread(shutil.rmtree, self.folder / node.name)

    async def do_restart(self, fault: Planned, targets: list[NodeProcess]) -> str:
        """One after the other, in order, as an upgrade does."""
        for node in targets:
            began = time.monotonic()
            code = await asyncio.to_thread(node.stop)
            words = node.tail() if code else ""
            self.journal.add(Stop(node.name, began, time.monotonic(), code, words))
            await self.restart([node])
            await asyncio.sleep(fault.seconds)
        return f"{len(targets)} stopped as asked"

    # Workers.

    async def do_kill_workers(self, fault: Planned, targets: list[NodeProcess]) -> str:
        worker = self._some_worker()
        self.down.add(worker.name)
        await asyncio.to_thread(worker.kill)
        await asyncio.sleep(fault.seconds)
        sign = f"{worker.name} ended with {worker.code}"
        worker.start()
        self.down.discard(worker.name)
        return sign

    async def do_pause_workers(self, fault: Planned, targets: list[NodeProcess]) -> str:
        worker = self._some_worker()
        worker.signal(signal.SIGSTOP)
        await asyncio.sleep(fault.seconds)
        sign = f"{worker.name} in state {worker.state}"
        worker.signal(signal.SIGCONT)
        return sign

    def _some_worker(self) -> Process:
        self.dice_number += 1
        free = [worker for worker in self.workers if worker.name not in self.down]
        return free[self.dice_number % len(free)]

    # Members.

    async def do_remove_and_add(self, fault: Planned, targets: list[NodeProcess]) -> str:
        """A member goes, and comes back with an empty disk; perhaps the leader dies meanwhile."""
        node = targets[0]
        add = cluster_pb2.AddNodeRequest(
            name=node.name, peer_address=node.peer, client_address=node.client
        )
        async with self.client(self.nodes.endpoints, 5.0) as client:
            await self._insist(
                client, cluster_pb2.RemoveNodeRequest(node=node.name), "NODE_NOT_FOUND"
            )
            await self._lose_disk(node)
            await asyncio.sleep(fault.seconds)
            node.start()
            adding = asyncio.create_task(self._insist(client, add, "NAME_EXISTS"))
            if fault.how == "leader-dies":
                await self._leader_dies(node)
            await adding
        await self.restart([node])
        await self._until_voter(node)
        return "removed, wiped, added"

    async def _until_voter(self, node: NodeProcess) -> None:
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

    async def _leader_dies(self, but: NodeProcess) -> None:
        leader = await self.leader()
        if leader is not None and leader is not but:
            self.journal.add(Fault("leader-kill", leader.name, time.monotonic(), 0.0, "sent"))
            await self.kill([leader])
            leader.start()

    async def _insist(self, client: AsyncClient, request: Message, done: str) -> None:
        """Until it is done. One who is added has to introduce itself first; leaders change."""
        limit = time.monotonic() + READY_S
        while True:
            try:
                await client.call(request)
                return
            except RaftschedError as error:
                if error.reason == done:
                    return
                if time.monotonic() > limit:
                    raise ProcessFailed(f"the members could not be changed: {error}") from error
                await asyncio.sleep(0.1)
