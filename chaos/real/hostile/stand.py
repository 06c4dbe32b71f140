"""The cluster that is attacked: nodes with tokens, load, workers, a bystander, and who watches."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from ....client import AsyncClient, RaftschedError
from ....cluster.local.nodes import NodeProcess, NodeProcesses, ProgramOf, free_addresses
from ....cluster.local.ports import LOOPBACK, free_ports
from ....cluster.local.process import Process, ProcessFailed
from ....cluster.node.bootstrap_token import BOOTSTRAP
from ....proto.v1 import access_pb2, cluster_pb2, job_pb2, namespace_pb2, options_pb2
from ..chaos_cluster import ChaosCluster
from ..history import Lease, read
from ..injector import Injector
from ..worker import TOKEN
from .attack import LIMIT, Attack
from .brief import AttackBrief, AttackFindings
from .checks import HighestTerm, HostileObservations, Memory, Played, Start, elections
from .field import LOAD_CALL_S
from .gateway_watch import GatewayWatch

VICTIM, PULSES = "victim", 10
LOOK_S, RSS_S = 0.2, 0.5
# So much of the machine others may use without being blamed for an election.
FOREIGN_CORES = 0.7
CALL_S = 5.0
READY_S = 60.0
Say = Callable[[str], None]
Role = options_pb2.Role


class Plain:
    """No links between: the nodes as they are, the first of them with a gateway beside it."""

    pid = 0

    def nodes(
        self, folder: Path, count: int, settings: Sequence[str], program: ProgramOf
    ) -> NodeProcesses:
        addresses = free_addresses(count)
        first, (port,) = next(iter(addresses)), free_ports(1)
        addresses[first] = replace(addresses[first], gateway=f"{LOOPBACK}:{port}")
        return NodeProcesses(folder, addresses, settings=settings, program=program)

    async def start(self) -> None:
        """There is nothing to start."""

    async def act(self, what: str, **how: Any) -> int:  # noqa: ANN401
        return 0

    async def close(self) -> None:
        """There is nothing to close."""


class Guarded(ChaosCluster):
    """A cluster whose nodes want tokens."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, 3, seed, Plain(), settings=["--tokens"])
        self.tokens: dict[str, str] = {}
        self.first_token = AttackFindings()

    async def open(self) -> None:
        """Strangers ask for the first token before anybody else does."""
        won = await strangers(self.nodes, self.first_token)
        self.token = self.tokens["root"] = won or await first_token(self.nodes)
        async with self.client(self.nodes.endpoints, CALL_S) as client:
            for namespace in (VICTIM,):
                asked = namespace_pb2.CreateNamespaceRequest()
                asked.namespace.name = namespace
                await client.call(asked)
        await self.make_token("workers", Role.ROLE_WORKER, "default")
        await self.make_token("load", Role.ROLE_EDITOR, "default")
        await self.make_token("bystander", Role.ROLE_WORKER, VICTIM)
        for worker in self.workers:
            worker.environment[TOKEN] = self.tokens["workers"]

    async def make_token(self, name: str, role: Role.ValueType, namespace: str) -> str:
        request = access_pb2.CreateAccessTokenRequest(request_id=f"make-{name}")
        request.access_token.name, request.access_token.role = name, role
        request.access_token.namespace = namespace
        async with self.client(self.nodes.endpoints, READY_S) as client:
            self.tokens[name] = str((await client.call(request)).secret)
        return self.tokens[name]


async def strangers(nodes: NodeProcesses, found: AttackFindings) -> str:
    """Ten who are nobody ask for the first token at once; the secret of one who got it."""

    async def ask(number: int, address: str) -> str:
        request = access_pb2.CreateAccessTokenRequest()
        request.access_token.name = f"stranger-{number}"
        request.access_token.role = Role.ROLE_ADMIN
        found.calls += 1
        try:
            async with AsyncClient(address, timeout=CALL_S) as client:
                return str((await client.call(request)).secret)
        except RaftschedError as error:
            found.refused += 1
            found.codes[error.reason] = found.codes.get(error.reason, 0) + 1
            return ""

    addresses = [node.client for node in nodes]
    secrets = await asyncio.gather(*(ask(n, addresses[n % len(nodes)]) for n in range(10)))
    won = [secret for secret in secrets if secret]
    if won:
        found.wrong.append(f"{len(won)} of ten strangers became admins of the cluster")
    return next(iter(won), "")


async def first_token(nodes: NodeProcesses) -> str:
    """As whoever set up the cluster makes it, with the secret in a node's folder."""
    node, *_ = nodes
    secret = (nodes.folder / node.name / BOOTSTRAP).read_text().strip()
    request = access_pb2.CreateAccessTokenRequest(request_id="first-token")
    request.access_token.name, request.access_token.role = "root", Role.ROLE_ADMIN
    async with AsyncClient(nodes.endpoints, timeout=READY_S, token=secret) as client:
        return str((await client.call(request)).secret)


class Stand:
    """See the head of this file."""

    def __init__(self, folder: Path, seed: int, say: Say) -> None:
        self.folder, self.seed, self.say = folder, seed, say
        self.cluster = Guarded(folder, seed)
        self.injector = Injector(self.cluster)
        self.seen = HostileObservations()
        self.gateway = GatewayWatch(self)
        # Whoever has a hand on the nodes has them alone.
        self.hands = asyncio.Lock()
        self.numbers = 0
        self.bystander = self._bystander()
        self.found = AttackFindings()
        # Processes of attackers, and nodes of clusters beside this one.
        self.attackers: list[Process] = []
        # Attacks last for this share of their time.
        self.pace = 1.0
        # And what they want done in a time may take so many times as long.
        self.slack = 1.0

    def _bystander(self) -> Process:
        (port,) = free_ports(1)
        self.sink = Process(
            "bystander-sink",
            [
                "raftsched.chaos.real.effect_sink",
                str(port),
                str(self.folder / "bystander-sink.seen"),
            ],
            self.folder / "bystander-sink.log",
        )
        return Process(
            "bystander",
            [
                "raftsched.chaos.real.worker", "by", self.cluster.nodes.endpoints, str(port),
                str(self.folder / "bystander.seen"), "--count", "1", "--fail", "0", "--twice", "0",
                "--namespace", VICTIM,
            ],
            self.folder / "bystander.log",
        )  # fmt: skip

    # Beside the attacks.

    async def start(self) -> None:
        await self.cluster.start()
        self.bystander.environment[TOKEN] = self.cluster.tokens["bystander"]
        self.sink.start()
        self.bystander.start()
        async with self.cluster.client(self.cluster.nodes.endpoints, READY_S) as client:
            for number in range(PULSES):
                await client.call(job_pb2.CreateJobRequest(job=pulse(number)))

    async def stop(self) -> None:
        self.bystander.kill()
        self.sink.kill()
        await self.cluster.stop()

    async def watch(self) -> None:
        """Look at terms and memory for as long as the run lasts."""
        async with asyncio.TaskGroup() as tasks:
            for node in self.cluster.nodes:
                tasks.create_task(self._watch_terms(node))
            tasks.create_task(self._watch_memory())
            tasks.create_task(self.tend())
            tasks.create_task(self._watch_others())
            tasks.create_task(self.gateway.watch())

    async def _watch_terms(self, node: NodeProcess) -> None:
        async with self.cluster.client(node.client, 1.0) as client:
            while True:
                await asyncio.sleep(LOOK_S)
                if not node.alive:
                    continue
                began = time.monotonic()
                with suppress(RaftschedError):
                    status = await client.call(
                        cluster_pb2.GetClusterStatusRequest(), endpoint=node.client
                    )
                    self._saw_term(int(status.term))
                self.seen.asked.append((began, time.monotonic()))

    def _saw_term(self, term: int) -> None:
        before = self.seen.terms[-1].term if self.seen.terms else 0
        self.seen.terms.append(HighestTerm(time.monotonic(), max(term, before)))

    async def _watch_others(self) -> None:
        """Write down when processes that are none of ours use the machine."""
        before, at = 0.0, 0.0
        used: dict[int, float] = {}
        while True:
            now, ours = used_s(), self._ours_s()
            # One that began meanwhile has used all of its time meanwhile.
            mine = sum(seconds - used.get(pid, 0.0) for pid, seconds in ours.items())
            ended, used = time.monotonic(), ours
            if at and now - before - mine > FOREIGN_CORES * (ended - at):
                self.seen.foreign.append((at, ended))
            before, at = now, ended
            await asyncio.sleep(RSS_S)

    def _ours_s(self) -> dict[int, float]:
        """Processor time of the harness and of what it started, by process."""
        cluster = self.cluster
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        # What has ended is counted whole once it has, which errs to our disadvantage.
        found = {os.getpid(): time.process_time(), 0: ended.ru_utime + ended.ru_stime}
        for each in (
            *cluster.nodes, *cluster.workers, cluster.sink,
            self.sink, self.bystander, *self.attackers,
        ):  # fmt: skip
            with suppress(OSError, IndexError):
                if each.alive:
                    found[each.pid] = each.cpu_s()
        return found

    async def tend(self) -> None:
        """Start again what ended by itself, as whoever looks after a cluster does."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self.hands.locked():
                continue
            async with self.hands:
                for node in self.cluster.nodes:
                    if not node.alive:
                        death = f"{node.name} ended with {node.code}: {why(node)}"
                        self.say(f"         {death}")
                        self.seen.deaths.append((time.monotonic(), death))
                        node.start()

    async def _watch_memory(self) -> None:
        while True:
            for node in self.cluster.nodes:
                if node.alive:
                    with suppress(OSError):
                        rss = node.rss_mb()
                        if rss:
                            reading = Memory(time.monotonic(), node.name, node.pid, rss)
                            self.seen.memory.append(reading)
            await asyncio.sleep(RSS_S)

    @asynccontextmanager
    async def ours(self) -> AsyncIterator[None]:
        """What happens to the leader meanwhile is the harness's doing."""
        span = [time.monotonic(), float("inf")]
        self.seen.ours.append((span[0], span[1]))
        place = len(self.seen.ours) - 1
        try:
            yield
        finally:
            self.seen.ours[place] = (span[0], time.monotonic())

    # Attacks.

    async def play(self, attack: Attack) -> None:
        """One attack, from its beginning to its end."""
        if attack.deed is not None:
            async with self.hands:
                began = time.monotonic()
                self.found = found = AttackFindings()
                try:
                    async with asyncio.timeout(LIMIT * attack.seconds):
                        await attack.deed(self)
                except (TimeoutError, ProcessFailed, RaftschedError) as error:
                    found.wrong.append(f"it could not be played to its end: {error!r}"[:600])
        else:
            brief = await self.tenant(attack)
            began = time.monotonic()
            found = await self.send(attack, brief)
        ended = time.monotonic()
        self.seen.played.append(Played(attack.name, attack.number, began, ended, found))
        words = f": {found.wrong[0]}" if found.wrong else ""
        if moved := elections(self.seen, began, ended):
            words = f", {moved} elections{words}"
        self.say(f"         {attack.name} {ended - began:.1f} s, {found.calls} calls, "
                 f"{found.refused} refused{words}")  # fmt: skip

    async def tenant(self, attack: Attack) -> AttackBrief:
        """A namespace of its own, with a token for each role."""
        self.numbers += 1
        space = f"m{self.numbers}-{attack.name}"
        async with self.cluster.client(self.cluster.nodes.endpoints, READY_S) as client:
            asked = namespace_pb2.CreateNamespaceRequest()
            asked.namespace.name = space
            await client.call(asked)
        roles = {"editor": Role.ROLE_EDITOR, "worker": Role.ROLE_WORKER, "viewer": Role.ROLE_VIEWER}
        tokens = {"admin": self.cluster.tokens["root"]}
        for word, role in roles.items():
            tokens[word] = await self.cluster.make_token(f"{space}-{word}", role, space)
        nodes = tuple((n.client, n.peer, n.http) for n in self.cluster.nodes)
        seconds, limit = self.pace * attack.seconds, LIMIT * attack.seconds + LOAD_CALL_S
        return AttackBrief(
            attack.name, self.seed, space, seconds, limit, self.slack, nodes, tokens,
            self.gateway.address,
        )  # fmt: skip

    async def send(self, attack: Attack, brief: AttackBrief) -> AttackFindings:
        """The attacker's process, until it ends or is ended."""
        base = self.folder / brief.namespace
        brief_path, found_path = base.with_suffix(".brief"), base.with_suffix(".found")
        brief_path.write_bytes(msgspec.json.encode(brief))
        process = Process(
            attack.name,
            ["raftsched.chaos.real.hostile.attacker", str(brief_path), str(found_path)],
            base.with_suffix(".log"),
        )
        process.start()
        self.attackers.append(process)
        limit = time.monotonic() + LIMIT * attack.seconds + LOAD_CALL_S + 15.0
        try:
            while process.alive and time.monotonic() < limit:
                await asyncio.sleep(0.05)
        finally:
            await asyncio.to_thread(process.kill)
            self.attackers.remove(process)
        if not found_path.exists():
            return AttackFindings(
                wrong=[f"the attacker ended with {process.code}: {process.tail()}"]
            )
        return msgspec.json.decode(found_path.read_bytes(), type=AttackFindings)

    # At the end.

    def gather(self, began: float, ended: float) -> None:
        """What the bystander saw, by the clock of the harness."""
        self.seen.began, self.seen.ended = began, ended
        leases = [e for e in read([self.folder / "bystander.seen"]) if isinstance(e, Lease)]
        times: dict[str, set[int]] = {}
        for lease in leases:
            late_ms = float(lease.wall_ms - lease.due_ms)
            due_at = lease.at - max(0.0, late_ms) / 1000
            if lease.attempt == 1:
                self.seen.starts.append(Start(due_at, late_ms))
            if began + 1 <= due_at <= ended - 2:
                times.setdefault(lease.job, set()).add(lease.scheduled_ms)
        for due in times.values():
            self.seen.never += (max(due) - min(due)) // 1000 + 1 - len(due)


def used_s() -> float:
    """Processor time that everybody on this machine has used, as the kernel counts it."""
    user, nice, system, _, _, irq, soft, *_ = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def why(node: NodeProcess) -> str:
    """What a node wrote of its end."""
    lines = node.tail().splitlines()
    worst = [line for line in lines if '"critical"' in line or '"error"' in line]
    return " ".join((worst or lines or [""])[-1].split('"event":')[-1].split())[:400]


def pulse(number: int) -> job_pb2.Job:
    """One of ten jobs each second, a tenth of a second apart."""
    job = job_pb2.Job(namespace=VICTIM, name=f"pulse-{number}")
    job.spec.action.handler = "work"
    job.spec.overlap.rule = job_pb2.OverlapPolicy.RULE_ALLOW
    job.spec.misfire.grace.FromSeconds(3_600)
    interval = job.spec.schedules.add().interval
    interval.every.FromSeconds(1)
    interval.anchor.FromMilliseconds(1000 * int(time.time()) + 1000 // PULSES * number)
    return job
