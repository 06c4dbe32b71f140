"""A cluster in one process, its callers, and its two phases: faults, then healing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from ...cluster.node.leader_loop import Leader
from ...cluster.node.worker_sessions import WorkerSessions
from ...cluster.raft.faults import Damaged
from ...cluster.raft.journal import Journal
from ...cluster.raft.message import Message
from ...cluster.raft.raft import Raft
from .checker import Checker, holds
from .client import Caller, SimClient
from .faults import Faults
from .node import SimNode
from .options import Options
from .world import SimLinks, SimViolation, World

LEADER_WITHIN = 2.0  # DESIGN.md has the sum.
CAUGHT_UP_WITHIN = 10.0


def release(core: Raft) -> list[tuple[str, Message]]:
    return core.outbox.release(core.journal.synced)


def core_of(core: type[Raft], part: type[object] | None) -> type[Raft]:
    """Return a core that has this part in place of its own."""
    if part is None:
        return core
    names = [name for name, made in vars(Raft).items() if isinstance(made, type)]
    [name] = [name for name in names if issubclass(part, getattr(Raft, name))]
    return type("BrokenRaft", (core,), {name: part})


@dataclass(frozen=True)
class Kit:
    """What nodes are made of; a mutant has one part exchanged, or a rule for the time it runs."""

    core: type[Raft] = Raft
    part: type[object] | None = None  # In place of the part of the core that it is derived from.
    leader: type[Leader] = Leader
    sessions: type[WorkerSessions] = WorkerSessions
    rules: Callable[[], AbstractContextManager[None]] = nullcontext
    journal: type[Journal] = Journal
    release: Callable[[Raft], list[tuple[str, Message]]] = release

    @property
    def core_type(self) -> type[Raft]:
        return core_of(self.core, self.part)


Schedule = Callable[["SimCluster"], None]


class SimCluster:
    """See the head of this file."""

    def __init__(self, options: Options, kit: Kit) -> None:
        self.options, self.kit = options, kit
        self.world = World(options.seed)
        self.checker = Checker(self.world.note)
        self.first_names = [f"n{i}" for i in range(1, options.nodes + 1)]
        self.spare = f"n{options.nodes + 1}"
        self.names = [*self.first_names, self.spare]
        self.contacts = {n: f"{n}:1" for n in self.first_names}
        self.links = SimLinks(self.world, options.wire, self.names)
        self.nodes: dict[str, SimNode] = {n: self.new_node(n) for n in self.names}
        self.clients: list[Caller] = [self.new_caller(i) for i in range(options.clients)]
        self.links.deliver = lambda a, b, m: self.nodes[b].receive(a, *m)
        self.links.notice = lambda a, b, up: self.nodes[a].link(b, up)
        self.links.alive = lambda n: self.nodes[n].core is not None
        self.wiped: dict[str, int] = {}  # Node -> incarnations lost and not yet made good.
        self.faults = Faults(self)
        self.checking = True
        self.slept_ms = 0  # How long nobody was there, beside the world's own time.

    def new_node(self, name: str) -> SimNode:
        return SimNode(name, self)

    def new_caller(self, number: int) -> Caller:
        return SimClient(number, self)

    # A history.

    def run(self, schedule: Schedule | None = None) -> None:
        """Live through it, or raise SimViolation; a schedule takes the place of random faults."""
        if "drift" in self.options.faults:
            for node in self.nodes.values():
                node.rate = self.world.dice.uniform(0.9, 1.1)
        for name in self.first_names:
            self.nodes[name].start()
        self.links.keep_connecting()
        if not self.world.run(5.0, lambda: self.leader() is not None):
            raise SimViolation("no leader after a first start without faults")
        self.world.run(self.world.now + 0.2)
        for client in self.clients:
            client.stopped = schedule is not None
        self.begin_callers()
        self.check_calls()
        if schedule is not None:
            schedule(self)
        else:
            self.faults.begin()
            self.world.run(self.world.now + self.options.fault_seconds)
        self.heal()

    def begin_callers(self) -> None:
        for client in self.clients:
            client.go()

    def check_calls(self) -> None:
        for client in self.clients:
            client.check()
            if client.current is None and not client.stopped:
                client.go()
        self.world.after(0.25, self.check_calls)

    # Who is where.

    def live(self) -> list[SimNode]:
        return [n for n in self.nodes.values() if n.core is not None and not n.paused]

    def leader(self) -> SimNode | None:
        """The leader of the highest term, if it has taken office."""
        leading = [n for n in self.live() if n.core is not None and n.core.in_office]
        return max(leading, key=lambda n: n.core.term if n.core else 0, default=None)

    def guess_leader(self) -> SimNode:
        """Where a client would try: mostly the leader, sometimes one that thinks it is."""
        leading = [n for n in self.live() if n.core is not None and n.core.in_office]
        if leading and self.world.dice.random() < 0.95:
            return self.world.dice.choice(leading)
        return self.nodes[self.world.dice.choice(self.first_names)]

    # Promises.

    def acknowledged(self, node: SimNode, request: str, index: int, invoked_top: int) -> None:
        self.checker.acknowledged(request, index, invoked_top)
        if self.world.dice.random() < 0.03:
            self.check_copies(node, index)

    def check_copies(self, node: SimNode, index: int) -> None:
        """K2, on what would be left if the power went at this moment.

        The configuration that counts is the leader's last one, committed or not.
        """
        core = node.core
        if core is None or index not in self.checker.terms:
            return
        copies, lost = [], 0
        # A wiped disk may have been a voter's when the entry was committed, and have had it.
        counted = sorted({*core.config.voters, *self.wiped})
        for name in counted:
            voter = self.nodes[name]
            if voter.flipped or name in self.wiped:
                lost += 1
                continue
            disk, term = voter.disk, self.checker.terms[index]
            copies.append(holds(disk, self.options.limits, index, term))
        self.checker.durable(index, copies, lost, len(counted))

    def stopped(self, node: SimNode, error: Exception) -> None:
        """A node ended itself: fine if it was given a reason, a violation otherwise."""
        text = str(error)
        reasons = (
            "the disk failed" in text,
            node.flipped and isinstance(error, Damaged),
            "does not know" in text and not node.future and "upgrade" in self.options.faults,
        )
        if not any(reasons):
            raise SimViolation(f"{node.name} stopped without a fault: {node.broken}")
        self.faults.restart_later(node)

    # The second phase.

    def heal(self) -> None:
        """Heal a majority, leave the rest broken, and demand progress."""
        core_nodes = self.faults.leave_majority()
        world, names = self.world, [n.name for n in core_nodes]
        world.note(f"healed: {', '.join(names)}")
        if not world.run(world.now + LEADER_WITHIN, lambda: self.followed(names)):
            raise SimViolation(f"no majority of {names} follows a leader after {LEADER_WITHIN} s")
        begun, acks = world.now, self.checker.acks
        for client in self.clients:
            client.stopped = False
        if not world.run(begun + CAUGHT_UP_WITHIN, lambda: self.checker.acks > acks):
            raise SimViolation(f"nothing was acknowledged in {CAUGHT_UP_WITHIN} s by {names}")
        self.settle()
        for client in self.clients:
            client.stopped = True
        begun = world.now
        if not world.run(begun + CAUGHT_UP_WITHIN, lambda: self.level(names)):
            where = {n: (c.last_applied, c.node.commit) for n in names if (c := self.nodes[n].core)}
            raise SimViolation(f"not caught up after {CAUGHT_UP_WITHIN} s: {where}")
        world.run(world.now + 0.5)
        self.check_end(names)

    def settle(self) -> None:
        """What else is given time before everyone stops."""

    def followed(self, names: list[str]) -> bool:
        """Return whether a majority follows one of these, in its term."""
        cores = [c for n in names if (c := self.nodes[n].core) is not None]
        return any(
            core.node.leads
            and core.config.majority(
                {c.me for c in cores if (c.node.leader, c.term) == (core.me, core.term)}
            )
            for core in cores
        )

    def level(self, names: list[str]) -> bool:
        """Everyone in the healed majority has applied the same and nobody waits."""
        if any(not call.answered for client in self.clients for call in client.calls):
            return False
        leader = self.leader()
        if leader is None or leader.core is None:
            return False
        # One that turns out to have been removed is not kept up to date.
        names[:] = [n for n in names if n in leader.core.config.members]
        cores = [self.nodes[n].core for n in names]
        ends = {(c.last_applied, c.node.commit, c.journal.last_index) if c else () for c in cores}
        return len(ends) == 1

    def check_end(self, names: list[str]) -> None:
        """Everything acknowledged is in everyone's state, and the states are equal."""
        machines = {n: c.machine for n in names if (c := self.nodes[n].core) is not None}
        digests = {n: getattr(m, "digest", "") for n, m in machines.items()}
        if len(set(digests.values())) > 1:
            raise SimViolation(f"A1 states differ at the end: {digests}")
        for name, machine in machines.items():
            requests = getattr(machine, "requests", {})
            gone = [r for r in self.checker.acked if r not in requests]
            if gone:
                raise SimViolation(f"{name} lost {len(gone)} acknowledged writes: {gone[:5]}")
