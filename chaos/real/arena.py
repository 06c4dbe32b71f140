"""A cluster with a hand on everything: processes, links, disks, clocks, workers."""

from __future__ import annotations

import asyncio
import resource
import shutil
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from ...client import AsyncClient, RaftschedError
from ...proto.v1 import cluster_pb2
from ..stage import NodeProcess, Process, Stage, StageFailed, free_ports, is_ready
from . import faults
from .faults import ALL, FOLLOWER, LEADER, MAJORITY, Planned
from .history import Fault, Journal
from .links import CLIENTS, Links
from .node import Control, Failpoint

WORKER_PROCESSES = 4
READY_S = 30.0
LEADER_S = 15.0
FILES_FEW = 40


class Arena:
    """See the head of this file."""

    def __init__(
        self, folder: Path, count: int, seed: int, *, broken_rule: str = "", stall: float = 0.0
    ) -> None:
        self.folder, self.seed = folder, seed
        folder.mkdir(parents=True, exist_ok=True)
        self.links = Links()
        self.dice_number = 0
        fronts = iter(free_ports(2 * count))
        self._front_ports: list[tuple[str, str, int, bool]] = []

        def front(name: str, peer: str, client: str) -> tuple[str, str]:
            peer_port, client_port = next(fronts), next(fronts)
            self._front_ports += [
                (name, peer, peer_port, True), (name, client, client_port, False),
            ]  # fmt: skip
            return f"127.0.0.1:{peer_port}", f"127.0.0.1:{client_port}"

        settings = ["--heartbeat-ms", "1000", "--segment-mb", "8", "--cache-mb", "32"]
        self.stage = Stage(folder, count, settings=settings, front=front)
        self.controls = {name: folder / f"{name}.control" for name in self.stage.nodes}
        self.broken_rule = broken_rule
        for name, node in self.stage.nodes.items():
            self.control(name)
            # The same node with a hand on it; the rest of the command line stays.
            node.arguments = [
                "raftsched.chaos.real.node",
                str(self.controls[name]),
                *node.arguments[1:],
            ]
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
                    "raftsched.chaos.real.worker", f"w{number}", self.stage.endpoints,
                    str(sink_port), str(folder / f"workers-{number}.jsonl"),
                    "--seed", str(seed), "--stall", str(stall), "--late", str(stall),
                ],
                folder / f"workers-{number}.log",
            )
            for number in range(WORKER_PROCESSES)
        ]  # fmt: skip
        self.down: set[str] = set()

    # Life.

    async def start(self) -> None:
        for name, address, port, peers in self._front_ports:
            await self.links.put_before(name, address, port, peers=peers)
        self.sink.start()
        for node in self.stage.nodes.values():
            node.start()
        await self.wait_ready()
        for worker in self.workers:
            worker.start()

    async def stop(self) -> None:
        self.links.heal()
        for worker in self.workers:
            worker.signal(signal.SIGCONT)
            worker.kill()
        await asyncio.to_thread(self.stage.stop)
        self.sink.kill()
        await self.links.close()
        self.journal.close()

    async def wait_ready(self, count: int | None = None, seconds: float = READY_S) -> None:
        wanted = len(self.stage.nodes) if count is None else count
        limit = time.monotonic() + seconds
        while sum([await asyncio.to_thread(is_ready, n) for n in self.nodes]) < wanted:
            if time.monotonic() > limit:
                words = "\n".join(f"{n.name}: {n.last_words()}" for n in self.nodes)
                raise StageFailed(f"the nodes are not ready after {seconds:.0f} s:\n{words}")
            await asyncio.sleep(0.02)

    @property
    def nodes(self) -> list[NodeProcess]:
        return list(self.stage.nodes.values())

    def history(self) -> list[Path]:
        return sorted(self.folder.glob("*.jsonl"))

    def check(self) -> None:
        """What must not die by itself: workers, the sink, and nodes that nobody touched."""
        for process in (self.sink, *self.workers):
            if process.popen is not None and not process.alive and process.name not in self.down:
                raise StageFailed(f"{process.name} ended by itself:\n{process.last_words()}")

    # Who is who.

    async def leader(self) -> NodeProcess | None:
        """The node that most of those who can be asked name."""
        votes: dict[str, int] = {}
        for node in self.nodes:
            if not node.alive or node.name in self.down:
                continue
            try:
                async with AsyncClient(node.client, timeout=0.5) as client:
                    status = await client.call(cluster_pb2.GetClusterStatusRequest())
            except RaftschedError:
                continue
            votes[status.leader] = votes.get(status.leader, 0) + 1
        votes.pop("", None)
        return self.stage.nodes[max(votes, key=lambda name: votes[name])] if votes else None

    async def find(self, target: str) -> list[NodeProcess]:
        leader = await self.leader()
        limit = time.monotonic() + LEADER_S
        while target == LEADER and leader is None and time.monotonic() < limit:
            await asyncio.sleep(0.05)
            leader = await self.leader()
        alive = [node for node in self.nodes if node.alive]
        followers = [node for node in alive if node is not leader]
        self.dice_number += 1
        if target == ALL:
            return alive
        if target == MAJORITY:
            return alive[: len(self.nodes) // 2 + 1]
        if target == LEADER:
            if leader is None:
                raise StageFailed(f"no leader was found within {LEADER_S:.0f} s")
            return [leader]
        line = followers if target == FOLLOWER and followers else alive
        return [line[self.dice_number % len(line)]] if line else []

    # Faults.

    def control(self, name: str, control: Control | None = None) -> None:
        """What a node's hand is told; written whole, so that it is never read half."""
        wanted = msgspec.structs.replace(control or Control(), broken_rule=self.broken_rule)
        new = self.controls[name].with_suffix(".new")
        new.write_bytes(msgspec.json.encode(wanted))
        new.rename(self.controls[name])

    async def do(self, fault: Planned) -> None:
        """Begin a fault, hold it, end it, and write it down."""
        began = time.monotonic()
        targets = await self.find(fault.target)
        names = ",".join(node.name for node in targets)
        deed: Callable[[Planned, list[NodeProcess]], Awaitable[None]]
        deed = getattr(self, "do_" + fault.what.replace("-", "_"))
        await deed(fault, targets)
        what = f"{fault.what} {fault.how}".strip()
        self.journal.add(Fault(what, names, began, time.monotonic()))

    async def do_kill(self, fault: Planned, targets: list[NodeProcess]) -> None:
        if fault.target == LEADER and targets:
            self.journal.add(Fault("leader-kill", targets[0].name, time.monotonic(), 0.0))
        for node in targets:
            node.signal(signal.SIGKILL)
        # The links run in this process, so it must not stand still until they are gone.
        await asyncio.gather(*(asyncio.to_thread(node.kill) for node in targets))
        await asyncio.sleep(fault.seconds)
        await self.restart(targets)

    async def restart(self, nodes: list[NodeProcess]) -> None:
        for node in nodes:
            if not node.alive:
                node.start()
        await self.wait_ready(len(self.nodes) - len(self.down))

    async def do_pause(self, fault: Planned, targets: list[NodeProcess]) -> None:
        for node in targets:
            node.signal(signal.SIGSTOP)
        await asyncio.sleep(fault.seconds)
        for node in targets:
            node.signal(signal.SIGCONT)

    async def do_partition(self, fault: Planned, targets: list[NodeProcess]) -> None:
        names = list(self.stage.nodes)
        pairs = faults.split(fault.how, targets[0].name, names, CLIENTS)
        self.links.cut(pairs)
        await asyncio.sleep(fault.seconds)
        self.links.heal()

    async def do_delay(self, fault: Planned, targets: list[NodeProcess]) -> None:
        await self._slow(fault, targets, delay_s=0.05, rate=0.0)

    async def do_throttle(self, fault: Planned, targets: list[NodeProcess]) -> None:
        await self._slow(fault, targets, delay_s=0.0, rate=200_000)

    async def _slow(
        self, fault: Planned, targets: list[NodeProcess], delay_s: float, rate: float
    ) -> None:
        self.links.slow(self._all_of(targets[0].name), delay_s, rate)
        await asyncio.sleep(fault.seconds)
        self.links.heal()

    async def do_hold(self, fault: Planned, targets: list[NodeProcess]) -> None:
        self.links.hold(self._all_of(targets[0].name))
        await asyncio.sleep(min(fault.seconds, 1.5))
        self.links.heal()

    def _all_of(self, name: str) -> list[tuple[str, str]]:
        others = [other for other in self.stage.nodes if other != name]
        return [(name, other) for other in others] + [(other, name) for other in others]

    async def do_clock(self, fault: Planned, targets: list[NodeProcess]) -> None:
        if fault.how == "drift":
            control = Control(drift_ppm=2_000.0, drift_from=time.time())
        else:
            control = Control(clock_ms=float(fault.how))
        await self._hold_control(fault, targets[0].name, control)

    async def do_full(self, fault: Planned, targets: list[NodeProcess]) -> None:
        full = Failpoint("error", error="ENOSPC")
        control = Control(failpoints={"before-append": full})
        await self._hold_control(fault, targets[0].name, control)

    async def do_slow(self, fault: Planned, targets: list[NodeProcess]) -> None:
        control = Control(failpoints={"before-sync": Failpoint("sleep", seconds=0.1)})
        await self._hold_control(fault, targets[0].name, control)

    async def do_eio(self, fault: Planned, targets: list[NodeProcess]) -> None:
        """A failed sync is final: the node ends itself, and comes back."""
        control = Control(failpoints={"before-sync": Failpoint("error", error="EIO")})
        await self._hold_control(fault, targets[0].name, control)
        await self.restart(targets)

    async def do_failpoint(self, fault: Planned, targets: list[NodeProcess]) -> None:
        """It is killed at a place in the code."""
        control = Control(failpoints={fault.how: Failpoint("kill", chance=0.2)})
        await self._hold_control(fault, targets[0].name, control)
        await self.restart(targets)

    async def _hold_control(self, fault: Planned, name: str, control: Control) -> None:
        self.control(name, control)
        await asyncio.sleep(fault.seconds)
        self.control(name)

    async def do_files(self, fault: Planned, targets: list[NodeProcess]) -> None:
        """It may open hardly any files or connections."""
        node = targets[0]
        _, hard = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (FILES_FEW, hard))
        await asyncio.sleep(fault.seconds)
        if node.alive:
            resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (hard, hard))
        await self.restart(targets)

    async def do_wipe(self, fault: Planned, targets: list[NodeProcess]) -> None:
        """Its disk is lost; it comes back with an empty one."""
        node = targets[0]
        node.kill()
        shutil.rmtree(self.folder / node.name)
        await asyncio.sleep(fault.seconds)
        await self.restart(targets)

    async def do_restart(self, fault: Planned, targets: list[NodeProcess]) -> None:
        """One after the other, in order, as an upgrade does."""
        for node in self.nodes:
            await asyncio.to_thread(node.stop)
            await self.restart([node])
            await asyncio.sleep(fault.seconds)

    async def do_kill_workers(self, fault: Planned, targets: list[NodeProcess]) -> None:
        worker = self._some_worker()
        self.down.add(worker.name)
        worker.kill()
        await asyncio.sleep(fault.seconds)
        worker.start()
        self.down.discard(worker.name)

    async def do_pause_workers(self, fault: Planned, targets: list[NodeProcess]) -> None:
        worker = self._some_worker()
        worker.signal(signal.SIGSTOP)
        await asyncio.sleep(fault.seconds)
        worker.signal(signal.SIGCONT)

    def _some_worker(self) -> Process:
        self.dice_number += 1
        return self.workers[self.dice_number % len(self.workers)]

    async def do_remove_and_add(self, fault: Planned, targets: list[NodeProcess]) -> None:
        """A member goes, and comes back with an empty disk."""
        node = targets[0]
        async with AsyncClient(self.stage.endpoints, timeout=READY_S) as client:
            await client.call(cluster_pb2.RemoveNodeRequest(node=node.name))
            await asyncio.to_thread(node.kill)
            shutil.rmtree(self.folder / node.name)
            await asyncio.sleep(fault.seconds)
            node.start()
            request = cluster_pb2.AddNodeRequest(
                name=node.name,
                peer_address=self._front(node.name, peers=True),
                client_address=node.client,
            )
            await self._until_added(client, request)
        await self.wait_ready()

    async def _until_added(self, client: AsyncClient, request: cluster_pb2.AddNodeRequest) -> None:
        """It has to introduce itself before it can be added."""
        limit = time.monotonic() + READY_S
        while True:
            try:
                await client.call(request)
                return
            except RaftschedError as error:
                if error.reason == "NAME_EXISTS":
                    return
                if time.monotonic() > limit:
                    raise StageFailed(f"{request.name} could not be added: {error}") from error
                await asyncio.sleep(0.1)

    def _front(self, name: str, *, peers: bool) -> str:
        return next(
            f"127.0.0.1:{port}" for n, _, port, p in self._front_ports if (n, p) == (name, peers)
        )
