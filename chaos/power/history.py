"""A cluster of the simulator whose nodes stand on real files: the disk of production, the replica
of production and RocksDB, in folders that lose what was not synced when the power goes.

Links, clocks and callers are simulated, and the checker is the simulator's. The machine keeps
the answers to requests in the node's own store, through its own checkpoints and restores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from ...cluster.node.applier import Replica
from ...cluster.raft.faults import Fatal
from ...statemachine.core.store import Corrupt
from ...statemachine.model import keys
from ...statemachine.model.record import encode
from ..sim.cluster import Kit, SimCluster
from ..sim.node import SimNode
from ..sim.options import Options, draw
from ..sim.world import SimViolation
from .mount import Mount, PowerDisk

NODES = ["n1", "n2", "n3", "n4"]  # The last one is a spare.
FAULTS = frozenset({"power", "power_all", "kill", "snapshot", "member", "transfer", "isolate"})
CACHE_BYTES = 1 << 20
REQUEST, VALUE, DIGEST = b"\xf0r", b"\xf0v", b"\xf0d"
FLUSH_SHARE = 0.03
# Operations between a cut and the death of what is under way.
OPERATIONS_MAX = 40
FAULT_S = 10.0


@dataclass(frozen=True)
class PowerResult:
    """What came of one history."""

    seed: int
    violation: str
    cuts: int
    kills: int
    acks: int
    checkpoints: int
    restores: int


class PowerReplica(Replica):
    """The replica of a node, with a small machine in place of the rules."""

    def __init__(self, node: PowerNode) -> None:
        self.node = node
        root = node.disk.root
        super().__init__(root / "state", root, cache_bytes=CACHE_BYTES)

    @property
    def digest(self) -> str:
        return (self.store.get(DIGEST) or b"").decode()

    @property
    def requests(self) -> set[str]:
        rows = self.store.scan(REQUEST, REQUEST + b"\xff")
        return {key.removeprefix(REQUEST).decode() for key, _ in rows}

    def apply(self, index: int, data: bytes) -> None:
        self.let_go()
        request = json.loads(data)
        digest = hashlib.blake2b(self.digest.encode() + index.to_bytes(8, "big") + data)
        self.meta.applied_index = index
        self.store.write(
            [
                (REQUEST + request["id"].encode(), b"%d" % index),
                (VALUE + request["key"].encode(), request["add"].encode()),
                (DIGEST, digest.hexdigest()[:24].encode()),
                (keys.META, encode(self.meta)),
            ],
            [],
        )
        if self.node.world.dice.random() < FLUSH_SHARE:
            self.store.flush()  # As the engine does by itself when there is much in memory.
        self.node.applied(index, data, digest.hexdigest()[:24])

    def checkpoint(self) -> Callable[[str], int]:
        self.node.cluster.counts["checkpoints"] += 1
        return super().checkpoint()

    def restore(self, folder: str) -> None:
        self.node.cluster.counts["restores"] += 1
        super().restore(folder)


class PowerNode(SimNode):
    """A node whose disk is real files."""

    cluster: PowerCluster
    disk: PowerDisk  # type: ignore[assignment]  # It is killed otherwise; see `die`.

    def __init__(self, name: str, cluster: PowerCluster) -> None:
        super().__init__(name, cluster)
        cluster.mount.ask("fresh", name)
        self.disk = cluster.disk(cluster.mount, name)
        self.replica: PowerReplica | None = None

    def new_machine(self) -> PowerReplica:
        self.replica = PowerReplica(self)
        return self.replica

    def began(self) -> None:
        """A cut alone costs no snapshot and no state: both were synced before they counted."""
        core = self.core
        if core is not None and (core.snapshots.lost or core.bereft):
            raise SimViolation(f"{self.name} has a snapshot or a state that a cut has damaged")

    def die(self, *, power: bool) -> None:
        dice = self.world.dice
        after = dice.choice((0, dice.randint(0, OPERATIONS_MAX)))
        style = "power" if power else "kill"
        self.disk.ask("arm", after, style, dice.getrandbits(32))
        # What was under way goes on; the cut comes somewhere in it.
        super().die(power=power)
        self.disk.ask("cut")
        self.close()
        self.disk.ask("swap")
        self.cluster.counts["cuts" if power else "kills"] += 1

    def close(self) -> None:
        """Let go of all files; what this writes comes after the cut."""
        if self.replica is not None:
            if self.replica.retired is not None:
                self.replica.retired.close()
                self.replica.retired = None
            self.replica.close()
            self.replica = None
        self.disk.close()


class PowerCluster(SimCluster):
    """See the head of this file."""

    def __init__(self, options: Options, mount: Mount, disk: type[PowerDisk]) -> None:
        self.mount, self.disk = mount, disk
        self.counts = dict.fromkeys(("cuts", "kills", "checkpoints", "restores"), 0)
        super().__init__(options, Kit())

    def new_node(self, name: str) -> PowerNode:
        return PowerNode(name, self)

    def check_copies(self, node: SimNode, index: int) -> None:
        """The next cut of all nodes decides."""

    def close(self) -> None:
        for node in self.nodes.values():
            assert isinstance(node, PowerNode)
            node.core = None
            node.close()


def draw_power(seed: int, more: frozenset[str] = frozenset()) -> Options:
    drawn = draw(seed)
    dice = drawn.seed * 7919 % 3
    return replace(
        drawn,
        nodes=3,
        faults=frozenset({*FAULTS, *more}),
        quiet=(0.1, 0.2, 0.4)[dice],
        fault_seconds=FAULT_S,
        clients=2,
        payload=1500,
        limits=replace(drawn.limits, segment=24 << 10),
        settings=replace(drawn.settings, compact_bytes=48 << 10, tail_entries=(0, 5, 50)[dice]),
    )


def run_power(
    seed: int, mount: Mount, disk: type[PowerDisk] = PowerDisk, fault_s: float = FAULT_S
) -> PowerResult:
    """Live through one history. The seed decides what is done; which operation of the engine a cut
    meets, its threads decide too."""
    options = replace(draw_power(seed), fault_seconds=fault_s)
    cluster = PowerCluster(options, mount, disk)
    violation = ""
    try:
        cluster.run()
    except SimViolation as error:
        violation = str(error)
    except (Fatal, Corrupt, OSError, ValueError, AssertionError, LookupError) as error:
        violation = f"{type(error).__name__}: {error}"
    finally:
        cluster.close()
    return PowerResult(seed=seed, violation=violation, acks=cluster.checker.acks, **cluster.counts)
