"""PySyncObj as it is released, in the same kind of world: the first mutant.

It gets perfect disks (its journal keeps everything at once), links in order and without loss
but for cuts, and nothing worse than a killed process. It loses acknowledged writes all the same.
"""

from __future__ import annotations

import logging
import pickle
import random
import zlib
from collections.abc import Callable
from typing import Any

import pysyncobj.syncobj as audited
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.journal import MemoryJournal
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from .world import SimLinks, SimViolation, Wire, World

TICK = 0.01
FAULT_SECONDS = 20.0


class StableNode(Node):  # type: ignore[misc]  # PySyncObj has no types.
    """PySyncObj walks over sets of nodes, so their hash must be the same in each process."""

    def __hash__(self) -> int:
        return zlib.crc32(str(self.id).encode())


class KeptJournal(MemoryJournal):  # type: ignore[misc]  # PySyncObj has no types.
    """A journal that survives its process, whole."""

    def __init__(self) -> None:
        super().__init__()
        self.commit = 1

    def setRaftCommitIndex(self, index: int) -> None:
        self.commit = index

    def getRaftCommitIndex(self) -> int:
        return self.commit


class SimTransport(Transport):  # type: ignore[misc]  # As above.
    """Messages as PySyncObj pickles them, over simulated links."""

    def __init__(self, owner: UpstreamNode, me: Node, others: set[Node]) -> None:
        super().__init__(owner, me, others)
        self.me, self.owner = me, owner
        self.others = {n.id: n for n in others}

    @property
    def ready(self) -> bool:
        return True

    def send(self, node: Node, message: dict[str, Any]) -> bool:
        links = self.owner.links
        pair = tuple(sorted((self.me.id, node.id)))
        links.send(self.me.id, node.id, pickle.dumps(message))
        return pair in links.up

    def arrive(self, peer: str, frame: bytes) -> None:
        self._onMessageReceived(self.others[peer], pickle.loads(frame))

    def notice(self, peer: str, up: bool) -> None:
        (self._onNodeConnected if up else self._onNodeDisconnected)(self.others[peer])


class UpstreamNode(SyncObj):  # type: ignore[misc]  # As above.
    """A list that commands are appended to."""

    def __init__(self, me: str, names: list[str], links: SimLinks, conf: SyncObjConf) -> None:
        self.links = links
        self.applied: list[bytes] = []
        super().__init__(
            StableNode(me),
            [StableNode(n) for n in names if n != me],
            conf,
            transportClass=SimTransport,
        )

    def _SyncObj__doApplyCommand(self, command: bytes) -> bytes:
        if command[:1] == b"\0":
            self.applied.append(command[1:])
        return command


class UpstreamCluster:
    """Three nodes, a writer on each leader, kills and cuts; then everything heals."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.names = ["n1", "n2", "n3"]
        self.links = SimLinks(self.world, Wire(delay=0.005, jitter=0.005), self.names)
        self.nodes: dict[str, UpstreamNode | None] = dict.fromkeys(self.names)
        self.journals = {n: KeptJournal() for n in self.names}
        self.batch = self.world.dice.choice((1500, 4000, 65536))
        self.acked: list[bytes] = []
        self.count = 0
        self.links.deliver = self.deliver
        self.links.notice = self.notice
        self.links.alive = lambda n: self.nodes[n] is not None

    def deliver(self, a: str, b: str, frame: bytes) -> None:
        node = self.nodes[b]
        if node is not None:
            node._SyncObj__transport.arrive(a, frame)

    def notice(self, a: str, b: str, up: bool) -> None:
        node = self.nodes[a]
        if node is not None:
            node._SyncObj__transport.notice(b, up)

    def start(self, name: str) -> None:
        conf = SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=False,
            appendEntriesBatchSizeBytes=self.batch,
            appendEntriesPeriod=0.05,
            pollerType="select",
            journalFile=name,
        )
        self.nodes[name] = UpstreamNode(name, self.names, self.links, conf)

    def kill(self, name: str) -> None:
        if self.nodes[name] is not None:
            self.nodes[name] = None
            for other in self.names:
                if other != name:
                    self.links.break_pair(name, other)
            self.world.after(self.world.dice.uniform(0.1, 2), lambda: self.start(name))

    def tick(self) -> None:
        for node in list(self.nodes.values()):
            if node is not None:
                node.doTick(0.0)
        self.world.after(TICK, self.tick)

    def write(self) -> None:
        for node in self.nodes.values():
            if node is not None and node._isLeader():
                self.count += 1
                body = b"%d " % self.count + b"x" * self.world.dice.randint(1, 1500)
                node._applyCommand(b"\0" + body, self.answer(body))
        self.world.after(0.005 * self.world.dice.random(), self.write)

    def answer(self, body: bytes) -> Callable[[object, int], None]:
        def take(_: object, error: int) -> None:
            if error == audited.FAIL_REASON.SUCCESS:
                self.acked.append(body)

        return take

    def fault(self) -> None:
        leaders = [n for n, node in self.nodes.items() if node is not None and node._isLeader()]
        if leaders and self.world.dice.random() < 0.5:
            self.kill(self.world.dice.choice(leaders))
        else:
            a, b = self.world.dice.sample(self.names, 2)
            pairs = {(a, b), (b, a)}
            self.links.cut |= pairs
            self.links.break_pair(a, b)
            self.world.after(
                self.world.dice.uniform(0.1, 2), lambda: self.links.cut.difference_update(pairs)
            )
        if self.world.now < FAULT_SECONDS:
            self.world.after(self.world.dice.uniform(0.2, 2), self.fault)

    def run(self) -> None:
        """Raise SimViolation if an acknowledged write is gone, or the replicas differ."""
        for name in self.names:
            self.start(name)
        self.links.keep_connecting()
        self.tick()
        self.world.after(2.0, self.write)
        self.world.after(3.0, self.fault)
        self.world.run(FAULT_SECONDS + 15.0)
        states = {n: node.applied for n, node in self.nodes.items() if node is not None}
        whole = max(states.values(), key=len)
        # Not on any node: one that lags is not held against it.
        gone = set(self.acked).difference(*states.values())
        if gone:
            raise SimViolation(f"{len(gone)} of {len(self.acked)} acknowledged writes are nowhere")
        for name, applied in states.items():
            if applied != whole[: len(applied)]:
                raise SimViolation(f"{name} applied something else than the others")


def run_upstream(seed: int) -> str:
    """Return what went wrong with PySyncObj in this history, or nothing."""
    before = audited.monotonicTime, audited.createJournal, audited.PIPE_NOTIFIER_ENABLED
    logging.getLogger("pysyncobj").setLevel(logging.CRITICAL + 1)
    random.seed(seed)  # It draws its timeouts from the global generator.
    cluster = UpstreamCluster(seed)
    ticks = [0.0]

    def clock() -> float:
        ticks[0] += 2e-5  # Its loops wait for the clock to move, so reading it moves it.
        return 1000.0 + cluster.world.now + ticks[0]

    try:
        audited.monotonicTime = clock
        audited.createJournal = lambda name: cluster.journals[name]
        audited.PIPE_NOTIFIER_ENABLED = False
        cluster.run()
    except SimViolation as error:
        return str(error)
    finally:
        audited.monotonicTime, audited.createJournal, audited.PIPE_NOTIFIER_ENABLED = before
    return ""
