"""What is done to a cluster while it runs, and what is left broken at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...cluster.raft.faults import CallRefused
from ...cluster.raft.membership import Configuration
from ...cluster.raft.raft import Raft
from ...cluster.raft.record import HEADER_BYTES, SEAL
from ...cluster.raft.segment import SUFFIX, read
from .disk import SimDisk
from .node import LATER_KIND, SimNode
from .world import SimViolation

if TYPE_CHECKING:
    from .cluster import SimCluster


class Faults:
    """Chooses and carries out faults of the classes that the seed switched on."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster, self.world = cluster, cluster.world
        self.options = cluster.options
        self.active = False
        known = {
            "cut": self.cut, "one_way": self.one_way, "bridge": self.bridge,
            "isolate": self.isolate, "halves": self.halves, "kill": self.kill, "power": self.power,
            "power_all": self.power_all, "pause": self.pause, "wipe": self.wipe,
            "eio": self.eio, "full": self.full, "slow_disk": self.slow_disk,
            "flip": self.flip, "snapshot": self.snapshot, "member": self.member,
            "rot": self.rot, "transfer": self.transfer, "slow_link": self.slow_link,
            "upgrade": self.upgrade, "jump": self.jump, "asleep": self.asleep,
        }  # fmt: skip
        self.kinds = [known[f] for f in sorted(self.options.faults) if f in known]

    def begin(self) -> None:
        self.active = True
        self.world.after(0.2, self.next)

    def next(self) -> None:
        if self.active:
            self.world.dice.choice(self.kinds)()
            self.world.after(self.options.quiet * 2 * self.world.dice.random(), self.next)

    def soon(self, low: float, high: float) -> float:
        return self.world.dice.uniform(low, high)

    def all(self) -> list[SimNode]:
        return list(self.cluster.nodes.values())

    def pick(self) -> SimNode:
        """A node; the leader as often as not, since that is where it hurts."""
        leader = self.cluster.leader()
        if leader is not None and self.world.dice.random() < 0.5:
            return leader
        return self.cluster.nodes[self.world.dice.choice(self.cluster.first_names)]

    # Links.

    def cut_for(self, pairs: list[tuple[str, str]], seconds: float) -> None:
        links = self.cluster.links
        for a, b in pairs:
            links.cut.add((a, b))
            noticed = self.world.dice.random() >= self.options.wire.silent
            links.break_pair(a, b, noticed=noticed)
        self.world.after(seconds, lambda: links.cut.difference_update(pairs))

    def cut(self) -> None:
        a, b = self.world.dice.sample(self.cluster.first_names, 2)
        self.world.fault(f"cut {a} {b}")
        self.cut_for([(a, b), (b, a)], self.soon(0.05, 3))

    def one_way(self) -> None:
        a, b = self.world.dice.sample(self.cluster.first_names, 2)
        self.world.fault(f"cut one way {a} to {b}")
        self.cut_for([(a, b)], self.soon(0.05, 3))

    def bridge(self) -> None:
        """Everyone reaches the middle only."""
        middle = self.pick().name
        rest = [n for n in self.cluster.names if n != middle]
        self.world.fault(f"bridge over {middle}")
        self.cut_for([(a, b) for a in rest for b in rest if a != b], self.soon(0.2, 3))

    def isolate(self) -> None:
        name = self.pick().name
        rest = [n for n in self.cluster.names if n != name]
        self.world.fault(f"isolate {name}")
        self.cut_for([(name, r) for r in rest] + [(r, name) for r in rest], self.soon(0.2, 4))

    def halves(self) -> None:
        """The leader with one other on one side, the rest on the other."""
        leader = self.pick().name
        side = {leader, self.world.dice.choice([n for n in self.cluster.names if n != leader])}
        rest = [n for n in self.cluster.names if n not in side]
        self.world.fault(f"halves: {' and '.join(sorted(side))} apart")
        pairs = [(a, b) for a in sorted(side) for b in rest]
        self.cut_for([*pairs, *((b, a) for a, b in pairs)], self.soon(0.2, 2))

    def slow_link(self) -> None:
        a, b = self.world.dice.sample(self.cluster.first_names, 2)
        self.world.fault(f"slow {a} to {b}")
        slow = self.cluster.links.slow
        slow[a, b] = self.soon(0.01, 0.4)
        self.world.after(self.soon(0.2, 3), lambda: slow.update({(a, b): 0.0}))

    # Processes.

    def kill(self) -> None:
        self.end(self.pick(), power=False)

    def power(self) -> None:
        self.end(self.pick(), power=True)

    def power_all(self) -> None:
        """Everyone at once."""
        for node in list(self.cluster.nodes.values()):
            self.end(node, power=True)

    def asleep(self) -> None:
        """Nobody is there for hours or days; once in a history."""
        if not self.cluster.slept_ms:
            self.power_all()
            hours = self.world.dice.choice((1, 1, 6, 48))
            self.world.fault(f"all are gone for {hours} hours")
            self.cluster.slept_ms = hours * 3_600_000

    def end(self, node: SimNode, *, power: bool) -> None:
        if node.core is not None:
            self.world.fault(f"{'power cut' if power else 'kill'} {node.name}")
            node.die(power=power)
            self.restart_later(node)

    def restart_later(self, node: SimNode) -> None:
        life = node.life
        delay = self.world.dice.choice((0.01, 0.1, 0.5, 2.0)) * self.soon(0.5, 1.5)
        self.world.after(delay, lambda: self.restart(node, life))

    def restart(self, node: SimNode, life: int) -> None:
        if node.life != life or node.core is not None or not self.active:
            return
        node.disk.full = False
        node.start()
        if node.core is None:
            self.repair(node)

    def repair(self, node: SimNode) -> None:
        """A node stopped by itself: another disk for damage, a newer release, or a restart."""
        if "does not know" in node.broken:
            node.future = True
        elif "Damaged" in node.broken:
            node.disk = SimDisk()
            node.flipped, node.rotten = False, ""
            self.cluster.wiped[node.name] = node.life
        self.restart_later(node)

    def pause(self) -> None:
        node = self.pick()
        if node.core is not None and not node.paused:
            self.world.fault(f"pause {node.name}")
            node.paused = True
            self.world.after(self.soon(0.05, 3), node.resume)

    def upgrade(self) -> None:
        """A later release on one node; when it leads it may write what others do not know."""
        node = self.pick()
        if not node.future:
            self.end(node, power=False)
            node.future = True
        elif node.core is not None and node.core.in_office and not node.paused:
            self.world.fault(f"{node.name} writes an entry of a later release")
            core = node.core
            body = b'{"id":"later-%d","key":"later","add":"y"}' % core.journal.last_index
            core.proposals.add(LATER_KIND, body, lambda _: None)
            node.wake()

    def jump(self) -> None:
        """Somebody sets a clock, and no time server puts it right for a while."""
        node = self.pick()
        # Words of a clock count for three seconds; a majority of wrong ones is right.
        if any(n is not node and n.wrong_until + 3.5 > self.world.now for n in self.all()):
            return
        seconds = self.world.dice.choice((-1, 1)) * self.world.dice.choice((0.3, 3.0, 3600.0))
        self.world.fault(f"the clock of {node.name} jumps by {seconds} s")
        node.jump(seconds, self.world.now + self.soon(0.1, 3.0))

    # Disks.

    def may_lose_a_disk(self) -> bool:
        """Only a minority may be lost at a time: all others must be whole and caught up."""
        leader = self.cluster.leader()
        if leader is None or leader.core is None:
            return False
        core = leader.core
        if core.members.config_index > core.node.commit:
            return False
        for name in list(self.cluster.wiped):
            progress = core.replication.progress.get(name)
            node = self.cluster.nodes[name]
            member = core.config.members.get(name)
            back = (
                node.core is not None
                and member is not None
                and member.voter
                and member.incarnation == node.core.incarnation
                and (
                    name == leader.name or (progress and progress.match >= self.cluster.checker.top)
                )
            )
            if back:
                del self.cluster.wiped[name]
        for node in self.cluster.nodes.values():
            node.look_for_rot()
        flipped = [n for n in self.cluster.nodes.values() if n.flipped]
        return not self.cluster.wiped and not flipped and len(core.config.voters) >= 3

    def wipe(self) -> None:
        node = self.pick()
        if node.core is not None and self.may_lose_a_disk():
            self.world.fault(f"wipe {node.name}")
            node.die(power=False)
            node.disk = SimDisk()
            self.cluster.wiped[node.name] = node.life
            self.restart_later(node)

    def flip(self) -> None:
        """Turn a bit somewhere in what a seal vouches for; the node finds it when it looks."""
        node = self.pick()
        names = [n for n in sorted(node.disk.kept) if n.endswith(SUFFIX)]
        if node.core is None or not names or not self.may_lose_a_disk():
            return
        path = self.world.dice.choice(names)
        found = read(node.disk.image(), "journal", int(path.split("/")[1].removesuffix(SUFFIX)))
        seals = [r.offset for r in found.records if r.kind == SEAL] if found else []
        if not seals or seals[-1] <= HEADER_BYTES:
            return
        offset = self.world.dice.randrange(HEADER_BYTES, seals[-1])
        self.world.fault(f"flip a bit of {node.name} in {path} at {offset}")
        node.disk.flip(path, offset, self.world.dice.randrange(8))
        node.flipped = True
        self.end(node, power=False)

    def rot(self) -> None:
        """Turn a bit of the newest snapshot; the node needs it at a start, or a follower does."""
        node = self.pick()
        if node.core is None or not node.core.snapshots.last_index or not self.may_lose_a_disk():
            return
        folder = f"snapshots/{node.core.snapshots.last_index:020d}/"
        paths = [n for n in sorted(node.disk.kept) if n.startswith(folder) and node.disk.size(n)]
        path = self.world.dice.choice(paths)
        offset = self.world.dice.randrange(node.disk.size(path))
        self.world.fault(f"flip a bit of {node.name} in {path} at {offset}")
        node.disk.flip(path, offset, self.world.dice.randrange(8))
        node.flipped, node.rotten = True, path
        if self.world.dice.random() < 0.5:
            self.end(node, power=False)

    def eio(self) -> None:
        node = self.pick()
        if node.core is not None:
            self.world.fault(f"sync error on {node.name}")
            node.disk.sync_error = True

    def full(self) -> None:
        node = self.pick()
        self.world.fault(f"full disk on {node.name}")
        node.disk.full = True
        disk = node.disk
        self.world.after(self.soon(0.2, 3), lambda: setattr(disk, "full", False))

    def slow_disk(self) -> None:
        node = self.pick()
        self.world.fault(f"slow disk on {node.name}")
        node.slow = self.soon(0.05, 0.5)
        self.world.after(self.soon(0.2, 3), lambda: setattr(node, "slow", 0.0))

    # The cluster's own business.

    def snapshot(self) -> None:
        node = self.pick()
        if node.core is not None and not node.paused:
            node.core.make_snapshot()
            node.wake()

    def transfer(self) -> None:
        self.ask(lambda core, now: core.transfer(None, now, lambda _: None))

    def member(self) -> None:
        """Give a member another address, or add the spare node, or remove it."""
        spare = self.cluster.nodes[self.cluster.spare]
        leader = self.cluster.leader()
        core = leader.core if leader is not None else None
        index = core.members.config_index if core is not None else 0
        if core is not None and index % 2:
            names, there = sorted(core.config.members), f"moved:{1 + index % 60_000}"
            name = names[index % len(names)]
            self.ask(lambda core, now: core.move_member(name, there, "", now, lambda _: None))
        elif spare.core is None and spare.life == 0:
            self.cluster.contacts[spare.name] = f"{spare.name}:1"
            spare.start()
        elif core is not None and spare.name not in core.config.members:
            self.ask(lambda core, now: core.add_member(spare.name, now, lambda _: None))
        elif core is not None and len(core.config.voters) > len(self.cluster.first_names):
            self.ask(lambda core, now: core.remove_member(spare.name, now, lambda _: None))

    def ask(self, call: Callable[[Raft, float], None]) -> None:
        leader = self.cluster.leader()
        if leader is not None and leader.core is not None:
            try:
                call(leader.core, leader.clock())
            except CallRefused:
                return
            leader.wake()

    # The end of the faults.

    def leave_majority(self) -> list[SimNode]:
        """Heal a majority of the voters with whole disks; the others are gone for good."""
        self.active = False
        cluster, world = self.cluster, self.world
        for client in cluster.clients:
            client.stopped = False
        for node in cluster.nodes.values():
            node.disk.full = node.disk.sync_error = False
            node.slow = 0.0
        chosen = self.choose()
        for node in cluster.nodes.values():
            if node not in chosen and node.core is not None:
                node.die(power=world.dice.random() < 0.5)
        links = cluster.links
        links.cut.clear()
        links.slow.clear()
        links.wire.silent = links.wire.late = 0.0
        for node in chosen:
            node.resume()
            if node.core is None:
                node.disk.sync_error = False
                node.future = node.future or "does not know" in node.broken
                node.start()
            if node.core is None and "does not know" not in node.broken:
                raise SimViolation(f"{node.name} with a whole disk does not start: {node.broken}")
        return chosen

    def stands(self, core: Raft, index: int) -> bool:
        """Whether what a node has at an index was committed, or may be: a leader that was cut off
        may hold another entry than the one that was."""
        journal, term = core.journal, self.cluster.checker.terms.get(index)
        return term is None or index <= journal.base_index or journal.term_at(index) == term

    def choose(self) -> list[SimNode]:
        """Pick voters that are a majority of every configuration that may be in force."""
        cluster, dice = self.cluster, self.world.dice
        for node in cluster.nodes.values():
            node.future = node.future or "upgrade" in self.options.faults
            if node.core is not None and node.future:
                node.know_later(node.core)
            if node.core is None and node.life:
                node.start()
        cores = [n.core for n in cluster.nodes.values() if n.core is not None]
        committed = max(cluster.checker.terms, default=0)
        known = {
            pair for core in cores for pair in core.journal.configs if self.stands(core, pair[0])
        }
        in_force = max((i for i, _ in known if i <= committed), default=0)
        configs = [Configuration.decode(text) for index, text in known if index >= in_force]
        whole = [
            n
            for n in cluster.nodes.values()
            if n.core is not None and n.name not in cluster.wiped and not n.flipped
        ]
        dice.shuffle(whole)
        whole = [n for n in whole if any(n.name in config.voters for config in configs)]
        for size in range(1, len(whole) + 1):
            names = {n.name for n in whole[:size]}
            if all(config.majority(names) for config in configs):
                return whole[: dice.choice((size, len(whole)))]
        raise SimViolation(f"the simulator broke more than a minority: {[n.name for n in whole]}")
