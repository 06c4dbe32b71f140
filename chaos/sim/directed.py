"""Schedules step by step, for what chance does not meet within a budget.

Each plays on the same nodes, disks and links as a random history, under the same checks, and ends
with the same healing. Only the links are given what to lose; delays and disks stay with the seed.
"""

from __future__ import annotations

from collections.abc import Callable

from ...cluster.raft.message import Append, AppendAck, Message, decode
from .client import ANSWER_WITHIN
from .cluster import SimCluster
from .node import SimNode

LARGE = b'{"id":"%s","key":"k","add":"%s"}'


class Unmet(Exception):
    """The schedule did not come about: a mistake in it, not a finding."""


class Directed:
    """A cluster of five whose links lose what the schedule says."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster, self.world = cluster, cluster.world
        self.late: dict[int, Callable[[], None]] = {}  # Acknowledged index -> deliver it now.
        self.count = 0

    def until(self, what: Callable[[], bool], story: str) -> None:
        if not what() and not self.world.run(self.world.now + 5.0, what):
            raise Unmet(story)

    def loses(self, lost: Callable[[str, str, Message], bool]) -> None:
        """From now on lose these messages, also those under way."""
        self.cluster.links.loses = lambda a, b, frame: lost(a, b, decode(frame[0])[0])

    def holds_back(self, a: str, b: str, frame: tuple[bytes, int], at: int) -> None:
        self.late[at] = lambda: self.cluster.links.deliver(a, b, frame)

    def leader(self, among: list[SimNode]) -> SimNode:
        """Wait until one of these leads the others, and return it."""
        self.until(lambda: self.cluster.leader() in among, f"none of {names(among)} leads")
        leader = self.cluster.leader()
        if leader is None:
            raise Unmet("the leader was lost again")
        return leader

    def kill(self, *nodes: SimNode) -> None:
        for node in nodes:
            self.world.fault(f"kill {node.name}")
            node.die(power=False)

    def write(self, node: SimNode) -> int:
        """Propose an entry that fills an append alone; return its index."""
        core = node.core
        if core is None:
            raise Unmet(f"{node.name} is dead")
        self.count += 1
        body = LARGE % (b"directed-%d" % self.count, b"x" * self.cluster.options.payload)
        core.propose(body, lambda _: None)
        node.wake()
        return core.journal.last_index


def names(nodes: list[SimNode]) -> list[str]:
    return [n.name for n in nodes]


def durable(node: SimNode, index: int, term: int) -> bool:
    core = node.core
    return (
        core is not None
        and core.journal.synced_index >= index
        and core.journal.term_at(index) == term
    )


def figure_8(cluster: SimCluster) -> None:
    """A majority has an entry of an old term, and yet it is replaced (Raft paper, figure 8)."""
    stage = Directed(cluster)
    nodes = [cluster.nodes[n] for n in cluster.first_names]
    first = stage.leader(nodes)
    stage.until(lambda: level(nodes), "the cluster does not come to rest")
    second, *others = [n for n in nodes if n is not first]
    stage.loses(lambda a, b, m: isinstance(m, Append) and b != second.name)
    term = term_of(first)
    at = stage.write(first)
    stage.until(lambda: durable(second, at, term), "the second node does not get the entry")
    stage.kill(first, second)
    stage.loses(lambda a, b, m: isinstance(m, Append))
    stage.until(lambda: any(durable(n, at, term + 1) for n in others), "nobody leads instead")
    rival = next(n for n in others if durable(n, at, term + 1))
    stage.kill(rival)
    voters = [n for n in others if n is not rival]
    stage.loses(lambda a, b, m: isinstance(m, Append) and would_store_own(cluster.nodes[b], m))
    first.start()
    second.start()
    stage.until(lambda: all(durable(n, at, term) for n in voters), "the old entry has no majority")
    cluster.world.run(cluster.world.now + 0.5)
    stage.kill(first, second)
    cluster.links.loses = None
    rival.start()
    if stage.leader([*voters, rival]) is not rival:
        raise Unmet("the rival's log is the newest, but another one leads")


def term_of(node: SimNode) -> int:
    return node.core.term if node.core is not None else 0


def level(nodes: list[SimNode]) -> bool:
    return len({(n.core.last_applied, n.core.journal.last_index) for n in nodes if n.core}) == 1


def would_store_own(node: SimNode, message: Append) -> bool:
    """Return whether a follower would take an entry of the very term of its leader."""
    core = node.core
    own = any(e.term == message.term for e in message.entries)
    return own and core is not None and message.prev <= core.journal.last_index


def late_ack(cluster: SimCluster) -> None:
    """An acknowledgement comes two terms late, of entries that were replaced since."""
    stage = Directed(cluster)
    nodes = [cluster.nodes[n] for n in cluster.first_names]
    first = stage.leader(nodes)
    stage.until(lambda: level(nodes), "the cluster does not come to rest")
    follower, *others = [n for n in nodes if n is not first]
    cut = {first.name, follower.name}

    def apart(a: str, b: str, frame: tuple[bytes, int]) -> bool:
        message = decode(frame[0])[0]
        if a == follower.name and isinstance(message, AppendAck) and message.ok:
            stage.holds_back(a, b, frame, message.at)
            return True
        return (a in cut) != (b in cut)

    cluster.links.loses = apart
    for _ in range(4):
        last = stage.write(first)
    stage.until(lambda: last in stage.late, "the entries are not acknowledged")
    between = stage.leader(others)
    stage.loses(lambda a, b, m: False)
    stage.until(lambda: level(nodes), "the rival's log does not reach everyone")
    core = between.core
    if core is not None:
        core.transfer(first.name, between.clock(), lambda _: None)
    between.wake()
    stage.until(lambda: cluster.leader() is first, "leadership does not go back")
    stage.until(lambda: level(nodes), "the new term does not reach everyone")
    # Heartbeats go on, so the follower is in the new term; entries reach one other node only.
    stage.loses(lambda a, b, m: isinstance(m, Append) and b != between.name)
    while stage.write(first) < last + 2:
        pass
    stage.late[last]()
    cluster.world.run(cluster.world.now + 1.0)
    cluster.links.loses = None


def lone_leader(cluster: SimCluster) -> None:
    """A leader is cut off with callers that wait, for longer than these may be left waiting."""
    stage = Directed(cluster)
    nodes = [cluster.nodes[n] for n in cluster.first_names]
    first = stage.leader(nodes)
    stage.loses(lambda a, b, m: first.name in (a, b))
    for client in cluster.clients:
        client.stopped = False
    stage.until(lambda: waits(cluster, first), f"nobody waits on {first.name}")
    stage.leader([n for n in nodes if n is not first])
    cluster.world.run(cluster.world.now + ANSWER_WITHIN + 1.0)
    cluster.links.loses = None


def pause_and_cut(cluster: SimCluster) -> None:
    """One node loses its power, and those who have what it acknowledged are paused when it is back:
    with those who were paused before it is a majority (as Jepsen did it to NATS 2.12)."""
    stage = Directed(cluster)
    nodes = [cluster.nodes[n] for n in cluster.first_names]
    first = stage.leader(nodes)
    stage.until(lambda: level(nodes), "the cluster does not come to rest")
    crasher, *others = [n for n in nodes if n is not first]
    late, quick = others[:2], [first, others[2]]
    for node in late:
        node.paused = True
    client = cluster.clients[0]
    client.stopped = False
    acked = cluster.checker.acks + 5
    stage.until(lambda: cluster.checker.acks >= acked, "nothing is acknowledged by three of five")
    client.stopped = True
    cluster.world.fault(f"power cut {crasher.name}")
    crasher.die(power=True)
    for node in quick:
        node.paused = True
    for node in late:
        node.resume()
    crasher.start()
    stage.leader([crasher, *late])
    cluster.world.run(cluster.world.now + 0.5)
    for node in quick:
        node.resume()


def waits(cluster: SimCluster, node: SimNode) -> bool:
    """Return whether a caller waits for what a node was asked to write."""
    calls = [call for client in cluster.clients for call in client.calls]
    return any(c.node is node and c.what != "read" and not c.answered for c in calls)
